/* SPDX-License-Identifier: MIT */
/* Flow specifications to rules, packets to keys. */
#include "rule.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <string.h>

static_assert(sizeof(union raw_key) == KEY_WORDS * sizeof(uint64_t), "no padding");
static_assert(offsetof(union raw_key, dst_ip) == offsetof(union raw_key, src_ip) + 16,
	      "as in an IPv6 header");

#define IPV4_MIN_LEN   20
#define IPV6_LEN       40
#define PORTS_LEN      4
#define TAG_LEN        4
#define ETHERTYPE_QINQ 0x88a8

/* ---- specifications ---- */

static void require_bytes(struct raw_rule *rule, size_t offset, const void *value, const void *mask,
			  size_t len)
{
	uint8_t *to = (uint8_t *)&rule->value + offset, *to_mask = (uint8_t *)&rule->mask + offset;

	for (size_t i = 0; i < len; i++) {
		to_mask[i] = ((const uint8_t *)mask)[i];
		to[i] = ((const uint8_t *)value)[i] & to_mask[i];
	}
}

#define REQUIRE(rule, field, spec, spec_field)                                                     \
	require_bytes(rule, offsetof(union raw_key, field), &(spec)->val.spec_field,               \
		      &(spec)->mask.spec_field, sizeof((spec)->val.spec_field))

/* A byte that must have this value; false if the rule has asked for another. */
static bool require_exactly(struct raw_rule *rule, size_t offset, uint8_t value)
{
	uint8_t *to = (uint8_t *)&rule->value + offset, *mask = (uint8_t *)&rule->mask + offset;

	if ((value & *mask) != *to)
		return false;
	*to = value;
	*mask = 0xff;
	return true;
}

static int add_eth(struct raw_rule *rule, const struct ibv_flow_spec_eth *spec)
{
	REQUIRE(rule, dst_mac, spec, dst_mac);
	REQUIRE(rule, src_mac, spec, src_mac);
	REQUIRE(rule, ether_type, spec, ether_type);
	REQUIRE(rule, vlan_tci, spec, vlan_tag);
	if (spec->mask.vlan_tag)
		require_exactly(rule, offsetof(union raw_key, is_tagged), 1);
	return 0;
}

static int add_ip_version(struct raw_rule *rule, uint8_t version)
{
	if (rule->mask.ip_version)
		return -EINVAL; /* a second one */
	require_exactly(rule, offsetof(union raw_key, ip_version), version);
	return 0;
}

static int add_ipv4(struct raw_rule *rule, const struct ibv_flow_spec_ipv4 *spec)
{
	REQUIRE(rule, src_ip, spec, src_ip);
	REQUIRE(rule, dst_ip, spec, dst_ip);
	return add_ip_version(rule, 4);
}

static int add_ipv4_ext(struct raw_rule *rule, const struct ibv_flow_spec_ipv4_ext *spec)
{
	if (spec->mask.flags & ~(KEY_DONT_FRAGMENT | KEY_MORE_FRAGMENTS))
		return -EOPNOTSUPP;
	REQUIRE(rule, src_ip, spec, src_ip);
	REQUIRE(rule, dst_ip, spec, dst_ip);
	REQUIRE(rule, ip_proto, spec, proto);
	REQUIRE(rule, tos, spec, tos);
	REQUIRE(rule, ttl, spec, ttl);
	REQUIRE(rule, ip_flags, spec, flags);
	return add_ip_version(rule, 4);
}

static int add_ipv6(struct raw_rule *rule, const struct ibv_flow_spec_ipv6 *spec)
{
	REQUIRE(rule, src_ip, spec, src_ip);
	REQUIRE(rule, dst_ip, spec, dst_ip);
	REQUIRE(rule, flow_label, spec, flow_label);
	REQUIRE(rule, ip_proto, spec, next_hdr);
	REQUIRE(rule, tos, spec, traffic_class);
	REQUIRE(rule, ttl, spec, hop_limit);
	return add_ip_version(rule, 6);
}

