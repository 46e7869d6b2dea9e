/* SPDX-License-Identifier: MIT */
#include "frame.h"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <string.h>

const struct fields frame_udp4 = {
	.dst_mac = {0x02, 0x77, 0, 0, 0, 1},
	.src_mac = {0x02, 0x77, 0, 0, 0, 2},
	.ether_type = ETHERTYPE_IP,
	.proto = IPPROTO_UDP,
	.tos = 0x28,
	.ttl = 33,
	.flags = 2,
	.src_ip = {10, 77, 0, 2},
	.dst_ip = {10, 77, 0, 1},
	.src_port = 4000,
	.dst_port = 5000,
	.payload = 64,
};

const struct fields frame_udp6 = {
	.dst_mac = {0x02, 0x77, 0, 0, 0, 1},
	.src_mac = {0x02, 0x77, 0, 0, 0, 2},
	.ether_type = ETHERTYPE_IPV6,
	.proto = IPPROTO_UDP,
	.tos = 0x28,
	.ttl = 33,
	.flow_label = 0x81235,
	.src_ip = {0xfd, 0x77, [15] = 2},
	.dst_ip = {0xfd, 0x77, [15] = 1},
	.src_port = 4000,
	.dst_port = 5000,
	.payload = 64,
};

/* ---- frames ---- */

static uint8_t *put16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
	return at + 2;
}

static uint8_t *put32(uint8_t *at, uint32_t value)
{
	return put16(put16(at, (uint16_t)(value >> 16)), (uint16_t)value);
}

static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t len)
{
	memcpy(at, bytes, len);
	return at + len;
}

static uint16_t checksum(const uint8_t *bytes, size_t len)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < len; i += 2)
		sum += (uint32_t)(bytes[i] << 8 | bytes[i + 1]);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static uint8_t *put_ipv4(uint8_t *at, const struct fields *fields, size_t payload)
{
	size_t len = 20 + (size_t)fields->options * 4;
	uint8_t *begin = at;

	*at++ = (uint8_t)(0x40 | len / 4);
	*at++ = fields->tos;
	at = put16(at, (uint16_t)(len + payload));
	at = put16(at, 1);
	at = put16(at, (uint16_t)((fields->flags & 2 ? 0x4000 : 0) |
				  (fields->flags & 4 ? 0x2000 : 0) | fields->fragment_offset));
	*at++ = fields->ttl;
	*at++ = fields->proto;
	at = put16(at, 0);
	at = put_bytes(at, fields->src_ip, 4);
	at = put_bytes(at, fields->dst_ip, 4);
	memset(at, 1, (size_t)fields->options * 4); /* no operation */
	put16(begin + 10, checksum(begin, len));
	return begin + len;
}

static uint8_t *put_ipv6(uint8_t *at, const struct fields *fields, size_t payload)
{
	at = put32(at, 6u << 28 | (uint32_t)fields->tos << 20 | fields->flow_label);
	at = put16(at, (uint16_t)payload);
	*at++ = fields->proto;
	*at++ = fields->ttl;
	at = put_bytes(at, fields->src_ip, 16);
	return put_bytes(at, fields->dst_ip, 16);
}

/* The same eight bytes for UDP, TCP and all others: ports first. */
static uint8_t *put_udp(uint8_t *at, const struct fields *fields)
{
	at = put16(at, fields->src_port);
	at = put16(at, fields->dst_port);
	at = put16(at, (uint16_t)(8 + fields->payload));
	return put16(at, 0);
}

size_t frame_build(const struct fields *fields, uint8_t out[FRAME_MAX])
{
	uint8_t *at = out;

	at = put_bytes(at, fields->dst_mac, 6);
	at = put_bytes(at, fields->src_mac, 6);
	if (fields->is_tagged)
		at = put16(put16(at, ETHERTYPE_VLAN), fields->tci);
	at = put16(at, fields->ether_type);
	if (fields->ether_type == ETHERTYPE_IP)
		at = put_ipv4(at, fields, 8 + fields->payload);
	else if (fields->ether_type == ETHERTYPE_IPV6)
		at = put_ipv6(at, fields, 8 + fields->payload);
	at = put_udp(at, fields);
	for (size_t i = 0; i < fields->payload; i++)
		at[i] = (uint8_t)(i * 7 + fields->sequence);
	if (fields->payload >= 4)
		put32(at, fields->sequence);
	return (size_t)(at - out) + fields->payload;
}

