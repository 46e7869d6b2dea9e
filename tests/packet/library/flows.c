/* SPDX-License-Identifier: MIT */
/* Flow rules: what they match and what they do not, replaced, removed, refused; groups. */
#include "side.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define FLOWS 40

static struct hashpipe_ibv_context context;

static int open_context(void **state)
{
	(void)state;
	near_init(&context, 1, 512, 2048, FLOWS);
	assert_null(hashpipe_ibv_recv_pkts(&context, 0));
	return 0;
}

static int close_context(void **state)
{
	(void)state;
	near_shutdown(&context);
	return 0;
}

struct arguments {
	enum ibv_flow_spec_type type;
	uint8_t *dst_mac, *src_mac;
	uint16_t ether_type, vlan_tag;
	uint32_t src_ip, dst_ip;
	uint16_t src_port, dst_port;
};

static int set(uint32_t index, const struct arguments *arguments)
{
	return hashpipe_ibv_flow(&context, index, arguments->type, arguments->dst_mac,
				 arguments->src_mac, arguments->ether_type, arguments->vlan_tag,
				 arguments->src_ip, arguments->dst_ip, arguments->src_port,
				 arguments->dst_port);
}

static void set_port(uint32_t index, uint16_t port)
{
	const struct arguments rule = {.type = IBV_FLOW_SPEC_UDP, .dst_port = port};

	assert_int_equal(set(index, &rule), 0);
}

static void clear(uint32_t index)
{
	const struct arguments nothing = {.type = IBV_FLOW_SPEC_UDP};

	assert_int_equal(set(index, &nothing), 0);
}

static void send_to_port(uint16_t port, uint32_t mark)
{
	struct frame frame = frame_udp(mark);

	frame.dst_port = port;
	far_send(&frame);
}

/* ---- every criterion ---- */

/* The frame arrives; the other one does not. */
static void expect_only(const struct frame *hit, const struct frame *miss)
{
	far_send(miss);
	far_send(hit);
	far_send(miss);
	near_expect(&context, hit->mark, 1);
}

static struct frame hit_of(int vlan)
{
	struct frame frame = frame_udp(1);

	frame.vlan = vlan;
	return frame;
}

static void test_each_criterion_of_flow_tells_packets_apart(void **state)
{
	struct frame hit = hit_of(-1), miss = hit_of(-1);
	uint8_t group[6] = {0x01, 0x80, 0xc2, 0, 0, 0}, stranger[6] = {2, 9, 9, 9, 9, 9};
	struct arguments rule;

	(void)state;
	miss.mark = 2;
	rule = (struct arguments){.type = IBV_FLOW_SPEC_ETH, .dst_mac = group};
	memcpy(hit.dst_mac, group, 6);
	assert_int_equal(set(0, &rule), 0);
	expect_only(&hit, &miss);

	hit = hit_of(-1);
	rule = (struct arguments){.type = IBV_FLOW_SPEC_ETH, .src_mac = stranger};
	memcpy(hit.src_mac, stranger, 6);
	assert_int_equal(set(0, &rule), 0);
	expect_only(&hit, &miss);

	hit = hit_of(-1);
	rule = (struct arguments){.type = IBV_FLOW_SPEC_ETH, .ether_type = 0x88b5};
	hit.ip_version = 0;
	assert_int_equal(set(0, &rule), 0);
	expect_only(&hit, &miss);

	hit = hit_of(-1);
	rule = (struct arguments){.type = IBV_FLOW_SPEC_IPV4, .src_ip = 0x0a090007};
	frame_set_ip(hit.src_ip, "10.9.0.7");
	assert_int_equal(set(0, &rule), 0);
	expect_only(&hit, &miss);

	hit = hit_of(-1);
	rule = (struct arguments){.type = IBV_FLOW_SPEC_IPV4, .dst_ip = 0x0a090063};
	frame_set_ip(hit.dst_ip, "10.9.0.99");
	assert_int_equal(set(0, &rule), 0);
	expect_only(&hit, &miss);

	hit = hit_of(-1);
	rule = (struct arguments){.type = IBV_FLOW_SPEC_TCP, .dst_port = 2222};
	hit.protocol = IPPROTO_TCP;
	assert_int_equal(set(0, &rule), 0);
	expect_only(&hit, &miss);

	hit = hit_of(-1);
	rule = (struct arguments){.type = IBV_FLOW_SPEC_UDP, .src_port = 99, .dst_port = 2222};
	hit.src_port = 99;
	assert_int_equal(set(0, &rule), 0);
	expect_only(&hit, &miss);
}

