/* SPDX-License-Identifier: MIT */
/* The RC service over TCP: iWARP. */
#ifndef SOFTRDMA_TCP_H
#define SOFTRDMA_TCP_H

#include <stdbool.h>

#include "../rc.h"
#include "../wire/mpa.h"

/*
 * Run @qp over the connected, non-blocking socket @fd whose handshake has just ended with @agreed.
 * Called with the queue pair's lock held; takes @fd over on success. 0 or -errno.
 */
int tcp_attach(struct rc_qp *qp, int fd, const struct mpa_agreed *agreed, bool initiator);

#endif
