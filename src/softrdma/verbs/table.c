/* SPDX-License-Identifier: MIT */
/*
 * The operations of a context: what the header's inline functions call. What the device does not
 * offer is answered with EOPNOTSUPP; slots that the header checks for NULL itself stay empty.
 */
#include <errno.h>

#include "../../common/uncancel.h"
#include "objects.h"

static struct ibv_mw *no_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	(void)pd;
	(void)type;
	errno = EOPNOTSUPP;
	return NULL;
}

static int no_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	(void)qp;
	(void)mw;
	(void)bind;
	return EOPNOTSUPP;
}

static int no_dealloc_mw(struct ibv_mw *mw)
{
	(void)mw;
	return EOPNOTSUPP;
}

static int no_close_xrcd(struct ibv_xrcd *xrcd)
{
	(void)xrcd;
	return EOPNOTSUPP;
}

static struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr basic = {.srq_context = attr->srq_context, .attr = attr->attr};
	struct ibv_srq *srq;

	UNCANCELLABLE_CALL;
	(void)context;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd ||
	    ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	srq = soft_ibv_create_srq(attr->pd, &basic);
	if (srq)
		attr->attr = basic.attr;
	return srq;
}

struct ibv_qp *soft_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				 bool numbered)
{
	/* The extended struct begins as the basic one does. */
	struct ibv_qp_init_attr *basic = (struct ibv_qp_init_attr *)attr;
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
			       IBV_QP_INIT_ATTR_CREATE_FLAGS;
	bool extended = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct ibv_qp *qp;

	(void)context;
	if ((attr->comp_mask & ~known) || !(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd ||
	    ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags) ||
	    (extended && !wr_can_offer(attr->send_ops_flags))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp = qp_create(attr->pd, basic, numbered);
	if (qp && extended)
		wr_set_ops(container_of(qp, struct soft_qp, qp));
	return qp;
}

/*
 * ---- the edge: what is not exported by name, and may hold a lock in a system call; the five that
 * move data see to that themselves (uncancel.h) ----
 */

static int compat_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	UNCANCELLABLE_CALL;
	return soft_ibv_query_device(context, attr);
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		      size_t size)
{
	UNCANCELLABLE_CALL;
	return soft_ibv_query_port(context, port, attr, size);
}

static int compat_query_port(struct ibv_context *context, uint8_t port,
			     struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port, (struct ibv_port_attr *)attr, 48);
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	UNCANCELLABLE_CALL;
	return soft_query_device_ex(context, input, attr, size);
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	UNCANCELLABLE_CALL;
	return soft_create_cq_ex(context, attr);
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	UNCANCELLABLE_CALL;
	return soft_create_qp_ex(context, attr, attr->qp_type == IBV_QPT_RC);
}

static struct ibv_flow *create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	UNCANCELLABLE_CALL;
	return soft_create_flow(qp, attr);
}

static int destroy_flow(struct ibv_flow *flow)
{
	UNCANCELLABLE_CALL;
	return soft_destroy_flow(flow);
}

void context_set_ops(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	ops->_compat_query_device = compat_query_device;
	ops->_compat_query_port = compat_query_port;
	ops->alloc_mw = no_alloc_mw;
	ops->bind_mw = no_bind_mw;
	ops->dealloc_mw = no_dealloc_mw;
	ops->poll_cq = soft_poll_cq;
	ops->req_notify_cq = soft_req_notify_cq;
	ops->post_srq_recv = soft_post_srq_recv;
	ops->post_send = soft_post_send;
	ops->post_recv = soft_post_recv;
	verbs->query_port = query_port;
	verbs->query_device_ex = query_device_ex;
	verbs->query_rt_values = soft_query_rt_values;
	verbs->create_cq_ex = create_cq_ex;
	verbs->create_srq_ex = create_srq_ex;
	verbs->create_qp_ex = create_qp_ex;
	verbs->ibv_create_flow = create_flow;
	verbs->ibv_destroy_flow = destroy_flow;
	verbs->close_xrcd = no_close_xrcd;
	verbs->sz = sizeof(*verbs);
	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
}
