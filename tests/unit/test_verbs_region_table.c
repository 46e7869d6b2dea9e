/* SPDX-License-Identifier: MIT */
/* The table of regions: keys, growth, holders, and lookups beside changes. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "verbs/region_table.h"

/* A thread sanitizer makes lookups slow, and needs to see a race once only. */
#ifdef __SANITIZE_THREAD__
#define SHORTER 10
#else
#define SHORTER 1
#endif
#define MANY       5000u
#define FIRST_MASK 255u /* of the first array of slots */

static struct rc_region *add(struct region_table *table, uint32_t key)
{
	const struct region_grant grant = {.iova = key, .length = 1};
	struct rc_region *region = NULL;

	pthread_mutex_lock(&table->lock);
	if (region_table_add(table, key, &grant, &region))
		region = NULL;
	pthread_mutex_unlock(&table->lock);
	return region;
}

static void drop(struct region_table *table, struct rc_region *region)
{
	pthread_mutex_lock(&table->lock);
	region_table_remove(table, region);
	pthread_mutex_unlock(&table->lock);
	region_table_free(table, region);
}

static bool has(struct region_table *table, uint32_t key)
{
	struct rc_region *region = region_table_get(table, key);
	bool right = region && region->grant.iova == key;

	if (region)
		region_table_put(region);
	return right;
}

/* Any key but 0; another one for every number. */
static uint32_t nth_key(uint32_t n)
{
	return (n + 1) * 2654435761u;
}

static void test_get_finds_what_was_added_while_the_table_grows(void **state)
{
	struct region_table table = REGION_TABLE_INIT(MANY);
	struct rc_region *regions[MANY];

	(void)state;
	assert_false(has(&table, nth_key(0)));
	for (uint32_t i = 0; i < MANY; i++) {
		regions[i] = add(&table, nth_key(i));
		assert_non_null(regions[i]);
		assert_true(has(&table, nth_key(i)));
		assert_true(has(&table, nth_key(i / 2)));
		assert_false(has(&table, nth_key(i + 1)));
	}
	for (uint32_t i = 0; i < MANY; i += 2)
		drop(&table, regions[i]);
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(has(&table, nth_key(i)), i % 2);
	region_table_fini(&table);
}

static void test_add_refuses_a_key_in_use_and_more_than_the_maximum(void **state)
{
	struct region_table table = REGION_TABLE_INIT(2);
	const struct region_grant grant = {0};
	struct rc_region *first, *other = NULL;

	(void)state;
	first = add(&table, 7);
	assert_non_null(first);
	pthread_mutex_lock(&table.lock);
	assert_int_equal(region_table_add(&table, 7, &grant, &other), -EEXIST);
	assert_int_equal(region_table_add(&table, 8, &grant, &other), 0);
	assert_int_equal(region_table_add(&table, 9, &grant, &other), -ENOMEM);
	pthread_mutex_unlock(&table.lock);
	drop(&table, first);
	assert_non_null(add(&table, 9));
	region_table_fini(&table);
}

/* A region that is gone has key 0, and may still be seen by a lookup that is under way. */
static void test_get_of_key_0_finds_nothing(void **state)
{
	struct region_table table = REGION_TABLE_INIT(MANY);
	struct rc_region *region = add(&table, 256);

	(void)state;
	atomic_store(&region->key, 0); /* as in the middle of region_table_remove */
	assert_null(region_table_get(&table, 0));
	region_table_fini(&table);
}

static void test_remove_leaves_keys_of_the_same_slot_in_reach(void **state)
{
	/* The last slot's, which go on in the first ones, and two that belong there. */
	static const uint32_t keys[] = {FIRST_MASK, FIRST_MASK + 256,    256, FIRST_MASK + 2 * 256,
					257,        FIRST_MASK + 3 * 256};
	enum { COUNT = sizeof(keys) / sizeof(*keys) };

	(void)state;
	for (unsigned gone = 0; gone < COUNT; gone++) {
		struct region_table table = REGION_TABLE_INIT(MANY);
		struct rc_region *regions[COUNT];

		for (unsigned i = 0; i < COUNT; i++)
			regions[i] = add(&table, keys[i]);
		drop(&table, regions[gone]);
		for (unsigned i = 0; i < COUNT; i++) {
			pthread_mutex_lock(&table.lock);
			assert_int_equal(region_table_find(&table, keys[i]) != NULL, i != gone);
			pthread_mutex_unlock(&table.lock);
		}
		region_table_fini(&table);
	}
}

