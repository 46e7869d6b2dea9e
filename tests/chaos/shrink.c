/* SPDX-License-Identifier: MIT */
/*
 * Makes a failing program shorter: one edit at a time, coarse ones first. An edit stays if the
 * program is still lawful and still fails by the same rule.
 */
#include <string.h>

#include "run.h"

struct shrinker {
	struct program *program; /* the shortest one so far */
	struct verdict *verdict; /* and why it fails */
	struct options options;
	int repeats; /* a failure may need luck */
	double until;
};

/* ---- trying ---- */

static bool still_fails(struct shrinker *shrinker, const struct program *program)
{
	struct verdict verdict;

	for (int i = 0; i < shrinker->repeats && now() < shrinker->until; i++) {
		run_program(program, &shrinker->options, &verdict);
		if (verdict.failed && !strcmp(verdict.rule, shrinker->verdict->rule)) {
			*shrinker->verdict = verdict;
			return true;
		}
	}
	return false;
}

/* How often to try: enough to see a failure again, as often as it came at first. */
static int choose_repeats(struct shrinker *shrinker)
{
	struct verdict verdict;
	int failures = 0, runs = 0;

	while (runs < 40 && failures < 4 && now() < shrinker->until) {
		runs++;
		run_program(shrinker->program, &shrinker->options, &verdict);
		failures += verdict.failed && !strcmp(verdict.rule, shrinker->verdict->rule);
	}
	if (failures == 0)
		return 40;
	runs = 3 * runs / failures;
	return runs < 2 ? 2 : runs > 40 ? 40 : runs;
}

/* ---- mending what an edit leaves behind ---- */

/* Laws 4 and 1 of generate.c. */
static void mend_side(struct program *program, int q, int s)
{
	struct side *side = &program->qps[q].sides[s];
	int silent = 0;

	if (s == 1 && side->num_ops > 0 && side->ops[0].await < 1)
		side->ops[0].await = 1;
	for (int i = 0; i < side->num_ops; i++) {
		if (silent + 1 >= side->sq_depth || i + 1 == side->num_ops)
			side->ops[i].signaled = 1;
		silent = op_is_signaled(side, &side->ops[i]) ? 0 : silent + 1;
	}
	if (side->batch > side->rq_depth)
		side->batch = side->rq_depth;
}

static void mend(struct program *program)
{
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			mend_side(program, q, s);
	for (int i = 0; i < program->num_srqs; i++)
		if (program->srqs[i].batch > program->srqs[i].depth)
			program->srqs[i].batch = program->srqs[i].depth;
}

/* Programs are made of integers and begin as zeros. */
static bool is_same(const struct program *a, const struct program *b)
{
	return memcmp((const void *)a, (const void *)b, sizeof(*a)) == 0;
}

static bool accept(struct shrinker *shrinker, struct program *program)
{
	mend(program);
	if (is_same(program, shrinker->program) || program_flaw(program) ||
	    !still_fails(shrinker, program))
		return false;
	*shrinker->program = *program;
	return true;
}

/* ---- edits ---- */

static void remove_qp(struct program *program, int q)
{
	memmove(&program->qps[q], &program->qps[q + 1],
		(size_t)(program->num_qps - q - 1) * sizeof(program->qps[0]));
	program->num_qps--;
	memset(&program->qps[program->num_qps], 0, sizeof(program->qps[0]));
	if (program->fault.qp > q)
		program->fault.qp--;
}

/* Who awaited the message awaits one less. */
static void remove_op(struct program *program, int q, int s, int i)
{
	struct side *side = &program->qps[q].sides[s], *peer = &program->qps[q].sides[!s];
	int message = 0;

	for (int j = 0; j < i; j++)
		message += op_is_message(&side->ops[j]);
	for (int j = 0; op_is_message(&side->ops[i]) && j < peer->num_ops; j++)
		if (peer->ops[j].await > message)
			peer->ops[j].await--;
	memmove(&side->ops[i], &side->ops[i + 1],
		(size_t)(side->num_ops - i - 1) * sizeof(side->ops[0]));
	side->num_ops--;
	memset(&side->ops[side->num_ops], 0, sizeof(side->ops[0]));
}

static void remove_cq(struct program *program, int c)
{
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			struct side *side = &program->qps[q].sides[s];

			side->send_cq -= side->send_cq > c;
			side->recv_cq -= side->recv_cq > c;
		}
	memmove(&program->cqs[c], &program->cqs[c + 1],
		(size_t)(program->num_cqs - c - 1) * sizeof(program->cqs[0]));
	program->num_cqs--;
	memset(&program->cqs[program->num_cqs], 0, sizeof(program->cqs[0]));
}

