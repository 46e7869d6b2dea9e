/* SPDX-License-Identifier: MIT */
/* Ethernet frames by their fields, and flow rules about the same fields. */
#ifndef TESTS_PACKET_FRAME_H
#define TESTS_PACKET_FRAME_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAX 9018

/* What a frame says; numbers in host order. */
struct fields {
	uint8_t dst_mac[6], src_mac[6];
	bool is_tagged;
	uint16_t tci;
	uint16_t ether_type;
	uint8_t proto, tos, ttl;
	uint8_t flags; /* of IPv4: 2 do not fragment, 4 more fragments */
	uint16_t fragment_offset;
	uint8_t options; /* of IPv4, in words */
	uint8_t src_ip[16], dst_ip[16];
	uint32_t flow_label;
	uint16_t src_port, dst_port;
	size_t payload;    /* bytes behind the ports */
	uint32_t sequence; /* the first of them */
};

/* UDP over IPv4 and over IPv6. */
extern const struct fields frame_udp4, frame_udp6;

/* Returns its length. */
size_t frame_build(const struct fields *fields, uint8_t out[FRAME_MAX]);
/* The sequence number of a frame that was built without options, tag or extensions. */
uint32_t frame_sequence(const uint8_t *frame);

/* The parts of a frame that rules know. */
enum field {
	F_DST_MAC,
	F_SRC_MAC,
	F_ETHER_TYPE,
	F_TCI,
	F_SRC_IP,
	F_DST_IP,
	F_PROTO,
	F_TOS,
	F_TTL,
	F_FLAGS,
	F_FLOW_LABEL,
	F_SRC_PORT,
	F_DST_PORT,
	NUM_FIELDS
};

/* A rule's attributes with its specifications behind them. */
struct rule {
	struct ibv_flow_attr attr;
	uint8_t specs[sizeof(struct ibv_flow_spec) * 3];
};

/* How much of a field counts. */
enum mask { MASK_ALL, MASK_HIGH /* all but the lowest bit */ };

/* A rule about these fields (a set of 1 << enum field) of frames like @fields. */
void rule_build(struct rule *rule, const struct fields *fields, unsigned wanted, enum mask mask);
/* Add one specification. */
void rule_add(struct rule *rule, const void *spec, size_t size);

/* Flip the lowest bit of a field, or its highest. */
void fields_flip(struct fields *fields, enum field field, bool highest);

#endif
