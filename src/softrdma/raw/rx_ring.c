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

#include "../tuning.h"
#include "internal.h"
#include "packet.h"

#define LEAST_BLOCKS 2
#define FRAME_AT     128 /* in a slot, behind what the kernel says of it */
#define FRAME_EXTRA  22  /* an Ethernet header and two tags */
#define CACHE_LINE   64
#define TRIES        16

struct rx_ring {
	struct packet_socket packet;
	char *blocks;
	unsigned num_blocks;
	unsigned slot_bytes;
	unsigned slots_per_block;
	/* The slot at hand. */
	unsigned block, slot;
	/*
	 * Slots are as long as receives and frames were when the ring was made. A frame that is
	 * longer waits at the socket as well, where it is whole, and is read from there.
	 */
	char *whole;        /* PACKET_LONGEST bytes */
	uint32_t whole_len; /* of the frame of the slot at hand; 0: it has not been read */
};

static struct tpacket2_hdr *frame_at_hand(const struct rx_ring *rx)
{
	return (void *)(rx->blocks + (size_t)rx->block * RAW_RING_BLOCK_BYTES +
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

/* The frame of @len bytes that waits at the socket; what is before it was left behind. */
static bool read_whole(struct rx_ring *rx, uint32_t len)
{
	ssize_t got;

	for (int errors = 0; errors < TRIES;) {
		got = recv(rx->packet.rx.source.fd, rx->whole, PACKET_LONGEST,
			   MSG_DONTWAIT | MSG_TRUNC);
		if (got == len) {
			rx->whole_len = len;
			return true;
		}
		if (got < 0 && errno == EAGAIN)
			break;
		errors += got < 0; /* the interface's, each told once */
	}
	return false;
}

/* False: no receive is posted. */
static bool deliver_whole(struct rx_ring *rx, const struct tpacket2_hdr *frame, bool waits,
			  const struct raw_tag *tag)
{
	uint32_t len;

	if (!rx->whole_len && (!waits || !read_whole(rx, frame->tp_len))) {
		rx->packet.rx.raw->counters.dropped++; /* no room for it at the socket */
		return true;
	}
	len = rx->whole_len < PACKET_LONGEST ? rx->whole_len : PACKET_LONGEST;
	if (!packet_deliver(&rx->packet, rx->whole, len, rx->whole_len, tag))
		return false;
	rx->whole_len = 0;
	return true;
}

static bool deliver(struct rx_ring *rx, struct tpacket2_hdr *frame, uint32_t status)
{
	const struct raw_tag tag = tag_of(frame, status);

	if (frame->tp_snaplen < frame->tp_len)
		return deliver_whole(rx, frame, status & TP_STATUS_COPY, &tag);
	return packet_deliver(&rx->packet, (char *)frame + frame->tp_mac, frame->tp_snaplen,
			      frame->tp_len, &tag);
}

/*
 * The kernel reads the status of a slot before it fills it, on the core that takes the frame out
 * again more often than not. It has long left the caches; now there is time to fetch it.
 */
static void warm_next(const struct rx_ring *rx, const struct tpacket2_hdr *frame)
{
	const unsigned left = rx->slots_per_block - rx->slot - 1;

	for (unsigned i = 1; i <= RAW_RING_WARM_SLOTS && i <= left; i++)
		__builtin_prefetch((const char *)frame + (size_t)i * rx->slot_bytes, 1);
}

static unsigned receive(struct raw_rx *base, unsigned budget)
{
	struct rx_ring *rx = container_of(base, struct rx_ring, packet.rx);
	unsigned count;

	for (count = 0; count < budget; count++) {
		struct tpacket2_hdr *frame = frame_at_hand(rx);
		uint32_t status;

		/* The kernel writes these before the status: so they come while it does. */
		__builtin_prefetch((char *)frame + FRAME_AT);
		__builtin_prefetch((char *)frame + FRAME_AT + CACHE_LINE);
		status = atomic_load_explicit(status_of(frame), memory_order_acquire);
		if (!(status & TP_STATUS_USER)) {
			if (count)
				warm_next(rx, frame);
			break;
		}
		if (!deliver(rx, frame, status))
			break;
		atomic_store_explicit(status_of(frame), TP_STATUS_KERNEL, memory_order_release);
		next_slot(rx);
	}
	return count;
}

/*
 * The kernel and this side walk through all of it again and again: a ring that is larger than the
 * receives are worth only leaves the caches.
 */
static unsigned blocks_for(const struct rx_ring *rx, uint64_t receives)
{
	uint64_t slots = receives * RAW_RING_SLOTS_PER_RECEIVE;
	uint64_t num;

	if (slots < RAW_RING_LEAST_SLOTS)
		slots = RAW_RING_LEAST_SLOTS;
	num = (slots + rx->slots_per_block - 1) / rx->slots_per_block;
	if (num < LEAST_BLOCKS)
		num = LEAST_BLOCKS;
	return num < RAW_RING_MOST_BYTES / RAW_RING_BLOCK_BYTES
		       ? (unsigned)num
		       : RAW_RING_MOST_BYTES / RAW_RING_BLOCK_BYTES;
}

static int ask_for_blocks(struct rx_ring *rx, unsigned num)
{
	int error = -ENOMEM;

	for (; num >= LEAST_BLOCKS && error == -ENOMEM; num /= 2) {
		struct tpacket_req request = {
			.tp_block_size = RAW_RING_BLOCK_BYTES,
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

/* 0: none is posted that tells. */
static uint32_t longest_receive(const struct raw_qp *raw)
{
	struct rc_recv_view view;
	uint32_t longest = 0;

	lock_take(&raw->qp->lock);
	for (unsigned i = 0; rc_recv_peek(raw->qp, i, &view); i++)
		if (view.length > longest)
			longest = view.length;
	lock_give(&raw->qp->lock);
	return longest;
}

/* Whether what is longer than a slot has room at the socket. */
static bool keep_long_frames(const struct rx_ring *rx)
{
	const int one = 1;

	return !setsockopt(rx->packet.rx.source.fd, SOL_PACKET, PACKET_COPY_THRESH, &one,
			   sizeof(one)) &&
	       packet_make_room(&rx->packet, RAW_RING_LONG_BYTES);
}

/* What a slot is to hold. Short ones are worth it: there are more, and they lie closer together. */
static uint32_t room_of_slots(const struct rx_ring *rx, const struct raw_qp *raw)
{
	const uint32_t longest = longest_receive(raw), most = raw->iface.mtu + FRAME_EXTRA;
	const bool may_be_short = keep_long_frames(rx);

	return may_be_short && longest && longest < most ? longest : most;
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
	rx->slot_bytes =
		(FRAME_AT + room_of_slots(rx, raw) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
	if (rx->slot_bytes > RAW_RING_BLOCK_BYTES)
		return -EMSGSIZE;
	rx->slots_per_block = RAW_RING_BLOCK_BYTES / rx->slot_bytes;
	error = ask_for_blocks(rx, blocks_for(rx, raw->max_receives));
	if (error)
		return error;
	rx->blocks = mmap(NULL, (size_t)rx->num_blocks * RAW_RING_BLOCK_BYTES,
			  PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (rx->blocks == MAP_FAILED) {
		rx->blocks = NULL;
		return -errno;
	}
	/* A child that has the mapping would keep the socket. */
	madvise(rx->blocks, (size_t)rx->num_blocks * RAW_RING_BLOCK_BYTES, MADV_DONTFORK);
	return 0;
}

static void rx_ring_close(struct raw_rx *base)
{
	struct rx_ring *rx = container_of(base, struct rx_ring, packet.rx);

	if (rx->blocks)
		munmap(rx->blocks, (size_t)rx->num_blocks * RAW_RING_BLOCK_BYTES);
	packet_close(&rx->packet);
	free(rx->whole);
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
	rx->whole = malloc(PACKET_LONGEST);
	error = rx->whole ? map_ring(rx, raw) : -ENOMEM;
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
	.read_drops = packet_read_drops,
	.let_go = packet_let_go,
	.close = rx_ring_close,
};
