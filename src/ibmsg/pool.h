/* SPDX-License-Identifier: MIT */
/*
 * Memory for messages, of one loop on one device. Slots take a short message with its header, for
 * sending and receiving, and are registered in slabs, once. Large blocks take one long message each
 * and are registered by whoever transfers it, for that transfer. A block may outlive its loop: the
 * pool lives until the last one is back.
 */
#ifndef IBMSG_POOL_H
#define IBMSG_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "../common/list.h"
#include "../common/lock.h"
#include "../softrdma/interpose/redirect.h"
#pragma GCC visibility push(default)
#include <ibmsg.h>
#pragma GCC visibility pop
#include "proto.h"

#define SLOT_HEADROOM 64 /* in front of the bytes: the header, and alignment */
#define SLOT_BYTES    4096

struct pool {
	struct lock lock; /* guards all of this; a leaf */
	struct ibv_pd *pd;
	unsigned users;    /* the device, and blocks that are out */
	struct list slots; /* free ones */
	struct list slabs;
	struct list large;   /* free ones, the last freed first */
	uint64_t kept;       /* bytes of those */
	uint64_t registered; /* bytes of slabs and transfers */
	uint64_t arriving;   /* bytes in blocks for arriving messages that are out */
	bool starved;        /* somebody wants a block for an arriving message */
	int wake_fd;         /* eventfd to be told when one is back; -1: nobody is there */
};

/* What message_received is given lives in the block. */
struct block {
	struct list link; /* free, or its owner's */
	struct pool *pool;
	uint8_t *base;
	size_t room;       /* for bytes of a message */
	struct ibv_mr *mr; /* a slot's slab's; of a large one while it is transferred */
	bool slot;
	bool arriving;
	ibmsg_buffer msg;

	/* A large one while it is read from the peer: under the loop's lock. */
	bool ready; /* to be delivered, once those before it are */
	uint64_t peer_address;
	uint64_t asked, read; /* bytes */
	uint32_t peer_key;
	uint32_t number;
	struct list read_link;
};

/* Takes @pd over on success. */
struct pool *pool_new(struct ibv_pd *pd, int wake_fd);
/* The device is done with it: blocks that are out stay valid. */
void pool_put(struct pool *pool);

/* NULL: no memory. For arriving messages the bytes out are at most @most, or it is starved. */
struct block *pool_get(struct pool *pool, size_t size);
struct block *pool_get_arriving(struct pool *pool, size_t size, uint64_t most);
void block_put(struct block *block);

/* Register a large block's first @size bytes for a transfer, and end that. 0 or -errno. */
int block_register(struct block *block, size_t size, int access);
void block_deregister(struct block *block);

static inline uint8_t *block_bytes(const struct block *block)
{
	return block->slot ? block->base + SLOT_HEADROOM : block->base;
}

#endif
