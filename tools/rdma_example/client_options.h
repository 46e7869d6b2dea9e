/* SPDX-License-Identifier: MIT */
/* What the user of rdma_client asks for. */
#ifndef RDMA_EXAMPLE_CLIENT_OPTIONS_H
#define RDMA_EXAMPLE_CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct client_options {
	const char *address;
	uint16_t port;
	const char *string, *file; /* one of them */
	int timeout_ms;            /* for each step */
	int retry_ms;              /* while nobody listens */
};

/* Whether to go on; otherwise @status is the exit status. */
bool client_options_parse(struct client_options *options, int argc, char **argv, int *status);

#endif
