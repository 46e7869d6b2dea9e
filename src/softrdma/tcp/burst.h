/* SPDX-License-Identifier: MIT */
/* A burst: FPDUs gathered to leave by one system call. */
#ifndef SOFTRDMA_TCP_BURST_H
#define SOFTRDMA_TCP_BURST_H

#include "conn.h"

int burst_init(struct tcp_conn *conn); /* 0 or -ENOMEM */
void burst_fini(struct tcp_conn *conn);
void burst_reset(struct tcp_tx *tx);

/* Is a payload of @len bytes copied when it is added, rather than when the socket takes it? */
bool burst_is_copied(const struct tcp_conn *conn, size_t len);
/* Is there room for another FPDU with @len bytes of payload? */
bool burst_has_room(const struct tcp_conn *conn, size_t len);
/* Of one FPDU. */
size_t burst_max_payload(const struct tcp_conn *conn, size_t header_len);
/* One FPDU: @header as an encoder of wire/ddp.h made it, then payload from a gather list. */
void burst_add_fpdu(struct tcp_conn *conn, const uint8_t *header, size_t header_len,
		    const struct ibv_sge *sge, unsigned num_sge, uint64_t offset, size_t len);

#endif
