/* SPDX-License-Identifier: MIT */
/* A fork: the parent goes on unharmed; the child has no thread and drops all connections. */
#include "../fork_order.h"
#include "internal.h"
#include "sources.h"

/* In the order of the locks. */
static void before_fork(void)
{
	thread_freeze();
	progress_lock(PROGRESS_CM);
	progress_lock(PROGRESS_DATA);
	timers_freeze();
	work_freeze();
	sources_freeze();
}

static void after_fork_in_parent(void)
{
	sources_thaw();
	work_thaw();
	timers_thaw();
	progress_unlock(PROGRESS_DATA);
	progress_unlock(PROGRESS_CM);
	thread_thaw();
}

/*
 * A peer must see the end of a connection when the parent dies, though the child lives on: so the
 * child keeps no socket open. Those whom the policy counts are threads that are not here.
 */
static void after_fork_in_child(void)
{
	sources_drop();
	timers_drop();
	work_drop();
	thread_drop();
	policy_reset(&progress_policy);
}

FORK_PART(FORK_PROGRESS, before_fork, after_fork_in_parent, after_fork_in_child);
