/* SPDX-License-Identifier: MIT */
/*
 * Receiving from a ring of slots, a frame each, that the kernel fills (TPACKET_V2): no system call
 * per frame, and each is there as soon as it has come. The kernel owns a slot until it says
 * TP_STATUS_USER, then this side does until it says TP_STATUS_KERNEL.
 */
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "internal.h"
#include "packet.h"

/* As many as the queue pair has receives, and for the time in which none is posted. */
#define SLOTS_PER_RECEIVE 8
#define LEAST_SLOTS       512
#define MOST_SLOTS        16384
#define MOST_BYTES        (64 << 20) /* jumbo frames have fewer slots */
#define BLOCK_BYTES       (256 << 10) /* what the kernel takes its memory in; slots do not cross them */
#define LEAST_BLOCKS      2
#define FRAME_AT          128 /* in a slot, behind what the kernel says of it */
#define FRAME_EXTRA       22  /* an Ethernet header and two tags */
#define CACHE_LINE        64

struct rx_ring {
	struct packet_socket packet;
	char *blocks;
	unsigned num_blocks;
	unsigned slot_bytes;
	unsigned slots_per_block;
	/* The slot at hand. */
	unsigned block, slot;
};

static struct tpacket2_hdr *frame_at_hand(const struct rx_ring *rx)
{
	return (void *)(rx->blocks + (size_t)rx->block * BLOCK_BYTES +
			(size_t)rx->slot * rx->slot_bytes);
}

static _Atomic(uint32_t) *status_of(struct tpacket2_hdr *frame)
{
	return (_Atomic(uint32_t) *)&frame->tp_status;
}

static void next_slot(struct rx_ring *rx)
{
	if (++rx->slot < rx->slots_per_block)
		return;
	rx->slot = 0;
	if (++rx->block == rx->num_blocks)
		rx->block = 0;
}

static struct raw_tag tag_of(const struct tpacket2_hdr *frame, uint32_t status)
{
	struct raw_tag tag = {.is_there = status & TP_STATUS_VLAN_VALID};

	if (tag.is_there) {
		tag.tci = frame->tp_vlan_tci;
		tag.tpid = status & TP_STATUS_VLAN_TPID_VALID ? frame->tp_vlan_tpid : 0x8100;
	}
	return tag;
}

static unsigned receive(struct raw_rx *base, unsigned budget)
{
	struct rx_ring *rx = container_of(base, struct rx_ring, packet.rx);
	unsigned count;

	for (count = 0; count < budget; count++) {
		struct tpacket2_hdr *frame = frame_at_hand(rx);
		struct raw_tag tag;
		uint32_t status;

		/* The kernel writes these before the status: so they come while it does. */
		__builtin_prefetch((char *)frame + FRAME_AT);
		__builtin_prefetch((char *)frame + FRAME_AT + CACHE_LINE);
		status = atomic_load_explicit(status_of(frame), memory_order_acquire);
		if (!(status & TP_STATUS_USER))
			break;
		tag = tag_of(frame, status);
		if (!packet_deliver(&rx->packet, (char *)frame + frame->tp_mac, frame->tp_snaplen,
				    frame->tp_len, &tag))
			break;
		atomic_store_explicit(status_of(frame), TP_STATUS_KERNEL, memory_order_release);
		next_slot(rx);
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

/*
 * The kernel and this side walk through all of it again and again: a ring that is larger than the
 * receives are worth only leaves the caches.
 */
static unsigned slots_for(unsigned receives)
{
	if (receives > MOST_SLOTS / SLOTS_PER_RECEIVE)
		return MOST_SLOTS;
	return receives > LEAST_SLOTS / SLOTS_PER_RECEIVE ? receives * SLOTS_PER_RECEIVE
							  : LEAST_SLOTS;
}

static int ask_for_blocks(struct rx_ring *rx, unsigned slots)
{
	unsigned num = (slots + rx->slots_per_block - 1) / rx->slots_per_block;
	int error = -ENOMEM;

	if (num < LEAST_BLOCKS)
		num = LEAST_BLOCKS;
	if (num > MOST_BYTES / BLOCK_BYTES)
		num = MOST_BYTES / BLOCK_BYTES;
	for (; num >= LEAST_BLOCKS && error == -ENOMEM; num /= 2) {
		struct tpacket_req request = {
			.tp_block_size = BLOCK_BYTES,
			.tp_block_nr = num,
			.tp_frame_size = rx->slot_bytes,
			.tp_frame_nr = num * rx->slots_per_block,
		};

		rx->num_blocks = num;
		error = setsockopt(rx->packet.rx.source.fd, SOL_PACKET, PACKET_RX_RING, &request,
				   sizeof(request))
				? -errno
				: 0;
	}
	return error;
}

static int map_ring(struct rx_ring *rx, const struct raw_qp *raw)
{
	/* Its head, an address and an Ethernet header come first, in steps of the alignment. */
	const unsigned reserve =
		FRAME_AT + ETH_HLEN - TPACKET_ALIGN(TPACKET2_HDRLEN + TPACKET_ALIGNMENT);
	const int version = TPACKET_V2, fd = rx->packet.rx.source.fd;
	int error;

	/* Frames that begin with a cache line are copied faster. */
	if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_RESERVE, &reserve, sizeof(reserve)))
		return -errno;
	rx->slot_bytes = (FRAME_AT + raw->iface.mtu + FRAME_EXTRA + CACHE_LINE - 1) / CACHE_LINE *
			 CACHE_LINE;
	if (rx->slot_bytes > BLOCK_BYTES)
		return -EMSGSIZE;
	rx->slots_per_block = BLOCK_BYTES / rx->slot_bytes;
	error = ask_for_blocks(rx, slots_for(raw->max_receives));
	if (error)
		return error;
	rx->blocks = mmap(NULL, (size_t)rx->num_blocks * BLOCK_BYTES, PROT_READ | PROT_WRITE,
			  MAP_SHARED, fd, 0);
	if (rx->blocks == MAP_FAILED) {
		rx->blocks = NULL;
		return -errno;
	}
	/* A child that has the mapping would keep the socket. */
	madvise(rx->blocks, (size_t)rx->num_blocks * BLOCK_BYTES, MADV_DONTFORK);
	return 0;
}

static void rx_ring_close(struct raw_rx *base)
{
	struct rx_ring *rx = container_of(base, struct rx_ring, packet.rx);

	if (rx->blocks)
		munmap(rx->blocks, (size_t)rx->num_blocks * BLOCK_BYTES);
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
	error = map_ring(rx, raw);
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
