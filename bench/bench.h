/* SPDX-License-Identifier: MIT */
/* What the measuring programs share: options, the clock, samples, and one line of results. */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define BENCH_WARM_UP 10 /* one in so many of the iterations comes first, unmeasured */

struct options {
	const char *test;
	const char *address; /* of the server, as a number */
	int port;            /* to connect to; 0: listen */
	unsigned count;      /* messages */
	size_t size;         /* bytes of each */
	unsigned buffers;    /* that messages are sent from in turn */
	unsigned batch;      /* messages per system call */
	unsigned idle;       /* connections beside the first one */
	unsigned limit;      /* seconds, after which the program is ended */
	bool one_cq;         /* sends and receives complete in one queue */
	bool credits;        /* a stream of messages never overtakes the receives */
	bool spins;          /* a plain TCP stream spins rather than blocks */
	bool sleeps;         /* the side that waits for a stream sleeps rather than polls */
	bool waits_in_poll;  /* who sleeps does so in poll(), as an event loop would */
	bool local;          /* a Unix socket rather than TCP, where a library has both */
};

/* The server's, with the port to connect to or 0. Returns its length. */
socklen_t options_address(const struct options *options, struct sockaddr_storage *out);

struct test {
	const char *name;
	void (*run)(const struct options *options);
};

/*
 * main() of a program: runs the one of @tests, up to one without a name, that is asked for, or
 * leaves with a usage text. Starts the time limit.
 */
int run_test(const struct test *tests, int argc, char **argv);

/* Leave with errno's text, or without if errno is 0. */
void die(const char *what) __attribute__((noreturn));

uint64_t now_ns(void);

/* Tell whoever started this where to connect to. */
void say_listening(const struct sockaddr *address);
void say_listening_at(unsigned port);

/* A plain TCP connection: the server's that it waits for at its listener, or the client's. */
int tcp_listen(const struct options *options);
int tcp_accept(int listener);
int tcp_connect(const struct options *options);

unsigned rss_kib(void);
/* Of each idle connection, with what there was before them. */
void print_idle_memory(const struct options *options, unsigned rss_kib_before);

/* A descriptor for each connection, and some for the rest. */
void allow_descriptors(unsigned connections);

/* ---- samples of round trips ---- */

struct samples {
	uint64_t *ns;
	unsigned count, room;
	uint64_t lap; /* when the last round trip ended */
};

void samples_init(struct samples *samples, unsigned room);
void samples_fini(struct samples *samples);

static inline void samples_add(struct samples *samples, uint64_t ns)
{
	if (samples->count < samples->room)
		samples->ns[samples->count++] = ns;
}

/* A round trip ends, and the next begins: one look at the clock for both. */
static inline void samples_add_lap(struct samples *samples, bool counts)
{
	uint64_t now = now_ns();

	if (counts)
		samples_add(samples, now - samples->lap);
	samples->lap = now;
}

/* "PREFIXp50_us=… PREFIXp99_us=…", of one way: half a round trip. Sorts. */
void samples_print(struct samples *samples, const char *prefix);

/* Of @count messages of @size bytes in @ns. */
void print_rate(uint64_t count, size_t size, uint64_t ns);

#endif
