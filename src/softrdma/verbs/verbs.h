/* SPDX-License-Identifier: MIT */
/*
 * The software device's verbs, each with the signature and the error convention of its ibv_
 * namesake. The interposer calls these for objects that belong to the software device; see
 * is_soft_*.
 */
#ifndef SOFTRDMA_VERBS_H
#define SOFTRDMA_VERBS_H

#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdbool.h>
#include <sys/socket.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list
#undef ibv_query_device_ex

/* ---- whose object is it ---- */

bool is_soft_device(const struct ibv_device *device);

static inline bool is_soft_context(const struct ibv_context *context)
{
	return context && is_soft_device(context->device);
}

/* ---- devices: one for each interface that is up, loopback included ---- */

/*
 * The software devices as of now, in *@list (to be freed with free(); the devices themselves live
 * for ever). Returns their number or -errno.
 */
int soft_get_devices(struct ibv_device ***list);

/* The device of interface @ifindex, NULL if there is none that is up. */
struct ibv_device *soft_device_by_index(unsigned ifindex);

/*
 * The device's shared context, opened once and kept: what cm ids and rdma_get_devices show. NULL
 * and errno on failure.
 */
struct ibv_context *soft_shared_context(struct ibv_device *device);

struct ibv_context *soft_ibv_open_device(struct ibv_device *device);
int soft_ibv_close_device(struct ibv_context *context);
__be64 soft_ibv_get_device_guid(struct ibv_device *device);
int soft_ibv_get_device_index(struct ibv_device *device);
int soft_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
/* @size: how much of the struct the caller has (48 of 52 bytes for the exported function). */
int soft_ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
			size_t size);
int soft_ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid);
int soft__ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
			   struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
ssize_t soft__ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				  size_t max, uint32_t flags, size_t entry_size);
/* 0 = IB/RoCE v1 in rdma-core's private enumeration. */
int soft_ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index,
			    unsigned *type);
int soft_ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey);
int soft_ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey);
int soft_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void soft_ibv_ack_async_event(struct ibv_async_event *event);

/* ---- protection domains and memory ---- */

struct ibv_pd *soft_ibv_alloc_pd(struct ibv_context *context);
int soft_ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *soft_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       unsigned access);
int soft_ibv_dereg_mr(struct ibv_mr *mr);

/* ---- completions ---- */

struct ibv_comp_channel *soft_ibv_create_comp_channel(struct ibv_context *context);
int soft_ibv_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *soft_ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				  struct ibv_comp_channel *channel, int comp_vector);
int soft_ibv_resize_cq(struct ibv_cq *cq, int cqe);
int soft_ibv_destroy_cq(struct ibv_cq *cq);
int soft_ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void soft_ibv_ack_cq_events(struct ibv_cq *cq, unsigned nevents);

/* ---- queues ---- */

struct ibv_srq *soft_ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int soft_ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int soft_ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int soft_ibv_destroy_srq(struct ibv_srq *srq);
struct ibv_qp *soft_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
/* @numbered: its program may connect it by number; else the CM connects it, and no port is bound.
 */
struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, bool numbered);
/* What ibv_create_qp_ex, an inline function, calls. */
struct ibv_qp *soft_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				 bool numbered);
/* NULL unless it was made for the ibv_wr_* interface. */
struct ibv_qp_ex *soft_ibv_qp_to_qp_ex(struct ibv_qp *qp);
int soft_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int soft_ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		      struct ibv_qp_init_attr *init);
int soft_ibv_destroy_qp(struct ibv_qp *qp);

/* Of a raw packet queue pair; EOPNOTSUPP for others. See interpose/counters.h. */
int soft_raw_counters(struct ibv_qp *qp, uint64_t *received, uint64_t *dropped,
		      uint64_t *no_buffer);

#endif