static void test_remove_changes_the_version(void **state)
{
	struct region_table table = REGION_TABLE_INIT(MANY);
	struct rc_region *region = add(&table, 7);
	unsigned version = atomic_load(&table.version);

	(void)state;
	drop(&table, region);
	assert_int_not_equal(atomic_load(&table.version), version);
	region_table_fini(&table);
}

/* ---- holders ---- */

struct holding {
	struct region_table *table;
	struct rc_region *region;
	atomic_bool over;
};

/* Ends its hold when the region is on its way out, and not at once. */
static void *hold_until_removed(void *arg)
{
	struct holding *holding = arg;

	while (atomic_load(&holding->region->key))
		sched_yield();
	for (unsigned i = 0; i < 1000; i++)
		sched_yield();
	atomic_store(&holding->over, true);
	region_table_put(holding->region);
	return NULL;
}

static void test_free_waits_for_holders(void **state)
{
	struct region_table table = REGION_TABLE_INIT(MANY);
	struct holding holding = {.table = &table, .region = add(&table, 7)};
	pthread_t thread;

	(void)state;
	assert_ptr_equal(region_table_get(&table, 7), holding.region);
	assert_int_equal(pthread_create(&thread, NULL, hold_until_removed, &holding), 0);
	drop(&table, holding.region);
	assert_true(atomic_load(&holding.over));
	assert_int_equal(pthread_join(thread, NULL), 0);
	region_table_fini(&table);
}

/* ---- lookups beside changes ---- */

#define READERS  2
#define WRITERS  2
#define ROUNDS   (30000u / SHORTER)
#define OWN_KEYS 8u /* of a writer, that come and go */

struct crowd {
	struct region_table table;
	atomic_uint writers; /* at work */
	atomic_uint missed;  /* keys that were there all the time and were not found */
	atomic_uint wrong;   /* regions under another's key, or that were gone */
};

struct writer {
	struct crowd *crowd;
	uint32_t number;
};

/* All belong into one slot, so that each is in the others' way. */
static uint32_t lasting_key(uint32_t n)
{
	return (2 * n + 1) << 16 | 0x55;
}

static uint32_t passing_key(uint32_t writer, uint32_t n)
{
	return (2 * (writer * OWN_KEYS + n) + 2) << 16 | 0x55;
}

static struct rc_region *add_with_memory(struct region_table *table, uint32_t key)
{
	uint32_t *memory = malloc(sizeof(*memory));
	const struct region_grant grant = {.iova = key, .length = 1, .mem = (char *)memory};
	struct rc_region *region = NULL;

	*memory = key;
	pthread_mutex_lock(&table->lock);
	if (region_table_add(table, key, &grant, &region))
		abort();
	pthread_mutex_unlock(&table->lock);
	return region;
}

/* Freed as a program's memory is after ibv_dereg_mr: a sanitizer sees who still uses it. */
static void drop_with_memory(struct region_table *table, struct rc_region *region)
{
	uint32_t *memory = (uint32_t *)(void *)region->grant.mem;

	drop(table, region);
	*memory = 0;
	free(memory);
}

static void *write_regions(void *arg)
{
	struct writer *self = arg;
	struct region_table *table = &self->crowd->table;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct rc_region *regions[OWN_KEYS];

		for (uint32_t k = 0; k < OWN_KEYS; k++)
			regions[k] = add_with_memory(table, passing_key(self->number, k));
		for (uint32_t k = 0; k < OWN_KEYS; k++)
			drop_with_memory(table, regions[(i + k) % OWN_KEYS]);
		/* Now and then one more, so that the table grows meanwhile. */
		if (i % 64 == 0)
			add_with_memory(table, nth_key(WRITERS * i + self->number) | 1u << 31);
	}
	atomic_fetch_sub(&self->crowd->writers, 1);
	return NULL;
}

