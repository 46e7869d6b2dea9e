/* SPDX-License-Identifier: MIT */
/* Queue pairs that their program connects by number, with ibv_modify_qp alone. */
#include "numbered.h"

#include <poll.h>
#include <unistd.h>

#define FIRST_PSN   0x111111u
#define OTHER_PSN   0x222222u
#define MANY        300 /* more than a port has numbers for */
#define SHORT_TRIES 10  /* timeout: 4 ms for each try */

static void test_numbers_exchange_all_kinds_of_requests(void **state)
{
	static const enum ibv_wr_opcode kinds[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						   IBV_WR_ATOMIC_FETCH_AND_ADD};
	struct numbered *a = numbered_open(), *b = numbered_open();

	(void)state;
	numbered_connect(a, FIRST_PSN, b, OTHER_PSN, LONG_TRIES);
	numbered_exchange(a, b);
	numbered_exchange(b, a);
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		numbered_post(a, b, kinds[i], 8);
		numbered_await(a, kinds[i], IBV_WC_SUCCESS);
	}
	assert_int_equal(b->buf[0],
			 a->buf[NUMBERED_BYTES / 2] + 5); /* the atomic's answer, and its effect */
	numbered_close(a);
	numbered_close(b);
}

/* One side is through before the other has begun, and what it posted waits. */
static void test_early_requests_wait_for_a_peer_that_is_late(void **state)
{
	struct numbered *a = numbered_open(), *b = numbered_open();

	(void)state;
	numbered_rtr(a, b, OTHER_PSN);
	numbered_rts(a, FIRST_PSN, 0); /* for ever */
	fill(a->buf + NUMBERED_BYTES / 2, 1000, 9);
	numbered_post(a, b, IBV_WR_SEND, 1000);
	numbered_post_recv(b, 100);
	poll(NULL, 0, QUIET_MS); /* the first hellos come too early */
	numbered_rtr(b, a, FIRST_PSN);
	numbered_await(a, IBV_WR_SEND, IBV_WC_SUCCESS); /* though b is in RTR alone */
	numbered_await(b, 100, IBV_WC_SUCCESS);
	assert_true(is_filled(b->buf, 1000, 9));
	numbered_assert_state(b, IBV_QPS_RTR);
	numbered_rts(b, OTHER_PSN, LONG_TRIES);
	numbered_exchange(b, a);
	numbered_close(a);
	numbered_close(b);
}

