/* SPDX-License-Identifier: MIT */
/* Queue pairs: their life, and their connection. Their states are in qp_state.c. */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "../../common/log.h"
#include "../fork_order.h"
#include "../progress/progress.h"
#include "../meet.h"
#include "../raw/raw.h"
#include "../rc/attach.h"
#include "../strict.h"
#include "../../common/uncancel.h"
#include "by_number.h"
#include "deferred.h"
#include "objects.h"
#include "qp_state.h"

#define BUCKETS 1024

/* All queue pairs of the process, by number. */
static struct {
	pthread_mutex_t lock; /* guards all below; a leaf */
	struct list buckets[BUCKETS];
	uint32_t last_num;
	uint32_t count;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

FORK_MUTEX(FORK_QPS, &table.lock, NULL);

static struct soft_qp *find(uint32_t num)
{
	struct list *pos, *bucket = &table.buckets[num % BUCKETS];

	if (!table.last_num)
		return NULL; /* never used: the buckets are not there yet */
	list_for_each (pos, bucket) {
		struct soft_qp *qp = container_of(pos, struct soft_qp, link);

		if (qp->rc.qp_num == num)
			return qp;
	}
	return NULL;
}

static void table_init(void)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		list_init(&table.buckets[i]);
	if (getrandom(&table.last_num, sizeof(table.last_num), 0) < 0)
		table.last_num = 0;
	table.last_num = (table.last_num & 0x3ff00) | 0x100;
}

/* For a queue pair of the CM; never 0 or 1. The lock is held. */
static uint32_t next_number(void)
{
	do
		table.last_num =
			table.last_num >= MEET_FIRST_NUMBER - 1 ? 0x100 : table.last_num + 1;
	while (find(table.last_num));
	return table.last_num;
}

static int insert(struct soft_qp *qp)
{
	uint32_t number = 0;
	int error = qp->numbered ? -meet_take_number(&number) : 0;

	if (error)
		return error;
	pthread_mutex_lock(&table.lock);
	if (!table.last_num)
		table_init();
	if (table.count >= SOFT_MAX_QP) {
		error = ENOMEM;
	} else {
		qp->rc.qp_num = qp->numbered ? number : next_number();
		list_add_tail(&table.buckets[qp->rc.qp_num % BUCKETS], &qp->link);
		table.count++;
	}
	pthread_mutex_unlock(&table.lock);
	if (error && qp->numbered)
		meet_give_number(number);
	return error;
}

static void remove_from_table(struct soft_qp *qp)
{
	pthread_mutex_lock(&table.lock);
	list_del(&qp->link);
	table.count--;
	pthread_mutex_unlock(&table.lock);
	if (qp->numbered)
		meet_give_number(qp->rc.qp_num);
}

struct soft_qp *qp_get(uint32_t num)
{
	struct soft_qp *qp;

	pthread_mutex_lock(&table.lock);
	qp = find(num);
	if (qp)
		atomic_fetch_add(&qp->refs, 1);
	pthread_mutex_unlock(&table.lock);
	return qp;
}

void qp_put(struct soft_qp *qp)
{
	atomic_fetch_sub(&qp->refs, 1);
}

bool qp_exists(uint32_t qp_num)
{
	struct soft_qp *qp = qp_get(qp_num);

	if (qp)
		qp_put(qp);
	return qp != NULL;
}

/* ---- making and destroying ---- */

static int sendq_init(struct rc_sendq *sq, const struct ibv_qp_cap *cap)
{
	size_t pieces = cap->max_send_sge * sizeof(struct ibv_sge);
	size_t inlined = sizeof(struct ibv_sge) + cap->max_inline_data;
	size_t stride = sizeof(struct rc_send) + (pieces > inlined ? pieces : inlined);
	uint32_t size = 1;

	while (size < cap->max_send_wr)
		size <<= 1;
	sq->mask = size - 1;
	sq->depth = cap->max_send_wr;
	sq->stride = (uint32_t)((stride + 15) & ~(size_t)15);
	sq->slots = calloc(size, sq->stride);
	return sq->slots ? 0 : ENOMEM;
}

static uint32_t at_least(uint32_t value, uint32_t least)
{
	return value < least ? least : value;
}

/* What is granted: as asked, but never nothing. */
static int grant(struct ibv_qp_cap *cap)
{
	uint32_t max_sge = is_strict() ? STRICT_MAX_SGE : RC_MAX_SGE;
	uint32_t max_inline = is_strict() ? STRICT_MAX_INLINE : RC_MAX_INLINE;

	if (cap->max_send_wr > SOFT_MAX_WR || cap->max_recv_wr > SOFT_MAX_WR ||
	    cap->max_send_sge > max_sge || cap->max_recv_sge > max_sge ||
	    cap->max_inline_data > max_inline) {
		if (is_strict())
			log_error("strict: a queue pair beyond what siw offers: %u and %u pieces, "
				  "%u bytes inline",
				  cap->max_send_sge, cap->max_recv_sge, cap->max_inline_data);
		return EINVAL;
	}
	cap->max_send_wr = at_least(cap->max_send_wr, 1);
	cap->max_recv_wr = at_least(cap->max_recv_wr, 1);
	cap->max_send_sge = at_least(cap->max_send_sge, 1);
	cap->max_recv_sge = at_least(cap->max_recv_sge, 1);
	cap->max_inline_data = at_least(cap->max_inline_data, 64);
	return 0;
}

