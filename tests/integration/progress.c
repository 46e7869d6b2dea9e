/* SPDX-License-Identifier: MIT */
/* One-sided traffic and posted requests go on while programs do something else. */
#include "pair.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ROUNDS 200

static const struct pair_options options = {.bytes = MIB};

/* ---- peers that make no verbs call ---- */

static void peer_connect(struct side *side, uint16_t port)
{
	side_resolve(side, port);
	side_equip(side, &options);
	fill(side->buf, side->size, 8);
	side_connect(side, &options);
	side_await_established(side);
}

static void run_pause(uint16_t port)
{
	struct side side = {0};

	peer_connect(&side, port);
	for (;;)
		pause();
}

/* Says that it is about to sleep in its loop, and does not come back. */
static void run_arm_and_pause(uint16_t port)
{
	struct side side = {0};
	struct ibv_cq *cq;
	void *context;

	peer_connect(&side, port);
	if (fcntl(side.comp->fd, F_SETFL, O_NONBLOCK) ||
	    !ibv_get_cq_event(side.comp, &cq, &context) || ibv_req_notify_cq(side.recv_cq, 0))
		exit(1);
	poke(side.buf, 'a');
	for (;;)
		pause();
}

/* Spins on its memory: repeats the first byte in the second. */
static void run_spin(uint16_t port)
{
	struct side side = {0};

	peer_connect(&side, port);
	for (;;)
		poke(side.buf + 1, peek(side.buf));
}

/* Posts and never calls again. */
static void run_post_and_sleep(uint16_t port)
{
	struct side side = {0};

	peer_connect(&side, port);
	for (unsigned i = 0; i < 50; i++)
		side_send(&side, i, 0, 1000 + i);
	for (;;)
		pause();
}

/* The same with more than a socket takes. */
static void run_post_much_and_sleep(uint16_t port)
{
	struct side side = {0};

	peer_connect(&side, port);
	for (unsigned i = 0; i < 50; i++)
		side_send(&side, i, 0, MIB);
	for (;;)
		pause();
}

static const struct peer_role roles[] = {
	{"pause", run_pause},
	{"arm", run_arm_and_pause},
	{"spin", run_spin},
	{"post", run_post_and_sleep},
	{"post-much", run_post_much_and_sleep},
};

struct host {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct side side;
	pid_t pid;
};

static void host_open(struct host *host, const char *role)
{
	struct sockaddr_storage at;

	memset(host, 0, sizeof(*host));
	test_address(&at, 0);
	host->channel = rdma_create_event_channel();
	host->listener = listen_at(host->channel, &at, 4);
	host->pid = peer_start(role, rdma_get_src_port(host->listener));
	side_accept(&host->side, host->channel, &options);
	cm_expect(host->side.channel, RDMA_CM_EVENT_ESTABLISHED);
}

static void host_close(struct host *host)
{
	peer_kill(host->pid);
	side_close(&host->side);
	rdma_destroy_id(host->listener);
	rdma_destroy_event_channel(host->channel);
}

static void transfer(struct host *host, enum ibv_wr_opcode opcode, size_t at, uint32_t len)
{
	side_post(&host->side, &(struct request){.opcode = opcode,
						 .id = 1,
						 .at = at,
						 .remote_at = at,
						 .len = len,
						 .flags = IBV_SEND_SIGNALED});
	cq_expect(host->side.send_cq, 1, IBV_WC_SUCCESS);
}

static void read_and_write(struct host *host)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		fill(host->side.buf, 4096, i);
		transfer(host, IBV_WR_RDMA_WRITE, 0, 4096);
		memset(host->side.buf, 0, 4096);
		transfer(host, IBV_WR_RDMA_READ, 0, 4096);
		assert_true(is_filled(host->side.buf, 4096, i));
	}
}

static void test_target_asleep_in_pause_is_read_and_written(void **state)
{
	struct host host;

	(void)state;
	host_open(&host, "pause");
	transfer(&host, IBV_WR_RDMA_READ, 0, MIB);
	assert_true(is_filled(host.side.buf, MIB, 8));
	read_and_write(&host);
	host_close(&host);
}

