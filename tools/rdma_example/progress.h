/* SPDX-License-Identifier: MIT */
/* How far a transfer has come: one line of a terminal, drawn anew some times a second. */
#ifndef RDMA_EXAMPLE_PROGRESS_H
#define RDMA_EXAMPLE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *what; /* NULL: nothing is drawn */
	uint64_t size, begin_ms, drawn_ms;
};

/* Nothing is drawn if standard error is no terminal, or if it is not @wanted. */
void progress_start(struct progress *progress, const char *what, uint64_t size, bool wanted);
void progress_show(struct progress *progress, uint64_t done);
/* Draws how far it came, and leaves the line. */
void progress_stop(struct progress *progress, uint64_t done);

#endif
