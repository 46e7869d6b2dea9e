/* SPDX-License-Identifier: MIT */
/* Questions about a program that its generator, its ends and the model all ask. */
#include <string.h>

#include "program.h"

bool op_is_message(const struct op *op)
{
	return op->kind == OP_SEND || op->kind == OP_SEND_IMM || op->kind == OP_SEND_INV ||
	       op->kind == OP_WRITE_IMM;
}

bool op_is_atomic(const struct op *op)
{
	return op->kind == OP_CMP_SWP || op->kind == OP_FETCH_ADD;
}

bool op_has_imm(const struct op *op)
{
	return op->kind == OP_SEND_IMM || op->kind == OP_WRITE_IMM;
}

bool op_fills(const struct op *op)
{
	return op->kind == OP_READ || op_is_atomic(op);
}

bool op_is_signaled(const struct side *side, const struct op *op)
{
	return side->sig_all || op->signaled;
}

int side_count_messages(const struct side *side)
{
	int count = 0;

	for (int i = 0; i < side->num_ops; i++)
		count += op_is_message(&side->ops[i]);
	return count;
}

int side_count_receives(const struct program *program, int q, int s)
{
	return side_count_messages(peer_of(program, q, s)) + program->qps[q].sides[s].spare;
}

const struct op *side_message(const struct side *side, int message, int *index)
{
	for (int i = 0; i < side->num_ops; i++)
		if (op_is_message(&side->ops[i]) && message-- == 0) {
			*index = i;
			return &side->ops[i];
		}
	return NULL;
}

int srq_count_messages(const struct program *program, int srq)
{
	int count = 0;

	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			if (program->qps[q].sides[s].srq == srq)
				count += side_count_messages(peer_of(program, q, s));
	return count;
}

int srq_longest_message(const struct program *program, int srq)
{
	int longest = 1; /* no device minds a receive that is too long */

	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			const struct side *peer = peer_of(program, q, s);

			if (program->qps[q].sides[s].srq != srq)
				continue;
			for (int i = 0; i < peer->num_ops; i++)
				if (op_is_message(&peer->ops[i]) && peer->ops[i].len > longest)
					longest = peer->ops[i].len;
		}
	return longest;
}

int cq_needs(const struct program *program, int cq)
{
	bool counted[MAX_SRQS] = {false};
	int entries = 1;

	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			const struct side *side = &program->qps[q].sides[s];

			/* One more in each queue: what marks the end of a dead queue pair. */
			if (side->send_cq == cq)
				entries += side->sq_depth + 1;
			if (side->recv_cq != cq)
				continue;
			if (side->srq < 0) {
				entries += side->rq_depth + 1;
			} else if (!counted[side->srq]) {
				counted[side->srq] = true;
				entries += program->srqs[side->srq].depth;
				/* Then receives are replaced without knowing which are lost. */
				if (program->fault.kind == FAULT_DESTROY)
					entries += srq_count_messages(program, side->srq);
			}
		}
	return entries;
}

/* ---- what a program must fulfil ---- */

static bool is_within(int value, int least, int most)
{
	return value >= least && value <= most;
}

static const char *op_flaw(const struct side *side, const struct side *peer, const struct op *op)
{
	if (!is_within(op->kind, 0, OP_KINDS - 1) || !is_within(op->len, 0, 8 << 20))
		return "a request's kind or length";
	if (!is_within(op->sge, 0, side->max_sge) || (op->len > 0 && op->sge == 0))
		return "a request's number of pieces";
	if (op->inlined && (op->len > INLINE_BYTES || op_fills(op)))
		return "an inline request that is too long";
	if (op_is_atomic(op) &&
	    (op->len != 8 || op->sge != 1 || !is_within(op->word, 0, MAX_WORDS - 1)))
		return "an atomic";
	if (!is_within(op->offset, 0, 16 << 20) || op->await > side_count_messages(peer))
		return "a request's offset or what it awaits";
	return NULL;
}

/* The send queue never fills with requests that say nothing, and the last one says so. */
static const char *signal_flaw(const struct side *side)
{
	int silent = 0;

	for (int i = 0; i < side->num_ops; i++) {
		silent = op_is_signaled(side, &side->ops[i]) ? 0 : silent + 1;
		if (silent >= side->sq_depth)
			return "a send queue full of unsignalled requests";
	}
	return silent ? "an unsignalled last request" : NULL;
}

static const char *side_flaw(const struct program *program, int q, int s)
{
	const struct side *side = &program->qps[q].sides[s], *peer = peer_of(program, q, s);
	const char *flaw;

	if (!is_within(side->end, 0, program->num_ends - 1))
		return "a side's end";
	if (!is_within(side->thread, 0, program->ends[side->end].num_threads - 1))
		return "a side's thread";
	if (!is_within(side->send_cq, 0, program->num_cqs - 1) ||
	    !is_within(side->recv_cq, 0, program->num_cqs - 1) ||
	    program->cqs[side->send_cq].end != side->end ||
	    program->cqs[side->recv_cq].end != side->end)
		return "a side's CQ";
	if (side->srq >= 0 &&
	    (side->srq >= program->num_srqs || program->srqs[side->srq].end != side->end))
		return "a side's SRQ";
	if (!is_within(side->sq_depth, 1, 2 * MAX_OPS) ||
	    !is_within(side->rq_depth, 1, 2 * MAX_OPS) || !is_within(side->max_sge, 1, MAX_SGE) ||
	    !is_within(side->recv_sge, 1, side->max_sge) ||
	    !is_within(side->batch, 1, side->rq_depth) || !is_within(side->spare, 0, MAX_SPARE))
		return "a side's depths";
	if (side->num_ops == 0 || (s == 0 ? side->ops[0].kind != OP_SEND : side->ops[0].await < 1))
		return "the initiator does not speak first";
	for (int i = 0; i < side->num_ops; i++)
		if ((flaw = op_flaw(side, peer, &side->ops[i])))
			return flaw;
	return signal_flaw(side);
}

