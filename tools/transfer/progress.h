/* SPDX-License-Identifier: MIT */
/* A progress bar on a terminal: one line of standard error, drawn anew some times a second. */
#ifndef IBMSG_TOOLS_PROGRESS_H
#define IBMSG_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define PROGRESS_MS 200 /* between two drawings */

struct progress {
	const char *name; /* NULL: nothing is drawn */
	uint64_t size;    /* UINT64_MAX: not known */
	uint64_t begin, drawn;
};

/* Nothing is drawn if standard error is no terminal, or if it is not @wanted. */
void progress_start(struct progress *progress, const char *name, uint64_t size, bool wanted);
/* Cheap: most calls draw nothing. */
void progress_show(struct progress *progress, uint64_t done);
/* Draws the last state, and leaves the line. May be called again. */
void progress_stop(struct progress *progress, uint64_t done);

/* "4.5 MiB"; @out has room for PROGRESS_BYTES_TEXT. */
#define PROGRESS_BYTES_TEXT 16
const char *progress_bytes(char out[PROGRESS_BYTES_TEXT], uint64_t bytes);

#endif
