/* SPDX-License-Identifier: MIT */
/* Rules as the attributes of verbs flows, to the byte; and the layouts that programs rely on. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rule.h"

static const uint8_t own[6] = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
static uint8_t mac_a[6] = {0xa0, 1, 2, 3, 4, 5}, mac_b[6] = {0xb0, 1, 2, 3, 4, 5};

/* What hashpipe_ibv_flow would ask of the device. */
static void build(const struct rule_arguments *arguments, struct rule_flow *out)
{
	struct hashpipe_ibv_rule rule, normal;

	rule_from_arguments(arguments, own, &rule);
	assert_int_equal(rule_normalize(&rule, &normal), 0);
	rule_to_flow(&normal, 3, out);
}

static struct ibv_flow_spec_eth eth_of(const struct rule_flow *flow)
{
	struct ibv_flow_spec_eth spec;

	memcpy(&spec, flow->specs, sizeof(spec));
	assert_int_equal(spec.type, IBV_FLOW_SPEC_ETH);
	assert_int_equal(spec.size, sizeof(spec));
	return spec;
}

static struct ibv_flow_spec_ipv4 ipv4_of(const struct rule_flow *flow)
{
	struct ibv_flow_spec_ipv4 spec;

	memcpy(&spec, flow->specs + sizeof(struct ibv_flow_spec_eth), sizeof(spec));
	assert_int_equal(spec.type, IBV_FLOW_SPEC_IPV4);
	assert_int_equal(spec.size, sizeof(spec));
	return spec;
}

static void assert_bytes(const void *at, int byte, size_t len)
{
	for (size_t i = 0; i < len; i++)
		assert_int_equal(((const uint8_t *)at)[i], byte);
}

static void test_layouts_are_those_of_the_original(void **state)
{
	(void)state;
#define AT(type, member, offset) assert_int_equal(offsetof(struct type, member), offset)
	assert_int_equal(sizeof(struct hashpipe_ibv_send_pkt), 136);
	AT(hashpipe_ibv_send_pkt, timestamp, 128);
	assert_int_equal(sizeof(struct hashpipe_ibv_recv_pkt), 48);
	AT(hashpipe_ibv_recv_pkt, length, 32);
	AT(hashpipe_ibv_recv_pkt, timestamp, 40);
	assert_int_equal(sizeof(struct hashpipe_ibv_flow), 100);
	AT(hashpipe_ibv_flow, spec_eth, 20);
	AT(hashpipe_ibv_flow, spec_ipv4, 60);
	AT(hashpipe_ibv_flow, spec_tcp_udp, 84);
	assert_int_equal(sizeof(struct hashpipe_ibv_context), 464);
	AT(hashpipe_ibv_context, ctx, 0);
	AT(hashpipe_ibv_context, pd, 8);
	AT(hashpipe_ibv_context, send_cc, 16);
	AT(hashpipe_ibv_context, recv_cc, 24);
	AT(hashpipe_ibv_context, send_cq, 32);
	AT(hashpipe_ibv_context, recv_cq, 40);
	AT(hashpipe_ibv_context, qp, 48);
	AT(hashpipe_ibv_context, dev_attr, 56);
	AT(hashpipe_ibv_context, dev_attr.max_qp_wr, 168);
	AT(hashpipe_ibv_context, nqp, 288);
	AT(hashpipe_ibv_context, port_num, 292);
	AT(hashpipe_ibv_context, mac, 293);
	AT(hashpipe_ibv_context, interface_id, 304);
	AT(hashpipe_ibv_context, send_pkt_buf, 312);
	AT(hashpipe_ibv_context, recv_pkt_buf, 320);
	AT(hashpipe_ibv_context, send_pkt_head, 328);
	AT(hashpipe_ibv_context, send_sge_buf, 336);
	AT(hashpipe_ibv_context, recv_sge_buf, 344);
	AT(hashpipe_ibv_context, send_mr_buf, 352);
	AT(hashpipe_ibv_context, recv_mr_buf, 360);
	AT(hashpipe_ibv_context, send_mr_size, 368);
	AT(hashpipe_ibv_context, recv_mr_size, 376);
	AT(hashpipe_ibv_context, send_mr, 384);
	AT(hashpipe_ibv_context, recv_mr, 392);
	AT(hashpipe_ibv_context, send_pkt_num, 400);
	AT(hashpipe_ibv_context, recv_pkt_num, 404);
	AT(hashpipe_ibv_context, pkt_size_max, 408);
	AT(hashpipe_ibv_context, user_managed_flag, 412);
	AT(hashpipe_ibv_context, max_flows, 416);
	AT(hashpipe_ibv_context, ibv_flows, 424);
	AT(hashpipe_ibv_context, flow_dst_ips, 432);
	AT(hashpipe_ibv_context, mcast_subscriber, 440);
	AT(hashpipe_ibv_context, interface_name, 444);
#undef AT
}