uint32_t frame_sequence(const uint8_t *frame)
{
	size_t at = frame[12] == 8 ? 14 + 20 + 8 : 14 + 40 + 8;

	return (uint32_t)frame[at] << 24 | (uint32_t)frame[at + 1] << 16 |
	       (uint32_t)frame[at + 2] << 8 | frame[at + 3];
}

void fields_flip(struct fields *fields, enum field field, bool highest)
{
	const uint8_t bit = highest ? 0x80 : 1;
	const int ip_len = fields->ether_type == ETHERTYPE_IPV6 ? 16 : 4;

	switch (field) {
	case F_DST_MAC:
		fields->dst_mac[highest ? 0 : 5] ^= bit;
		break;
	case F_SRC_MAC:
		fields->src_mac[highest ? 0 : 5] ^= bit;
		break;
	case F_ETHER_TYPE:
		fields->ether_type ^= highest ? 0x4000 : 1;
		break;
	case F_TCI:
		fields->tci ^= highest ? 0x8000 : 1;
		break;
	case F_SRC_IP:
		fields->src_ip[highest ? 0 : ip_len - 1] ^= bit;
		break;
	case F_DST_IP:
		fields->dst_ip[highest ? 0 : ip_len - 1] ^= bit;
		break;
	case F_PROTO:
		fields->proto ^= bit;
		break;
	case F_TOS:
		fields->tos ^= bit;
		break;
	case F_TTL:
		fields->ttl ^= bit;
		break;
	case F_FLAGS:
		fields->flags ^= highest ? 4 : 2;
		break;
	case F_FLOW_LABEL:
		fields->flow_label ^= highest ? 0x80000 : 1;
		break;
	case F_SRC_PORT:
		fields->src_port ^= highest ? 0x8000 : 1;
		break;
	case F_DST_PORT:
		fields->dst_port ^= highest ? 0x8000 : 1;
		break;
	case NUM_FIELDS:
		break;
	}
}

/* ---- rules ---- */

void rule_add(struct rule *rule, const void *spec, size_t size)
{
	memcpy((uint8_t *)rule + rule->attr.size, spec, size);
	rule->attr.size = (uint16_t)(rule->attr.size + size);
	rule->attr.num_of_specs++;
}

static void set_mask(void *mask, size_t len, unsigned wanted, enum field field, enum mask kind)
{
	if (!(wanted & 1u << field))
		return;
	memset(mask, 0xff, len);
	if (kind == MASK_HIGH)
		((uint8_t *)mask)[len - 1] = 0xfe;
}

static void add_eth(struct rule *rule, const struct fields *fields, unsigned wanted, enum mask kind)
{
	struct ibv_flow_spec_eth spec = {
		.type = IBV_FLOW_SPEC_ETH,
		.size = sizeof(spec),
		.val.ether_type = htons(fields->ether_type),
		.val.vlan_tag = htons(fields->tci),
	};

	memcpy(spec.val.dst_mac, fields->dst_mac, 6);
	memcpy(spec.val.src_mac, fields->src_mac, 6);
	set_mask(spec.mask.dst_mac, 6, wanted, F_DST_MAC, kind);
	set_mask(spec.mask.src_mac, 6, wanted, F_SRC_MAC, kind);
	set_mask(&spec.mask.ether_type, 2, wanted, F_ETHER_TYPE, kind);
	set_mask(&spec.mask.vlan_tag, 2, wanted, F_TCI, kind);
	rule_add(rule, &spec, sizeof(spec));
}

static void add_ipv4(struct rule *rule, const struct fields *fields, unsigned wanted,
		     enum mask kind)
{
	struct ibv_flow_spec_ipv4 spec = {.type = IBV_FLOW_SPEC_IPV4, .size = sizeof(spec)};

	memcpy(&spec.val.src_ip, fields->src_ip, 4);
	memcpy(&spec.val.dst_ip, fields->dst_ip, 4);
	set_mask(&spec.mask.src_ip, 4, wanted, F_SRC_IP, kind);
	set_mask(&spec.mask.dst_ip, 4, wanted, F_DST_IP, kind);
	rule_add(rule, &spec, sizeof(spec));
}

