/* SPDX-License-Identifier: MIT */
/* Contexts: what init wants, makes and gives back. */
#include "side.h"

#include <fcntl.h>
#include <net/if.h>
#include <unistd.h>

static struct hashpipe_ibv_context some_settings(void)
{
	return (struct hashpipe_ibv_context){
		.send_pkt_num = 4,
		.recv_pkt_num = 8,
		.pkt_size_max = 2000,
		.max_flows = 2,
		.interface_name = NEAR,
	};
}

static void test_interface_info_has_mac_and_id(void **state)
{
	uint8_t mac[6];
	uint64_t id;

	(void)state;
	assert_int_equal(hashpipe_ibv_get_interface_info(NEAR, mac, &id), 0);
	assert_memory_equal(mac, near_mac, 6);
	assert_int_equal(id >> 56, mac[0] ^ 2);
	assert_int_equal((id >> 24) & 0xffff, 0xfffe);
	assert_int_equal(id & 0xff, mac[5]);
	assert_int_equal(hashpipe_ibv_get_interface_info(NEAR, NULL, NULL), 0);
	errno = 0;
	assert_int_equal(hashpipe_ibv_get_interface_info(NULL, mac, &id), 1);
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_int_equal(hashpipe_ibv_get_interface_info("nothing", mac, &id), 3);
	assert_int_equal(errno, ENODEV);
	assert_int_equal(hashpipe_ibv_get_interface_info("a-name-of-many-letters", mac, &id), 3);
}

static void test_device_of_an_interface_is_found(void **state)
{
	struct ibv_device_attr attr;
	struct ibv_context *found = NULL;
	uint8_t port = 0;
	uint64_t id;

	(void)state;
	assert_int_equal(hashpipe_ibv_get_interface_info(NEAR, NULL, &id), 0);
	assert_int_equal(hashpipe_ibv_open_device_for_interface_id(id, &found, &attr, &port), 0);
	assert_non_null(found);
	assert_string_equal(found->device->name, "soft_" NEAR);
	assert_int_equal(port, 1);
	assert_int_equal(ibv_close_device(found), 0);
	assert_int_equal(hashpipe_ibv_open_device_for_interface_id(id, NULL, NULL, NULL), 0);
	errno = 0;
	assert_int_equal(hashpipe_ibv_open_device_for_interface_id(id + 100, NULL, NULL, NULL), 1);
	assert_int_equal(errno, ENODEV);
	assert_int_equal(hashpipe_ibv_query_max_wr(NEAR), attr.max_qp_wr);
	errno = 0;
	assert_int_equal(hashpipe_ibv_query_max_wr("nothing"), -1);
	assert_int_equal(errno, ENODEV);
}

static void test_init_links_packets_and_buffers(void **state)
{
	struct hashpipe_ibv_context context;

	(void)state;
	near_init(&context, 4, 8, 2000, 2);
	assert_int_equal(context.nqp, 1);
	assert_memory_equal(context.mac, near_mac, 6);
	assert_int_equal(context.send_mr_size, 4 * 2000);
	assert_int_equal(context.recv_mr_size, 8 * 2000);
	for (unsigned i = 0; i < 4; i++) {
		const struct ibv_send_wr *wr = &context.send_pkt_buf[i].wr;

		assert_int_equal(wr->wr_id, i);
		assert_int_equal(wr->num_sge, 1);
		assert_int_equal(wr->sg_list->addr, (uintptr_t)context.send_mr_buf + i * 2000);
		assert_int_equal(wr->sg_list->length, 2000);
	}
	for (unsigned i = 0; i < 8; i++) {
		const struct ibv_recv_wr *wr = &context.recv_pkt_buf[i].wr;

		assert_int_equal(wr->wr_id, i);
		assert_int_equal(wr->num_sge, 1);
		assert_int_equal(wr->sg_list->addr, (uintptr_t)context.recv_mr_buf + i * 2000);
		assert_int_equal(wr->sg_list->length, 2000);
	}
	assert_int_equal(context.qp[0]->qp_type, IBV_QPT_RAW_PACKET);
	assert_true(fcntl(context.recv_cc->fd, F_GETFL) & O_NONBLOCK);
	near_shutdown(&context);
}

