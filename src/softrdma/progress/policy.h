/* SPDX-License-Identifier: MIT */
/*
 * Who drives the data, and when: the decisions of progress/, without threads, clocks or
 * descriptors.
 *
 * Each policy_on_ function is told of one event. It updates the state and returns what the caller
 * has to do, as a set of enum policy_action. The state that pollers touch is atomic, and in the
 * steady state they only read it, so pollers of several CQs share no dirty cache line.
 *
 * The rules, with the names of their constants in tuning.h:
 *
 *  1. The thread is in one of two modes. WATCH: it sleeps on the DATA set and drives what is ready.
 *     YIELD: others drive, and the thread only checks at every tick whether they still do.
 *  2. The thread takes over (WATCH) when nobody has polled for PATIENT_TICKS ticks in a row. While
 *     a program sleeps in its own event loop, that takes LOOP_TICKS.
 *  3. It also takes over when data lay unread at PATIENT_TICKS ticks in a row, though nobody looked
 *     at the whole set between them. That is a program that polls one CQ and spins on memory. Data
 *     that a poller left behind because its budget was used up is not unread.
 *  4. While a thread sleeps in progress_wait, or a long copy is under way, neither is counted.
 *  5. The thread yields to pollers after HITS_TO_YIELD polls that found data, or MISSES_TO_YIELD
 *     empty polls in a row. It yields at once to a thread that goes to sleep in progress_wait or in
 *     its own event loop: the sleeper will be woken by the data itself.
 *  6. A tick is TICK_NS long at first. It doubles up to LONG_TICK_NS while all is well, so a busy
 *     poller loses little time to the thread. In WATCH, and while somebody sleeps in progress_wait,
 *     the thread sleeps without a tick.
 *  7. A poller looks at the whole set every LOOK_EMPTY polls without a hit and every LOOK_BUSY
 *     polls with one; every LOOK_ALL_OWNED polls if pollers own all sources.
 *  8. A source is handed over to the pollers after FINDS_TO_HAND_OVER packets that they found
 *     there, or at once if that costs no system call. Never in WATCH, while somebody sleeps in
 *     progress_wait, or while somebody sleeps for completions of that very source.
 *  9. A source that pollers own is reclaimed at the first tick that no look preceded. All are
 *     reclaimed when the thread takes over, and when somebody goes to sleep.
 * 10. Sends that were posted but not sent are flushed at every tick, when the thread is woken, and
 *     when somebody goes to sleep. If there is no tick, a kick makes the thread come by in KICK_NS.
 */
#ifndef SOFTRDMA_PROGRESS_POLICY_H
#define SOFTRDMA_PROGRESS_POLICY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "../tuning.h"

enum policy_mode { POLICY_WATCH, POLICY_YIELD };

/* What the caller has to do, in the order of these values. */
enum policy_action {
	POLICY_RECLAIM_IDLE = 1 << 0, /* watch what pollers own but did not look at */
	POLICY_RECLAIM_ALL = 1 << 1,  /* watch everything that pollers own */
	POLICY_WAKE_THREAD = 1 << 2,  /* it sleeps on what the mode before told it to */
	POLICY_FLUSH = 1 << 3,        /* send what was posted but not sent */
	POLICY_LOOK = 1 << 4,         /* drive what is ready in the DATA set */
};

struct policy {
	_Alignas(64) _Atomic(enum policy_mode) mode;
	atomic_bool polled;      /* since the last tick */
	atomic_bool looked;      /* since the last tick, at the whole DATA set */
	atomic_bool kicked;      /* the timer is armed for a flush */
	atomic_bool timer_armed; /* for a kick or a tick */
	atomic_uint hits;        /* polls that found data since the thread watches */
	atomic_uint misses;      /* empty polls in a row since the thread watches */
	atomic_uint tick_ns;     /* the next tick */
	atomic_int waiters;      /* threads in progress_wait */
	atomic_int loops;        /* event loops that have the DATA set in them */
	atomic_int loop_sleeps;  /* CQs armed by a program that sleeps in such a loop */
	atomic_int long_moves;   /* threads that copy many bytes right now */

	/* Of the thread alone. */
	unsigned quiet_ticks;  /* in a row without a poll */
	unsigned unread_ticks; /* in a row at which data lay unread */
};

#define POLICY_INITIALIZER                                                                         \
	{                                                                                          \
		.tick_ns = PROGRESS_TICK_NS                                                        \
	}

/* As after a start: for the child of a fork, which has no other thread. */
void policy_reset(struct policy *policy);

/* What policy needs to know of one source of data. */
struct policy_source {
	atomic_bool poller_owned; /* else it is watched */
	atomic_bool looked_at;    /* by a poller, since the last tick */
	atomic_bool has_backlog;  /* a poller left data there, as its budget was used up */
	unsigned finds;           /* packets that pollers found; under the owner's lock */
};

/* ---- helpers of the functions below ---- */

/* In the steady state this only reads. */
static inline void policy_set_once(atomic_bool *flag)
{
	if (!atomic_load_explicit(flag, memory_order_relaxed))
		atomic_store_explicit(flag, true, memory_order_relaxed);
}

static inline bool policy_is_watching(const struct policy *policy)
{
	return atomic_load_explicit(&policy->mode, memory_order_relaxed) == POLICY_WATCH;
}

/* Does the thread come by at every tick? */
static inline bool policy_ticks(const struct policy *policy)
{
	return !policy_is_watching(policy) &&
	       atomic_load_explicit(&policy->waiters, memory_order_relaxed) <= 0;
}

