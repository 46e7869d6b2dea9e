/* SPDX-License-Identifier: MIT */
/* A rule as the attributes of a verbs flow. */
#ifndef HASHPIPE_IBVERBS_RULE_H
#define HASHPIPE_IBVERBS_RULE_H

#include <hashpipe_ibverbs.h>
#include <stdbool.h>

/* Attributes with their specifications right behind them, as verbs want them. */
struct rule_flow {
	struct ibv_flow_attr attr;
	uint8_t specs[sizeof(struct ibv_flow_spec_eth) + sizeof(struct ibv_flow_spec_ipv6) +
		      sizeof(struct ibv_flow_spec_tcp_udp)];
};

/* The arguments of hashpipe_ibv_flow. */
struct rule_arguments {
	enum ibv_flow_spec_type flow_type;
	const uint8_t *dst_mac, *src_mac;
	uint16_t ether_type, vlan_tag;
	uint32_t src_ip, dst_ip;
	uint16_t src_port, dst_port;
};

bool rule_is_known_type(enum ibv_flow_spec_type flow_type);
/* Nothing is to be matched: the call asks for the rule's removal. */
bool rule_is_removal(const struct rule_arguments *arguments);
/* @own_mac: of the interface. */
void rule_from_arguments(const struct rule_arguments *arguments, const uint8_t own_mac[6],
			 struct hashpipe_ibv_rule *out);

/*
 * A copy of @rule that is right and has no meaningless differences: what is not matched is 0. The
 * MAC of a multicast group is set. 0 or -EINVAL.
 */
int rule_normalize(const struct hashpipe_ibv_rule *rule, struct hashpipe_ibv_rule *out);
/* Does it match one multicast group? */
bool rule_has_group(const struct hashpipe_ibv_rule *rule);
/* @rule is normal. */
void rule_to_flow(const struct hashpipe_ibv_rule *rule, uint8_t port, struct rule_flow *out);

#endif
