/* SPDX-License-Identifier: MIT */
/* What the packet programs know of frames, rules as text, files and sequence numbers. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "packet/frame.h"
#include "packet/pcap.h"
#include "packet/rule_text.h"
#include "packet/sequence.h"

/* A copy that ends where an allocation ends, so that sanitizers see a read beyond it. */
static uint8_t *exact_copy(const void *bytes, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	return copy;
}

static struct frame_path some_path(void)
{
	struct frame_path path = {.src_mac = {2, 0, 0, 0, 0, 1}, .dst_mac = {2, 0, 0, 0, 0, 2}};

	inet_pton(AF_INET, "10.0.0.1", &path.src_ip);
	inet_pton(AF_INET, "10.0.0.2", &path.dst_ip);
	return path;
}

/* ---- frames ---- */

static void test_checksum_is_that_of_the_rfc(void **state)
{
	/* RFC 1071, section 3: the sum is ddf2. */
	const uint8_t bytes[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};

	(void)state;
	assert_int_equal(frame_checksum(bytes, 8), 0xffff & ~0xddf2);
	assert_int_equal(frame_checksum(bytes, 7), 0xffff & ~(0xddf2 - 0xf7));
	assert_int_equal(frame_checksum(bytes, 0), 0xffff);
}

/* The request, as its target would answer it. */
static size_t make_reply(uint8_t *frame, size_t data)
{
	struct frame_path path = some_path();
	uint8_t *icmp = frame + FRAME_ETH + FRAME_IP;
	size_t len;

	for (size_t i = 0; i < data; i++)
		frame[FRAME_ECHO_ROOM + i] = (uint8_t)i;
	len = frame_put_echo_request(frame, &path, 0x1234, 7, data);
	assert_int_equal(len, 42 + data);
	assert_int_equal(frame_checksum(frame + FRAME_ETH, FRAME_IP), 0);
	assert_int_equal(frame_checksum(icmp, FRAME_ICMP + data), 0);
	icmp[0] = 0;
	frame_put16(icmp + 2, 0);
	frame_put16(icmp + 2, frame_checksum(icmp, FRAME_ICMP + data));
	return len;
}

static void test_echo_reply_is_recognised_and_only_whole(void **state)
{
	uint8_t frame[256] = {0}, *copy;
	struct frame_echo echo;
	size_t len = make_reply(frame, 33);

	(void)state;
	assert_true(frame_is_echo_reply(frame, len, &echo));
	assert_int_equal(echo.id, 0x1234);
	assert_int_equal(echo.seq, 7);
	assert_int_equal(echo.ttl, 64);
	assert_int_equal(echo.len, 41);
	assert_int_equal(ntohl(echo.from.s_addr), 0x0a000001);
	/* Padding behind it is not part of it. */
	assert_true(frame_is_echo_reply(frame, len + 9, &echo));
	for (size_t i = 0; i < len; i++) {
		copy = exact_copy(frame, i);
		assert_false(frame_is_echo_reply(copy, i, &echo));
		free(copy);
	}
}

static void test_what_is_not_an_echo_reply_is_not_taken_for_one(void **state)
{
	/* What is changed, to what. */
	const struct {
		size_t at;
		uint8_t byte;
	} changes[] = {{12, 0x86}, {14, 0x65}, {14, 0x44}, {20, 0x60}, {23, 17},
		       {34, 8},    {35, 1},    {36, 0xee}, {60, 0xee}};
	uint8_t frame[256] = {0};
	struct frame_echo echo;
	size_t len = make_reply(frame, 33);

	(void)state;
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		uint8_t was = frame[changes[i].at];

		frame[changes[i].at] = changes[i].byte;
		assert_false(frame_is_echo_reply(frame, len, &echo));
		frame[changes[i].at] = was;
	}
	assert_true(frame_is_echo_reply(frame, len, &echo));
}

static void test_arp_reply_is_recognised_by_its_sender(void **state)
{
	struct frame_path path = some_path();
	uint8_t frame[64], mac[6] = {0}, *copy;
	size_t len = frame_put_arp_request(frame, &path);

	(void)state;
	assert_int_equal(len, 42);
	assert_memory_equal(frame, "\xff\xff\xff\xff\xff\xff", 6);
	assert_memory_equal(frame + FRAME_ETH + 24, &path.dst_ip, 4);
	assert_false(frame_is_arp_reply(frame, len, path.src_ip, mac));
	frame[FRAME_ETH + 7] = 2;
	assert_false(frame_is_arp_reply(frame, len, path.dst_ip, mac));
	assert_true(frame_is_arp_reply(frame, len, path.src_ip, mac));
	assert_memory_equal(mac, path.src_mac, 6);
	copy = exact_copy(frame, len - 1);
	assert_false(frame_is_arp_reply(copy, len - 1, path.src_ip, mac));
	free(copy);
}

