/* SPDX-License-Identifier: MIT */
/*
 * The rules for completions: each request completes once, in order, with an allowed status, and
 * with what the peer sent.
 */
#include <arpa/inet.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

void board_fail(struct board *board, const char *rule, const char *format, ...)
{
	int none = 0;
	va_list args;

	if (!atomic_compare_exchange_strong(&board->fail_state, &none, 1))
		return;
	snprintf(board->rule, sizeof(board->rule), "%s", rule);
	va_start(args, format);
	vsnprintf(board->text, sizeof(board->text), format, args);
	va_end(args);
	atomic_store(&board->fail_state, 2);
}

uint64_t id_pack(enum id_kind kind, int q, int s, int index)
{
	return (uint64_t)kind << 56 | (uint64_t)q << 40 | (uint64_t)s << 32 | (uint32_t)index;
}

struct id id_unpack(uint64_t wr_id)
{
	return (struct id){(enum id_kind)(wr_id >> 56), (int)(wr_id >> 40 & 0xff),
			   (int)(wr_id >> 32 & 0xff), (int)(wr_id & 0xffffffff)};
}

bool sends_are_over(const struct run *run, int q, int s)
{
	const struct side_board *sb = &run->board->sides[q][s];

	if (sb->gone)
		return true;
	return sb->buried ? sb->send_over : sb->completed == run->program->qps[q].sides[s].num_ops;
}

bool recvs_are_over(const struct run *run, int q, int s)
{
	const struct side_board *sb = &run->board->sides[q][s];

	if (sb->gone)
		return true;
	if (sb->buried)
		return run->program->qps[q].sides[s].srq >= 0 || sb->recv_over;
	return sb->received == side_count_messages(peer_of(run->program, q, s));
}

/* ---- statuses ---- */

/* What the first request that fails may say when the peer or the connection has ended. */
static bool is_end(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_REM_ABORT_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
	case IBV_WC_FATAL_ERR:
	case IBV_WC_GENERAL_ERR:
		return true;
	default:
		return false;
	}
}

/* Is the status lawful? It is remembered that the queue has failed. */
static bool check_status(struct run *run, struct id id, const struct ibv_wc *wc)
{
	struct side_board *sb = &run->board->sides[id.q][id.s];
	const char *what = id.kind == ID_SEND ? "request" : "receive";

	if (wc->status == IBV_WC_SUCCESS) {
		if (!sb->failed || id.kind != ID_SEND)
			return true;
		board_fail(run->board, "flush",
			   "qp %d side %d: request %d succeeded after an earlier one had failed",
			   id.q, id.s, id.index);
		return false;
	}
	if (!sb->ended) {
		board_fail(run->board, "ended", "qp %d side %d: %s %d: %s, though nothing ended",
			   id.q, id.s, what, id.index, ibv_wc_status_str(wc->status));
		return false;
	}
	if (wc->status != IBV_WC_WR_FLUSH_ERR &&
	    (id.kind != ID_SEND || sb->failed || !is_end(wc->status))) {
		board_fail(run->board, "status", "qp %d side %d: %s %d: %s is no way to end", id.q,
			   id.s, what, id.index, ibv_wc_status_str(wc->status));
		return false;
	}
	if (id.kind == ID_SEND)
		sb->failed = true;
	return true;
}

/* ---- send queue ---- */

static enum ibv_wc_opcode wc_opcode(const struct op *op)
{
	switch (op->kind) {
	case OP_WRITE:
	case OP_WRITE_IMM:
		return IBV_WC_RDMA_WRITE;
	case OP_READ:
		return IBV_WC_RDMA_READ;
	case OP_CMP_SWP:
		return IBV_WC_COMP_SWAP;
	case OP_FETCH_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_SEND;
	}
}

/* Long pieces are looked at where mistakes are likely: at both ends. */
enum { LOOK = 8192, LOOK_WHOLE = 65536 };

/* Bytes are wrong: is it for good? */
static const char *is_right_later(const struct run *run, int q, int s, const uint8_t *bytes,
				  size_t from, size_t to, int must, int may)
{
	size_t wrong;

	usleep(100000);
	return arena_is_right(run, q, s, bytes, from, to, must, may, &wrong)
		       ? " (but it is 100 ms later)"
		       : "";
}

