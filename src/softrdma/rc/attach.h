/* SPDX-License-Identifier: MIT */
/* The one place that chooses what carries a connection. */
#ifndef SOFTRDMA_RC_ATTACH_H
#define SOFTRDMA_RC_ATTACH_H

#include <stdbool.h>

#include "../rc.h"

struct mpa_agreed;
struct shm_link;

/*
 * Run @qp over shared memory if the two ends have met there (@link), else over the connected socket
 * @fd, as @agreed. Called with the queue pair's lock held; takes @fd and @link over on success.
 * 0 or -errno.
 */
int rc_attach(struct rc_qp *qp, int fd, struct shm_link *link, const struct mpa_agreed *agreed,
	      bool initiator);

/*
 * Shared memory was tried and both ends do without it: run the queue pair, which has no service,
 * over the socket @fd. As rc_attach.
 */
int rc_fall_back(struct rc_qp *qp, int fd, const struct mpa_agreed *agreed, bool initiator);

#endif
