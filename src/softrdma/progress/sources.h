/* SPDX-License-Identifier: MIT */
/* The sources behind progress.h: those that are watched, and those that pollers own. */
#ifndef SOFTRDMA_PROGRESS_SOURCES_H
#define SOFTRDMA_PROGRESS_SOURCES_H

#include "progress.h"

int sources_open(void); /* 0 or -errno */
void sources_close(void);

/* Run the callbacks of what is ready in @set; its lock is held. Whether there was any. */
bool sources_dispatch(enum progress_set set);
/*
 * Is there something ready in DATA that everybody overlooked? What a poller left behind does not
 * count, once.
 */
bool sources_lie_unread(void);

/*
 * Stop watching a DATA source, as pollers look at it themselves, if the policy allows it and
 * neither of @slept_for is set. Inlined, it would make every look longer that does not come here.
 */
__attribute__((noinline, cold)) void sources_hand_over(struct progress_source *source,
						       const atomic_bool *const slept_for[2]);
/* Do pollers own all DATA sources? A hint. */
bool sources_are_all_owned(void);
/* Watch again what pollers own: all of it, or what they did not look at since the last call. */
void sources_reclaim_all(void);
void sources_reclaim_idle(void);

/* Around a fork, beside the locks of both sets. */
void sources_freeze(void);
void sources_thaw(void);
/* In the child, frozen: close every descriptor. */
void sources_drop(void);

#endif