static bool arena_part(struct run *run, int q, int s, size_t from, size_t to, int must, int may,
		       const char *rule, const char *when)
{
	const uint8_t *arena =
		run->view[peer_of(run->program, q, s)->end] + run->layout.arena[q][s];
	const char *late;
	size_t wrong;

	if (arena_is_right(run, q, s, arena + from, from, to, must, may, &wrong))
		return true;
	late = is_right_later(run, q, s, arena + from, from, to, must, may);
	board_fail(run->board, rule,
		   "qp %d side %d: byte %zu of its arena is not what requests up to %d have "
		   "written, %s%s",
		   q, s, wrong, must, when, late);
	return false;
}

/* The range of WRITE @i in the target's memory. */
static bool write_is_there(struct run *run, int q, int s, int i, int must, const char *rule,
			   const char *when)
{
	const struct side *side = &run->program->qps[q].sides[s];
	const struct op *op = &side->ops[i];
	size_t from = (size_t)op->offset, to = from + (size_t)op->len;

	if (op->len <= LOOK_WHOLE)
		return arena_part(run, q, s, from, to, must, side->num_ops, rule, when);
	return arena_part(run, q, s, from, from + LOOK, must, side->num_ops, rule, when) &&
	       arena_part(run, q, s, to - LOOK, to, must, side->num_ops, rule, when);
}

/* A message that has completed lies in the receive that it took. */
static bool message_is_there(struct run *run, int q, int s, int i)
{
	const struct side *side = &run->program->qps[q].sides[s],
			  *peer = &run->program->qps[q].sides[!s];
	const struct op *op = &side->ops[i];
	char why[200];
	int message = 0;

	if (peer->srq >= 0 || op->len > LOOK_WHOLE)
		return true;
	for (int j = 0; j < i; j++)
		message += op_is_message(&side->ops[j]);
	if (message_is_right(run, q, s, i, run->view[peer->end] + run->layout.recv[q][!s][message],
			     recv_room(peer, op), peer->recv_sge, why, sizeof(why)))
		return true;
	board_fail(run->board, "placed",
		   "qp %d side %d: message %d completed before it was in its receive: %s", q, s, i,
		   why);
	return false;
}

static bool is_placed(struct run *run, int q, int s, int i)
{
	const struct op *op = &run->program->qps[q].sides[s].ops[i];

	/* Once the connection has ended, the peer's memory may be given back. */
	if (!run->placed || run->board->sides[q][s].ended)
		return true;
	switch (op->kind) {
	case OP_WRITE:
	case OP_WRITE_IMM:
		return write_is_there(run, q, s, i, i, "placed",
				      "though the request has completed");
	case OP_SEND:
	case OP_SEND_IMM:
	case OP_SEND_INV:
		return message_is_there(run, q, s, i);
	default:
		return true;
	}
}

/* What a READ brought is allowed, and it has filled its pieces and nothing else. */
static bool read_is_right(struct run *run, int q, int s, int i, const char *rule)
{
	const struct side *side = &run->program->qps[q].sides[s];
	const struct op *op = &side->ops[i];
	const uint8_t *buffer = run->view[side->end] + run->layout.op[q][s][i];
	struct piece pieces[MAX_SGE];
	size_t position = (size_t)op->offset, wrong;
	int may = i + 1;

	/* A later WRITE may overtake it up to the next fence. */
	while (may < side->num_ops && !side->ops[may].fence)
		may++;
	make_pieces(pieces, op->len, op->sge);
	for (int p = 0; p < op->sge; p++) {
		const uint8_t *bytes = buffer + pieces[p].offset;

		if (!arena_is_right(run, q, s, bytes, position, position + pieces[p].len, i, may,
				    &wrong)) {
			board_fail(
				run->board, rule,
				"qp %d side %d: READ %d brought a wrong byte %zu (of the arena)%s",
				q, s, i, wrong,
				is_right_later(run, q, s, bytes, position, position + pieces[p].len,
					       i, may));
			return false;
		}
		if (nonzero(bytes + pieces[p].len, PIECE_GAP) >= 0) {
			board_fail(run->board, "canary",
				   "qp %d side %d: READ %d wrote beyond piece %d", q, s, i, p);
			return false;
		}
		position += pieces[p].len;
	}
	return true;
}

