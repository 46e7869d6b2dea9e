/* SPDX-License-Identifier: MIT */
/* What each end says to the other over the Unix socket before a connection is shared memory. */
#ifndef SOFTRDMA_SHM_HELLO_H
#define SOFTRDMA_SHM_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HELLO_MAX_FDS 2 /* the responder's: the area, then its table of regions, if it gives it */

struct hello {
	char magic[8];
	uint32_t version;
	uint32_t has_table;   /* 1: the last descriptor is the sender's table of regions */
	uint64_t probe_at;    /* a word in the sender's memory, */
	uint64_t probe_value; /* and what is found there by who may look */
};

void hello_make(struct hello *hello, bool has_table, const uint64_t *probe);

/*
 * Check the @len bytes that came with @num_fds descriptors; @out is a copy. 0, or -EPROTO: not a
 * hello of this version, or not with the descriptors that it needs.
 */
int hello_parse(const void *bytes, size_t len, unsigned num_fds, bool from_responder,
		struct hello *out);

#endif
