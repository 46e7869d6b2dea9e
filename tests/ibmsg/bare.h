/* SPDX-License-Identifier: MIT */
/*
 * A peer that uses verbs itself, in a process of its own: what it says is its own affair. Its
 * receives have a slot each in the lower part of its buffer, what it sends lies above.
 */
#ifndef IBMSG_BARE_H
#define IBMSG_BARE_H

#include "pair.h"

#define BARE_SLOT    (8 * KIB)
#define BARE_SLOTS   64
#define BARE_SEND_AT ((size_t)BARE_SLOTS * BARE_SLOT)
#define BARE_SEND    (256 * KIB)

/* Something that came. */
struct bare_arrival {
	uint64_t slot;
	const uint8_t *data;
	uint32_t len;
};

/* Ready to connect to @port, in host order, with so many receives posted. */
void bare_open(struct side *side, uint16_t port, unsigned receives);
void bare_connect(struct side *side, const void *private_data, size_t len);
/* Take a request, and accept it without private data. */
void bare_accept(struct side *side, struct rdma_event_channel *channel, unsigned receives);
void bare_recv(struct side *side, uint64_t slot);
/* Whether it has left; false: the connection has ended. */
bool bare_send(struct side *side, const void *data, size_t len);
/* Whether something came; false: the connection has ended. */
bool bare_next(struct side *side, struct bare_arrival *out);
void bare_await_end(struct side *side);

#endif
