/* SPDX-License-Identifier: MIT */
/* What the user of rdma_server asks for. */
#ifndef RDMA_EXAMPLE_SERVER_OPTIONS_H
#define RDMA_EXAMPLE_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct server_options {
	const char *address; /* NULL: every one of this host, IPv4 */
	uint16_t port;       /* 0: any that is free */
	const char *file;    /* where a client's file goes; NULL: it is not stored */
	bool forever;
	uint64_t max_length; /* that a client may ask for */
	uint64_t max_total;  /* that all may have together */
	int timeout_ms;      /* for a client to say what it wants */
};

/* Whether to go on; otherwise @status is the exit status. */
bool server_options_parse(struct server_options *options, int argc, char **argv, int *status);

#endif