static void test_rule_of_ethernet_has_one_specification(void **state)
{
	const struct rule_arguments arguments = {.flow_type = IBV_FLOW_SPEC_ETH,
						 .dst_mac = mac_a,
						 .src_mac = mac_b,
						 .ether_type = 0x0806,
						 .vlan_tag = 0x6005,
						 .src_ip = 1, /* beyond its type */
						 .dst_port = 2};
	struct ibv_flow_spec_eth eth;
	struct rule_flow flow;

	(void)state;
	build(&arguments, &flow);
	assert_int_equal(flow.attr.type, IBV_FLOW_ATTR_NORMAL);
	assert_int_equal(flow.attr.num_of_specs, 1);
	assert_int_equal(flow.attr.size, 20 + 40);
	assert_int_equal(flow.attr.port, 3);
	assert_int_equal(flow.attr.priority, 0);
	eth = eth_of(&flow);
	assert_memory_equal(eth.val.dst_mac, mac_a, 6);
	assert_memory_equal(eth.val.src_mac, mac_b, 6);
	assert_memory_equal(&eth.val.ether_type, "\x08\x06", 2);
	assert_memory_equal(&eth.val.vlan_tag, "\x60\x05", 2);
	assert_bytes(&eth.mask, 0xff, 16);
}

static void test_rule_without_mac_has_the_interfaces(void **state)
{
	const struct rule_arguments arguments = {.flow_type = IBV_FLOW_SPEC_ETH,
						 .ether_type = 0x88cc};
	struct ibv_flow_spec_eth eth;
	struct rule_flow flow;

	(void)state;
	build(&arguments, &flow);
	eth = eth_of(&flow);
	assert_memory_equal(eth.val.dst_mac, own, 6);
	assert_bytes(eth.mask.dst_mac, 0xff, 6);
	assert_bytes(eth.mask.src_mac, 0, 6);
	assert_bytes(&eth.mask.ether_type, 0xff, 2);
	assert_bytes(&eth.mask.vlan_tag, 0, 2);
}

static void test_rule_of_udp_has_addresses_and_ports_in_network_order(void **state)
{
	const struct rule_arguments arguments = {.flow_type = IBV_FLOW_SPEC_UDP,
						 .src_ip = 0x0a000102,
						 .src_port = 0x1234,
						 .dst_port = 0xabcd};
	struct ibv_flow_spec_tcp_udp ports;
	struct ibv_flow_spec_ipv4 ip;
	struct rule_flow flow;

	(void)state;
	build(&arguments, &flow);
	assert_int_equal(flow.attr.num_of_specs, 3);
	assert_int_equal(flow.attr.size, sizeof(struct hashpipe_ibv_flow));
	ip = ipv4_of(&flow);
	assert_memory_equal(&ip.val.src_ip, "\x0a\x00\x01\x02", 4);
	assert_bytes(&ip.mask.src_ip, 0xff, 4);
	assert_bytes(&ip.mask.dst_ip, 0, 4);
	memcpy(&ports, flow.specs + 40 + 24, sizeof(ports));
	assert_int_equal(ports.type, IBV_FLOW_SPEC_UDP);
	assert_int_equal(ports.size, 16);
	assert_memory_equal(&ports.val.src_port, "\x12\x34", 2);
	assert_memory_equal(&ports.val.dst_port, "\xab\xcd", 2);
	assert_bytes(&ports.mask, 0xff, 4);
}

static void test_rule_of_tcp_without_ports_matches_any(void **state)
{
	const struct rule_arguments arguments = {.flow_type = IBV_FLOW_SPEC_TCP, .dst_mac = mac_a};
	struct ibv_flow_spec_tcp_udp ports;
	struct rule_flow flow;

	(void)state;
	build(&arguments, &flow);
	assert_int_equal(flow.attr.num_of_specs, 3);
	memcpy(&ports, flow.specs + 40 + 24, sizeof(ports));
	assert_int_equal(ports.type, IBV_FLOW_SPEC_TCP);
	assert_bytes(&ports.mask, 0, 4);
}

static void test_rule_of_a_group_has_the_groups_mac(void **state)
{
	/* The highest of the low 23 bits, and the bit above it that does not count. */
	const struct rule_arguments arguments = {
		.flow_type = IBV_FLOW_SPEC_IPV4, .dst_mac = mac_a, .dst_ip = 0xefffff07};
	const uint8_t expected[6] = {0x01, 0x00, 0x5e, 0x7f, 0xff, 0x07};
	struct hashpipe_ibv_rule rule, normal;
	struct rule_flow flow;
	struct ibv_flow_spec_eth eth;

	(void)state;
	build(&arguments, &flow);
	eth = eth_of(&flow);
	assert_memory_equal(eth.val.dst_mac, expected, 6);
	rule_from_arguments(&arguments, own, &rule);
	assert_int_equal(rule_normalize(&rule, &normal), 0);
	assert_true(rule_has_group(&normal));
}

