/* SPDX-License-Identifier: MIT */
/*
 * Verbs calls are not cancellation points, but the system calls inside ours are, and a thread
 * cancelled there would leave a lock held. A block that says UNCANCELLABLE holds a cancellation
 * off until its end. That costs as much as some locks, so what makes no system call for a short
 * message (post_send, post_recv, poll_cq) leaves it to what it calls in other cases.
 */
#ifndef IBMSG_COMMON_UNCANCEL_H
#define IBMSG_COMMON_UNCANCEL_H

#include <pthread.h>

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

#define UNCANCELLABLE                                                                              \
	int uncancel_state __attribute__((cleanup(uncancel_end), unused)) = uncancel_begin()

#endif