static void test_target_that_leaves_its_loop_is_read_and_written(void **state)
{
	struct host host;

	(void)state;
	host_open(&host, "arm");
	do
		transfer(&host, IBV_WR_RDMA_READ, 0, 1);
	while (host.side.buf[0] != 'a');
	read_and_write(&host);
	host_close(&host);
}

static void test_target_spinning_on_memory_is_read_and_written(void **state)
{
	struct host host;

	(void)state;
	host_open(&host, "spin");
	for (unsigned i = 1; i <= ROUNDS; i++) {
		uint64_t end = now_ms() + WAIT_MS;
		uint8_t value = (uint8_t)(i * 7 + 1);

		host.side.buf[0] = value;
		transfer(&host, IBV_WR_RDMA_WRITE, 0, 1);
		do {
			transfer(&host, IBV_WR_RDMA_READ, 1, 1);
			assert_true(now_ms() < end);
		} while (host.side.buf[1] != value);
	}
	host_close(&host);
}

static void test_posted_requests_leave_though_nobody_calls_again(void **state)
{
	struct host host;

	(void)state;
	host_open(&host, "post");
	for (unsigned i = 0; i < 50; i++)
		side_recv(&host.side, i, 0, 2000);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(cq_expect(host.side.recv_cq, i, IBV_WC_SUCCESS).byte_len,
				 1000 + i);
	host_close(&host);
}

static void test_large_posted_requests_leave_though_nobody_calls_again(void **state)
{
	struct host host;

	(void)state;
	host_open(&host, "post-much");
	for (unsigned i = 0; i < 50; i++) {
		side_recv(&host.side, i, 0, MIB);
		cq_expect(host.side.recv_cq, i, IBV_WC_SUCCESS);
		assert_true(is_filled(host.side.buf, MIB, 8));
	}
	host_close(&host);
}

/* ---- in one process ---- */

/*
 * A moment between a poll and a post, of every length: the program polled, so somebody thinks that
 * it will again.
 */
static void test_request_posted_at_any_moment_after_a_poll_leaves(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 300; i++) {
		const uint8_t *there = pair.server.buf + i;
		uint64_t end = now_ms() + WAIT_MS;

		ibv_poll_cq(pair.client.send_cq, 1, &wc);
		usleep(i);
		pair.client.buf[i] = 1;
		/* The first leaves at once, the second may be held back. */
		side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_WRITE, .len = 0});
		side_post(&pair.client,
			  &(struct request){
				  .opcode = IBV_WR_RDMA_WRITE, .at = i, .remote_at = i, .len = 1});
		while (!peek(there) && now_ms() < end)
			continue;
		assert_true(peek(there));
	}
	pair_close(&pair);
}

/* Twice 32 MiB into the peer's upper half, and a mark behind them. */
static void post_much(struct side *side)
{
	struct request bulk = {.opcode = IBV_WR_RDMA_WRITE, .len = 32 * MIB, .remote_at = 32 * MIB};
	struct request mark = {.opcode = IBV_WR_RDMA_WRITE,
			       .id = 1,
			       .at = 64 * MIB,
			       .len = 1,
			       .remote_at = 64 * MIB + 1,
			       .flags = IBV_SEND_SIGNALED};

	side->buf[64 * MIB] = 1;
	side_post(side, &bulk);
	side_post(side, &bulk);
	side_post(side, &mark);
}

