/* SPDX-License-Identifier: MIT */
/* Two ends of a connection over verbs: latency, streams, and many connections at once. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "verbs_side.h"

#define POLL_MOST    16
#define SIGNAL_EVERY 32 /* sends of 64 bytes between two that complete */
#define STREAM_DEPTH 16 /* long requests in flight */

static void open_side(struct side *side, const struct options *options, bool sleeps)
{
	if (options->port)
		side_connect(side, options, sleeps);
	else
		side_listen(side, options, sleeps);
	if (side->channel && ibv_req_notify_cq(side->recv_cq, 0))
		die("ibv_req_notify_cq");
}

/* ---- ping-pong ---- */

/* What one side has sent and received; both may complete in one queue. */
struct progress {
	unsigned sent;
	unsigned sends_done; /* signaled ones */
	unsigned received;
	unsigned reposted; /* receives, while the answer is on its way */
};

static void take(struct progress *progress, const struct ibv_wc *wc, int count)
{
	for (int i = 0; i < count; i++) {
		if (wc[i].opcode & IBV_WC_RECV)
			progress->received++;
		else
			progress->sends_done++;
	}
}

/* Inline; one in SIGNAL_EVERY completes, and is waited for, so that the queue never fills. */
static void send_small(struct side *side, struct progress *progress)
{
	struct ibv_wc wc[POLL_MOST];
	bool signaled = progress->sent++ % SIGNAL_EVERY == 0;
	unsigned done = progress->sends_done;

	side_post_send(side, IBV_WR_SEND, IBV_SEND_INLINE | (signaled ? IBV_SEND_SIGNALED : 0));
	for (; progress->reposted < progress->received; progress->reposted++)
		side_post_recv(side);
	while (signaled && progress->sends_done == done)
		take(progress, wc, side_poll(side->send_cq, wc, POLL_MOST));
}

static void await(struct side *side, struct progress *progress, unsigned received)
{
	struct ibv_wc wc[POLL_MOST];

	while (progress->received < received)
		take(progress, wc, side_wait_recv(side, wc, POLL_MOST));
}

static void ask(struct side *side, const char *prefix)
{
	unsigned count = side->options->count, warm_up = count / BENCH_WARM_UP;
	struct progress progress = {0};
	struct samples samples;

	samples_init(&samples, count);
	for (unsigned i = 0; i < warm_up + count; i++) {
		uint64_t begin = now_ns();

		send_small(side, &progress);
		await(side, &progress, i + 1);
		if (i >= warm_up)
			samples_add(&samples, now_ns() - begin);
	}
	samples_print(&samples, prefix);
	samples_fini(&samples);
}

static void answer(struct side *side)
{
	struct progress progress = {0};

	for (unsigned i = 0; i < side->options->count / BENCH_WARM_UP + side->options->count; i++) {
		await(side, &progress, i + 1);
		send_small(side, &progress);
	}
}

static void ping_pong(const struct options *options, bool sleeps)
{
	struct side side;

	open_side(&side, options, sleeps);
	if (options->port)
		ask(&side, "");
	else
		answer(&side);
	side_close(&side);
}

static void ping_pong_polling(const struct options *options)
{
	ping_pong(options, false);
}

static void ping_pong_sleeping(const struct options *options)
{
	ping_pong(options, true);
}

/* A descriptor for each connection, and some for the rest. */
static void allow_descriptors(unsigned connections)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		die("getrlimit");
	if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < connections + 64) {
		errno = 0;
		die("the limit of open files (ulimit -Hn) is too low for so many connections");
	}
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("setrlimit");
}

/* The lone connection first, then the same one among many that say nothing. */
static void among_idle(const struct options *options)
{
	struct side side;
	unsigned before;

	allow_descriptors(options->idle);
	open_side(&side, options, false);
	if (options->port) {
		ask(&side, "lone_");
		before = rss_kib();
		side_connect_idle(&side);
	} else {
		answer(&side);
		before = rss_kib();
		side_accept_idle(&side);
	}
	printf("idle_bytes=%.0f ", (rss_kib() - before) * 1024.0 / options->idle);
	if (options->port)
		ask(&side, "");
	else
		answer(&side);
	side_close(&side);
}

/* ---- streams ---- */

