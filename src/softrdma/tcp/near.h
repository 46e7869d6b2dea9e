/* SPDX-License-Identifier: MIT */
/*
 * A connection within the host. One core copies what is sent into the socket's queue, another one
 * out of it: the kernel lets the queue grow longer than the caches beside them, and the copies
 * become slower.
 */
#ifndef SOFTRDMA_TCP_NEAR_H
#define SOFTRDMA_TCP_NEAR_H

#include <stdbool.h>
#include <sys/socket.h>

/* Are both addresses of one host? If not, that is no proof that they are of two. */
bool near_is(const struct sockaddr *own, const struct sockaddr *peer);

/* Keep the queue of @fd short if its peer is on this host, and the kernel allows that length. */
void near_shorten_queue(int fd);

#endif
