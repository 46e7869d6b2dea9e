/* SPDX-License-Identifier: MIT */
/* What the measuring programs share: options, the clock, samples, and one line of results. */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_WARM_UP 10 /* one in so many of the iterations comes first, unmeasured */

struct options {
	const char *test;
	int port;       /* to connect to; 0: listen */
	unsigned count; /* messages */
	size_t size;    /* bytes of each */
	unsigned batch; /* messages per system call */
	unsigned idle;  /* connections that say nothing */
	unsigned limit; /* seconds, after which the program is ended */
	bool one_cq;    /* sends and receives complete in one queue */
	bool spins;     /* a plain TCP stream spins rather than blocks */
	bool sleeps;    /* the side that waits for a stream sleeps rather than polls */
};

/* Leaves with a usage text if they make no sense. Starts the time limit. */
void options_parse(struct options *options, int argc, char **argv, const char *tests);

/* Leave with errno's text, or without if errno is 0. */
void die(const char *what) __attribute__((noreturn));

uint64_t now_ns(void);

/* Tell whoever started this where to connect to. */
void say_listening(int port);

unsigned rss_kib(void);

/* ---- samples of round trips ---- */

struct samples {
	uint64_t *ns;
	unsigned count, room;
};

void samples_init(struct samples *samples, unsigned room);
void samples_fini(struct samples *samples);

static inline void samples_add(struct samples *samples, uint64_t ns)
{
	if (samples->count < samples->room)
		samples->ns[samples->count++] = ns;
}

/* "PREFIXp50_us=… PREFIXp99_us=…", of one way: half a round trip. Sorts. */
void samples_print(struct samples *samples, const char *prefix);

/* Of @count messages of @size bytes in @ns. */
void print_rate(uint64_t count, size_t size, uint64_t ns);

#endif
