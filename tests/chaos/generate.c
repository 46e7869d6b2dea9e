/* SPDX-License-Identifier: MIT */
/*
 * The generator. It keeps these laws, so that every program is lawful and can finish; what the
 * ends rely on is checked again by program_flaw.
 *
 *  1. The initiator speaks first: its first request is a SEND, and the acceptor awaits it. iWARP
 *     demands that.
 *  2. A side posts as many receives as it gets messages. A message may come before its receive
 *     where the device lets it wait; the receive follows within milliseconds.
 *  3. A request awaits only messages that come earlier in one common order of both directions of
 *     its queue pair, so that no two sides wait for each other.
 *  4. Of as many requests in a row as the send queue holds one is signalled, and so is the last.
 *  5. A thread that sleeps for completions posts only to sides whose CQs are all its own. Whatever
 *     lets it go on is a completion that it sees.
 *  6. A CQ has an entry for everything that can be outstanding.
 *  7. All sides that use an SRQ have one receive CQ, whose thread posts its receives.
 *  8. A thread that looks at memory instead of its CQs has posted everything, and its queues hold
 *     everything.
 *  9. An arena is written by one direction of one queue pair. Words for FETCH_ADD are even, those
 *     for CMP_SWP are odd.
 * 10. A queue pair is destroyed only where no thread sleeps for its completions, and ends with an
 *     SRQ only where one thread has both CQs: nothing else would wake the others.
 * 11. A CQ is armed for solicited completions only if nothing else completes there.
 */
#include <string.h>

#include "program.h"

static const struct features all_features[] = {
	/* softrdma */
	{.immediate = true,
	 .atomics = true,
	 .invalidate = true,
	 .modern = true,
	 .modern_lists = true,
	 .late_receives = true,
	 .solicited = true,
	 .empty_receives = true,
	 .fences = true,
	 .plain_reads = true,
	 .reads_in_order = true,
	 .numbers = true,
	 .same_process = true,
	 .ends = true,
	 .max_len = 8 << 20,
	 .max_total = 12 << 20,
	 .max_send_sge = MAX_SGE,
	 .max_read_sge = MAX_SGE,
	 .max_ops = 64},
	/* rxe: invalidates only what was registered by a request; ibv_wr_set_sge_list is wrong */
	{.immediate = true,
	 .atomics = true,
	 .modern = true,
	 .late_receives = true,
	 .solicited = true,
	 .empty_receives = true,
	 .plain_reads = true,
	 .reads_in_order = true,
	 .numbers = true,
	 .same_process = true,
	 .ends = true,
	 .max_len = 1 << 20,
	 .max_total = 2 << 20,
	 .max_send_sge = MAX_SGE,
	 .max_read_sge = MAX_SGE,
	 .max_ops = 32},
	/* siw: a message without a receive ends the connection */
	{.fences = true,
	 .same_process = true,
	 .max_len = 1 << 20,
	 .max_total = 2 << 20,
	 .max_send_sge = 6,
	 .max_read_sge = 1,
	 .max_ops = 32},
};

const struct features *features_of(const char *name)
{
	if (!strcmp(name, "rxe"))
		return &all_features[1];
	if (!strcmp(name, "siw"))
		return &all_features[2];
	return &all_features[0];
}

/* What a program is mostly about. */
enum theme {
	THEME_MIXED,
	THEME_QUIET, /* one or two requests, and a peer that says nothing */
	THEME_CROSS, /* WRITEs one way, long READs the other */
	THEME_SRQ,   /* several queue pairs stream into one SRQ */
	THEME_PINGPONG,
	THEME_ATOMICS,
	THEME_STREAM, /* many unsignalled WRITEs, and memory that is watched */
	THEMES,
};

struct maker {
	struct rng rng;
	struct program *program;
	const struct features *features;
	enum theme theme;
	int budget; /* bytes left */
};

/* ---- sizes ---- */

