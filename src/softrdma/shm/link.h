/* SPDX-License-Identifier: MIT */
/* The meeting of the two ends, as the files of this folder share it. */
#ifndef SOFTRDMA_SHM_LINK_H
#define SOFTRDMA_SHM_LINK_H

#include "regions.h"
#include "shm.h"

struct shm_link {
	int fd;    /* the Unix socket */
	pid_t pid; /* the peer's */
	struct area *area;
	const struct regions_entry *table; /* the peer's; NULL: it gave none */
	bool has_ours;                     /* the peer has our table */
	bool may_copy;                     /* its memory can be reached */
	char name[160];                    /* for the log */
};

/*
 * Responder, after shm_meet: read the initiator's hello. 0; -EAGAIN: not there yet; another -errno:
 * it does not come.
 */
int link_conclude(struct shm_link *link);

/* Everything but the socket. */
void link_release(struct shm_link *link);

#endif
