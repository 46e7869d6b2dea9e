/* SPDX-License-Identifier: MIT */
/* The states of a queue pair: draining, the last receive, rights, what the query call tells. */
#include "pair.h"

static const struct pair_options defaults;

static int modify(struct side *side, enum ibv_qp_state state, int more)
{
	struct ibv_qp_attr attr = {.qp_state = state, .en_sqd_async_notify = 1};

	return ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | more);
}

static void expect_event(struct side *side, enum ibv_event_type type)
{
	struct ibv_async_event event;

	if (!fd_is_readable(side->id->verbs->async_fd, WAIT_MS))
		fail_msg("no asynchronous event came");
	assert_int_equal(ibv_get_async_event(side->id->verbs, &event), 0);
	assert_int_equal(event.event_type, type);
	assert_ptr_equal(event.element.qp, side->qp);
	ibv_ack_async_event(&event);
}

static void expect_no_event(struct side *side)
{
	assert_false(fd_is_readable(side->id->verbs->async_fd, QUIET_MS));
}

/* ---- completions ---- */

/* Who tells the peer of its completion by another way must find it there. */
static void test_completed_request_has_been_placed(void **state)
{
	static const uint32_t lengths[] = {1, 64, 5000, 70000};
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, &(struct pair_options){.bytes = MIB});
	for (unsigned i = 0; i < 200; i++) {
		uint32_t len = lengths[i % ARRAY_SIZE(lengths)];

		memset(pair.client.buf, (int)i, len);
		side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_WRITE,
							  .id = i,
							  .len = len,
							  .flags = IBV_SEND_SIGNALED});
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
		assert_true(is_all(pair.server.buf, len, (uint8_t)i));
		side_recv(&pair.server, i, MIB / 2, len);
		side_send(&pair.client, i, 0, len);
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
		assert_true(is_all(pair.server.buf + MIB / 2, len, (uint8_t)i));
		assert_int_equal(ibv_poll_cq(pair.server.recv_cq, 1, &wc), 1);
	}
	pair_close(&pair);
}

/* ---- SQD ---- */