static void test_addresses_beside_multicast_are_no_groups(void **state)
{
	const uint32_t no_groups[] = {0xdfffffff, 0xf0000000, 0xffffffff, 0x0a000001};

	(void)state;
	for (size_t i = 0; i < sizeof(no_groups) / sizeof(*no_groups); i++) {
		const struct rule_arguments arguments = {.flow_type = IBV_FLOW_SPEC_IPV4,
							 .dst_ip = no_groups[i]};
		struct hashpipe_ibv_rule rule, normal;

		rule_from_arguments(&arguments, own, &rule);
		assert_int_equal(rule_normalize(&rule, &normal), 0);
		assert_false(rule_has_group(&normal));
		assert_memory_equal(normal.dst_mac, own, 6);
	}
}

static void test_removal_is_a_call_without_criteria(void **state)
{
	struct rule_arguments arguments = {.flow_type = IBV_FLOW_SPEC_UDP};

	(void)state;
	assert_true(rule_is_removal(&arguments));
	arguments.dst_port = 1;
	assert_false(rule_is_removal(&arguments));
	arguments = (struct rule_arguments){.src_mac = mac_a};
	assert_false(rule_is_removal(&arguments));
}

static void test_known_types_are_four(void **state)
{
	int known = 0;

	(void)state;
	for (unsigned type = 0; type < 0x2000; type++)
		known += rule_is_known_type((enum ibv_flow_spec_type)type);
	assert_int_equal(known, 4);
	assert_true(rule_is_known_type(IBV_FLOW_SPEC_UDP));
}

static struct hashpipe_ibv_rule empty_rule(void)
{
	return (struct hashpipe_ibv_rule){.size = sizeof(struct hashpipe_ibv_rule)};
}

static void test_vlan_id_leaves_the_priority_open(void **state)
{
	struct hashpipe_ibv_rule rule = empty_rule(), normal;
	struct ibv_flow_spec_eth eth;
	struct rule_flow flow;

	(void)state;
	rule.match = HASHPIPE_IBV_VLAN_ID;
	rule.vlan = 0xe123;
	assert_int_equal(rule_normalize(&rule, &normal), 0);
	rule_to_flow(&normal, 1, &flow);
	eth = eth_of(&flow);
	assert_memory_equal(&eth.val.vlan_tag, "\x01\x23", 2);
	assert_memory_equal(&eth.mask.vlan_tag, "\x0f\xff", 2);
	assert_bytes(eth.mask.dst_mac, 0, 6);
}

static void test_prefix_masks_some_bits(void **state)
{
	struct hashpipe_ibv_rule rule = empty_rule(), normal;
	struct ibv_flow_spec_ipv4 ip;
	struct rule_flow flow;

	(void)state;
	rule.ip_version = 4;
	rule.match = HASHPIPE_IBV_DST_IP;
	rule.dst_ip_bits = 21;
	inet_pton(AF_INET, "10.1.255.255", rule.dst_ip);
	assert_int_equal(rule_normalize(&rule, &normal), 0);
	rule_to_flow(&normal, 1, &flow);
	ip = ipv4_of(&flow);
	assert_memory_equal(&ip.val.dst_ip, "\x0a\x01\xf8\x00", 4);
	assert_memory_equal(&ip.mask.dst_ip, "\xff\xff\xf8\x00", 4);
	assert_bytes(&ip.mask.src_ip, 0, 4);
}

static void test_zero_can_be_matched(void **state)
{
	struct hashpipe_ibv_rule rule = empty_rule(), normal;
	struct ibv_flow_spec_tcp_udp ports;
	struct rule_flow flow;

	(void)state;
	rule.ip_version = 4;
	rule.ip_protocol = IPPROTO_UDP;
	rule.match = HASHPIPE_IBV_SRC_PORT;
	assert_int_equal(rule_normalize(&rule, &normal), 0);
	rule_to_flow(&normal, 1, &flow);
	memcpy(&ports, flow.specs + 40 + 24, sizeof(ports));
	assert_bytes(&ports.val, 0, 4);
	assert_bytes(&ports.mask.src_port, 0xff, 2);
	assert_bytes(&ports.mask.dst_port, 0, 2);
}

