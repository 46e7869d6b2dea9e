/* SPDX-License-Identifier: MIT */
/*
 * Rules, the match function and the two generators of filters: all must say the same of every
 * frame. That a kernel runs the filters is for tests/packet to show.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../packet/frame.h"
#include "bpf_machine.h"

#define MAX_RULES 300
#define MAX_CODE  4096

static struct raw_rule rules[MAX_RULES];
static unsigned num_rules;

static void begin(void)
{
	num_rules = 0;
}

static void add(const struct fields *fields, unsigned wanted, enum mask mask)
{
	struct rule rule;

	rule_build(&rule, fields, wanted, mask);
	assert_int_equal(rule_from_attr(&rule.attr, &rules[num_rules++]), 0);
}

static bool match_here(const struct machine_frame *frame)
{
	const struct raw_tag none = {0};
	union raw_key key, on_wire;

	key_parse(&key, frame->bytes, frame->len, &frame->tag);
	key_parse(&on_wire, frame->on_wire, frame->wire_len, &none);
	assert_memory_equal(&key, &on_wire, sizeof(key));
	return rules_match(rules, num_rules, &key);
}

/* All that can match a frame agree. */
static void check_bytes(const uint8_t *bytes, size_t len, bool expected)
{
	static struct sock_filter code[MAX_CODE];
	struct filter_program program;
	struct machine_frame frame;
	int num = filter_classic(rules, num_rules, code, MAX_CODE);

	machine_set_frame(&frame, bytes, len);
	assert_int_equal(match_here(&frame), expected);
	if (num != -E2BIG) {
		assert_true(num > 0);
		assert_int_equal(machine_run_classic(code, num, &frame), expected);
	}
	for (enum filter_place place = FILTER_XDP; place <= FILTER_SOCKET; place++) {
		assert_int_equal(filter_ebpf(place, rules, num_rules, &program), 0);
		assert_int_equal(machine_run_ebpf(place, &program, &frame), expected);
		filter_free(&program);
	}
}

static void check(const struct fields *fields, bool expected)
{
	uint8_t bytes[FRAME_MAX];

	check_bytes(bytes, frame_build(fields, bytes), expected);
}

static const struct fields *const bases[] = {&frame_udp4, &frame_udp6};

static bool has_field(const struct fields *base, enum field field)
{
	return field != (base == &frame_udp4 ? F_FLOW_LABEL : F_FLAGS);
}

static void test_every_field_counts_with_either_mask(void **state)
{
	(void)state;
	for (unsigned b = 0; b < 2; b++) {
		for (enum field field = 0; field < NUM_FIELDS; field++) {
			struct fields fields = *bases[b];

			if (!has_field(bases[b], field) || field == F_ETHER_TYPE)
				continue;
			fields.is_tagged = field == F_TCI;
			begin();
			add(&fields, 1u << field, MASK_ALL);
			check(&fields, true);
			fields_flip(&fields, field, false);
			check(&fields, false);
			fields_flip(&fields, field, false);
			fields_flip(&fields, field, true);
			check(&fields, false);
			/* Without the lowest bit; of the flags that is one of two, of the rest all.
			 */
			fields = *bases[b];
			fields.is_tagged = field == F_TCI;
			begin();
			add(&fields, 1u << field, MASK_HIGH);
			fields_flip(&fields, field, false);
			check(&fields, true);
			fields_flip(&fields, field, true);
			check(&fields, false);
		}
	}
}

static void test_a_tag_is_only_asked_for_by_its_mask(void **state)
{
	struct fields fields = frame_udp4;

	(void)state;
	begin();
	add(&fields, 1u << F_DST_PORT | 1u << F_ETHER_TYPE, MASK_ALL);
	check(&fields, true);
	fields.is_tagged = true;
	fields.tci = 7;
	check(&fields, true);
	begin();
	add(&fields, 1u << F_TCI, MASK_ALL);
	check(&fields, true);
	fields.is_tagged = false;
	check(&fields, false);
}

