/* SPDX-License-Identifier: MIT */
/*
 * The record by which the two sides tell each other where a buffer is. 16 bytes in the sender's
 * byte order: address (8), length (4), key (4). A peer of the other byte order is not served.
 *
 * A record is not an ibv_mr. An ibv_mr is this process's handle for memory that it has registered,
 * with two keys: the lkey, for its own requests, and the rkey, for those of the peer. A record is
 * what the peer needs to know of it: where, how long, and the rkey.
 */
#ifndef RDMA_EXAMPLE_BUFFER_ATTR_H
#define RDMA_EXAMPLE_BUFFER_ATTR_H

#include <stddef.h>
#include <stdint.h>

#define BUFFER_ATTR_BYTES 16

struct buffer_attr {
	uint64_t address;
	uint32_t length;
	uint32_t stag; /* the rkey */
};

void buffer_attr_put(uint8_t out[static BUFFER_ATTR_BYTES], const struct buffer_attr *attr);

/*
 * What a peer sent. It is refused, with -errno, if it is not a whole record (-EBADMSG), names no
 * bytes (-EINVAL) or more than @max_length (-EMSGSIZE), or reaches beyond the end of memory
 * (-EOVERFLOW).
 */
int buffer_attr_get(const void *bytes, size_t size, uint64_t max_length, struct buffer_attr *out);

/* For people: what such an error means. */
const char *buffer_attr_strerror(int error);

void buffer_attr_print(const struct buffer_attr *attr);

#endif
