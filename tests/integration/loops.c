/* SPDX-License-Identifier: MIT */
/* Completion channels that do not block: programs that sleep in an event loop of their own. */
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

static const struct pair_options defaults;

/* May be readable for data that makes no event for it: then there is none yet. */
static void loop_until_event(struct side *side, struct ibv_cq *expected)
{
	struct ibv_cq *cq;
	void *context;

	for (;;) {
		if (!fd_is_readable(side->comp->fd, WAIT_MS))
			fail_msg("no completion event came");
		if (!ibv_get_cq_event(side->comp, &cq, &context))
			break;
		assert_int_equal(errno, EAGAIN);
	}
	assert_ptr_equal(cq, expected);
	ibv_ack_cq_events(cq, 1);
}

/* ---- what a descriptor says ---- */

static void test_channel_nonblocking_and_empty_gives_eagain(void **state)
{
	struct ibv_cq *cq;
	struct pair pair;
	void *context;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(fcntl(pair.client.comp->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_get_cq_event(pair.client.comp, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ibv_req_notify_cq(pair.client.send_cq, 0), 0);
	side_recv(&pair.server, 1, 0, 64);
	side_send(&pair.client, 1, 0, 8);
	loop_until_event(&pair.client, pair.client.send_cq);
	pair_close(&pair);
}

/* As the manual's example does: it takes no EAGAIN, so it must not get one. */
static void test_channel_nonblocking_and_readable_has_an_event(void **state)
{
	struct pair_options options = {.bytes = 2 * MIB};
	struct ibv_cq *cq;
	struct pair pair;
	void *context;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(fcntl(pair.server.comp->fd, F_SETFL, O_NONBLOCK), 0);
	for (unsigned i = 0; i < 50; i++) {
		assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 0), 0);
		side_recv(&pair.server, i, MIB, MIB);
		side_send(&pair.client, i, 0, MIB);
		assert_true(fd_is_readable(pair.server.comp->fd, WAIT_MS));
		assert_int_equal(ibv_get_cq_event(pair.server.comp, &cq, &context), 0);
		assert_ptr_equal(cq, pair.server.recv_cq);
		ibv_ack_cq_events(cq, 1);
		cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

/* ---- in the loop ---- */

static void begin_loop(const struct side *side)
{
	struct ibv_cq *cq;
	void *context;

	assert_int_equal(fcntl(side->comp->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_get_cq_event(side->comp, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
}

static void *answer_in_loop(void *arg)
{
	struct side *side = arg;

	for (unsigned i = 0; i < 300; i++) {
		loop_until_event(side, side->recv_cq);
		assert_int_equal(ibv_req_notify_cq(side->recv_cq, 0), 0);
		cq_expect(side->recv_cq, i, IBV_WC_SUCCESS);
		side_send(side, i, 0, 8);
		cq_expect(side->send_cq, i, IBV_WC_SUCCESS);
	}
	return NULL;
}

/* One sleeps in its loop; the other spins, or sleeps as well. */
static void test_ping_pong_with_a_loop_loses_no_wakeup(void **state)
{
	struct pair_options options = {.depth = 512};
	struct pair pair;
	pthread_t thread;

	(void)state;
	pair_open(&pair, &options);
	begin_loop(&pair.server);
	begin_loop(&pair.client);
	for (unsigned i = 0; i < 300; i++) {
		side_recv(&pair.server, i, 0, 64);
		side_recv(&pair.client, i, 0, 64);
	}
	assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, answer_in_loop, &pair.server), 0);
	for (unsigned i = 0; i < 300; i++) {
		bool sleeps = i % 50 >= 25;

		if (sleeps)
			assert_int_equal(ibv_req_notify_cq(pair.client.recv_cq, 0), 0);
		side_send(&pair.client, i, 0, 8);
		if (sleeps)
			loop_until_event(&pair.client, pair.client.recv_cq);
		cq_expect(pair.client.recv_cq, i, IBV_WC_SUCCESS);
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	pair_close(&pair);
}

/* More of them than are woken by the data itself: the others are told as ever. */
static void test_many_channels_in_loops_are_all_woken(void **state)
{
	struct pair pairs[12];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(pairs); i++) {
		pair_open(&pairs[i], &defaults);
		begin_loop(&pairs[i].server);
		assert_int_equal(ibv_req_notify_cq(pairs[i].server.recv_cq, 0), 0);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(pairs); i++) {
		side_recv(&pairs[i].server, i, 0, 64);
		side_send(&pairs[i].client, i, 0, 8);
		loop_until_event(&pairs[i].server, pairs[i].server.recv_cq);
		cq_expect(pairs[i].server.recv_cq, i, IBV_WC_SUCCESS);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(pairs); i++)
		pair_close(&pairs[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_channel_nonblocking_and_empty_gives_eagain),
		cmocka_unit_test(test_channel_nonblocking_and_readable_has_an_event),
		cmocka_unit_test(test_ping_pong_with_a_loop_loses_no_wakeup),
		cmocka_unit_test(test_many_channels_in_loops_are_all_woken),
	};

	return cmocka_run_group_tests_name("loops", tests, NULL, NULL);
}
