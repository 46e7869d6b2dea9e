/* SPDX-License-Identifier: MIT */
/* Posting requests, and their completion: what the RC service asks of verbs for the two queues. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/log.h"
#include "../strict.h"
#include "../../common/uncancel.h"
#include "by_number.h"
#include "deferred.h"
#include "objects.h"
#include "post.h"

/* ---- send requests ---- */

struct opcode_rule {
	enum { NOT_OFFERED, OFFERED, EXTENDED /* to peers that take it */ } offer;
	unsigned local_access; /* of the pieces */
	enum ibv_wc_opcode wc;
};

static const struct opcode_rule opcode_rules[] = {
	[IBV_WR_RDMA_WRITE] = {OFFERED, 0, IBV_WC_RDMA_WRITE},
	[IBV_WR_RDMA_WRITE_WITH_IMM] = {EXTENDED, 0, IBV_WC_RDMA_WRITE},
	[IBV_WR_SEND] = {OFFERED, 0, IBV_WC_SEND},
	[IBV_WR_SEND_WITH_IMM] = {EXTENDED, 0, IBV_WC_SEND},
	[IBV_WR_SEND_WITH_INV] = {OFFERED, 0, IBV_WC_SEND},
	[IBV_WR_RDMA_READ] = {OFFERED, IBV_ACCESS_LOCAL_WRITE, IBV_WC_RDMA_READ},
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {EXTENDED, IBV_ACCESS_LOCAL_WRITE, IBV_WC_COMP_SWAP},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {EXTENDED, IBV_ACCESS_LOCAL_WRITE, IBV_WC_FETCH_ADD},
};

static const struct opcode_rule *rule_of(unsigned opcode)
{
	if (opcode >= sizeof(opcode_rules) / sizeof(*opcode_rules) ||
	    opcode_rules[opcode].offer == NOT_OFFERED)
		return NULL;
	return &opcode_rules[opcode];
}

/* The pieces of @wr as they lie in memory; whether all grant @access. */
static bool resolve_pieces(struct soft_qp *qp, const struct ibv_send_wr *wr, unsigned access,
			   struct ibv_sge *to)
{
	unsigned count = (unsigned)wr->num_sge;

	return region_resolve(&qp->send_region, qp->qp.pd, wr->sg_list, count, access, to) == count;
}

/* In strict mode, as hardware: a read goes into one piece, whose key grants remote writes. */
static bool may_read_strictly(struct soft_qp *qp, const struct ibv_send_wr *wr, struct ibv_sge *to)
{
	if (wr->num_sge > 1)
		log_error("strict: QP 0x%x: a READ into %d pieces; iWARP hardware takes one",
			  qp->rc.qp_num, wr->num_sge);
	else if (!resolve_pieces(qp, wr, IBV_ACCESS_REMOTE_WRITE, to))
		log_error("strict: QP 0x%x: the sink of a READ lacks IBV_ACCESS_REMOTE_WRITE",
			  qp->rc.qp_num);
	else
		return true;
	return false;
}

/* The queue's pieces have the addresses in memory. False: they may not be used so. */
static bool copy_pieces(struct soft_qp *qp, const struct ibv_send_wr *wr, struct rc_send *send)
{
	if (!resolve_pieces(qp, wr, rule_of(wr->opcode)->local_access, send->sge))
		return false;
	return !is_strict() || wr->opcode != IBV_WR_RDMA_READ ||
	       may_read_strictly(qp, wr, send->sge);
}

/* *@length: of its pieces in all. Errors are positive, as verbs return them. */
static int check_send(const struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t tail,
		      uint64_t *length)
{
	const struct opcode_rule *rule = rule_of(wr->opcode);
	const struct rc_sendq *sq = &qp->rc.sq;

	if (!rule || (rule->offer == EXTENDED && !qp->rc.extended) ||
	    (qp_is_raw(qp) && wr->opcode != IBV_WR_SEND))
		return EOPNOTSUPP;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
		return EINVAL;
	*length = rc_sge_length(wr->sg_list, (unsigned)wr->num_sge);
	if ((wr->send_flags & IBV_SEND_INLINE) &&
	    (rc_is_answered(wr->opcode) || *length > qp->cap.max_inline_data))
		return EINVAL;
	if (rc_is_atomic(wr->opcode) && *length != sizeof(uint64_t))
		return EINVAL;
	return tail - sq->head == sq->depth ? ENOMEM : 0;
}

/* The bytes follow a single piece that describes them. */
static void copy_inline(struct rc_send *send, const struct ibv_send_wr *wr)
{
	uint8_t *bytes = (uint8_t *)(send->sge + 1);

	rc_sge_gather(wr->sg_list, (unsigned)wr->num_sge, 0, bytes, send->length);
	send->sge[0] = (struct ibv_sge){.addr = (uintptr_t)bytes, .length = send->length};
	send->num_sge = 1;
}

