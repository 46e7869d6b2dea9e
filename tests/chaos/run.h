/* SPDX-License-Identifier: MIT */
/* Running one program: the ends as processes, the faults from outside, the verdict. */
#ifndef CHAOS_RUN_H
#define CHAOS_RUN_H

#include "program.h"

struct options {
	bool placed;
	int lie;      /* enum lie */
	int patience; /* seconds without any progress until it counts as a hang */
};

struct verdict {
	bool failed;
	char rule[32];
	char text[2000];
	char logs[6000]; /* what the ends said */
};

void run_program(const struct program *program, const struct options *options,
		 struct verdict *verdict);

/* ---- shrink.c ---- */

/*
 * Make @program shorter as long as it fails by the same rule. @seconds: about how long it may
 * take.
 */
void shrink(struct program *program, const struct options *options, struct verdict *verdict,
	    int seconds);

double now(void);

#endif
