/* SPDX-License-Identifier: MIT */
/* A connection of the client under test. */
#ifndef PERF_LINK_H
#define PERF_LINK_H

#include "outbox.h"
#include "worker.h"

#define PARTS 2 /* the warm-up, and what is measured */

struct link {
	ibmsg_socket socket;
	struct worker *worker;
	struct outbox outbox;
	struct outbox marks; /* of a stream: one for each part */
	bool closing;
	bool marked;   /* the part's last message is posted */
	uint64_t done; /* messages of the part that were answered, or of a stream posted */
	uint64_t sent_at;
};

/* IBMSG_OK or an error of ibmsg. */
int link_connect(struct link *link, struct worker *worker, unsigned index);
void link_begin_part(struct link *link);
void link_fini(struct link *link);

/* Says why, once for all threads, and lets them end. */
void run_fail(struct run *run, int error);

/* The loop's callbacks, for sockets that are links. */
void link_set_callbacks(ibmsg_event_loop *loop);

#endif
