/* SPDX-License-Identifier: MIT */
/* Peers that take a connection and say nothing: the time-outs of the handshake, in both roles. */
#include "pair.h"

#include <netinet/in.h>
#include <unistd.h>

static const struct pair_options defaults;

static void test_connect_to_one_who_is_silent_gives_unreachable(void **state)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct side side = {0};
	uint64_t begin;

	(void)state;
	test_address(&at, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(struct sockaddr_in)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	side_resolve(&side, ((struct sockaddr_in *)&at)->sin_port);
	side_equip(&side, &defaults);
	side_recv(&side, 1, 0, 64);
	begin = now_ms();
	side_connect(&side, &defaults);
	assert_true(now_ms() - begin < SOON_MS);
	assert_int_equal(cm_expect(side.channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
	cq_expect(side.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
	cm_expect_none(side.channel);
	side_close(&side);
	close(fd);
}

/* Whoever connects by TCP and never asks is shown the door, and no program hears of it. */
static void test_listener_closes_connections_that_stay_silent(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct sockaddr_storage at;
	char byte;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	test_address(&at, 0);
	listener = listen_at(channel, &at, 4);
	test_address(&at, rdma_get_src_port(listener));
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(struct sockaddr_in)), 0);
	assert_true(fd_is_readable(fd, WAIT_MS));
	assert_true(recv(fd, &byte, 1, 0) <= 0);
	assert_false(fd_is_readable(channel->fd, 0));
	close(fd);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect_to_one_who_is_silent_gives_unreachable),
		cmocka_unit_test(test_listener_closes_connections_that_stay_silent),
	};

	return cmocka_run_group_tests_name("soft_silence", tests, NULL, NULL);
}
