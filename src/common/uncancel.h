/* SPDX-License-Identifier: MIT */
/*
 * When a thread of the program may be cancelled inside the library.
 *
 * Verbs calls are not cancellation points, but the system calls inside ours are, and a thread that
 * is cancelled there would leave a lock held. So a cancellation is held off at the edge: whatever a
 * program calls (the exported names, interpose/system.h; the slow part of a context's table,
 * verbs/table.c) says UNCANCELLABLE_CALL for its whole duration. Behind the edge nobody needs to
 * think of it, with two exceptions:
 *
 * - Sleeps that are cancellation points: in ibv_get_cq_event, ibv_get_async_event and
 *   rdma_get_cm_event, in the calls of synchronous ids, in rdma_destroy_id and rdma_migrate_id
 * while they wait for acknowledgements, and in rdma_getaddrinfo. They hold no lock, and stand
 * between uncancel_begin_sleep() and uncancel_end_sleep(), where the state is the caller's.
 * - Calls that make no system call for a short message: post_send, post_recv, post_srq_recv,
 *   poll_cq, req_notify_cq, ibv_wr_* and ibv_start_poll with its like. To hold a cancellation off
 *   costs as much as some locks, so there the block that makes a system call says UNCANCELLABLE.
 */
#ifndef IBMSG_COMMON_UNCANCEL_H
#define IBMSG_COMMON_UNCANCEL_H

#include <pthread.h>

/* The state in which the program called us; see UNCANCELLABLE_CALL. */
extern __thread int uncancel_caller
	__attribute__((visibility("hidden"), tls_model("initial-exec")));

static inline int uncancel_begin(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

static inline void uncancel_end(const int *state)
{
	pthread_setcancelstate(*state, NULL);
}

/* Until the end of the block. */
#define UNCANCELLABLE                                                                              \
	int uncancel_state __attribute__((cleanup(uncancel_end), unused)) = uncancel_begin()

struct uncancel_call {
	int state;
	int caller; /* of a call that this one is inside of */
};

static inline struct uncancel_call uncancel_begin_call(void)
{
	struct uncancel_call call = {.state = uncancel_begin(), .caller = uncancel_caller};

	uncancel_caller = call.state;
	return call;
}

static inline void uncancel_end_call(const struct uncancel_call *call)
{
	uncancel_caller = call->caller;
	pthread_setcancelstate(call->state, NULL);
}

/* The same, at the edge: a sleep inside gets the state that is found here. */
#define UNCANCELLABLE_CALL                                                                         \
	struct uncancel_call uncancel_call __attribute__((cleanup(uncancel_end_call), unused)) =   \
		uncancel_begin_call()

/* Returns what uncancel_end_sleep() puts back. errno stays as it is in both. */
static inline int uncancel_begin_sleep(void)
{
	int held;

	pthread_setcancelstate(uncancel_caller, &held);
	return held;
}

static inline void uncancel_end_sleep(int held)
{
	pthread_setcancelstate(held, NULL);
}

#endif