static void enqueue(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t tail,
		    uint64_t length)
{
	struct rc_send *send = rc_send_at(&qp->rc.sq, tail);

	*send = (struct rc_send){
		.wr_id = wr->wr_id,
		.remote_addr = wr->wr.rdma.remote_addr,
		.rkey = wr->wr.rdma.rkey,
		.imm_or_key = wr->imm_data,
		.length = (uint32_t)length,
		.opcode = (uint8_t)wr->opcode,
		.num_sge = (uint8_t)wr->num_sge,
		.signaled = qp->sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED),
		.solicited = wr->send_flags & IBV_SEND_SOLICITED,
		.fence = wr->send_flags & IBV_SEND_FENCE,
		.sge = (struct ibv_sge *)(send + 1),
	};
	if (rc_is_atomic(wr->opcode)) {
		send->rkey = wr->wr.atomic.rkey;
		send->compare_add = wr->wr.atomic.compare_add;
		send->swap = wr->wr.atomic.swap;
	}
	if (length > SOFT_MAX_MSG) {
		send->status = IBV_WC_LOC_LEN_ERR;
	} else if (wr->send_flags & IBV_SEND_INLINE) {
		copy_inline(send, wr);
	} else if (!copy_pieces(qp, wr, send)) {
		send->status = IBV_WC_LOC_PROT_ERR;
	}
}

void post_publish(struct soft_qp *qp, uint32_t tail)
{
	struct rc_sendq *sq = &qp->rc.sq;

	for (; sq->tail != tail; sq->tail++) {
		sq->signaled += rc_send_at(sq, sq->tail)->signaled;
		qp->held_back++;
	}
}

/*
 * The first request after a poll of either CQ leaves at once, for latency, if none is in flight.
 * Others are held back to leave together, for rate: until the program polls, POST_MAX_HELD_BACK
 * have gathered, or the progress thread comes by.
 */
static void send_now_or_later(struct soft_qp *qp)
{
	unsigned polls = atomic_load_explicit(&qp->send_cq->polls, memory_order_relaxed) +
			 atomic_load_explicit(&qp->recv_cq->polls, memory_order_relaxed);
	const struct rc_sendq *sq = &qp->rc.sq;
	const struct rc_send *last = rc_send_at(sq, sq->tail - 1);
	bool is_first = qp->sent_at != polls && sq->tail - sq->head == qp->held_back;

	if (qp->rc.service->memory_only || is_first || qp->held_back >= POST_MAX_HELD_BACK ||
	    last->length >= POST_MAX_HELD_BACK_BYTES) {
		qp->sent_at = polls;
		qp->held_back = 0;
		qp->rc.service->send(&qp->rc);
	} else {
		deferred_add(qp);
	}
}

int post_check_state(const struct soft_qp *qp)
{
	switch (qp->rc.state) {
	case IBV_QPS_RTS:
	case IBV_QPS_SQD:
	case IBV_QPS_ERR: /* to be flushed */
		return 0;
	default:
		return EINVAL;
	}
}

/* Requests that the peer has placed may be in the queue only because nobody has looked yet. */
static void make_room(struct soft_qp *qp, uint32_t tail)
{
	const struct rc_sendq *sq = &qp->rc.sq;

	if (tail - sq->head == sq->depth && qp->rc.service && qp->rc.service->look_for_acks)
		qp->rc.service->look_for_acks(&qp->rc);
}

int post_enqueue(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t *tail)
{
	uint64_t length;
	int error;

	make_room(qp, *tail);
	error = check_send(qp, wr, *tail, &length);
	if (!error)
		enqueue(qp, wr, (*tail)++, length);
	return error;
}

/* It has left, and is in the queue until the peer has placed it. */
static void note_sent(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t length,
		      bool signaled, uint32_t position)
{
	struct rc_sendq *sq = &qp->rc.sq;
	struct rc_send *send = rc_send_at(sq, sq->tail);

	send->wr_id = wr->wr_id;
	send->length = length;
	send->position = position;
	send->opcode = IBV_WR_SEND;
	send->status = IBV_WC_SUCCESS;
	send->state = RC_SEND_BEGUN;
	send->signaled = signaled;
	sq->signaled += signaled;
	sq->next = ++sq->tail;
}

