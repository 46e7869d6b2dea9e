/* SPDX-License-Identifier: MIT */
/* Rules to classic BPF, one after the other: each ends in "accept" or falls to the next. */
#include <endian.h>
#include <errno.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <string.h>

#include "filter.h"

#define ETH_LEN      14
#define IPV4_MIN_LEN 20
#define IPV6_LEN     40
#define PORTS_LEN    4
#define ACCEPT       0xffffffffu
#define NO_LABEL     UINT8_MAX /* of a jump: to the next rule, wherever that will be */

struct program {
	struct sock_filter *out;
	unsigned max;
	unsigned num;  /* may exceed max: then it was too small */
	unsigned rule; /* where the present rule begins */
};

static void emit(struct program *program, uint16_t code, uint32_t k)
{
	if (program->num < program->max)
		program->out[program->num] = (struct sock_filter){.code = code, .k = k};
	program->num++;
}

/* Go on if A compares so with @k, else to the next rule. */
static void require(struct program *program, uint16_t jump, uint32_t k)
{
	emit(program, BPF_JMP | jump | BPF_K, k);
	if (program->num <= program->max)
		program->out[program->num - 1].jf = NO_LABEL;
}

/* The same, and not. */
static void require_not(struct program *program, uint16_t jump, uint32_t k)
{
	emit(program, BPF_JMP | jump | BPF_K, k);
	if (program->num <= program->max)
		program->out[program->num - 1].jt = NO_LABEL;
}

/* A rule is shorter than a jump can reach. */
static void end_rule(struct program *program)
{
	emit(program, BPF_RET | BPF_K, ACCEPT);
	if (program->num > program->max)
		return;
	for (unsigned i = program->rule; i < program->num; i++) {
		struct sock_filter *at = &program->out[i];

		if (BPF_CLASS(at->code) != BPF_JMP)
			continue;
		if (at->jt == NO_LABEL)
			at->jt = (uint8_t)(program->num - i - 1);
		if (at->jf == NO_LABEL)
			at->jf = (uint8_t)(program->num - i - 1);
	}
}

/* A holds a field: does it have the value? @mask is as wide as the field, @all if every bit counts.
 */
static void compare(struct program *program, uint32_t value, uint32_t mask, uint32_t all)
{
	if (mask != all)
		emit(program, BPF_ALU | BPF_AND | BPF_K, mask);
	require(program, BPF_JEQ, value);
}

static void test_byte(struct program *program, uint32_t offset, uint8_t value, uint8_t mask)
{
	if (!mask)
		return;
	emit(program, BPF_LD | BPF_B | BPF_ABS, offset);
	compare(program, value, mask, 0xff);
}

/* @mode: BPF_ABS, or BPF_IND for an offset behind X. Value and mask are as in the frame. */
static void test_half(struct program *program, uint16_t mode, uint32_t offset, const void *value,
		      const void *mask)
{
	uint16_t half, half_mask;

	memcpy(&half, value, sizeof(half));
	memcpy(&half_mask, mask, sizeof(half_mask));
	if (!half_mask)
		return;
	emit(program, (uint16_t)(BPF_LD | BPF_H | mode), offset);
	compare(program, be16toh(half), be16toh(half_mask), 0xffff);
}

static void test_word(struct program *program, uint32_t offset, const void *value, const void *mask)
{
	uint32_t word, word_mask;

	memcpy(&word, value, sizeof(word));
	memcpy(&word_mask, mask, sizeof(word_mask));
	if (!word_mask)
		return;
	emit(program, BPF_LD | BPF_W | BPF_ABS, offset);
	compare(program, be32toh(word), be32toh(word_mask), UINT32_MAX);
}

static void test_ethernet(struct program *program, const struct raw_rule *rule)
{
	test_word(program, 0, rule->value.dst_mac, rule->mask.dst_mac);
	test_half(program, BPF_ABS, 4, rule->value.dst_mac + 4, rule->mask.dst_mac + 4);
	test_word(program, 6, rule->value.src_mac, rule->mask.src_mac);
	test_half(program, BPF_ABS, 10, rule->value.src_mac + 4, rule->mask.src_mac + 4);
	test_half(program, BPF_ABS, 12, &rule->value.ether_type, &rule->mask.ether_type);
	if (!rule->mask.is_tagged)
		return;
	emit(program, BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT));
	require_not(program, BPF_JEQ, 0);
	emit(program, BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_VLAN_TAG));
	compare(program, be16toh(rule->value.vlan_tci), be16toh(rule->mask.vlan_tci), UINT32_MAX);
}

/* A load behind the end would reject the frame, whatever later rules say: so ask first. */
static void require_len(struct program *program, uint32_t len)
{
	emit(program, BPF_LD | BPF_W | BPF_LEN, 0);
	require(program, BPF_JGE, len);
}

static void require_ip(struct program *program, uint16_t type, uint32_t len, uint8_t version)
{
	emit(program, BPF_LD | BPF_H | BPF_ABS, 12);
	require(program, BPF_JEQ, type);
	require_len(program, ETH_LEN + len);
	test_byte(program, ETH_LEN, (uint8_t)(version << 4), 0xf0);
}

