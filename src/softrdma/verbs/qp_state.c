/* SPDX-License-Identifier: MIT */
/*
 * The states of a queue pair: which transitions there are, which attributes each takes, and what
 * entering a state does.
 */
#include "qp_state.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "../../common/log.h"
#include "../raw/raw.h"
#include "by_number.h"

/* ---- transitions ---- */

#define ANY  (IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define PATH (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define ALT  (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define RTR  (PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_PKEY_INDEX | ALT)
#define RTS                                                                                        \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |                    \
	 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_RATE_LIMIT | ALT)

/*
 * Which attributes a step may bring; 0: there is no such step. None is demanded: on iWARP the
 * connection manager has agreed on all of them.
 */
static const int steps[IBV_QPS_ERR + 1][IBV_QPS_ERR + 1] = {
	[IBV_QPS_RESET] = {[IBV_QPS_RESET] = ANY,
			   [IBV_QPS_INIT] = ANY | IBV_QP_PKEY_INDEX,
			   [IBV_QPS_ERR] = ANY},
	[IBV_QPS_INIT] = {[IBV_QPS_RESET] = ANY,
			  [IBV_QPS_INIT] = ANY | IBV_QP_PKEY_INDEX,
			  [IBV_QPS_RTR] = ANY | RTR,
			  [IBV_QPS_ERR] = ANY},
	[IBV_QPS_RTR] = {[IBV_QPS_RESET] = ANY,
			 [IBV_QPS_RTR] = ANY | RTR,
			 [IBV_QPS_RTS] = ANY | RTS,
			 [IBV_QPS_ERR] = ANY},
	[IBV_QPS_RTS] = {[IBV_QPS_RESET] = ANY,
			 [IBV_QPS_RTS] = ANY | RTS | IBV_QP_MAX_DEST_RD_ATOMIC,
			 [IBV_QPS_SQD] = ANY | IBV_QP_EN_SQD_ASYNC_NOTIFY,
			 [IBV_QPS_ERR] = ANY},
	[IBV_QPS_SQD] = {[IBV_QPS_RESET] = ANY,
			 [IBV_QPS_RTS] = ANY | RTS,
			 [IBV_QPS_SQD] = ANY | PATH | RTS | IBV_QP_MAX_DEST_RD_ATOMIC |
					 IBV_QP_PKEY_INDEX | IBV_QP_EN_SQD_ASYNC_NOTIFY,
			 [IBV_QPS_ERR] = ANY},
	[IBV_QPS_ERR] = {[IBV_QPS_RESET] = ANY, [IBV_QPS_ERR] = ANY},
};

/* ---- entering a state ---- */

void qp_set_state(struct soft_qp *qp, enum ibv_qp_state state)
{
	qp->rc.state = state;
	qp->qp.state = state;
}

static void raise_event(struct soft_qp *qp, enum ibv_event_type type)
{
	struct ibv_async_event event = {.element.qp = &qp->qp, .event_type = type};

	async_raise(qp->qp.context, &event);
}

void qp_tell_ended(struct soft_qp *qp, int error)
{
	struct qp_owner *owner = qp->owner;

	qp->owner = NULL;
	if (owner)
		owner->ended(owner, error);
}