static void test_vlan_is_matched_whole_or_by_its_id(void **state)
{
	struct frame hit = hit_of(0x6005), priority = hit_of(0x2005), other = hit_of(0x6006);
	const struct arguments whole = {.type = IBV_FLOW_SPEC_ETH, .vlan_tag = 0x6005};
	struct hashpipe_ibv_rule rule = {
		.size = sizeof(rule), .match = HASHPIPE_IBV_VLAN_ID, .vlan = 5};
	struct hashpipe_ibv_recv_pkt *pkt;
	uint8_t expected[2048];

	(void)state;
	priority.mark = 2;
	other.mark = 3;
	assert_int_equal(set(0, &whole), 0);
	expect_only(&hit, &priority);
	assert_int_equal(hashpipe_ibv_flow_rule(&context, 0, &rule), 0);
	expect_only(&hit, &other);
	expect_only(&priority, &other);
	/* With the tag where it was. */
	far_send(&hit);
	pkt = near_take(&context);
	assert_int_equal(pkt->length, frame_write(&hit, expected));
	assert_memory_equal(bytes_of(pkt), expected, pkt->length);
	assert_int_equal(hashpipe_ibv_release_pkts(&context, pkt), 0);
}

static void test_ipv6_and_prefixes_are_matched(void **state)
{
	struct hashpipe_ibv_rule rule = {.size = sizeof(rule),
					 .match = HASHPIPE_IBV_SRC_IP | HASHPIPE_IBV_DST_PORT,
					 .ip_version = 6,
					 .ip_protocol = IPPROTO_UDP,
					 .src_ip_bits = 32,
					 .dst_port = 2222};
	struct frame hit = frame_udp(1), miss;

	(void)state;
	hit.ip_version = 6;
	frame_set_ip(hit.src_ip, "2001:db8:7::1");
	frame_set_ip(hit.dst_ip, "2001:db8::2");
	frame_set_ip(rule.src_ip, "2001:db8::");
	miss = hit;
	miss.mark = 2;
	frame_set_ip(miss.src_ip, "2001:db9:7::1");
	assert_int_equal(hashpipe_ibv_flow_rule(&context, 0, &rule), 0);
	expect_only(&hit, &miss);
	miss = hit;
	miss.mark = 2;
	miss.dst_port = 2223;
	expect_only(&hit, &miss);
	rule = (struct hashpipe_ibv_rule){.size = sizeof(rule),
					  .match = HASHPIPE_IBV_DST_IP,
					  .ip_version = 4,
					  .dst_ip_bits = 20};
	frame_set_ip(rule.dst_ip, "10.200.16.0");
	hit = frame_udp(1);
	frame_set_ip(hit.dst_ip, "10.200.31.255");
	miss = frame_udp(2);
	frame_set_ip(miss.dst_ip, "10.200.32.0");
	assert_int_equal(hashpipe_ibv_flow_rule(&context, 0, &rule), 0);
	expect_only(&hit, &miss);
}

/* ---- several, replaced, removed ---- */

static void test_without_rules_nothing_is_received(void **state)
{
	(void)state;
	far_send_udp(1, 5);
	near_expect_nothing(&context);
	set_port(0, 2222);
	far_send_udp(1, 5);
	near_expect(&context, 1, 5);
	clear(0);
	far_send_udp(1, 5);
	near_expect_nothing(&context);
	clear(0); /* there is none: nothing to do */
}

static void test_packet_that_two_rules_match_comes_once(void **state)
{
	const struct arguments wide = {.type = IBV_FLOW_SPEC_ETH, .src_mac = far_mac};

	(void)state;
	set_port(0, 2222);
	assert_int_equal(set(1, &wide), 0);
	set_port(2, 2222);
	far_send_udp(1, 3);
	near_expect(&context, 1, 3);
	clear(1);
	clear(2);
	far_send_udp(1, 3);
	near_expect(&context, 1, 3);
}

static void test_rules_are_independent(void **state)
{
	(void)state;
	for (uint16_t i = 0; i < FLOWS; i++)
		set_port(i, 3000 + i);
	clear(7);
	for (uint16_t i = 0; i < FLOWS; i++)
		send_to_port(3000 + i, i < 7 ? i : i - 1u);
	/* All but one, whose mark is that of the one before. */
	for (uint32_t i = 0; i < FLOWS - 1; i++) {
		struct hashpipe_ibv_recv_pkt *pkt = near_take(&context);

		assert_int_equal(mark_of(pkt), i);
		assert_int_not_equal(bytes_of(pkt)[37], (3007 & 0xff));
		assert_int_equal(hashpipe_ibv_release_pkts(&context, pkt), 0);
	}
	near_expect_nothing(&context);
}

