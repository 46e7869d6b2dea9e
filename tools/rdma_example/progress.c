/* SPDX-License-Identifier: MIT */
/* How progress looks. */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "common.h"

#define BETWEEN_MS 200
#define MIB        (1024.0 * 1024.0)

static void draw(const struct progress *progress, uint64_t done)
{
	uint64_t ms = common_now_ms() - progress->begin_ms + 1;

	fprintf(stderr, "\r%-12s %3d%%  %.1f of %.1f MiB  %.1f MiB/s\033[K", progress->what,
		(int)((double)done * 100 / (double)progress->size), (double)done / MIB,
		(double)progress->size / MIB, (double)done / MIB * 1000 / (double)ms);
	fflush(stderr);
}

void progress_start(struct progress *progress, const char *what, uint64_t size, bool wanted)
{
	*progress = (struct progress){
		.what = wanted && isatty(STDERR_FILENO) ? what : NULL,
		.size = size,
		.begin_ms = common_now_ms(),
	};
	if (progress->what)
		fflush(stdout);
}

void progress_show(struct progress *progress, uint64_t done)
{
	uint64_t now;

	if (!progress->what)
		return;
	now = common_now_ms();
	if (now - progress->drawn_ms < BETWEEN_MS)
		return;
	progress->drawn_ms = now;
	draw(progress, done);
}

void progress_stop(struct progress *progress, uint64_t done)
{
	if (!progress->what)
		return;
	draw(progress, done);
	fputc('\n', stderr);
	progress->what = NULL;
}