static void remove_srq(struct program *program, int i)
{
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			program->qps[q].sides[s].srq -= program->qps[q].sides[s].srq > i;
	memmove(&program->srqs[i], &program->srqs[i + 1],
		(size_t)(program->num_srqs - i - 1) * sizeof(program->srqs[0]));
	program->num_srqs--;
	memset(&program->srqs[program->num_srqs], 0, sizeof(program->srqs[0]));
}

static void remove_end(struct program *program, int e)
{
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			program->qps[q].sides[s].end -= program->qps[q].sides[s].end > e;
	for (int c = 0; c < program->num_cqs; c++)
		program->cqs[c].end -= program->cqs[c].end > e;
	for (int i = 0; i < program->num_srqs; i++)
		program->srqs[i].end -= program->srqs[i].end > e;
	program->fault.end -= program->fault.end > e;
	memmove(&program->ends[e], &program->ends[e + 1],
		(size_t)(program->num_ends - e - 1) * sizeof(program->ends[0]));
	program->num_ends--;
	memset(&program->ends[program->num_ends], 0, sizeof(program->ends[0]));
}

/* Does anything use a thing of this kind and number? */
enum thing { THING_CQ, THING_SRQ, THING_END };

static bool is_used(const struct program *program, enum thing thing, int number)
{
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			const struct side *side = &program->qps[q].sides[s];

			if ((thing == THING_CQ &&
			     (side->send_cq == number || side->recv_cq == number)) ||
			    (thing == THING_SRQ && side->srq == number) ||
			    (thing == THING_END && side->end == number))
				return true;
		}
	return false;
}

/* What nothing refers to any more. */
static void remove_unused(struct program *program)
{
	for (int c = program->num_cqs - 1; c >= 0 && program->num_cqs > 1; c--)
		if (!is_used(program, THING_CQ, c))
			remove_cq(program, c);
	for (int i = program->num_srqs - 1; i >= 0; i--)
		if (!is_used(program, THING_SRQ, i))
			remove_srq(program, i);
	for (int e = program->num_ends - 1; e >= 0 && program->num_ends > 1; e--)
		if (!is_used(program, THING_END, e) && program->fault.end != e)
			remove_end(program, e);
}

/* All of an end's work in its first thread. */
static void use_one_thread(struct program *program, int e)
{
	for (int c = 0; c < program->num_cqs; c++)
		if (program->cqs[c].end == e)
			program->cqs[c].thread = 0;
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			if (program->qps[q].sides[s].end == e)
				program->qps[q].sides[s].thread = 0;
	memset(&program->ends[e].threads[1], 0,
	       sizeof(program->ends[e].threads[0]) * (MAX_THREADS - 1));
	program->ends[e].num_threads = 1;
}

/* ---- passes ---- */

static void shrink_objects(struct shrinker *shrinker)
{
	struct program program;

	for (int q = shrinker->program->num_qps - 1; q >= 0; q--)
		if (shrinker->program->num_qps > 1) {
			program = *shrinker->program;
			remove_qp(&program, q);
			remove_unused(&program);
			accept(shrinker, &program);
		}
	program = *shrinker->program;
	program.fault = (struct fault){.kind = FAULT_NONE};
	accept(shrinker, &program);
	program = *shrinker->program;
	remove_unused(&program);
	accept(shrinker, &program);
	for (int e = 0; e < shrinker->program->num_ends; e++) {
		program = *shrinker->program;
		use_one_thread(&program, e);
		accept(shrinker, &program);
	}
}

/* Leave out requests: many at first, then fewer. */
static void shrink_ops(struct shrinker *shrinker, int q, int s)
{
	const struct side *side = &shrinker->program->qps[q].sides[s];
	int first = s == 0; /* the initiator's hello stays */

	for (int num = side->num_ops - first; num >= 1; num = num > 1 ? (num + 1) / 2 : 0)
		for (int at = side->num_ops - num; at >= first; at -= num) {
			struct program program = *shrinker->program;

			for (int k = 0; k < num; k++)
				remove_op(&program, q, s, at);
			accept(shrinker, &program);
			if (at > side->num_ops)
				at = side->num_ops;
		}
}

/* A field and the plain value that it may take. */
struct plain {
	size_t offset;
	int value;
};