static void test_number_connected_to_itself_hears_itself(void **state)
{
	struct numbered *a = numbered_open();

	(void)state;
	numbered_rtr(a, a, FIRST_PSN);
	numbered_rts(a, FIRST_PSN, LONG_TRIES);
	memset(a->buf + NUMBERED_BYTES / 2, 0x42, 500);
	numbered_post_recv(a, 100);
	numbered_post(a, a, IBV_WR_SEND, 500);
	for (unsigned i = 0; i < 2; i++) { /* which is first is open */
		uint64_t limit = now_ms() + WAIT_MS;
		struct ibv_wc wc;

		while (!ibv_poll_cq(a->cq, 1, &wc))
			assert_true(now_ms() < limit);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	assert_true(is_all(a->buf, 500, 0x42));
	memset(a->buf, 0x17, 500);
	numbered_post(a, a, IBV_WR_RDMA_READ, 500);
	numbered_await(a, IBV_WR_RDMA_READ, IBV_WC_SUCCESS);
	assert_true(is_all(a->buf + NUMBERED_BYTES / 2, 500, 0x17));
	numbered_close(a);
}

static void test_vanished_peer_fails_only_what_is_asked_of_it(void **state)
{
	struct numbered *a = numbered_open(), *b = numbered_open();

	(void)state;
	numbered_connect(a, FIRST_PSN, b, OTHER_PSN, SHORT_TRIES);
	numbered_exchange(a, b);
	assert_int_equal(ibv_destroy_qp(b->qp), 0);
	b->qp = NULL;
	poll(NULL, 0, QUIET_MS); /* a hears of it, and nothing follows from that */
	numbered_assert_state(a, IBV_QPS_RTS);
	numbered_post(a, b, IBV_WR_SEND, 10);
	numbered_post(a, b, IBV_WR_RDMA_WRITE, 10);
	numbered_await(a, IBV_WR_SEND, IBV_WC_RETRY_EXC_ERR);
	numbered_await(a, IBV_WR_RDMA_WRITE, IBV_WC_WR_FLUSH_ERR);
	numbered_assert_state(a, IBV_QPS_ERR);
	numbered_close(a);
	numbered_close(b);
}

static void test_wrong_starting_psn_never_meets(void **state)
{
	struct numbered *a = numbered_open(), *b = numbered_open();

	(void)state;
	numbered_rtr(a, b, OTHER_PSN);
	numbered_rtr(b, a, FIRST_PSN + 1);
	numbered_rts(a, FIRST_PSN, SHORT_TRIES);
	numbered_rts(b, OTHER_PSN, SHORT_TRIES);
	numbered_post(a, b, IBV_WR_RDMA_WRITE, 10);
	numbered_await(a, IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR);
	numbered_close(a);
	numbered_close(b);
}

/* The acceptor's PSN is known only after they have met. */
static void test_wrong_psn_of_a_late_sender_ends_the_meeting(void **state)
{
	struct numbered *a = numbered_open(), *b = numbered_open();

	(void)state;
	numbered_rtr(a, b, OTHER_PSN);
	numbered_rtr(b, a, FIRST_PSN);
	numbered_rts(a, FIRST_PSN, LONG_TRIES);
	numbered_exchange(a, b);
	numbered_rts(b, OTHER_PSN + 1, SHORT_TRIES);
	numbered_post(b, a, IBV_WR_RDMA_WRITE, 10);
	numbered_await(b, IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR);
	numbered_close(a);
	numbered_close(b);
}

static void test_reset_queue_pair_meets_another(void **state)
{
	struct numbered *a = numbered_open(), *b = numbered_open(), *c = numbered_open();

	(void)state;
	numbered_connect(a, FIRST_PSN, b, OTHER_PSN, LONG_TRIES);
	numbered_exchange(a, b);
	numbered_set_state(a, IBV_QPS_RESET);
	numbered_init(a);
	numbered_rtr(a, c, 3);
	numbered_rtr(c, a, 4);
	numbered_rts(c, 3, LONG_TRIES);
	numbered_rts(a, 4, LONG_TRIES);
	numbered_exchange(a, c);
	numbered_exchange(c, a);
	numbered_close(a);
	numbered_close(b);
	numbered_close(c);
}

static void test_attributes_are_kept_and_returned(void **state)
{
	struct numbered *a = numbered_open(), *b = numbered_open();
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	(void)state;
	numbered_rtr(a, b, OTHER_PSN);
	numbered_rts(a, FIRST_PSN, LONG_TRIES);
	assert_int_equal(ibv_query_qp(a->qp, &attr, 0x1fffff, &init), 0);
	assert_int_equal(attr.dest_qp_num, b->qp->qp_num);
	assert_int_equal(attr.rq_psn, OTHER_PSN);
	assert_int_equal(attr.sq_psn, FIRST_PSN);
	assert_int_equal(attr.timeout, LONG_TRIES);
	assert_int_equal(attr.path_mtu, IBV_MTU_1024);
	assert_memory_equal(&attr.ah_attr.grh.dgid, &numbered_gid, sizeof(numbered_gid));
	numbered_close(a);
	numbered_close(b);
}

static void test_bad_addresses_are_refused(void **state)
{
	struct numbered *a = numbered_open();
	struct ibv_qp_attr attr = numbered_rtr_attr(a->qp->qp_num, FIRST_PSN);

	(void)state;
	attr.ah_attr.is_global = 0;
	assert_int_equal(ibv_modify_qp(a->qp, &attr, NUMBERED_RTR_MASK), EINVAL);
	attr = numbered_rtr_attr(17, FIRST_PSN); /* not of ours: rxe has such numbers */
	assert_int_equal(ibv_modify_qp(a->qp, &attr, NUMBERED_RTR_MASK), EINVAL);
	attr = numbered_rtr_attr(a->qp->qp_num, FIRST_PSN);
	assert_int_equal(ibv_modify_qp(a->qp, &attr, NUMBERED_RTR_MASK & ~IBV_QP_RQ_PSN), EINVAL);
	attr.ah_attr.grh.sgid_index = 99;
	assert_int_equal(ibv_modify_qp(a->qp, &attr, NUMBERED_RTR_MASK), EINVAL);
	numbered_assert_state(a, IBV_QPS_INIT);
	numbered_close(a);
}

static void test_more_than_a_port_has_are_all_different(void **state)
{
	static struct numbered *ends[MANY];

	(void)state;
	for (unsigned i = 0; i < MANY; i++) {
		ends[i] = numbered_open();
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(ends[j]->qp->qp_num, ends[i]->qp->qp_num);
	}
	numbered_connect(ends[0], 1, ends[MANY - 1], 1, LONG_TRIES);
	numbered_exchange(ends[0], ends[MANY - 1]);
	for (unsigned i = 0; i < MANY; i++)
		numbered_close(ends[i]);
}

/* A child has none of its parent's ports and visitors, and listens at ports of its own. */
#ifdef __SANITIZE_THREAD__ /* whose runtime ends a child of threads that starts one */
static const bool is_thread_sanitized = true;
#else
static const bool is_thread_sanitized = false;
#endif

static void test_child_of_a_fork_meets_by_itself(void **state)
{
	struct numbered *a, *b;
	pid_t pid;

	(void)state;
	if (is_thread_sanitized)
		skip();
	a = numbered_open();
	b = numbered_open();
	numbered_rtr(a, b, OTHER_PSN);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct numbered *c = numbered_open(), *d = numbered_open();

		numbered_connect(c, 1, d, 2, LONG_TRIES);
		numbered_exchange(c, d);
		_exit(c->qp->qp_num >> 8 == a->qp->qp_num >> 8);
	}
	assert_int_equal(peer_wait(pid), 0);
	numbered_rtr(b, a, FIRST_PSN);
	numbered_rts(a, FIRST_PSN, LONG_TRIES);
	numbered_rts(b, OTHER_PSN, LONG_TRIES);
	numbered_exchange(a, b);
	numbered_close(a);
	numbered_close(b);
}

