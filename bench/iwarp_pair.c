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
	check(iw_set_busy_poll(options->sleeps && !options->port ? 0 : BUSY_US, &side->ctx),
	      "iw_set_busy_poll");
	check(iw_lmr_create(side->size, ACCESS, &side->source, &side->ctx), "iw_lmr_create");
	check(iw_lmr_create(side->size, ACCESS, &side->target, &side->ctx), "iw_lmr_create");
	check(iw_post_send_adv(&side->target, &side->ctx), "iw_post_send_adv");
	check(iw_wait_recv_adv(&side->rmr, &side->ctx), "iw_wait_recv_adv");
}

/*
 * The client ends it. Until then the server waits for a last word of it: polling, as perftest's
 * does when it has come by the CM, or asleep, as it does otherwise.
 */
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

/* ---- time ---- */

/* The processor's own count, as perftest takes it: a clock may cost more than what is measured. */
static uint64_t ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t value;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
	return value;
#else
	return now_ns();
#endif
}

/* Samples in ticks, and the time that all of them took, by both clocks. */
struct timing {
	struct samples samples;
	uint64_t begin_ns, begin, before;
	unsigned skip; /* so many more are for warming up */
};

static void timing_begin(struct timing *timing, const struct options *options)
{
	samples_init(&timing->samples, options->count);
	timing->skip = options->count / BENCH_WARM_UP;
	timing->begin_ns = now_ns();
	timing->begin = timing->before = ticks();
}

/* One more exchange is over, of @ways there and back. */
static void timing_add(struct timing *timing, unsigned ways)
{
	uint64_t now = ticks();

	/* Half of it will be printed. */
	if (timing->skip)
		timing->skip--;
	else
		samples_add(&timing->samples, (now - timing->before) * 2 / ways);
	timing->before = now;
}

static void timing_print(struct timing *timing)
{
	double ns = (double)(now_ns() - timing->begin_ns) / (double)(ticks() - timing->begin);

	for (unsigned i = 0; i < timing->samples.count; i++)
		timing->samples.ns[i] = (uint64_t)((double)timing->samples.ns[i] * ns);
	samples_print(&timing->samples, "");
	samples_fini(&timing->samples);
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
	struct timing timing;
	struct side side;

	side_open(&side, options);
	timing_begin(&timing, options);
	for (unsigned i = 0; i < options->count / BENCH_WARM_UP + options->count; i++) {
		uint8_t mark = (uint8_t)(i % 255 + 1);

		if (options->port)
			write_mark(&side, mark);
		await_mark(&side, mark);
		if (!options->port)
			write_mark(&side, mark);
		timing_add(&timing, 2);
	}
	if (options->port)
		timing_print(&timing);
	else
		samples_fini(&timing.samples);
	side_close(&side, options);
}

static void read_many(struct side *side, const struct options *options)
{
	struct timing timing;

	timing_begin(&timing, options);
	for (unsigned i = 0; i < options->count / BENCH_WARM_UP + options->count; i++) {
		check(post_read_lmr(&side->source, 0, &side->rmr, 0, side->size, IBV_SEND_SIGNALED,
				    &side->ctx),
		      "post_read_lmr");
		await_one(side);
		timing_add(&timing, 1);
	}
	timing_print(&timing);
}

static void read_latency(const struct options *options)
{
	struct side side;

	side_open(&side, options);
	if (options->port)
		read_many(&side, options);
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
