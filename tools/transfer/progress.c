/* SPDX-License-Identifier: MIT */
/* How a progress bar looks. */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define NAME_COLUMNS   20
#define LEAST_BAR      8
#define MOST_BAR       40
#define COLUMNS_UNTOLD 80
#define COLUMNS_MOST   200

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int terminal_columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 2)
		return COLUMNS_UNTOLD;
	return size.ws_col < COLUMNS_MOST ? size.ws_col : COLUMNS_MOST;
}

const char *progress_bytes(char out[PROGRESS_BYTES_TEXT], uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double number = (double)bytes / 1024;
	unsigned unit = 0;

	if (bytes < 1024) {
		snprintf(out, PROGRESS_BYTES_TEXT, "%u B", (unsigned)bytes);
		return out;
	}
	while (number >= 999.95) { /* a fourth digit would cost the bar its place */
		number /= 1024;
		unit++;
	}
	snprintf(out, PROGRESS_BYTES_TEXT, "%.1f %s", number, units[unit]);
	return out;
}

/* "[=====>    ]" of @columns in all; nothing if that is too narrow for one. */
static void put_bar(char *out, int columns, double part)
{
	int inside = columns - 2, filled;

	*out = '\0';
	if (inside < LEAST_BAR)
		return;
	if (inside > MOST_BAR)
		inside = MOST_BAR;
	filled = (int)(part * inside);
	out[0] = '[';
	memset(out + 1, '=', (size_t)filled);
	memset(out + 1 + filled, ' ', (size_t)(inside - filled));
	if (filled < inside)
		out[1 + filled] = '>';
	strcpy(out + 1 + inside, "]");
}

/* How long it takes yet; when all is there, how long it took. */
static void put_time(char *out, size_t size, uint64_t left, uint64_t rate, uint64_t ms)
{
	uint64_t seconds = ms / 1000;

	if (left && !rate) {
		snprintf(out, size, "-:--");
		return;
	}
	if (left)
		seconds = left / rate + 1;
	if (seconds < 3600)
		snprintf(out, size, "%u:%02u", (unsigned)(seconds / 60), (unsigned)(seconds % 60));
	else
		snprintf(out, size, "%.1f h", (double)seconds / 3600);
}

/* "4.5 MiB of 9.0 MiB  512.0 MiB/s  0:12" */
static int put_figures(char *out, size_t size, const struct progress *progress, uint64_t done)
{
	char so_far[PROGRESS_BYTES_TEXT], all[PROGRESS_BYTES_TEXT], each[PROGRESS_BYTES_TEXT];
	uint64_t ms = now_ms() - progress->begin + 1;
	uint64_t rate = (uint64_t)((double)done * 1000 / (double)ms);
	char time_[32];

	progress_bytes(so_far, done);
	progress_bytes(each, rate);
	if (progress->size == UINT64_MAX)
		return snprintf(out, size, "%s  %s/s", so_far, each);
	progress_bytes(all, progress->size);
	put_time(time_, sizeof(time_), done < progress->size ? progress->size - done : 0, rate, ms);
	return snprintf(out, size, "%s of %s  %s/s  %s", so_far, all, each, time_);
}

static void draw(const struct progress *progress, uint64_t done)
{
	char figures[100], bar[COLUMNS_MOST + 1] = "", percent[8] = "", line[COLUMNS_MOST + 200];
	int columns = terminal_columns() - 1; /* the last one would wrap */
	int len = put_figures(figures, sizeof(figures), progress, done);

	if (progress->size != UINT64_MAX) {
		double part = progress->size ? (double)done / (double)progress->size : 1;

		if (part > 1)
			part = 1;
		snprintf(percent, sizeof(percent), "%3d%% ", (int)(part * 100));
		put_bar(bar, columns - NAME_COLUMNS - 1 - (int)strlen(percent) - 2 - len, part);
	}
	len = snprintf(line, sizeof(line), "%-*.*s %s%s%s%s", NAME_COLUMNS, NAME_COLUMNS,
		       progress->name, percent, bar, *bar ? "  " : "", figures);
	if (len > columns)
		len = columns;
	fprintf(stderr, "\r%.*s\033[K", len, line);
	fflush(stderr);
}

void progress_start(struct progress *progress, const char *name, uint64_t size, bool wanted)
{
	*progress = (struct progress){
		.name = wanted && isatty(STDERR_FILENO) ? name : NULL,
		.size = size,
		.begin = now_ms(),
	};
}

void progress_show(struct progress *progress, uint64_t done)
{
	uint64_t now;

	if (!progress->name)
		return;
	now = now_ms();
	if (now - progress->drawn < PROGRESS_MS)
		return;
	progress->drawn = now;
	draw(progress, done);
}

void progress_stop(struct progress *progress, uint64_t done)
{
	if (!progress->name)
		return;
	draw(progress, done);
	fputc('\n', stderr);
	progress->name = NULL;
}