/* What the CM connects needs no port. */
static void test_queue_pair_of_the_cm_has_a_number_of_no_port(void **state)
{
	static const struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_true(pair.client.qp->qp_num < 1024u << 8);
	assert_true(pair.server.qp->qp_num < 1024u << 8);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers_exchange_all_kinds_of_requests),
		cmocka_unit_test(test_early_requests_wait_for_a_peer_that_is_late),
		cmocka_unit_test(test_number_connected_to_itself_hears_itself),
		cmocka_unit_test(test_vanished_peer_fails_only_what_is_asked_of_it),
		cmocka_unit_test(test_wrong_starting_psn_never_meets),
		cmocka_unit_test(test_wrong_psn_of_a_late_sender_ends_the_meeting),
		cmocka_unit_test(test_reset_queue_pair_meets_another),
		cmocka_unit_test(test_attributes_are_kept_and_returned),
		cmocka_unit_test(test_bad_addresses_are_refused),
		cmocka_unit_test(test_more_than_a_port_has_are_all_different),
		cmocka_unit_test(test_child_of_a_fork_meets_by_itself),
		cmocka_unit_test(test_queue_pair_of_the_cm_has_a_number_of_no_port),
	};

	return cmocka_run_group_tests_name("soft_number", tests, numbered_setup, numbered_teardown);
}
