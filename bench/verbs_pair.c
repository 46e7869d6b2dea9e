/* SPDX-License-Identifier: MIT */
/* Two ends of a connection over verbs: latency, streams, and many connections at once. */
#include <errno.h>
#include <stdio.h>

#include "verbs_side.h"

#define POLL_MOST    16
#define SIGNAL_EVERY 32               /* sends of 64 bytes between two that complete */
#define STREAM_DEPTH 16               /* long requests in flight */
#define GRANT        (RECV_DEPTH / 4) /* receives that are told of at a time (--credits) */

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

/* What one side has sent and received, since it is open; both may complete in one queue. */
struct progress {
	unsigned sent;
	unsigned sends_done; /* signaled ones */
	unsigned received;
	unsigned reposted;       /* receives, while the answer is on its way */
	unsigned granted;        /* times that the receiver of a stream told of GRANT receives */
	unsigned answers;        /* to its parts that the sender has had */
	struct rdma_cm_id *from; /* that the last one was received from */
};

static void take(struct progress *progress, const struct ibv_wc *wc, int count)
{
	for (int i = 0; i < count; i++) {
		if (!(wc[i].opcode & IBV_WC_RECV)) {
			progress->sends_done++;
			continue;
		}
		progress->received++;
		progress->from = (struct rdma_cm_id *)(uintptr_t)wc[i].wr_id;
	}
}

static void repost(struct side *side, struct progress *progress)
{
	for (; progress->reposted < progress->received; progress->reposted++)
		side_post_recv(side);
}

/*
 * Inline if it may. One in SIGNAL_EVERY completes, and is waited for before the next such one, so
 * that the queue never fills; not at once, as the peer may end the connection when it has had the
 * last.
 */
static void send_message(struct side *side, struct progress *progress, size_t length)
{
	bool signaled = progress->sent % SIGNAL_EVERY == 0;
	struct ibv_wc wc[POLL_MOST];

	while (signaled && progress->sends_done < progress->sent / SIGNAL_EVERY)
		take(progress, wc, side_poll(side->send_cq, wc, POLL_MOST));
	progress->sent++;
	side_post_send(side, IBV_WR_SEND, length,
		       (length > INLINE_MAX ? 0 : IBV_SEND_INLINE) |
			       (signaled ? IBV_SEND_SIGNALED : 0));
	repost(side, progress);
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
		send_message(side, &progress, side->options->size);
		await(side, &progress, i + 1);
		samples_add_lap(&samples, i >= warm_up);
	}
	samples_print(&samples, prefix);
	samples_fini(&samples);
}

