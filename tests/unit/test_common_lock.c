/* SPDX-License-Identifier: MIT */
/* One holder at a time, and nobody who waits is forgotten. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "lock.h"

#define THREADS    4
#define TURNS      20000
#define MOST_LOOKS 10000000

static struct {
	struct lock lock;
	unsigned count; /* guarded by it */
} shared;

static void *count_up(void *unused)
{
	(void)unused;
	for (unsigned i = 0; i < TURNS; i++) {
		lock_take(&shared.lock);
		shared.count++;
		if (i % 64 == 0)
			sched_yield(); /* so that others come while it is held */
		lock_give(&shared.lock);
	}
	return NULL;
}

static void test_it_has_one_holder_at_a_time(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(shared.count, THREADS * TURNS);
	assert_true(lock_try(&shared.lock));
	assert_false(lock_try(&shared.lock));
	lock_give(&shared.lock);
}

static atomic_int taker; /* its number, for the kernel */

static void *take_once(void *unused)
{
	(void)unused;
	atomic_store(&taker, (int)gettid());
	lock_take(&shared.lock);
	lock_give(&shared.lock);
	return NULL;
}

static bool is_asleep(void)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", atomic_load(&taker));
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
	fclose(file);
	return state == 'S';
}

/* As if the holder had looked before the other one said that it wants it. */
static void test_one_whom_nobody_wakes_comes_back(void **state)
{
	pthread_t thread;

	(void)state;
	lock_take(&shared.lock);
	assert_int_equal(pthread_create(&thread, NULL, take_once, NULL), 0);
	for (unsigned i = 0; !lock_is_wanted(&shared.lock) || !is_asleep(); i++) {
		assert_true(i < MOST_LOOKS);
		sched_yield();
	}
	__atomic_store_n(&shared.lock.state, LOCK_FREE, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_it_has_one_holder_at_a_time),
		cmocka_unit_test(test_one_whom_nobody_wakes_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
