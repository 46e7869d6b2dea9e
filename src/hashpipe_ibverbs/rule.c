/* SPDX-License-Identifier: MIT */
/* A rule as the attributes of a verbs flow: numbers in, numbers out. */
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "rule.h"

_Static_assert(offsetof(struct rule_flow, specs) == sizeof(struct ibv_flow_attr),
	       "specifications follow the attributes");

#define VLAN_ID_BITS 0x0fff
#define ALL_MATCHES  (HASHPIPE_IBV_DST_PORT * 2 - 1)
#define IP_MATCHES   (HASHPIPE_IBV_SRC_IP | HASHPIPE_IBV_DST_IP)
#define PORT_MATCHES (HASHPIPE_IBV_SRC_PORT | HASHPIPE_IBV_DST_PORT)

/* ---- from the arguments of hashpipe_ibv_flow ---- */

bool rule_is_known_type(enum ibv_flow_spec_type flow_type)
{
	switch (flow_type) {
	case IBV_FLOW_SPEC_ETH:
	case IBV_FLOW_SPEC_IPV4:
	case IBV_FLOW_SPEC_TCP:
	case IBV_FLOW_SPEC_UDP:
		return true;
	default:
		return false;
	}
}

bool rule_is_removal(const struct rule_arguments *arguments)
{
	return !arguments->dst_mac && !arguments->src_mac && !arguments->ether_type &&
	       !arguments->vlan_tag && !arguments->src_ip && !arguments->dst_ip &&
	       !arguments->src_port && !arguments->dst_port;
}

static void take_ip(struct hashpipe_ibv_rule *rule, uint8_t to[16], uint32_t ip,
		    enum hashpipe_ibv_match match)
{
	uint32_t wire = htobe32(ip);

	if (!ip)
		return;
	memcpy(to, &wire, sizeof(wire));
	rule->match |= match;
}

static void take_number(struct hashpipe_ibv_rule *rule, uint16_t *to, uint16_t number,
			enum hashpipe_ibv_match match)
{
	*to = number;
	if (number)
		rule->match |= match;
}

void rule_from_arguments(const struct rule_arguments *arguments, const uint8_t own_mac[6],
			 struct hashpipe_ibv_rule *out)
{
	enum ibv_flow_spec_type type = arguments->flow_type;

	*out = (struct hashpipe_ibv_rule){
		.size = sizeof(*out),
		.match = HASHPIPE_IBV_DST_MAC,
		.ip_version = type == IBV_FLOW_SPEC_ETH ? 0 : 4,
		.ip_protocol = type == IBV_FLOW_SPEC_TCP   ? IPPROTO_TCP
			       : type == IBV_FLOW_SPEC_UDP ? IPPROTO_UDP
							   : 0,
	};
	memcpy(out->dst_mac, arguments->dst_mac ? arguments->dst_mac : own_mac, 6);
	if (arguments->src_mac) {
		memcpy(out->src_mac, arguments->src_mac, 6);
		out->match |= HASHPIPE_IBV_SRC_MAC;
	}
	take_number(out, &out->ether_type, arguments->ether_type, HASHPIPE_IBV_ETHER_TYPE);
	take_number(out, &out->vlan, arguments->vlan_tag, HASHPIPE_IBV_VLAN_TAG);
	if (!out->ip_version)
		return;
	take_ip(out, out->src_ip, arguments->src_ip, HASHPIPE_IBV_SRC_IP);
	take_ip(out, out->dst_ip, arguments->dst_ip, HASHPIPE_IBV_DST_IP);
	if (!out->ip_protocol)
		return;
	take_number(out, &out->src_port, arguments->src_port, HASHPIPE_IBV_SRC_PORT);
	take_number(out, &out->dst_port, arguments->dst_port, HASHPIPE_IBV_DST_PORT);
}

/* ---- the normal form ---- */

static unsigned ip_bits(const struct hashpipe_ibv_rule *rule)
{
	return rule->ip_version == 6 ? 128 : 32;
}

