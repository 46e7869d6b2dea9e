/* SPDX-License-Identifier: MIT */
/* Flows, the rules that say which frames a raw packet queue pair receives, and what they count. */
#include <errno.h>
#include <stdlib.h>

#include "../raw/raw.h"
#include "objects.h"

struct soft_flow {
	struct ibv_flow flow;
	struct raw_flow *raw;
};

struct ibv_flow *soft_create_flow(struct ibv_qp *ibqp, struct ibv_flow_attr *attr)
{
	struct soft_qp *qp = container_of(ibqp, struct soft_qp, qp);
	struct soft_flow *flow;
	struct raw_rule rule;
	int error;

	if (ibqp->qp_type != IBV_QPT_RAW_PACKET || attr->port != SOFT_PORT)
		error = -EINVAL;
	else
		error = rule_from_attr(attr, &rule);
	if (error) {
		errno = -error;
		return NULL;
	}
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return NULL;
	error = raw_add_flow(&qp->rc, &rule, &flow->raw);
	if (error) {
		free(flow);
		errno = -error;
		return NULL;
	}
	flow->flow.context = ibqp->context;
	flow->flow.handle = qp->rc.qp_num;
	return &flow->flow;
}

int soft_destroy_flow(struct ibv_flow *ibflow)
{
	struct soft_flow *flow = container_of(ibflow, struct soft_flow, flow);
	int error;

	error = raw_remove_flow(flow->raw);
	if (!error)
		free(flow);
	return -error;
}

int soft_raw_counters(struct ibv_qp *ibqp, uint64_t *received, uint64_t *dropped,
		      uint64_t *no_buffer)
{
	struct soft_qp *qp = container_of(ibqp, struct soft_qp, qp);
	struct raw_counters counters;

	if (!qp_is_raw(qp))
		return EOPNOTSUPP;
	raw_read_counters(&qp->rc, &counters);
	*received = counters.received;
	*dropped = counters.dropped;
	*no_buffer = counters.no_buffer;
	return 0;
}
