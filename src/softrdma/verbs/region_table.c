/* SPDX-License-Identifier: MIT */
/* Finding a memory region by its key: slots with open addressing, and memory for the regions. */
#include "region_table.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#define FIRST_SLOTS   256u
#define CHUNK_REGIONS 63 /* with the link before them a page */

/* A region lies in the slot that its key says, or behind it with no empty one in between. */
struct region_slots {
	struct region_slots *older; /* a lookup may still be reading it */
	uint32_t mask;
	_Atomic(struct rc_region *) at[];
};

struct region_chunk {
	struct region_chunk *next;
	struct rc_region regions[CHUNK_REGIONS];
};

static struct region_slots *slots_of(const struct region_table *table)
{
	return atomic_load_explicit(&table->slots, memory_order_acquire);
}

static struct rc_region *at(const struct region_slots *slots, uint32_t index)
{
	return atomic_load_explicit(&slots->at[index & slots->mask], memory_order_acquire);
}

static void set(struct region_slots *slots, uint32_t index, struct rc_region *region)
{
	atomic_store_explicit(&slots->at[index & slots->mask], region, memory_order_release);
}

static uint32_t key_of(const struct rc_region *region)
{
	return atomic_load_explicit(&region->key, memory_order_acquire);
}

/* Keys are random, so their lower bits are as good as a hash of them. */
static struct rc_region *find(const struct region_slots *slots, uint32_t key)
{
	struct rc_region *region;
	uint32_t index = key;

	while ((region = at(slots, index)) && key_of(region) != key)
		index++;
	return region;
}

struct rc_region *region_table_find(const struct region_table *table, uint32_t key)
{
	const struct region_slots *slots = slots_of(table);

	/* 0 is the key of a region that is gone. */
	return slots && key ? find(slots, key) : NULL;
}

/* ---- lookups ---- */

/* The count is raised before the key is read, region_table_remove clears it before it counts. */
static bool hold(struct rc_region *region, uint32_t key)
{
	atomic_fetch_add(&region->holders, 1);
	if (atomic_load(&region->key) == key)
		return true;
	region_table_put(region);
	return false;
}

/* It may have been moved to another slot meanwhile. */
__attribute__((noinline, cold)) static struct rc_region *get_locked(struct region_table *table,
								    uint32_t key)
{
	struct rc_region *region;

	pthread_mutex_lock(&table->lock);
	region = region_table_find(table, key);
	if (region && !hold(region, key))
		region = NULL;
	pthread_mutex_unlock(&table->lock);
	return region;
}

struct rc_region *region_table_get(struct region_table *table, uint32_t key)
{
	struct rc_region *region = region_table_find(table, key);

	return region && hold(region, key) ? region : get_locked(table, key);
}

/* ---- changes ---- */

static void put_in(struct region_slots *slots, uint32_t key, struct rc_region *region)
{
	uint32_t index = key;

	while (at(slots, index))
		index++;
	set(slots, index, region);
}

static int grow(struct region_table *table)
{
	struct region_slots *old = slots_of(table), *new;
	uint32_t size = old ? 2 * (old->mask + 1) : FIRST_SLOTS;

	new = calloc(1, sizeof(*new) + size * sizeof(*new->at));
	if (!new)
		return -ENOMEM;
	new->older = old;
	new->mask = size - 1;
	for (uint32_t i = 0; old && i <= old->mask; i++)
		if (at(old, i))
			put_in(new, key_of(at(old, i)), at(old, i));
	atomic_store_explicit(&table->slots, new, memory_order_release);
	return 0;
}

/* Without memory the slots that are there become fuller, but one of them stays empty. */
static int make_room(struct region_table *table)
{
	const struct region_slots *slots = slots_of(table);
	uint32_t size = slots ? slots->mask + 1 : 0;

	if (table->count == table->max)
		return -ENOMEM;
	if (table->count < size / 2 || !grow(table) || table->count + 1 < size)
		return 0;
	return -ENOMEM;
}

static int add_chunk(struct region_table *table)
{
	struct region_chunk *chunk = aligned_alloc(REGION_LINE, sizeof(*chunk));

	if (!chunk)
		return -ENOMEM;
	chunk->next = table->chunks;
	table->chunks = chunk;
	for (unsigned i = 0; i < CHUNK_REGIONS; i++) {
		struct rc_region *region = &chunk->regions[i];

		atomic_init(&region->key, 0);
		atomic_init(&region->holders, 0);
		region->next_free = table->free;
		table->free = region;
	}
	return 0;
}

int region_table_add(struct region_table *table, uint32_t key, const struct region_grant *grant,
		     struct rc_region **out)
{
	struct rc_region *region;
	int error;

	if (region_table_find(table, key))
		return -EEXIST;
	error = make_room(table);
	if (!error && !table->free)
		error = add_chunk(table);
	if (error)
		return error;
	region = table->free;
	table->free = region->next_free;
	region->grant = *grant;
	atomic_store_explicit(&region->invalidated, false, memory_order_relaxed);
	atomic_store_explicit(&region->key, key, memory_order_release);
	put_in(slots_of(table), key, region);
	table->count++;
	*out = region;
	return 0;
}

/*
 * Make the slot @hole empty. A region behind it that only lies there because others were before it
 * moves into the hole, and leaves another one.
 */
static void close_hole(struct region_slots *slots, uint32_t hole)
{
	struct rc_region *region;

	for (uint32_t i = hole + 1; (region = at(slots, i)); i++) {
		uint32_t away = (i - key_of(region)) & slots->mask; /* from where it belongs */

		if (away < ((i - hole) & slots->mask))
			continue;
		set(slots, hole, region);
		hole = i;
	}
	set(slots, hole, NULL);
}

void region_table_remove(struct region_table *table, struct rc_region *region)
{
	struct region_slots *slots = slots_of(table);
	uint32_t index = key_of(region);

	while (at(slots, index) != region)
		index++;
	atomic_store(&region->key, 0);
	close_hole(slots, index);
	table->count--;
	atomic_fetch_add(&table->version, 1);
}

void region_table_free(struct region_table *table, struct rc_region *region)
{
	while (atomic_load(&region->holders))
		sched_yield();
	pthread_mutex_lock(&table->lock);
	region->next_free = table->free;
	table->free = region;
	pthread_mutex_unlock(&table->lock);
}

void region_table_walk(const struct region_table *table,
		       void (*visit)(const struct rc_region *region))
{
	const struct region_slots *slots = slots_of(table);

	for (uint32_t i = 0; slots && i <= slots->mask; i++)
		if (at(slots, i))
			visit(at(slots, i));
}

void region_table_fini(struct region_table *table)
{
	struct region_slots *slots = slots_of(table);

	while (slots) {
		struct region_slots *older = slots->older;

		free(slots);
		slots = older;
	}
	while (table->chunks) {
		struct region_chunk *next = table->chunks->next;

		free(table->chunks);
		table->chunks = next;
	}
	pthread_mutex_destroy(&table->lock);
}