static int check_init(const struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_RAW_PACKET)
		return EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq || !is_soft_context(attr->send_cq->context) ||
	    !is_soft_context(attr->recv_cq->context) ||
	    (attr->srq && (!is_soft_context(attr->srq->context) || attr->srq->pd != pd)))
		return EINVAL;
	return 0;
}

static void fill_public(struct soft_qp *qp, struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	qp->qp.context = pd->context;
	qp->qp.qp_context = attr->qp_context;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.srq = attr->srq;
	qp->qp.qp_num = qp->rc.qp_num;
	qp->qp.handle = qp->rc.qp_num;
	qp->qp.state = IBV_QPS_RESET;
	qp->qp.qp_type = attr->qp_type;
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
}

static void join_others(struct soft_qp *qp)
{
	cq_attach_qp(qp->send_cq, &qp->send_use, qp);
	if (qp->recv_cq != qp->send_cq)
		cq_attach_qp(qp->recv_cq, &qp->recv_use, qp);
	if (qp->srq) {
		pthread_mutex_lock(&qp->srq->lock);
		qp->srq->users++;
		pthread_mutex_unlock(&qp->srq->lock);
	}
	atomic_fetch_add(&container_of(qp->qp.pd, struct soft_pd, pd)->users, 1);
}

static void free_qp(struct soft_qp *qp)
{
	free(qp->rc.sq.slots);
	recvq_fini(&qp->rq);
	free(qp);
}

static int attach_raw(struct soft_qp *qp)
{
	const struct soft_device *device =
		container_of(qp->qp.context->device, struct soft_device, device);

	unsigned receives = qp->srq ? qp->srq->queue.depth : qp->cap.max_recv_wr;

	return raw_attach(&qp->rc, receives, device->ifindex, device->ifname);
}

struct ibv_qp *soft_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return qp_create(pd, attr, attr->qp_type == IBV_QPT_RC);
}

struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, bool numbered)
{
	int error = check_init(pd, attr);
	struct soft_qp *qp;

	if (!error)
		error = grant(&attr->cap);
	if (!error)
		error = -progress_start();
	if (error) {
		errno = error;
		return NULL;
	}
	progress_set_flush(deferred_send_all);
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->numbered = numbered;
	by_number_init(qp);
	qp->cap = attr->cap;
	qp->sq_sig_all = attr->sq_sig_all;
	qp->send_cq = container_of(attr->send_cq, struct soft_cq, cq);
	qp->recv_cq = container_of(attr->recv_cq, struct soft_cq, cq);
	qp->rc.slept_for[0] = &qp->send_cq->slept_at;
	qp->rc.slept_for[1] = &qp->recv_cq->slept_at;
	qp->srq = attr->srq ? container_of(attr->srq, struct soft_srq, srq) : NULL;
	qp_reset_attributes(qp);
	qp->sent_at = UINT_MAX; /* no poll was before the first request, so it leaves at once */
	atomic_init(&qp->refs, 1);
	list_init(&qp->link);
	list_init(&qp->srq_waiting);
	deferred_init_qp(qp);
	error = sendq_init(&qp->rc.sq, &attr->cap);
	if (!error && !qp->srq &&
	    recvq_init(&qp->rq, attr->cap.max_recv_wr, attr->cap.max_recv_sge))
		error = ENOMEM;
	if (!error)
		error = insert(qp);
	if (error) {
		free_qp(qp);
		errno = error;
		return NULL;
	}
	fill_public(qp, pd, attr);
	error = qp_is_raw(qp) ? -attach_raw(qp) : 0;
	if (error) {
		remove_from_table(qp);
		free_qp(qp);
		errno = error;
		return NULL;
	}
	join_others(qp);
	return &qp->qp;
}

static void leave_others(struct soft_qp *qp)
{
	cq_detach_qp(qp->send_cq, &qp->send_use);
	if (qp->recv_cq != qp->send_cq)
		cq_detach_qp(qp->recv_cq, &qp->recv_use);
	if (qp->srq) {
		pthread_mutex_lock(&qp->srq->lock);
		list_del(&qp->srq_waiting);
		qp->srq->users--;
		pthread_mutex_unlock(&qp->srq->lock);
	}
	atomic_fetch_sub(&container_of(qp->qp.pd, struct soft_pd, pd)->users, 1);
}

