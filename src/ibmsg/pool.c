/* SPDX-License-Identifier: MIT */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../common/log.h"

#define SLAB_SLOTS 16
#define KEEP_BYTES (64u << 20) /* large blocks are kept for reuse, up to this */
#define LARGE_STEP 4096
#define LARGE_PAGE (2u << 20) /* of blocks that fill most of one: they are copied faster */

struct slab {
	struct list link;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct block blocks[SLAB_SLOTS];
};

struct pool *pool_new(struct ibv_pd *pd, int wake_fd)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	list_init(&pool->slots);
	list_init(&pool->parts);
	list_init(&pool->slabs);
	list_init(&pool->large);
	pool->pd = pd;
	pool->users = 1;
	pool->starved = true; /* somebody on another device may wait already */
	pool->wake_fd = wake_fd;
	return pool;
}

static void free_large(struct block *block)
{
	free(block->base);
	free(block);
}

static void pool_free(struct pool *pool)
{
	struct list *pos, *next;

	list_for_each_safe (pos, next, &pool->slabs) {
		struct slab *slab = container_of(pos, struct slab, link);

		if (slab->mr && ibv_dereg_mr(slab->mr))
			log_warn("cannot deregister %p", (void *)slab->memory);
		free(slab->memory);
		free(slab);
	}
	list_for_each_safe (pos, next, &pool->large)
		free_large(container_of(pos, struct block, link));
	if (ibv_dealloc_pd(pool->pd))
		log_warn("cannot free a protection domain");
	free(pool);
}

/* Unlocks. */
static void drop_user(struct pool *pool)
{
	bool last = --pool->users == 0;

	lock_give(&pool->lock);
	if (last)
		pool_free(pool);
}

void pool_put(struct pool *pool)
{
	lock_take(&pool->lock);
	pool->wake_fd = -1;
	drop_user(pool);
}

/* ---- slots ---- */

/* The lock is held. */
static bool add_slab(struct pool *pool)
{
	const size_t stride = SLOT_HEADROOM + SLOT_BYTES, bytes = SLAB_SLOTS * stride;
	struct slab *slab = calloc(1, sizeof(*slab));

	if (!slab)
		return false;
	slab->memory = aligned_alloc(SLOT_HEADROOM, bytes);
	slab->mr = slab->memory ? ibv_reg_mr(pool->pd, slab->memory, bytes, IBV_ACCESS_LOCAL_WRITE)
				: NULL;
	if (!slab->mr) {
		free(slab->memory);
		free(slab);
		return false;
	}
	for (unsigned i = 0; i < SLAB_SLOTS; i++) {
		struct block *block = &slab->blocks[i];

		block->pool = pool;
		block->base = slab->memory + i * stride;
		block->room = SLOT_BYTES;
		block->mr = slab->mr;
		block->slot = true;
		list_add_tail(&pool->slots, &block->link);
	}
	list_add_tail(&pool->slabs, &slab->link);
	pool->registered += bytes;
	return true;
}

/* The lock is held. */
static struct block *get_slot(struct pool *pool)
{
	struct block *block;

	if (list_is_empty(&pool->slots) && !add_slab(pool))
		return NULL;
	block = list_first(&pool->slots, struct block, link);
	list_del(&block->link);
	return block;
}

/* ---- large blocks ---- */

/* The lock is held. One that is not much too large. */
static struct block *get_kept(struct pool *pool, size_t size)
{
	struct list *pos;

	list_for_each (pos, &pool->large) {
		struct block *block = container_of(pos, struct block, link);

		if (block->room >= size && block->room / 2 <= size) {
			list_del(&block->link);
			pool->kept -= block->room;
			return block;
		}
	}
	return NULL;
}

static struct block *get_large(struct pool *pool, size_t size)
{
	struct block *block = get_kept(pool, size);
	size_t step;

	if (block)
		return block;
	if (size > SIZE_MAX - LARGE_PAGE)
		return NULL;
	block = calloc(1, sizeof(*block));
	if (!block)
		return NULL;
	block->pool = pool;
	step = size >= LARGE_PAGE / 2 ? LARGE_PAGE : LARGE_STEP;
	block->room = (size + step - 1) / step * step;
	block->base = aligned_alloc(step, block->room);
	if (!block->base) {
		free(block);
		return NULL;
	}
	if (step == LARGE_PAGE)
		madvise(block->base, block->room, MADV_HUGEPAGE);
	return block;
}

/* The lock is held. */
static bool keep_large(struct pool *pool, struct block *block)
{
	if (block->room > KEEP_BYTES - pool->kept || block->room > KEEP_BYTES)
		return false;
	pool->kept += block->room;
	list_add_head(&pool->large, &block->link);
	return true;
}