/* @count long requests, STREAM_DEPTH at a time. */
static void post_stream(struct side *side, enum ibv_wr_opcode opcode, unsigned count)
{
	unsigned posted = 0, done = 0;
	struct ibv_wc wc[POLL_MOST];

	while (done < count) {
		while (posted < count && posted - done < STREAM_DEPTH) {
			side_post_send(side, opcode, IBV_SEND_SIGNALED);
			posted++;
		}
		done += (unsigned)side_poll(side->send_cq, wc, POLL_MOST);
	}
	/* A write is done when it has left; the answer to a read behind it says that it arrived. */
	if (opcode == IBV_WR_RDMA_WRITE)
		post_stream(side, IBV_WR_RDMA_READ, 1);
}

/* The server waits for one message, which the client sends at the end. */
static void one_sided(const struct options *options, enum ibv_wr_opcode opcode)
{
	struct ibv_wc wc[POLL_MOST];
	struct side side;
	uint64_t begin;

	open_side(&side, options, options->sleeps && !options->port);
	if (options->port) {
		post_stream(&side, opcode, options->count / BENCH_WARM_UP);
		begin = now_ns();
		post_stream(&side, opcode, options->count);
		print_rate(options->count, options->size, now_ns() - begin);
		side_post_send(&side, IBV_WR_SEND, IBV_SEND_SIGNALED);
		side_poll(side.send_cq, wc, POLL_MOST);
	} else {
		side_wait_recv(&side, wc, 1); /* behind it are flushed ones */
	}
	side_close(&side);
}

static void write_stream(const struct options *options)
{
	one_sided(options, IBV_WR_RDMA_WRITE);
}

static void read_stream(const struct options *options)
{
	one_sided(options, IBV_WR_RDMA_READ);
}

static void send_messages(struct side *side, unsigned count)
{
	unsigned posted = 0, left = SEND_DEPTH; /* room in the queue */
	struct ibv_wc wc[POLL_MOST];

	while (posted < count) {
		if (!left)
			left += SIGNAL_EVERY * (unsigned)side_poll(side->send_cq, wc, POLL_MOST);
		posted++;
		left--;
		side_post_send(side, IBV_WR_SEND,
			       IBV_SEND_INLINE |
				       (posted % SIGNAL_EVERY ? 0u : (unsigned)IBV_SEND_SIGNALED));
	}
	while (left < SEND_DEPTH - posted % SIGNAL_EVERY)
		left += SIGNAL_EVERY * (unsigned)side_poll(side->send_cq, wc, POLL_MOST);
	/* The server answers when it has all. */
	side_wait_recv(side, wc, 1);
	side_post_recv(side);
}

static void receive_messages(struct side *side, unsigned count)
{
	struct ibv_wc wc[POLL_MOST];
	unsigned received = 0;

	while (received < count) {
		int got = side_wait_recv(side, wc, POLL_MOST);

		for (int i = 0; i < got; i++)
			side_post_recv(side);
		received += (unsigned)got;
	}
	side_post_send(side, IBV_WR_SEND, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
	side_poll(side->send_cq, wc, 1);
}

static void send_stream(const struct options *options)
{
	unsigned warm_up = options->count / BENCH_WARM_UP;
	struct side side;
	uint64_t begin;

	open_side(&side, options, options->sleeps && !options->port);
	if (options->port) {
		send_messages(&side, warm_up);
		begin = now_ns();
		send_messages(&side, options->count);
		print_rate(options->count, options->size, now_ns() - begin);
	} else {
		receive_messages(&side, warm_up);
		receive_messages(&side, options->count);
	}
	side_close(&side);
}

/* ---- */

static const struct {
	const char *name;
	void (*run)(const struct options *options);
} tests[] = {
	{"poll", ping_pong_polling}, {"sleep", ping_pong_sleeping}, {"idle", among_idle},
	{"write", write_stream},     {"read", read_stream},         {"send", send_stream},
};

int main(int argc, char **argv)
{
	struct options options;

	options_parse(&options, argc, argv, "poll sleep idle write read send");
	for (unsigned i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		if (strcmp(tests[i].name, options.test) != 0)
			continue;
		tests[i].run(&options);
		printf("\n");
		return 0;
	}
	errno = 0;
	die("there is no such test");
}
