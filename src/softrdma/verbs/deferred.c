/* SPDX-License-Identifier: MIT */
#include "deferred.h"

#include "../fork_order.h"
#include "../progress/progress.h"
#include "../../common/uncancel.h"
#include "objects.h"

static struct deferred_list all = {.entries = {&all.entries, &all.entries}};

/* ---- one list ---- */

void deferred_init(struct deferred_list *list)
{
	list_init(&list->entries);
}

/*
 * Under the queue pair's lock, which whoever flushes takes after it has cleared @queued. So one who
 * finds it set knows that what it leaves is still to be seen.
 */
static void defer(struct deferred_list *list, struct deferral *deferral)
{
	if (atomic_load(&deferral->queued))
		return;
	lock_take(&list->lock);
	atomic_store(&deferral->queued, true);
	list_add_tail(&list->entries, &deferral->link);
	atomic_store(&list->any, true);
	lock_give(&list->lock);
}

static void forget(struct deferred_list *list, struct deferral *deferral)
{
	lock_take(&list->lock);
	list_del(&deferral->link);
	atomic_store(&deferral->queued, false);
	lock_give(&list->lock);
}

/* The first, kept alive: whoever destroys it has to get past deferred_forget_qp first. */
static struct soft_qp *take_first(struct deferred_list *list)
{
	struct deferral *first = NULL;

	lock_take(&list->lock);
	if (list_is_empty(&list->entries)) {
		atomic_store(&list->any, false);
	} else {
		first = list_first(&list->entries, struct deferral, link);
		list_del(&first->link);
		atomic_store(&first->queued, false);
		atomic_fetch_add(&first->qp->refs, 1);
	}
	lock_give(&list->lock);
	return first ? first->qp : NULL;
}

bool deferred_send(struct deferred_list *list)
{
	struct soft_qp *qp;
	bool any = false;

	if (!atomic_load_explicit(&list->any, memory_order_relaxed))
		return false;
	UNCANCELLABLE;
	while ((qp = take_first(list))) {
		/* A poller may have seen to it meanwhile. */
		if (atomic_load(&qp->owes)) {
			qp_send_queued(qp);
			any = true;
		}
		atomic_fetch_sub(&qp->refs, 1);
	}
	return any;
}

/* ---- the lists of a queue pair ---- */

static void init_deferral(struct deferral *deferral, struct soft_qp *qp)
{
	list_init(&deferral->link);
	deferral->qp = qp;
}

void deferred_init_qp(struct soft_qp *qp)
{
	init_deferral(&qp->send_use.deferral, qp);
	init_deferral(&qp->recv_use.deferral, qp);
	init_deferral(&qp->deferral, qp);
}

void deferred_add(struct soft_qp *qp)
{
	atomic_store(&qp->owes, true);
	defer(&qp->send_cq->deferred, &qp->send_use.deferral);
	if (qp->recv_cq != qp->send_cq)
		defer(&qp->recv_cq->deferred, &qp->recv_use.deferral);
	defer(&all, &qp->deferral);
	progress_kick();
}

void rc_defer_ack(struct rc_qp *rc, bool hurry)
{
	struct soft_qp *qp = to_qp(rc);

	atomic_store(&qp->owes, true);
	defer(&all, &qp->deferral);
	if (hurry)
		progress_kick_unless_ticking();
	else
		progress_note_deferred();
}

void deferred_forget_qp(struct soft_qp *qp)
{
	forget(&qp->send_cq->deferred, &qp->send_use.deferral);
	forget(&qp->recv_cq->deferred, &qp->recv_use.deferral);
	forget(&all, &qp->deferral);
}

/* ---- all of them ---- */

bool deferred_send_all(void)
{
	return deferred_send(&all);
}

/* A program that ends just after a message has come still tells the peer that it has. */
__attribute__((destructor)) static void send_at_exit(void)
{
	deferred_send_all();
}

static void freeze(void)
{
	lock_take(&all.lock);
}

static void thaw(void)
{
	lock_give(&all.lock);
}

/* A child must not send what its parent has posted. */
static void drop(void)
{
	list_init(&all.entries);
}

FORK_PART(FORK_DEFERRED, freeze, thaw, drop);
