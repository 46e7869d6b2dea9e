/* SPDX-License-Identifier: MIT */
/*
 * libibverbs' exported functions. Each looks at the object it is given: one of the software device
 * goes to soft_*, or is told EOPNOTSUPP where the device has nothing to offer; any other goes to
 * the system.
 */
#include "system.h"

#include "../settings.h"
#include "../verbs/verbs.h"
#include "mode.h"

#pragma GCC visibility push(default)

/* ---- devices ---- */

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return DISPATCH(is_soft_device(device), 0, ibv_get_device_guid, device);
}

int ibv_get_device_index(struct ibv_device *device)
{
	return DISPATCH(is_soft_device(device), -1, ibv_get_device_index, device);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	if (is_soft_device(device))
		mode_warn_if_bypassed();
	return DISPATCH(is_soft_device(device), fail_null(ENOSYS), ibv_open_device, device);
}

int ibv_close_device(struct ibv_context *context)
{
	return DISPATCH(is_soft_context(context), ENOSYS, ibv_close_device, context);
}

struct ibv_context *ibv_import_device(int cmd_fd)
{
	if (settings()->mode == MODE_ON)
		return fail_null(EOPNOTSUPP);
	return SYSTEM(fail_null(ENOSYS), ibv_import_device, cmd_fd);
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return DISPATCH(is_soft_context(context), ENOSYS, ibv_query_device, context, attr);
}

int ibv_query_port(struct ibv_context *context, uint8_t port_num,
		   struct _compat_ibv_port_attr *attr)
{
	/* The caller's struct is the old one, which ends here. */
	const size_t size = offsetof(struct ibv_port_attr, port_cap_flags2);

	if (is_soft_context(context))
		return SOFT(ibv_query_port, context, port_num, (struct ibv_port_attr *)attr, size);
	return SYSTEM(ENOSYS, ibv_query_port, context, port_num, attr);
}

int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	return DISPATCH(is_soft_context(context), fail_minus_one(ENOSYS), ibv_query_gid, context,
			port_num, index, gid);
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	return DISPATCH(is_soft_context(context), ENOSYS, _ibv_query_gid_ex, context, port_num,
			gid_index, entry, flags, entry_size);
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			     size_t max_entries, uint32_t flags, size_t entry_size)
{
	return DISPATCH(is_soft_context(context), -ENOSYS, _ibv_query_gid_table, context, entries,
			max_entries, flags, entry_size);
}

int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned index,
		       unsigned *type)
{
	return DISPATCH(is_soft_context(context), fail_minus_one(ENOSYS), ibv_query_gid_type,
			context, port_num, index, type);
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	return DISPATCH(is_soft_context(context), fail_minus_one(ENOSYS), ibv_query_pkey, context,
			port_num, index, pkey);
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	return DISPATCH(is_soft_context(context), fail_minus_one(ENOSYS), ibv_get_pkey_index,
			context, port_num, pkey);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	return DISPATCH(is_soft_context(context), fail_minus_one(ENOSYS), ibv_get_async_event,
			context, event);
}

/* The context of the object that @event is about; NULL for ports, devices and WQs (never ours). */
static struct ibv_context *context_of_event(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq->context;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp->context;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq->context;
	default:
		return NULL;
	}
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	/*
	 * Events without an object need no acknowledgement; the system's function knows that too.
	 */
	DISPATCH(is_soft_context(context_of_event(event)), (void)0, ibv_ack_async_event, event);
}

/* ---- fork ---- */

int ibv_fork_init(void)
{
	int result = SYSTEM(ENOSYS, ibv_fork_init); /* first: it must precede any other use */

	return mode_is_software() ? 0 : result;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	if (mode_is_software())
		return IBV_FORK_UNNEEDED;
	return SYSTEM(IBV_FORK_DISABLED, ibv_is_fork_initialized);
}

/* ---- protection domains and memory ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	return DISPATCH(is_soft_context(context), fail_null(ENOSYS), ibv_alloc_pd, context);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return DISPATCH(is_soft_context(pd->context), ENOSYS, ibv_dealloc_pd, pd);
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	if (is_soft_context(context))
		return fail_null(EOPNOTSUPP);
	return SYSTEM(fail_null(ENOSYS), ibv_import_pd, context, pd_handle);
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	if (!is_soft_context(pd->context))
		SYSTEM((void)0, ibv_unimport_pd, pd);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (is_soft_context(pd->context))
		return SOFT(ibv_reg_mr, pd, addr, length, (uintptr_t)addr, (unsigned)access);
	return SYSTEM(fail_null(ENOSYS), ibv_reg_mr, pd, addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	if (is_soft_context(pd->context))
		return SOFT(ibv_reg_mr, pd, addr, length, iova, (unsigned)access);
	return SYSTEM(fail_null(ENOSYS), ibv_reg_mr_iova, pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned access)
{
	if (is_soft_context(pd->context))
		return SOFT(ibv_reg_mr, pd, addr, length, iova, access);
	return SYSTEM(fail_null(ENOSYS), ibv_reg_mr_iova2, pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	if (is_soft_context(pd->context))
		return fail_null(EOPNOTSUPP);
	return SYSTEM(fail_null(ENOSYS), ibv_reg_dmabuf_mr, pd, offset, length, iova, fd, access);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 int access)
{
	if (is_soft_context(mr->context)) {
		errno = EOPNOTSUPP;
		return IBV_REREG_MR_ERR_INPUT; /* the region is as it was */
	}
	errno = ENOSYS;
	return SYSTEM(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr, mr, flags, pd, addr, length, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	return DISPATCH(is_soft_context(mr->context), ENOSYS, ibv_dereg_mr, mr);
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	if (is_soft_context(pd->context))
		return fail_null(EOPNOTSUPP);
	return SYSTEM(fail_null(ENOSYS), ibv_import_mr, pd, mr_handle);
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	if (!is_soft_context(mr->context))
		SYSTEM((void)0, ibv_unimport_mr, mr);
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	if (is_soft_context(context))
		return fail_null(EOPNOTSUPP);
	return SYSTEM(fail_null(ENOSYS), ibv_import_dm, context, dm_handle);
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	if (!is_soft_context(dm->context))
		SYSTEM((void)0, ibv_unimport_dm, dm);
}

