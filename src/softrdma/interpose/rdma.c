/* SPDX-License-Identifier: MIT */
/* librdmacm's exported functions: those of a process all go to the software device, or all not. */
#include "system.h"

#include "../cm/cm.h"
#include "mode.h"

#define CM(absent, name, ...) DISPATCH(mode_is_software(), absent, name, __VA_ARGS__)

#pragma GCC visibility push(default)

/* ---- event channels and events ---- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	return CM(fail_null(ENOSYS), rdma_create_event_channel);
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	CM((void)0, rdma_destroy_event_channel, channel);
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	return CM(fail_minus_one(ENOSYS), rdma_get_cm_event, channel, event);
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	return CM(fail_minus_one(ENOSYS), rdma_ack_cm_event, event);
}

/* ---- ids ---- */

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps)
{
	return CM(fail_minus_one(ENOSYS), rdma_create_id, channel, id, context, ps);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	return CM(fail_minus_one(ENOSYS), rdma_destroy_id, id);
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	return CM(fail_minus_one(ENOSYS), rdma_migrate_id, id, channel);
}

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen)
{
	return CM(fail_minus_one(ENOSYS), rdma_set_option, id, level, optname, optval, optlen);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return CM(0, rdma_get_src_port, id);
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return CM(0, rdma_get_dst_port, id);
}

int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	return CM(fail_minus_one(ENOSYS), rdma_create_ep, id, res, pd, attr);
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	CM((void)0, rdma_destroy_ep, id);
}

/* ---- addresses and devices ---- */

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	return CM(fail_minus_one(ENOSYS), rdma_bind_addr, id, addr);
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr, struct sockaddr *dst_addr,
		      int timeout_ms)
{
	return CM(fail_minus_one(ENOSYS), rdma_resolve_addr, id, src_addr, dst_addr, timeout_ms);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	return CM(fail_minus_one(ENOSYS), rdma_resolve_route, id, timeout_ms);
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res)
{
	return CM(fail_minus_one(ENOSYS), rdma_getaddrinfo, node, service, hints, res);
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	CM((void)0, rdma_freeaddrinfo, res);
}

struct ibv_context **rdma_get_devices(int *num_devices)
{
	return CM(fail_null(ENOSYS), rdma_get_devices, num_devices);
}

void rdma_free_devices(struct ibv_context **list)
{
	CM((void)0, rdma_free_devices, list);
}

/* ---- connections ---- */

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	return CM(fail_minus_one(ENOSYS), rdma_listen, id, backlog);
}

int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	return CM(fail_minus_one(ENOSYS), rdma_get_request, listen, id);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return CM(fail_minus_one(ENOSYS), rdma_connect, id, param);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return CM(fail_minus_one(ENOSYS), rdma_accept, id, param);
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t len)
{
	return CM(fail_minus_one(ENOSYS), rdma_reject, id, private_data, len);
}

int rdma_establish(struct rdma_cm_id *id)
{
	return CM(fail_minus_one(ENOSYS), rdma_establish, id);
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	return CM(fail_minus_one(ENOSYS), rdma_disconnect, id);
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	return CM(fail_minus_one(ENOSYS), rdma_notify, id, event);
}

/* ---- queues ---- */

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return CM(fail_minus_one(ENOSYS), rdma_create_qp, id, pd, attr);
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	return CM(fail_minus_one(ENOSYS), rdma_create_qp_ex, id, attr);
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	CM((void)0, rdma_destroy_qp, id);
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return CM(fail_minus_one(ENOSYS), rdma_create_srq, id, pd, attr);
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	return CM(fail_minus_one(ENOSYS), rdma_create_srq_ex, id, attr);
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	CM((void)0, rdma_destroy_srq, id);
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *attr_mask)
{
	return CM(fail_minus_one(ENOSYS), rdma_init_qp_attr, id, attr, attr_mask);
}

/* ---- what iWARP has not ---- */

/* ECE names options of vendors: a rejection for their sake is a rejection. */
int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t len)
{
	if (mode_is_software())
		return SOFT(rdma_reject, id, private_data, len);
	return SYSTEM(fail_minus_one(ENOSYS), rdma_reject_ece, id, private_data, len);
}

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (mode_is_software())
		return fail_minus_one(EOPNOTSUPP);
	return SYSTEM(fail_minus_one(ENOSYS), rdma_set_local_ece, id, ece);
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (mode_is_software())
		return fail_minus_one(EOPNOTSUPP);
	return SYSTEM(fail_minus_one(ENOSYS), rdma_get_remote_ece, id, ece);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	if (mode_is_software())
		return fail_minus_one(EOPNOTSUPP);
	return SYSTEM(fail_minus_one(ENOSYS), rdma_join_multicast, id, addr, context);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
			   void *context)
{
	if (mode_is_software())
		return fail_minus_one(EOPNOTSUPP);
	return SYSTEM(fail_minus_one(ENOSYS), rdma_join_multicast_ex, id, attr, context);
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	if (mode_is_software())
		return fail_minus_one(EOPNOTSUPP);
	return SYSTEM(fail_minus_one(ENOSYS), rdma_leave_multicast, id, addr);
}

SOFTRDMA_CM_NAMES(EXPORT_PREFIXED)