static bool is_right(const struct rc_region *region, uint32_t key)
{
	return region->grant.iova == key && *(uint32_t *)(void *)region->grant.mem == key;
}

static void *look_up(void *arg)
{
	struct crowd *crowd = arg;

	for (uint32_t i = 0; atomic_load(&crowd->writers); i++) {
		uint32_t lasting = lasting_key(i % OWN_KEYS);
		uint32_t passing = passing_key(i % WRITERS, i / WRITERS % OWN_KEYS);
		struct rc_region *region = region_table_get(&crowd->table, lasting);

		if (!region)
			atomic_fetch_add(&crowd->missed, 1);
		else if (!is_right(region, lasting))
			atomic_fetch_add(&crowd->wrong, 1);
		if (region)
			region_table_put(region);
		region = region_table_get(&crowd->table, passing);
		if (region && !is_right(region, passing))
			atomic_fetch_add(&crowd->wrong, 1);
		if (region)
			region_table_put(region);
	}
	return NULL;
}

static void free_memory(const struct rc_region *region)
{
	free(region->grant.mem);
}

static void test_get_is_right_while_others_add_and_remove(void **state)
{
	struct crowd crowd = {.table = REGION_TABLE_INIT(1 << 20), .writers = WRITERS};
	struct writer writers[WRITERS];
	pthread_t threads[READERS + WRITERS];

	(void)state;
	for (uint32_t i = 0; i < OWN_KEYS; i++)
		add_with_memory(&crowd.table, lasting_key(i));
	for (uint32_t i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){&crowd, i};
		assert_int_equal(pthread_create(&threads[i], NULL, write_regions, &writers[i]), 0);
	}
	for (unsigned i = WRITERS; i < WRITERS + READERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, look_up, &crowd), 0);
	for (unsigned i = 0; i < WRITERS + READERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(atomic_load(&crowd.missed), 0);
	assert_int_equal(atomic_load(&crowd.wrong), 0);
	assert_int_equal(crowd.table.count, OWN_KEYS + WRITERS * ((ROUNDS + 63) / 64));
	region_table_walk(&crowd.table, free_memory);
	region_table_fini(&crowd.table);
}

/* ---- a region that moves to another slot ---- */

#define MOVES (100000u / SHORTER)

struct mover {
	struct region_table table;
	atomic_uint stage; /* odd: the second region is there */
	atomic_bool over;
	atomic_uint missed;
};

static void *look_for_the_second(void *arg)
{
	struct mover *mover = arg;

	while (!atomic_load(&mover->over)) {
		unsigned before = atomic_load(&mover->stage);
		bool found = has(&mover->table, 512);

		if (before % 2 && !found && atomic_load(&mover->stage) == before)
			atomic_fetch_add(&mover->missed, 1);
	}
	return NULL;
}

/* Both belong into slot 0. The second moves there when the first goes. */
static void test_get_finds_a_region_while_it_moves(void **state)
{
	struct mover mover = {.table = REGION_TABLE_INIT(MANY)};
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, look_for_the_second, &mover), 0);
	for (unsigned i = 0; i < MOVES; i++) {
		struct rc_region *first = add(&mover.table, 256), *second = add(&mover.table, 512);

		atomic_fetch_add(&mover.stage, 1);
		drop(&mover.table, first);
		atomic_fetch_add(&mover.stage, 1);
		drop(&mover.table, second);
	}
	atomic_store(&mover.over, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(atomic_load(&mover.missed), 0);
	region_table_fini(&mover.table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_get_finds_what_was_added_while_the_table_grows),
		cmocka_unit_test(test_add_refuses_a_key_in_use_and_more_than_the_maximum),
		cmocka_unit_test(test_get_of_key_0_finds_nothing),
		cmocka_unit_test(test_remove_leaves_keys_of_the_same_slot_in_reach),
		cmocka_unit_test(test_remove_changes_the_version),
		cmocka_unit_test(test_free_waits_for_holders),
		cmocka_unit_test(test_get_is_right_while_others_add_and_remove),
		cmocka_unit_test(test_get_finds_a_region_while_it_moves),
	};

	return cmocka_run_group_tests_name("verbs_region_table", tests, NULL, NULL);
}
