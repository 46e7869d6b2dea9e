/* SPDX-License-Identifier: MIT */
/*
 * Flow rules and a frame: the match function, classic BPF and eBPF say the same. The input: the
 * number of rules; for each a number of specifications, for each of them its type and its bytes;
 * the rest is the frame.
 */
#include "../unit/bpf_machine.h"
#include "fuzz.h"

#define MAX_RULES 12
#define MAX_SPECS 4
#define MAX_CODE  4096

struct rule_room {
	struct ibv_flow_attr attr;
	uint8_t specs[MAX_SPECS * sizeof(struct ibv_flow_spec)];
};

static void take(struct input *input, void *to, size_t len)
{
	size_t have = len < input->left ? len : input->left;

	memcpy(to, input->at, have);
	input->at += have;
	input->left -= have;
}

/* The last one is wrong. */
static const struct {
	enum ibv_flow_spec_type type;
	uint16_t size;
} kinds[] = {
	{IBV_FLOW_SPEC_ETH, sizeof(struct ibv_flow_spec_eth)},
	{IBV_FLOW_SPEC_IPV4, sizeof(struct ibv_flow_spec_ipv4)},
	{IBV_FLOW_SPEC_IPV4_EXT, sizeof(struct ibv_flow_spec_ipv4_ext)},
	{IBV_FLOW_SPEC_IPV6, sizeof(struct ibv_flow_spec_ipv6)},
	{IBV_FLOW_SPEC_TCP, sizeof(struct ibv_flow_spec_tcp_udp)},
	{IBV_FLOW_SPEC_UDP, sizeof(struct ibv_flow_spec_tcp_udp)},
	{IBV_FLOW_SPEC_ESP, sizeof(struct ibv_flow_spec_esp)},
};

static void take_rule(struct input *input, struct rule_room *room)
{
	uint8_t head = take_byte(input);
	uint8_t *at = room->specs;

	memset(room, 0, sizeof(*room));
	room->attr.port = 1;
	room->attr.num_of_specs = head % (MAX_SPECS + 1);
	room->attr.type = head & 0x40 ? IBV_FLOW_ATTR_SNIFFER : IBV_FLOW_ATTR_NORMAL;
	room->attr.flags = head & 0x80 ? IBV_FLOW_ATTR_FLAGS_DONT_TRAP : 0;
	for (unsigned i = 0; i < room->attr.num_of_specs; i++) {
		struct ibv_flow_spec spec = {0};
		unsigned kind = take_byte(input) % (sizeof(kinds) / sizeof(*kinds));

		take(input, &spec, kinds[kind].size);
		spec.hdr.type = kinds[kind].type;
		/* Now and then it lies about its size. */
		spec.hdr.size = (uint16_t)(kinds[kind].size + (spec.hdr.size == 0xffff));
		memcpy(at, &spec, kinds[kind].size);
		at += kinds[kind].size;
	}
}

static void compare(const struct raw_rule *rules, unsigned num, const struct machine_frame *frame)
{
	static struct sock_filter code[MAX_CODE];
	const struct raw_tag none = {0};
	struct filter_program program;
	union raw_key key, on_wire;
	bool expected;
	int len;

	key_parse(&key, frame->bytes, frame->len, &frame->tag);
	key_parse(&on_wire, frame->on_wire, frame->wire_len, &none);
	CHECK(!memcmp(&key, &on_wire, sizeof(key)));
	expected = rules_match(rules, num, &key);
	len = filter_classic(rules, num, code, MAX_CODE);
	CHECK(len > 0);
	CHECK(machine_run_classic(code, len, frame) == expected);
	for (enum filter_place place = FILTER_XDP; place <= FILTER_SOCKET; place++) {
		CHECK(!filter_ebpf(place, rules, num, &program));
		CHECK(machine_run_ebpf(place, &program, frame) == expected);
		filter_free(&program);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	unsigned wanted = take_byte(&input) % (MAX_RULES + 1), num = 0;
	struct raw_rule rules[MAX_RULES];
	struct machine_frame frame;

	for (unsigned i = 0; i < wanted; i++) {
		struct rule_room room;

		take_rule(&input, &room);
		if (!rule_from_attr(&room.attr, &rules[num]))
			num++;
	}
	if (input.left < 14) /* no Ethernet header: no frame */
		return 0;
	machine_set_frame(&frame, input.at,
			  input.left < sizeof(frame.bytes) ? input.left : sizeof(frame.bytes));
	compare(rules, num, &frame);
	return 0;
}