static void test_udp_payload_is_found_with_and_without_a_tag(void **state)
{
	struct frame_path path = some_path();
	const uint8_t tag[4] = {0x81, 0x00, 0x00, 0x05};
	uint8_t frame[128] = {0}, tagged[132], *copy;
	size_t len = frame_put_udp(frame, &path, 1, 2, 20), size;

	(void)state;
	assert_int_equal(len, 62);
	assert_ptr_equal(frame_udp_payload(frame, len, &size), frame + 42);
	assert_int_equal(size, 20);
	memcpy(tagged, frame, 12);
	memcpy(tagged + 12, tag, sizeof(tag));
	memcpy(tagged + 16, frame + 12, sizeof(frame) - 12);
	assert_ptr_equal(frame_udp_payload(tagged, len + 4, &size), tagged + 46);
	for (size_t i = 0; i < len; i++) {
		copy = exact_copy(frame, i);
		assert_null(frame_udp_payload(copy, i, &size));
		free(copy);
		copy = exact_copy(tagged, i + 4);
		assert_null(frame_udp_payload(copy, i + 4, &size));
		free(copy);
	}
	frame_put16(frame + 38, 29); /* longer than the packet */
	assert_null(frame_udp_payload(frame, len, &size));
	frame_put16(frame + 38, 7);
	assert_null(frame_udp_payload(frame, len, &size));
}

static void test_macs_are_parsed_strictly(void **state)
{
	const char *const wrong[] = {"",
				     "0",
				     "00:11:22:33:44",
				     "00:11:22:33:44:5",
				     "00:11:22:33:44:55:",
				     "00:11:22:33:44:55:66",
				     "00-11-22-33-44-55",
				     "0g:11:22:33:44:55"};
	uint8_t mac[6];

	(void)state;
	assert_true(frame_parse_mac("00:1a:2B:33:44:ff", mac));
	assert_memory_equal(mac, "\x00\x1a\x2b\x33\x44\xff", 6);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_false(frame_parse_mac(wrong[i], mac));
}

/* ---- rules as text ---- */

static bool parse(const char *text, struct hashpipe_ibv_rule *rule)
{
	char copy[256];
	const char *wrong;

	snprintf(copy, sizeof(copy), "%s", text);
	return rule_text_parse(copy, rule, &wrong);
}

static void test_rule_text_sets_what_it_says(void **state)
{
	struct hashpipe_ibv_rule rule;

	(void)state;
	assert_true(parse("udp,dst-ip=239.1.2.3,dst-port=60000,src-ip=10.0.0.0/8,vlan=5", &rule));
	assert_int_equal(rule.match, HASHPIPE_IBV_DST_IP | HASHPIPE_IBV_DST_PORT |
					     HASHPIPE_IBV_SRC_IP | HASHPIPE_IBV_VLAN_ID);
	assert_int_equal(rule.ip_version, 4);
	assert_int_equal(rule.ip_protocol, IPPROTO_UDP);
	assert_memory_equal(rule.dst_ip, "\xef\x01\x02\x03", 4);
	assert_int_equal(rule.dst_ip_bits, 0);
	assert_int_equal(rule.src_ip_bits, 8);
	assert_int_equal(rule.dst_port, 60000);
	assert_int_equal(rule.vlan, 5);
	assert_true(parse("tcp,src-ip=2001:db8::/32,src-port=0x50", &rule));
	assert_int_equal(rule.ip_version, 6);
	assert_int_equal(rule.src_ip_bits, 32);
	assert_int_equal(rule.src_port, 80);
	assert_true(parse("dst-mac=01:80:c2:00:00:00,ether-type=0x0806", &rule));
	assert_int_equal(rule.match, HASHPIPE_IBV_DST_MAC | HASHPIPE_IBV_ETHER_TYPE);
	assert_int_equal(rule.ip_version, 0);
	assert_true(parse("all", &rule));
	assert_int_equal(rule.match, 0);
}

static void test_rule_text_that_makes_no_sense_is_refused(void **state)
{
	const char *const wrong[] = {"",
				     "udp,",
				     "nonsense",
				     "dst-port=5",
				     "udp,tcp",
				     "ip,ip6",
				     "udp,dst-port=65536",
				     "udp,dst-port=",
				     "udp,dst-port=5x",
				     "vlan=4096",
				     "dst-ip=10.0.0.256",
				     "dst-ip=10.0.0.1/33",
				     "dst-ip=10.0.0.1/0",
				     "dst-ip=10.0.0.1,src-ip=::1",
				     "dst-ip=10.0.0.1,dst-ip=10.0.0.2",
				     "vlan=5,vlan-tag=5",
				     "dst-mac=1:2:3"};
	struct hashpipe_ibv_rule rule;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		if (parse(wrong[i], &rule))
			fail_msg("taken: %s", wrong[i]);
}