/* Its memory is the program's again, which uses it for something else at once. */
static void reuse_source(struct run *run, int q, int s, int i)
{
	const struct side *side = &run->program->qps[q].sides[s];
	const struct op *op = &side->ops[i];

	if (!op_fills(op) && !op->inlined)
		memset(run->view[side->end] + run->layout.op[q][s][i], 0xee,
		       pieces_size(op->len, op->sge));
}

static bool check_success(struct run *run, int q, int s, int i)
{
	const struct op *op = &run->program->qps[q].sides[s].ops[i];

	if (!is_placed(run, q, s, i))
		return false;
	if (op->kind == OP_READ && !read_is_right(run, q, s, i, "read"))
		return false;
	reuse_source(run, q, s, i);
	return true;
}

/* A later request has completed: may this one have done so without a completion? */
static bool may_be_silent(struct run *run, int q, int s, int i)
{
	const struct side *side = &run->program->qps[q].sides[s];

	if (run->board->sides[q][s].failed) {
		board_fail(run->board, "flush",
			   "qp %d side %d: request %d was not flushed, though an earlier one had "
			   "failed",
			   q, s, i);
		return false;
	}
	if (op_is_signaled(side, &side->ops[i])) {
		board_fail(run->board, "order",
			   "qp %d side %d: request %d has not completed, but a later one has", q, s,
			   i);
		return false;
	}
	return true;
}

static void send_completed(struct run *run, struct id id, const struct ibv_wc *wc)
{
	struct side_board *sb = &run->board->sides[id.q][id.s];
	const struct side *side = &run->program->qps[id.q].sides[id.s];
	int next = sb->completed;

	if (id.index >= sb->posted) {
		board_fail(run->board, "order",
			   "qp %d side %d: request %d completed but was not posted", id.q, id.s,
			   id.index);
		return;
	}
	if (id.index < next) {
		board_fail(run->board, "twice",
			   "qp %d side %d: request %d completed again, or after request %d", id.q,
			   id.s, id.index, next - 1);
		return;
	}
	for (int i = next; i < id.index; i++)
		if (!may_be_silent(run, id.q, id.s, i))
			return;
	if (!check_status(run, id, wc))
		return;
	for (int i = next; i < id.index; i++)
		if (!check_success(run, id.q, id.s, i))
			return;
	if (wc->status == IBV_WC_SUCCESS) {
		const struct op *op = &side->ops[id.index];

		if (!op_is_signaled(side, op)) {
			board_fail(run->board, "unsignalled",
				   "qp %d side %d: request %d is not signalled and completed", id.q,
				   id.s, id.index);
			return;
		}
		if (wc->opcode != wc_opcode(op) || wc->qp_num != sb->qp_num) {
			board_fail(run->board, "fields",
				   "qp %d side %d: request %d: opcode %d, qp_num %u (%u)", id.q,
				   id.s, id.index, (int)wc->opcode, wc->qp_num, sb->qp_num);
			return;
		}
		if (!check_success(run, id.q, id.s, id.index))
			return;
	}
	sb->completed = id.index + 1;
}

/* ---- receive queues ---- */

/* All that was posted before a message is done when the message is here. */
static bool earlier_is_done(struct run *run, int q, int s, int i)
{
	const struct side *side = &run->program->qps[q].sides[s];
	int writes = 0;

	for (int j = i; j >= 0 && writes < 4; j--)
		if (side->ops[j].kind == OP_WRITE || side->ops[j].kind == OP_WRITE_IMM) {
			writes++;
			if (!write_is_there(run, q, s, j, i, "visible",
					    "though a later message has arrived"))
				return false;
		}
	if (!side->ops[i].fence)
		return true;
	for (int j = 0; j < i; j++)
		if (side->ops[j].kind == OP_READ && side->ops[j].len <= LOOK_WHOLE &&
		    !read_is_right(run, q, s, j, "fence"))
			return false;
	return true;
}

