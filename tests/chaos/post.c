/* SPDX-License-Identifier: MIT */
/* Posting: from a request of the program to a call, and when its turn has come. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "end.h"

static const enum ibv_wr_opcode opcodes[OP_KINDS] = {
	[OP_SEND] = IBV_WR_SEND,
	[OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
	[OP_SEND_INV] = IBV_WR_SEND_WITH_INV,
	[OP_WRITE] = IBV_WR_RDMA_WRITE,
	[OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[OP_READ] = IBV_WR_RDMA_READ,
	[OP_CMP_SWP] = IBV_WR_ATOMIC_CMP_AND_SWP,
	[OP_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
};

/* ---- requests ---- */

static void fill_source(struct run *run, int q, int s, int i)
{
	const struct side *side = &run->program->qps[q].sides[s];
	const struct op *op = &side->ops[i];
	uint8_t *buffer = run->view[side->end] + run->layout.op[q][s][i];
	size_t position = op_position(op);
	struct piece pieces[MAX_SGE];

	if (op_fills(op))
		return;
	make_pieces(pieces, op->len, op->sge);
	for (int p = 0; p < op->sge; p++) {
		pattern_fill(buffer + pieces[p].offset, pieces[p].len,
			     op_tag(run->program, q, s, i), position);
		position += pieces[p].len;
	}
}

static int make_sge(struct end_run *er, size_t offset, int len, int num, struct ibv_sge *sge)
{
	struct piece pieces[MAX_SGE];

	make_pieces(pieces, len, num);
	for (int p = 0; p < num; p++)
		sge[p] = (struct ibv_sge){
			.addr = end_address(er->end) + offset + pieces[p].offset,
			.length = (uint32_t)pieces[p].len,
			.lkey = er->local->lkey,
		};
	return num;
}

static unsigned make_flags(const struct op *op)
{
	return (op->signaled ? IBV_SEND_SIGNALED : 0u) | (op->fence ? IBV_SEND_FENCE : 0u) |
	       (op->solicited ? IBV_SEND_SOLICITED : 0u) | (op->inlined ? IBV_SEND_INLINE : 0u);
}

static void make_wr(struct end_run *er, int q, int s, int i, struct ibv_send_wr *wr,
		    struct ibv_sge *sge)
{
	struct run *run = er->run;
	const struct op *op = &run->program->qps[q].sides[s].ops[i];
	struct side_board *sb = &run->board->sides[q][s];
	int peer = peer_of(run->program, q, s)->end;
	uint64_t base = end_address(peer);

	fill_source(run, q, s, i);
	*wr = (struct ibv_send_wr){
		.wr_id = id_pack(ID_SEND, q, s, i),
		.sg_list = sge,
		.num_sge = make_sge(er, run->layout.op[q][s][i], op->len, op->sge, sge),
		.opcode = opcodes[op->kind],
		.send_flags = make_flags(op),
	};
	if (op_has_imm(op))
		wr->imm_data = htonl(op_imm(run->program, q, s, i));
	if (op->kind == OP_SEND_INV)
		wr->invalidate_rkey = sb->spare_keys[i];
	if (op_is_atomic(op)) {
		wr->wr.atomic.remote_addr = base + run->layout.words[peer] + (size_t)op->word * 8;
		wr->wr.atomic.rkey = run->board->ends[peer].words_key;
		wr->wr.atomic.compare_add = op->kind == OP_FETCH_ADD
						    ? (uint64_t)op->operand
						    : op_compare(run->program, q, s, i);
		wr->wr.atomic.swap = op_swap(run->program, q, s, i);
	} else if (!op_is_message(op) || op->kind == OP_WRITE_IMM) {
		wr->wr.rdma.remote_addr = base + run->layout.arena[q][s] + (size_t)op->offset;
		wr->wr.rdma.rkey = sb->arena_key;
	}
}

/* The pieces, by the call for one where there is one. */
static void set_modern_data(struct ibv_qp_ex *qp, const struct ibv_send_wr *wr)
{
	const struct ibv_sge *sge = wr->sg_list;
	size_t num = (size_t)wr->num_sge;
	struct ibv_data_buf bufs[MAX_SGE];

	for (size_t i = 0; i < num; i++)
		bufs[i] = (struct ibv_data_buf){(void *)(uintptr_t)sge[i].addr, sge[i].length};
	if (!(wr->send_flags & IBV_SEND_INLINE) && num == 1)
		ibv_wr_set_sge(qp, sge->lkey, sge->addr, sge->length);
	else if (!(wr->send_flags & IBV_SEND_INLINE))
		ibv_wr_set_sge_list(qp, num, sge);
	else if (num == 1)
		ibv_wr_set_inline_data(qp, bufs[0].addr, bufs[0].length);
	else
		ibv_wr_set_inline_data_list(qp, num, bufs);
}