static void test_a_tag_of_zero_is_not_no_tag(void **state)
{
	struct fields fields = frame_udp4;

	(void)state;
	begin();
	add(&fields, 1u << F_TCI, MASK_ALL);
	check(&fields, false);
	fields.is_tagged = true;
	check(&fields, true);
}

/* As it is cut byte by byte, a frame stops matching where its ports end, not before. */
static void test_short_frames_match_as_far_as_they_go(void **state)
{
	(void)state;
	for (unsigned b = 0; b < 2; b++) {
		struct fields fields = *bases[b];
		size_t ip = b ? 40 : 20;
		uint8_t bytes[FRAME_MAX];

		frame_build(&fields, bytes);
		for (size_t len = 14; len < 80; len++) {
			begin();
			add(&fields, 1u << F_DST_PORT, MASK_ALL);
			check_bytes(bytes, len, len >= 14 + ip + 4);
			begin();
			add(&fields, 1u << F_DST_IP, MASK_ALL);
			check_bytes(bytes, len, len >= 14 + ip);
			add(&fields, 1u << F_SRC_MAC, MASK_ALL);
			check_bytes(bytes, len, true);
		}
	}
}

static void test_options_and_fragments(void **state)
{
	struct fields fields = frame_udp4;

	(void)state;
	begin();
	add(&fields, 1u << F_DST_PORT, MASK_ALL);
	for (fields.options = 0; fields.options <= 10; fields.options++)
		check(&fields, true);
	fields.options = 0;
	fields.flags = 4;
	check(&fields, true);
	fields.fragment_offset = 1;
	check(&fields, false);
	fields.fragment_offset = 0x1000;
	check(&fields, false);
}

static void test_broken_ip_headers_match_nothing_of_ip(void **state)
{
	static const uint8_t firsts[] = {0x44, 0x40, 0x65, 0x55, 0x00, 0xff};
	struct fields fields = frame_udp4;
	uint8_t bytes[FRAME_MAX];
	size_t len = frame_build(&fields, bytes);

	(void)state;
	begin();
	add(&fields, 1u << F_DST_IP, MASK_ALL);
	for (unsigned i = 0; i < sizeof(firsts); i++) {
		bytes[14] = firsts[i];
		check_bytes(bytes, len, false);
	}
	bytes[14] = 0x4f; /* options that reach behind the end: IP, but no ports */
	check_bytes(bytes, 14 + 40, true);
	begin();
	add(&fields, 1u << F_DST_PORT, MASK_ALL);
	check_bytes(bytes, 14 + 40, false);
}

static void test_many_rules_of_several_shapes(void **state)
{
	struct fields fields = frame_udp4;

	(void)state;
	begin();
	for (unsigned i = 0; i < 80; i++) {
		fields = frame_udp4;
		fields.dst_port = (uint16_t)(3 * i);
		add(&fields, 1u << F_DST_PORT, MASK_ALL);
		fields = frame_udp6;
		fields.src_ip[15] = (uint8_t)(3 * i);
		add(&fields, 1u << F_SRC_IP | 1u << F_SRC_PORT, MASK_ALL);
	}
	fields = frame_udp4;
	fields.src_mac[3] = 9;
	add(&fields, 1u << F_SRC_MAC, MASK_ALL);
	for (unsigned i = 0; i < 240; i++) {
		fields = frame_udp4;
		fields.dst_port = (uint16_t)i;
		check(&fields, i % 3 == 0);
		fields = frame_udp6;
		fields.src_ip[15] = (uint8_t)i;
		check(&fields, i % 3 == 0);
	}
	fields = frame_udp4;
	fields.src_mac[3] = 9;
	check(&fields, true);
}

