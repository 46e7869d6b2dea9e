/* SPDX-License-Identifier: MIT */
/*
 * Receiving from a ring of blocks that the kernel fills (TPACKET_V3): no system call per frame. The
 * kernel owns a block until it says TP_STATUS_USER, then this side does until it says
 * TP_STATUS_KERNEL. A block that is not full is handed over after a millisecond.
 */
#include <errno.h>
#include <linux/if_packet.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "internal.h"
#include "packet.h"

/*
 * Many small blocks: behind a reader that stops they are handed over by the clock, not when they
 * are full, so their number is how long it may stop.
 */
#define LEAST_BLOCK_BYTES (16 << 10)
#define RING_BYTES        (32 << 20)
#define LEAST_BLOCKS      16
#define BLOCK_OVERHEAD    256  /* its head, and that of a frame */
#define FRAME_BYTES       2048 /* of no meaning in version 3, but asked for */
#define HAND_OVER_MS      1

struct rx_ring {
	struct packet_socket packet;
	char *blocks;
	unsigned block_bytes;
	unsigned num_blocks;
	unsigned block; /* at hand */
	/* In the block at hand: frames left, and the next one. */
	unsigned left;
	struct tpacket3_hdr *next;
};

static struct tpacket_hdr_v1 *head_of(const struct rx_ring *rx)
{
	struct tpacket_block_desc *desc =
		(void *)(rx->blocks + (size_t)rx->block * rx->block_bytes);

	return &desc->hdr.bh1;
}

static _Atomic(uint32_t) *status_of(struct tpacket_hdr_v1 *head)
{
	return (_Atomic(uint32_t) *)&head->block_status;
}

/* Begin the block at hand, if it is ours and has frames. */
static bool open_block(struct rx_ring *rx)
{
	struct tpacket_hdr_v1 *head = head_of(rx);

	if (!(atomic_load_explicit(status_of(head), memory_order_acquire) & TP_STATUS_USER))
		return false;
	rx->left = head->num_pkts;
	rx->next = (void *)((char *)head - offsetof(struct tpacket_block_desc, hdr) +
			    head->offset_to_first_pkt);
	return true;
}

static void give_back_block(struct rx_ring *rx)
{
	atomic_store_explicit(status_of(head_of(rx)), TP_STATUS_KERNEL, memory_order_release);
	rx->next = NULL;
	rx->block = (rx->block + 1) % rx->num_blocks;
}

static struct raw_tag tag_of(const struct tpacket3_hdr *frame)
{
	struct raw_tag tag = {.is_there = frame->tp_status & TP_STATUS_VLAN_VALID};

	if (tag.is_there) {
		tag.tci = (uint16_t)frame->hv1.tp_vlan_tci;
		tag.tpid = frame->tp_status & TP_STATUS_VLAN_TPID_VALID ? frame->hv1.tp_vlan_tpid
									: 0x8100;
	}
	return tag;
}

static unsigned receive(struct raw_rx *base, unsigned budget)
{
	struct rx_ring *rx = container_of(base, struct rx_ring, packet.rx);
	unsigned count = 0;

	while (count < budget && (rx->next || open_block(rx))) {
		struct tpacket3_hdr *frame = rx->next;
		struct raw_tag tag;

		if (!rx->left) {
			give_back_block(rx);
			continue;
		}
		tag = tag_of(frame);
		if (!packet_deliver(&rx->packet, (char *)frame + frame->tp_mac, frame->tp_snaplen,
				    &tag))
			break;
		count++;
		rx->left--;
		rx->next = (void *)((char *)frame + frame->tp_next_offset);
	}
	/* The kernel may need it soon. */
	if (rx->next && !rx->left)
		give_back_block(rx);
	return count;
}

static uint64_t read_drops(struct raw_rx *base)
{
	struct tpacket_stats_v3 stats;
	socklen_t len = sizeof(stats);

	if (getsockopt(base->source.fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len))
		return 0;
	return stats.tp_drops;
}

static int map_ring(struct rx_ring *rx, const struct raw_interface *iface)
{
	const int version = TPACKET_V3, fd = rx->packet.rx.source.fd;
	int error = -ENOMEM;

	if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)))
		return -errno;
	/* Two frames at least: the rest of a block that a frame does not fit into is lost. */
	rx->block_bytes = LEAST_BLOCK_BYTES;
	while (rx->block_bytes < 2 * (iface->mtu + BLOCK_OVERHEAD))
		rx->block_bytes *= 2;
	for (unsigned num = RING_BYTES / rx->block_bytes; num >= LEAST_BLOCKS; num /= 2) {
		struct tpacket_req3 request = {
			.tp_block_size = rx->block_bytes,
			.tp_block_nr = num,
			.tp_frame_size = FRAME_BYTES,
			.tp_frame_nr = num * (rx->block_bytes / FRAME_BYTES),
			.tp_retire_blk_tov = HAND_OVER_MS,
		};

		rx->num_blocks = num;
		error = setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request))
				? -errno
				: 0;
		if (error != -ENOMEM)
			break;
	}
	if (error)
		return error;
	rx->blocks = mmap(NULL, (size_t)rx->num_blocks * rx->block_bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED, fd, 0);
	if (rx->blocks == MAP_FAILED) {
		rx->blocks = NULL;
		return -errno;
	}
	/* A child that has the mapping would keep the socket. */
	madvise(rx->blocks, (size_t)rx->num_blocks * rx->block_bytes, MADV_DONTFORK);
	return 0;
}

static void rx_ring_close(struct raw_rx *base)
{
	struct rx_ring *rx = container_of(base, struct rx_ring, packet.rx);

	if (rx->blocks)
		munmap(rx->blocks, (size_t)rx->num_blocks * rx->block_bytes);
	packet_close(&rx->packet);
	free(rx);
}

static int rx_ring_open(struct raw_rx **out, struct raw_qp *raw, const struct raw_rules *rules)
{
	struct rx_ring *rx = calloc(1, sizeof(*rx));
	int error;

	if (!rx)
		return -ENOMEM;
	error = packet_open(&rx->packet, raw, &raw_rx_ring, rules);
	if (error) {
		free(rx);
		return error;
	}
	error = map_ring(rx, &raw->iface);
	if (!error)
		error = packet_bind(&rx->packet, rules);
	if (error) {
		rx_ring_close(&rx->packet.rx);
		return error;
	}
	*out = &rx->packet.rx;
	return 0;
}

const struct raw_rx_ops raw_rx_ring = {
	.name = "ring",
	.open = rx_ring_open,
	.set_rules = packet_set_rules,
	.receive = receive,
	.read_drops = read_drops,
	.let_go = packet_let_go,
	.close = rx_ring_close,
};
