/* SPDX-License-Identifier: MIT */
/* A SEND that finds no receive waits for one. */
#include "pair.h"

#define KEPT (256 * KIB) /* no more than about so much is kept */

static void test_send_without_a_receive_waits_and_is_delivered(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	fill(pair.client.buf, 1000, 1);
	side_send(&pair.client, 1, 0, 1000);
	cq_expect_none(pair.server.recv_cq);
	cq_expect_none(pair.client.send_cq); /* it is not over before it has been placed */
	side_recv(&pair.server, 2, 0, 2000);
	assert_int_equal(cq_expect(pair.server.recv_cq, 2, IBV_WC_SUCCESS).byte_len, 1000);
	cq_expect(pair.client.send_cq, 1, IBV_WC_SUCCESS);
	assert_true(is_filled(pair.server.buf, 1000, 1));
	cm_expect_none(pair.server.channel);
	pair_close(&pair);
}

/* Empty ones too: each takes its own receive. */
static void test_sends_without_receives_keep_their_order(void **state)
{
	struct pair_options options = {.depth = 128, .bytes = 128 * 512};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 128; i++) {
		fill(pair.client.buf + i * 512, 512, i);
		side_send(&pair.client, i, i * 512, i * 4);
	}
	cq_expect_none(pair.client.send_cq);
	for (unsigned i = 0; i < 128; i++) {
		side_recv(&pair.server, i, 0, 512);
		assert_int_equal(cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS).byte_len, i * 4);
		assert_true(is_filled(pair.server.buf, i * 4, i));
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

static void test_send_larger_than_what_is_kept_waits_and_is_delivered(void **state)
{
	struct pair_options options = {.bytes = 16 * MIB};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 3; i++) {
		fill(pair.client.buf, 16 * MIB, i);
		side_send(&pair.client, i, 0, 16 * MIB);
		cq_expect_none(pair.server.recv_cq);
		side_recv(&pair.server, i, 0, 16 * MIB);
		cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
		assert_true(is_filled(pair.server.buf, 16 * MIB, i));
	}
	pair_close(&pair);
}

/* Far more than the socket's buffers and what is kept together; receives trickle in. */
static void test_many_sends_without_receives_are_all_delivered(void **state)
{
	struct pair_options options = {.depth = 1024, .bytes = MIB};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	fill(pair.client.buf, MIB, 0);
	for (unsigned i = 0; i < 1000; i++)
		side_send(&pair.client, i, i, 30000 + i % 100);
	cq_expect_none(pair.server.recv_cq);
	for (unsigned i = 0; i < 1000; i++) {
		side_recv(&pair.server, i, 0, 32 * KIB);
		assert_int_equal(cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS).byte_len,
				 30000 + i % 100);
		assert_memory_equal(pair.server.buf, pair.client.buf + i, 30000 + i % 100);
	}
	for (unsigned i = 0; i < 1000; i++)
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/*
 * The peer's sends fill what is kept; behind them on the same stream come the answers to our reads.
 */
static void test_read_responses_behind_a_waiting_send_are_not_lost(void **state)
{
	struct pair_options options = {.bytes = 2 * MIB, .depth = 64};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	fill(pair.client.buf, 2 * MIB, 3);
	for (unsigned i = 0; i < 40; i++)
		side_send(&pair.client, i, 0, KEPT / 8); /* five times what is kept */
	side_post(&pair.server, &(struct request){.opcode = IBV_WR_RDMA_READ,
						  .id = 7,
						  .at = MIB,
						  .len = MIB,
						  .remote_at = 0,
						  .flags = IBV_SEND_SIGNALED});
	for (unsigned i = 0; i < 40; i++) {
		side_recv(&pair.server, i, 0, KEPT / 8);
		cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
	}
	cq_expect(pair.server.send_cq, 7, IBV_WC_SUCCESS);
	assert_true(is_filled(pair.server.buf + MIB, MIB, 3));
	pair_close(&pair);
}