static bool has_fields_in_place(const struct hashpipe_ibv_rule *rule)
{
	if (rule->size != sizeof(*rule) || rule->flags & ~(uint32_t)HASHPIPE_IBV_COPY ||
	    rule->match & ~(uint32_t)ALL_MATCHES)
		return false;
	if (rule->ip_version != 0 && rule->ip_version != 4 && rule->ip_version != 6)
		return false;
	if (!rule->ip_version && (rule->ip_protocol || rule->match & IP_MATCHES))
		return false;
	if (rule->ip_protocol != 0 && rule->ip_protocol != IPPROTO_TCP &&
	    rule->ip_protocol != IPPROTO_UDP)
		return false;
	if (!rule->ip_protocol && rule->match & PORT_MATCHES)
		return false;
	return rule->src_ip_bits <= ip_bits(rule) && rule->dst_ip_bits <= ip_bits(rule);
}

/* The first @bits of 16 bytes. */
static void mask_from_bits(unsigned bits, uint8_t mask[16])
{
	memset(mask, 0, 16);
	memset(mask, 0xff, bits / 8);
	if (bits % 8)
		mask[bits / 8] = (uint8_t)(0xff << (8 - bits % 8));
}

static void copy_ip(const struct hashpipe_ibv_rule *rule, const uint8_t from[16], uint8_t bits,
		    uint8_t to[16], uint8_t *to_bits)
{
	uint8_t mask[16];

	*to_bits = bits ? bits : (uint8_t)ip_bits(rule);
	mask_from_bits(*to_bits, mask);
	for (int i = 0; i < 16; i++)
		to[i] = from[i] & mask[i];
}

bool rule_has_group(const struct hashpipe_ibv_rule *rule)
{
	if (!(rule->match & HASHPIPE_IBV_DST_IP) || rule->dst_ip_bits != ip_bits(rule))
		return false;
	return rule->ip_version == 6 ? rule->dst_ip[0] == 0xff : (rule->dst_ip[0] & 0xf0) == 0xe0;
}

/* A group has its MAC: RFC 1112, RFC 2464. */
static void set_group_mac(struct hashpipe_ibv_rule *rule)
{
	const uint8_t *ip = rule->dst_ip;

	rule->match |= HASHPIPE_IBV_DST_MAC;
	if (rule->ip_version == 6) {
		const uint8_t mac[6] = {0x33, 0x33, ip[12], ip[13], ip[14], ip[15]};

		memcpy(rule->dst_mac, mac, sizeof(mac));
	} else {
		const uint8_t mac[6] = {0x01, 0x00, 0x5e, ip[1] & 0x7f, ip[2], ip[3]};

		memcpy(rule->dst_mac, mac, sizeof(mac));
	}
}

int rule_normalize(const struct hashpipe_ibv_rule *rule, struct hashpipe_ibv_rule *out)
{
	uint32_t match = rule->match;

	if (!has_fields_in_place(rule))
		return -EINVAL;
	*out = (struct hashpipe_ibv_rule){
		.size = sizeof(*out),
		.flags = rule->flags,
		.match = match,
		.ip_version = rule->ip_version,
		.ip_protocol = rule->ip_protocol,
		.ether_type = match & HASHPIPE_IBV_ETHER_TYPE ? rule->ether_type : 0,
		.src_port = match & HASHPIPE_IBV_SRC_PORT ? rule->src_port : 0,
		.dst_port = match & HASHPIPE_IBV_DST_PORT ? rule->dst_port : 0,
	};
	if (match & HASHPIPE_IBV_VLAN_TAG)
		out->vlan = rule->vlan;
	else if (match & HASHPIPE_IBV_VLAN_ID)
		out->vlan = rule->vlan & VLAN_ID_BITS;
	if (match & HASHPIPE_IBV_DST_MAC)
		memcpy(out->dst_mac, rule->dst_mac, 6);
	if (match & HASHPIPE_IBV_SRC_MAC)
		memcpy(out->src_mac, rule->src_mac, 6);
	if (match & HASHPIPE_IBV_SRC_IP)
		copy_ip(rule, rule->src_ip, rule->src_ip_bits, out->src_ip, &out->src_ip_bits);
	if (match & HASHPIPE_IBV_DST_IP)
		copy_ip(rule, rule->dst_ip, rule->dst_ip_bits, out->dst_ip, &out->dst_ip_bits);
	if (rule_has_group(out))
		set_group_mac(out);
	return 0;
}

/* ---- the flow ---- */

static void add_spec(struct rule_flow *flow, const void *spec, uint16_t size)
{
	memcpy((uint8_t *)flow + flow->attr.size, spec, size);
	flow->attr.size += size;
	flow->attr.num_of_specs++;
}