static bool check_message_fields(struct run *run, int q, int s, int i, const struct ibv_wc *wc)
{
	const struct op *op = &run->program->qps[q].sides[s].ops[i];
	enum ibv_wc_opcode opcode =
		op->kind == OP_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	unsigned flags = op_has_imm(op)            ? IBV_WC_WITH_IMM
			 : op->kind == OP_SEND_INV ? IBV_WC_WITH_INV
						   : 0;
	const char *field = NULL;

	if (wc->opcode != opcode)
		field = "opcode";
	else if (wc->byte_len != (uint32_t)op->len)
		field = "byte_len";
	else if ((wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) != flags)
		field = "wc_flags";
	else if (op_has_imm(op) && ntohl(wc->imm_data) != op_imm(run->program, q, s, i))
		field = "imm_data";
	else if (op->kind == OP_SEND_INV &&
		 wc->invalidated_rkey != run->board->sides[q][s].spare_keys[i])
		field = "invalidated_rkey";
	if (!field)
		return true;
	board_fail(run->board, "fields",
		   "qp %d side %d: message %d (%s, %d bytes) arrived with a wrong %s: opcode %d, "
		   "byte_len %u, wc_flags %#x, imm_data %#x",
		   q, s, i, op_names[op->kind], op->len, field, (int)wc->opcode, wc->byte_len,
		   wc->wc_flags, ntohl(wc->imm_data));
	return false;
}

/* A message has arrived at side @s of @q, in @buffer. */
static void message_arrived(struct run *run, int q, int s, const struct ibv_wc *wc,
			    const uint8_t *buffer, int room, int num)
{
	struct side_board *sb = &run->board->sides[q][s], *peer = &run->board->sides[q][!s];
	int index = 0;
	const struct op *op = side_message(peer_of(run->program, q, s), sb->received, &index);
	char why[200];

	if (!op || index >= peer->posted) {
		board_fail(run->board, "order",
			   "qp %d side %d: message %d arrived but was not sent", q, s,
			   sb->received);
		return;
	}
	if (!check_message_fields(run, q, !s, index, wc))
		return;
	if (!message_is_right(run, q, !s, index, buffer, room, num, why, sizeof(why))) {
		board_fail(run->board, "content", "qp %d side %d: message %d arrived wrong: %s", q,
			   !s, index, why);
		return;
	}
	if (!earlier_is_done(run, q, !s, index))
		return;
	sb->received++;
}

static void recv_completed(struct run *run, struct id id, const struct ibv_wc *wc)
{
	struct side_board *sb = &run->board->sides[id.q][id.s];
	const struct side *side = &run->program->qps[id.q].sides[id.s];
	int index;
	const struct op *op = side_message(peer_of(run->program, id.q, id.s), id.index, &index);

	if (id.index != sb->recv_completed || id.index >= sb->recv_posted ||
	    (!op && wc->status == IBV_WC_SUCCESS)) {
		board_fail(run->board, id.index < sb->recv_completed ? "twice" : "order",
			   "qp %d side %d: receive %d completed where %d is next (%d posted)", id.q,
			   id.s, id.index, sb->recv_completed, sb->recv_posted);
		return;
	}
	if (!check_status(run, id, wc))
		return;
	if (wc->status == IBV_WC_SUCCESS) {
		if (wc->qp_num != sb->qp_num || sb->received != id.index) {
			board_fail(run->board, "order",
				   "qp %d side %d: receive %d succeeded, message %d is next", id.q,
				   id.s, id.index, sb->received);
			return;
		}
		message_arrived(run, id.q, id.s, wc,
				run->view[side->end] + run->layout.recv[id.q][id.s][id.index],
				recv_room(side, op), side->recv_sge);
	}
	sb->recv_completed++;
}

