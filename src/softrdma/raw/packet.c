/* SPDX-License-Identifier: MIT */
/* Packet sockets and their filters. */
#include "packet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../tuning.h"
#include "bpf.h"
#include "internal.h"

#define MAX_INSTRUCTIONS 4096 /* of the kernel */

static int attach_classic(int fd, const struct raw_rules *rules)
{
	struct sock_filter *code = calloc(MAX_INSTRUCTIONS, sizeof(*code));
	struct sock_fprog program = {.filter = code};
	int len, error = 0;

	if (!code)
		return -ENOMEM;
	len = filter_classic(rules->rules, rules->num, code, MAX_INSTRUCTIONS);
	if (len > 0) {
		program.len = (unsigned short)len;
		if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)))
			error = -errno;
	} else {
		error = len;
	}
	free(code);
	return error;
}

static int attach_ebpf(int fd, const struct raw_rules *rules)
{
	int program = bpf_load_filter(FILTER_SOCKET, rules->rules, rules->num, -1);
	int error = 0;

	if (program < 0)
		return program;
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &program, sizeof(program)))
		error = -errno;
	close(program);
	return error;
}

/* Every frame comes up, and is matched there. */
static void detach_filter(int fd)
{
	int unused = 0;

	setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
}

static int copy_rules(struct raw_rules *to, const struct raw_rules *from)
{
	to->rules = calloc(from->num, sizeof(*to->rules));
	if (!to->rules)
		return -ENOMEM;
	memcpy(to->rules, from->rules, from->num * sizeof(*to->rules));
	to->num = from->num;
	return 0;
}

static void match_here(struct packet_socket *packet, const struct raw_rules *rules)
{
	struct raw_rules before;

	lock_take(&packet->rx.raw->qp->lock);
	before = packet->unfiltered;
	packet->unfiltered = *rules;
	lock_give(&packet->rx.raw->qp->lock);
	free(before.rules);
}

/* A new filter replaces the old one between two frames. */
static int set_filter(struct packet_socket *packet, const struct raw_rules *rules)
{
	struct raw_rules here = {0};
	int error = -EPERM;

	if (rules->num > RAW_MANY_RULES)
		error = attach_ebpf(packet->rx.source.fd, rules);
	if (error)
		error = attach_classic(packet->rx.source.fd, rules);
	if (!error) {
		match_here(packet, &here);
		return 0;
	}
	if (error != -E2BIG && error != -ENOMEM)
		return error;
	error = copy_rules(&here, rules);
	if (error)
		return error;
	match_here(packet, &here);
	detach_filter(packet->rx.source.fd);
	return 0;
}

int packet_set_rules(struct raw_rx *rx, const struct raw_rules *rules)
{
	struct packet_socket *packet = container_of(rx, struct packet_socket, rx);
	int error = set_filter(packet, rules);

	if (!error)
		take_set_rules(&packet->take, &rx->raw->iface, rules);
	return error;
}

int packet_open(struct packet_socket *packet, struct raw_qp *raw, const struct raw_rx_ops *ops,
		const struct raw_rules *rules)
{
	const int one = 1;
	/* Protocol 0: nothing comes before it is bound. */
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error;

	if (fd < 0)
		return -errno;
	take_init(&packet->take);
	packet->rx.ops = ops;
	packet->rx.raw = raw;
	packet->rx.source.fd = fd;
	/* What this host sends is not what it receives. */
	setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one));
	error = set_filter(packet, rules);
	if (error)
		packet_close(packet);
	return error;
}

int packet_bind(struct packet_socket *packet, const struct raw_rules *rules)
{
	const struct raw_interface *iface = &packet->rx.raw->iface;
	const struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = (int)iface->index,
	};

	if (bind(packet->rx.source.fd, (const struct sockaddr *)&address, sizeof(address)))
		return -errno;
	take_set_rules(&packet->take, iface, rules);
	return 0;
}

bool packet_make_room(const struct packet_socket *packet, int bytes)
{
	const int fd = packet->rx.source.fd;
	int granted = 0;
	socklen_t len = sizeof(granted);

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	return !getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &len) && granted >= bytes;
}

uint64_t packet_read_drops(struct raw_rx *rx)
{
	struct tpacket_stats stats;
	socklen_t len = sizeof(stats);

	if (getsockopt(rx->source.fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len))
		return 0;
	return stats.tp_drops;
}

void packet_let_go(struct raw_rx *rx)
{
	take_fini(&container_of(rx, struct packet_socket, rx)->take);
}

void packet_close(struct packet_socket *packet)
{
	take_fini(&packet->take);
	close(packet->rx.source.fd);
	free(packet->unfiltered.rules);
}

bool packet_deliver(struct packet_socket *packet, void *data, uint32_t len, uint32_t whole,
		    const struct raw_tag *tag)
{
	const struct iovec piece = {.iov_base = data, .iov_len = len};
	const struct raw_frame frame = {
		.pieces = &piece, .num = 1, .len = whole, .is_cut = len < whole, .tag = *tag};

	if (packet->unfiltered.num) {
		union raw_key key;

		key_parse(&key, data, len, tag);
		if (!rules_match(packet->unfiltered.rules, packet->unfiltered.num, &key))
			return true;
	}
	return raw_deliver(packet->rx.raw, &frame);
}