/* Nothing of the shared receive queue will be used for it any more. */
static void flush_all(struct soft_qp *qp)
{
	qp_flush(qp);
	if (qp->srq)
		raise_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

void qp_enter_error(struct soft_qp *qp)
{
	bool was_error = qp->rc.state == IBV_QPS_ERR;

	qp_set_state(qp, IBV_QPS_ERR);
	if (qp->rc.service)
		qp->rc.service->close(&qp->rc);
	if (!was_error)
		flush_all(qp);
	qp_tell_ended(qp, 0);
}

void rc_failed(struct rc_qp *rc, struct rc_send *send, enum ibv_wc_status status, int error)
{
	struct soft_qp *qp = to_qp(rc);

	if (rc->state == IBV_QPS_ERR)
		return;
	qp_set_state(qp, IBV_QPS_ERR);
	if (send) {
		send->state = RC_SEND_DONE;
		send->status = (uint8_t)status;
	}
	/*
	 * Predecessors of the one to blame are flushed before it completes: order is kept by the
	 * queue.
	 */
	flush_all(qp);
	if (error && error != ECONNRESET)
		raise_event(qp, IBV_EVENT_QP_FATAL);
	qp_tell_ended(qp, error);
}

void qp_reset_attributes(struct soft_qp *qp)
{
	qp->rc.access = QP_ALL_ACCESS;
	qp->attr = (struct ibv_qp_attr){
		.qp_access_flags = QP_ALL_ACCESS,
		.path_mtu = IBV_MTU_4096,
	};
}

static void enter_reset(struct soft_qp *qp)
{
	struct rc_sendq *sq = &qp->rc.sq;

	if (qp->rc.service)
		qp->rc.service->close(&qp->rc);
	qp_tell_ended(qp, 0);
	sq->head = sq->next = sq->tail = sq->signaled = 0;
	qp->rq.head = qp->rq.tail = 0;
	qp_return_receive(qp);
	qp->recv_busy = false;
	qp->wants_recv = false;
	qp->drain = QP_NOT_DRAINING;
	qp_reset_attributes(qp);
	qp_set_state(qp, IBV_QPS_RESET);
}

/* ---- draining ---- */

static bool is_drained(const struct soft_qp *qp)
{
	return qp->rc.sq.head == qp->rc.sq.next;
}

void qp_note_retired(struct soft_qp *qp)
{
	if (qp->drain == QP_NOT_DRAINING || !is_drained(qp))
		return;
	if (qp->drain == QP_DRAINING_TELLS)
		raise_event(qp, IBV_EVENT_SQ_DRAINED);
	qp->drain = QP_NOT_DRAINING;
}

/* No further request begins; those that have begun go on to their end. */
static void enter_drain(struct soft_qp *qp, bool tells)
{
	qp_set_state(qp, IBV_QPS_SQD);
	qp->drain = tells ? QP_DRAINING_TELLS : QP_DRAINING;
	qp_note_retired(qp);
}

static void leave_drain(struct soft_qp *qp)
{
	qp->drain = QP_NOT_DRAINING;
	qp_set_state(qp, IBV_QPS_RTS);
	if (qp->rc.service && qp->rc.sq.next != qp->rc.sq.tail)
		qp->rc.service->send(&qp->rc);
}

/* ---- attributes ---- */

#define KEEP(bit, member)                                                                          \
	do {                                                                                       \
		if (mask & (bit))                                                                  \
			qp->attr.member = attr->member;                                            \
	} while (0)

static void keep(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	KEEP(IBV_QP_PKEY_INDEX, pkey_index);
	KEEP(IBV_QP_AV, ah_attr);
	KEEP(IBV_QP_PATH_MTU, path_mtu);
	KEEP(IBV_QP_DEST_QPN, dest_qp_num);
	KEEP(IBV_QP_RQ_PSN, rq_psn);
	KEEP(IBV_QP_SQ_PSN, sq_psn);
	KEEP(IBV_QP_TIMEOUT, timeout);
	KEEP(IBV_QP_RETRY_CNT, retry_cnt);
	KEEP(IBV_QP_RNR_RETRY, rnr_retry);
	KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	KEEP(IBV_QP_ALT_PATH, alt_ah_attr);
	KEEP(IBV_QP_ALT_PATH, alt_port_num);
	KEEP(IBV_QP_ALT_PATH, alt_pkey_index);
	KEEP(IBV_QP_ALT_PATH, alt_timeout);
	KEEP(IBV_QP_PATH_MIG_STATE, path_mig_state);
	KEEP(IBV_QP_RATE_LIMIT, rate_limit);
	if (mask & IBV_QP_ACCESS_FLAGS) {
		qp->rc.access = (unsigned)attr->qp_access_flags & QP_ALL_ACCESS;
		if (qp->rc.service && qp->rc.service->rights_changed)
			qp->rc.service->rights_changed(&qp->rc);
	}
}

static bool are_sane(const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_PORT) && attr->port_num > SOFT_PORT)
		return false;
	if ((mask & IBV_QP_PATH_MTU) &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return false;
	return !((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > SOFT_MAX_RD) &&
	       !((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > SOFT_MAX_RD);
}

void qp_note_peer(struct soft_qp *qp, int fd)
{
	struct sockaddr_storage peer = {0};
	socklen_t len = sizeof(peer);
	union ibv_gid *gid = &qp->attr.ah_attr.grh.dgid;

	if (getpeername(fd, (struct sockaddr *)&peer, &len))
		return;
	qp->attr.ah_attr.is_global = 1;
	qp->attr.ah_attr.port_num = SOFT_PORT;
	memset(gid, 0, sizeof(*gid));
	if (peer.ss_family == AF_INET6) {
		memcpy(gid->raw, &((struct sockaddr_in6 *)&peer)->sin6_addr, sizeof(gid->raw));
	} else {
		memset(gid->raw + 10, 0xff, 2);
		memcpy(gid->raw + 12, &((struct sockaddr_in *)&peer)->sin_addr, 4);
	}
}

void qp_note_agreed(struct soft_qp *qp, uint16_t ord, uint16_t ird)
{
	qp->attr.max_rd_atomic = (uint8_t)ord;
	qp->attr.max_dest_rd_atomic = (uint8_t)ird;
}

/* ---- what programs call ---- */

static int step(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state to = attr->qp_state;

	if (qp->numbered) {
		int error = by_number_step(qp, to, attr, mask);

		if (error)
			return error;
	} else if (to == IBV_QPS_RTR && (mask & (IBV_QP_AV | IBV_QP_DEST_QPN))) {
		log_warn("QP 0x%x: was made by rdma_create_qp, and so is connected by rdma_connect",
			 qp->rc.qp_num);
		return EOPNOTSUPP;
	}
	if (to == IBV_QPS_ERR)
		qp_enter_error(qp);
	else if (to == IBV_QPS_RESET)
		enter_reset(qp);
	else if (to == IBV_QPS_SQD)
		enter_drain(qp, mask & IBV_QP_EN_SQD_ASYNC_NOTIFY);
	else if (qp->rc.state == IBV_QPS_SQD)
		leave_drain(qp);
	else
		qp_set_state(qp, to);
	return 0;
}

static int check(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = qp->rc.state, to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int allowed;

	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from)
		return EINVAL;
	if ((unsigned)to > IBV_QPS_ERR)
		return EINVAL;
	allowed = steps[from][to];
	if (!allowed || (mask & ~allowed) || !are_sane(attr, mask))
		return EINVAL;
	return 0;
}

static int modify(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	int error;

	lock_take(&qp->rc.lock);
	error = check(qp, attr, mask);
	if (!error && (mask & IBV_QP_STATE))
		error = step(qp, attr, mask);
	if (!error)
		keep(qp, attr, mask);
	lock_give(&qp->rc.lock);
	return error;
}

/* Frames are received from RTR on, until the error state or the beginning. */
static int modify_raw(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	int error;

	raw_lock_config();
	error = modify(qp, attr, mask);
	if (!error && (mask & IBV_QP_STATE))
		error = -raw_receive_from_now(&qp->rc, attr->qp_state == IBV_QPS_RTR ||
							       attr->qp_state == IBV_QPS_RTS ||
							       attr->qp_state == IBV_QPS_SQD);
	raw_unlock_config();
	return error;
}

int soft_ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct soft_qp *qp = container_of(ibqp, struct soft_qp, qp);
	int error;

	if (qp_is_raw(qp))
		return modify_raw(qp, attr, mask);
	if (!qp->numbered)
		return modify(qp, attr, mask);
	progress_lock(PROGRESS_CM);
	error = modify(qp, attr, mask);
	if (!error && (qp->rc.state == IBV_QPS_RESET || qp->rc.state == IBV_QPS_ERR))
		by_number_end(qp);
	progress_unlock(PROGRESS_CM);
	return error;
}

int soft_ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		      struct ibv_qp_init_attr *init)
{
	struct soft_qp *qp = container_of(ibqp, struct soft_qp, qp);

	(void)mask; /* all attributes are returned */
	lock_take(&qp->rc.lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->rc.state;
	attr->sq_draining = qp->drain != QP_NOT_DRAINING;
	attr->cap = qp->cap;
	attr->port_num = SOFT_PORT;
	*init = (struct ibv_qp_init_attr){
		.qp_context = ibqp->qp_context,
		.send_cq = ibqp->send_cq,
		.recv_cq = ibqp->recv_cq,
		.srq = ibqp->srq,
		.cap = qp->cap,
		.qp_type = ibqp->qp_type,
		.sq_sig_all = qp->sq_sig_all,
	};
	lock_give(&qp->rc.lock);
	return 0;
}