/* One Send that nothing is before may leave at once, for latency, if all is well. */
static bool leaves_at_once(struct soft_qp *qp, const struct ibv_send_wr *wr)
{
	struct rc_qp *rc = &qp->rc;
	struct rc_sendq *sq = &rc->sq;
	bool signaled = qp->sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED);
	uint32_t position;
	uint64_t length;

	if (wr->next || wr->opcode != IBV_WR_SEND || sq->next != sq->tail ||
	    (wr->send_flags & IBV_SEND_FENCE) || rc->state != IBV_QPS_RTS || !rc->service ||
	    !rc->service->send_now || (uint32_t)wr->num_sge > qp->cap.max_send_sge ||
	    sq->tail - sq->head == sq->depth)
		return false;
	length = rc_sge_length(wr->sg_list, (unsigned)wr->num_sge);
	if (wr->send_flags & IBV_SEND_INLINE
		    ? length > qp->cap.max_inline_data
		    : length > SOFT_MAX_MSG ||
			      !region_covers(&qp->send_region, qp->qp.pd, wr->sg_list,
					     (unsigned)wr->num_sge, 0))
		return false;
	if (!rc->service->send_now(rc, wr->sg_list, (unsigned)wr->num_sge, (uint32_t)length,
				   wr->send_flags & IBV_SEND_SOLICITED, &position))
		return false;
	note_sent(qp, wr, (uint32_t)length, signaled, position);
	cq_note_traffic(qp->send_cq, &qp->send_use);
	return true;
}

void post_go(struct soft_qp *qp)
{
	UNCANCELLABLE;
	if (qp->rc.state == IBV_QPS_ERR)
		qp_flush(qp);
	else if (qp->rc.service && qp->rc.sq.next != qp->rc.sq.tail)
		send_now_or_later(qp);
	else if (qp->numbered && !qp->rc.service)
		by_number_await(qp);
}

/* Errors are positive; *@bad is set with them. */
static int post_list(struct soft_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int error = post_check_state(qp);
	uint32_t tail = qp->rc.sq.tail;

	if (error)
		*bad = wr;
	for (; wr && !error; wr = wr->next) {
		error = post_enqueue(qp, wr, &tail);
		if (error)
			*bad = wr;
	}
	post_publish(qp, tail);
	post_go(qp);
	return error;
}

int soft_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct soft_qp *qp = container_of(ibqp, struct soft_qp, qp);
	bool drafts = qp->ex.wr_start != NULL;
	int error = 0;

	/* Requests that are being described have their places in the queue. */
	if (drafts)
		lock_take(&qp->draft.lock);
	lock_take(&qp->rc.lock);
	if (!wr || !leaves_at_once(qp, wr))
		error = post_list(qp, wr, bad);
	lock_give(&qp->rc.lock);
	if (drafts)
		lock_give(&qp->draft.lock);
	return error;
}

void qp_send_queued(struct soft_qp *qp)
{
	lock_take(&qp->rc.lock);
	atomic_store_explicit(&qp->owes, false, memory_order_relaxed);
	qp->held_back = 0;
	if (qp->rc.service && qp->rc.service->flush)
		qp->rc.service->flush(&qp->rc);
	else if (qp->rc.service && qp->rc.state == IBV_QPS_RTS)
		qp->rc.service->send(&qp->rc);
	lock_give(&qp->rc.lock);
}

static void complete_send(struct soft_qp *qp, const struct rc_send *send)
{
	struct ibv_wc wc = {
		.wr_id = send->wr_id,
		.status = send->status,
		.opcode = rule_of(send->opcode)->wc,
		.byte_len = send->length,
		.qp_num = qp->rc.qp_num,
	};

	if (send->signaled || send->status != IBV_WC_SUCCESS)
		cq_push(qp->send_cq, qp, &wc, false);
}

/* Completions appear in posting order: a request waits for those before it. */
static void retire_sends(struct soft_qp *qp)
{
	struct rc_sendq *sq = &qp->rc.sq;

	while (sq->head != sq->tail && rc_send_at(sq, sq->head)->state == RC_SEND_DONE) {
		sq->signaled -= rc_send_at(sq, sq->head)->signaled;
		complete_send(qp, rc_send_at(sq, sq->head));
		sq->head++;
	}
	if (qp->drain != QP_NOT_DRAINING)
		qp_note_retired(qp);
}

void rc_send_done(struct rc_qp *rc, struct rc_send *send, enum ibv_wc_status status)
{
	send->state = RC_SEND_DONE;
	send->status = (uint8_t)status;
	retire_sends(to_qp(rc));
	cq_note_traffic(to_qp(rc)->send_cq, &to_qp(rc)->send_use);
}

/* ---- receives ---- */

unsigned rc_recv_timeout(void)
{
	return settings()->recv_timeout_ms;
}

/* The queue has more, and somebody may have waited for it. */
static void note_receives(struct soft_qp *qp)
{
	UNCANCELLABLE;
	if (qp->rc.state == IBV_QPS_ERR) {
		qp_flush(qp);
	} else if (qp->wants_recv && qp->rc.service) {
		qp->wants_recv = false;
		qp->rc.service->recv_posted(&qp->rc);
	}
}

