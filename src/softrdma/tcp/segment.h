/* SPDX-License-Identifier: MIT */
/* What arriving segments mean. */
#ifndef SOFTRDMA_TCP_SEGMENT_H
#define SOFTRDMA_TCP_SEGMENT_H

#include "conn.h"

enum outcome {
	GO_ON,
	BLOCKED, /* no receive, and no room to keep the message: the stream waits */
	ENDED,   /* the connection has ended */
};

/* The segment's headers are in rx.segment: check them and choose where the payload goes. */
enum outcome segment_begin(struct tcp_conn *conn);

/* All of it is in place and its CRC is right: it takes effect. */
enum outcome segment_end(struct tcp_conn *conn);

/* What a peer is told of its read or atomic that may not be. */
uint16_t segment_read_fault(enum rc_fault fault);

/* The segment at hand is wrong: tell the peer, with the offending header. ENDED. */
enum outcome segment_fail(struct tcp_conn *conn, uint16_t code);

#endif
