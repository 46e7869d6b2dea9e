/* SPDX-License-Identifier: MIT */
/* Shared receive queues. */
#include <errno.h>
#include <stdlib.h>

#include "../../common/uncancel.h"
#include "objects.h"

static struct soft_srq *to_srq(struct ibv_srq *srq)
{
	return container_of(srq, struct soft_srq, srq);
}

/* A queue pair that holds a message for want of a receive; with a reference, to be put. */
static struct soft_qp *next_waiting(struct soft_srq *srq)
{
	struct soft_qp *qp = NULL;

	pthread_mutex_lock(&srq->lock);
	if (!list_is_empty(&srq->waiting) && recvq_count(&srq->queue)) {
		qp = list_first(&srq->waiting, struct soft_qp, srq_waiting);
		list_del(&qp->srq_waiting);
		atomic_fetch_add(&qp->refs, 1);
	}
	pthread_mutex_unlock(&srq->lock);
	return qp;
}

static void serve_waiting(struct soft_srq *srq)
{
	struct soft_qp *qp;

	while ((qp = next_waiting(srq))) {
		UNCANCELLABLE; /* what waited for the receive may be acknowledged */
		lock_take(&qp->rc.lock);
		if (qp->rc.service)
			qp->rc.service->recv_posted(&qp->rc);
		lock_give(&qp->rc.lock);
		atomic_fetch_sub(&qp->refs, 1);
	}
}

static void receive_returned(struct progress_work *work)
{
	serve_waiting(container_of(work, struct soft_srq, returned));
}

struct ibv_srq *soft_ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct soft_srq *srq;

	if (!init->attr.max_wr || init->attr.max_wr > SOFT_MAX_WR ||
	    init->attr.max_sge > RC_MAX_SGE) {
		errno = EINVAL;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	if (!init->attr.max_sge)
		init->attr.max_sge = 1;
	if (recvq_init(&srq->queue, init->attr.max_wr, init->attr.max_sge)) {
		free(srq);
		errno = ENOMEM;
		return NULL;
	}
	srq->srq.context = pd->context;
	srq->srq.srq_context = init->srq_context;
	srq->srq.pd = pd;
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	pthread_mutex_init(&srq->lock, NULL);
	list_init(&srq->waiting);
	progress_work_init(&srq->returned, receive_returned);
	atomic_fetch_add(&container_of(pd, struct soft_pd, pd)->users, 1);
	return &srq->srq;
}

int soft_ibv_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct soft_srq *srq = to_srq(ibsrq);
	int error = 0;

	if (mask & IBV_SRQ_MAX_WR)
		return EOPNOTSUPP; /* resizing is not offered, nor by siw */
	if (!(mask & IBV_SRQ_LIMIT))
		return 0;
	pthread_mutex_lock(&srq->lock);
	if (attr->srq_limit > srq->queue.depth)
		error = EINVAL;
	else
		srq->limit = attr->srq_limit;
	pthread_mutex_unlock(&srq->lock);
	return error;
}

int soft_ibv_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct soft_srq *srq = to_srq(ibsrq);

	pthread_mutex_lock(&srq->lock);
	*attr = (struct ibv_srq_attr){
		.max_wr = srq->queue.depth, .max_sge = srq->queue.max_sge, .srq_limit = srq->limit};
	pthread_mutex_unlock(&srq->lock);
	return 0;
}

int soft_ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	struct soft_srq *srq = to_srq(ibsrq);
	int users;

	pthread_mutex_lock(&srq->lock);
	users = srq->users;
	pthread_mutex_unlock(&srq->lock);
	if (users)
		return EBUSY;
	progress_lock(PROGRESS_CM);
	progress_cancel(&srq->returned);
	progress_unlock(PROGRESS_CM);
	async_retire(ibsrq->context, ibsrq, &srq->async);
	atomic_fetch_sub(&container_of(ibsrq->pd, struct soft_pd, pd)->users, 1);
	recvq_fini(&srq->queue);
	pthread_mutex_destroy(&srq->lock);
	pthread_mutex_destroy(&srq->srq.mutex);
	pthread_cond_destroy(&srq->srq.cond);
	free(srq);
	return 0;
}

bool srq_take(struct soft_srq *srq, struct rc_recv *out)
{
	bool taken, below = false;

	pthread_mutex_lock(&srq->lock);
	taken = recvq_take(&srq->queue, out);
	if (taken && srq->limit && recvq_count(&srq->queue) < srq->limit) {
		srq->limit = 0; /* once per arming */
		below = true;
	}
	pthread_mutex_unlock(&srq->lock);
	if (below) {
		struct ibv_async_event event = {.element.srq = &srq->srq,
						.event_type = IBV_EVENT_SRQ_LIMIT_REACHED};

		async_raise(srq->srq.context, &event);
	}
	return taken;
}

bool srq_return(struct soft_srq *srq, const struct rc_recv *recv)
{
	bool returned;

	pthread_mutex_lock(&srq->lock);
	returned = recvq_return(&srq->queue, recv);
	pthread_mutex_unlock(&srq->lock);
	if (returned)
		progress_defer(&srq->returned);
	return returned;
}

int soft_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct soft_srq *srq = to_srq(ibsrq);
	int error = 0;

	pthread_mutex_lock(&srq->lock);
	for (; wr && !error; wr = wr->next) {
		error = recvq_post(&srq->queue, ibsrq->pd, wr);
		if (error)
			*bad = wr;
	}
	pthread_mutex_unlock(&srq->lock);
	serve_waiting(srq);
	return error;
}
