/* SPDX-License-Identifier: MIT */
/*
 * Which frames a rule lets in: every field alone and combined, with full and with partial masks.
 * Frames keep their order, so a frame that must not come would be seen ahead of the one behind it
 * that must.
 */
#include <netinet/in.h>

#include "house.h"

#define V4_FIELDS                                                                                  \
	(1u << F_DST_MAC | 1u << F_SRC_MAC | 1u << F_ETHER_TYPE | 1u << F_TCI | 1u << F_SRC_IP |   \
	 1u << F_DST_IP | 1u << F_PROTO | 1u << F_TOS | 1u << F_TTL | 1u << F_FLAGS |              \
	 1u << F_SRC_PORT | 1u << F_DST_PORT)
#define V6_FIELDS ((V4_FIELDS & ~(1u << F_FLAGS)) | 1u << F_FLOW_LABEL)

#define MANY 64 /* rules */

static struct end end;
static int there;

static struct fields tagged(const struct fields *base)
{
	struct fields fields = *base;

	fields.is_tagged = true;
	fields.tci = 0x6005;
	return fields;
}

/* @miss does not come, @hit does. */
static void check(const struct fields *miss, struct fields *hit)
{
	static uint32_t sequence;

	hit->sequence = ++sequence;
	there_send(there, miss);
	there_send(there, hit);
	end_expect(&end, hit);
}

/* One field of the frame is in the rule; a frame that differs in it alone does not come. */
static void check_field(const struct fields *base, enum field field, enum mask mask)
{
	struct fields hit = field == F_TCI ? tagged(base) : *base, miss = hit;
	struct ibv_flow *flow;
	struct rule rule;

	rule_build(&rule, &hit, 1u << field, mask);
	flow = flow_add(&end, &rule);
	fields_flip(&miss, field, mask == MASK_HIGH);
	check(&miss, &hit);
	if (mask == MASK_HIGH) {
		/* What the mask leaves out may be anything. */
		fields_flip(&hit, field, false);
		check(&miss, &hit);
	}
	flow_remove(flow);
}

static void check_fields(const struct fields *base, unsigned fields, enum mask mask)
{
	for (enum field field = 0; field < NUM_FIELDS; field++)
		if (fields & 1u << field)
			check_field(base, field, mask);
}

static void test_every_field_alone_with_a_full_mask(void **state)
{
	(void)state;
	check_fields(&frame_udp4, V4_FIELDS, MASK_ALL);
	check_fields(&frame_udp6, V6_FIELDS, MASK_ALL);
}

static void test_every_field_alone_with_a_partial_mask(void **state)
{
	(void)state;
	check_fields(&frame_udp4, V4_FIELDS & ~(1u << F_ETHER_TYPE | 1u << F_PROTO), MASK_HIGH);
	check_fields(&frame_udp6, V6_FIELDS & ~(1u << F_ETHER_TYPE | 1u << F_PROTO), MASK_HIGH);
}

/* All fields at once: a frame that differs in any one of them does not come. */
static void check_combination(const struct fields *base, unsigned fields)
{
	struct fields hit = *base;
	struct ibv_flow *flow;
	struct rule rule;

	rule_build(&rule, &hit, fields, MASK_ALL);
	flow = flow_add(&end, &rule);
	for (enum field field = 0; field < NUM_FIELDS; field++) {
		struct fields miss = hit;

		if (!(fields & 1u << field))
			continue;
		fields_flip(&miss, field, false);
		check(&miss, &hit);
		miss = hit;
		fields_flip(&miss, field, true);
		check(&miss, &hit);
	}
	flow_remove(flow);
}

static void test_all_fields_combined(void **state)
{
	struct fields fields = tagged(&frame_udp4);

	(void)state;
	check_combination(&frame_udp4, V4_FIELDS & ~(1u << F_TCI));
	check_combination(&frame_udp6, V6_FIELDS & ~(1u << F_TCI));
	check_combination(&fields, V4_FIELDS);
	fields = tagged(&frame_udp6);
	check_combination(&fields, V6_FIELDS);
	fields = frame_udp4;
	fields.proto = IPPROTO_TCP;
	check_combination(&fields, V4_FIELDS & ~(1u << F_TCI));
}

