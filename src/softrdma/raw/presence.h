/* SPDX-License-Identifier: MIT */
/*
 * Who else receives from an interface. XDP gives a frame to one receiver only, so it is for those
 * who are alone. Each raw queue pair that receives is to be found in its network namespace by the
 * name of a socket, and may be asked there to step aside: whoever comes second asks all others, and
 * waits for each to close the connection. Only root and the own user may ask.
 */
#ifndef SOFTRDMA_RAW_PRESENCE_H
#define SOFTRDMA_RAW_PRESENCE_H

#include "../progress/progress.h"

enum presence_stage {
	PRESENCE_CHOOSING, /* looking for others */
	PRESENCE_ASKED,    /* the same, and another one has come */
	PRESENCE_ALONE,    /* may use XDP, until it is asked */
	PRESENCE_SHARED,   /* does not */
};

struct presence {
	struct progress_source source; /* listens; fd -1: not shown */
	/*
	 * Called by the progress thread, under the CM lock, when another one asks. False: not now,
	 * try again soon.
	 */
	bool (*step_aside)(struct presence *presence);
	struct progress_timer again;
	_Atomic(enum presence_stage) stage;
	_Atomic(int) asking; /* a connection to be closed afterwards, or -1 */
};

void presence_init(struct presence *presence, bool (*step_aside)(struct presence *presence));
/*
 * Be found from now on. Whoever cannot be found may miss frames: so says the log. The CM's lock is
 * not held.
 */
void presence_show(struct presence *presence, unsigned ifindex, uint32_t qp_num);
/* No lock is held. */
void presence_fini(struct presence *presence);

/*
 * Ask all others at this interface to step aside, those of this process excepted, and wait until
 * they have. Whether there are none, neither here (@alone_here) nor there: then this one will be
 * asked, if another one comes.
 */
bool presence_is_alone(struct presence *presence, unsigned ifindex, bool alone_here);

#endif