/*
 * A thread that may sleep waits for nothing but its own CQs, so a side that it posts to has no
 * others; and a CQ is polled by a thread that does so.
 */
static const char *thread_flaw(const struct program *program)
{
	for (int c = 0; c < program->num_cqs; c++) {
		const struct cq *cq = &program->cqs[c];

		if (!is_within(cq->end, 0, program->num_ends - 1) ||
		    !is_within(cq->thread, 0, program->ends[cq->end].num_threads - 1) ||
		    program->ends[cq->end].threads[cq->thread].wait == WAIT_NONE)
			return "a CQ's thread";
	}
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			const struct side *side = &program->qps[q].sides[s];

			if (program->ends[side->end].threads[side->thread].wait != WAIT_NONE &&
			    (program->cqs[side->send_cq].thread != side->thread ||
			     program->cqs[side->recv_cq].thread != side->thread))
				return "a thread that posts and polls something else";
		}
	return NULL;
}

/* Only what raises an event is waited for. */
static const char *solicited_flaw(const struct program *program)
{
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			const struct side *side = &program->qps[q].sides[s];
			const struct side *peer = peer_of(program, q, s);

			if (program->cqs[side->send_cq].solicited)
				return "a send CQ armed for solicited completions";
			for (int i = 0; program->cqs[side->recv_cq].solicited && i < peer->num_ops;
			     i++)
				if (op_is_message(&peer->ops[i]) && !peer->ops[i].solicited)
					return "a message that is not solicited";
		}
	return NULL;
}

/* All users of an SRQ have the same receive CQ, whose thread posts its receives. */
static const char *srq_flaw(const struct program *program)
{
	int recv_cq[MAX_SRQS];

	for (int i = 0; i < program->num_srqs; i++) {
		const struct srq *srq = &program->srqs[i];

		recv_cq[i] = -1;
		if (!is_within(srq->depth, 1, MAX_MESSAGES) ||
		    !is_within(srq->batch, 1, srq->depth) ||
		    !is_within(srq->recv_sge, 1, MAX_SGE) ||
		    !is_within(srq->end, 0, program->num_ends - 1))
			return "an SRQ";
	}
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			const struct side *side = &program->qps[q].sides[s];

			if (side->srq < 0)
				continue;
			if (recv_cq[side->srq] >= 0 && recv_cq[side->srq] != side->recv_cq)
				return "an SRQ with several CQs";
			recv_cq[side->srq] = side->recv_cq;
		}
	return NULL;
}

/* A lazy thread gives nothing back to a queue, so all fits at once. */
static const char *lazy_flaw(const struct program *program)
{
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			const struct side *side = &program->qps[q].sides[s];
			const struct end *end = &program->ends[side->end];
			int messages = side_count_messages(peer_of(program, q, s));

			if (end->threads[program->cqs[side->recv_cq].thread].wait == WAIT_LAZY) {
				if (side->srq < 0 && side->rq_depth < messages)
					return "a lazy thread's receive queue";
				if (side->srq >= 0 &&
				    program->srqs[side->srq].depth <
					    srq_count_messages(program, side->srq))
					return "a lazy thread's SRQ";
			}
			if (end->threads[program->cqs[side->send_cq].thread].wait == WAIT_LAZY &&
			    side->sq_depth < side->num_ops)
				return "a lazy thread's send queue";
		}
	return NULL;
}

const char *program_flaw(const struct program *program)
{
	const char *flaw;

	if (!is_within(program->num_ends, 1, MAX_ENDS) ||
	    !is_within(program->num_qps, 1, MAX_QPS) || !is_within(program->num_cqs, 1, MAX_CQS) ||
	    !is_within(program->num_srqs, 0, MAX_SRQS))
		return "how many there are of something";
	for (int e = 0; e < program->num_ends; e++) {
		const struct end *end = &program->ends[e];

		if (!is_within(end->num_threads, 1, MAX_THREADS))
			return "the number of threads";
		for (int t = 0; t < end->num_threads; t++)
			if (!is_within(end->threads[t].wait, 0, WAIT_KINDS - 1) ||
			    !is_within(end->threads[t].batch, 1, 64))
				return "a thread";
	}
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			if ((flaw = side_flaw(program, q, s)))
				return flaw;
	if ((flaw = thread_flaw(program)) || (flaw = solicited_flaw(program)) ||
	    (flaw = srq_flaw(program)) || (flaw = lazy_flaw(program)))
		return flaw;
	if (!is_within(program->fault.kind, 0, FAULT_KINDS - 1) ||
	    !is_within(program->fault.end, 0, program->num_ends - 1) ||
	    !is_within(program->fault.qp, 0, program->num_qps - 1))
		return "the fault";
	return NULL;
}

/* ---- random numbers: splitmix64 ---- */

uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

int rng_below(struct rng *rng, int below)
{
	return (int)(rng_next(rng) % (uint64_t)below);
}

int rng_between(struct rng *rng, int least, int most)
{
	return least + rng_below(rng, most - least + 1);
}

bool rng_chance(struct rng *rng, int percent)
{
	return rng_below(rng, 100) < percent;
}