static void test_ports_are_of_one_protocol(void **state)
{
	struct fields tcp = frame_udp4, udp = frame_udp4;
	struct ibv_flow *flow;
	struct rule rule;

	(void)state;
	tcp.proto = IPPROTO_TCP;
	rule_build(&rule, &udp, 1u << F_DST_PORT, MASK_ALL);
	flow = flow_add(&end, &rule);
	check(&tcp, &udp);
	flow_remove(flow);
	rule_build(&rule, &tcp, 1u << F_DST_PORT, MASK_ALL);
	flow = flow_add(&end, &rule);
	check(&udp, &tcp);
	flow_remove(flow);
}

/* Without an IP specification ports are matched behind either. */
static void test_ports_without_ip_match_both_versions(void **state)
{
	struct ibv_flow_spec_tcp_udp spec = {.type = IBV_FLOW_SPEC_UDP,
					     .size = sizeof(spec),
					     .val.dst_port = htons(5000),
					     .mask.dst_port = 0xffff};
	struct rule rule = {.attr = {.size = sizeof(rule.attr), .port = 1}};
	struct fields miss4 = frame_udp4, miss6 = frame_udp6, hit = frame_udp4;
	struct ibv_flow *flow;

	(void)state;
	rule_add(&rule, &spec, sizeof(spec));
	flow = flow_add(&end, &rule);
	miss4.dst_port = miss6.dst_port = 5001;
	check(&miss6, &hit);
	hit = frame_udp6;
	check(&miss4, &hit);
	flow_remove(flow);
}

static void test_headers_with_options_and_fragments(void **state)
{
	struct fields hit = frame_udp4, miss = frame_udp4;
	struct ibv_flow *flow;
	struct rule rule;

	(void)state;
	rule_build(&rule, &hit, 1u << F_DST_PORT | 1u << F_SRC_PORT, MASK_ALL);
	flow = flow_add(&end, &rule);
	/* Ports are behind the options. */
	hit.options = miss.options = 7;
	miss.dst_port++;
	check(&miss, &hit);
	/* A first fragment has ports, a later one has bytes that look like some. */
	hit = miss = frame_udp4;
	hit.flags = 4;
	miss.flags = 4;
	miss.fragment_offset = 3;
	check(&miss, &hit);
	flow_remove(flow);
	/* A rule without ports gets all fragments. */
	rule_build(&rule, &hit, 1u << F_DST_IP, MASK_ALL);
	flow = flow_add(&end, &rule);
	hit = miss = frame_udp4;
	hit.fragment_offset = 3;
	miss.dst_ip[3]++;
	check(&miss, &hit);
	flow_remove(flow);
}

/* A frame that is too short for one rule may be for another. */
static void test_short_frames_reach_later_rules(void **state)
{
	struct fields ports = frame_udp4;
	struct ibv_flow *flows[2];
	uint8_t frame[FRAME_MAX];
	struct rule rule;

	(void)state;
	rule_build(&rule, &ports, 1u << F_DST_PORT, MASK_ALL);
	flows[0] = flow_add(&end, &rule);
	rule_build(&rule, &ports, 1u << F_SRC_MAC, MASK_ALL);
	flows[1] = flow_add(&end, &rule);
	frame_build(&ports, frame);
	for (size_t len = 14; len < 44; len++) {
		there_send_bytes(there, frame, len);
		end_wait(&end);
		assert_int_equal(end.length, len);
		assert_memory_equal(end.arrived, frame, len);
	}
	flow_remove(flows[0]);
	flow_remove(flows[1]);
}

static void test_broken_headers_are_no_ip(void **state)
{
	struct fields base = frame_udp4;
	struct ibv_flow *flow;
	uint8_t frame[FRAME_MAX];
	struct rule rule;
	size_t len;

	(void)state;
	rule_build(&rule, &base, 1u << F_DST_IP | 1u << F_DST_PORT, MASK_ALL);
	flow = flow_add(&end, &rule);
	len = frame_build(&base, frame);
	frame[14] = 0x44; /* a header of 16 bytes */
	there_send_bytes(there, frame, len);
	frame[14] = 0x65; /* version 6 */
	there_send_bytes(there, frame, len);
	frame[14] = 0x4f; /* longer than the frame */
	there_send_bytes(there, frame, 14 + 40);
	check(&frame_udp6, &base);
	flow_remove(flow);
}