static const struct plain plain_op[] = {
	{offsetof(struct op, pause), 0},     {offsetof(struct op, fence), 0},
	{offsetof(struct op, solicited), 0}, {offsetof(struct op, inlined), 0},
	{offsetof(struct op, chain), 0},     {offsetof(struct op, drain), 0},
	{offsetof(struct op, await), 0},     {offsetof(struct op, offset), 0},
	{offsetof(struct op, signaled), 1},
};
static const struct plain plain_side[] = {
	{offsetof(struct side, modern), 0},     {offsetof(struct side, late), 0},
	{offsetof(struct side, recv_slack), 0}, {offsetof(struct side, srq), -1},
	{offsetof(struct side, sig_all), 1},    {offsetof(struct side, recv_sge), 1},
	{offsetof(struct side, batch), 1},      {offsetof(struct side, spare), 0},
	{offsetof(struct side, sq_depth), 64},  {offsetof(struct side, rq_depth), 64},
};
#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

static void set_field(void *object, const struct plain *plain)
{
	*(int *)((char *)object + plain->offset) = plain->value;
}

static void simplify_sides(struct shrinker *shrinker, int q, int s)
{
	struct program program;

	for (size_t f = 0; f < LENGTH(plain_side); f++) {
		program = *shrinker->program;
		set_field(&program.qps[q].sides[s], &plain_side[f]);
		remove_unused(&program);
		accept(shrinker, &program);
	}
	for (size_t f = 0; f < LENGTH(plain_op); f++) {
		program = *shrinker->program;
		for (int i = 0; i < program.qps[q].sides[s].num_ops; i++)
			set_field(&program.qps[q].sides[s].ops[i], &plain_op[f]);
		accept(shrinker, &program);
	}
	program = *shrinker->program;
	program.qps[q].sides[s].recv_cq = program.qps[q].sides[s].send_cq;
	remove_unused(&program);
	accept(shrinker, &program);
}

/* One request: a single piece, plain flags, half the length again and again. */
static void simplify_op(struct shrinker *shrinker, int q, int s, int i)
{
	struct program program = *shrinker->program;
	struct op *op = &program.qps[q].sides[s].ops[i];

	if (!op_is_atomic(op)) {
		if (op->sge > 1) {
			op->sge = 1;
			accept(shrinker, &program);
		}
		do {
			program = *shrinker->program;
			op->len = op->len > 64 ? op->len / 2 : op->len > 8 ? 8 : op->len;
			op->sge = op->len == 0 ? 0 : op->sge > op->len ? 1 : op->sge;
		} while (accept(shrinker, &program));
	}
	for (size_t f = 0; f < LENGTH(plain_op); f++) {
		program = *shrinker->program;
		set_field(op, &plain_op[f]);
		accept(shrinker, &program);
	}
}

static void simplify_ends(struct shrinker *shrinker)
{
	for (int e = 0; e < shrinker->program->num_ends; e++) {
		struct program program = *shrinker->program;

		program.ends[e].tidy = 0;
		accept(shrinker, &program);
		for (int t = 0; t < shrinker->program->ends[e].num_threads; t++) {
			program = *shrinker->program;
			if (program.ends[e].threads[t].wait == WAIT_NONE)
				continue;
			program.ends[e].threads[t] = (struct thread){.wait = WAIT_POLL, .batch = 1};
			if (accept(shrinker, &program))
				continue;
			program = *shrinker->program;
			program.ends[e].threads[t].batch = 1;
			accept(shrinker, &program);
		}
	}
}

void shrink(struct program *program, const struct options *options, struct verdict *verdict,
	    int seconds)
{
	struct shrinker shrinker = {
		.program = program,
		.verdict = verdict,
		.options = *options,
		.until = now() + seconds,
	};
	struct program before;

	if (shrinker.options.patience > 3)
		shrinker.options.patience = 3; /* a hang that hangs is a hang */
	shrinker.repeats = choose_repeats(&shrinker);
	do {
		before = *program;
		shrink_objects(&shrinker);
		for (int q = 0; q < program->num_qps; q++)
			for (int s = 0; s < 2; s++)
				shrink_ops(&shrinker, q, s);
		simplify_ends(&shrinker);
		for (int q = 0; q < program->num_qps; q++)
			for (int s = 0; s < 2; s++) {
				simplify_sides(&shrinker, q, s);
				for (int i = 0; i < program->qps[q].sides[s].num_ops; i++)
					simplify_op(&shrinker, q, s, i);
			}
	} while (!is_same(&before, program) && now() < shrinker.until);
}