/* The same request by the newer interface. */
static void add_modern(struct ibv_qp_ex *qp, const struct ibv_send_wr *wr)
{
	qp->wr_id = wr->wr_id;
	qp->wr_flags = wr->send_flags & ~(unsigned)IBV_SEND_INLINE;
	switch (wr->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(qp);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(qp, wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(qp, wr->invalidate_rkey);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
				      wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	default:
		ibv_wr_atomic_fetch_add(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
					wr->wr.atomic.compare_add);
		break;
	}
	set_modern_data(qp, wr);
}

static int post_modern(struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	ibv_wr_start(ex);
	for (; wr; wr = wr->next)
		add_modern(ex, wr);
	return ibv_wr_complete(ex);
}

/* Requests from @first on, @num of them, in one call. */
static void post_chain(struct end_run *er, int q, int s, int first, int num)
{
	static _Thread_local struct ibv_send_wr wrs[MAX_OPS];
	static _Thread_local struct ibv_sge sges[MAX_OPS][MAX_SGE];
	struct run *run = er->run;
	const struct side *side = &run->program->qps[q].sides[s];
	struct ibv_qp *qp = er->conns[q][s].qp;
	struct ibv_send_wr *bad;
	int error;

	for (int k = 0; k < num; k++) {
		make_wr(er, q, s, first + k, &wrs[k], sges[k]);
		wrs[k].next = k + 1 < num ? &wrs[k + 1] : NULL;
	}
	run->board->sides[q][s].posted = first + num;
	error = side->modern ? post_modern(qp, wrs) : ibv_post_send(qp, wrs, &bad);
	if (error)
		end_fail(er, "post", side->modern ? "ibv_wr_complete" : "ibv_post_send", error);
	for (int k = 0; k < num; k++) /* what went inline is the program's again */
		if (side->ops[first + k].inlined)
			memset(run->view[side->end] + run->layout.op[q][s][first + k], 0xdd,
			       (size_t)side->ops[first + k].len);
	run->board->progress++;
}

/* May this request be posted? Its own conditions, not the room. */
static bool has_turn(const struct side_board *sb, const struct side *side, int i)
{
	const struct op *op = &side->ops[i];
	int last = i - 1;

	if (sb->received < op->await)
		return false;
	while (op->drain && last >= 0 && !op_is_signaled(side, &side->ops[last]))
		last--;
	return !op->drain || sb->completed > last;
}

/* How many requests from @first on go together, and have room. 0: it is not their turn. */
static int chain_length(const struct side_board *sb, const struct side *side, int first)
{
	int room = side->sq_depth - (sb->posted - sb->completed), num = 0;

	while (num < room && first + num < side->num_ops) {
		const struct op *op = &side->ops[first + num];

		if (!has_turn(sb, side, first + num) || (num > 0 && op->pause))
			break;
		num++;
		if (!op->chain)
			break;
	}
	return num;
}

int post_requests(struct end_run *er, int q, int s)
{
	const struct side *side = &er->run->program->qps[q].sides[s];
	struct side_board *sb = &er->run->board->sides[q][s];
	struct conn *conn = &er->conns[q][s];
	int total = 0;

	for (;;) {
		int first = sb->posted, num = chain_length(sb, side, first);

		if (sb->buried || num == 0)
			return total;
		if (side->ops[first].pause)
			usleep((useconds_t)side->ops[first].pause);
		pthread_mutex_lock(&conn->lock);
		if (!sb->buried)
			post_chain(er, q, s, first, num);
		pthread_mutex_unlock(&conn->lock);
		end_check(er);
		total += num;
	}
}

/* ---- receives ---- */

static void make_recv(struct end_run *er, int q, int s, int i, struct ibv_recv_wr *wr,
		      struct ibv_sge *sge)
{
	struct run *run = er->run;
	const struct side *side = &run->program->qps[q].sides[s];
	int index;
	const struct op *op = side_message(peer_of(run->program, q, s), i, &index);
	int room = recv_room(side, op);

	*wr = (struct ibv_recv_wr){
		.wr_id = id_pack(ID_RECV, q, s, i),
		.sg_list = sge,
		/* A message without bytes needs no room. */
		.num_sge = room == 0 ? 0
				     : make_sge(er, run->layout.recv[q][s][i], room, side->recv_sge,
						sge),
	};
}

void post_receives(struct end_run *er, int q, int s)
{
	struct run *run = er->run;
	const struct side *side = &run->program->qps[q].sides[s];
	struct side_board *sb = &run->board->sides[q][s];
	struct conn *conn = &er->conns[q][s];
	int total = side_count_receives(run->program, q, s);
	int missing = side->rq_depth - (sb->recv_posted - sb->recv_completed);
	struct ibv_recv_wr wrs[MAX_OPS + MAX_SPARE], *bad;
	struct ibv_sge sges[MAX_OPS + MAX_SPARE][MAX_SGE];
	int error, first = sb->recv_posted;

	if (missing > total - first)
		missing = total - first;
	if (missing <= 0 || (missing < side->batch && sb->recv_posted > sb->recv_completed))
		return;
	for (int k = 0; k < missing; k++) {
		make_recv(er, q, s, first + k, &wrs[k], sges[k]);
		wrs[k].next = k + 1 < missing ? &wrs[k + 1] : NULL;
	}
	pthread_mutex_lock(&conn->lock);
	if (!sb->buried) {
		sb->recv_posted = first + missing;
		error = ibv_post_recv(conn->qp, wrs, &bad);
		if (error)
			end_fail(er, "post", "ibv_post_recv", error);
	}
	pthread_mutex_unlock(&conn->lock);
}

/* A queue pair that is destroyed takes receives with it whose completions nobody has polled. */
static bool may_have_lost_receives(const struct run *run, int srq)
{
	for (int q = 0; q < run->program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			if (run->program->qps[q].sides[s].srq == srq &&
			    run->board->sides[q][s].gone)
				return true;
	return false;
}

void post_srq_receives(struct end_run *er, int srq)
{
	struct run *run = er->run;
	const struct srq *what = &run->program->srqs[srq];
	struct srq_board *board = &run->board->srqs[srq];
	int total = srq_count_messages(run->program, srq);
	int room = srq_longest_message(run->program, srq);
	int outstanding = board->posted - board->completed, missing = what->depth - outstanding;
	bool lossy = may_have_lost_receives(run, srq);

	if (lossy)
		missing = what->depth; /* until it is full */
	if (missing > total - board->posted)
		missing = total - board->posted;
	if (!lossy && missing < what->batch && outstanding > 0)
		return;
	for (; missing > 0; missing--) {
		struct ibv_sge sge[MAX_SGE];
		struct ibv_recv_wr wr = {.sg_list = sge}, *bad;
		int error, i = board->posted;

		wr.wr_id = id_pack(ID_SRQ, srq, 0, i);
		wr.num_sge =
			make_sge(er, run->layout.srq[srq] + run->layout.srq_stride[srq] * (size_t)i,
				 room, what->recv_sge, sge);
		board->posted = i + 1;
		error = ibv_post_srq_recv(er->srqs[srq], &wr, &bad);
		if (error == ENOMEM && lossy) {
			board->posted = i;
			return;
		}
		if (error)
			end_fail(er, "post", "ibv_post_srq_recv", error);
	}
}

/* ---- after the end ---- */

void post_marks(struct end_run *er, int q, int s)
{
	const struct side *side = &er->run->program->qps[q].sides[s];
	struct ibv_qp *qp = er->conns[q][s].qp;
	struct ibv_send_wr send = {.wr_id = id_pack(ID_SEND_MARK, q, s, 0),
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad_send;
	struct ibv_sge sge;
	struct ibv_recv_wr recv = {.wr_id = id_pack(ID_RECV_MARK, q, s, 0), .sg_list = &sge},
			   *bad_recv;
	int error = ibv_post_send(qp, &send, &bad_send);

	if (error)
		end_fail(er, "post", "ibv_post_send after the end", error);
	if (side->srq >= 0)
		return;
	recv.num_sge = make_sge(er, er->run->layout.spare[er->end], 8, 1, &sge);
	error = ibv_post_recv(qp, &recv, &bad_recv);
	if (error)
		end_fail(er, "post", "ibv_post_recv after the end", error);
}
