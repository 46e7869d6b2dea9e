/* SPDX-License-Identifier: MIT */
/*
 * One AF_XDP socket on one queue of an interface, with memory of its own. Two rings carry chunks of
 * that memory: this side fills the fill ring and advances its producer, the kernel takes from it;
 * the kernel fills the receive ring, this side advances its consumer.
 */
#ifndef SOFTRDMA_RAW_XSK_H
#define SOFTRDMA_RAW_XSK_H

#include <linux/if_xdp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xsk_ring {
	_Atomic(uint32_t) *producer;
	_Atomic(uint32_t) *consumer;
	_Atomic(uint32_t) *flags;
	void *entries;
	uint32_t mask;
	uint32_t at; /* this side's index, ahead of the shared one */
	void *mapping;
	size_t mapped;
};

struct xsk {
	int fd;
	char *memory;
	size_t bytes;
	uint32_t chunk_bytes;
	uint32_t num_chunks;
	struct xsk_ring fill, rx, completion; /* the last is never used, but the kernel wants it */
	uint64_t drops;                       /* as the kernel last told */
};

struct xsk_place {
	unsigned ifindex;
	unsigned queue;
	unsigned mtu;
	uint32_t num_chunks;
	bool zero_copy;
};

/* -EBUSY: another socket is there, or one that was closed still goes. */
int xsk_open(struct xsk *xsk, const struct xsk_place *place);
void xsk_close(struct xsk *xsk);

/* Descriptors that wait to be read from rx.at on. */
static inline uint32_t xsk_available(const struct xsk *xsk)
{
	return atomic_load_explicit(xsk->rx.producer, memory_order_acquire) - xsk->rx.at;
}

static inline const struct xdp_desc *xsk_peek(const struct xsk *xsk, uint32_t ahead)
{
	return (const struct xdp_desc *)xsk->rx.entries + ((xsk->rx.at + ahead) & xsk->rx.mask);
}

/* @num descriptors have been read: their chunks go back. Seen by the kernel after xsk_publish. */
void xsk_release(struct xsk *xsk, uint32_t num);
void xsk_publish(struct xsk *xsk);

/* Frames that the kernel dropped since the last call. */
uint64_t xsk_read_drops(struct xsk *xsk);

#endif
