/* SPDX-License-Identifier: MIT */
/*
 * How long a SEND waits for its receive: SOFTRDMA_RECV_TIMEOUT, in milliseconds, is short when this
 * runs.
 */
#include "pair.h"

#include <stdio.h>

static unsigned long allowed; /* ms */
static const struct pair_options options = {.bytes = MIB};

static void run_expiry(uint32_t len)
{
	struct ibv_async_event event;
	struct pair pair;

	pair_open(&pair, &options);
	side_send(&pair.client, 1, 0, len);
	side_recv(&pair.client, 2, 0, 64);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
	cq_expect(pair.client.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(cq_next(pair.client.send_cq).wr_id, 1);
	side_recv(&pair.server, 3, 0, 64);
	cq_expect(pair.server.recv_cq, 3, IBV_WC_WR_FLUSH_ERR);
	assert_true(fd_is_readable(pair.server.id->verbs->async_fd, WAIT_MS));
	assert_int_equal(ibv_get_async_event(pair.server.id->verbs, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_QP_FATAL);
	ibv_ack_async_event(&event);
	pair_close(&pair);
}

static void test_send_without_a_receive_ends_the_connection_in_time(void **state)
{
	(void)state;
	run_expiry(8);
	run_expiry(MIB); /* more than is kept */
}

/* Whoever changes the environment of a running process changes nothing, and disturbs nobody. */
static void test_the_time_stays_as_it_was_at_the_start(void **state)
{
	char before[32];

	(void)state;
	snprintf(before, sizeof(before), "%s", getenv("SOFTRDMA_RECV_TIMEOUT"));
	setenv("SOFTRDMA_RECV_TIMEOUT", "600000", 1);
	run_expiry(8);
	setenv("SOFTRDMA_RECV_TIMEOUT", before, 1);
}

/* Each delivery gives the next one its own time; all together take longer than that. */
static void test_receives_that_come_in_time_keep_the_connection(void **state)
{
	struct pair pair;
	uint64_t posted;

	(void)state;
	pair_open(&pair, &options);
	posted = now_ms();
	for (unsigned i = 0; i < 30; i++)
		side_send(&pair.client, i, 0, 8);
	for (unsigned i = 0; i < 30; i++) {
		uint64_t before = posted;
		struct ibv_wc wc;

		cq_expect_none(pair.server.recv_cq); /* for 50 ms */
		posted = now_ms();
		side_recv(&pair.server, i, 0, 64);
		wc = cq_next(pair.server.recv_cq);
		if (wc.status != IBV_WC_SUCCESS && now_ms() - before >= allowed) {
			print_message("too slow a machine: a receive was late\n");
			break;
		}
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_send_without_a_receive_ends_the_connection_in_time),
		cmocka_unit_test(test_the_time_stays_as_it_was_at_the_start),
		cmocka_unit_test(test_receives_that_come_in_time_keep_the_connection),
	};
	const char *text = getenv("SOFTRDMA_RECV_TIMEOUT");

	if (!text) {
		print_message("SOFTRDMA_RECV_TIMEOUT is not set\n");
		return 77;
	}
	allowed = strtoul(text, NULL, 10);
	return cmocka_run_group_tests_name("soft_timeout", tests, NULL, NULL);
}
