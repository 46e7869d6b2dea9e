/* SPDX-License-Identifier: MIT */
/*
 * One client of the server, from its connect request to its end. Each has its own id, queue pair,
 * completion queue, protection domain and buffer, so what one does is no affair of the others.
 */
#ifndef RDMA_EXAMPLE_SERVED_H
#define RDMA_EXAMPLE_SERVED_H

#include <stdbool.h>

#include "common.h"
#include "endpoint.h"
#include "server_options.h"

enum served_state {
	SERVED_ACCEPTED,  /* but not yet established */
	SERVED_CONNECTED, /* it is to say how much it wants */
	SERVED_OFFERED,   /* it has its buffer */
};

struct served {
	const struct server_options *options;
	enum served_state state;
	struct endpoint endpoint;
	struct region buffer;
	char name[ADDRESS_TEXT];
	uint64_t deadline_ms; /* for the first two states */
	bool has_asked;       /* its record is here */
	uint32_t asked_bytes; /* of the record */
};

/* Step 2: a client asks for a connection; it is accepted. 0 or -errno, reported. */
int served_new(struct served **out, struct rdma_cm_id *id, const struct server_options *options);

/* The connection is established. Its record may have come before; see served_answer. */
void served_established(struct served *client);

/* Take what has completed: its record, and that ours has left. 0 or -errno: it is to be dropped. */
int served_complete(struct served *client);

/*
 * Steps 3 to 5: give it its buffer, if it has asked and is established. @room is how much may be
 * given. 0 or -errno: it is to be dropped.
 */
int served_answer(struct served *client, uint64_t room);

/* It has disconnected: 0, or -errno if it went too early. */
int served_finish(struct served *client);

/* Disconnect if need be, and release everything, the id too. */
void served_free(struct served *client);

#endif
