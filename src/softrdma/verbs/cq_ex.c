/* SPDX-License-Identifier: MIT */
/* Extended completion queues: polling one completion at a time, with time stamps. */
#include <errno.h>
#include <time.h>

#include "objects.h"

#define STAMPS (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

static struct soft_cq *to_cq(struct ibv_cq_ex *ex)
{
	return container_of(ex, struct soft_cq, ex);
}

static void present(struct soft_cq *cq)
{
	cq->ex.wr_id = cq->current.wc.wr_id;
	cq->ex.status = cq->current.wc.status;
}

static void begin_poll(struct soft_cq *cq)
{
	if (!cq->single)
		pthread_mutex_lock(&cq->poll_lock);
}

static void end_poll(struct ibv_cq_ex *ex)
{
	if (!to_cq(ex)->single)
		pthread_mutex_unlock(&to_cq(ex)->poll_lock);
}

/* From a successful start_poll to end_poll, cq->current belongs to this thread. */
static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct soft_cq *cq = to_cq(ex);

	if (attr->comp_mask)
		return EINVAL;
	begin_poll(cq);
	if (!cq_take(cq, &cq->current) && !cq_find(cq, &cq->current)) {
		end_poll(ex);
		return ENOENT;
	}
	present(cq);
	return 0;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct soft_cq *cq = to_cq(ex);

	if (!cq_take(cq, &cq->current))
		return ENOENT;
	present(cq);
	return 0;
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->current.wc.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->current.wc.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->current.wc.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->current.wc.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->current.wc.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->current.wc.src_qp;
}

static unsigned read_wc_flags(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->current.wc.wc_flags;
}

/* InfiniBand's addresses: there are none here. */
static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->current.wc.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->current.wc.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->current.wc.dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->current.stamp;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t read_wallclock(struct ibv_cq_ex *ex)
{
	uint64_t age = clock_ns(CLOCK_MONOTONIC) - to_cq(ex)->current.stamp;

	return clock_ns(CLOCK_REALTIME) - age;
}

struct ibv_cq_ex *soft_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t offered = IBV_WC_STANDARD_FLAGS | STAMPS;
	struct ibv_cq *basic;
	struct soft_cq *cq;

	if ((attr->wc_flags & ~offered) ||
	    (attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->cqe > SOFT_MAX_CQE || attr->comp_vector >= (uint32_t)context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	basic = soft_ibv_create_cq(context, (int)attr->cqe, attr->cq_context, attr->channel,
				   (int)attr->comp_vector);
	if (!basic)
		return NULL;
	cq = container_of(basic, struct soft_cq, cq);
	cq->stamped = attr->wc_flags & STAMPS;
	cq->single = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
		     attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq->ex.start_poll = start_poll;
	cq->ex.next_poll = next_poll;
	cq->ex.end_poll = end_poll;
	cq->ex.read_opcode = read_opcode;
	cq->ex.read_vendor_err = read_vendor_err;
	cq->ex.read_byte_len = read_byte_len;
	cq->ex.read_imm_data = read_imm_data;
	cq->ex.read_qp_num = read_qp_num;
	cq->ex.read_src_qp = read_src_qp;
	cq->ex.read_wc_flags = read_wc_flags;
	cq->ex.read_slid = read_slid;
	cq->ex.read_sl = read_sl;
	cq->ex.read_dlid_path_bits = read_dlid_path_bits;
	cq->ex.read_completion_ts = read_completion_ts;
	cq->ex.read_completion_wallclock_ns = read_wallclock;
	return &cq->ex;
}

/* The clock of the time stamps: nanoseconds of CLOCK_MONOTONIC. */
int soft_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	(void)context;
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EOPNOTSUPP;
	if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) {
		uint64_t now = clock_ns(CLOCK_MONOTONIC);

		values->raw_clock.tv_sec = (time_t)(now / 1000000000u);
		values->raw_clock.tv_nsec = (long)(now % 1000000000u);
	}
	return 0;
}
