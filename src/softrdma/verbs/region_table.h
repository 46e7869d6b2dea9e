/* SPDX-License-Identifier: MIT */
/*
 * The table that finds a memory region by its key, without a lock.
 *
 * A lookup raises the region's count of holders and then reads its key again. Whoever removes a
 * region clears its key and then waits until the count is 0. One of the two always sees the other,
 * so a holder never uses a region that is gone.
 *
 * A region's memory is used again for other regions and never given back, so that a lookup that
 * comes too late still finds a count and a key. The same holds for the arrays of slots, which
 * double when they are half full: all older ones together are smaller than the current one.
 *
 * A lookup may miss a region whose slot moves at that moment. So one that finds nothing looks again
 * under the lock. That happens for wrong keys alone, and a wrong key ends a connection.
 */
#ifndef SOFTRDMA_VERBS_REGION_TABLE_H
#define SOFTRDMA_VERBS_REGION_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define REGION_LINE 64 /* bytes of a cache line */

/* What a key grants. It does not change while the region is in the table. */
struct region_grant {
	const void *pd;
	uint64_t iova; /* the address by which requests name the first byte */
	uint64_t length;
	char *mem;       /* where that byte is */
	unsigned access; /* IBV_ACCESS_* */
};

/* A cache line of its own: the holders of one region do not slow down those of another. */
struct rc_region {
	_Alignas(REGION_LINE) _Atomic uint32_t key; /* 0: none. Written last, cleared first */
	atomic_uint holders;                        /* copies in flight, and lookups */
	atomic_bool invalidated;                    /* by a peer: remote access has ended */
	struct region_grant grant;
	struct rc_region *next_free; /* under the table's lock */
};
_Static_assert(sizeof(struct rc_region) == REGION_LINE, "one line each");

struct region_slots;
struct region_chunk;

struct region_table {
	/* What lookups read; only the end of a region and growth write here. */
	_Alignas(REGION_LINE) _Atomic(struct region_slots *) slots;
	atomic_uint version; /* another one whenever a region has gone */
	/* Guards what follows and all changes; a leaf. */
	_Alignas(REGION_LINE) pthread_mutex_t lock;
	uint32_t count, max;
	struct rc_region *free;
	struct region_chunk *chunks;
};

#define REGION_TABLE_INIT(most)                                                                    \
	{                                                                                          \
		.lock = PTHREAD_MUTEX_INITIALIZER, .max = (most)                                   \
	}

/* Give all memory back. Nobody uses the table any more. */
void region_table_fini(struct region_table *table);

/* ---- with the lock held ---- */

/*
 * Add a region under @key, which is not 0. 0, -EEXIST if the key is in use, or -ENOMEM, also when
 * there are as many regions as there may be.
 */
int region_table_add(struct region_table *table, uint32_t key, const struct region_grant *grant,
		     struct rc_region **region);
/* No lookup finds it from now on; to be followed by region_table_free. */
void region_table_remove(struct region_table *table, struct rc_region *region);
struct rc_region *region_table_find(const struct region_table *table, uint32_t key);
void region_table_walk(const struct region_table *table,
		       void (*visit)(const struct rc_region *region));

/* ---- without the lock ---- */

/* Wait for the holders of a region that was removed, and make its memory free for another one. */
void region_table_free(struct region_table *table, struct rc_region *region);

/*
 * The region of @key, or NULL. Until region_table_put it is held: region_table_free waits, so that
 * this is for one copy or system call that does not block.
 */
struct rc_region *region_table_get(struct region_table *table, uint32_t key);

static inline void region_table_put(struct rc_region *region)
{
	atomic_fetch_sub_explicit(&region->holders, 1, memory_order_release);
}

#endif
