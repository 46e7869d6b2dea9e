/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs that have something to send which may wait for company. Those that hold requests back
 * are in the lists of their CQs, whose next poll lets them go. All are in one of the process, for
 * the progress thread and for threads that go to sleep. A queue pair is added to a list once, and
 * then costs a look at a flag until somebody has been through that list.
 */
#ifndef SOFTRDMA_VERBS_DEFERRED_H
#define SOFTRDMA_VERBS_DEFERRED_H

#include <stdatomic.h>
#include <stdbool.h>

#include "../../common/list.h"
#include "../../common/lock.h"

struct soft_qp;

struct deferred_list {
	atomic_bool any;     /* read without the lock as a hint */
	struct lock lock;    /* guards what follows; a leaf */
	struct list entries; /* of struct deferral */
};

/* A queue pair's place in one of them. */
struct deferral {
	struct list link;
	atomic_bool queued; /* written under the list's lock, but for the child of a fork */
	struct soft_qp *qp;
};

void deferred_init(struct deferred_list *list);
/* Send all that waits in @list. No lock is held. Whether there was any. */
bool deferred_send(struct deferred_list *list);

void deferred_init_qp(struct soft_qp *qp);
/* Requests were queued and not sent. The queue pair's lock is held. */
void deferred_add(struct soft_qp *qp);
/* Forget @qp, which is about to go. */
void deferred_forget_qp(struct soft_qp *qp);
/* Send all that waits in the process, likewise. */
bool deferred_send_all(void);

#endif
