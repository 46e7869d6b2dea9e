/* SPDX-License-Identifier: MIT */
/* Queue pairs, completion queues and shared receive queues that ids make for their users. */
#include <string.h>

#include "internal.h"

/* ---- completion queues of the id's own, each with a channel ---- */

static void destroy_cq(struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	/*
	 * One that other queue pairs use by now (a program may share it) stays, and its channel
	 * with it.
	 */
	bool gone = !*cq || !soft_ibv_destroy_cq(*cq);

	if (*channel && gone)
		soft_ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

static void destroy_cqs(struct rdma_cm_id *id)
{
	destroy_cq(&id->recv_cq, &id->recv_cq_channel);
	destroy_cq(&id->send_cq, &id->send_cq_channel);
}

static int create_cq(struct rdma_cm_id *id, uint32_t size, struct ibv_cq **cq,
		     struct ibv_comp_channel **channel)
{
	int err;

	*channel = soft_ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return -errno;
	*cq = soft_ibv_create_cq(id->verbs, (int)size, id, *channel, 0);
	if (*cq)
		return 0;
	err = -errno;
	destroy_cq(cq, channel);
	return err;
}

/* Those that neither the caller nor the id has. */
static int create_cqs(struct rdma_cm_id *id, const struct ibv_qp_init_attr *attr)
{
	int err = 0;

	if (!attr->recv_cq && !id->recv_cq && attr->cap.max_recv_wr)
		err = create_cq(id, attr->cap.max_recv_wr, &id->recv_cq, &id->recv_cq_channel);
	if (!err && !attr->send_cq && !id->send_cq && attr->cap.max_send_wr)
		err = create_cq(id, attr->cap.max_send_wr, &id->send_cq, &id->send_cq_channel);
	if (err)
		destroy_cqs(id);
	return err;
}

/* ---- queue pairs ---- */

static int check_qp(const struct rdma_cm_id *id, const struct ibv_pd *pd,
		    const struct ibv_qp_init_attr *attr)
{
	if (id->qp || !id->verbs || !pd || pd->context != id->verbs)
		return -EINVAL;
	if (attr->qp_type != IBV_QPT_RC)
		return -EOPNOTSUPP;
	if ((id->recv_cq && attr->recv_cq && id->recv_cq != attr->recv_cq) ||
	    (id->send_cq && attr->send_cq && id->send_cq != attr->send_cq))
		return -EINVAL;
	return 0;
}

static int make_ready(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask;

	if (soft_rdma_init_qp_attr(id, &attr, &mask))
		return -errno;
	return -soft_ibv_modify_qp(qp, &attr, mask);
}

/*
 * As librdmacm: @attr shows the caller which CQs were taken, and a second id may be given the same.
 * The extended attributes begin as the plain ones do; their PD is given.
 */
static int create_qp(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_init_attr_ex used = *attr;
	struct ibv_qp *qp;
	int err;

	err = check_qp(id, attr->pd, (struct ibv_qp_init_attr *)attr);
	if (!err)
		err = create_cqs(id, (struct ibv_qp_init_attr *)attr);
	if (err)
		return err;
	if (!used.send_cq)
		used.send_cq = id->send_cq;
	if (!used.recv_cq)
		used.recv_cq = id->recv_cq;
	if (!used.srq)
		used.srq = id->srq;

	qp = soft_create_qp_ex(id->verbs, &used, false);
	if (!qp) {
		err = -errno;
		goto undo_cqs;
	}
	err = make_ready(id, qp);
	if (err)
		goto undo_qp;
	*attr = used;
	id->pd = qp->pd;
	id->qp = qp;
	return 0;

undo_qp:
	soft_ibv_destroy_qp(qp);
undo_cqs:
	destroy_cqs(id);
	return err;
}

int soft_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex full = {0};
	int err;

	if (!id || !attr)
		return fail(-EINVAL);
	memcpy(&full, attr, sizeof(*attr));
	full.comp_mask = IBV_QP_INIT_ATTR_PD; /* where the plain struct has padding */
	full.pd = pd ? pd : id->pd;
	err = create_qp(id, &full);
	if (err)
		return fail(err);
	memcpy(attr, &full, sizeof(*attr));
	return 0;
}

int soft_rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	int err;

	if (!id || !attr)
		return fail(-EINVAL);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	err = create_qp(id, attr);
	return err ? fail(err) : 0;
}

/*
 * The end of the queue pair is the end of its connection; the event for it comes as after a
 * disconnect.
 */
void soft_rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct ibv_qp *qp;
	struct cm_id *cm;

	if (!id || !id->qp)
		return;
	cm = to_cm(id);
	cm_lock();
	qp = id->qp;
	id->qp = NULL;
	if (cm->attached && cm->qp_num == qp->qp_num)
		qp_disconnect(cm->qp_num);
	cm_unlock();
	soft_ibv_destroy_qp(qp);
	destroy_cqs(id);
}

/*
 * What iw_cm answers: INIT and RTR change little, and to RTS the connection itself leads. On a
 * connected id the state is left out, as it is what it should be.
 */
int soft_rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	enum ibv_qp_state wanted;
	enum cm_state state;

	if (!id || !attr || !mask)
		return fail(-EINVAL);
	wanted = attr->qp_state;
	if (wanted != IBV_QPS_INIT && wanted != IBV_QPS_RTR && wanted != IBV_QPS_RTS)
		return fail(-EINVAL);
	cm_lock();
	state = to_cm(id)->state;
	cm_unlock();

	memset(attr, 0, sizeof(*attr));
	attr->qp_state = wanted;
	attr->port_num = id->port_num;
	*mask = IBV_QP_PORT;
	if (wanted == IBV_QPS_RTS)
		return 0;
	attr->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	*mask |= IBV_QP_ACCESS_FLAGS;
	if (state != CM_CONNECTED && state != CM_ACCEPTED)
		*mask |= IBV_QP_STATE;
	return 0;
}

/* ---- shared receive queues ---- */

static int create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq;

	if (!pd || id->srq)
		return -EINVAL;
	srq = soft_ibv_create_srq(pd, attr);
	if (!srq)
		return -errno;
	if (!id->pd)
		id->pd = pd;
	id->srq = srq;
	return 0;
}

int soft_rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	int err;

	if (!id || !attr)
		return fail(-EINVAL);
	err = create_srq(id, pd ? pd : id->pd, attr);
	return err ? fail(err) : 0;
}

int soft_rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	struct ibv_srq_init_attr plain;
	struct ibv_pd *pd;

	if (!id || !attr || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		return fail(-EINVAL);
	if ((attr->comp_mask & ~known) || attr->srq_type != IBV_SRQT_BASIC)
		return fail(-EOPNOTSUPP);
	pd = attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : NULL;
	plain = (struct ibv_srq_init_attr){.srq_context = attr->srq_context, .attr = attr->attr};
	if (soft_rdma_create_srq(id, pd, &plain))
		return -1;
	attr->attr = plain.attr;
	attr->pd = id->srq->pd;
	attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	return 0;
}

void soft_rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (!id || !id->srq)
		return;
	soft_ibv_destroy_srq(id->srq);
	id->srq = NULL;
}
