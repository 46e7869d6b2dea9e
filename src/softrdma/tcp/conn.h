/* SPDX-License-Identifier: MIT */
/*
 * One iWARP connection: framing and a socket, as the files of this folder share it. Guarded by its
 * queue pair's lock while it has one.
 */
#ifndef SOFTRDMA_TCP_CONN_H
#define SOFTRDMA_TCP_CONN_H

#include "../rc/conn.h"
#include "../tuning.h"
#include "../wire/ddp.h"
#include "../wire/mpa.h"
#include "tcp.h"

/* In the upper half of an Immediate Data message: it belongs to the Send that follows. */
#define IMMEDIATE_OF_SEND (1ull << 32)

/*
 * Keys of empty Writes. No region has a key below 256. An empty Write of a program goes to the
 * first, as does one that only says that this end is there. One to the second is an
 * acknowledgement between two ends that agreed on them: its offset is the number of FPDUs, from
 * the first on, that this end has dealt with.
 */
#define STAG_NOWHERE     1u
#define STAG_ACKNOWLEDGE 2u

/*
 * Sending. FPDUs are gathered into a burst: headers, trailers and short payloads are copied into
 * the stage, long payloads stay where they are. A burst that the socket takes only in part waits,
 * and no other is built until it has left.
 */
struct tcp_tx {
	bool spoken; /* FPDUs have been sent */
	bool full;   /* the socket takes no more until EPOLLOUT says so */
	int broken;  /* the socket takes no more ever, because of this error */
	uint8_t *stage;
	size_t stage_size;
	size_t stage_len;
	struct iovec iov[TCP_BURST_PIECES];
	int iov_first, iov_end;
	size_t left; /* bytes of the burst not yet taken by the socket */

	uint32_t send_msn;    /* of the next Send */
	uint32_t request_msn; /* of the next Read or Atomic Request */
	uint32_t result_msn;  /* of the next Atomic Response */
	bool immediate_put;   /* of the Send that is next */
	uint32_t told;        /* position in the last acknowledgement */
	/* The memory that the burst at hand answers from, to be checked again if it has to wait. */
	uint32_t burst_stag;
	uint64_t burst_to;
	size_t burst_len;
};

enum tcp_rx_state { RX_HEADER, RX_PAYLOAD, RX_TRAILER };

/* Receiving: where the stream stands. */
struct tcp_rx {
	enum tcp_rx_state state;
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	uint8_t header_len;
	uint8_t trailer[3 + FPDU_CRC_LEN];
	uint8_t trailer_len;
	uint16_t ulpdu_len;
	bool rtr; /* the FPDU at hand is the empty one that says ready-to-receive */
	struct ddp_header segment;
	struct rc_frame frame; /* what it means */
	uint32_t done;         /* payload bytes of the segment that are in place */
	uint32_t crc;
	struct ddp_order order;

	bool write_open;     /* a Write is in progress */
	uint32_t write_done; /* bytes of the last Write, for the immediate data that follows */
	bool has_imm;        /* the Send to come has immediate data: */
	uint32_t imm;
	uint8_t terminate[4];
	uint8_t *stash; /* bytes that were read behind a frame that is blocked */
	size_t stash_len;
};

struct tcp_conn {
	struct rc_conn rc; /* first */
	struct progress_timer open_timer;
	bool crc;
	bool soft;
	bool heard;     /* the first FPDU of the peer has come */
	uint8_t nudges; /* given to a peer that was silent */
	uint8_t rtr;    /* enum mpa_rtr that was agreed on, 0 for none */
	bool rtr_read;  /* our ready-to-receive read is unanswered */
	size_t max_ulpdu;
	struct tcp_tx tx;
	struct tcp_rx rx;
};

static inline struct tcp_conn *to_tcp(struct rc_conn *conn)
{
	return container_of(conn, struct tcp_conn, rc);
}

/* ---- conn.c ---- */

void tcp_watch(struct tcp_conn *conn, uint32_t events);
/* The initiator's first FPDU is here: now the responder may speak. */
void tcp_hear_first(struct tcp_conn *conn);

/* ---- tx.c ---- */

int tcp_tx_init(struct tcp_conn *conn);
void tcp_tx_fini(struct tcp_conn *conn);
/*
 * Send what there is as far as the socket takes it, within a budget. Whether anything left. May end
 * the connection.
 */
bool tcp_tx_run(struct tcp_conn *conn);
/* Open the direction: say ready-to-receive if that was agreed, then what is queued. */
void tcp_tx_open(struct tcp_conn *conn);
/*
 * An empty Write behind what was sent, if nothing else is under way. To the peer's program it means
 * nothing. May end the connection.
 */
void tcp_tx_nudge(struct tcp_conn *conn);
/* Best effort: a Terminate, unless an FPDU is half out. */
void tcp_tx_terminate(struct tcp_conn *conn, uint16_t code, bool offending);

/* ---- frames.c ---- */

/* For struct rc_transport: frames become FPDUs of the burst. */
ssize_t tcp_put(struct rc_conn *conn, struct rc_frame *frame, const struct ibv_sge *sge,
		unsigned num_sge, uint64_t offset, uint32_t left);
/* An empty Write. */
void tcp_put_empty_write(struct tcp_conn *conn, uint32_t stag, uint64_t to);
/* Tell what has been placed, if that is agreed on and new; the burst has room. */
void tcp_put_acknowledgement(struct tcp_conn *conn);
/* Is the segment at hand one? It may come between any two others. */
bool tcp_is_acknowledgement(const struct tcp_conn *conn);
/* FPDUs become frames: the segment's headers are in rx.segment. */
enum rc_outcome tcp_begin_segment(struct tcp_conn *conn);
/* All of it is in place and its CRC is right: it takes effect. */
enum rc_outcome tcp_end_segment(struct tcp_conn *conn);

/* ---- rx.c ---- */

void tcp_rx_init(struct tcp_conn *conn);
void tcp_rx_fini(struct tcp_conn *conn);
/* Take what the socket has, within a budget. Whether anything came. May end the connection. */
bool tcp_rx_run(struct tcp_conn *conn);
/* The frame that was blocked, and what was read behind it, have their turn again. */
void tcp_rx_resume(struct rc_conn *conn);

#endif