static inline unsigned policy_count_to_yield(struct policy *policy, atomic_uint *counter,
					     unsigned enough)
{
	if (atomic_fetch_add_explicit(counter, 1, memory_order_relaxed) != enough)
		return 0;
	atomic_store(&policy->mode, POLICY_YIELD);
	return POLICY_WAKE_THREAD;
}

static inline unsigned policy_look_every(struct policy *policy, unsigned turn, unsigned interval)
{
	if (turn % interval)
		return 0;
	policy_set_once(&policy->looked);
	return POLICY_LOOK;
}

/* ---- pollers; every ibv_poll_cq comes here ---- */

/*
 * A poll had a completion. @hit: it moved data itself. @turn: the number of this poll, which may
 * grow in larger steps to look sooner; 0: look now.
 */
static inline unsigned policy_on_completion(struct policy *policy, bool hit, unsigned turn)
{
	unsigned actions = 0;

	policy_set_once(&policy->polled);
	if (policy_is_watching(policy)) {
		atomic_store_explicit(&policy->misses, 0, memory_order_relaxed);
		if (hit)
			actions = policy_count_to_yield(policy, &policy->hits,
							PROGRESS_HITS_TO_YIELD);
	}
	return actions | policy_look_every(policy, turn, PROGRESS_LOOK_BUSY);
}

/* A poll had no completion and moved nothing. @all_owned: pollers own every source of data. */
static inline unsigned policy_on_miss(struct policy *policy, unsigned turn, bool all_owned)
{
	unsigned actions = 0;

	policy_set_once(&policy->polled);
	if (policy_is_watching(policy))
		actions = policy_count_to_yield(policy, &policy->misses, PROGRESS_MISSES_TO_YIELD);
	return actions |
	       policy_look_every(policy, turn,
				 all_owned ? PROGRESS_LOOK_ALL_OWNED : PROGRESS_LOOK_EMPTY);
}

/*
 * A poller looked at @source and @found so many packets. @is_free: handing it over costs no system
 * call. @only_input: it is watched for nothing but input. Whether to hand it over, provided that
 * policy_may_hand_over.
 */
static inline bool policy_on_source_looked(struct policy_source *source, unsigned found,
					   bool is_free, bool only_input)
{
	policy_set_once(&source->looked_at);
	if (!is_free) {
		source->finds += found;
		if (source->finds < PROGRESS_FINDS_TO_HAND_OVER)
			return false;
		source->finds = 0;
		if (!only_input)
			return false;
	}
	return !atomic_load_explicit(&source->poller_owned, memory_order_relaxed);
}

/* @slept_for: somebody sleeps for completions of the source, in its own event loop. */
static inline bool policy_may_hand_over(const struct policy *policy, bool slept_for)
{
	return !slept_for && atomic_load(&policy->mode) == POLICY_YIELD &&
	       !atomic_load(&policy->waiters);
}

/* It is handed over now. The look that led to this counts for the tick to come. */
void policy_on_source_handed_over(struct policy_source *source);
/* At a tick: is @source, which pollers own, to be reclaimed? */
bool policy_is_source_idle(struct policy_source *source);
/* At a tick: @source is ready. Did everybody overlook it? */
bool policy_is_source_unread(struct policy_source *source);

/* Around a copy so long that a tick may pass: whoever does it has not gone away. */
static inline void policy_on_long_move(struct policy *policy, bool begins)
{
	atomic_fetch_add(&policy->long_moves, begins ? 1 : -1);
}

/* ---- sleepers ---- */

/* A thread goes to sleep in progress_wait. */
unsigned policy_on_wait_begin(struct policy *policy);
/* It leaves. In how many nanoseconds the timer is to fire; 0: leave it as it is. */
unsigned policy_on_wait_end(struct policy *policy);

/* A program wants the DATA set in its event loop: whether there may be one more. */
bool policy_on_loop_attach(struct policy *policy);
void policy_on_loop_detach(struct policy *policy);
/* A program goes to sleep in its event loop. */
unsigned policy_on_loop_sleep_begin(struct policy *policy);
void policy_on_loop_sleep_end(struct policy *policy);
/* It was woken, and asks for what woke it. */
unsigned policy_on_loop_wakeup(struct policy *policy);

/* Sends were queued. In how many nanoseconds the timer is to fire; 0: leave it as it is. */
unsigned policy_on_kick(struct policy *policy);

/* ---- the thread ---- */

/* How it sleeps: on DATA too or not, and for @tick_ns at most; 0: without limit. */
struct policy_sleep {
	bool watches_data;
	unsigned tick_ns;
};
struct policy_sleep policy_on_thread_sleep(const struct policy *policy);

/* Somebody woke it. */
unsigned policy_on_thread_woken(struct policy *policy);
/* The timer fired that policy_on_wait_end or policy_on_kick asked for. */
unsigned policy_on_timer(struct policy *policy);

/*
 * A tick has two halves, because asking whether data lies unread costs a system call. The first
 * half tells whether to ask; the second gets the answer, false if it was not asked.
 */
struct policy_tick {
	bool asks_for_unread;
	bool is_quiet;
	bool loop_sleeps;
};
struct policy_tick policy_on_tick_begin(struct policy *policy);
unsigned policy_on_tick_end(struct policy *policy, const struct policy_tick *tick, bool unread);

#endif
