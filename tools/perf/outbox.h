/* SPDX-License-Identifier: MIT */
/* Messages of one size that a connection sends again and again, from a few buffers in turn. */
#ifndef PERF_OUTBOX_H
#define PERF_OUTBOX_H

#include <stdint.h>

#include <ibmsg.h>

struct outbox {
	ibmsg_socket *socket;
	ibmsg_buffer *buffers;
	ibmsg_buffer **ready; /* those that can be posted */
	unsigned count, ready_count;
	uint64_t owed; /* messages that wait for a buffer */
};

/* These return IBMSG_OK or an error of ibmsg. The first byte of every message is @kind. */
int outbox_init(struct outbox *outbox, ibmsg_socket *socket, unsigned count, size_t size,
		uint8_t kind);
/* One more message, as soon as a buffer is ready. */
int outbox_send(struct outbox *outbox);
/* @msg, one of its own, is on its way no longer. */
int outbox_put_back(struct outbox *outbox, ibmsg_buffer *msg);
/* When none is on its way. Zeroed, or one whose init failed, may be passed too. */
void outbox_fini(struct outbox *outbox);

#endif