static void test_failed_rule_leaves_the_old_one(void **state)
{
	struct hashpipe_ibv_rule wrong = {.size = sizeof(wrong), .match = 1 << 20};
	struct arguments rule = {.type = IBV_FLOW_SPEC_IPV6, .dst_mac = near_mac};

	(void)state;
	set_port(0, 2222);
	errno = 0;
	assert_int_equal(hashpipe_ibv_flow_rule(&context, 0, &wrong), 1);
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_int_equal(set(0, &rule), 1);
	assert_int_equal(errno, EINVAL);
	rule.type = IBV_FLOW_SPEC_ETH;
	errno = 0;
	assert_int_equal(set(FLOWS, &rule), 1);
	assert_int_equal(errno, EINVAL);
	far_send_udp(1, 5);
	near_expect(&context, 1, 5);
}

static void *send_many(void *count)
{
	far_send_udp(0, *(unsigned *)count);
	return NULL;
}

static void test_rules_change_under_traffic_without_loss(void **state)
{
	unsigned count = 3000, seen = 0, changes = 0;
	pthread_t sender;

	(void)state;
	set_port(0, 2222);
	assert_int_equal(pthread_create(&sender, NULL, send_many, &count), 0);
	while (seen < count) {
		struct hashpipe_ibv_recv_pkt *list = hashpipe_ibv_recv_pkts(&context, PATIENCE_MS);
		/* Other rules, and this one replaced by one that matches as well. */
		const struct arguments same = {.type = IBV_FLOW_SPEC_UDP,
					       .src_port = changes % 2 ? 1111 : 0,
					       .dst_port = 2222};

		assert_non_null(list);
		for (struct hashpipe_ibv_recv_pkt *pkt = list; pkt; pkt = next_of(pkt))
			assert_int_equal(mark_of(pkt), seen++);
		assert_int_equal(hashpipe_ibv_release_pkts(&context, list), 0);
		if (changes++ < 30) {
			assert_int_equal(set(0, &same), 0);
			set_port(1 + changes % 8, 4000);
			clear(1 + (changes + 4) % 8);
		}
	}
	pthread_join(sender, NULL);
	near_expect_nothing(&context);
}

/* ---- groups ---- */

static bool is_member(const char *group)
{
	char line[256];
	uint32_t address = 0;
	char wanted[16];
	bool found = false, here = false;
	FILE *file = fopen("/proc/net/igmp", "r");

	assert_int_equal(inet_pton(AF_INET, group, &address), 1);
	snprintf(wanted, sizeof(wanted), "%08X", address);
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (line[0] != '\t')
			here = strstr(line, NEAR);
		else if (here && strstr(line, wanted))
			found = true;
	}
	fclose(file);
	return found;
}

static void set_group(uint32_t index, uint32_t group, uint16_t port)
{
	const struct arguments rule = {
		.type = IBV_FLOW_SPEC_UDP, .dst_ip = group, .dst_port = port};

	assert_int_equal(set(index, &rule), 0);
}

static void send_to_group(const char *group, uint16_t port, uint32_t mark)
{
	struct frame frame = frame_udp(mark);
	const uint8_t head[3] = {0x01, 0x00, 0x5e};

	frame_set_ip(frame.dst_ip, group);
	memcpy(frame.dst_mac, head, 3);
	memcpy(frame.dst_mac + 3, frame.dst_ip + 1, 3);
	frame.dst_mac[3] &= 0x7f;
	frame.dst_port = port;
	far_send(&frame);
}

/* Whether a report about the group leaves the interface: IGMP is the kernel's job. */
static bool sees_igmp(const char *group)
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE_MS * 1000000ull;
	uint8_t frame[2048], address[16];
	uint32_t len;

	frame_set_ip(address, group);
	while (now_ns(CLOCK_MONOTONIC) < end) {
		len = far_recv(frame, sizeof(frame), PATIENCE_MS);
		if (len >= 54 && frame[23] == IPPROTO_IGMP && memmem(frame, len, address, 4))
			return true;
	}
	return false;
}

