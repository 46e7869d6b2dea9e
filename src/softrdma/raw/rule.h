/* SPDX-License-Identifier: MIT */
/*
 * Flow rules as values and masks over a packet's headers: specifications in, a rule out; a packet
 * in, its key out. No descriptor, no allocation.
 *
 * A rule matches a packet if the packet's key, masked, is the rule's value. So whatever can compare
 * words can match: this code, classic BPF and eBPF (filter.h).
 */
#ifndef SOFTRDMA_RAW_RULE_H
#define SOFTRDMA_RAW_RULE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_WORDS 8

/* The bits of struct ibv_flow_ipv4_ext_filter.flags. */
#define KEY_DONT_FRAGMENT  0x2
#define KEY_MORE_FRAGMENTS 0x4

/* What rules can ask of a packet; fields in network order, 0 where the packet has none. */
union raw_key {
	struct {
		uint8_t dst_mac[6];
		uint8_t src_mac[6];
		uint16_t ether_type; /* behind a VLAN tag, if there is one */
		uint16_t vlan_tci;
		uint8_t is_tagged;
		uint8_t ip_version; /* 4 or 6 */
		uint8_t ip_proto;
		uint8_t l4; /* TCP or UDP, if the ports are there: not in a later fragment */
		uint8_t tos;
		uint8_t ttl;
		uint8_t ip_flags;
		uint8_t unused;
		uint16_t src_port;
		uint16_t dst_port;
		uint32_t flow_label;
		uint8_t src_ip[16]; /* IPv4: the first four */
		uint8_t dst_ip[16];
	};
	uint64_t words[KEY_WORDS];
};

struct raw_rule {
	union raw_key value;
	union raw_key mask;
	bool copies; /* the kernel keeps its packets: SNIFFER, or NORMAL with DONT_TRAP */
};

/*
 * The rule that @attr and the specifications behind it describe. 0; -EINVAL: they contradict each
 * other or their sizes are wrong; -EOPNOTSUPP: not offered. Specifications may be unaligned.
 */
int rule_from_attr(const struct ibv_flow_attr *attr, struct raw_rule *rule);

/* A VLAN tag that has been taken out of the frame. */
struct raw_tag {
	bool is_there;
	uint16_t tpid; /* both in host order */
	uint16_t tci;
};

/* The key of a frame that begins with these @held bytes; @tag if it was taken out of it. */
void key_parse(union raw_key *key, const void *data, size_t held, const struct raw_tag *tag);

static inline bool rule_matches(const struct raw_rule *rule, const union raw_key *key)
{
	uint64_t differs = 0;

	for (unsigned i = 0; i < KEY_WORDS; i++)
		differs |= (key->words[i] & rule->mask.words[i]) ^ rule->value.words[i];
	return !differs;
}

/* Whether any of @num rules matches. */
bool rules_match(const struct raw_rule *rules, unsigned num, const union raw_key *key);

#endif
