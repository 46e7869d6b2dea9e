/* SPDX-License-Identifier: MIT */
/* The rules for memory: which values a byte may have, and what atomics may have returned. */
#include <string.h>

#include "model.h"

/* ---- arenas ---- */

static bool covers(const struct op *op, size_t from, size_t to)
{
	return (op->kind == OP_WRITE || op->kind == OP_WRITE_IMM) && (size_t)op->offset <= from &&
	       (size_t)op->offset + (size_t)op->len >= to && op->len > 0;
}

/* The next place after @from, at most @to, where a WRITE begins or ends. */
static size_t next_edge(const struct side *side, size_t from, size_t to)
{
	for (int i = 0; i < side->num_ops; i++) {
		const struct op *op = &side->ops[i];
		size_t start = (size_t)op->offset, stop = start + (size_t)op->len;

		if (op->kind != OP_WRITE && op->kind != OP_WRITE_IMM)
			continue;
		if (start > from && start < to)
			to = start;
		if (stop > from && stop < to)
			to = stop;
	}
	return to;
}

/* Tags of what the bytes [@from, @to), between two edges, may hold; their number. */
static int find_candidates(const struct run *run, int q, int s, size_t from, size_t to, int must,
			   int may, uint64_t *tags)
{
	const struct side *side = &run->program->qps[q].sides[s];
	int num = 0, i;

	for (i = must; i >= 0 && !covers(&side->ops[i], from, to); i--)
		;
	tags[num++] = i >= 0 ? op_tag(run->program, q, s, i)
			     : make_tag(run->program, TAG_INITIAL, q, s, 0);
	for (i = must + 1; i < may; i++)
		if (covers(&side->ops[i], from, to))
			tags[num++] = op_tag(run->program, q, s, i);
	return num;
}

/* Each byte has the value of one of the tags; -1, or which has not. */
static ssize_t mixture_differs(const uint8_t *bytes, size_t len, const uint64_t *tags, int num,
			       size_t position)
{
	for (int t = 0; t < num; t++)
		if (pattern_differs(bytes, len, tags[t], position) < 0)
			return -1;
	for (size_t i = 0; i < len; i++) {
		int t = 0;

		while (t < num && pattern_differs(bytes + i, 1, tags[t], position + i) >= 0)
			t++;
		if (t == num)
			return (ssize_t)i;
	}
	return -1;
}

bool arena_is_right(const struct run *run, int q, int s, const uint8_t *bytes, size_t from,
		    size_t to, int must, int may, size_t *wrong)
{
	const struct side *side = &run->program->qps[q].sides[s];
	uint64_t tags[MAX_OPS + 1];
	size_t start = from;

	if (must >= side->num_ops)
		must = side->num_ops - 1;
	while (from < to) {
		size_t edge = next_edge(side, from, to);
		int num = find_candidates(run, q, s, from, edge, must, may, tags);
		ssize_t at = mixture_differs(bytes + (from - start), edge - from, tags, num, from);

		if (at >= 0) {
			*wrong = from + (size_t)at;
			return false;
		}
		from = edge;
	}
	return true;
}

bool arena_is_complete(const struct run *run, int q, int s)
{
	const struct side *side = &run->program->qps[q].sides[s];
	const uint8_t *arena =
		run->view[peer_of(run->program, q, s)->end] + run->layout.arena[q][s];
	size_t wrong;

	return arena_is_right(run, q, s, arena, 0, run->layout.arena_len[q][s], side->num_ops - 1,
			      side->num_ops, &wrong);
}

/* ---- messages ---- */

bool message_is_right(const struct run *run, int q, int s, int i, const uint8_t *buffer, int room,
		      int num, char *why, size_t why_size)
{
	const struct op *op = &run->program->qps[q].sides[s].ops[i];
	size_t left = op->kind == OP_WRITE_IMM ? 0 : (size_t)op->len, position = 0;
	uint64_t tag = op_tag(run->program, q, s, i);
	struct piece pieces[MAX_SGE];
	ssize_t at;

	make_pieces(pieces, room, num);
	if (nonzero(buffer - GUARD, GUARD) >= 0) {
		snprintf(why, why_size, "something was written before the receive");
		return false;
	}
	for (int p = 0; p < num; p++) {
		const uint8_t *bytes = buffer + pieces[p].offset;
		size_t here = pieces[p].len < left ? pieces[p].len : left;

		if ((at = pattern_differs(bytes, here, tag, position)) >= 0) {
			snprintf(why, why_size, "byte %zu is %#x", position + (size_t)at,
				 bytes[at]);
			return false;
		}
		if ((at = nonzero(bytes + here, pieces[p].len - here + PIECE_GAP)) >= 0) {
			snprintf(why, why_size, "something was written %zd bytes behind piece %d",
				 at, p);
			return false;
		}
		position += here;
		left -= here;
	}
	return true;
}

/* ---- atomics ---- */

struct atomic {
	int q, s, i;
	uint64_t found;
	bool used;
};

enum { MAX_ATOMICS = MAX_QPS * 2 * MAX_OPS };

/* All atomics that reached a word and have completed. False: some may have done so unseen. */
static bool collect_atomics(const struct run *run, int end, int word, int kind,
			    struct atomic *atomics, int *num)
{
	const struct program *program = run->program;
	bool all = true;