static void test_init_refuses_what_makes_no_sense(void **state)
{
	struct hashpipe_ibv_context context;
	unsigned before = open_descriptors();

	(void)state;
	errno = 0;
	assert_int_equal(hashpipe_ibv_init(NULL), -1);
	assert_int_equal(errno, EINVAL);
	context = some_settings();
	context.pkt_size_max = 0;
	errno = 0;
	assert_int_equal(hashpipe_ibv_init(&context), 1);
	assert_int_equal(errno, EINVAL);
	context = some_settings();
	context.user_managed_flag = 1;
	errno = 0;
	assert_int_equal(hashpipe_ibv_init(&context), 1);
	assert_int_equal(errno, EINVAL);
	context = some_settings();
	memcpy(context.interface_name, "nothing", 8);
	errno = 0;
	assert_int_equal(hashpipe_ibv_init(&context), 1);
	assert_int_equal(errno, ENODEV);
	assert_int_equal(hashpipe_ibv_shutdown(&context), 0);
	context = some_settings();
	memset(context.interface_name, 'x', sizeof(context.interface_name)); /* without an end */
	errno = 0;
	assert_int_equal(hashpipe_ibv_init(&context), 1);
	assert_int_equal(errno, ENODEV);
	assert_int_equal(open_descriptors(), before);
}

static void test_init_of_too_much_memory_fails_and_leaves_nothing(void **state)
{
	struct hashpipe_ibv_context context = some_settings();
	unsigned before;

	(void)state;
	near_init(&context, 1, 1, 100, 1); /* what the device keeps for the process is there */
	near_shutdown(&context);
	before = open_descriptors();
	context = some_settings();
	context.send_pkt_num = context.recv_pkt_num = 32768;
	context.pkt_size_max = UINT32_MAX; /* 128 TiB: more than addresses */
	errno = 0;
	assert_int_equal(hashpipe_ibv_init(&context), 1);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(context.recv_pkt_num, 32768);
	assert_int_equal(open_descriptors(), before);
	assert_int_equal(hashpipe_ibv_shutdown(&context), 0);
}

static void test_init_takes_a_context_full_of_rubbish(void **state)
{
	struct hashpipe_ibv_context context;

	(void)state;
	memset(&context, 0xa5, sizeof(context));
	context.nqp = 1;
	context.send_pkt_num = context.recv_pkt_num = 2;
	context.pkt_size_max = 100;
	context.user_managed_flag = 0;
	context.max_flows = 1;
	memcpy(context.interface_name, NEAR, sizeof(NEAR));
	assert_int_equal(hashpipe_ibv_init(&context), 0);
	near_shutdown(&context);
}

static void test_zero_packets_are_the_devices_maximum(void **state)
{
	struct hashpipe_ibv_context context;
	uint32_t max = (uint32_t)hashpipe_ibv_query_max_wr(NEAR);

	(void)state;
	near_init(&context, 0, 0, 64, 1);
	assert_int_equal(context.send_pkt_num, max);
	assert_int_equal(context.recv_pkt_num, max);
	near_shutdown(&context);
	near_init(&context, max + 1, max + 1, 64, 1);
	assert_int_equal(context.send_pkt_num, max);
	assert_int_equal(context.recv_pkt_num, max);
	near_shutdown(&context);
}

static void test_shutdown_again_does_nothing(void **state)
{
	struct hashpipe_ibv_context context;
	unsigned before;
	int fd;

	(void)state;
	assert_int_equal(hashpipe_ibv_shutdown(NULL), -1);
	near_init(&context, 2, 2, 100, 1);
	near_shutdown(&context);
	before = open_descriptors();
	near_init(&context, 2, 2, 100, 1);
	near_shutdown(&context);
	assert_int_equal(context.mcast_subscriber, -1);
	assert_null(context.qp);
	assert_int_equal(open_descriptors(), before);
	/* A descriptor that has one of its numbers now is not closed. */
	fd = open("/dev/null", O_RDONLY);
	near_shutdown(&context);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	close(fd);
	context = (struct hashpipe_ibv_context){0};
	near_shutdown(&context);
	assert_true(fcntl(0, F_GETFD) >= 0);
}