int soft_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct soft_qp *qp = container_of(ibqp, struct soft_qp, qp);
	int error = 0;

	lock_take(&qp->rc.lock);
	if (qp->srq || qp->rc.state == IBV_QPS_RESET) {
		error = EINVAL;
		*bad = wr;
	}
	for (; wr && !error; wr = wr->next) {
		error = recvq_post(&qp->rq, ibqp->pd, wr);
		if (error)
			*bad = wr;
	}
	if (qp->wants_recv || qp->rc.state == IBV_QPS_ERR)
		note_receives(qp);
	lock_give(&qp->rc.lock);
	return error;
}

struct rc_recv *rc_recv_begin(struct rc_qp *rc)
{
	struct soft_qp *qp = to_qp(rc);

	qp->recv_busy = qp->srq ? srq_take(qp->srq, &qp->recv) : recvq_take(&qp->rq, &qp->recv);
	if (qp->recv_busy)
		return &qp->recv;
	qp->wants_recv = true;
	if (qp->srq) {
		pthread_mutex_lock(&qp->srq->lock);
		if (list_is_empty(&qp->srq_waiting))
			list_add_tail(&qp->srq->waiting, &qp->srq_waiting);
		pthread_mutex_unlock(&qp->srq->lock);
		/* One may have been posted between the two looks. */
		qp->recv_busy = srq_take(qp->srq, &qp->recv);
	}
	return qp->recv_busy ? &qp->recv : NULL;
}

bool rc_recv_peek(const struct rc_qp *rc, unsigned ahead, struct rc_recv_view *view)
{
	const struct soft_qp *qp = container_of(rc, const struct soft_qp, rc);

	return !qp->srq && !qp->recv_busy && recvq_peek(&qp->rq, ahead, view);
}

static void complete_recv(struct soft_qp *qp, uint64_t wr_id, const struct rc_arrival *arrival)
{
	struct ibv_wc *slot = cq_poll_slot(qp->recv_cq, qp), queued;

	*(slot ? slot : &queued) = (struct ibv_wc){
		.wr_id = wr_id,
		.status = arrival->status,
		.opcode = arrival->opcode,
		.byte_len = arrival->length,
		.imm_data = arrival->imm_or_key,
		.qp_num = qp->rc.qp_num,
		.wc_flags = arrival->wc_flags,
	};
	if (!slot)
		cq_push(qp->recv_cq, qp, &queued, arrival->solicited);
	cq_note_traffic(qp->recv_cq, qp->recv_cq == qp->send_cq ? &qp->send_use : &qp->recv_use);
}

void rc_recv_done(struct rc_qp *rc, struct rc_recv *recv, const struct rc_arrival *arrival)
{
	struct soft_qp *qp = to_qp(rc);

	qp->recv_busy = false;
	complete_recv(qp, recv->wr_id, arrival);
}

bool rc_recv_whole(struct rc_qp *rc, const void *bytes, uint32_t length, bool solicited)
{
	const struct rc_arrival arrival = {
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV,
		.length = length,
		.solicited = solicited,
	};
	struct soft_qp *qp = to_qp(rc);
	struct rc_recv_view recv;

	if (!rc_recv_peek(rc, 0, &recv) || length > recv.length)
		return false;
	recvq_drop(&qp->rq);
	rc_sge_scatter(recv.sge, recv.num_sge, 0, bytes, length);
	complete_recv(qp, recv.wr_id, &arrival);
	return true;
}

/* ---- flushing ---- */

void qp_return_receive(struct soft_qp *qp)
{
	if (qp->recv_busy && qp->srq && srq_return(qp->srq, &qp->recv))
		qp->recv_busy = false;
}

static void flush_receives(struct soft_qp *qp)
{
	const struct rc_arrival flushed = {.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};

	qp_return_receive(qp);
	if (qp->recv_busy)
		rc_recv_done(&qp->rc, &qp->recv, &flushed);
	while (!qp->srq && recvq_take(&qp->rq, &qp->recv))
		rc_recv_done(&qp->rc, &qp->recv, &flushed);
}

/* Behind one that failed nothing succeeds, though it may have been over before. */
static void flush_sends(struct rc_sendq *sq)
{
	bool failed = false;

	for (uint32_t i = sq->head; i != sq->tail; i++) {
		struct rc_send *send = rc_send_at(sq, i);

		if (send->state != RC_SEND_DONE || (failed && send->status == IBV_WC_SUCCESS))
			send->status = IBV_WC_WR_FLUSH_ERR;
		send->state = RC_SEND_DONE;
		failed |= send->status != IBV_WC_SUCCESS;
	}
	sq->next = sq->tail;
}

void qp_flush(struct soft_qp *qp)
{
	flush_sends(&qp->rc.sq);
	retire_sends(qp);
	flush_receives(qp);
}
