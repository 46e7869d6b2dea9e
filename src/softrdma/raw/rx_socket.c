/* SPDX-License-Identifier: MIT */
/* Receiving by recvmmsg from a packet socket: works wherever packets may be read at all. */
#include <errno.h>
#include <linux/if_packet.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "../../common/log.h"
#include "packet.h"

#define BATCH       32
#define FRAME_BYTES (68 << 10) /* loopback's largest */
#define RECV_BUFFER (32 << 20)

union control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
};

struct rx_socket {
	struct packet_socket packet;
	/* What was read, and not delivered yet: messages next to num. */
	struct mmsghdr messages[BATCH];
	struct iovec pieces[BATCH];
	union control controls[BATCH];
	unsigned next, num;
	char (*frames)[FRAME_BYTES];
};

static struct raw_tag tag_of(struct msghdr *message)
{
	struct raw_tag tag = {0};
	struct cmsghdr *each;

	for (each = CMSG_FIRSTHDR(message); each; each = CMSG_NXTHDR(message, each)) {
		const struct tpacket_auxdata *aux = (const void *)CMSG_DATA(each);

		if (each->cmsg_level != SOL_PACKET || each->cmsg_type != PACKET_AUXDATA ||
		    !(aux->tp_status & TP_STATUS_VLAN_VALID))
			continue;
		tag.is_there = true;
		tag.tci = aux->tp_vlan_tci;
		tag.tpid = aux->tp_status & TP_STATUS_VLAN_TPID_VALID ? aux->tp_vlan_tpid : 0x8100;
	}
	return tag;
}

static bool fetch(struct rx_socket *rx)
{
	int num;

	for (unsigned i = 0; i < BATCH; i++) {
		rx->pieces[i] = (struct iovec){rx->frames[i], FRAME_BYTES};
		rx->messages[i].msg_hdr = (struct msghdr){
			.msg_iov = &rx->pieces[i],
			.msg_iovlen = 1,
			.msg_control = &rx->controls[i],
			.msg_controllen = sizeof(rx->controls[i]),
		};
	}
	num = recvmmsg(rx->packet.rx.source.fd, rx->messages, BATCH, MSG_DONTWAIT, NULL);
	rx->next = 0;
	rx->num = num > 0 ? (unsigned)num : 0;
	return num > 0;
}

static unsigned receive(struct raw_rx *base, unsigned budget)
{
	struct rx_socket *rx = container_of(base, struct rx_socket, packet.rx);
	unsigned count = 0;

	while (count < budget) {
		struct raw_tag tag;
		uint32_t len;

		if (rx->next == rx->num && !fetch(rx))
			break;
		tag = tag_of(&rx->messages[rx->next].msg_hdr);
		len = rx->messages[rx->next].msg_len;
		if (!packet_deliver(&rx->packet, rx->frames[rx->next], len, len, &tag))
			break;
		rx->next++;
		count++;
	}
	return count;
}

static uint64_t read_drops(struct raw_rx *base)
{
	struct tpacket_stats stats;
	socklen_t len = sizeof(stats);

	if (getsockopt(base->source.fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len))
		return 0;
	return stats.tp_drops;
}

static void rx_socket_close(struct raw_rx *base)
{
	struct rx_socket *rx = container_of(base, struct rx_socket, packet.rx);

	packet_close(&rx->packet);
	free(rx->frames);
	free(rx);
}

static int rx_socket_open(struct raw_rx **out, struct raw_qp *raw, const struct raw_rules *rules)
{
	struct rx_socket *rx = calloc(1, sizeof(*rx));
	const int one = 1, size = RECV_BUFFER;
	int error, fd;

	if (!rx)
		return -ENOMEM;
	rx->frames = malloc(BATCH * sizeof(*rx->frames));
	error = rx->frames ? packet_open(&rx->packet, raw, &raw_rx_socket, rules) : -ENOMEM;
	if (error) {
		free(rx->frames);
		free(rx);
		return error;
	}
	fd = rx->packet.rx.source.fd;
	setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &one, sizeof(one));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	error = packet_bind(&rx->packet, rules);
	if (error) {
		rx_socket_close(&rx->packet.rx);
		return error;
	}
	*out = &rx->packet.rx;
	return 0;
}

const struct raw_rx_ops raw_rx_socket = {
	.name = "socket",
	.open = rx_socket_open,
	.set_rules = packet_set_rules,
	.receive = receive,
	.read_drops = read_drops,
	.let_go = packet_let_go,
	.close = rx_socket_close,
};
