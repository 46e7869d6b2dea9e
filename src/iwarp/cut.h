/* SPDX-License-Identifier: MIT */
/* How a list of pieces is cut into requests that a device takes: no I/O, no memory. */
#ifndef IWARP_CUT_H
#define IWARP_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "iwarp_objs.h"

/* How far it has come. All zero but for the list: at its begin. */
struct cut {
	const struct iw_sgl *sgl;
	unsigned piece;
	size_t at; /* in that piece */
};

/* Of one request. */
struct cut_limits {
	unsigned pieces; /* 1 .. IW_MAX_SGE */
	uint32_t bytes;  /* 1 at least */
};

/* A part of a piece. */
struct cut_part {
	unsigned piece;
	size_t at;
	uint32_t length;
};

/* The parts of the next request: their number, and the bytes in all. Parts are never empty. */
unsigned cut_next(struct cut *cut, const struct cut_limits *limits, struct cut_part *out,
		  uint32_t *bytes);
bool cut_is_done(struct cut *cut);

/* The bytes of a list; false: more than there can be. */
bool cut_total(const struct iw_sgl *sgl, uint64_t *total);

#endif