static void test_both_write_64_mib_and_neither_polls_without_deadlock(void **state)
{
	struct pair_options large = {.bytes = 64 * MIB + 2};
	uint64_t end = now_ms() + WAIT_MS;
	struct pair pair;

	(void)state;
	pair_open(&pair, &large);
	fill(pair.client.buf, 32 * MIB, 1);
	fill(pair.server.buf, 32 * MIB, 2);
	post_much(&pair.client);
	post_much(&pair.server);
	while (!peek(pair.client.buf + 64 * MIB + 1) || !peek(pair.server.buf + 64 * MIB + 1)) {
		assert_true(now_ms() < end);
		usleep(1000);
	}
	side_settle(&pair.client);
	side_settle(&pair.server);
	assert_true(is_filled(pair.client.buf + 32 * MIB, 32 * MIB, 2));
	assert_true(is_filled(pair.server.buf + 32 * MIB, 32 * MIB, 1));
	cq_expect(pair.client.send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(pair.server.send_cq, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/*
 * Only the first pair's CQ is polled, and it has nothing; the other pair's traffic is one-sided at
 * a target in this process.
 */
static void test_poller_of_one_cq_does_not_hold_up_the_other(void **state)
{
	const uint8_t *last;
	uint64_t end = now_ms() + WAIT_MS;
	struct pair polled, other;
	struct ibv_wc wc;

	(void)state;
	pair_open(&polled, &options);
	pair_open(&other, &options);
	last = other.server.buf + MIB - 1;
	memset(other.client.buf, 1, MIB);
	for (unsigned i = 0; i < 32; i++)
		side_post(&other.client,
			  &(struct request){.opcode = IBV_WR_RDMA_WRITE, .id = i, .len = MIB});
	while (!peek(last) && now_ms() < end)
		assert_int_equal(ibv_poll_cq(polled.client.send_cq, 1, &wc), 0);
	assert_int_equal(peek(last), 1);
	pair_close(&polled);
	pair_close(&other);
}

/*
 * A stream that never ends, refilled by whoever comes by; the other pair's messages go back and
 * forth meanwhile.
 */
static void test_bulk_stream_does_not_starve_a_ping_pong(void **state)
{
	struct request bulk_request = {
		.opcode = IBV_WR_RDMA_WRITE, .len = MIB, .flags = IBV_SEND_SIGNALED};
	struct pair bulk, small;
	unsigned megabytes = 0, in_flight = 0, i;
	uint64_t end = now_ms() + WAIT_MS;
	struct ibv_wc wc;

	(void)state;
	pair_open(&bulk, &options);
	pair_open(&small, &options);
	/* Where messages are fast, the stream has time for a little during more of them. */
	for (i = 0; i < ROUNDS || (!megabytes && now_ms() < end); i++) {
		for (; in_flight < 16; in_flight++)
			side_post(&bulk.client, &bulk_request);
		side_recv(&small.server, i, 0, 64);
		side_recv(&small.client, i, 64, 64);
		side_send(&small.client, i, 0, 64);
		cq_expect(small.server.recv_cq, i, IBV_WC_SUCCESS);
		side_send(&small.server, i, 64, 64);
		cq_expect(small.client.recv_cq, i, IBV_WC_SUCCESS);
		cq_expect(small.client.send_cq, i, IBV_WC_SUCCESS);
		cq_expect(small.server.send_cq, i, IBV_WC_SUCCESS);
		while (ibv_poll_cq(bulk.client.send_cq, 1, &wc) > 0) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			in_flight--;
			megabytes++;
		}
	}
	/* Neither starves the other: no more than a few MiB pass per message, and some do. */
	assert_in_range(megabytes, 1, i * 32);
	pair_close(&bulk);
	pair_close(&small);
}

/* ---- many on one CQ, more than a poller looks at each time ---- */

enum { MANY = 40 };

static struct pair *open_many(void)
{
	struct pair *pairs = calloc(MANY, sizeof(*pairs));
	struct pair_options shared = {.bytes = 4096, .depth = 2};

	assert_non_null(pairs);
	pair_open(&pairs[0], &(struct pair_options){.bytes = 4096});
	shared.cqs = &pairs[0].server;
	for (unsigned i = 1; i < MANY; i++)
		pair_open(&pairs[i], &shared);
	return pairs;
}

/* All but the first @num that are still open. */
static void close_behind(struct pair *pairs, unsigned num)
{
	for (unsigned i = MANY; i-- > num;) {
		if (pairs[i].channel)
			pair_close(&pairs[i]);
		pairs[i].channel = NULL;
	}
}

static void close_many(struct pair *pairs)
{
	close_behind(pairs, 0);
	free(pairs);
}

/* Each of @pairs but the first has sent: every message comes once, in whatever order. */
static void expect_all(struct pair *pairs, struct ibv_cq *cq)
{
	struct tally tally = {.posted = MANY - 1};
	struct ibv_wc wc;

	while (tally.done < tally.posted) {
		assert_true(cq_poll(cq, &wc, WAIT_MS));
		tally_count(&tally, &wc);
		if (wc.opcode == IBV_WC_RECV)
			assert_int_equal(wc.qp_num, pairs[wc.wr_id + 1].server.qp->qp_num);
	}
	assert_int_equal(tally.flushed + tally.failed, 0);
}

static void test_many_queue_pairs_all_make_progress(void **state)
{
	struct pair *pairs = open_many();

	(void)state;
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 1; i < MANY; i++) {
			side_recv(&pairs[i].server, i - 1, 0, 4096);
			side_send(&pairs[i].client, i - 1, 0, 4096);
		}
		expect_all(pairs, pairs[0].server.recv_cq);
		expect_all(pairs, pairs[0].server.send_cq);
	}
	close_many(pairs);
}