static void test_no_rules_match_nothing_and_an_empty_mask_all(void **state)
{
	struct rule rule = {.attr = {.type = IBV_FLOW_ATTR_SNIFFER, .port = 1}};
	struct fields fields = frame_udp4;

	(void)state;
	begin();
	check(&fields, false);
	add(&fields, 1u << F_DST_PORT, MASK_ALL);
	assert_int_equal(rule_from_attr(&rule.attr, &rules[num_rules++]), 0);
	add(&fields, 1u << F_SRC_PORT, MASK_ALL);
	check(&fields, true);
	check(&frame_udp6, true);
}

static void test_too_many_rules_are_told(void **state)
{
	struct sock_filter code[64];
	struct fields fields = frame_udp4;

	(void)state;
	begin();
	for (unsigned i = 0; i < 10; i++)
		add(&fields, 1u << F_DST_PORT, MASK_ALL);
	assert_int_equal(filter_classic(rules, num_rules, code, 64), -E2BIG);
	assert_true(filter_classic(rules, 2, code, 64) > 0);
}

static void test_rules_know_who_keeps_the_packet(void **state)
{
	struct fields fields = frame_udp4;
	struct raw_rule out;
	struct rule rule;

	(void)state;
	rule_build(&rule, &fields, 1u << F_DST_PORT, MASK_ALL);
	assert_int_equal(rule_from_attr(&rule.attr, &out), 0);
	assert_false(out.copies);
	rule.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	assert_int_equal(rule_from_attr(&rule.attr, &out), 0);
	assert_true(out.copies);
	rule.attr.flags = 0;
	rule.attr.type = IBV_FLOW_ATTR_SNIFFER;
	assert_int_equal(rule_from_attr(&rule.attr, &out), 0);
	assert_true(out.copies);
	rule.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	assert_int_equal(rule_from_attr(&rule.attr, &out), -EOPNOTSUPP);
}

static void test_contradictions_are_refused(void **state)
{
	struct ibv_flow_spec_ipv4_ext ip = {.type = IBV_FLOW_SPEC_IPV4_EXT,
					    .size = sizeof(ip),
					    .val.proto = 6,
					    .mask.proto = 0xff};
	struct ibv_flow_spec_tcp_udp udp = {.type = IBV_FLOW_SPEC_UDP, .size = sizeof(udp)};
	struct rule rule = {.attr = {.size = sizeof(rule.attr), .port = 1}};
	struct raw_rule out;

	(void)state;
	/* From the outside in, each layer once. */
	rule_add(&rule, &udp, sizeof(udp));
	rule_add(&rule, &ip, sizeof(ip));
	assert_int_equal(rule_from_attr(&rule.attr, &out), -EINVAL);
	/* UDP in TCP. */
	rule = (struct rule){.attr = {.size = sizeof(rule.attr), .port = 1}};
	rule_add(&rule, &ip, sizeof(ip));
	rule_add(&rule, &udp, sizeof(udp));
	assert_int_equal(rule_from_attr(&rule.attr, &out), -EINVAL);
	/* A part of the number that fits does. */
	ip.mask.proto = 0x01;
	ip.val.proto = 0xff;
	rule = (struct rule){.attr = {.size = sizeof(rule.attr), .port = 1}};
	rule_add(&rule, &ip, sizeof(ip));
	rule_add(&rule, &udp, sizeof(udp));
	assert_int_equal(rule_from_attr(&rule.attr, &out), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_field_counts_with_either_mask),
		cmocka_unit_test(test_a_tag_is_only_asked_for_by_its_mask),
		cmocka_unit_test(test_a_tag_of_zero_is_not_no_tag),
		cmocka_unit_test(test_short_frames_match_as_far_as_they_go),
		cmocka_unit_test(test_options_and_fragments),
		cmocka_unit_test(test_broken_ip_headers_match_nothing_of_ip),
		cmocka_unit_test(test_many_rules_of_several_shapes),
		cmocka_unit_test(test_no_rules_match_nothing_and_an_empty_mask_all),
		cmocka_unit_test(test_too_many_rules_are_told),
		cmocka_unit_test(test_rules_know_who_keeps_the_packet),
		cmocka_unit_test(test_contradictions_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
