/* SPDX-License-Identifier: MIT */
#include "cut.h"

bool cut_is_done(struct cut *cut)
{
	while (cut->piece < cut->sgl->num_sge && cut->at == cut->sgl->sge[cut->piece].length) {
		cut->piece++;
		cut->at = 0;
	}
	return cut->piece == cut->sgl->num_sge;
}

unsigned cut_next(struct cut *cut, const struct cut_limits *limits, struct cut_part *out,
		  uint32_t *bytes)
{
	uint32_t room = limits->bytes;
	unsigned count = 0;

	while (count < limits->pieces && room && !cut_is_done(cut)) {
		size_t left = cut->sgl->sge[cut->piece].length - cut->at;
		uint32_t length = left < room ? (uint32_t)left : room;

		out[count++] = (struct cut_part){cut->piece, cut->at, length};
		cut->at += length;
		room -= length;
	}
	*bytes = limits->bytes - room;
	return count;
}

bool cut_total(const struct iw_sgl *sgl, uint64_t *total)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < sgl->num_sge; i++)
		if (__builtin_add_overflow(sum, (uint64_t)sgl->sge[i].length, &sum))
			return false;
	*total = sum;
	return true;
}
