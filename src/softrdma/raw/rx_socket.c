/* SPDX-License-Identifier: MIT */
/*
 * Receiving by recvmmsg from a packet socket: works wherever packets may be read at all. Frames go
 * straight into the receives, if nothing has to be done with them on the way.
 */
#include <errno.h>
#include <linux/if_packet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../../common/log.h"
#include "../tuning.h"
#include "internal.h"
#include "packet.h"

union control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
};

struct rx_socket {
	struct packet_socket packet;
	/* What was read, and not delivered yet: messages next to num. */
	struct mmsghdr messages[RAW_SOCKET_BATCH];
	struct iovec pieces[RAW_SOCKET_PIECES];
	union control controls[RAW_SOCKET_BATCH];
	unsigned next, num;
	char (*frames)[PACKET_LONGEST];
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

/* ---- by way of a buffer here ---- */

static void describe(struct rx_socket *rx, unsigned i, struct iovec *pieces, unsigned num)
{
	rx->messages[i].msg_hdr = (struct msghdr){
		.msg_iov = pieces,
		.msg_iovlen = num,
		.msg_control = &rx->controls[i],
		.msg_controllen = sizeof(rx->controls[i]),
	};
}

static bool fetch(struct rx_socket *rx)
{
	int num;

	for (unsigned i = 0; i < RAW_SOCKET_BATCH; i++) {
		rx->pieces[i] = (struct iovec){rx->frames[i], PACKET_LONGEST};
		describe(rx, i, &rx->pieces[i], 1);
	}
	num = recvmmsg(rx->packet.rx.source.fd, rx->messages, RAW_SOCKET_BATCH,
		       MSG_DONTWAIT | MSG_TRUNC, NULL);
	rx->next = 0;
	rx->num = num > 0 ? (unsigned)num : 0;
	return num > 0;
}

/* False: no receive is posted for it. */
static bool deliver_next(struct rx_socket *rx)
{
	struct mmsghdr *message = &rx->messages[rx->next];
	struct raw_tag tag = tag_of(&message->msg_hdr);
	uint32_t len = message->msg_len < PACKET_LONGEST ? message->msg_len : PACKET_LONGEST;

	if (!packet_deliver(&rx->packet, rx->frames[rx->next], len, message->msg_len, &tag))
		return false;
	rx->next++;
	return true;
}

/* ---- straight into the receives ---- */

/* How many receives could take a frame each, described; at most @most. */
static unsigned describe_receives(struct rx_socket *rx, unsigned most)
{
	const struct rc_qp *qp = rx->packet.rx.raw->qp;
	struct rc_recv_view view;
	unsigned num, used = 0;

	for (num = 0; num < most && rc_recv_peek(qp, num, &view); num++) {
		size_t bytes;
		int count;

		if (!view.length || used + view.num_sge > RAW_SOCKET_PIECES)
			break;
		count = rc_sge_slice(view.sge, view.num_sge, 0, view.length, &rx->pieces[used],
				     (int)view.num_sge, &bytes);
		describe(rx, num, &rx->pieces[used], (unsigned)count);
		used += (unsigned)count;
	}
	return num;
}

/* It has to be moved after all: a tag belongs in front of it, or there was too little room. */
static void deliver_anew(struct rx_socket *rx, uint32_t len, const struct raw_tag *tag)
{
	struct rc_recv_view view;
	uint32_t kept = len < PACKET_LONGEST ? len : PACKET_LONGEST;

	rc_recv_peek(rx->packet.rx.raw->qp, 0, &view); /* it was described: it is there */
	if (kept > view.length)
		kept = view.length;
	rc_sge_gather(view.sge, view.num_sge, 0, rx->frames[0], kept);
	packet_deliver(&rx->packet, rx->frames[0], kept, len, tag);
}

/* How many frames came. */
static unsigned fetch_into_receives(struct rx_socket *rx, unsigned num)
{
	int came = recvmmsg(rx->packet.rx.source.fd, rx->messages, num, MSG_DONTWAIT | MSG_TRUNC,
			    NULL);

	if (came < 0 && errno != EAGAIN && errno != EINTR)
		log_debug("soft_%s: cannot receive: %s", rx->packet.rx.raw->iface.name,
			  strerror(errno));
	for (int i = 0; i < came; i++) {
		struct msghdr *message = &rx->messages[i].msg_hdr;
		struct raw_tag tag = tag_of(message);
		uint32_t len = rx->messages[i].msg_len;

		if (tag.is_there || message->msg_flags & MSG_TRUNC)
			deliver_anew(rx, len, &tag);
		else
			raw_delivered(rx->packet.rx.raw, len);
	}
	return came > 0 ? (unsigned)came : 0;
}

static unsigned receive(struct raw_rx *base, unsigned budget)
{
	struct rx_socket *rx = container_of(base, struct rx_socket, packet.rx);
	unsigned count = 0;

	/* What was fetched is not left behind: nothing would tell of it. */
	while (count < budget || rx->next != rx->num) {
		unsigned left = budget - count, num = 0;

		/* Those that are to be matched here may not be wanted. */
		if (rx->next == rx->num && !rx->packet.unfiltered.num)
			num = describe_receives(rx,
						left < RAW_SOCKET_BATCH ? left : RAW_SOCKET_BATCH);
		if (num) {
			num = fetch_into_receives(rx, num);
			if (!num)
				break;
			count += num;
			continue;
		}
		if ((rx->next == rx->num && !fetch(rx)) || !deliver_next(rx))
			break;
		count++;
	}
	return count;
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
	const int one = 1;
	int error, fd;

	if (!rx)
		return -ENOMEM;
	rx->frames = malloc(RAW_SOCKET_BATCH * sizeof(*rx->frames));
	error = rx->frames ? packet_open(&rx->packet, raw, &raw_rx_socket, rules) : -ENOMEM;
	if (error) {
		free(rx->frames);
		free(rx);
		return error;
	}
	fd = rx->packet.rx.source.fd;
	setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &one, sizeof(one));
	packet_make_room(&rx->packet, RAW_SOCKET_BUFFER_BYTES); /* or as much as it gets */
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
	.read_drops = packet_read_drops,
	.let_go = packet_let_go,
	.close = rx_socket_close,
};