static int choose_len(struct maker *maker)
{
	static const int edges[] = {16384, 65536, 1 << 20, 4096, 8192, 65520, 56, 64, 1460};
	struct rng *rng = &maker->rng;
	int roll = rng_below(rng, 100), len;

	if (roll < 8)
		len = 0;
	else if (roll < 50)
		len = rng_between(rng, 1, 64);
	else if (roll < 75)
		len = rng_between(rng, 65, 9000);
	else if (roll < 92)
		len = edges[rng_below(rng, sizeof(edges) / sizeof(*edges))] +
		      rng_between(rng, -2, 2);
	else if (roll < 98)
		len = rng_between(rng, 9000, 300000);
	else
		len = rng_between(rng, 1 << 20, 8 << 20);
	if (len > maker->features->max_len)
		len = maker->features->max_len;
	return len;
}

/* Within what is left for the program. */
static int spend(struct maker *maker, int len)
{
	if (len > maker->budget)
		len = maker->budget > 64 ? rng_between(&maker->rng, 0, 64) : maker->budget;
	maker->budget -= len;
	return len;
}

/* ---- requests ---- */

static int choose_kind(struct maker *maker, int s)
{
	const struct features *features = maker->features;
	int kind;

	switch (maker->theme) {
	case THEME_CROSS:
		if (rng_chance(&maker->rng, 90))
			return s == 0 ? OP_READ : OP_WRITE;
		break;
	case THEME_SRQ:
		if (rng_chance(&maker->rng, 80))
			return OP_SEND;
		break;
	case THEME_ATOMICS:
		if (features->atomics && rng_chance(&maker->rng, 80))
			return rng_chance(&maker->rng, 70) ? OP_FETCH_ADD : OP_CMP_SWP;
		break;
	case THEME_STREAM:
		if (rng_chance(&maker->rng, 90))
			return OP_WRITE;
		break;
	default:
		break;
	}
	do {
		kind = rng_below(&maker->rng, OP_KINDS);
	} while ((!features->immediate && (kind == OP_SEND_IMM || kind == OP_WRITE_IMM)) ||
		 (!features->atomics && (kind == OP_CMP_SWP || kind == OP_FETCH_ADD)) ||
		 (!features->invalidate && kind == OP_SEND_INV));
	return kind;
}

static void make_len(struct maker *maker, const struct side *peer, struct op *op)
{
	int len = choose_len(maker);

	if (maker->theme == THEME_CROSS && op->kind == OP_READ)
		len = rng_between(&maker->rng, 1 << 16, maker->features->max_len / 2);
	if (maker->theme == THEME_CROSS && op->kind == OP_WRITE)
		len = rng_between(&maker->rng, 1, 8192);
	/* Every receive of an SRQ has room for the longest message. */
	if (peer->srq >= 0 && op_is_message(op) && op->kind != OP_WRITE_IMM && len > 16384)
		len = rng_between(&maker->rng, 0, 16384);
	op->len = spend(maker, len);
	if (op->kind == OP_READ && op->len == 0 && !maker->features->plain_reads)
		op->len = 1;
}

static void make_place(struct maker *maker, struct side *side, struct op *op)
{
	int max_sge = op->kind == OP_READ && side->max_sge > maker->features->max_read_sge
			      ? maker->features->max_read_sge
			      : side->max_sge;

	if (op_is_atomic(op)) {
		op->len = 8;
		op->sge = 1;
		op->word = rng_below(&maker->rng, 2) * 2 + (op->kind == OP_CMP_SWP);
		op->operand = op->kind == OP_FETCH_ADD ? rng_between(&maker->rng, 1, 1000)
						       : rng_chance(&maker->rng, 70);
		return;
	}
	if (side->modern && !maker->features->modern_lists)
		max_sge = 1;
	op->sge = op->len ? rng_between(&maker->rng, 1, rng_chance(&maker->rng, 60) ? 1 : max_sge)
			  : 0;
	if (op->sge > op->len)
		op->sge = op->len ? 1 : 0;
	if (op->kind == OP_WRITE || op->kind == OP_WRITE_IMM || op->kind == OP_READ)
		op->offset = rng_chance(&maker->rng, 50) ? 0 : rng_below(&maker->rng, 5000);
	/* An arena begins at a multiple of 64, so what is that short lies in one page. */
	if (op->kind == OP_READ && op->len <= 64 && !maker->features->plain_reads)
		op->offset = 0;
	op->inlined = !op_fills(op) && op->len <= INLINE_BYTES &&
		      (!side->modern || maker->features->modern_lists) &&
		      rng_chance(&maker->rng, 30);
}

