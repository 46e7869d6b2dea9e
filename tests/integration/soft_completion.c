/* SPDX-License-Identifier: MIT */
/*
 * What a completion means between two softrdma ends: a SEND or WRITE that has completed is in
 * place, and one that the peer refused says why. SOFTRDMA_RECV_TIMEOUT is short here.
 */
#include "pair.h"

#define ROUNDS 50

static const uint32_t lengths[] = {64, 4 * KIB, 64 * KIB, MIB};

/* ---- success ---- */

/* The server does nothing: whoever watches its memory sees the data when the completion is there.
 */
static void test_completed_write_is_in_place(void **state)
{
	struct pair_options options = {.bytes = MIB};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < ROUNDS * ARRAY_SIZE(lengths); i++) {
		uint32_t len = lengths[i % ARRAY_SIZE(lengths)];

		fill(pair.client.buf, len, i);
		side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_WRITE,
							  .id = i,
							  .len = len,
							  .flags = IBV_SEND_SIGNALED});
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
		side_settle(&pair.server);
		assert_true(is_filled(pair.server.buf, len, i));
	}
	pair_close(&pair);
}

static void test_completed_send_is_in_place(void **state)
{
	struct pair_options options = {.bytes = MIB};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < ROUNDS * ARRAY_SIZE(lengths); i++) {
		uint32_t len = lengths[i % ARRAY_SIZE(lengths)];

		fill(pair.client.buf, len, i);
		side_recv(&pair.server, i, 0, MIB);
		side_send(&pair.client, i, 0, len);
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
		side_settle(&pair.server);
		assert_true(is_filled(pair.server.buf, len, i));
		cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

/* ---- refusals ---- */

/*
 * A good SEND, then @wrong, then another SEND. The first is over, and is reported so. The second
 * has @status, and the third is flushed. @recv: the receive for the second, with this length;
 * @spoilt: and with a key that nobody has.
 */
struct refusal {
	struct request wrong;
	enum ibv_wc_status status;
	uint32_t recv;
	bool spoilt;
};

static void post_spoilt_recv(struct side *side, uint32_t len)
{
	struct ibv_sge piece = {
		.addr = (uintptr_t)side->buf, .length = len, .lkey = side->mr->lkey ^ 0x01000100};
	struct ibv_recv_wr wr = {.wr_id = 11, .sg_list = &piece, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(side->qp, &wr, &bad), 0);
}

static void refuse(const struct refusal *refusal)
{
	struct request wrong = refusal->wrong;
	struct pair_options options = {0};
	struct pair pair;

	pair_open(&pair, &options);
	side_recv(&pair.server, 10, 0, 64);
	if (refusal->spoilt)
		post_spoilt_recv(&pair.server, refusal->recv);
	else if (refusal->recv)
		side_recv(&pair.server, 11, 0, refusal->recv);
	wrong.id = 2;
	wrong.flags = IBV_SEND_SIGNALED;
	if (wrong.key)
		wrong.key = pair.client.remote.key ^ 0x01000100;
	side_send(&pair.client, 1, 0, 64);
	side_post(&pair.client, &wrong);
	side_send(&pair.client, 3, 0, 64);
	cq_expect(pair.client.send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(pair.client.send_cq, 2, refusal->status);
	cq_expect(pair.client.send_cq, 3, IBV_WC_WR_FLUSH_ERR);
	cq_expect(pair.server.recv_cq, 10, IBV_WC_SUCCESS);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	pair_close(&pair);
}

static const enum ibv_wr_opcode onesided[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};

static void test_wrong_key_is_a_remote_access_error(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(onesided); i++)
		refuse(&(struct refusal){.wrong = {.opcode = onesided[i], .len = 64, .key = 1},
					 .status = IBV_WC_REM_ACCESS_ERR});
}

static void test_wrong_bounds_are_a_remote_access_error(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(onesided); i++)
		refuse(&(struct refusal){
			.wrong = {.opcode = onesided[i], .len = 64, .remote_at = MIB},
			.status = IBV_WC_REM_ACCESS_ERR});
}

static void test_message_longer_than_its_receive_is_an_invalid_request(void **state)
{
	(void)state;
	refuse(&(struct refusal){.wrong = {.opcode = IBV_WR_SEND, .len = 65},
				 .status = IBV_WC_REM_INV_REQ_ERR,
				 .recv = 64});
	refuse(&(struct refusal){.wrong = {.opcode = IBV_WR_SEND, .len = 60000},
				 .status = IBV_WC_REM_INV_REQ_ERR,
				 .recv = 64});
}

static void test_key_that_may_not_be_invalidated_is_an_invalid_request(void **state)
{
	(void)state;
	refuse(&(struct refusal){.wrong = {.opcode = IBV_WR_SEND_WITH_INV, .len = 64, .key = 1},
				 .status = IBV_WC_REM_INV_REQ_ERR,
				 .recv = 64});
}

static void test_receive_that_is_wrong_is_a_remote_operation_error(void **state)
{
	(void)state;
	refuse(&(struct refusal){.wrong = {.opcode = IBV_WR_SEND, .len = 64},
				 .status = IBV_WC_REM_OP_ERR,
				 .recv = 64,
				 .spoilt = true});
}

static void test_no_receive_for_too_long_is_told_as_such(void **state)
{
	(void)state;
	refuse(&(struct refusal){.wrong = {.opcode = IBV_WR_SEND, .len = 64},
				 .status = IBV_WC_RNR_RETRY_EXC_ERR});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_completed_write_is_in_place),
		cmocka_unit_test(test_completed_send_is_in_place),
		cmocka_unit_test(test_wrong_key_is_a_remote_access_error),
		cmocka_unit_test(test_wrong_bounds_are_a_remote_access_error),
		cmocka_unit_test(test_message_longer_than_its_receive_is_an_invalid_request),
		cmocka_unit_test(test_key_that_may_not_be_invalidated_is_an_invalid_request),
		cmocka_unit_test(test_receive_that_is_wrong_is_a_remote_operation_error),
		cmocka_unit_test(test_no_receive_for_too_long_is_told_as_such),
	};

	return cmocka_run_group_tests_name("soft_completion", tests, NULL, NULL);
}
