/* SPDX-License-Identifier: MIT */
/*
 * Progress: which thread drives the connections, and the descriptors, timers and deferred work
 * that they consist of.
 *
 * Every descriptor, timer and piece of work belongs to one of two sets. Each set has one lock,
 * which is held while its callbacks run:
 *  - CM: listeners, handshakes, the life of connections. Only the progress thread runs these
 *    callbacks. The lock is the one big lock of the CM: every rdma_* call takes it, so nothing
 *    changes under a callback.
 *  - DATA: the sockets of connected queue pairs. Any thread may run these callbacks: one that polls
 *    a CQ, one that sleeps in ibv_get_cq_event, and the progress thread when no other does.
 * Lock order: CM, DATA, a CQ's drive lock, a queue pair's, then the leaves (CQ, channel, SRQ,
 * region table, flush list, timers, work, sources).
 *
 * A DATA source is either watched or owned by the pollers. A watched one is in the epoll set and
 * wakes whoever sleeps there. Pollers own a source that they read again and again: it wakes nobody,
 * so a packet costs the kernel no wake-up.
 *
 * policy.h has the rules by which the thread and the pollers share the work. The other files of
 * this directory carry them out; internal.h lists them.
 */
#ifndef SOFTRDMA_PROGRESS_H
#define SOFTRDMA_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../common/list.h"
#include "policy.h"

enum progress_set { PROGRESS_CM, PROGRESS_DATA };

void progress_lock(enum progress_set set);
void progress_unlock(enum progress_set set);

/* Start the thread if it does not run yet. 0 or -errno. Everything below needs this once. */
int progress_start(void);

/* ---- descriptors ---- */

struct progress_source {
	int fd;
	enum progress_set set;
	void (*ready)(struct progress_source *source,
		      uint32_t events); /* EPOLL*; level-triggered */
	/*
	 * NULL, or: pollers own the source from now on, or do so no longer. Such a source stays in
	 * the epoll set and sees to it that it wakes nobody. Returns whether ready() has to be
	 * called right away. @locked: the caller holds the owner's lock; else this may try to take
	 * it, but must not block.
	 */
	bool (*set_poller_owned)(struct progress_source *source, bool poller_owned, bool locked);
	uint32_t events;  /* watched for */
	struct list link; /* among all that are watched, paused or owned by pollers */
	bool paused;

	struct policy_source policy;
	struct list owned_link; /* while pollers own it */
	struct list again_link; /* while @again */
	bool again;             /* ready() is to be called */
};

/* 0 or -errno. For CM sources the caller holds the CM lock. */
int progress_watch(struct progress_source *source, uint32_t events);
int progress_rewatch(struct progress_source *source, uint32_t events);

/*
 * Stop watching for a while: the descriptor stays among those that a forked child lets go of. For
 * CM sources; the caller holds the CM lock.
 */
void progress_pause(struct progress_source *source);

/*
 * Stop watching; to be called before close(fd). Does not block. A CM source may be freed at once
 * (the caller holds the CM lock). A DATA source's ready() may still be running or about to: free it
 * only after progress_barrier.
 */
void progress_unwatch(struct progress_source *source);

/*
 * For a DATA source that is watched: call ready() soon, with no events, though the descriptor has
 * none. Twice before that is once.
 */
void progress_again(struct progress_source *source);

/*
 * Wait until no DATA callback that began before runs any more. Called without the lock of DATA or
 * of a queue pair.
 */
void progress_barrier(void);

/* ---- timers ---- */

struct progress_timer {
	enum progress_set set; /* whose lock is held during expired() */
	void (*expired)(struct progress_timer *timer);
	uint64_t deadline; /* CLOCK_MONOTONIC, ns */
	struct list link;  /* empty while not armed */
};

void progress_timer_init(struct progress_timer *timer, enum progress_set set,
			 void (*expired)(struct progress_timer *timer));
void progress_timer_arm(struct progress_timer *timer, unsigned milliseconds); /* or re-arm */
void progress_timer_cancel(struct progress_timer *timer); /* may be called when not armed */

/* ---- work for the CM, from anywhere ---- */

struct progress_work {
	void (*run)(struct progress_work *work); /* by the progress thread, under the CM lock */
	struct list link;
};

void progress_work_init(struct progress_work *work, void (*run)(struct progress_work *work));
void progress_defer(
	struct progress_work *work); /* any lock may be held; twice before it ran is once */
void progress_cancel(struct progress_work *work); /* under the CM lock: it will not run */

/* ---- polling ---- */

/*
 * For every ibv_poll_cq, after it looked at its own queue pairs. progress_found if there was a
 * completion, else progress_polled. @hit: the poll moved data at its queue pairs. @turn counts the
 * polls of the CQ, in larger steps if each takes longer; 0: look at the whole DATA set now. Every
 * few turns these calls drive the rest of the DATA set.
 */
void progress_found(bool hit, unsigned turn);
void progress_polled(bool hit, unsigned turn);

/*
 * A poller has looked at a DATA source by itself, and @found so many packets, as far as it can
 * tell; the owner's lock is held. Rule 8 of policy.h tells when the pollers get the source for
 * this. @slept_for: true while a program sleeps in its own event loop for completions of the
 * source, by its send CQ or its receive CQ. These are read after the hand-over has been announced,
 * so a sleeper that sets one and then calls progress_begin_loop_sleep is never overlooked.
 *
 * The source is watched again by rule 9, when it is to be watched for more than EPOLLIN, and by
 * progress_reclaim: the poller will not look there again soon. The owner's lock is held for that.
 */
void progress_looked(struct progress_source *source, unsigned found,
		     const atomic_bool *const slept_for[2]);
void progress_reclaim(struct progress_source *source);

/*
 * The poller left data at the source, because its budget was used up. The next tick that finds it
 * there does not count it as unread.
 */
void progress_left_backlog(struct progress_source *source);

static inline bool progress_is_poller_owned(const struct progress_source *source)
{
	return atomic_load_explicit(&source->policy.poller_owned, memory_order_relaxed);
}

/* Around a copy so long that a tick may pass: the thread must not take the caller for gone. */
void progress_begin_long(void);
void progress_end_long(void);

/* Sends are held back and their program may not come back: make sure that somebody flushes them. */
void progress_kick(void);
/* The same, for what may wait for a tick where there are any. */
void progress_kick_unless_ticking(void);
/* The same, from a callback of the DATA set: whoever runs it flushes, or kicks. */
void progress_note_deferred(void);

/* Set once by the verbs layer: @flush sends what was posted and held back. */
void progress_set_flush(bool (*flush)(void));

/* ---- sleeping ---- */

/*
 * Sleep until @fd is readable or *@events is not 0, and drive the DATA set meanwhile. An event that
 * this thread makes itself need not make @fd readable; one that another thread makes must. A
 * cancellation point; no lock is held. 0 or -EINTR.
 */
int progress_wait(int fd, const atomic_uint *events);

/*
 * For a program that sleeps in its own event loop: the epoll instance @fd becomes readable when
 * DATA does, so data wakes the program and not the thread first. False: there are too many.
 */
bool progress_attach_loop(int fd);
void progress_detach_loop(int fd);
/*
 * The program is about to sleep there. It will call progress_look when it is woken, or
 * progress_end_loop_sleep when it has stopped sleeping. The thread takes over if neither happens
 * for long.
 */
void progress_begin_loop_sleep(void);
void progress_end_loop_sleep(void);
/* Drive what is ready in the DATA set. */
void progress_look(void);

uint64_t progress_now(void); /* CLOCK_MONOTONIC, ns */

#endif