/* ---- completions ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	return DISPATCH(is_soft_context(context), fail_null(ENOSYS), ibv_create_comp_channel,
			context);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	return DISPATCH(is_soft_context(channel->context), ENOSYS, ibv_destroy_comp_channel,
			channel);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	return DISPATCH(is_soft_context(context), fail_null(ENOSYS), ibv_create_cq, context, cqe,
			cq_context, channel, comp_vector);
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	return DISPATCH(is_soft_context(cq->context), ENOSYS, ibv_resize_cq, cq, cqe);
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	return DISPATCH(is_soft_context(cq->context), ENOSYS, ibv_destroy_cq, cq);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	return DISPATCH(is_soft_context(channel->context), fail_minus_one(ENOSYS), ibv_get_cq_event,
			channel, cq, cq_context);
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned nevents)
{
	DISPATCH(is_soft_context(cq->context), (void)0, ibv_ack_cq_events, cq, nevents);
}

/* ---- queues ---- */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return DISPATCH(is_soft_context(pd->context), fail_null(ENOSYS), ibv_create_srq, pd, attr);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int attr_mask)
{
	return DISPATCH(is_soft_context(srq->context), ENOSYS, ibv_modify_srq, srq, attr,
			attr_mask);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	return DISPATCH(is_soft_context(srq->context), ENOSYS, ibv_query_srq, srq, attr);
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	return DISPATCH(is_soft_context(srq->context), ENOSYS, ibv_destroy_srq, srq);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return DISPATCH(is_soft_context(pd->context), fail_null(ENOSYS), ibv_create_qp, pd, attr);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return DISPATCH(is_soft_context(qp->context), NULL, ibv_qp_to_qp_ex, qp);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
{
	return DISPATCH(is_soft_context(qp->context), ENOSYS, ibv_modify_qp, qp, attr, attr_mask);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		 struct ibv_qp_init_attr *init_attr)
{
	return DISPATCH(is_soft_context(qp->context), ENOSYS, ibv_query_qp, qp, attr, attr_mask,
			init_attr);
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	if (is_soft_context(qp->context))
		return 0;
	return SYSTEM(0, ibv_query_qp_data_in_order, qp, op, flags);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	return DISPATCH(is_soft_context(qp->context), ENOSYS, ibv_destroy_qp, qp);
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (is_soft_context(qp->context))
		return EOPNOTSUPP;
	return SYSTEM(ENOSYS, ibv_set_ece, qp, ece);
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (is_soft_context(qp->context))
		return EOPNOTSUPP;
	return SYSTEM(ENOSYS, ibv_query_ece, qp, ece);
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (is_soft_context(qp->context))
		return EOPNOTSUPP;
	return SYSTEM(ENOSYS, ibv_attach_mcast, qp, gid, lid);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (is_soft_context(qp->context))
		return EOPNOTSUPP;
	return SYSTEM(ENOSYS, ibv_detach_mcast, qp, gid, lid);
}

/* ---- address handles: for datagrams, which the device does not offer ---- */

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	if (is_soft_context(pd->context))
		return fail_null(EOPNOTSUPP);
	return SYSTEM(fail_null(ENOSYS), ibv_create_ah, pd, attr);
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port_num)
{
	if (is_soft_context(pd->context))
		return fail_null(EOPNOTSUPP);
	return SYSTEM(fail_null(ENOSYS), ibv_create_ah_from_wc, pd, wc, grh, port_num);
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *ah_attr)
{
	if (is_soft_context(context))
		return fail_minus_one(EOPNOTSUPP);
	return SYSTEM(fail_minus_one(ENOSYS), ibv_init_ah_from_wc, context, port_num, wc, grh,
		      ah_attr);
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	if (is_soft_context(ah->context))
		return EOPNOTSUPP;
	return SYSTEM(ENOSYS, ibv_destroy_ah, ah);
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	if (is_soft_context(context))
		return -EOPNOTSUPP;
	return SYSTEM(-ENOSYS, ibv_resolve_eth_l2_from_gid, context, attr, eth_mac, vid);
}

SOFTRDMA_VERBS_NAMES(EXPORT_PREFIXED)