static void test_rule_of_ipv6_has_addresses_and_a_groups_mac(void **state)
{
	const uint8_t expected[6] = {0x33, 0x33, 0x00, 0x01, 0x00, 0x03};
	struct hashpipe_ibv_rule rule = empty_rule(), normal;
	struct ibv_flow_spec_ipv6 ip;
	struct rule_flow flow;

	(void)state;
	rule.ip_version = 6;
	rule.ip_protocol = IPPROTO_UDP;
	rule.flags = HASHPIPE_IBV_COPY;
	rule.match = HASHPIPE_IBV_DST_IP | HASHPIPE_IBV_SRC_IP;
	rule.src_ip_bits = 64;
	inet_pton(AF_INET6, "2001:db8::1", rule.src_ip);
	inet_pton(AF_INET6, "ff02::1:3", rule.dst_ip);
	assert_int_equal(rule_normalize(&rule, &normal), 0);
	assert_true(rule_has_group(&normal));
	rule_to_flow(&normal, 1, &flow);
	assert_int_equal(flow.attr.type, IBV_FLOW_ATTR_SNIFFER);
	assert_int_equal(flow.attr.num_of_specs, 3);
	assert_memory_equal(eth_of(&flow).val.dst_mac, expected, 6);
	memcpy(&ip, flow.specs + 40, sizeof(ip));
	assert_int_equal(ip.type, IBV_FLOW_SPEC_IPV6);
	assert_int_equal(ip.size, sizeof(ip));
	assert_memory_equal(ip.val.src_ip, "\x20\x01\x0d\xb8\0\0\0\0", 8);
	assert_bytes(ip.val.src_ip + 8, 0, 8);
	assert_bytes(ip.mask.src_ip, 0xff, 8);
	assert_bytes(ip.mask.src_ip + 8, 0, 8);
	assert_bytes(ip.mask.dst_ip, 0xff, 16);
	assert_bytes(&ip.mask.flow_label, 0, 7);
}

static void test_what_is_not_matched_makes_no_difference(void **state)
{
	struct hashpipe_ibv_rule one = empty_rule(), other, normal_one, normal_other;

	(void)state;
	one.ip_version = 4;
	one.match = HASHPIPE_IBV_DST_IP;
	one.dst_ip_bits = 8;
	one.dst_ip[0] = 10;
	other = one;
	other.dst_ip[3] = 7;
	other.src_ip[0] = 99;
	other.ether_type = 5;
	other.vlan = 5;
	other.dst_port = 5;
	memcpy(other.dst_mac, mac_a, 6);
	assert_int_equal(rule_normalize(&one, &normal_one), 0);
	assert_int_equal(rule_normalize(&other, &normal_other), 0);
	assert_memory_equal(&normal_one, &normal_other, sizeof(normal_one));
}

static void test_rules_that_contradict_themselves_are_refused(void **state)
{
	struct hashpipe_ibv_rule wrong[9], normal;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		wrong[i] = empty_rule();
	wrong[0].size--;
	wrong[1].flags = 2;
	wrong[2].match = 1 << 9;
	wrong[3].ip_version = 5;
	wrong[4].match = HASHPIPE_IBV_SRC_IP; /* of which version? */
	wrong[5].ip_protocol = IPPROTO_UDP;
	wrong[6].ip_version = 4;
	wrong[6].match = HASHPIPE_IBV_DST_PORT; /* of which protocol? */
	wrong[7].ip_version = 4;
	wrong[7].src_ip_bits = 33;
	wrong[8].ip_version = 4;
	wrong[8].ip_protocol = IPPROTO_ICMP;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(rule_normalize(&wrong[i], &normal), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layouts_are_those_of_the_original),
		cmocka_unit_test(test_rule_of_ethernet_has_one_specification),
		cmocka_unit_test(test_rule_without_mac_has_the_interfaces),
		cmocka_unit_test(test_rule_of_udp_has_addresses_and_ports_in_network_order),
		cmocka_unit_test(test_rule_of_tcp_without_ports_matches_any),
		cmocka_unit_test(test_rule_of_a_group_has_the_groups_mac),
		cmocka_unit_test(test_addresses_beside_multicast_are_no_groups),
		cmocka_unit_test(test_removal_is_a_call_without_criteria),
		cmocka_unit_test(test_known_types_are_four),
		cmocka_unit_test(test_vlan_id_leaves_the_priority_open),
		cmocka_unit_test(test_prefix_masks_some_bits),
		cmocka_unit_test(test_zero_can_be_matched),
		cmocka_unit_test(test_rule_of_ipv6_has_addresses_and_a_groups_mac),
		cmocka_unit_test(test_what_is_not_matched_makes_no_difference),
		cmocka_unit_test(test_rules_that_contradict_themselves_are_refused),
	};

	return cmocka_run_group_tests_name("packets_rule", tests, NULL, NULL);
}
