/* SPDX-License-Identifier: MIT */
/*
 * Sends UDP packets to port 9 at a steady rate, by a packet socket:
 *   packet_send IFACE SOURCE_MAC DESTINATION_MAC SIZE COUNT RATE
 * From 10.5.0.1 to 10.5.0.2, many at a time, as a network card's interrupts tell of them. Prints
 * how many per second it were.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "packet/frame.h"

#define BATCH  64
#define BUFFER (64 << 20) /* no receiver, however slow, holds the sender up */

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int open_socket(const char *ifname)
{
	struct sockaddr_ll address = {.sll_family = AF_PACKET};
	int fd = socket(AF_PACKET, SOCK_RAW, 0), yes = 1, buffer = BUFFER;

	address.sll_ifindex = (int)if_nametoindex(ifname);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof(yes)) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer)))
		die(ifname);
	return fd;
}

static void send_all(int fd, struct iovec *frame, uint64_t count, double rate)
{
	struct mmsghdr messages[BATCH];
	uint64_t began = now_ns(), sent = 0;

	for (unsigned i = 0; i < BATCH; i++)
		messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = frame, .msg_iovlen = 1}};
	while (sent < count) {
		uint64_t due = 1 + (uint64_t)((double)(now_ns() - began) / 1e9 * rate);
		int num;

		if (due > count)
			due = count;
		if (due < count && due < sent + BATCH)
			continue;
		num = sendmmsg(fd, messages, due - sent < BATCH ? (unsigned)(due - sent) : BATCH,
			       0);
		if (num < 0 && errno != ENOBUFS && errno != EAGAIN)
			die("send");
		if (num > 0)
			sent += (unsigned)num;
	}
	printf("rate=%.0f\n", (double)count * 1e9 / (double)(now_ns() - began));
}

int main(int argc, char **argv)
{
	static uint8_t bytes[65536];
	struct frame_path path = {0};
	struct iovec frame = {.iov_base = bytes};

	if (argc != 7 || !frame_parse_mac(argv[2], path.src_mac) ||
	    !frame_parse_mac(argv[3], path.dst_mac)) {
		fprintf(stderr, "usage: packet_send IFACE SOURCE_MAC DESTINATION_MAC SIZE COUNT "
				"RATE\n");
		return 2;
	}
	inet_pton(AF_INET, "10.5.0.1", &path.src_ip);
	inet_pton(AF_INET, "10.5.0.2", &path.dst_ip);
	frame.iov_len =
		frame_put_udp(bytes, &path, 10000, 9, (size_t)atoi(argv[4]) - FRAME_UDP_ROOM);
	send_all(open_socket(argv[1]), &frame, strtoull(argv[5], NULL, 10), strtod(argv[6], NULL));
	return 0;
}
