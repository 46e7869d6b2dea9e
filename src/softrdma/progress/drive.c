/* SPDX-License-Identifier: MIT */
/* What pollers tell the policy, and doing what the policy decides. */
#include <sys/epoll.h>

#include "../../common/uncancel.h"
#include "internal.h"
#include "sets.h"
#include "sources.h"

struct policy progress_policy = POLICY_INITIALIZER;
static bool (*_Atomic flush_sends)(void);
static atomic_bool deferred; /* a callback of the DATA set has left something for a flush */

void progress_note_deferred(void)
{
	policy_set_once(&deferred);
}

void progress_set_flush(bool (*flush)(void))
{
	atomic_store(&flush_sends, flush);
}

/* If another thread is dispatching, it does the work. */
void drive_data(void)
{
	if (!sets_trylock(PROGRESS_DATA))
		return;
	sources_dispatch(PROGRESS_DATA);
	progress_unlock(PROGRESS_DATA);
}

void drive_flush(void)
{
	bool (*call)(void) = atomic_load(&flush_sends);

	if (call)
		call();
}

/* For whom drive_data is not followed by drive_flush: unless a tick comes, somebody must come by.
 */
static void look(void)
{
	UNCANCELLABLE;
	drive_data();
	if (atomic_exchange_explicit(&deferred, false, memory_order_relaxed))
		progress_kick_unless_ticking();
}

void drive_act(unsigned actions)
{
	if (actions & POLICY_RECLAIM_IDLE)
		sources_reclaim_idle();
	if (actions & POLICY_RECLAIM_ALL)
		sources_reclaim_all();
	if (actions & POLICY_WAKE_THREAD)
		thread_wake();
	if (actions & POLICY_FLUSH)
		drive_flush();
	if (actions & POLICY_LOOK)
		look();
}

/* ---- polls ---- */

void progress_found(bool hit, unsigned turn)
{
	unsigned actions = policy_on_completion(&progress_policy, hit, turn);

	if (actions)
		drive_act(actions);
}

void progress_polled(bool hit, unsigned turn)
{
	unsigned actions;

	if (hit)
		actions = policy_on_completion(&progress_policy, true, turn);
	else
		actions = policy_on_miss(&progress_policy, turn, sources_are_all_owned());
	if (actions)
		drive_act(actions);
}

void progress_looked(struct progress_source *source, unsigned found,
		     const atomic_bool *const slept_for[2])
{
	if (policy_on_source_looked(&source->policy, found, source->set_poller_owned != NULL,
				    source->events == EPOLLIN))
		sources_hand_over(source, slept_for);
}

void progress_left_backlog(struct progress_source *source)
{
	policy_set_once(&source->policy.has_backlog);
}

void progress_begin_long(void)
{
	policy_on_long_move(&progress_policy, true);
}

void progress_end_long(void)
{
	policy_on_long_move(&progress_policy, false);
}

void progress_kick(void)
{
	thread_arm_timer(policy_on_kick(&progress_policy));
}

void progress_kick_unless_ticking(void)
{
	if (!policy_ticks(&progress_policy))
		progress_kick();
}
