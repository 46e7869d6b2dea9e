/* SPDX-License-Identifier: MIT */
/* The layout of the ends' memory, and the patterns in it. */
#include <string.h>

#include "memory.h"

/* ---- layout ---- */

static size_t place(size_t *used, size_t len)
{
	size_t offset = *used + GUARD;

	*used = (offset + len + GUARD + 63) & ~(size_t)63;
	return offset;
}

size_t pieces_size(int len, int num)
{
	return (size_t)len + (num > 1 ? (size_t)(num - 1) * PIECE_GAP : 0);
}

void make_pieces(struct piece *pieces, int len, int num)
{
	size_t offset = 0;

	for (int i = 0; i < num; i++) {
		pieces[i] = (struct piece){offset, (size_t)(len / num + (i < len % num))};
		offset += pieces[i].len + PIECE_GAP;
	}
}

int recv_room(const struct side *side, const struct op *op)
{
	if (!op)
		return SPARE_BYTES;
	/* What is written by WRITE_WITH_IMM goes elsewhere. */
	return (op->kind == OP_WRITE_IMM ? 0 : op->len) + side->recv_slack;
}

static void place_side(struct layout *layout, const struct program *program, int q, int s)
{
	const struct side *side = &program->qps[q].sides[s], *peer = peer_of(program, q, s);
	size_t arena = 8;
	int message = 0;

	for (int i = 0; i < side->num_ops; i++) {
		const struct op *op = &side->ops[i];
		size_t last = (size_t)op->offset + (size_t)op->len;

		layout->op[q][s][i] =
			place(&layout->size[side->end], pieces_size(op->len, op->sge));
		if ((op->kind == OP_WRITE || op->kind == OP_WRITE_IMM || op->kind == OP_READ) &&
		    last > arena)
			arena = last;
	}
	layout->arena_len[q][s] = arena;
	layout->arena[q][s] = place(&layout->size[peer->end], arena);
	if (side->srq >= 0)
		return;
	for (int i = 0; i < peer->num_ops; i++)
		if (op_is_message(&peer->ops[i]))
			layout->recv[q][s][message++] =
				place(&layout->size[side->end],
				      pieces_size(recv_room(side, &peer->ops[i]), side->recv_sge));
	for (int i = 0; i < side->spare; i++)
		layout->recv[q][s][message++] =
			place(&layout->size[side->end], pieces_size(SPARE_BYTES, side->recv_sge));
}

void layout_make(struct layout *layout, const struct program *program)
{
	memset(layout, 0, sizeof(*layout));
	for (int e = 0; e < program->num_ends; e++) {
		layout->words[e] = place(&layout->size[e], MAX_WORDS * sizeof(uint64_t));
		layout->spare[e] = place(&layout->size[e], 64);
	}
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			place_side(layout, program, q, s);
	for (int i = 0; i < program->num_srqs; i++) {
		const struct srq *srq = &program->srqs[i];
		size_t *used = &layout->size[srq->end];
		size_t len = pieces_size(srq_longest_message(program, i), srq->recv_sge);

		layout->srq_stride[i] = (len + GUARD + 63) & ~(size_t)63;
		layout->srq[i] =
			place(used, layout->srq_stride[i] * (size_t)srq_count_messages(program, i));
	}
	for (int e = 0; e < program->num_ends; e++)
		layout->size[e] = (layout->size[e] + 4095) & ~(size_t)4095;
}

/* ---- patterns ---- */

static uint64_t mix(uint64_t value)
{
	struct rng rng = {value};

	return rng_next(&rng);
}

uint64_t make_tag(const struct program *program, enum tag_kind kind, int q, int s, int i)
{
	return mix(program->seed ^
		   mix((uint64_t)kind << 48 | (uint64_t)q << 40 | (uint64_t)s << 32 | (uint32_t)i));
}

static uint64_t pattern_word(uint64_t tag, size_t index)
{
	uint64_t word = (tag + index) * 0x9e3779b97f4a7c15u;

	return word ^ (word >> 29);
}

static uint8_t pattern_byte(uint64_t tag, size_t position)
{
	return (uint8_t)(pattern_word(tag, position / 8) >> (position % 8 * 8));
}

void pattern_fill(uint8_t *bytes, size_t len, uint64_t tag, size_t position)
{
	size_t i = 0;

	for (; i < len && (position + i) % 8; i++)
		bytes[i] = pattern_byte(tag, position + i);
	for (; i + 8 <= len; i += 8) {
		uint64_t word = pattern_word(tag, (position + i) / 8);

		memcpy(bytes + i, &word, 8);
	}
	for (; i < len; i++)
		bytes[i] = pattern_byte(tag, position + i);
}

ssize_t pattern_differs(const uint8_t *bytes, size_t len, uint64_t tag, size_t position)
{
	size_t i = 0;

	while (i < len) {
		if ((position + i) % 8 == 0 && i + 8 <= len) {
			uint64_t word;

			memcpy(&word, bytes + i, 8);
			if (word == pattern_word(tag, (position + i) / 8)) {
				i += 8;
				continue;
			}
		}
		if (bytes[i] != pattern_byte(tag, position + i))
			return (ssize_t)i;
		i++;
	}
	return -1;
}

ssize_t nonzero(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i])
			return (ssize_t)i;
	return -1;
}

/* ---- what a request carries ---- */

uint64_t op_tag(const struct program *program, int q, int s, int i)
{
	const struct op *op = &program->qps[q].sides[s].ops[i];
	bool writes = op->kind == OP_WRITE || op->kind == OP_WRITE_IMM;

	return make_tag(program, writes ? TAG_WRITE : TAG_MESSAGE, q, s, i);
}

size_t op_position(const struct op *op)
{
	return op->kind == OP_WRITE || op->kind == OP_WRITE_IMM ? (size_t)op->offset : 0;
}

uint32_t op_imm(const struct program *program, int q, int s, int i)
{
	return (uint32_t)make_tag(program, TAG_MESSAGE, q, s, i);
}

/* No two requests swap in the same value, and none swaps in the initial 0. */
uint64_t op_swap(const struct program *program, int q, int s, int i)
{
	return make_tag(program, TAG_MESSAGE, q, s, i) | 1;
}

/* A right guess is what this side swapped in last, unless another one came in between. */
uint64_t op_compare(const struct program *program, int q, int s, int i)
{
	const struct side *side = &program->qps[q].sides[s];
	const struct op *op = &side->ops[i];

	if (!op->operand)
		return 0;
	for (int j = i - 1; j >= 0; j--)
		if (side->ops[j].kind == OP_CMP_SWP && side->ops[j].word == op->word)
			return op_swap(program, q, s, j);
	return 0;
}
