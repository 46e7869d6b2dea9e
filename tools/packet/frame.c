/* SPDX-License-Identifier: MIT */
/* Ethernet frames: ARP, ICMP echo, UDP. */
#include "frame.h"

#include <stdio.h>
#include <string.h>

#define VLAN_TYPE    0x8100
#define IP_ICMP      1
#define IP_UDP       17
#define ICMP_REPLY   0
#define ICMP_REQUEST 8
#define ARP_REQUEST  1
#define ARP_REPLY    2

uint16_t frame_get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

void frame_put16(uint8_t *at, uint16_t number)
{
	at[0] = (uint8_t)(number >> 8);
	at[1] = (uint8_t)number;
}

uint64_t frame_get64(const uint8_t *at)
{
	uint64_t number = 0;

	for (int i = 0; i < 8; i++)
		number = number << 8 | at[i];
	return number;
}

void frame_put64(uint8_t *at, uint64_t number)
{
	for (int i = 7; i >= 0; i--, number >>= 8)
		at[i] = (uint8_t)number;
}

uint16_t frame_checksum(const uint8_t *bytes, size_t len)
{
	uint64_t sum = 0;

	for (size_t i = 0; i + 1 < len; i += 2)
		sum += frame_get16(bytes + i);
	if (len % 2)
		sum += (uint64_t)bytes[len - 1] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* ---- writing ---- */

static void put_eth(uint8_t *frame, const struct frame_path *path, uint16_t type)
{
	memcpy(frame, path->dst_mac, FRAME_MAC);
	memcpy(frame + 6, path->src_mac, FRAME_MAC);
	frame_put16(frame + 12, type);
}

static void put_ip(uint8_t *frame, const struct frame_path *path, uint8_t protocol, size_t payload)
{
	uint8_t *ip = frame + FRAME_ETH;

	put_eth(frame, path, FRAME_IP_TYPE);
	memset(ip, 0, FRAME_IP);
	ip[0] = 0x45;
	frame_put16(ip + 2, (uint16_t)(FRAME_IP + payload));
	frame_put16(ip + 6, 0x4000); /* do not fragment */
	ip[8] = 64;
	ip[9] = protocol;
	memcpy(ip + 12, &path->src_ip, 4);
	memcpy(ip + 16, &path->dst_ip, 4);
	frame_put16(ip + 10, frame_checksum(ip, FRAME_IP));
}

size_t frame_put_arp_request(uint8_t *frame, const struct frame_path *path)
{
	struct frame_path everybody = *path;
	uint8_t *arp = frame + FRAME_ETH;

	memset(everybody.dst_mac, 0xff, FRAME_MAC);
	put_eth(frame, &everybody, FRAME_ARP_TYPE);
	memset(arp, 0, FRAME_ARP);
	frame_put16(arp, 1); /* Ethernet */
	frame_put16(arp + 2, FRAME_IP_TYPE);
	arp[4] = FRAME_MAC;
	arp[5] = 4;
	frame_put16(arp + 6, ARP_REQUEST);
	memcpy(arp + 8, path->src_mac, FRAME_MAC);
	memcpy(arp + 14, &path->src_ip, 4);
	memcpy(arp + 24, &path->dst_ip, 4);
	return FRAME_ETH + FRAME_ARP;
}

size_t frame_put_echo_request(uint8_t *frame, const struct frame_path *path, uint16_t id,
			      uint16_t seq, size_t size)
{
	uint8_t *icmp = frame + FRAME_ETH + FRAME_IP;

	put_ip(frame, path, IP_ICMP, FRAME_ICMP + size);
	memset(icmp, 0, FRAME_ICMP);
	icmp[0] = ICMP_REQUEST;
	frame_put16(icmp + 4, id);
	frame_put16(icmp + 6, seq);
	frame_put16(icmp + 2, frame_checksum(icmp, FRAME_ICMP + size));
	return FRAME_ECHO_ROOM + size;
}

size_t frame_put_udp(uint8_t *frame, const struct frame_path *path, uint16_t src_port,
		     uint16_t dst_port, size_t size)
{
	uint8_t *udp = frame + FRAME_ETH + FRAME_IP;

	put_ip(frame, path, IP_UDP, FRAME_UDP + size);
	frame_put16(udp, src_port);
	frame_put16(udp + 2, dst_port);
	frame_put16(udp + 4, (uint16_t)(FRAME_UDP + size));
	frame_put16(udp + 6, 0);
	return FRAME_UDP_ROOM + size;
}

/* ---- reading ---- */

bool frame_is_arp_reply(const uint8_t *frame, size_t len, struct in_addr ip, uint8_t mac[FRAME_MAC])
{
	const uint8_t *arp = frame + FRAME_ETH;

	if (len < FRAME_ETH + FRAME_ARP || frame_get16(frame + 12) != FRAME_ARP_TYPE ||
	    frame_get16(arp) != 1 || frame_get16(arp + 2) != FRAME_IP_TYPE ||
	    frame_get16(arp + 6) != ARP_REPLY || memcmp(arp + 14, &ip, 4) != 0)
		return false;
	memcpy(mac, arp + 8, FRAME_MAC);
	return true;
}

/* The payload of a whole IPv4 packet at @ip; NULL: it is none of @protocol. */
static const uint8_t *ip_payload(const uint8_t *ip, size_t len, uint8_t protocol,
				 size_t *payload_len)
{
	size_t header, total;

	if (len < FRAME_IP || ip[0] >> 4 != 4 || ip[9] != protocol)
		return NULL;
	header = (size_t)(ip[0] & 0xf) * 4;
	total = frame_get16(ip + 2);
	if (header < FRAME_IP || total < header || total > len ||
	    frame_get16(ip + 6) & 0x3fff /* a fragment */)
		return NULL;
	*payload_len = total - header;
	return ip + header;
}

bool frame_is_echo_reply(const uint8_t *frame, size_t len, struct frame_echo *out)
{
	const uint8_t *ip = frame + FRAME_ETH, *icmp;
	size_t icmp_len;

	if (len < FRAME_ETH || frame_get16(frame + 12) != FRAME_IP_TYPE)
		return false;
	icmp = ip_payload(ip, len - FRAME_ETH, IP_ICMP, &icmp_len);
	if (!icmp || icmp_len < FRAME_ICMP || icmp[0] != ICMP_REPLY || icmp[1] != 0 ||
	    frame_checksum(icmp, icmp_len) != 0)
		return false;
	memcpy(&out->from, ip + 12, 4);
	out->ttl = ip[8];
	out->id = frame_get16(icmp + 4);
	out->seq = frame_get16(icmp + 6);
	out->len = icmp_len;
	return true;
}

const uint8_t *frame_udp_payload(const uint8_t *frame, size_t len, size_t *payload_len)
{
	size_t at = 12, udp_len, said;
	const uint8_t *udp;

	if (len >= 18 && frame_get16(frame + at) == VLAN_TYPE)
		at += 4;
	if (len < at + 2 || frame_get16(frame + at) != FRAME_IP_TYPE)
		return NULL;
	at += 2;
	udp = ip_payload(frame + at, len - at, IP_UDP, &udp_len);
	if (!udp || udp_len < FRAME_UDP)
		return NULL;
	said = frame_get16(udp + 4);
	if (said < FRAME_UDP || said > udp_len)
		return NULL;
	*payload_len = said - FRAME_UDP;
	return udp + FRAME_UDP;
}

/* ---- addresses ---- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool frame_parse_mac(const char *text, uint8_t mac[FRAME_MAC])
{
	uint8_t bytes[FRAME_MAC];

	for (int i = 0; i < FRAME_MAC; i++) {
		int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);

		if (low < 0 || text[2] != (i < FRAME_MAC - 1 ? ':' : '\0'))
			return false;
		bytes[i] = (uint8_t)(high << 4 | low);
		text += 3;
	}
	memcpy(mac, bytes, sizeof(bytes));
	return true;
}

bool frame_group_mac(struct in_addr ip, uint8_t mac[FRAME_MAC])
{
	uint32_t number = ntohl(ip.s_addr);

	if (number == INADDR_BROADCAST) {
		memset(mac, 0xff, FRAME_MAC);
		return true;
	}
	if (number >> 28 != 0xe)
		return false;
	mac[0] = 0x01;
	mac[1] = 0x00;
	mac[2] = 0x5e;
	mac[3] = (number >> 16) & 0x7f;
	frame_put16(mac + 4, (uint16_t)number);
	return true;
}