/* Less than what is kept: reads in both directions pass it by. */
static void test_reads_pass_a_send_that_is_kept(void **state)
{
	struct pair_options options = {.bytes = 2 * MIB};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	fill(pair.client.buf, MIB, 5);
	side_send(&pair.client, 1, 0, 1000);
	side_post(&pair.server, &(struct request){.opcode = IBV_WR_RDMA_READ,
						  .id = 2,
						  .at = MIB,
						  .len = MIB,
						  .flags = IBV_SEND_SIGNALED});
	cq_expect(pair.server.send_cq, 2, IBV_WC_SUCCESS);
	assert_true(is_filled(pair.server.buf + MIB, MIB, 5));
	cq_expect_none(pair.client.send_cq);
	side_recv(&pair.server, 3, 0, 1000);
	cq_expect(pair.server.recv_cq, 3, IBV_WC_SUCCESS);
	cq_expect(pair.client.send_cq, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

static void test_waiting_send_longer_than_the_late_receive_fails_it(void **state)
{
	static const uint32_t lengths[] = {65, 70000, MIB};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct pair_options options = {.bytes = MIB};
		struct pair pair;

		pair_open(&pair, &options);
		memset(pair.server.buf, 0x5a, MIB);
		side_send(&pair.client, 1, 0, lengths[i]);
		cq_expect_none(pair.server.recv_cq);
		side_recv(&pair.server, 2, 4096, 64);
		cq_expect(pair.server.recv_cq, 2, IBV_WC_LOC_LEN_ERR);
		cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
		cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
		assert_true(is_all(pair.server.buf, 4096, 0x5a));
		assert_true(is_all(pair.server.buf + 4160, MIB - 4160, 0x5a));
		pair_close(&pair);
	}
}

/*
 * The stream is not read then, but its end is noticed: at once, or, behind more than the sockets
 * hold, after a while.
 */
static void leave_behind(uint32_t len, unsigned count)
{
	struct pair_options options = {.bytes = 8 * MIB};
	struct tally tally = {.posted = count};
	struct pair pair;

	pair_open(&pair, &options);
	for (unsigned i = 0; i < count; i++)
		side_send(&pair.client, i, 0, len);
	cq_expect_none(pair.server.recv_cq);
	assert_int_equal(rdma_disconnect(pair.client.id), 0);
	tally_drain(&tally, pair.client.send_cq);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	pair_close(&pair);
}

static void test_peer_that_leaves_behind_waiting_sends_is_noticed(void **state)
{
	(void)state;
	leave_behind(100, 1);
	leave_behind(KEPT / 8, 9);
	leave_behind(8 * MIB, 1);
}

/*
 * A peer that leaves does not wait for receives. What still waits for one is discarded, and was
 * never reported to its sender as done.
 */
static void test_waiting_sends_of_a_peer_that_leaves_are_discarded(void **state)
{
	struct pair_options options = {0};
	struct tally tally = {.posted = 8};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 8; i++)
		side_send(&pair.client, i, 0, 100);
	cq_expect_none(pair.server.recv_cq);
	assert_int_equal(rdma_disconnect(pair.client.id), 0);
	tally_drain(&tally, pair.client.send_cq);
	assert_int_equal(tally.flushed, 8);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	side_recv(&pair.server, 9, 0, 100);
	cq_expect(pair.server.recv_cq, 9, IBV_WC_WR_FLUSH_ERR);
	pair_close(&pair);
}

static void test_disconnect_with_sends_waiting_here_is_clean(void **state)
{
	static const uint32_t lengths[] = {1, 100000, 8 * MIB};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct pair_options options = {.bytes = 8 * MIB};
		struct pair pair;

		pair_open(&pair, &options);
		side_send(&pair.client, 1, 0, lengths[i]);
		cq_expect_none(pair.server.recv_cq);
		assert_int_equal(rdma_disconnect(pair.server.id), 0);
		cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
		cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
		assert_int_equal(cq_next(pair.client.send_cq).wr_id, 1);
		pair_close(&pair);
	}
}

/* Two queue pairs wait on one shared queue. */
static void test_sends_wait_for_shared_receives(void **state)
{
	struct pair_options options = {.shared_receives = true};
	struct tally tally = {.posted = 32};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 32; i++)
		side_send(&pair.client, i, 0, 100);
	cq_expect_none(pair.client.send_cq);
	for (unsigned i = 0; i < 32; i++)
		side_recv(&pair.server, i, 0, 100);
	tally_drain(&tally, pair.server.recv_cq);
	for (unsigned i = 0; i < 32; i++)
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
	assert_int_equal(tally.failed + tally.flushed, 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_send_without_a_receive_waits_and_is_delivered),
		cmocka_unit_test(test_sends_without_receives_keep_their_order),
		cmocka_unit_test(test_send_larger_than_what_is_kept_waits_and_is_delivered),
		cmocka_unit_test(test_many_sends_without_receives_are_all_delivered),
		cmocka_unit_test(test_read_responses_behind_a_waiting_send_are_not_lost),
		cmocka_unit_test(test_reads_pass_a_send_that_is_kept),
		cmocka_unit_test(test_waiting_send_longer_than_the_late_receive_fails_it),
		cmocka_unit_test(test_peer_that_leaves_behind_waiting_sends_is_noticed),
		cmocka_unit_test(test_waiting_sends_of_a_peer_that_leaves_are_discarded),
		cmocka_unit_test(test_disconnect_with_sends_waiting_here_is_clean),
		cmocka_unit_test(test_sends_wait_for_shared_receives),
	};

	return cmocka_run_group_tests_name("soft_held", tests, NULL, NULL);
}