int block_register(struct block *block, size_t size, int access)
{
	block->mr = ibv_reg_mr(block->pool->pd, block->base, size, access);
	if (!block->mr)
		return -errno;
	lock_take(&block->pool->lock);
	block->pool->registered += size;
	lock_give(&block->pool->lock);
	return 0;
}

void block_deregister(struct block *block)
{
	size_t size;

	if (block->slot || !block->mr)
		return;
	size = block->mr->length;
	if (ibv_dereg_mr(block->mr))
		log_warn("cannot deregister %p", (void *)block->base);
	block->mr = NULL;
	lock_take(&block->pool->lock);
	block->pool->registered -= size;
	lock_give(&block->pool->lock);
}

/* ---- both ---- */

/* The lock is held. */
static struct block *get(struct pool *pool, size_t size)
{
	struct block *block = size <= SLOT_BYTES ? get_slot(pool) : get_large(pool, size);

	if (!block)
		return NULL;
	pool->users++;
	block->ready = false;
	block->arriving = false;
	block->refs = 1;
	block->parts = 0;
	block->msg = (ibmsg_buffer){.mr = block->mr, .data = block_bytes(block), .size = size};
	block->msg.private_[0] = block;
	return block;
}

struct block *pool_get(struct pool *pool, size_t size)
{
	struct block *block;

	lock_take(&pool->lock);
	block = get(pool, size);
	lock_give(&pool->lock);
	return block;
}

/* The lock is held. */
static struct block *get_arriving(struct pool *pool, size_t size, uint64_t most)
{
	struct block *block;

	if (pool->arriving > most || size > most - pool->arriving)
		return NULL;
	block = get(pool, size);
	if (!block)
		return NULL;
	block->arriving = true;
	pool->arriving += block->room;
	return block;
}

unsigned pool_get_arriving(struct pool *pool, size_t size, uint64_t most, struct block **blocks,
			   unsigned count)
{
	unsigned got = 0;

	lock_take(&pool->lock);
	while (got < count && (blocks[got] = get_arriving(pool, size, most)))
		got++;
	lock_give(&pool->lock);
	return got;
}

void pool_starve(struct pool *pool)
{
	lock_take(&pool->lock);
	pool->starved = true;
	lock_give(&pool->lock);
}

/* ---- parts ---- */

/* The lock is held. */
static bool add_parts(struct pool *pool)
{
	struct slab *slab = calloc(1, sizeof(*slab));

	if (!slab)
		return false;
	for (unsigned i = 0; i < SLAB_SLOTS; i++) {
		slab->blocks[i].pool = pool;
		slab->blocks[i].slot = true;
		list_add_tail(&pool->parts, &slab->blocks[i].link);
	}
	list_add_tail(&pool->slabs, &slab->link);
	return true;
}

struct block *block_part(struct block *carrier, uint8_t *bytes, size_t size)
{
	struct pool *pool = carrier->pool;
	struct block *part = NULL;

	lock_take(&pool->lock);
	if (!list_is_empty(&pool->parts) || add_parts(pool)) {
		part = list_first(&pool->parts, struct block, link);
		list_del(&part->link);
		part->base = bytes - SLOT_HEADROOM;
		part->room = size;
		part->mr = carrier->mr;
		part->carrier = carrier;
		part->msg = (ibmsg_buffer){.mr = part->mr, .data = bytes, .size = size};
		part->msg.private_[0] = part;
		pool->arriving += sizeof(*part);
		carrier->refs++;
	}
	lock_give(&pool->lock);
	return part;
}

/* The lock is held. Returns the carrier. */
static struct block *put_part(struct pool *pool, struct block *part)
{
	pool->arriving -= sizeof(*part);
	list_add_head(&pool->parts, &part->link);
	return part->carrier;
}

/* ---- back ---- */

/* The lock is held: somebody who waits for memory is told. */
static void feed(struct pool *pool)
{
	const uint64_t one = 1;

	if (!pool->starved || pool->wake_fd < 0)
		return;
	pool->starved = false;
	if (write(pool->wake_fd, &one, sizeof(one)) < 0)
		pool->starved = true;
}

/* The lock is held. Whether it is kept. */
static bool take_back(struct pool *pool, struct block *block)
{
	if (block->arriving)
		pool->arriving -= block->room;
	if (!block->slot)
		return keep_large(pool, block);
	list_add_head(&pool->slots, &block->link);
	return true;
}

void block_put(struct block *block)
{
	struct pool *pool = block->pool;
	bool is_free;

	block_deregister(block);
	lock_take(&pool->lock);
	if (block->carrier)
		block = put_part(pool, block);
	is_free = --block->refs == 0;
	if (is_free && !take_back(pool, block))
		free_large(block);
	feed(pool);
	if (is_free)
		drop_user(pool);
	else
		lock_give(&pool->lock);
}
