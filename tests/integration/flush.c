/* SPDX-License-Identifier: MIT */
/* Every outstanding request completes exactly once, whoever ends the connection. */
#include "pair.h"

#define SENDS 48
#define RECVS 32

static const struct pair_options options = {.bytes = 4 * MIB, .depth = 64, .reads = 2};

/*
 * Sends, reads and writes of all sizes, more than can leave at once; then receives, on both sides.
 */
static void post_much(struct side *side, struct tally *sends, struct tally *recvs)
{
	static const enum ibv_wr_opcode kinds[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						   IBV_WR_SEND};

	for (unsigned i = 0; i < RECVS; i++)
		side_recv(side, i, 0, MIB);
	for (unsigned i = 0; i < SENDS; i++)
		side_post(side, &(struct request){.opcode = kinds[i % 3],
						  .id = i,
						  .len = i % 3 == 2 ? 100 : i % 5 * 600000,
						  .flags = IBV_SEND_SIGNALED});
	*sends = (struct tally){.posted = SENDS};
	*recvs = (struct tally){.posted = RECVS};
}

/* All of it has completed, in order, and no more comes. */
static void drain_side(struct side *side, struct tally *sends, struct tally *recvs)
{
	tally_drain(sends, side->send_cq);
	tally_drain(recvs, side->recv_cq);
	cm_expect(side->channel, RDMA_CM_EVENT_DISCONNECTED);
	tally_drain(sends, side->send_cq);
	tally_drain(recvs, side->recv_cq);
	assert_int_equal(sends->failed + recvs->failed, 0);
}

static void modify_to_error(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	assert_int_equal(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE), 0);
}

static void disconnect(struct side *side)
{
	assert_int_equal(rdma_disconnect(side->id), 0);
}

static void run_end(void (*end)(struct side *side), bool by_server)
{
	struct tally client[2], server[2];
	struct pair pair;

	pair_open(&pair, &options);
	post_much(&pair.client, &client[0], &client[1]);
	post_much(&pair.server, &server[0], &server[1]);
	end(by_server ? &pair.server : &pair.client);
	drain_side(&pair.client, &client[0], &client[1]);
	drain_side(&pair.server, &server[0], &server[1]);
	/* Sends too, unless copies were faster than we are. */
	assert_true(client[0].flushed + client[1].flushed > 0);
	pair_close(&pair);
}

static void test_disconnect_flushes_everything_once(void **state)
{
	(void)state;
	for (int i = 0; i < 6; i++)
		run_end(disconnect, i % 2);
}

static void test_modify_to_error_flushes_everything_once(void **state)
{
	(void)state;
	for (int i = 0; i < 6; i++)
		run_end(modify_to_error, i % 2);
}

static void test_post_in_error_state_flushes_in_order(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	modify_to_error(&pair.client);
	for (unsigned i = 0; i < 32; i++) {
		side_recv(&pair.client, i, 0, 64);
		/* Unsignalled, but what fails is always told. */
		side_post(&pair.client,
			  &(struct request){.opcode = i % 2 ? IBV_WR_SEND : IBV_WR_RDMA_READ,
					    .id = i,
					    .len = 64});
	}
	for (unsigned i = 0; i < 32; i++) {
		cq_expect(pair.client.send_cq, i, IBV_WC_WR_FLUSH_ERR);
		cq_expect(pair.client.recv_cq, i, IBV_WC_WR_FLUSH_ERR);
	}
	cq_expect_none(pair.client.send_cq);
	cq_expect_none(pair.client.recv_cq);
	pair_close(&pair);
}

static void test_modify_to_error_twice_flushes_once(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	side_recv(&pair.client, 1, 0, 64);
	modify_to_error(&pair.client);
	modify_to_error(&pair.client);
	cq_expect(pair.client.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
	cq_expect_none(pair.client.recv_cq);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	pair_close(&pair);
}

static void test_receives_posted_before_a_refused_connect_are_flushed(void **state)
{
	struct side side = {0};

	(void)state;
	side_resolve(&side, unused_port());
	side_equip(&side, &options);
	for (unsigned i = 0; i < 4; i++)
		side_recv(&side, i, 0, 64);
	side_connect(&side, &options);
	cm_expect(side.channel, RDMA_CM_EVENT_REJECTED);
	for (unsigned i = 0; i < 4; i++)
		cq_expect(side.recv_cq, i, IBV_WC_WR_FLUSH_ERR);
	side_close(&side);
}

static void test_send_before_connection_is_refused(void **state)
{
	struct side side = {0};

	(void)state;
	side_resolve(&side, unused_port());
	side_equip(&side, &options);
	assert_int_not_equal(side_try(&side, &(struct request){.opcode = IBV_WR_SEND, .len = 8}),
			     0);
	side_close(&side);
}

/*
 * A message that was acknowledged by its completion and then a disconnect: it arrives all the same.
 */
static void test_disconnect_after_completion_loses_no_message(void **state)
{
	struct pair pair;

	(void)state;
	for (unsigned round = 0; round < 10; round++) {
		pair_open(&pair, &options);
		for (unsigned i = 0; i < RECVS; i++)
			side_recv(&pair.server, i, 0, 64 * KIB);
		for (unsigned i = 0; i < RECVS; i++)
			side_send(&pair.client, i, 0, 64 * KIB);
		for (unsigned i = 0; i < RECVS; i++)
			cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
		disconnect(&pair.client);
		for (unsigned i = 0; i < RECVS; i++)
			cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
		pair_close(&pair);
	}
}

/* What is destroyed takes its completions with it, and only its own. */
static void test_destroyed_qp_leaves_no_completion_behind(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 8; i++)
		side_recv(&pair.client, i, 0, 64);
	rdma_destroy_qp(pair.client.id);
	cq_expect_none(pair.client.recv_cq);
	pair_close(&pair);
}

static void test_destroy_with_work_outstanding_is_clean(void **state)
{
	struct tally sends, recvs;
	struct pair pair;

	(void)state;
	for (int i = 0; i < 10; i++) {
		pair_open(&pair, &options);
		post_much(&pair.client, &sends, &recvs);
		post_much(&pair.server, &sends, &recvs);
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_disconnect_flushes_everything_once),
		cmocka_unit_test(test_modify_to_error_flushes_everything_once),
		cmocka_unit_test(test_post_in_error_state_flushes_in_order),
		cmocka_unit_test(test_modify_to_error_twice_flushes_once),
		cmocka_unit_test(test_receives_posted_before_a_refused_connect_are_flushed),
		cmocka_unit_test(test_send_before_connection_is_refused),
		cmocka_unit_test(test_disconnect_after_completion_loses_no_message),
		cmocka_unit_test(test_destroyed_qp_leaves_no_completion_behind),
		cmocka_unit_test(test_destroy_with_work_outstanding_is_clean),
	};

	return cmocka_run_group_tests_name("flush", tests, NULL, NULL);
}
