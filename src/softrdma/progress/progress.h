/* SPDX-License-Identifier: MIT */
/*
 * Who moves the bytes, and when.
 *
 * Descriptors, timers and deferred work belong to one of two sets, each with one lock that is held
 * while its callbacks run:
 *  - CM: listeners, handshakes, the life of connections. Only the progress thread runs its
 *    callbacks, at once. Its lock is the CM's one big lock: every rdma_* call takes it, so nothing
 *    changes under a callback.
 *  - DATA: the sockets of connected queue pairs. Whoever has time runs its callbacks: a thread that
 *    polls a CQ, one that sleeps in ibv_get_cq_event, and the progress thread when none of them
 *    does.
 * Lock order: CM, DATA, a CQ's drive lock, a queue pair's, then the leaves (CQ, channel, SRQ,
 * region table, flush list, timers).
 *
 * The progress thread is in one of two modes. WATCH: it sleeps on the DATA set too and drives what
 * is ready. YIELD: pollers drive; it looks every tick whether they still do, and takes over if at
 * two ticks in a row nobody has polled, or data lay unread that nobody had looked for or had in
 * hand (a program that polls one CQ but spins on memory). A tick is 100 us at first and grows to 2
 * ms while all is well, so that the thread costs a busy poller little. Pollers get the drive back
 * when they find data themselves 16 times, or look 256 times in a row. While a thread sleeps in
 * progress_wait, that thread is the one who watches DATA. With nothing to do the thread sleeps
 * without a tick.
 */
#ifndef SOFTRDMA_PROGRESS_H
#define SOFTRDMA_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../common/list.h"

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
	 * NULL, or: the source is to be lent or not any more, and stays watched in either case.
	 * Returns whether there is something to be looked at right away. Must not block.
	 */
	bool (*set_lent)(struct progress_source *source, bool lent);
	uint32_t events;  /* watched for */
	struct list link; /* among all that are watched, paused or lent */
	bool paused;

	atomic_bool lent;      /* to a poller: see progress_looked */
	atomic_bool looked_at; /* by it, since the last tick */
	atomic_bool in_hand;   /* see progress_has_hands_full */
	struct list lent_link;
	unsigned finds;         /* of pollers; under the owner's lock */
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

/* ---- driving ---- */

/*
 * For every ibv_poll_cq, after it looked at its own queue pairs: @hit, whether it moved something
 * there; @turn counts the polls of its CQ, in larger steps if each takes longer; 0: look now. Now
 * and then this drives the rest of the DATA set. progress_found if there was a completion, else
 * progress_polled, which returns whether anything was moved.
 */
void progress_found(bool hit, unsigned turn);
bool progress_polled(bool hit, unsigned turn);

/*
 * A poller has looked at a DATA source by itself, and @found so many packets, as far as it can
 * tell; the owner's lock is held. If these are many the source is lent to the pollers: the kernel
 * need not tell the set of every packet. It is watched again when a tick passes without a look,
 * when anybody sleeps in progress_wait, when nobody polls, when it is to be watched for more than
 * EPOLLIN, and by progress_take_back: pollers will look elsewhere.
 */
void progress_looked(struct progress_source *source, unsigned found);
void progress_take_back(struct progress_source *source);
/*
 * It has left something there for its next look, as it had enough: the next tick that finds it
 * there does not take it for unread.
 */
void progress_has_hands_full(struct progress_source *source);

static inline bool progress_is_lent(const struct progress_source *source)
{
	return atomic_load_explicit(&source->lent, memory_order_relaxed);
}

/* Around a move of so many bytes that a tick may pass: whoever does it has not gone away. */
void progress_begin_long(void);
void progress_end_long(void);

/* Sends are queued that nobody may come back to flush: make sure that the thread looks soon. */
void progress_kick(void);

/*
 * Called by the thread and by waiters to send what was posted and queued: set once by the verbs
 * layer.
 */
void progress_set_flush(bool (*flush)(void));

/*
 * Sleep until @fd is readable, driving the DATA set meanwhile, or until that has made @events more
 * than 0. Whoever else does so makes @fd readable. A cancellation point, with no lock
 * held. Returns 0, or -EINTR. @timeout_ms -1: no limit; -ETIMEDOUT.
 */
int progress_wait(int fd, int timeout_ms, const atomic_uint *events);

/*
 * For programs that sleep in an event loop of their own: @fd, an epoll instance, becomes readable
 * with the DATA set from now on. So the program itself is woken, not the thread
 * first and then the program. False: not this one, there are too many.
 */
bool progress_join_loop(int fd);
/* No longer. */
void progress_part_loop(int fd);
/*
 * The program is about to sleep there, and will call progress_look when it is woken; until
 * progress_loop_is_over, or until it has not been seen for a while.
 */
void progress_expect_loop(void);
void progress_loop_is_over(void);
/* Look at the DATA set. Whether there was anything. */
bool progress_look(void);
/*
 * What this thread looks at from now on is not lent to it while one of these is true: somebody
 * sleeps for it. NULL: nobody does.
 */
void progress_mind_sleepers(const atomic_bool *one, const atomic_bool *other);

uint64_t progress_now(void); /* CLOCK_MONOTONIC, ns */

#endif