static void answer(struct side *side)
{
	struct progress progress = {0};

	for (unsigned i = 0; i < side->options->count / BENCH_WARM_UP + side->options->count; i++) {
		await(side, &progress, i + 1);
		send_message(side, &progress, side->options->size);
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
	print_idle_memory(options, before);
	if (options->port)
		ask(&side, "");
	else
		answer(&side);
	side_close(&side);
}

/* ---- many connections: the client asks over each in its turn, the server answers who asks ---- */

/* Each connection has room for one; before the answer came, the one before it has left. */
static void send_to(struct side *side, struct progress *progress, struct rdma_cm_id *id)
{
	struct ibv_wc wc[POLL_MOST];

	while (progress->sends_done < progress->sent)
		take(progress, wc, side_poll(side->send_cq, wc, POLL_MOST));
	progress->sent++;
	side->to = id;
	side_post_send(side, IBV_WR_SEND, side->options->size, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
}

static void repost_to(struct side *side, struct rdma_cm_id *id)
{
	side->to = id;
	side_post_recv(side);
}

static void ask_in_turn(struct side *side)
{
	unsigned count = side->options->count, warm_up = count / BENCH_WARM_UP;
	struct progress progress = {0};
	struct samples samples;

	samples_init(&samples, count);
	for (unsigned i = 0; i < warm_up + count; i++) {
		unsigned turn = i % (side->options->idle + 1);

		send_to(side, &progress, turn ? side->idle[turn - 1] : side->id);
		await(side, &progress, i + 1);
		repost_to(side, progress.from);
		samples_add_lap(&samples, i >= warm_up);
	}
	samples_print(&samples, "");
	samples_fini(&samples);
}

static void answer_who_asks(struct side *side)
{
	unsigned count = side->options->count + side->options->count / BENCH_WARM_UP;
	struct progress progress = {0};

	for (unsigned i = 0; i < count; i++) {
		await(side, &progress, i + 1);
		repost_to(side, progress.from);
		send_to(side, &progress, progress.from);
	}
}

static void in_turn(const struct options *options)
{
	struct side side;
	unsigned before;

	errno = 0;
	if (options->size > INLINE_MAX)
		die("messages over many connections are short");
	allow_descriptors(options->idle);
	open_side(&side, options, false);
	before = rss_kib();
	if (options->idle) {
		(options->port ? side_connect_idle : side_accept_idle)(&side);
		print_idle_memory(options, before);
	}
	(options->port ? ask_in_turn : answer_who_asks)(&side);
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
			side_post_send(side, opcode, side->options->size, IBV_SEND_SIGNALED);
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
		side_post_send(&side, IBV_WR_SEND, options->size, IBV_SEND_SIGNALED);
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

static bool has_room(const struct progress *progress)
{
	return progress->sent - progress->sends_done * SIGNAL_EVERY < SEND_DEPTH;
}

static bool may_send(const struct side *side, const struct progress *progress)
{
	unsigned granted = (progress->received - progress->answers) * GRANT;

	return !side->options->credits || progress->sent - granted < RECV_DEPTH;
}

/* @count messages; the server answers when it has all. */
static void send_messages(struct side *side, struct progress *progress, unsigned count)
{
	size_t size = side->options->size;
	unsigned flags = size > INLINE_MAX ? 0 : IBV_SEND_INLINE, last = progress->sent + count;
	struct ibv_wc wc[POLL_MOST];

	while (progress->sent < last) {
		while (!has_room(progress))
			take(progress, wc, side_poll(side->send_cq, wc, POLL_MOST));
		while (!may_send(side, progress))
			take(progress, wc, side_wait_recv(side, wc, POLL_MOST));
		repost(side, progress);
		progress->sent++;
		side_post_send(side, IBV_WR_SEND, size,
			       flags | (progress->sent % SIGNAL_EVERY ? 0 : IBV_SEND_SIGNALED));
	}
	progress->answers++;
	await(side, progress, progress->answers + (side->options->credits ? last / GRANT : 0));
	repost(side, progress);
}

static void receive_messages(struct side *side, struct progress *progress, unsigned count)
{
	size_t short_size = side->options->size < INLINE_MAX ? side->options->size : INLINE_MAX;
	unsigned last = progress->received + count;
	struct ibv_wc wc[POLL_MOST];

	while (progress->received < last) {
		take(progress, wc, side_wait_recv(side, wc, POLL_MOST));
		repost(side, progress);
		for (; side->options->credits && progress->received / GRANT > progress->granted;
		     progress->granted++)
			send_message(side, progress, short_size);
	}
	send_message(side, progress, short_size);
}

static void send_stream(const struct options *options)
{
	unsigned warm_up = options->count / BENCH_WARM_UP;
	struct progress progress = {0};
	struct side side;
	uint64_t begin;

	open_side(&side, options, options->sleeps && !options->port);
	if (options->port) {
		send_messages(&side, &progress, warm_up);
		begin = now_ns();
		send_messages(&side, &progress, options->count);
		print_rate(options->count, options->size, now_ns() - begin);
	} else {
		receive_messages(&side, &progress, warm_up);
		receive_messages(&side, &progress, options->count);
	}
	side_close(&side);
}

/* ---- */

static const struct test tests[] = {
	{"poll", ping_pong_polling}, {"sleep", ping_pong_sleeping},
	{"idle", among_idle},        {"turns", in_turn},
	{"write", write_stream},     {"read", read_stream},
	{"send", send_stream},       {NULL, NULL},
};

int main(int argc, char **argv)
{
	return run_test(tests, argc, argv);
}
