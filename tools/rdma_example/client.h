/* SPDX-License-Identifier: MIT */
/* rdma_client's state, and how it waits. */
#ifndef RDMA_EXAMPLE_CLIENT_H
#define RDMA_EXAMPLE_CLIENT_H

#include <stdbool.h>

#include "client_options.h"
#include "endpoint.h"

/* What a completion belongs to, beyond the records. */
enum { WR_DATA = WR_SEND + 1, WR_NUDGE };

struct client {
	const struct client_options *options;
	uint8_t *source; /* the first buffer */
	size_t length;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct endpoint endpoint;
	struct ibv_mr *source_mr;
	struct region copy;        /* the second buffer */
	struct buffer_attr server; /* where the server's is */
	bool is_connected, was_connected;
};

/* The next event of the connection manager, within @ms: 0 if it is the one @expected. */
int client_await_event(struct client *client, enum rdma_cm_event_type expected, int ms);
/* The same as a step: within the user's timeout, and it says what is wrong. */
int client_expect_event(struct client *client, enum rdma_cm_event_type expected);

/*
 * The next completion, which must be a success; @what is it that is waited for. While nothing
 * comes, the server is nudged up to @nudges times.
 */
int client_await_completion(struct client *client, const char *what, int nudges, struct ibv_wc *wc);

#endif