int soft_ibv_destroy_qp(struct ibv_qp *ibqp)
{
	struct soft_qp *qp = container_of(ibqp, struct soft_qp, qp);

	UNCANCELLABLE;
	if (qp_is_raw(qp) && raw_has_flows(&qp->rc))
		return EBUSY;
	if (qp->numbered) {
		progress_lock(PROGRESS_CM);
		by_number_end(qp);
		progress_unlock(PROGRESS_CM);
	}
	/* The owner is told while it can still find and disown the queue pair. */
	lock_take(&qp->rc.lock);
	qp->rc.state = IBV_QPS_RESET;
	if (qp->rc.service)
		qp->rc.service->close(&qp->rc);
	qp_return_receive(qp);
	qp_tell_ended(qp, 0);
	lock_give(&qp->rc.lock);
	remove_from_table(qp);
	deferred_forget_qp(qp);
	leave_others(qp);
	progress_barrier();
	/* Whoever found it before holds it for the time of one call that does not block. */
	while (atomic_load(&qp->refs) > 1)
		sched_yield();
	deferred_forget_qp(qp);
	if (qp_is_raw(qp))
		raw_detach(&qp->rc);
	async_retire(ibqp->context, ibqp, &qp->async);
	pthread_mutex_destroy(&qp->qp.mutex);
	pthread_cond_destroy(&qp->qp.cond);
	free_qp(qp);
	return 0;
}

/* ---- the connection ---- */

static bool can_connect(enum ibv_qp_state state)
{
	return state == IBV_QPS_INIT || state == IBV_QPS_RTR || state == IBV_QPS_RTS;
}

static int attach(struct soft_qp *qp, int fd, struct shm_link *link,
		  const struct mpa_agreed *agreed, bool initiator, struct qp_owner *owner)
{
	enum ibv_qp_state before = qp->rc.state;
	int error;

	if (qp->rc.service)
		return -EISCONN;
	if (!can_connect(before))
		return -EINVAL;
	qp_set_state(qp, IBV_QPS_RTS);
	qp_note_peer(qp, fd);
	qp->owner = owner;
	error = rc_attach(&qp->rc, fd, link, agreed, initiator);
	if (error) {
		qp->owner = NULL;
		qp_set_state(qp, before);
		return error;
	}
	qp_note_agreed(qp, agreed->ord, agreed->ird);
	/* A program that moved to RTS by itself may have posted already. */
	if (qp->rc.service && qp->rc.sq.next != qp->rc.sq.tail)
		qp->rc.service->send(&qp->rc);
	return 0;
}

int qp_attach(uint32_t qp_num, int fd, struct shm_link *link, const struct mpa_agreed *agreed,
	      bool initiator, struct qp_owner *owner)
{
	struct soft_qp *qp = qp_get(qp_num);
	int error;

	if (!qp)
		return -ENOENT;
	lock_take(&qp->rc.lock);
	error = attach(qp, fd, link, agreed, initiator, owner);
	lock_give(&qp->rc.lock);
	qp_put(qp);
	return error;
}

void qp_disconnect(uint32_t qp_num)
{
	struct soft_qp *qp = qp_get(qp_num);

	if (!qp)
		return;
	lock_take(&qp->rc.lock);
	if (qp->rc.service) {
		qp->rc.service->disconnect(&qp->rc);
		qp_enter_error(qp);
	}
	lock_give(&qp->rc.lock);
	qp_put(qp);
}

void qp_disown(uint32_t qp_num, struct qp_owner *owner)
{
	struct soft_qp *qp = qp_get(qp_num);

	if (!qp)
		return;
	lock_take(&qp->rc.lock);
	if (qp->owner == owner)
		qp->owner = NULL;
	lock_give(&qp->rc.lock);
	qp_put(qp);
}

void rc_opened(struct rc_qp *rc)
{
	struct soft_qp *qp = to_qp(rc);

	if (qp->owner)
		qp->owner->opened(qp->owner);
}

static bool drive_by_system_calls(struct rc_qp *rc, unsigned looks)
{
	UNCANCELLABLE;
	return rc->service->drive(rc, looks);
}

static bool drive(struct rc_qp *rc, unsigned looks)
{
	return rc->service->memory_only ? rc->service->drive(rc, looks)
					: drive_by_system_calls(rc, looks);
}

bool qp_drive(struct soft_qp *qp, unsigned looks, struct cq_poll *poll)
{
	bool any = false;

	if (!lock_try(&qp->rc.lock))
		return false; /* another thread is at it */
	if (qp->rc.service) {
		qp->poll = poll;
		any = drive(&qp->rc, looks);
		qp->poll = NULL;
	}
	lock_give(&qp->rc.lock);
	return any;
}

bool qp_rest(struct soft_qp *qp)
{
	if (!lock_try(&qp->rc.lock))
		return false;
	UNCANCELLABLE;
	if (qp->rc.service)
		qp->rc.service->rest(&qp->rc);
	lock_give(&qp->rc.lock);
	return true;
}
