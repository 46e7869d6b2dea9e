/* SPDX-License-Identifier: MIT */
/*
 * The posting interface ibv_wr_*: a request is begun by its opcode and completed by the call that
 * gives its data, or, if it has none, by whatever comes next. Requests gather behind the queue, and
 * become part of it all at once. Between start and complete no lock of the queue pair is held but
 * the one that keeps other posters out.
 */
#include <errno.h>

#include "objects.h"
#include "post.h"

static struct soft_qp *to_soft(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct soft_qp, ex);
}

/* The request that is being described goes into the queue, with these pieces. */
static void finish(struct soft_qp *qp, struct ibv_sge *sge, size_t num_sge, unsigned flags)
{
	struct wr_draft *draft = &qp->draft;
	int error;

	if (!draft->open)
		return;
	draft->open = false;
	draft->wr.sg_list = sge;
	draft->wr.num_sge = num_sge > RC_MAX_SGE ? -1 : (int)num_sge;
	draft->wr.send_flags |= flags;
	lock_take(&qp->rc.lock);
	error = post_enqueue(qp, &draft->wr, &draft->tail);
	lock_give(&qp->rc.lock);
	if (error && !draft->error)
		draft->error = error;
}

static struct ibv_send_wr *begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct soft_qp *qp = to_soft(ex);

	finish(qp, NULL, 0, 0);
	qp->draft.open = true;
	qp->draft.wr = (struct ibv_send_wr){
		.wr_id = ex->wr_id, .send_flags = ex->wr_flags, .opcode = opcode};
	return &qp->draft.wr;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct soft_qp *qp = to_soft(ex);
	struct wr_draft *draft = &qp->draft;

	lock_take(&draft->lock);
	lock_take(&qp->rc.lock);
	draft->first = draft->tail = qp->rc.sq.tail;
	draft->open = false;
	draft->error = post_check_state(qp);
	lock_give(&qp->rc.lock);
}

/* All or nothing. A queue pair that was reset meanwhile has another queue. */
static int publish(struct soft_qp *qp)
{
	struct wr_draft *draft = &qp->draft;

	if (draft->error)
		return draft->error;
	if (draft->first != qp->rc.sq.tail || post_check_state(qp))
		return EINVAL;
	post_publish(qp, draft->tail);
	post_go(qp);
	return 0;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct soft_qp *qp = to_soft(ex);
	int error;

	finish(qp, NULL, 0, 0);
	lock_take(&qp->rc.lock);
	error = publish(qp);
	lock_give(&qp->rc.lock);
	lock_give(&qp->draft.lock);
	return error;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	lock_give(&to_soft(ex)->draft.lock);
}

/* ---- requests ---- */

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
	begin(ex, IBV_WR_SEND_WITH_IMM)->imm_data = imm_data;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	begin(ex, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static struct ibv_send_wr *begin_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode,
				      uint32_t rkey, uint64_t remote_addr)
{
	struct ibv_send_wr *wr = begin(ex, opcode);

	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = remote_addr;
	return wr;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_rdma(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			      __be32 imm_data)
{
	begin_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr)->imm_data = imm_data;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_rdma(ex, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void begin_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
			 uint64_t remote_addr, uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = begin(ex, opcode);

	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
		       uint64_t swap)
{
	begin_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	begin_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

/* ---- their data ---- */

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};

	finish(to_soft(ex), &sge, 1, 0);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *list)
{
	finish(to_soft(ex), (struct ibv_sge *)list, num_sge, 0);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf,
				    const struct ibv_data_buf *list)
{
	struct ibv_sge sge[RC_MAX_SGE];

	for (size_t i = 0; i < num_buf && i < RC_MAX_SGE; i++)
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)list[i].addr,
					  .length = list[i].length > UINT32_MAX
							    ? UINT32_MAX
							    : (uint32_t)list[i].length};
	finish(to_soft(ex), sge, num_buf, IBV_SEND_INLINE);
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buffer = {.addr = addr, .length = length};

	wr_set_inline_data_list(ex, 1, &buffer);
}

/* ---- making ---- */

bool wr_can_offer(uint64_t send_ops)
{
	const uint64_t offered = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				 IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				 IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ |
				 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

	return !(send_ops & ~offered);
}

void wr_set_ops(struct soft_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_cmp_swp;
	ex->wr_atomic_fetch_add = wr_fetch_add;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
}

struct ibv_qp_ex *soft_ibv_qp_to_qp_ex(struct ibv_qp *ibqp)
{
	struct soft_qp *qp = container_of(ibqp, struct soft_qp, qp);

	return qp->ex.wr_start ? &qp->ex : NULL;
}
