/* SPDX-License-Identifier: MIT */
/* The list of queue pairs that hold requests back. */
#include "flush.h"

#include "../fork_order.h"
#include "../progress/progress.h"
#include "../../common/uncancel.h"
#include "objects.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list and its links; a leaf */
static struct list unsent = {&unsent, &unsent};

/* A child must not send what its parent has posted. */
static void forget(void)
{
	list_init(&unsent);
}

FORK_MUTEX(FORK_UNSENT, &lock, forget);

void rc_defer(struct rc_qp *rc, bool hurry)
{
	struct soft_qp *qp = to_qp(rc);

	atomic_store(&qp->send_cq->unflushed, true);
	atomic_store(&qp->recv_cq->unflushed, true);
	pthread_mutex_lock(&lock);
	if (list_is_empty(&qp->unflushed_link))
		list_add_tail(&unsent, &qp->unflushed_link);
	pthread_mutex_unlock(&lock);
	if (hurry)
		progress_kick();
	else
		progress_note_deferred();
}

void flush_forget(struct soft_qp *qp)
{
	pthread_mutex_lock(&lock);
	list_del(&qp->unflushed_link);
	pthread_mutex_unlock(&lock);
}

bool flush_unsent(void)
{
	UNCANCELLABLE;
	for (bool any = false;; any = true) {
		struct soft_qp *qp;

		pthread_mutex_lock(&lock);
		if (list_is_empty(&unsent)) {
			pthread_mutex_unlock(&lock);
			return any;
		}
		qp = list_first(&unsent, struct soft_qp, unflushed_link);
		list_del(&qp->unflushed_link);
		/* Keeps it alive: whoever destroys it has to get past flush_forget first. */
		atomic_fetch_add(&qp->refs, 1);
		pthread_mutex_unlock(&lock);
		qp_send_queued(qp);
		atomic_fetch_sub(&qp->refs, 1);
	}
}

/* A program that ends just after a message has come still tells the peer that it has. */
__attribute__((destructor)) static void flush_at_exit(void)
{
	flush_unsent();
}
