/* SPDX-License-Identifier: MIT */
#include "by_number.h"

#include <errno.h>
#include <string.h>

#include "../../common/log.h"
#include "../meet.h"
#include "../rc/attach.h"
#include "qp_state.h"

#define NEEDS_RTR (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)

/* A peer that nobody has met so far may be slow to start: not so with hardware. */
#define FIRST_MEETING_MS 5000u

/* ---- a peer that does not come, or has gone ---- */

/* As InfiniBand has it: 4.096 us * 2^timeout for each try. 0: for ever. */
static uint64_t patience_ms(const struct soft_qp *qp)
{
	uint64_t ns = (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1u);

	return qp->attr.timeout ? ns / 1000000 + 1 : 0;
}

void by_number_await(struct soft_qp *qp)
{
	uint64_t ms = patience_ms(qp);

	if (qp->awaits_peer || !ms || qp->rc.sq.head == qp->rc.sq.tail)
		return;
	if (!qp->has_met && ms < FIRST_MEETING_MS)
		ms = FIRST_MEETING_MS;
	qp->awaits_peer = true;
	progress_timer_arm(&qp->peer_timer, ms > INT32_MAX ? INT32_MAX : (unsigned)ms);
}

static void peer_expired(struct progress_timer *timer)
{
	struct soft_qp *qp = container_of(timer, struct soft_qp, peer_timer);
	struct rc_sendq *sq = &qp->rc.sq;

	lock_take(&qp->rc.lock);
	if (qp->awaits_peer && !qp->rc.service && sq->head != sq->tail &&
	    (qp->rc.state == IBV_QPS_RTS || qp->rc.state == IBV_QPS_SQD)) {
		log_warn("QP 0x%x: QP 0x%x did not answer: requests fail", qp->rc.qp_num,
			 qp->attr.dest_qp_num);
		rc_failed(&qp->rc, rc_send_at(sq, sq->head), IBV_WC_RETRY_EXC_ERR, 0);
	}
	qp->awaits_peer = false;
	lock_give(&qp->rc.lock);
}

/* On InfiniBand only requests that stay unanswered show that the peer has gone. */
void rc_parted(struct rc_qp *rc, int error)
{
	struct soft_qp *qp = to_qp(rc);

	if (!qp->has_met) {
		rc_failed(rc, NULL, IBV_WC_WR_FLUSH_ERR, error);
		return;
	}
	qp_return_receive(qp);
	by_number_await(qp);
}

void by_number_init(struct soft_qp *qp)
{
	progress_timer_init(&qp->peer_timer, PROGRESS_CM, peer_expired);
}

/* ---- meeting ---- */

static int expect_peer(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const struct ibv_ah_attr *path = &attr->ah_attr;
	struct meet_terms terms = {
		.own = qp->rc.qp_num,
		.peer = attr->dest_qp_num,
		.ifindex =
			container_of(qp->qp.context->device, struct soft_device, device)->ifindex,
		.expected_psn = attr->rq_psn,
		.path_mtu = (uint8_t)attr->path_mtu,
		.ird = attr->max_dest_rd_atomic,
	};
	union ibv_gid own;

	if ((mask & NEEDS_RTR) != NEEDS_RTR || terms.peer > 0xffffff ||
	    terms.expected_psn > 0xffffff)
		return EINVAL;
	if (!path->is_global) {
		log_warn("QP 0x%x: the peer's address has no GID. Give one: the option -g of most "
			 "programs, and is_global of struct ibv_ah_attr",
			 qp->rc.qp_num);
		return EINVAL;
	}
	if (terms.peer < MEET_FIRST_NUMBER) {
		log_warn("QP 0x%x: QP 0x%x is not of a softrdma that can be met by number",
			 qp->rc.qp_num, terms.peer);
		return EINVAL;
	}
	if (soft_ibv_query_gid(qp->qp.context, SOFT_PORT, path->grh.sgid_index, &own))
		return EINVAL;
	memcpy(terms.own_gid, own.raw, sizeof(terms.own_gid));
	memcpy(terms.peer_gid, path->grh.dgid.raw, sizeof(terms.peer_gid));
	qp->rc.extended = true; /* what is posted early waits */
	return -meet_expect(&terms, &qp->meeting);
}

/* The peer has met a queue pair that does not send as it was told to. */
static void part_from_peer(struct soft_qp *qp)
{
	if (qp->rc.service)
		qp->rc.service->close(&qp->rc);
}

int by_number_step(struct soft_qp *qp, enum ibv_qp_state to, const struct ibv_qp_attr *attr,
		   int mask)
{
	if (to == IBV_QPS_RTR && qp->rc.state == IBV_QPS_INIT &&
	    (mask & (IBV_QP_AV | IBV_QP_DEST_QPN)))
		return expect_peer(qp, attr, mask);
	if (to != IBV_QPS_RTS || qp->rc.state != IBV_QPS_RTR || !qp->meeting)
		return 0;
	if (!(mask & IBV_QP_SQ_PSN) || attr->sq_psn > 0xffffff)
		return EINVAL;
	if (meet_dial(qp->meeting, attr->sq_psn))
		part_from_peer(qp);
	return 0;
}

void by_number_end(struct soft_qp *qp)
{
	struct meeting *meeting;

	lock_take(&qp->rc.lock);
	progress_timer_cancel(&qp->peer_timer);
	qp->awaits_peer = false;
	qp->has_met = false;
	meeting = qp->meeting;
	qp->meeting = NULL;
	lock_give(&qp->rc.lock);
	if (meeting)
		meet_end(meeting);
}

static int attach(struct soft_qp *qp, int fd, struct shm_link *link,
		  const struct mpa_agreed *agreed, bool initiator)
{
	int error;

	if (qp->rc.service)
		return -EISCONN;
	if (qp->rc.state != IBV_QPS_RTR && qp->rc.state != IBV_QPS_RTS &&
	    qp->rc.state != IBV_QPS_SQD)
		return -EINVAL;
	qp->has_met = true;
	error = rc_attach(&qp->rc, fd, link, agreed, initiator);
	if (error)
		return error;
	qp->awaits_peer = false;
	progress_timer_cancel(&qp->peer_timer);
	if (qp->rc.service && qp->rc.sq.next != qp->rc.sq.tail)
		qp->rc.service->send(&qp->rc);
	return 0;
}

int qp_met(uint32_t number, int fd, struct shm_link *link, const struct mpa_agreed *agreed,
	   bool initiator)
{
	struct soft_qp *qp = qp_get(number);
	int error;

	if (!qp)
		return -ENOENT;
	lock_take(&qp->rc.lock);
	error = attach(qp, fd, link, agreed, initiator);
	lock_give(&qp->rc.lock);
	qp_put(qp);
	return error;
}