static void test_drained_queue_pair_starts_no_request(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	side_recv(&pair.server, 1, 0, 64);
	assert_int_equal(modify(&pair.client, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	expect_event(&pair.client, IBV_EVENT_SQ_DRAINED);
	side_send(&pair.client, 7, 0, 8);
	cq_expect_none(pair.server.recv_cq);
	assert_int_equal(modify(&pair.client, IBV_QPS_RTS, 0), 0);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS);
	cq_expect(pair.client.send_cq, 7, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* The message has begun and waits for its receive: only when it is over the queue is drained. */
static void test_drain_waits_for_what_has_begun(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	side_send(&pair.client, 1, 0, 8);
	cq_expect_none(pair.server.recv_cq);
	assert_int_equal(modify(&pair.client, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	expect_no_event(&pair.client);
	assert_int_equal(ibv_query_qp(pair.client.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_SQD);
	assert_true(attr.sq_draining);
	side_recv(&pair.server, 2, 0, 64);
	cq_expect(pair.server.recv_cq, 2, IBV_WC_SUCCESS);
	cq_expect(pair.client.send_cq, 1, IBV_WC_SUCCESS);
	expect_event(&pair.client, IBV_EVENT_SQ_DRAINED);
	pair_close(&pair);
}

/* ---- the last receive of a shared queue ---- */

/* One for either end, and nothing more: both have a shared queue, on one device. */
static void expect_last_receives(struct pair *pair)
{
	unsigned client = 0, server = 0;

	for (unsigned i = 0; i < 2; i++) {
		struct ibv_async_event event;

		if (!fd_is_readable(pair->client.id->verbs->async_fd, WAIT_MS))
			fail_msg("no asynchronous event came");
		assert_int_equal(ibv_get_async_event(pair->client.id->verbs, &event), 0);
		assert_int_equal(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
		client += event.element.qp == pair->client.qp;
		server += event.element.qp == pair->server.qp;
		ibv_ack_async_event(&event);
	}
	assert_int_equal(client, 1);
	assert_int_equal(server, 1);
	expect_no_event(&pair->client);
}

static void test_move_to_error_tells_that_the_last_receive_was_used(void **state)
{
	struct pair_options options = {.shared_receives = true};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(modify(&pair.server, IBV_QPS_ERR, 0), 0);
	expect_last_receives(&pair);
	pair_close(&pair);
}

static void test_disconnect_tells_that_the_last_receive_was_used(void **state)
{
	struct pair_options options = {.shared_receives = true};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(rdma_disconnect(pair.server.id), 0);
	expect_last_receives(&pair);
	pair_close(&pair);
}

/* ---- rights ---- */

static void run_right(enum ibv_wr_opcode opcode, unsigned lacking)
{
	struct ibv_qp_attr attr = {.qp_access_flags = ALL_ACCESS & ~lacking};
	struct pair pair;

	pair_open(&pair, &defaults);
	memset(pair.server.buf, 0x11, pair.server.size);
	memset(pair.client.buf, 0x22, pair.client.size);
	assert_int_equal(ibv_modify_qp(pair.server.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
	side_post(&pair.client,
		  &(struct request){
			  .opcode = opcode, .id = 1, .len = 64, .flags = IBV_SEND_SIGNALED});
	cq_expect(pair.client.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	assert_true(is_all(pair.server.buf, pair.server.size, 0x11));
	assert_true(is_all(pair.client.buf, pair.client.size, 0x22));
	pair_close(&pair);
}

static void test_queue_pair_refuses_what_it_does_not_grant(void **state)
{
	(void)state;
	run_right(IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE);
	run_right(IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ);
}

/* ---- attributes ---- */

static void test_query_tells_what_was_set(void **state)
{
	struct ibv_qp_attr set = {.min_rnr_timer = 14, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
	struct ibv_qp_attr set_too = {.timeout = 17, .retry_cnt = 5, .rnr_retry = 6, .sq_psn = 99};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(
		ibv_modify_qp(pair.client.qp, &set, IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS), 0);
	assert_int_equal(
		ibv_modify_qp(pair.client.qp, &set_too,
			      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN),
		0);
	assert_int_equal(ibv_query_qp(pair.client.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.min_rnr_timer, 14);
	assert_int_equal(attr.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(attr.timeout, 17);
	assert_int_equal(attr.retry_cnt, 5);
	assert_int_equal(attr.rnr_retry, 6);
	assert_int_equal(attr.sq_psn, 99);
	/* 127.0.0.1 is at the other end. */
	assert_true(attr.ah_attr.is_global);
	assert_int_equal(attr.ah_attr.grh.dgid.raw[15], 1);
	pair_close(&pair);
}

static void test_step_that_does_not_exist_is_refused(void **state)
{
	struct ibv_qp_attr attr = {.path_mtu = 9};
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(modify(&pair.client, IBV_QPS_INIT, 0), EINVAL);
	assert_int_equal(modify(&pair.client, IBV_QPS_RTR, 0), EINVAL);
	assert_int_equal(modify(&pair.client, IBV_QPS_UNKNOWN, 0), EINVAL);
	assert_int_equal(modify(&pair.client, IBV_QPS_RTS, IBV_QP_DEST_QPN), EINVAL);
	assert_int_equal(ibv_modify_qp(pair.client.qp, &attr, IBV_QP_PATH_MTU), EINVAL);
	attr.cur_qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(pair.client.qp, &attr, IBV_QP_CUR_STATE), EINVAL);
	side_recv(&pair.server, 1, 0, 64);
	side_send(&pair.client, 1, 0, 8);
	cq_expect(pair.client.send_cq, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* As with libibverbs, where leaked objects are the program's own affair. */
static void test_device_closes_though_objects_are_left(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_device_attr attr;
	struct ibv_pd *pd;

	(void)state;
	assert_non_null(list);
	context = ibv_open_device(list[0]);
	assert_non_null(context);
	ibv_free_device_list(list);
	assert_int_equal(ibv_query_device(context, &attr), 0);
	assert_int_not_equal(attr.vendor_id, 0);
	assert_int_not_equal(attr.vendor_part_id, 0);
	assert_int_not_equal(attr.max_raw_ethy_qp, 0);
	pd = ibv_alloc_pd(context);
	assert_non_null(pd);
	assert_int_equal(ibv_close_device(context), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_completed_request_has_been_placed),
		cmocka_unit_test(test_drained_queue_pair_starts_no_request),
		cmocka_unit_test(test_drain_waits_for_what_has_begun),
		cmocka_unit_test(test_move_to_error_tells_that_the_last_receive_was_used),
		cmocka_unit_test(test_disconnect_tells_that_the_last_receive_was_used),
		cmocka_unit_test(test_queue_pair_refuses_what_it_does_not_grant),
		cmocka_unit_test(test_query_tells_what_was_set),
		cmocka_unit_test(test_step_that_does_not_exist_is_refused),
		cmocka_unit_test(test_device_closes_though_objects_are_left),
	};

	return cmocka_run_group_tests_name("soft_states", tests, NULL, NULL);
}