static void test_two_rules_share_a_group(void **state)
{
	(void)state;
	assert_false(is_member("239.1.2.3"));
	set_group(0, 0xef010203, 5000);
	assert_true(is_member("239.1.2.3"));
	assert_true(sees_igmp("239.1.2.3"));
	assert_int_equal(context.flow_dst_ips[0], htonl(0xef010203));
	set_group(1, 0xef010203, 5001);
	send_to_group("239.1.2.3", 5000, 1);
	send_to_group("239.1.2.3", 5001, 2);
	send_to_group("239.1.2.3", 5002, 9);
	send_to_group("239.1.2.4", 5000, 9);
	near_expect(&context, 1, 2);
	clear(0);
	assert_int_equal(context.flow_dst_ips[0], 0);
	assert_true(is_member("239.1.2.3"));
	send_to_group("239.1.2.3", 5000, 9);
	send_to_group("239.1.2.3", 5001, 3);
	near_expect(&context, 3, 1);
	clear(1);
	assert_false(is_member("239.1.2.3"));
}

static void test_group_of_a_replaced_rule_is_left(void **state)
{
	(void)state;
	set_group(0, 0xef010203, 5000);
	set_group(0, 0xef010204, 5000);
	assert_false(is_member("239.1.2.3"));
	assert_true(is_member("239.1.2.4"));
	set_group(0, 0xef010204, 5001); /* another rule, the same group */
	assert_true(is_member("239.1.2.4"));
	send_to_group("239.1.2.4", 5001, 1);
	near_expect(&context, 1, 1);
}

static void test_more_groups_than_a_socket_can_join(void **state)
{
	char group[16];

	(void)state;
	for (uint32_t i = 0; i < FLOWS; i++)
		set_group(i, 0xef010200 + i, 5000);
	for (uint32_t i = 0; i < FLOWS; i++) {
		snprintf(group, sizeof(group), "239.1.2.%u", i);
		assert_true(is_member(group));
		send_to_group(group, 5000, i);
	}
	near_expect(&context, 0, FLOWS);
}

static void test_groups_are_left_at_shutdown(void **state)
{
	struct hashpipe_ibv_context other;

	(void)state;
	near_init(&other, 1, 4, 2048, 2);
	assert_int_equal(hashpipe_ibv_flow(&other, 0, IBV_FLOW_SPEC_UDP, NULL, NULL, 0, 0, 0,
					   0xef010207, 0, 1),
			 0);
	assert_true(is_member("239.1.2.7"));
	near_shutdown(&other);
	assert_false(is_member("239.1.2.7"));
}

/* ---- the kernel ---- */

/* What was received by the kernel's UDP socket at @port of hp0: whether it is @mark. */
static bool kernel_has(int fd, uint32_t mark)
{
	struct timeval limit = {.tv_usec = QUIET_MS * 1000};
	uint8_t data[256];
	uint32_t got;
	ssize_t len;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	len = recv(fd, data, sizeof(data), 0);
	if (len < 4)
		return false;
	memcpy(&got, data + len - 4, 4);
	return got == mark;
}

static int kernel_socket(uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void test_kernel_keeps_what_no_rule_takes_and_copies(void **state)
{
	struct hashpipe_ibv_rule copy = {.size = sizeof(copy),
					 .flags = HASHPIPE_IBV_COPY,
					 .match = HASHPIPE_IBV_DST_PORT,
					 .ip_version = 4,
					 .ip_protocol = IPPROTO_UDP,
					 .dst_port = 2222};
	int fd = kernel_socket(2222), beside = kernel_socket(2223);

	(void)state;
	set_port(0, 2222);
	send_to_port(2222, 1);
	near_expect(&context, 1, 1);
	assert_false(kernel_has(fd, 1)); /* taken away */
	send_to_port(2223, 2);
	assert_true(kernel_has(beside, 2));
	assert_int_equal(hashpipe_ibv_flow_rule(&context, 0, &copy), 0);
	send_to_port(2222, 3);
	near_expect(&context, 3, 1);
	assert_true(kernel_has(fd, 3));
	close(fd);
	close(beside);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_each_criterion_of_flow_tells_packets_apart),
		TEST(test_vlan_is_matched_whole_or_by_its_id),
		TEST(test_ipv6_and_prefixes_are_matched),
		TEST(test_without_rules_nothing_is_received),
		TEST(test_packet_that_two_rules_match_comes_once),
		TEST(test_rules_are_independent),
		TEST(test_failed_rule_leaves_the_old_one),
		TEST(test_rules_change_under_traffic_without_loss),
		TEST(test_two_rules_share_a_group),
		TEST(test_group_of_a_replaced_rule_is_left),
		TEST(test_more_groups_than_a_socket_can_join),
		TEST(test_groups_are_left_at_shutdown),
		TEST(test_kernel_keeps_what_no_rule_takes_and_copies),
	};

	return RUN("flows", tests);
}
