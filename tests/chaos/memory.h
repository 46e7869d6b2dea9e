/* SPDX-License-Identifier: MIT */
/*
 * Where everything lies in the memory of the ends, and which bytes belong there. Every process
 * computes the same from the program.
 *
 * The memory of an end is a memfd. All processes can look at it; but the address at which an end
 * registers it is mapped in that end alone, so that a device cannot mistake one end for another.
 */
#ifndef CHAOS_MEMORY_H
#define CHAOS_MEMORY_H

#include <sys/types.h>

#include "program.h"

enum { GUARD = 64, PIECE_GAP = 16 };

struct layout {
	size_t size[MAX_ENDS];
	size_t op[MAX_QPS][2][MAX_OPS];               /* the local buffer of a request */
	size_t recv[MAX_QPS][2][MAX_OPS + MAX_SPARE]; /* receives of a side's own queue */
	size_t srq[MAX_SRQS];                         /* its first receive */
	size_t srq_stride[MAX_SRQS];
	size_t arena[MAX_QPS][2]; /* what the side writes and reads, in its peer's memory */
	size_t arena_len[MAX_QPS][2];
	size_t words[MAX_ENDS]; /* targets of atomics */
	size_t spare[MAX_ENDS]; /* regions that are there to be invalidated */
};

void layout_make(struct layout *layout, const struct program *program);

/* The address at which an end has its memory: nothing else is there, also beside sanitizers. */
static inline uint64_t end_address(int end)
{
	return 0x566000000000u + ((uint64_t)end << 33);
}

struct piece {
	size_t offset; /* in the buffer */
	size_t len;
};
/* A buffer of @len bytes in @num pieces, with gaps between them. */
void make_pieces(struct piece *pieces, int len, int num);
size_t pieces_size(int len, int num);

/* Bytes of a receive for a message of the peer; NULL: for none. */
int recv_room(const struct side *side, const struct op *op);

/* ---- bytes ---- */

enum tag_kind { TAG_MESSAGE, TAG_WRITE, TAG_INITIAL };
uint64_t make_tag(const struct program *program, enum tag_kind kind, int q, int s, int i);
void pattern_fill(uint8_t *bytes, size_t len, uint64_t tag, size_t position);
/* Where the first byte that differs is; -1: none does. */
ssize_t pattern_differs(const uint8_t *bytes, size_t len, uint64_t tag, size_t position);
/* Where the first byte is that is not 0; -1: all are. */
ssize_t nonzero(const uint8_t *bytes, size_t len);

/* The tag of what request @i carries, SEND or WRITE. */
uint64_t op_tag(const struct program *program, int q, int s, int i);
/* Where the pattern begins: a WRITE's depends on the place in the arena. */
size_t op_position(const struct op *op);
uint32_t op_imm(const struct program *program, int q, int s, int i);
uint64_t op_swap(const struct program *program, int q, int s, int i);
uint64_t op_compare(const struct program *program, int q, int s, int i);

#endif
