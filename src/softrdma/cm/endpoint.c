/* SPDX-License-Identifier: MIT */
/* Synchronous ids: calls that wait for their event, and endpoints made in one step. */
#include <stdlib.h>

#include "internal.h"

static void release_event(struct rdma_cm_id *id)
{
	if (id->event)
		soft_rdma_ack_cm_event(id->event);
	id->event = NULL;
}

int endpoint_complete(struct rdma_cm_id *id)
{
	int status;

	if (!to_cm(id)->sync)
		return 0;
	release_event(id);
	if (soft_rdma_get_cm_event(id->channel, &id->event))
		return -1;
	status = id->event->status;
	if (!status)
		return 0;
	if (id->event->event == RDMA_CM_EVENT_REJECTED)
		return fail(-ECONNREFUSED);
	return fail(status < 0 ? status : -status);
}

/* ---- requests ---- */

/* The new id's queue pair, if its listener was made with attributes for one. */
static int equip(struct cm_id *listener, struct rdma_cm_id *id)
{
	struct ibv_pd *pd = listener->id.pd;
	struct ibv_qp_init_attr attr;

	if (!listener->ep_attr)
		return 0;
	attr = *listener->ep_attr;
	if (pd && pd->context != id->verbs) /* a default of another interface */
		pd = NULL;
	return soft_rdma_create_qp(id, pd, &attr) ? -errno : 0;
}

int soft_rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	int err;

	if (!listen || !id || !to_cm(listen)->sync)
		return fail(-EINVAL);
	release_event(listen);
	if (soft_rdma_get_cm_event(listen->channel, &event))
		return -1;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		err = event->status ? event->status : -EINVAL;
		listen->event = event;
		return fail(err);
	}
	/* The event lives with the new id, which may outlive the listener. */
	event_transfer(event, to_cm(event->id));
	event->id->event = event;
	err = equip(to_cm(listen), event->id);
	if (err) {
		soft_rdma_destroy_id(event->id);
		return fail(err);
	}
	*id = event->id;
	return 0;
}

/* ---- endpoints ---- */

static int passive_endpoint(struct rdma_cm_id *id, const struct rdma_addrinfo *res,
			    struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	struct cm_id *cm = to_cm(id);

	if (soft_rdma_bind_addr(id, res->ai_src_addr))
		return -errno;
	if (pd)
		id->pd = pd;
	if (!attr)
		return 0;
	cm->ep_attr = malloc(sizeof(*cm->ep_attr));
	if (!cm->ep_attr)
		return -ENOMEM;
	*cm->ep_attr = *attr;
	cm->ep_attr->qp_type = id->qp_type;
	return 0;
}

static int active_endpoint(struct rdma_cm_id *id, const struct rdma_addrinfo *res,
			   struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct sockaddr *src = res->ai_src_len ? res->ai_src_addr : NULL;

	if (soft_rdma_resolve_addr(id, src, res->ai_dst_addr, 2000) ||
	    soft_rdma_resolve_route(id, 2000))
		return -errno;
	if (!attr)
		return 0;
	attr->qp_type = id->qp_type;
	return soft_rdma_create_qp(id, pd, attr) ? -errno : 0;
}

int soft_rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
			struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *made;
	int err;

	if (!id || !res)
		return fail(-EINVAL);
	if (res->ai_qp_type && res->ai_qp_type != IBV_QPT_RC)
		return fail(-EOPNOTSUPP);
	if (soft_rdma_create_id(NULL, &made, NULL, (enum rdma_port_space)res->ai_port_space))
		return -1;
	if (res->ai_flags & RAI_PASSIVE)
		err = passive_endpoint(made, res, pd, attr);
	else
		err = active_endpoint(made, res, pd, attr);
	if (err) {
		soft_rdma_destroy_ep(made);
		return fail(err);
	}
	*id = made;
	return 0;
}

void soft_rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (!id)
		return;
	soft_rdma_destroy_qp(id);
	soft_rdma_destroy_srq(id);
	soft_rdma_destroy_id(id);
}