static int add_ports(struct raw_rule *rule, const struct ibv_flow_spec_tcp_udp *spec, uint8_t proto)
{
	if (rule->mask.l4)
		return -EINVAL; /* a second one */
	REQUIRE(rule, src_port, spec, src_port);
	REQUIRE(rule, dst_port, spec, dst_port);
	require_exactly(rule, offsetof(union raw_key, l4), proto);
	return require_exactly(rule, offsetof(union raw_key, ip_proto), proto) ? 0 : -EINVAL;
}

static size_t size_of_spec(uint32_t type)
{
	switch (type) {
	case IBV_FLOW_SPEC_ETH:
		return sizeof(struct ibv_flow_spec_eth);
	case IBV_FLOW_SPEC_IPV4:
		return sizeof(struct ibv_flow_spec_ipv4);
	case IBV_FLOW_SPEC_IPV4_EXT:
		return sizeof(struct ibv_flow_spec_ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		return sizeof(struct ibv_flow_spec_ipv6);
	case IBV_FLOW_SPEC_TCP:
	case IBV_FLOW_SPEC_UDP:
		return sizeof(struct ibv_flow_spec_tcp_udp);
	default:
		return 0;
	}
}

static int add_spec(struct raw_rule *rule, const struct ibv_flow_spec *spec)
{
	switch (spec->hdr.type) {
	case IBV_FLOW_SPEC_ETH:
		return add_eth(rule, &spec->eth);
	case IBV_FLOW_SPEC_IPV4:
		return add_ipv4(rule, &spec->ipv4);
	case IBV_FLOW_SPEC_IPV4_EXT:
		return add_ipv4_ext(rule, &spec->ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		return add_ipv6(rule, &spec->ipv6);
	case IBV_FLOW_SPEC_TCP:
		return add_ports(rule, &spec->tcp_udp, IPPROTO_TCP);
	case IBV_FLOW_SPEC_UDP:
		return add_ports(rule, &spec->tcp_udp, IPPROTO_UDP);
	default:
		return -EOPNOTSUPP;
	}
}

/* Programs pack their specifications behind the attributes: they may be unaligned. */
static int add_specs(struct raw_rule *rule, const struct ibv_flow_attr *attr)
{
	const char *at = (const char *)(attr + 1);
	int layer = 0, error = 0;

	for (unsigned i = 0; i < attr->num_of_specs && !error; i++) {
		struct ibv_flow_spec spec = {0};
		size_t size;

		memcpy(&spec.hdr, at, sizeof(spec.hdr));
		size = size_of_spec(spec.hdr.type);
		if (!size)
			return -EOPNOTSUPP;
		/* Each layer once, from the outside in. */
		if (spec.hdr.size != size || (int)(spec.hdr.type >> 4) <= layer)
			return -EINVAL;
		layer = spec.hdr.type >> 4;
		memcpy(&spec, at, size);
		error = add_spec(rule, &spec);
		at += size;
	}
	return error;
}

static bool has_contradiction(const struct raw_rule *rule)
{
	uint16_t type = rule->value.ip_version == 4   ? htobe16(ETHERTYPE_IP)
			: rule->value.ip_version == 6 ? htobe16(ETHERTYPE_IPV6)
						      : rule->value.ether_type;

	return (type & rule->mask.ether_type) != rule->value.ether_type;
}

int rule_from_attr(const struct ibv_flow_attr *attr, struct raw_rule *rule)
{
	struct raw_rule made = {.copies = attr->type == IBV_FLOW_ATTR_SNIFFER ||
					  (attr->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP)};
	int error;

	if (attr->comp_mask || (attr->flags & ~(uint32_t)IBV_FLOW_ATTR_FLAGS_DONT_TRAP) ||
	    (attr->type != IBV_FLOW_ATTR_NORMAL && attr->type != IBV_FLOW_ATTR_SNIFFER))
		return -EOPNOTSUPP;
	/* A rule without a word would take the whole interface away from the kernel. */
	if (!attr->num_of_specs && attr->type == IBV_FLOW_ATTR_NORMAL)
		return -EINVAL;
	error = add_specs(&made, attr);
	if (!error && has_contradiction(&made))
		error = -EINVAL;
	if (!error)
		*rule = made;
	return error;
}

/* ---- packets ---- */

struct bytes {
	const uint8_t *at;
	size_t left;
};

static void skip(struct bytes *bytes, size_t len)
{
	bytes->at += len;
	bytes->left -= len;
}

static void parse_ports(union raw_key *key, const struct bytes *bytes)
{
	const uint8_t proto = key->ip_proto;

	if ((proto != IPPROTO_TCP && proto != IPPROTO_UDP) || bytes->left < PORTS_LEN)
		return;
	key->l4 = proto;
	memcpy(&key->src_port, bytes->at, PORTS_LEN);
}

static void parse_ipv4(union raw_key *key, struct bytes *bytes)
{
	const uint8_t *ip = bytes->at;
	size_t len;

	if (bytes->left < IPV4_MIN_LEN || ip[0] >> 4 != 4 || (ip[0] & 15) < 5)
		return;
	len = (size_t)(ip[0] & 15) * 4;
	key->ip_version = 4;
	key->tos = ip[1];
	key->ip_flags = (uint8_t)((ip[6] & 0x40 ? KEY_DONT_FRAGMENT : 0) |
				  (ip[6] & 0x20 ? KEY_MORE_FRAGMENTS : 0));
	key->ttl = ip[8];
	key->ip_proto = ip[9];
	memcpy(key->src_ip, ip + 12, 4);
	memcpy(key->dst_ip, ip + 16, 4);
	if ((ip[6] & 0x1f) || ip[7] || bytes->left < len)
		return;
	skip(bytes, len);
	parse_ports(key, bytes);
}

static void parse_ipv6(union raw_key *key, struct bytes *bytes)
{
	const uint8_t *ip = bytes->at;
	uint32_t first;

	if (bytes->left < IPV6_LEN || ip[0] >> 4 != 6)
		return;
	memcpy(&first, ip, sizeof(first));
	key->ip_version = 6;
	key->tos = (uint8_t)(be32toh(first) >> 20);
	key->flow_label = first & htobe32(0xfffff);
	key->ip_proto = ip[6];
	key->ttl = ip[7];
	memcpy(key->src_ip, ip + 8, 16);
	memcpy(key->dst_ip, ip + 24, 16);
	skip(bytes, IPV6_LEN);
	parse_ports(key, bytes);
}

/* The type behind a tag that is still in the frame. */
static void parse_tag(union raw_key *key, struct bytes *bytes)
{
	if ((key->ether_type != htobe16(ETHERTYPE_VLAN) &&
	     key->ether_type != htobe16(ETHERTYPE_QINQ)) ||
	    bytes->left < TAG_LEN)
		return;
	key->is_tagged = 1;
	memcpy(&key->vlan_tci, bytes->at, 2);
	memcpy(&key->ether_type, bytes->at + 2, 2);
	skip(bytes, TAG_LEN);
}

void key_parse(union raw_key *key, const void *data, size_t held, const struct raw_tag *tag)
{
	struct bytes bytes = {.at = data, .left = held};

	memset(key, 0, sizeof(*key));
	if (held < ETHER_HDR_LEN)
		return;
	memcpy(key, data, ETHER_HDR_LEN);
	skip(&bytes, ETHER_HDR_LEN);
	if (tag->is_there) {
		key->is_tagged = 1;
		key->vlan_tci = htobe16(tag->tci);
	} else {
		parse_tag(key, &bytes);
	}
	if (key->ether_type == htobe16(ETHERTYPE_IP))
		parse_ipv4(key, &bytes);
	else if (key->ether_type == htobe16(ETHERTYPE_IPV6))
		parse_ipv6(key, &bytes);
}

bool rules_match(const struct raw_rule *rules, unsigned num, const union raw_key *key)
{
	for (unsigned i = 0; i < num; i++)
		if (rule_matches(&rules[i], key))
			return true;
	return false;
}