static void test_multicast_and_broadcast(void **state)
{
	static const uint8_t macs[][6] = {{0x01, 0x00, 0x5e, 1, 2, 3},
					  {0x33, 0x33, 0, 0, 0, 7},
					  {0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
					  {0x02, 0x77, 0, 0, 0, 9}}; /* somebody else's */

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(macs); i++) {
		struct fields hit = frame_udp4;

		memcpy(hit.dst_mac, macs[i], 6);
		check_field(&hit, F_DST_MAC, MASK_ALL);
	}
}

static void test_tagged_and_untagged_match_where_the_tag_is_not_asked_for(void **state)
{
	struct fields plain = frame_udp4, with_tag = tagged(&frame_udp4), miss = frame_udp4;
	struct ibv_flow *flow = flow_add_port(&end, 5000);

	(void)state;
	miss.dst_port = 5001;
	check(&miss, &plain);
	check(&miss, &with_tag);
	flow_remove(flow);
}

static void test_many_rules(void **state)
{
	struct ibv_flow *flows[MANY];
	struct fields hit = frame_udp4, miss = frame_udp4;

	(void)state;
	for (unsigned i = 0; i < MANY; i++)
		flows[i] = flow_add_port(&end, (uint16_t)(6000 + 3 * i));
	for (unsigned i = 0; i < MANY; i += 5) {
		hit.dst_port = (uint16_t)(6000 + 3 * i);
		miss.dst_port = (uint16_t)(6001 + 3 * i);
		check(&miss, &hit);
	}
	for (unsigned i = 0; i < MANY; i++)
		flow_remove(flows[i]);
}

static void test_wrong_rules_are_refused(void **state)
{
	struct ibv_flow_spec_esp esp = {.type = IBV_FLOW_SPEC_ESP, .size = sizeof(esp)};
	struct fields fields = frame_udp4;
	struct rule rule;

	(void)state;
	rule = (struct rule){.attr = {.size = sizeof(rule.attr), .port = 1}};
	assert_null(ibv_create_flow(end.qp, &rule.attr));
	assert_int_equal(errno, EINVAL);
	rule_add(&rule, &esp, sizeof(esp));
	assert_null(ibv_create_flow(end.qp, &rule.attr));
	assert_int_equal(errno, EOPNOTSUPP);
	rule_build(&rule, &fields, 1u << F_DST_PORT, MASK_ALL);
	rule.attr.port = 2;
	assert_null(ibv_create_flow(end.qp, &rule.attr));
	assert_int_equal(errno, EINVAL);
	rule.attr.port = 1;
	rule.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	assert_null(ibv_create_flow(end.qp, &rule.attr));
	assert_int_equal(errno, EOPNOTSUPP);
	/* IPv4 addresses in frames of another type. */
	fields.ether_type = 0x86de;
	rule_build(&rule, &fields, 1u << F_ETHER_TYPE | 1u << F_SRC_IP, MASK_ALL);
	assert_null(ibv_create_flow(end.qp, &rule.attr));
	assert_int_equal(errno, EINVAL);
	/* The right one again, with a wrong size. */
	fields = frame_udp4;
	rule_build(&rule, &fields, 1u << F_DST_PORT, MASK_ALL);
	rule.specs[4]++;
	assert_null(ibv_create_flow(end.qp, &rule.attr));
	assert_int_equal(errno, EINVAL);
}

static int open_end(void **state)
{
	(void)state;
	end_open(&end, END_FRAMES);
	return 0;
}

static int close_end(void **state)
{
	(void)state;
	end_close(&end);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_field_alone_with_a_full_mask),
		cmocka_unit_test(test_every_field_alone_with_a_partial_mask),
		cmocka_unit_test(test_all_fields_combined),
		cmocka_unit_test(test_ports_are_of_one_protocol),
		cmocka_unit_test(test_ports_without_ip_match_both_versions),
		cmocka_unit_test(test_headers_with_options_and_fragments),
		cmocka_unit_test(test_short_frames_reach_later_rules),
		cmocka_unit_test(test_broken_headers_are_no_ip),
		cmocka_unit_test(test_multicast_and_broadcast),
		cmocka_unit_test(test_tagged_and_untagged_match_where_the_tag_is_not_asked_for),
		cmocka_unit_test(test_many_rules),
		cmocka_unit_test(test_wrong_rules_are_refused),
	};

	house_build();
	there = there_open();
	return cmocka_run_group_tests(tests, open_end, close_end);
}
