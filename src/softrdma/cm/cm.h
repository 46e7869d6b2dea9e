/* SPDX-License-Identifier: MIT */
/*
 * The software device's connection manager, each function with the signature and error convention
 * of its rdma_ namesake (-1 and errno). The interposer calls these when connections go to the
 * software device.
 */
#ifndef SOFTRDMA_CM_H
#define SOFTRDMA_CM_H

#include <rdma/rdma_cma.h>

struct rdma_event_channel *soft_rdma_create_event_channel(void);
void soft_rdma_destroy_event_channel(struct rdma_event_channel *channel);
int soft_rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event);
int soft_rdma_ack_cm_event(struct rdma_cm_event *event);

int soft_rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
			enum rdma_port_space ps);
int soft_rdma_destroy_id(struct rdma_cm_id *id);
int soft_rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel);
int soft_rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len);
__be16 soft_rdma_get_src_port(struct rdma_cm_id *id);
__be16 soft_rdma_get_dst_port(struct rdma_cm_id *id);

int soft_rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr);
int soft_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
			   int timeout_ms);
int soft_rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms);
int soft_rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
			  struct rdma_addrinfo **result);
void soft_rdma_freeaddrinfo(struct rdma_addrinfo *info);
struct ibv_context **soft_rdma_get_devices(int *num);
void soft_rdma_free_devices(struct ibv_context **list);

int soft_rdma_listen(struct rdma_cm_id *id, int backlog);
int soft_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);
int soft_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);
int soft_rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t len);
int soft_rdma_establish(struct rdma_cm_id *id);
int soft_rdma_disconnect(struct rdma_cm_id *id);
int soft_rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event);

int soft_rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
			struct ibv_qp_init_attr *attr);
void soft_rdma_destroy_ep(struct rdma_cm_id *id);
int soft_rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id);

int soft_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int soft_rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr);
void soft_rdma_destroy_qp(struct rdma_cm_id *id);
int soft_rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int soft_rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr);
void soft_rdma_destroy_srq(struct rdma_cm_id *id);
int soft_rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask);

#endif
