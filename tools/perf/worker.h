/* SPDX-License-Identifier: MIT */
/* A thread of the client: its loop, and its share of the connections, for one test at one size. */
#ifndef PERF_WORKER_H
#define PERF_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <ibmsg.h>

#include "histogram.h"
#include "options.h"

/* What the threads of one measurement share. */
struct run {
	const struct options *options;
	enum test test;
	uint64_t size;
	unsigned server_threads;
	atomic_bool failed;      /* and it has been said why */
	pthread_barrier_t ready; /* all are connected; then all are warm */
};

struct link;

struct worker {
	struct run *run;
	unsigned first; /* of its connections; the next belongs to the next worker */
	unsigned link_count;
	struct link *links;
	pthread_t thread;
	ibmsg_event_loop loop;
	unsigned established, closed;

	/* Of the part that is under way: the warm-up, or what is measured. */
	bool measures, over;
	uint64_t count; /* of messages; 0: until the time below */
	uint64_t until;
	unsigned busy; /* links that are not done with it */

	/* Results. */
	uint64_t begin, end, iterations;
	struct histogram round_trips;
};

uint64_t now_ns(void);

/* What a thread does. The results count unless the run has failed. */
void *worker_run(void *worker);

#endif