static void add_eth(const struct hashpipe_ibv_rule *rule, struct rule_flow *flow)
{
	struct ibv_flow_spec_eth spec;

	memset(&spec, 0, sizeof(spec));
	spec.type = IBV_FLOW_SPEC_ETH;
	spec.size = sizeof(spec);
	memcpy(spec.val.dst_mac, rule->dst_mac, 6);
	memcpy(spec.val.src_mac, rule->src_mac, 6);
	spec.val.ether_type = htobe16(rule->ether_type);
	spec.val.vlan_tag = htobe16(rule->vlan);
	if (rule->match & HASHPIPE_IBV_DST_MAC)
		memset(spec.mask.dst_mac, 0xff, 6);
	if (rule->match & HASHPIPE_IBV_SRC_MAC)
		memset(spec.mask.src_mac, 0xff, 6);
	if (rule->match & HASHPIPE_IBV_ETHER_TYPE)
		spec.mask.ether_type = 0xffff;
	if (rule->match & HASHPIPE_IBV_VLAN_TAG)
		spec.mask.vlan_tag = 0xffff;
	else if (rule->match & HASHPIPE_IBV_VLAN_ID)
		spec.mask.vlan_tag = htobe16(VLAN_ID_BITS);
	add_spec(flow, &spec, sizeof(spec));
}

static void add_ipv4(const struct hashpipe_ibv_rule *rule, struct rule_flow *flow)
{
	struct ibv_flow_spec_ipv4 spec;
	uint8_t mask[16];

	memset(&spec, 0, sizeof(spec));
	spec.type = IBV_FLOW_SPEC_IPV4;
	spec.size = sizeof(spec);
	memcpy(&spec.val.src_ip, rule->src_ip, 4);
	memcpy(&spec.val.dst_ip, rule->dst_ip, 4);
	mask_from_bits(rule->src_ip_bits, mask);
	memcpy(&spec.mask.src_ip, mask, 4);
	mask_from_bits(rule->dst_ip_bits, mask);
	memcpy(&spec.mask.dst_ip, mask, 4);
	add_spec(flow, &spec, sizeof(spec));
}

static void add_ipv6(const struct hashpipe_ibv_rule *rule, struct rule_flow *flow)
{
	struct ibv_flow_spec_ipv6 spec;

	memset(&spec, 0, sizeof(spec));
	spec.type = IBV_FLOW_SPEC_IPV6;
	spec.size = sizeof(spec);
	memcpy(spec.val.src_ip, rule->src_ip, 16);
	memcpy(spec.val.dst_ip, rule->dst_ip, 16);
	mask_from_bits(rule->src_ip_bits, spec.mask.src_ip);
	mask_from_bits(rule->dst_ip_bits, spec.mask.dst_ip);
	add_spec(flow, &spec, sizeof(spec));
}

static void add_ports(const struct hashpipe_ibv_rule *rule, struct rule_flow *flow)
{
	struct ibv_flow_spec_tcp_udp spec;

	memset(&spec, 0, sizeof(spec));
	spec.type = rule->ip_protocol == IPPROTO_TCP ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP;
	spec.size = sizeof(spec);
	spec.val.src_port = htobe16(rule->src_port);
	spec.val.dst_port = htobe16(rule->dst_port);
	if (rule->match & HASHPIPE_IBV_SRC_PORT)
		spec.mask.src_port = 0xffff;
	if (rule->match & HASHPIPE_IBV_DST_PORT)
		spec.mask.dst_port = 0xffff;
	add_spec(flow, &spec, sizeof(spec));
}

void rule_to_flow(const struct hashpipe_ibv_rule *rule, uint8_t port, struct rule_flow *out)
{
	memset(out, 0, sizeof(*out));
	out->attr.type =
		rule->flags & HASHPIPE_IBV_COPY ? IBV_FLOW_ATTR_SNIFFER : IBV_FLOW_ATTR_NORMAL;
	out->attr.size = sizeof(out->attr);
	out->attr.port = port;
	add_eth(rule, out);
	if (rule->ip_version == 4)
		add_ipv4(rule, out);
	else if (rule->ip_version == 6)
		add_ipv6(rule, out);
	if (rule->ip_protocol)
		add_ports(rule, out);
}
