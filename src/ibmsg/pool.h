/* SPDX-License-Identifier: MIT */
/*
 * Memory for messages, of one loop on one device. Slots take a short message with its header, for
 * sending and receiving, and are registered in slabs, once. Large blocks take one long message each
 * and are registered by whoever transfers it, for that transfer. Parts are messages that came in
 * one slot, their carrier, which is free when all of them are. A block may outlive its loop: the
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
	unsigned users;      /* the device, and blocks that are out */
	struct list slots;   /* free ones */
	struct list parts;   /* free ones */
	struct list slabs;   /* of slots and of parts */
	struct list large;   /* free ones, the last freed first */
	uint64_t kept;       /* bytes of those */
	uint64_t registered; /* bytes of slabs and transfers */
	uint64_t arriving;   /* bytes in blocks for arriving messages that are out */
	bool starved;        /* somebody waits for what is freed */
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
	unsigned refs;         /* the owner, and parts that are out; under the pool's lock */
	struct block *carrier; /* of a part */
	ibmsg_buffer msg;

	/* A carrier: under the loop's lock. */
	unsigned parts; /* messages in it: that were sent, or are still to be delivered */
	uint8_t *next_part;
	size_t part_bytes; /* from there to its end */

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

/* The next block that is back is to be told of. */
void pool_starve(struct pool *pool);

/* NULL: no memory. */
struct block *pool_get(struct pool *pool, size_t size);
/* Up to @count for arriving messages, while the bytes out are at most @most. Returns how many. */
unsigned pool_get_arriving(struct pool *pool, size_t size, uint64_t most, struct block **blocks,
			   unsigned count);
/* The message of @size bytes at @bytes in @carrier, with room for a header in front of it. NULL: no
 * memory. */
struct block *block_part(struct block *carrier, uint8_t *bytes, size_t size);
void block_put(struct block *block);

/* Register a large block's first @size bytes for a transfer, and end that. 0 or -errno. */
int block_register(struct block *block, size_t size, int access);
void block_deregister(struct block *block);

static inline uint8_t *block_bytes(const struct block *block)
{
	return block->slot ? block->base + SLOT_HEADROOM : block->base;
}

#endif