	*num = 0;
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			const struct side *side = &program->qps[q].sides[s];

			if (peer_of(program, q, s)->end != end)
				continue;
			for (int i = 0; i < side->num_ops; i++) {
				const struct op *op = &side->ops[i];
				struct atomic *atomic = &atomics[*num];

				if (op->kind != kind || op->word != word)
					continue;
				if (run->board->sides[q][s].ended) {
					all = false;
					continue;
				}
				*atomic = (struct atomic){.q = q, .s = s, .i = i};
				memcpy(&atomic->found,
				       run->view[side->end] + run->layout.op[q][s][i], 8);
				++*num;
			}
		}
	return all;
}

static uint64_t word_value(const struct run *run, int end, int word)
{
	uint64_t value;

	memcpy(&value, run->view[end] + run->layout.words[end] + (size_t)word * 8, 8);
	return value;
}

static void fail_atomic(const struct run *run, int end, int word, const struct atomic *atomic,
			const char *what)
{
	board_fail(run->board, "atomic",
		   "word %d of end %d: %s; qp %d side %d request %d found %#llx, the word is %#llx",
		   word, end, what, atomic->q, atomic->s, atomic->i,
		   (unsigned long long)atomic->found,
		   (unsigned long long)word_value(run, end, word));
}

/* Every result is the sum of those that came before, in some order, and the word is the sum. */
static void check_adds(struct run *run, int end, int word, struct atomic *atomics, int num)
{
	uint64_t sum = 0;
	int left = num;

	while (left > 0) {
		int i = 0;

		while (i < num && (atomics[i].used || atomics[i].found != sum))
			i++;
		if (i == num) {
			for (i = 0; atomics[i].used; i++)
				;
			fail_atomic(run, end, word, &atomics[i],
				    "results of FETCH_ADD do not add up");
			return;
		}
		atomics[i].used = true;
		sum += (uint64_t)run->program->qps[atomics[i].q]
			       .sides[atomics[i].s]
			       .ops[atomics[i].i]
			       .operand;
		left--;
	}
	if (num > 0 && word_value(run, end, word) != sum)
		fail_atomic(run, end, word, &atomics[0], "the sum of FETCH_ADDs is wrong");
}

/* Those that swapped form a chain from 0 to the word's value; the others found a part of it. */
static void check_swaps(struct run *run, int end, int word, struct atomic *atomics, int num)
{
	uint64_t chain[MAX_ATOMICS + 1] = {0}, value = 0;
	int links = 1;

	for (int i = 0; i < num; i++) {
		struct atomic *atomic = &atomics[i];

		if (!atomic->used && atomic->found == value &&
		    op_compare(run->program, atomic->q, atomic->s, atomic->i) == value) {
			atomic->used = true;
			value = op_swap(run->program, atomic->q, atomic->s, atomic->i);
			chain[links++] = value;
			i = -1;
		}
	}
	for (int i = 0; i < num; i++) {
		int link = 0;

		if (atomics[i].used)
			continue;
		while (link < links && chain[link] != atomics[i].found)
			link++;
		if (link == links || atomics[i].found == op_compare(run->program, atomics[i].q,
								    atomics[i].s, atomics[i].i)) {
			fail_atomic(run, end, word, &atomics[i],
				    "results of CMP_SWP form no chain");
			return;
		}
	}
	if (num > 0 && word_value(run, end, word) != value)
		fail_atomic(run, end, word, &atomics[0], "the last CMP_SWP is not in the word");
}

static void check_words(struct run *run, int end)
{
	static struct atomic atomics[MAX_ATOMICS];
	int num;

	for (int word = 0; word < MAX_WORDS; word++) {
		bool adds = word % 2 == 0;

		if (!collect_atomics(run, end, word, adds ? OP_FETCH_ADD : OP_CMP_SWP, atomics,
				     &num))
			continue;
		if (adds)
			check_adds(run, end, word, atomics, num);
		else
			check_swaps(run, end, word, atomics, num);
	}
}

/* ---- after the run ---- */

/* Everything written is there, and nothing around it. */
static void check_arena(struct run *run, int q, int s)
{
	const struct side *side = &run->program->qps[q].sides[s];
	const struct side_board *sb = &run->board->sides[q][s];
	const uint8_t *arena =
		run->view[peer_of(run->program, q, s)->end] + run->layout.arena[q][s];
	size_t len = run->layout.arena_len[q][s], wrong;
	/* Without the rule of placement, what completed last may have been lost on the way. */
	int must = !sb->ended ? side->num_ops - 1 : run->placed ? sb->completed - 1 : -1;
	int may = sb->ended ? sb->posted : side->num_ops;

	if (sb->failed)
		must = -1; /* which of the completed ones failed is not kept */
	if (!arena_is_right(run, q, s, arena, 0, len, must, may, &wrong))
		board_fail(run->board, "memory",
			   "qp %d side %d: byte %zu of its arena is wrong at the end", q, s, wrong);
	if (nonzero(arena - GUARD, GUARD) >= 0 || nonzero(arena + len, GUARD) >= 0)
		board_fail(run->board, "canary", "qp %d side %d: bytes around its arena changed", q,
			   s);
}

void model_finish(struct run *run)
{
	for (int q = 0; q < run->program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			check_arena(run, q, s);
	for (int e = 0; e < run->program->num_ends; e++)
		check_words(run, e);
}