/* @received: messages to this side that come before it in the common order. */
static void make_op(struct maker *maker, int q, int s, int received)
{
	struct side *side = &maker->program->qps[q].sides[s];
	struct rng *rng = &maker->rng;
	bool first = side->num_ops == 0;
	struct op *op = &side->ops[side->num_ops++];

	op->kind = first && s == 0 ? OP_SEND : choose_kind(maker, s);
	make_len(maker, &maker->program->qps[q].sides[!s], op);
	make_place(maker, side, op);
	op->signaled = rng_chance(rng, maker->theme == THEME_STREAM ? 10 : 60);
	op->fence = rng_chance(rng, 15);
	if (!maker->features->fences || (op->kind == OP_READ && !maker->features->plain_reads))
		op->fence = 0;
	op->solicited = op_is_message(op) && rng_chance(rng, 15);
	op->chain = rng_chance(rng, 30);
	op->pause = rng_chance(rng, 6) ? rng_between(rng, 1, 2000) : 0;
	op->drain = rng_chance(rng, 6);
	if (!maker->features->reads_in_order) {
		bool behind = !first && op[-1].kind == OP_READ;

		op->signaled |= op->kind == OP_READ;
		op->drain |= behind && op->kind != OP_READ;
	}
	if (maker->theme == THEME_PINGPONG || (s == 1 && first) || rng_chance(rng, 10))
		op->await = received;
}

/* Both directions in one common order; law 3 follows. */
static void make_ops(struct maker *maker, int q)
{
	struct qp *qp = &maker->program->qps[q];
	struct rng *rng = &maker->rng;
	int most = rng_chance(rng, 70) ? 8 : maker->features->max_ops;
	int want[2], sent[2] = {0, 0};

	if (maker->theme == THEME_QUIET)
		most = 2;
	want[0] = rng_between(rng, 1, most);
	want[1] = maker->theme == THEME_QUIET ? 1 : rng_between(rng, 1, most);
	if (maker->theme == THEME_CROSS) {
		want[0] = rng_between(rng, 2, 4);
		want[1] = rng_between(rng, 16, maker->features->max_ops);
	}
	for (int s = 0; qp->sides[0].num_ops < want[0] || qp->sides[1].num_ops < want[1];
	     s = rng_below(rng, 2)) {
		struct side *side = &qp->sides[s];

		if (side->num_ops == want[s] || (s == 1 && sent[0] == 0))
			continue;
		make_op(maker, q, s, sent[!s]);
		sent[s] += op_is_message(&side->ops[side->num_ops - 1]);
	}
}

/* Law 4. */
static void add_signals(struct side *side)
{
	int silent = 0;

	for (int i = 0; i < side->num_ops; i++) {
		if (silent + 1 >= side->sq_depth || i + 1 == side->num_ops)
			side->ops[i].signaled = 1;
		silent = op_is_signaled(side, &side->ops[i]) ? 0 : silent + 1;
	}
}

/* ---- ends, threads and queues ---- */

