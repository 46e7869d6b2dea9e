/* SPDX-License-Identifier: MIT */
/* Ethernet frames as the packet programs send and read them: bytes in, bytes out. */
#ifndef TOOLS_PACKET_FRAME_H
#define TOOLS_PACKET_FRAME_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAC       6
#define FRAME_ETH       14
#define FRAME_IP        20
#define FRAME_ICMP      8
#define FRAME_UDP       8
#define FRAME_ARP       28
#define FRAME_ECHO_ROOM (FRAME_ETH + FRAME_IP + FRAME_ICMP)
#define FRAME_UDP_ROOM  (FRAME_ETH + FRAME_IP + FRAME_UDP)
#define FRAME_IP_TYPE   0x0800
#define FRAME_ARP_TYPE  0x0806

/* Who sends to whom. */
struct frame_path {
	uint8_t src_mac[FRAME_MAC], dst_mac[FRAME_MAC];
	struct in_addr src_ip, dst_ip;
};

uint16_t frame_get16(const uint8_t *at);
void frame_put16(uint8_t *at, uint16_t number);
uint64_t frame_get64(const uint8_t *at);
void frame_put64(uint8_t *at, uint64_t number);

/* The Internet checksum of RFC 1071. */
uint16_t frame_checksum(const uint8_t *bytes, size_t len);

/* Each returns the length of the frame. */
size_t frame_put_arp_request(uint8_t *frame, const struct frame_path *path);
/* @size bytes of payload are behind FRAME_ECHO_ROOM already. */
size_t frame_put_echo_request(uint8_t *frame, const struct frame_path *path, uint16_t id,
			      uint16_t seq, size_t size);
/* The headers of a UDP datagram with @size bytes of payload; no UDP checksum. */
size_t frame_put_udp(uint8_t *frame, const struct frame_path *path, uint16_t src_port,
		     uint16_t dst_port, size_t size);

/* Is it an ARP reply of @ip? Its MAC then. */
bool frame_is_arp_reply(const uint8_t *frame, size_t len, struct in_addr ip,
			uint8_t mac[FRAME_MAC]);

struct frame_echo {
	struct in_addr from;
	uint8_t ttl;
	uint16_t id, seq;
	size_t len; /* of the ICMP message */
};

/* A whole and right echo reply? */
bool frame_is_echo_reply(const uint8_t *frame, size_t len, struct frame_echo *out);

/* The payload of a UDP datagram by IPv4, with or without a VLAN tag; NULL: it is none. */
const uint8_t *frame_udp_payload(const uint8_t *frame, size_t len, size_t *payload_len);

/* "aa:bb:cc:dd:ee:ff" */
bool frame_parse_mac(const char *text, uint8_t mac[FRAME_MAC]);
/* The MAC of a multicast group or of the broadcast address; false: @ip is neither. */
bool frame_group_mac(struct in_addr ip, uint8_t mac[FRAME_MAC]);

#endif
