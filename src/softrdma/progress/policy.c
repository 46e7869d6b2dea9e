/* SPDX-License-Identifier: MIT */
/* The decisions that are not on the path of a poll. */
#include "policy.h"

void policy_reset(struct policy *policy)
{
	atomic_store(&policy->mode, POLICY_WATCH);
	atomic_store(&policy->polled, false);
	atomic_store(&policy->looked, false);
	atomic_store(&policy->kicked, false);
	atomic_store(&policy->timer_armed, false);
	atomic_store(&policy->hits, 0);
	atomic_store(&policy->misses, 0);
	atomic_store(&policy->tick_ns, PROGRESS_TICK_NS);
	atomic_store(&policy->waiters, 0);
	atomic_store(&policy->loops, 0);
	atomic_store(&policy->loop_sleeps, 0);
	atomic_store(&policy->long_moves, 0);
	policy->quiet_ticks = 0;
	policy->unread_ticks = 0;
}

/* ---- sources ---- */

void policy_on_source_handed_over(struct policy_source *source)
{
	atomic_store(&source->looked_at, true);
	atomic_store(&source->poller_owned, true);
}

bool policy_is_source_idle(struct policy_source *source)
{
	return !atomic_exchange(&source->looked_at, false);
}

bool policy_is_source_unread(struct policy_source *source)
{
	return !atomic_exchange(&source->has_backlog, false);
}

/* ---- sleepers ---- */

/* Whoever goes to sleep does the thread's work when it is woken. */
static unsigned relieve_thread(struct policy *policy)
{
	unsigned actions = POLICY_RECLAIM_ALL | POLICY_FLUSH;

	/* The thread must stop watching, or both are woken for every message. */
	if (atomic_exchange(&policy->mode, POLICY_YIELD) == POLICY_WATCH)
		actions |= POLICY_WAKE_THREAD;
	return actions;
}

unsigned policy_on_wait_begin(struct policy *policy)
{
	atomic_fetch_add(&policy->waiters, 1);
	return relieve_thread(policy);
}

/* The thread may sleep without a tick, and must notice if this thread does not come back. */
unsigned policy_on_wait_end(struct policy *policy)
{
	policy_set_once(&policy->polled);
	policy_set_once(&policy->looked);
	atomic_fetch_sub(&policy->waiters, 1);
	if (atomic_load(&policy->timer_armed))
		return 0;
	atomic_store(&policy->timer_armed, true);
	return atomic_load(&policy->tick_ns);
}

bool policy_on_loop_attach(struct policy *policy)
{
	if (atomic_fetch_add(&policy->loops, 1) < PROGRESS_MOST_LOOPS)
		return true;
	policy_on_loop_detach(policy);
	return false;
}

void policy_on_loop_detach(struct policy *policy)
{
	atomic_fetch_sub(&policy->loops, 1);
}

unsigned policy_on_loop_sleep_begin(struct policy *policy)
{
	policy_set_once(&policy->polled);
	atomic_fetch_add(&policy->loop_sleeps, 1);
	return relieve_thread(policy);
}

void policy_on_loop_sleep_end(struct policy *policy)
{
	policy_set_once(&policy->polled);
	atomic_fetch_sub(&policy->loop_sleeps, 1);
}

unsigned policy_on_loop_wakeup(struct policy *policy)
{
	policy_set_once(&policy->polled);
	policy_set_once(&policy->looked);
	return POLICY_LOOK;
}

unsigned policy_on_kick(struct policy *policy)
{
	/*
	 * A thread that ticks flushes at its tick: no system call for a program that posts and
	 * polls.
	 */
	if (policy_ticks(policy) &&
	    atomic_load_explicit(&policy->loop_sleeps, memory_order_relaxed) <= 0)
		return 0;
	/* Not at once: the program may be about to post more, to be sent together. */
	if (atomic_exchange(&policy->kicked, true))
		return 0;
	atomic_store(&policy->timer_armed, true);
	return PROGRESS_KICK_NS;
}

/* ---- the thread ---- */

struct policy_sleep policy_on_thread_sleep(const struct policy *policy)
{
	struct policy_sleep sleep = {.watches_data = atomic_load(&policy->mode) == POLICY_WATCH};

	if (!sleep.watches_data && atomic_load(&policy->waiters) <= 0)
		sleep.tick_ns = atomic_load(&policy->tick_ns);
	return sleep;
}

unsigned policy_on_thread_woken(struct policy *policy)
{
	(void)policy;
	return POLICY_FLUSH;
}

unsigned policy_on_timer(struct policy *policy)
{
	atomic_store(&policy->timer_armed, false);
	return atomic_exchange(&policy->kicked, false) ? POLICY_FLUSH : 0;
}

/*
 * As long as all is well a tick is twice as long as the one before: the thread costs a busy poller
 * little, and takes over no later than the pollers had been at it.
 */
static void choose_tick(struct policy *policy, bool all_is_well)
{
	unsigned ns = 2 * atomic_load(&policy->tick_ns);

	if (!all_is_well)
		ns = PROGRESS_TICK_NS;
	else if (ns > PROGRESS_LONG_TICK_NS)
		ns = PROGRESS_LONG_TICK_NS;
	atomic_store(&policy->tick_ns, ns);
}

struct policy_tick policy_on_tick_begin(struct policy *policy)
{
	/*
	 * First who sleeps, then who polled: whoever stops sleeping has polled, says so first, and
	 * must not be missed in both.
	 */
	bool loop_sleeps = atomic_load(&policy->loop_sleeps) > 0;
	bool is_busy = atomic_load(&policy->waiters) > 0 || atomic_load(&policy->long_moves) > 0;
	bool polled = atomic_exchange(&policy->polled, false);
	bool looked = atomic_exchange(&policy->looked, false);

	return (struct policy_tick){
		.asks_for_unread = !is_busy && !looked,
		.is_quiet = !is_busy && !polled,
		.loop_sleeps = loop_sleeps,
	};
}

static void take_over(struct policy *policy)
{
	policy->quiet_ticks = 0;
	policy->unread_ticks = 0;
	atomic_store(&policy->hits, 0);
	atomic_store(&policy->misses, 0);
	atomic_store(&policy->mode, POLICY_WATCH);
}

/* The flush comes after the mode has changed: whoever still saw YIELD counts on a tick. */
unsigned policy_on_tick_end(struct policy *policy, const struct policy_tick *tick, bool unread)
{
	unsigned patience = tick->loop_sleeps ? PROGRESS_LOOP_TICKS : PROGRESS_PATIENT_TICKS;

	policy->quiet_ticks = tick->is_quiet ? policy->quiet_ticks + 1 : 0;
	policy->unread_ticks = tick->asks_for_unread && unread ? policy->unread_ticks + 1 : 0;
	choose_tick(policy, (!policy->quiet_ticks || tick->loop_sleeps) && !policy->unread_ticks);
	if (policy->quiet_ticks < patience && policy->unread_ticks < PROGRESS_PATIENT_TICKS)
		return POLICY_RECLAIM_IDLE | POLICY_FLUSH;
	take_over(policy);
	return POLICY_RECLAIM_ALL | POLICY_FLUSH;
}