static void make_ends(struct maker *maker)
{
	struct program *program = maker->program;
	struct rng *rng = &maker->rng;

	program->num_ends = rng_chance(rng, 80) ? 2 : 3;
	if (maker->theme == THEME_QUIET)
		program->num_ends = 2;
	for (int e = 0; e < program->num_ends; e++) {
		struct end *end = &program->ends[e];
		int loops = rng_chance(rng, 60) ? 1 : 2;

		end->num_threads = loops + rng_chance(rng, 25); /* the last one only posts */
		end->tidy = rng_chance(rng, 60);
		for (int t = 0; t < end->num_threads; t++)
			end->threads[t] = (struct thread){
				.wait = t >= loops ? WAIT_NONE : rng_below(rng, WAIT_NONE),
				.arm_early = rng_chance(rng, 50),
				.batch = rng_chance(rng, 50) ? rng_between(rng, 1, 4) : 16,
			};
		if (maker->theme == THEME_QUIET)
			end->threads[0].wait = rng_chance(rng, 70) ? WAIT_EVENT : WAIT_EPOLL;
	}
}

static int add_cq(struct maker *maker, int end, int thread)
{
	struct program *program = maker->program;

	program->cqs[program->num_cqs] = (struct cq){
		.end = end, .thread = thread, .extra = rng_chance(&maker->rng, 50) ? 0 : 30};
	return program->num_cqs++;
}

/* A CQ that @thread polls: one that is there, or a new one. */
static int choose_cq(struct maker *maker, int end, int thread)
{
	struct program *program = maker->program;

	for (int c = 0; c < program->num_cqs; c++)
		if (program->cqs[c].end == end && program->cqs[c].thread == thread &&
		    (rng_chance(&maker->rng, 50) || program->num_cqs == MAX_CQS))
			return c;
	return add_cq(maker, end, thread);
}

static int count_loops(const struct end *end)
{
	int loops = 0;

	while (loops < end->num_threads && end->threads[loops].wait != WAIT_NONE)
		loops++;
	return loops;
}

static void join_srq(struct maker *maker, struct side *side)
{
	struct program *program = maker->program;
	struct rng *rng = &maker->rng;

	if (!rng_chance(rng, maker->theme == THEME_SRQ ? 90 : 20))
		return;
	for (int i = 0; i < program->num_srqs; i++)
		if (program->srqs[i].end == side->end &&
		    (rng_chance(rng, 80) || program->num_srqs == MAX_SRQS)) {
			side->srq = i;
			return;
		}
	if (program->num_srqs == MAX_SRQS)
		return;
	side->srq = program->num_srqs;
	program->srqs[program->num_srqs++] = (struct srq){
		.end = side->end,
		.depth = rng_chance(rng, 60) ? rng_between(rng, 1, 8)
					     : rng_between(rng, 1, MAX_DEPTH),
		.batch = 1,
		.recv_sge = rng_between(rng, 1,
					rng_chance(rng, 70) ? 1 : maker->features->max_send_sge),
		.late = rng_chance(rng, 20) ? rng_between(rng, 1, 3000) : 0,
	};
	if (rng_chance(rng, 30))
		program->srqs[side->srq].batch =
			rng_between(rng, 1, program->srqs[side->srq].depth);
}

/* The receive CQ of the first side that uses an SRQ is that of the others. */
static int find_srq_cq(const struct program *program, int srq, const struct side *but)
{
	for (int q = 0; q < MAX_QPS; q++)
		for (int s = 0; s < 2; s++)
			if (program->qps[q].sides[s].srq == srq &&
			    &program->qps[q].sides[s] != but && program->qps[q].sides[s].max_sge)
				return program->qps[q].sides[s].recv_cq;
	return -1;
}

