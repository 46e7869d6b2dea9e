/* SPDX-License-Identifier: MIT */
/* The same exchanges as verbs_pair's, by a messaging library that has its own threads. */
#include "blocking_pair.h"

#include <malloc.h>

#define MOST_WAITING 1000
#define BYTES_WAIT   (128 << 20)

unsigned messenger_depth(const struct options *options)
{
	size_t depth = BYTES_WAIT / options->size;

	return depth > MOST_WAITING ? MOST_WAITING : depth < 2 ? 2 : (unsigned)depth;
}

static void open_pair(const struct options *options, bool many)
{
	/* Where malloc() would arrive by itself, had main() not fixed it: long messages are reused.
	 */
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	if (options->port)
		messenger_connect(options, 0, many);
	else
		messenger_listen(options, many);
}

/* ---- ping-pong, over the connections in turn ---- */

static void ask(const struct options *options)
{
	unsigned warm_up = options->count / BENCH_WARM_UP;
	struct samples samples;

	samples_init(&samples, options->count);
	for (unsigned i = 0; i < warm_up + options->count; i++) {
		unsigned turn = i % (options->idle + 1);

		messenger_send(turn, options->size);
		messenger_receive(turn);
		samples_add_lap(&samples, i >= warm_up);
	}
	samples_print(&samples, "");
	samples_fini(&samples);
}

static void answer(const struct options *options)
{
	for (unsigned i = 0; i < options->count / BENCH_WARM_UP + options->count; i++) {
		messenger_receive(0);
		messenger_send(0, options->size);
	}
}

static void ping_pong(const struct options *options)
{
	open_pair(options, false);
	(options->port ? ask : answer)(options);
	messenger_close();
}

/* Over each connection a round trip, so that it is there; then memory, then the measured ones. */
static void in_turn(const struct options *options)
{
	unsigned before;

	allow_descriptors(3 * options->idle); /* some have more than one for a connection */
	open_pair(options, true);
	before = rss_kib();
	for (unsigned i = 0; i <= options->idle; i++) {
		if (options->port && i)
			messenger_connect(options, i, true);
		if (options->port)
			messenger_send(i, options->size);
		messenger_receive(options->port ? i : 0);
		if (!options->port)
			messenger_send(0, options->size);
		if (!i)
			before = rss_kib();
	}
	if (options->idle)
		print_idle_memory(options, before);
	(options->port ? ask : answer)(options);
	messenger_close();
}

/* ---- a stream: the client sends, the server answers when it has all of a part ---- */

static void stream_part(const struct options *options, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		if (options->port)
			messenger_send(0, options->size);
		else
			messenger_receive(0);
	}
	if (options->port)
		messenger_receive(0);
	else
		messenger_send(0, 1);
}

static void stream(const struct options *options)
{
	uint64_t begin;

	open_pair(options, false);
	stream_part(options, options->count / BENCH_WARM_UP);
	begin = now_ns();
	stream_part(options, options->count);
	if (options->port)
		print_rate(options->count, options->size, now_ns() - begin);
	messenger_close();
}

static const struct test tests[] = {
	{"sleep", ping_pong},
	{"stream", stream},
	{"turns", in_turn},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	return run_test(tests, argc, argv);
}