static bool find_side(const struct run *run, int srq, uint32_t qp_num, int *q, int *s)
{
	int end = run->program->srqs[srq].end;

	for (*q = 0; *q < run->program->num_qps; ++*q)
		for (*s = 0; *s < 2; ++*s) {
			const struct side *side = &run->program->qps[*q].sides[*s];

			if (side->end == end && side->srq == srq &&
			    run->board->sides[*q][*s].qp_num == qp_num)
				return true;
		}
	return false;
}

static void srq_completed(struct run *run, struct id id, const struct ibv_wc *wc)
{
	const struct srq *srq = &run->program->srqs[id.q];
	struct srq_board *board = &run->board->srqs[id.q];
	int q, s;

	if (id.index >= board->posted || board->done[id.index]) {
		board_fail(run->board, id.index < board->posted ? "twice" : "order",
			   "SRQ %d: receive %d completed (%d posted)", id.q, id.index,
			   board->posted);
		return;
	}
	board->done[id.index] = true;
	board->completed++;
	if (!find_side(run, id.q, wc->qp_num, &q, &s)) {
		board_fail(run->board, "fields", "SRQ %d: receive %d: no such qp_num %u", id.q,
			   id.index, wc->qp_num);
		return;
	}
	if (!check_status(run, (struct id){ID_SRQ, q, s, id.index}, wc))
		return;
	if (wc->status != IBV_WC_SUCCESS)
		return;
	if (id.index < run->board->sides[q][s].last_srq) {
		board_fail(run->board, "order",
			   "SRQ %d: qp %d side %d took receive %d after receive %d", id.q, q, s,
			   id.index, run->board->sides[q][s].last_srq);
		return;
	}
	run->board->sides[q][s].last_srq = id.index;
	message_arrived(run, q, s, wc,
			run->view[srq->end] + run->layout.srq[id.q] +
				run->layout.srq_stride[id.q] * (size_t)id.index,
			srq_longest_message(run->program, id.q), srq->recv_sge);
}

/* The last request of a dead queue pair, which shows that all before it are accounted for. */
static void mark_completed(struct run *run, struct id id, const struct ibv_wc *wc)
{
	struct side_board *sb = &run->board->sides[id.q][id.s];
	bool sends = id.kind == ID_SEND_MARK;

	if (wc->status != IBV_WC_WR_FLUSH_ERR) {
		board_fail(run->board, "status", "qp %d side %d: posted after the end: %s", id.q,
			   id.s, ibv_wc_status_str(wc->status));
		return;
	}
	if (!sends && sb->recv_completed != sb->recv_posted)
		board_fail(run->board, "lost", "qp %d side %d: %d of %d receives were not flushed",
			   id.q, id.s, sb->recv_posted - sb->recv_completed, sb->recv_posted);
	for (int i = sb->completed; sends && i < sb->posted; i++)
		if (!may_be_silent(run, id.q, id.s, i))
			return;
	if (sends)
		sb->send_over = true;
	else
		sb->recv_over = true;
}

void model_completed(struct run *run, int cq, const struct ibv_wc *wc)
{
	struct id id = id_unpack(wc->wr_id);
	const struct side *side;

	run->board->progress++;
	run->board->completions++;
	if (id.kind == ID_SRQ && id.q < run->program->num_srqs) {
		srq_completed(run, id, wc);
		return;
	}
	if (id.kind < ID_SEND || id.kind > ID_RECV_MARK || id.q >= run->program->num_qps ||
	    id.s > 1) {
		board_fail(run->board, "fields", "a completion with wr_id %#llx",
			   (unsigned long long)wc->wr_id);
		return;
	}
	side = &run->program->qps[id.q].sides[id.s];
	if (cq != (id.kind == ID_SEND || id.kind == ID_SEND_MARK ? side->send_cq : side->recv_cq)) {
		board_fail(run->board, "fields", "qp %d side %d: request %d completed in CQ %d",
			   id.q, id.s, id.index, cq);
		return;
	}
	if (id.kind == ID_SEND)
		send_completed(run, id, wc);
	else if (id.kind == ID_RECV)
		recv_completed(run, id, wc);
	else
		mark_completed(run, id, wc);
}