static void choose_queues(struct maker *maker, struct side *side)
{
	const struct end *end = &maker->program->ends[side->end];
	int loops = count_loops(end), loop = rng_below(&maker->rng, loops), shared = -1;

	side->srq = -1;
	join_srq(maker, side);
	if (side->srq >= 0)
		shared = find_srq_cq(maker->program, side->srq, side);
	if (shared >= 0)
		loop = maker->program->cqs[shared].thread;
	side->thread = loop;
	side->send_cq = choose_cq(maker, side->end, loop);
	side->recv_cq = shared >= 0                   ? shared
			: rng_chance(&maker->rng, 50) ? side->send_cq
						      : choose_cq(maker, side->end, loop);
	if (loops < end->num_threads && rng_chance(&maker->rng, 70)) {
		side->thread = end->num_threads - 1;
		/* One that only posts does not care who polls. */
		if (rng_chance(&maker->rng, 40))
			side->send_cq = choose_cq(maker, side->end, rng_below(&maker->rng, loops));
	}
}

static void make_side(struct maker *maker, int q, int s, int end)
{
	struct side *side = &maker->program->qps[q].sides[s];
	struct rng *rng = &maker->rng;

	side->end = end;
	choose_queues(maker, side);
	side->sq_depth =
		rng_chance(rng, 40) ? rng_between(rng, 1, 8) : rng_between(rng, 1, MAX_DEPTH);
	side->rq_depth =
		rng_chance(rng, 40) ? rng_between(rng, 1, 8) : rng_between(rng, 1, MAX_DEPTH);
	side->max_sge = rng_between(rng, 1, maker->features->max_send_sge);
	side->recv_sge = rng_between(rng, 1, rng_chance(rng, 70) ? 1 : side->max_sge);
	side->recv_slack = rng_chance(rng, 50) ? 0 : rng_between(rng, 1, 100);
	if (!maker->features->empty_receives)
		side->recv_slack++;
	side->sig_all = rng_chance(rng, 30);
	side->modern = maker->features->modern && rng_chance(rng, 20);
	side->late = rng_chance(rng, 25) ? rng_between(rng, 1, 3000) : 0;
	side->spare = rng_chance(rng, 30) ? rng_between(rng, 1, MAX_SPARE) : 0;
	side->batch = rng_chance(rng, 70) ? 1 : rng_between(rng, 1, side->rq_depth);
}

/* ---- what follows from the requests ---- */

/* Law 8, and the same where no message may come before its receive. */
static void deepen(struct maker *maker, int q, int s)
{
	struct program *program = maker->program;
	struct side *side = &program->qps[q].sides[s];
	const struct end *end = &program->ends[side->end];
	bool lazy_recv = end->threads[program->cqs[side->recv_cq].thread].wait == WAIT_LAZY;
	bool lazy_send = end->threads[program->cqs[side->send_cq].thread].wait == WAIT_LAZY;
	bool early = !maker->features->late_receives;

	if (lazy_send && side->sq_depth < side->num_ops)
		side->sq_depth = side->num_ops;
	if (early)
		side->late = 0;
	if (side->srq >= 0) {
		struct srq *srq = &program->srqs[side->srq];
		int messages = srq_count_messages(program, side->srq);

		if (early)
			srq->late = 0;
		if ((lazy_recv || early) && srq->depth < messages)
			srq->depth = messages;
	} else if (lazy_recv || early) {
		int messages = side_count_receives(program, q, s);

		if (side->rq_depth < messages)
			side->rq_depth = messages;
	}
}

/* Law 11: a CQ that only receives may be armed for solicited messages, if all of them are. */
static void make_solicited(struct maker *maker, int cq)
{
	struct program *program = maker->program;

	if (!maker->features->solicited || !rng_chance(&maker->rng, 30))
		return;
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			if (program->qps[q].sides[s].send_cq == cq)
				return;
	program->cqs[cq].solicited = 1;
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			struct side *peer = &program->qps[q].sides[!s];

			if (program->qps[q].sides[s].recv_cq != cq)
				continue;
			for (int i = 0; i < peer->num_ops; i++)
				peer->ops[i].solicited |= op_is_message(&peer->ops[i]);
		}
}