static void add_ipv4_ext(struct rule *rule, const struct fields *fields, unsigned wanted,
			 enum mask kind)
{
	struct ibv_flow_spec_ipv4_ext spec = {
		.type = IBV_FLOW_SPEC_IPV4_EXT,
		.size = sizeof(spec),
		.val.proto = fields->proto,
		.val.tos = fields->tos,
		.val.ttl = fields->ttl,
		.val.flags = fields->flags,
	};

	memcpy(&spec.val.src_ip, fields->src_ip, 4);
	memcpy(&spec.val.dst_ip, fields->dst_ip, 4);
	set_mask(&spec.mask.src_ip, 4, wanted, F_SRC_IP, kind);
	set_mask(&spec.mask.dst_ip, 4, wanted, F_DST_IP, kind);
	set_mask(&spec.mask.proto, 1, wanted, F_PROTO, kind);
	set_mask(&spec.mask.tos, 1, wanted, F_TOS, kind);
	set_mask(&spec.mask.ttl, 1, wanted, F_TTL, kind);
	if (wanted & 1u << F_FLAGS)
		spec.mask.flags = kind == MASK_ALL ? 6 : 4;
	rule_add(rule, &spec, sizeof(spec));
}

static void add_ipv6(struct rule *rule, const struct fields *fields, unsigned wanted,
		     enum mask kind)
{
	struct ibv_flow_spec_ipv6 spec = {
		.type = IBV_FLOW_SPEC_IPV6,
		.size = sizeof(spec),
		.val.flow_label = htonl(fields->flow_label),
		.val.next_hdr = fields->proto,
		.val.traffic_class = fields->tos,
		.val.hop_limit = fields->ttl,
	};

	memcpy(spec.val.src_ip, fields->src_ip, 16);
	memcpy(spec.val.dst_ip, fields->dst_ip, 16);
	set_mask(spec.mask.src_ip, 16, wanted, F_SRC_IP, kind);
	set_mask(spec.mask.dst_ip, 16, wanted, F_DST_IP, kind);
	set_mask(&spec.mask.next_hdr, 1, wanted, F_PROTO, kind);
	set_mask(&spec.mask.traffic_class, 1, wanted, F_TOS, kind);
	set_mask(&spec.mask.hop_limit, 1, wanted, F_TTL, kind);
	if (wanted & 1u << F_FLOW_LABEL)
		spec.mask.flow_label = htonl(kind == MASK_ALL ? 0xfffff : 0xffffe);
	rule_add(rule, &spec, sizeof(spec));
}

static void add_ports(struct rule *rule, const struct fields *fields, unsigned wanted,
		      enum mask kind)
{
	struct ibv_flow_spec_tcp_udp spec = {
		.type = fields->proto == IPPROTO_TCP ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP,
		.size = sizeof(spec),
		.val.src_port = htons(fields->src_port),
		.val.dst_port = htons(fields->dst_port),
	};

	set_mask(&spec.mask.src_port, 2, wanted, F_SRC_PORT, kind);
	set_mask(&spec.mask.dst_port, 2, wanted, F_DST_PORT, kind);
	rule_add(rule, &spec, sizeof(spec));
}

void rule_build(struct rule *rule, const struct fields *fields, unsigned wanted, enum mask mask)
{
	const unsigned ext = 1u << F_PROTO | 1u << F_TOS | 1u << F_TTL | 1u << F_FLAGS;
	const unsigned ip = 1u << F_SRC_IP | 1u << F_DST_IP | 1u << F_FLOW_LABEL;
	const unsigned ports = 1u << F_SRC_PORT | 1u << F_DST_PORT;

	*rule = (struct rule){.attr = {.size = sizeof(rule->attr), .port = 1}};
	add_eth(rule, fields, wanted, mask);
	if ((wanted & (ip | ext | ports)) && fields->ether_type == ETHERTYPE_IPV6)
		add_ipv6(rule, fields, wanted, mask);
	else if (wanted & ext)
		add_ipv4_ext(rule, fields, wanted, mask);
	else if (wanted & (ip | ports))
		add_ipv4(rule, fields, wanted, mask);
	if (wanted & ports)
		add_ports(rule, fields, wanted, mask);
}
