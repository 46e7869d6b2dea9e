/* SPDX-License-Identifier: MIT */
/*
 * Messages that arrived before a receive was posted for them: a bounded amount is kept, for a
 * bounded time.
 */
#ifndef SOFTRDMA_TCP_HELD_H
#define SOFTRDMA_TCP_HELD_H

#include "conn.h"

/* A new message is to be held. -EAGAIN: no more is kept now; -ENOMEM. */
int held_begin(struct tcp_conn *conn);
/* Room for @len more bytes of the message in progress. -EAGAIN: no more is kept now; -ENOMEM. */
int held_make_room(struct tcp_conn *conn, uint32_t len);
/* Where its next byte goes; @len bytes were put there; it is whole. */
uint8_t *held_end(struct tcp_conn *conn);
void held_placed(struct tcp_conn *conn, uint32_t len);
void held_complete(struct tcp_conn *conn, const struct rc_arrival *arrival);

/*
 * Give what is held to the receives that are posted now; a message in progress goes on in its
 * receive. False: the connection has ended, or more messages are held than receives posted.
 */
bool held_deliver(struct tcp_conn *conn);
/* The timer has expired: has a message waited for so long, or is the timer to go on? */
bool held_too_long(struct tcp_conn *conn);
void held_drop_all(struct tcp_conn *conn);

#endif