static void test_ipv4(struct program *program, const struct raw_rule *rule)
{
	const union raw_key *value = &rule->value, *mask = &rule->mask;

	require_ip(program, ETHERTYPE_IP, IPV4_MIN_LEN, 4);
	emit(program, BPF_LD | BPF_B | BPF_ABS, ETH_LEN);
	emit(program, BPF_ALU | BPF_AND | BPF_K, 15);
	require(program, BPF_JGE, IPV4_MIN_LEN / 4);
	test_byte(program, ETH_LEN + 1, value->tos, mask->tos);
	/* In the header they are bits 14 and 13 of the half word at 6. */
	test_byte(program, ETH_LEN + 6,
		  (uint8_t)((value->ip_flags & KEY_DONT_FRAGMENT) << 5 |
			    (value->ip_flags & KEY_MORE_FRAGMENTS) << 3),
		  (uint8_t)((mask->ip_flags & KEY_DONT_FRAGMENT) << 5 |
			    (mask->ip_flags & KEY_MORE_FRAGMENTS) << 3));
	test_byte(program, ETH_LEN + 8, value->ttl, mask->ttl);
	test_byte(program, ETH_LEN + 9, value->ip_proto, mask->ip_proto);
	test_word(program, ETH_LEN + 12, value->src_ip, mask->src_ip);
	test_word(program, ETH_LEN + 16, value->dst_ip, mask->dst_ip);
}

static void test_ipv6(struct program *program, const struct raw_rule *rule)
{
	const union raw_key *value = &rule->value, *mask = &rule->mask;
	uint32_t first = htobe32((uint32_t)value->tos << 20) | value->flow_label;
	uint32_t first_mask =
		htobe32((uint32_t)mask->tos << 20) | (mask->flow_label & htobe32(0xfffff));

	require_ip(program, ETHERTYPE_IPV6, IPV6_LEN, 6);
	test_word(program, ETH_LEN, &first, &first_mask);
	test_byte(program, ETH_LEN + 6, value->ip_proto, mask->ip_proto);
	test_byte(program, ETH_LEN + 7, value->ttl, mask->ttl);
	for (unsigned i = 0; i < 16; i += 4)
		test_word(program, ETH_LEN + 8 + i, value->src_ip + i, mask->src_ip + i);
	for (unsigned i = 0; i < 16; i += 4)
		test_word(program, ETH_LEN + 24 + i, value->dst_ip + i, mask->dst_ip + i);
}

/* Behind an IPv4 header, which was checked: not in a later fragment, and within the frame. */
static void test_ipv4_ports(struct program *program, const struct raw_rule *rule)
{
	emit(program, BPF_LD | BPF_H | BPF_ABS, ETH_LEN + 6);
	require_not(program, BPF_JSET, 0x1fff);
	emit(program, BPF_LDX | BPF_B | BPF_MSH, ETH_LEN);
	emit(program, BPF_LD | BPF_W | BPF_LEN, 0);
	emit(program, BPF_ALU | BPF_SUB | BPF_X, 0);
	/* Headers that are longer than the frame make this wrap: far above any length. */
	emit(program, BPF_ALU | BPF_SUB | BPF_K, ETH_LEN + PORTS_LEN);
	require_not(program, BPF_JGT, INT32_MAX);
	test_half(program, BPF_IND, ETH_LEN, &rule->value.src_port, &rule->mask.src_port);
	test_half(program, BPF_IND, ETH_LEN + 2, &rule->value.dst_port, &rule->mask.dst_port);
}

static void test_ipv6_ports(struct program *program, const struct raw_rule *rule)
{
	require_len(program, ETH_LEN + IPV6_LEN + PORTS_LEN);
	test_half(program, BPF_ABS, ETH_LEN + IPV6_LEN, &rule->value.src_port,
		  &rule->mask.src_port);
	test_half(program, BPF_ABS, ETH_LEN + IPV6_LEN + 2, &rule->value.dst_port,
		  &rule->mask.dst_port);
}

/* @version: of IP; 0: the rule says nothing about what is behind Ethernet. */
static void add_rule(struct program *program, const struct raw_rule *rule, uint8_t version)
{
	program->rule = program->num;
	test_ethernet(program, rule);
	if (version == 4) {
		test_ipv4(program, rule);
		if (rule->mask.l4)
			test_ipv4_ports(program, rule);
	} else if (version == 6) {
		test_ipv6(program, rule);
		if (rule->mask.l4)
			test_ipv6_ports(program, rule);
	}
	end_rule(program);
}

int filter_classic(const struct raw_rule *rules, unsigned num, struct sock_filter *out,
		   unsigned max)
{
	struct program program = {.out = out, .max = max};

	for (unsigned i = 0; i < num && program.num < max; i++) {
		if (rules[i].mask.ip_version || !rules[i].mask.l4) {
			add_rule(&program, &rules[i], rules[i].value.ip_version);
		} else {
			/* Ports alone: behind either kind. */
			add_rule(&program, &rules[i], 4);
			add_rule(&program, &rules[i], 6);
		}
	}
	emit(&program, BPF_RET | BPF_K, 0);
	return program.num > max ? -E2BIG : (int)program.num;
}