/* A message by each of the first @num but the very first, and @vain polls after it. Five times. */
static void go_round(struct pair *pairs, unsigned num, unsigned vain)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < 5 * (num - 1); i++) {
		struct pair *pair = &pairs[i % (num - 1) + 1];

		side_recv(&pair->server, i, 0, 64);
		side_send(&pair->client, i, 0, 64);
		cq_expect(pairs[0].server.recv_cq, i, IBV_WC_SUCCESS);
		cq_expect(pairs[0].server.send_cq, i, IBV_WC_SUCCESS);
		for (unsigned poll = 0; poll < vain; poll++)
			assert_int_equal(ibv_poll_cq(pairs[0].server.recv_cq, 1, &wc), 0);
	}
}

/* One at a time: each is looked at for a while, then no longer, then again. Others go meanwhile. */
static void test_many_queue_pairs_in_turn(void **state)
{
	struct pair *pairs = open_many();

	(void)state;
	for (unsigned num = MANY; num > 2; num /= 2) {
		go_round(pairs, num, 20);
		go_round(pairs, num, 200);
		close_behind(pairs, num / 2);
	}
	close_many(pairs);
}

static void pass_one(struct pair *pair, uint64_t id)
{
	side_recv(&pair->server, id, 0, 64);
	side_send(&pair->client, id, 0, 64);
}

/* There is always a message of one that waits: that of the other does not wait for long. */
static void test_busy_queue_pair_does_not_hold_up_its_neighbour(void **state)
{
	struct pair busy, calm;
	unsigned before = 0;
	struct ibv_wc wc;

	(void)state;
	pair_open(&busy, &(struct pair_options){.bytes = 4096});
	pair_open(&calm, &(struct pair_options){.bytes = 4096, .cqs = &busy.server});
	for (unsigned round = 0; round < 20; round++) {
		pass_one(&busy, 1);
		pass_one(&calm, 2);
		do {
			assert_true(cq_poll(busy.server.recv_cq, &wc, WAIT_MS));
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			cq_expect(wc.wr_id == 1 ? busy.client.send_cq : busy.server.send_cq,
				  wc.wr_id, IBV_WC_SUCCESS);
			if (wc.wr_id == 1)
				pass_one(&busy, 1);
			before += wc.wr_id == 1;
		} while (wc.wr_id != 2);
		cq_expect(busy.server.recv_cq, 1, IBV_WC_SUCCESS);
		cq_expect(busy.client.send_cq, 1, IBV_WC_SUCCESS);
	}
	assert_in_range(before, 0, 20 * 8);
	pair_close(&calm);
	pair_close(&busy);
}

/* ---- what was polled hard, and then is not ---- */