static void test_calls_without_a_context_are_refused(void **state)
{
	struct hashpipe_ibv_context none = {0}, *each[] = {NULL, &none};
	struct hashpipe_ibv_stats stats;
	uint32_t key;

	(void)state;
	for (int i = 0; i < 2; i++) {
		errno = 0;
		assert_null(hashpipe_ibv_recv_pkts(each[i], 0));
		assert_int_equal(errno, EINVAL);
		errno = 0;
		assert_null(hashpipe_ibv_poll_pkts(each[i], 0));
		assert_int_equal(errno, EINVAL);
		errno = 0;
		assert_null(hashpipe_ibv_get_pkts(each[i], 1));
		assert_int_equal(errno, EINVAL);
		errno = 0;
		assert_int_equal(hashpipe_ibv_release_pkts(each[i], NULL), -1);
		assert_int_equal(errno, EINVAL);
		assert_int_equal(hashpipe_ibv_send_pkts(each[i], NULL, 0), -1);
		assert_int_equal(hashpipe_ibv_flow(each[i], 0, IBV_FLOW_SPEC_ETH, near_mac, NULL, 0,
						   0, 0, 0, 0, 0),
				 1);
		assert_int_equal(hashpipe_ibv_flow_rule(each[i], 0, NULL), 1);
		assert_int_equal(hashpipe_ibv_get_stats(each[i], &stats, sizeof(stats)), -1);
		assert_int_equal(hashpipe_ibv_get_lkey(each[i], &stats, 1, &key), 1);
		assert_int_equal(hashpipe_ibv_set_max_batch(each[i], 1), 1);
		assert_int_equal(hashpipe_ibv_set_busy_poll(each[i], 1), 1);
		assert_int_equal(hashpipe_ibv_timestamp_ns(each[i], 1), 0);
	}
}

static void test_options_are_checked(void **state)
{
	struct hashpipe_ibv_context context = some_settings();
	struct hashpipe_ibv_options options = {.size = sizeof(options) - 1};
	struct hashpipe_ibv_region region = {.addr = &context, .length = 1};

	(void)state;
	assert_int_equal(hashpipe_ibv_init_with(&context, &options), 1);
	assert_int_equal(errno, EINVAL);
	options = (struct hashpipe_ibv_options){.size = sizeof(options), .flags = 0x80};
	assert_int_equal(hashpipe_ibv_init_with(&context, &options), 1);
	/* Regions are of the user's memory. */
	options = (struct hashpipe_ibv_options){
		.size = sizeof(options), .regions = &region, .num_regions = 1};
	assert_int_equal(hashpipe_ibv_init_with(&context, &options), 1);
}

static void test_huge_pages_or_others_are_used(void **state)
{
	struct hashpipe_ibv_context context = some_settings();
	const struct hashpipe_ibv_options options = {.size = sizeof(options),
						     .flags = HASHPIPE_IBV_HUGE_PAGES};

	(void)state;
	assert_int_equal(hashpipe_ibv_init_with(&context, &options), 0);
	assert_int_equal(context.recv_mr_size, 8 * 2000);
	near_listen(&context);
	far_send_udp(1, 8);
	near_expect(&context, 1, 8);
	near_shutdown(&context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interface_info_has_mac_and_id),
		cmocka_unit_test(test_device_of_an_interface_is_found),
		cmocka_unit_test(test_init_links_packets_and_buffers),
		cmocka_unit_test(test_init_refuses_what_makes_no_sense),
		cmocka_unit_test(test_init_of_too_much_memory_fails_and_leaves_nothing),
		cmocka_unit_test(test_init_takes_a_context_full_of_rubbish),
		cmocka_unit_test(test_zero_packets_are_the_devices_maximum),
		cmocka_unit_test(test_shutdown_again_does_nothing),
		cmocka_unit_test(test_calls_without_a_context_are_refused),
		cmocka_unit_test(test_options_are_checked),
		cmocka_unit_test(test_huge_pages_or_others_are_used),
	};

	return RUN("contexts", tests);
}
