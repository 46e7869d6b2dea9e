/* SPDX-License-Identifier: MIT */
/* One end: a process with its verbs objects, the CM in its main thread, and its threads. */
#ifndef CHAOS_END_H
#define CHAOS_END_H

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "model.h"

struct conn {
	struct rdma_cm_id *id; /* NULL: connected by number */
	struct ibv_qp *qp;
	pthread_mutex_t lock; /* nothing is posted to a queue pair that is being destroyed */
	bool up;
	bool disconnected; /* rdma_disconnect was called */
	time_t ended_at;   /* by number: when its end was noticed */
};

struct end_run {
	struct run *run;
	int end;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_mr *local; /* all of its memory, for its own requests */
	struct ibv_mr *words;
	struct ibv_mr *arenas[MAX_QPS][2];
	struct ibv_mr *spares[MAX_QPS][2][MAX_OPS];
	struct ibv_comp_channel *channels[MAX_THREADS];
	struct ibv_cq *cqs[MAX_CQS];
	struct ibv_srq *srqs[MAX_SRQS];
	struct conn conns[MAX_QPS][2];
	atomic_int threads_over;
};

/* The whole life of an end, in its own process. Does not return. */
void end_main(struct run *run, int end) __attribute__((noreturn));

/* A call failed that had no reason to. Ends this process. */
void end_fail(struct end_run *er, const char *rule, const char *call, int error)
	__attribute__((noreturn));
/* If a rule was broken, wait for the end. */
void end_check(struct end_run *er);

struct sockaddr_in end_own_address(void);
/* Make the queue pair of a side; its number is published when it can be used. */
void end_make_qp(struct end_run *er, int q, int s);
void end_publish_qp(struct end_run *er, int q, int s);
/* Nothing more is posted; the marks show when both queues are flushed. */
void end_bury(struct end_run *er, int q, int s);

/* ---- number.c ---- */

/* Bring up all queue pairs of this end that are connected by number. */
void number_connect(struct end_run *er);
/* Bury those whose peer has ended. */
void number_look(struct end_run *er);

/* ---- post.c ---- */

/* Post what may be posted now for a side; how many. */
int post_requests(struct end_run *er, int q, int s);
/* Post receives up to the queue's depth, if enough are missing. */
void post_receives(struct end_run *er, int q, int s);
void post_srq_receives(struct end_run *er, int srq);
/* The last request and receive of a queue pair that has failed. */
void post_marks(struct end_run *er, int q, int s);

/* ---- work.c ---- */

struct worker {
	struct end_run *er;
	int thread;
};
void *work(void *worker);

#endif