/* ---- files ---- */

static void test_pcap_has_the_documented_bytes(void **state)
{
	uint8_t file[64] = {0};
	const uint32_t magic = 0xa1b23c4d, record[] = {3, 7, 5, 5};
	FILE *out = fmemopen(file, sizeof(file), "w");

	(void)state;
	assert_non_null(out);
	assert_int_equal(pcap_begin(out, 9000), 0);
	assert_int_equal(pcap_add(out, 3000000007u, "hello", 5), 0);
	assert_int_equal(ftell(out), 24 + 16 + 5);
	fclose(out);
	assert_memory_equal(file, &magic, 4);
	assert_memory_equal(file + 20, "\1\0\0\0", 4);
	assert_memory_equal(file + 24, record, sizeof(record));
	assert_memory_equal(file + 40, "hello", 5);
}

/* ---- sequence numbers ---- */

static struct sequence sequence;

static void add(uint64_t number)
{
	sequence_add(&sequence, &(struct sequence_mark){.stream = 9, .number = number});
}

static void begin(uint64_t total)
{
	sequence_init(&sequence, &(struct sequence_mark){.stream = 9, .total = total});
}

static void assert_counts(uint64_t received, uint64_t lost, uint64_t late, uint64_t twice)
{
	assert_int_equal(sequence.received, received);
	assert_int_equal(sequence_lost(&sequence), lost);
	assert_int_equal(sequence.out_of_order, late);
	assert_int_equal(sequence.twice, twice);
}

static void test_mark_comes_back_and_others_have_none(void **state)
{
	const struct sequence_mark mark = {.stream = 0x0102030405060708, .number = 5, .total = 9};
	struct sequence_mark out;
	uint8_t payload[SEQUENCE_BYTES];

	(void)state;
	sequence_put(payload, &mark);
	assert_true(sequence_get(payload, sizeof(payload), &out));
	assert_memory_equal(&out, &mark, sizeof(mark));
	assert_false(sequence_get(payload, sizeof(payload) - 1, &out));
	payload[3] ^= 1;
	assert_false(sequence_get(payload, sizeof(payload), &out));
}

static void test_sequence_in_order_loses_nothing(void **state)
{
	(void)state;
	begin(100000);
	for (uint64_t i = 0; i < 100000; i++)
		add(i);
	assert_counts(100000, 0, 0, 0);
}

static void test_sequence_tells_lost_late_and_twice_apart(void **state)
{
	(void)state;
	begin(0);
	add(0);
	add(3);
	assert_counts(2, 2, 0, 0);
	add(1);
	assert_counts(3, 1, 1, 0);
	add(1);
	add(3);
	assert_counts(3, 1, 1, 2);
	add(4);
	assert_counts(4, 1, 1, 2);
}

static void test_sequence_counts_what_is_missing_at_the_end(void **state)
{
	(void)state;
	begin(10);
	for (uint64_t i = 0; i < 7; i++)
		add(i);
	assert_counts(7, 3, 0, 0);
}

static void test_sequence_survives_a_jump_beyond_its_window(void **state)
{
	(void)state;
	begin(0);
	add(5);
	add(5 + 3ull * SEQUENCE_WINDOW);
	assert_counts(2, 4 + 3ull * SEQUENCE_WINDOW, 0, 0);
	add(6 + 2ull * SEQUENCE_WINDOW); /* still in the window */
	assert_counts(3, 3 + 3ull * SEQUENCE_WINDOW, 1, 0);
	add(5 + 2ull * SEQUENCE_WINDOW); /* not any more */
	assert_counts(3, 3 + 3ull * SEQUENCE_WINDOW, 1, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_checksum_is_that_of_the_rfc),
		cmocka_unit_test(test_echo_reply_is_recognised_and_only_whole),
		cmocka_unit_test(test_what_is_not_an_echo_reply_is_not_taken_for_one),
		cmocka_unit_test(test_arp_reply_is_recognised_by_its_sender),
		cmocka_unit_test(test_udp_payload_is_found_with_and_without_a_tag),
		cmocka_unit_test(test_macs_are_parsed_strictly),
		cmocka_unit_test(test_rule_text_sets_what_it_says),
		cmocka_unit_test(test_rule_text_that_makes_no_sense_is_refused),
		cmocka_unit_test(test_pcap_has_the_documented_bytes),
		cmocka_unit_test(test_mark_comes_back_and_others_have_none),
		cmocka_unit_test(test_sequence_in_order_loses_nothing),
		cmocka_unit_test(test_sequence_tells_lost_late_and_twice_apart),
		cmocka_unit_test(test_sequence_counts_what_is_missing_at_the_end),
		cmocka_unit_test(test_sequence_survives_a_jump_beyond_its_window),
	};

	return cmocka_run_group_tests_name("packets_tools", tests, NULL, NULL);
}
