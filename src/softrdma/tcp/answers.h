/* SPDX-License-Identifier: MIT */
/* Answers to the peer's reads and atomics, in the order of its requests. */
#ifndef SOFTRDMA_TCP_ANSWERS_H
#define SOFTRDMA_TCP_ANSWERS_H

#include "conn.h"

bool answers_wait(const struct tx *tx);
/* Whether something has to leave before the answer to a request that comes now. */
bool answers_or_bytes_wait(const struct tcp_conn *conn);
/*
 * Has the oldest answer left in part? Two tagged messages must not be interleaved; a Send and an
 * answer may be.
 */
bool answer_is_open(const struct tcp_conn *conn);
/* Answer a peer's read or atomic. -ENOMEM; -EPROTO: more than we agreed to hold; -EFAULT. */
int answer_add(struct tcp_conn *conn, const struct answer *answer);
/* FPDUs of the oldest. False: its memory may not be reached, and the connection has ended. */
bool answer_build(struct tcp_conn *conn);

#endif