/* Law 10. */
static bool may_end(const struct program *program, const struct fault *fault)
{
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			const struct side *side = &program->qps[q].sides[s];
			const struct end *end = &program->ends[side->end];
			int send = program->cqs[side->send_cq].thread;
			int recv = program->cqs[side->recv_cq].thread;

			if (fault->kind != FAULT_KILL && fault->qp != q)
				continue;
			if (side->srq >= 0 && send != recv)
				return false;
			if (fault->kind == FAULT_DESTROY &&
			    (end->threads[send].wait == WAIT_EVENT ||
			     end->threads[send].wait == WAIT_EPOLL ||
			     end->threads[recv].wait == WAIT_EVENT ||
			     end->threads[recv].wait == WAIT_EPOLL))
				return false;
		}
	return true;
}

static void make_fault(struct maker *maker)
{
	struct program *program = maker->program;
	struct rng *rng = &maker->rng;
	struct fault *fault = &program->fault;
	int total = 0;

	if (maker->theme == THEME_QUIET || !rng_chance(rng, 25))
		return;
	for (int q = 0; q < program->num_qps; q++)
		total += program->qps[q].sides[0].num_ops + program->qps[q].sides[1].num_ops;
	fault->kind = maker->features->ends ? rng_between(rng, FAULT_DISCONNECT, FAULT_KINDS - 1)
					    : FAULT_STOP;
	fault->qp = rng_below(rng, program->num_qps);
	fault->end = program->qps[fault->qp].sides[rng_below(rng, 2)].end;
	fault->after = rng_between(rng, 1, total);
	if (fault->kind == FAULT_STOP)
		fault->duration =
			rng_chance(rng, 95) ? rng_between(rng, 1, 30) : rng_between(rng, 30, 1000);
	else if (!may_end(program, fault))
		*fault = (struct fault){.kind = FAULT_NONE};
}

static enum theme choose_theme(struct rng *rng)
{
	int roll = rng_below(rng, 100);

	return roll < 35   ? THEME_MIXED
	       : roll < 55 ? THEME_QUIET
	       : roll < 65 ? THEME_CROSS
	       : roll < 78 ? THEME_SRQ
	       : roll < 86 ? THEME_PINGPONG
	       : roll < 92 ? THEME_ATOMICS
			   : THEME_STREAM;
}

void generate(struct program *program, uint64_t seed, const struct features *features)
{
	struct maker maker = {.rng = {seed}, .program = program, .features = features};
	struct rng *rng = &maker.rng;

	*program = (struct program){.seed = seed};
	maker.theme = choose_theme(rng);
	maker.budget = rng_chance(rng, 80) ? features->max_total / 8 : features->max_total;
	if (maker.theme == THEME_CROSS)
		maker.budget = features->max_total;
	make_ends(&maker);
	program->num_qps = maker.theme == THEME_QUIET ? 1
			   : maker.theme == THEME_SRQ ? rng_between(rng, 2, 4)
			   : rng_chance(rng, 60)      ? rng_between(rng, 1, 2)
						      : rng_between(rng, 1, MAX_QPS);
	for (int q = 0; q < program->num_qps; q++) {
		struct qp *qp = &program->qps[q];
		int a = rng_below(rng, program->num_ends);
		int b = (a + rng_between(rng, 1, program->num_ends - 1)) % program->num_ends;

		if (features->same_process && rng_chance(rng, 8))
			b = a;
		qp->ord = rng_between(rng, 1, 16);
		qp->ird = rng_between(rng, 1, 16);
		qp->number = features->numbers && rng_chance(rng, 40);
		make_side(&maker, q, 0, a);
		make_side(&maker, q, 1, b);
	}
	for (int q = 0; q < program->num_qps; q++)
		make_ops(&maker, q);
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			deepen(&maker, q, s);
			add_signals(&program->qps[q].sides[s]);
		}
	for (int c = 0; c < program->num_cqs; c++)
		make_solicited(&maker, c);
	make_fault(&maker);
}
