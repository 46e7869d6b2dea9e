/* SPDX-License-Identifier: MIT */
/* Lies about completions, once in a run: what the model must notice. For testing the tester. */
#ifndef CHAOS_LIE_H
#define CHAOS_LIE_H

#include "model.h"

enum lie {
	LIE_NONE,
	LIE_DROP,
	LIE_TWICE,
	LIE_SWAP,
	LIE_BYTE,
	LIE_READ,
	LIE_ATOMIC,
	LIE_STATUS,
	LIE_LENGTH,
	LIE_KINDS
};
extern const char *const lie_names[LIE_KINDS];

/* Change what was polled from @cq; how many completions there are now. */
int lie_about(struct run *run, int cq, struct ibv_wc *wcs, int num);

#endif
