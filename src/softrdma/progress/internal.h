/* SPDX-License-Identifier: MIT */
/*
 * What the files of progress/ share. policy.c decides; the others do what it says:
 *  - sets.c: the epoll instances and the locks of the two sets
 *  - sources.c: the descriptors in them, and those that pollers own
 *  - timers.c, work.c: timers, and work that is deferred to the CM
 *  - drive.c: the calls of pollers, and carrying out decisions
 *  - wait.c: the calls of threads that sleep
 *  - thread.c: the progress thread
 *  - fork.c: what a fork does to all of these
 */
#ifndef SOFTRDMA_PROGRESS_INTERNAL_H
#define SOFTRDMA_PROGRESS_INTERNAL_H

#include "policy.h"
#include "progress.h"

/* drive.c */
extern struct policy progress_policy;
/*
 * Do what the policy asks for: a set of enum policy_action. Most polls have nothing to do, and are
 * shorter if this is not inlined.
 */
__attribute__((noinline, cold)) void drive_act(unsigned actions);
/* Drive what is ready in the DATA set, unless another thread is at it. */
void drive_data(void);
/* Send what was deferred, which may be an answer to what drive_data has found. */
void drive_flush(void);

/* thread.c */
void thread_wake(void);
/* The thread is to come by in @ns, without being woken now; 0: nothing changes. */
void thread_arm_timer(unsigned ns);

/* timers.c: call what is due. For the thread alone. */
void timers_run(void);
/* The first deadline; false: there is none. */
bool timers_next(uint64_t *deadline);

/* work.c: run what was deferred. For the thread alone. */
void work_run(void);

/*
 * For fork.c: each file freezes and thaws its locks around a fork; in the child its state is
 * dropped while they are frozen.
 */
void thread_freeze(void);
void thread_thaw(void);
void thread_drop(void);
void timers_freeze(void);
void timers_thaw(void);
void timers_drop(void);
void work_freeze(void);
void work_thaw(void);
void work_drop(void);

#endif