/* So many polls that find data that the pollers are trusted with the connection. */
static void poll_hard(struct pair *pair)
{
	for (unsigned i = 0; i < 500; i++) {
		side_recv(&pair->server, i, 0, 64);
		side_recv(&pair->client, i, 64, 64);
		side_send(&pair->client, i, 0, 64);
		cq_expect(pair->server.recv_cq, i, IBV_WC_SUCCESS);
		side_send(&pair->server, i, 64, 64);
		cq_expect(pair->client.recv_cq, i, IBV_WC_SUCCESS);
		cq_expect(pair->client.send_cq, i, IBV_WC_SUCCESS);
		cq_expect(pair->server.send_cq, i, IBV_WC_SUCCESS);
	}
}

/* A byte of the server's is asked for; it is there when its memory says so. */
static const uint8_t *ask_for_byte(struct pair *pair)
{
	pair->server.buf[1000] = 1;
	pair->client.buf[2000] = 0;
	side_post(&pair->client,
		  &(struct request){
			  .opcode = IBV_WR_RDMA_READ, .at = 2000, .remote_at = 1000, .len = 1});
	return pair->client.buf + 2000;
}

static void test_connection_polled_hard_is_served_when_nobody_polls(void **state)
{
	uint64_t end = now_ms() + WAIT_MS;
	const uint8_t *there;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	poll_hard(&pair);
	there = ask_for_byte(&pair);
	while (!peek(there) && now_ms() < end)
		usleep(100);
	assert_int_equal(peek(there), 1);
	pair_close(&pair);
}

static void test_connection_polled_hard_is_served_by_pollers_of_another(void **state)
{
	struct pair pair, other;
	const uint8_t *there;
	struct ibv_wc wc;
	uint64_t end;

	(void)state;
	pair_open(&other, &options);
	pair_open(&pair, &options);
	poll_hard(&pair);
	end = now_ms() + WAIT_MS;
	there = ask_for_byte(&pair);
	while (!peek(there) && now_ms() < end)
		assert_int_equal(ibv_poll_cq(other.client.send_cq, 1, &wc), 0);
	assert_int_equal(peek(there), 1);
	pair_close(&pair);
	pair_close(&other);
}

static void test_connection_polled_hard_wakes_a_sleeper(void **state)
{
	struct ibv_cq *cq;
	struct pair pair;
	void *context;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 20; i++) {
		poll_hard(&pair);
		assert_int_equal(ibv_req_notify_cq(pair.client.send_cq, 0), 0);
		side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_READ,
							  .id = i,
							  .len = 1,
							  .flags = IBV_SEND_SIGNALED});
		/* Nobody but this sleeper drives either end. */
		assert_int_equal(ibv_get_cq_event(pair.client.comp, &cq, &context), 0);
		ibv_ack_cq_events(cq, 1);
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_target_asleep_in_pause_is_read_and_written),
		cmocka_unit_test(test_target_that_leaves_its_loop_is_read_and_written),
		cmocka_unit_test(test_target_spinning_on_memory_is_read_and_written),
		cmocka_unit_test(test_posted_requests_leave_though_nobody_calls_again),
		cmocka_unit_test(test_large_posted_requests_leave_though_nobody_calls_again),
		cmocka_unit_test(test_request_posted_at_any_moment_after_a_poll_leaves),
		cmocka_unit_test(test_both_write_64_mib_and_neither_polls_without_deadlock),
		cmocka_unit_test(test_poller_of_one_cq_does_not_hold_up_the_other),
		cmocka_unit_test(test_bulk_stream_does_not_starve_a_ping_pong),
		cmocka_unit_test(test_many_queue_pairs_all_make_progress),
		cmocka_unit_test(test_many_queue_pairs_in_turn),
		cmocka_unit_test(test_busy_queue_pair_does_not_hold_up_its_neighbour),
		cmocka_unit_test(test_connection_polled_hard_is_served_when_nobody_polls),
		cmocka_unit_test(test_connection_polled_hard_is_served_by_pollers_of_another),
		cmocka_unit_test(test_connection_polled_hard_wakes_a_sleeper),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
