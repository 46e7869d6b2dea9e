/* SPDX-License-Identifier: MIT */
/* One-sided exchanges by libiwarp, the way perftest does them by verbs. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <iwarp.h>

#include "bench.h"

#define BUSY_US 1000000 /* to look before sleeping: in effect never to sleep */
#define DEPTH   128     /* as perftest's */
#define ACCESS  (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

/* Either side: what it writes from or reads into, what the peer uses, and the peer's. */
struct side {
	struct iw_ctx_conn listener, ctx;
	struct iw_lmr source, target;
	struct iw_rmr rmr;
	size_t size;
};

static void check(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "%s: %s\n", what, iw_error_text());
	exit(1);
}

/* ---- connections ---- */

static void side_listen(struct side *side, const struct options *options)
{
	struct sockaddr_storage at;
	struct iw_sgl nothing;

	check(iw_open(options->address, 0, 1, &side->listener), "iw_open");
	check(iw_set_client_options(&side->listener, DEPTH, NULL), "iw_set_client_options");
	check(iw_local_address(&side->listener, &at), "iw_local_address");
	say_listening((struct sockaddr *)&at);
	check(iw_listen(&side->listener, &side->ctx), "iw_listen");
	iw_sgl_init(&nothing);
	check(iw_post_recv_adv(&side->ctx), "iw_post_recv_adv");
	check(post_recv_sgl(&nothing, &side->ctx), "post_recv_sgl");
	check(iw_accept(NULL, 0, &side->ctx), "iw_accept");
}

static void side_connect(struct side *side, const struct options *options)
{
	check(iw_ctx_alloc(options->address, options->port, DEPTH, NULL, &side->ctx),
	      "iw_ctx_alloc");
	check(iw_post_recv_adv(&side->ctx), "iw_post_recv_adv");
	check(iw_connect(NULL, 0, &side->ctx), "iw_connect");
}

static void side_open(struct side *side, const struct options *options)
{
	side->size = options->size;
	if (options->port)
		side_connect(side, options);
	else
		side_listen(side, options);
	check(iw_set_busy_poll(BUSY_US, &side->ctx), "iw_set_busy_poll");
	check(iw_lmr_create(side->size, ACCESS, &side->source, &side->ctx), "iw_lmr_create");
	check(iw_lmr_create(side->size, ACCESS, &side->target, &side->ctx), "iw_lmr_create");
	check(iw_post_send_adv(&side->target, &side->ctx), "iw_post_send_adv");
	check(iw_wait_recv_adv(&side->rmr, &side->ctx), "iw_wait_recv_adv");
}

/* The client ends it. Until then the server polls, as perftest's does, for a last word of it. */
static void side_close(struct side *side, const struct options *options)
{
	struct iw_sgl nothing;
	struct ibv_wc wc;

	iw_sgl_init(&nothing);
	if (options->port) {
		check(post_send_sgl(&nothing, 0, &side->ctx), "post_send_sgl");
		check(iw_disconnect(&side->ctx), "iw_disconnect");
	} else {
		check(await_completions(IW_RCQ, 1, &wc, &side->ctx), "await_completions");
		check(iw_await_disconnect(&side->ctx), "iw_await_disconnect");
		check(iw_close(&side->listener), "iw_close");
	}
	check(iw_lmr_destroy(&side->source, 1), "iw_lmr_destroy");
	check(iw_lmr_destroy(&side->target, 1), "iw_lmr_destroy");
}

/* ---- exchanges ---- */

static void await_one(struct side *side)
{
	struct ibv_wc wc;

	check(await_completions(IW_SCQ, 1, &wc, &side->ctx), "await_completions");
}

static void write_mark(struct side *side, uint8_t mark)
{
	((uint8_t *)side->source.addr)[side->size - 1] = mark;
	check(post_write_lmr(&side->source, 0, &side->rmr, 0, side->size, IBV_SEND_SIGNALED,
			     &side->ctx),
	      "post_write_lmr");
	await_one(side);
}

static void await_mark(const struct side *side, uint8_t mark)
{
	const volatile uint8_t *last = (const uint8_t *)side->target.addr + side->size - 1;

	while (*last != mark)
		continue;
}

/* Both write, and watch their memory for what the other writes. */
static void write_latency(const struct options *options)
{
	unsigned warm_up = options->count / BENCH_WARM_UP;
	struct side side;
	struct samples samples;
	uint64_t before, now;

	side_open(&side, options);
	samples_init(&samples, options->count);
	before = now_ns();
	for (unsigned i = 0; i < warm_up + options->count; i++) {
		uint8_t mark = (uint8_t)(i % 255 + 1);

		if (options->port)
			write_mark(&side, mark);
		await_mark(&side, mark);
		if (!options->port)
			write_mark(&side, mark);
		now = now_ns();
		if (i >= warm_up)
			samples_add(&samples, now - before);
		before = now;
	}
	if (options->port)
		samples_print(&samples, "");
	samples_fini(&samples);
	side_close(&side, options);
}

static void read_latency(const struct options *options)
{
	unsigned warm_up = options->count / BENCH_WARM_UP;
	struct side side;
	struct samples samples;
	uint64_t before, now;

	side_open(&side, options);
	if (options->port) {
		samples_init(&samples, options->count);
		before = now_ns();
		for (unsigned i = 0; i < warm_up + options->count; i++) {
			check(post_read_lmr(&side.source, 0, &side.rmr, 0, side.size,
					    IBV_SEND_SIGNALED, &side.ctx),
			      "post_read_lmr");
			await_one(&side);
			now = now_ns();
			/* There and back is one read, and half of it would be printed. */
			if (i >= warm_up)
				samples_add(&samples, 2 * (now - before));
			before = now;
		}
		samples_print(&samples, "");
		samples_fini(&samples);
	}
	side_close(&side, options);
}

static void write_many(struct side *side, unsigned count)
{
	for (unsigned i = 1; i <= count; i++)
		check(post_write_lmr(&side->source, 0, &side->rmr, 0, side->size,
				     i == count ? IBV_SEND_SIGNALED : 0, &side->ctx),
		      "post_write_lmr");
	await_one(side);
}

static void write_stream(const struct options *options)
{
	struct side side;
	uint64_t begin;

	side_open(&side, options);
	if (options->port) {
		begin = now_ns();
		write_many(&side, options->count);
		print_rate(options->count, options->size, now_ns() - begin);
	}
	side_close(&side, options);
}

static const struct test tests[] = {
	{"write_lat", write_latency},
	{"read_lat", read_latency},
	{"write_bw", write_stream},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	return run_test(tests, argc, argv);
}
