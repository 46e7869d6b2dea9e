/* SPDX-License-Identifier: MIT */
/*
 * The rules of progress/policy.h, one by one; those of sources are in test_progress_sources.c.
 * Numbers are written out instead of taken from tuning.h: whoever changes one there is to see here
 * which rule it belongs to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "progress/policy.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* ---- short words for what happens ---- */

static struct policy fresh(void)
{
	struct policy policy = POLICY_INITIALIZER;

	return policy;
}

/* Pollers found data often enough. */
static struct policy yielding(void)
{
	struct policy policy = fresh();

	for (int i = 0; i < 17; i++)
		policy_on_completion(&policy, true, 1);
	assert_false(policy_is_watching(&policy));
	return policy;
}

static unsigned tick_with(struct policy *policy, bool unread)
{
	struct policy_tick tick = policy_on_tick_begin(policy);

	return policy_on_tick_end(policy, &tick, tick.asks_for_unread && unread);
}

static unsigned tick(struct policy *policy)
{
	return tick_with(policy, false);
}

static void poll_once(struct policy *policy)
{
	policy_on_miss(policy, 1, false);
}

/* A tick of a poller that is at work. */
static unsigned polled_tick(struct policy *policy)
{
	poll_once(policy);
	return tick(policy);
}

static void assert_sleep(const struct policy *policy, bool watches_data, unsigned tick_ns)
{
	struct policy_sleep sleep = policy_on_thread_sleep(policy);

	assert_int_equal(sleep.watches_data, watches_data);
	assert_int_equal(sleep.tick_ns, tick_ns);
}

/* ---- rules 1 and 5: who drives ---- */

static void test_policy_fresh_watches_without_tick(void **state)
{
	struct policy policy = fresh();

	(void)state;
	assert_sleep(&policy, true, 0);
}

enum poll { MISS, HIT, COMPLETION };

static unsigned do_poll(struct policy *policy, enum poll poll)
{
	if (poll == MISS)
		return policy_on_miss(policy, 1, false);
	return policy_on_completion(policy, poll == HIT, 1);
}

/* After @first of one kind and @second of another the thread still watches; one more is enough. */
static void test_policy_polls_make_thread_yield(void **state)
{
	static const struct {
		enum poll first, second;
		int num_first, num_second;
	} rows[] = {
		{HIT, HIT, 16, 0},
		{MISS, MISS, 256, 0},
		{HIT, MISS, 16, 256},
		{MISS, HIT, 256, 16},
		{COMPLETION, HIT, 1000, 16}, /* completions that others moved do not count */
		{COMPLETION, MISS, 1000, 256},
	};

	(void)state;
	for (unsigned row = 0; row < COUNT(rows); row++) {
		struct policy policy = fresh();

		for (int i = 0; i < rows[row].num_first; i++)
			assert_int_equal(do_poll(&policy, rows[row].first), 0);
		for (int i = 0; i < rows[row].num_second; i++)
			assert_int_equal(do_poll(&policy, rows[row].second), 0);
		assert_sleep(&policy, true, 0);
		assert_int_equal(do_poll(&policy, rows[row].second), POLICY_WAKE_THREAD);
		assert_sleep(&policy, false, 100000);
		assert_int_equal(do_poll(&policy, rows[row].second), 0); /* it is awake already */
	}
}

static void test_policy_completion_breaks_row_of_misses(void **state)
{
	struct policy policy = fresh();

	(void)state;
	for (int i = 0; i < 256; i++)
		policy_on_miss(&policy, 1, false);
	policy_on_completion(&policy, false, 1);
	for (int i = 0; i < 256; i++)
		assert_int_equal(policy_on_miss(&policy, 1, false), 0);
	assert_int_equal(policy_on_miss(&policy, 1, false), POLICY_WAKE_THREAD);
}

/* Everything is counted anew after the thread took over, polls as well as ticks. */
static void test_policy_counts_begin_anew_after_take_over(void **state)
{
	static const struct {
		enum poll poll;
		int enough;
	} rows[] = {{HIT, 16}, {MISS, 256}};

	(void)state;
	for (unsigned row = 0; row < COUNT(rows); row++) {
		struct policy policy = fresh();

		for (int round = 0; round < 3; round++) {
			for (int i = 0; i < rows[row].enough; i++)
				assert_int_equal(do_poll(&policy, rows[row].poll), 0);
			assert_int_equal(do_poll(&policy, rows[row].poll), POLICY_WAKE_THREAD);
			tick_with(&policy, true);
			assert_false(policy_is_watching(&policy));
			tick_with(&policy, true);
			assert_true(policy_is_watching(&policy));
		}
	}
}

/* ---- rule 2: nobody polls ---- */

static void test_policy_poller_stops_thread_takes_over(void **state)
{
	struct policy policy = yielding();

	(void)state;
	for (int i = 0; i < 10; i++)
		assert_int_equal(polled_tick(&policy), POLICY_RECLAIM_IDLE | POLICY_FLUSH);
	assert_int_equal(tick(&policy), POLICY_RECLAIM_IDLE | POLICY_FLUSH);
	assert_false(policy_is_watching(&policy));
	assert_int_equal(tick(&policy), POLICY_RECLAIM_ALL | POLICY_FLUSH);
	assert_sleep(&policy, true, 0);
}

static void test_policy_poller_pauses_keeps_the_drive(void **state)
{
	struct policy policy = yielding();

	(void)state;
	for (int i = 0; i < 100; i++) {
		polled_tick(&policy);
		tick(&policy);
		assert_false(policy_is_watching(&policy));
	}
}

/* Every way to show that somebody is there, each once per tick. */
static void test_policy_any_sign_of_life_counts(void **state)
{
	(void)state;
	for (int sign = 0; sign < 6; sign++) {
		struct policy policy = yielding();

		for (int i = 0; i < 10; i++) {
			if (sign == 0)
				policy_on_miss(&policy, 1, false);
			else if (sign == 1)
				policy_on_completion(&policy, false, 1);
			else if (sign == 2)
				policy_on_loop_wakeup(&policy);
			else if (sign == 3)
				policy_on_loop_sleep_begin(&policy);
			if (sign == 3 || sign == 4)
				policy_on_loop_sleep_end(&policy);
			if (sign == 5) {
				policy_on_wait_begin(&policy);
				policy_on_wait_end(&policy);
			}
			tick(&policy);
			assert_false(policy_is_watching(&policy));
			if (sign == 4)
				policy_on_loop_sleep_begin(&policy);
		}
	}
}

static void test_policy_loop_sleeper_is_trusted_longer(void **state)
{
	struct policy policy = fresh();

	(void)state;
	assert_int_equal(policy_on_loop_sleep_begin(&policy),
			 POLICY_RECLAIM_ALL | POLICY_WAKE_THREAD | POLICY_FLUSH);
	tick(&policy); /* before which it was seen */
	for (int i = 0; i < 24; i++)
		tick(&policy);
	assert_false(policy_is_watching(&policy));
	assert_int_equal(tick(&policy), POLICY_RECLAIM_ALL | POLICY_FLUSH);
	assert_true(policy_is_watching(&policy));
}

static void test_policy_loop_sleep_over_ends_the_trust(void **state)
{
	struct policy policy = fresh();

	(void)state;
	policy_on_loop_sleep_begin(&policy);
	for (int i = 0; i < 10; i++)
		tick(&policy);
	policy_on_loop_sleep_end(&policy);
	tick(&policy); /* before which it was seen */
	tick(&policy);
	assert_false(policy_is_watching(&policy));
	tick(&policy);
	assert_true(policy_is_watching(&policy));
}

/* ---- rule 3: data lies unread ---- */

static void test_policy_unread_data_makes_thread_take_over(void **state)
{
	struct policy policy = yielding();

	(void)state;
	poll_once(&policy);
	tick_with(&policy, true);
	assert_false(policy_is_watching(&policy));
	poll_once(&policy);
	assert_int_equal(tick_with(&policy, true), POLICY_RECLAIM_ALL | POLICY_FLUSH);
	assert_true(policy_is_watching(&policy));
}

static void test_policy_data_read_in_time_is_not_unread(void **state)
{
	struct policy policy = yielding();

	(void)state;
	for (int i = 0; i < 10; i++) {
		poll_once(&policy);
		tick_with(&policy, i % 2);
		assert_false(policy_is_watching(&policy));
	}
}

/* Whoever looks at the whole set will see the data: a system call less. */
static void test_policy_look_at_set_makes_question_needless(void **state)
{
	struct policy policy = yielding();
	struct policy_tick tick;

	(void)state;
	tick = policy_on_tick_begin(&policy);
	assert_true(tick.asks_for_unread);
	assert_int_equal(policy_on_miss(&policy, 8, false), POLICY_LOOK);
	tick = policy_on_tick_begin(&policy);
	assert_false(tick.asks_for_unread);
	policy_on_loop_wakeup(&policy);
	tick = policy_on_tick_begin(&policy);
	assert_false(tick.asks_for_unread);
	tick = policy_on_tick_begin(&policy);
	assert_true(tick.asks_for_unread);
}

/* A loop that sleeps is patient about polls, not about data that should have woken it. */
static void test_policy_unread_data_ends_trust_in_loop(void **state)
{
	struct policy policy = fresh();

	(void)state;
	policy_on_loop_sleep_begin(&policy);
	tick_with(&policy, true);
	tick_with(&policy, true);
	assert_true(policy_is_watching(&policy));
}

/* ---- rule 4: sleepers in progress_wait, and long copies ---- */

static void test_policy_waiter_is_not_taken_for_gone(void **state)
{
	struct policy policy = yielding();

	(void)state;
	policy_on_wait_begin(&policy);
	for (int i = 0; i < 100; i++) {
		struct policy_tick tick = policy_on_tick_begin(&policy);

		assert_false(tick.asks_for_unread);
		policy_on_tick_end(&policy, &tick, true);
	}
	assert_sleep(&policy, false, 0);
	assert_int_not_equal(policy_on_wait_end(&policy), 0);
	/* It was seen before this tick, and has driven the data itself. */
	tick_with(&policy, true);
	tick_with(&policy, true);
	assert_false(policy_is_watching(&policy));
	tick(&policy);
	assert_true(policy_is_watching(&policy));
}

static void test_policy_long_move_is_not_taken_for_gone(void **state)
{
	struct policy policy = yielding();

	(void)state;
	policy_on_long_move(&policy, true);
	for (int i = 0; i < 100; i++)
		tick_with(&policy, true);
	assert_sleep(&policy, false, 2000000); /* the tick goes on, unlike with a waiter */
	policy_on_long_move(&policy, false);
	tick(&policy);
	tick(&policy);
	assert_true(policy_is_watching(&policy));
}

/* ---- rule 5: sleepers relieve the thread ---- */

static void test_policy_waiter_relieves_thread(void **state)
{
	struct policy policy = fresh();

	(void)state;
	assert_int_equal(policy_on_wait_begin(&policy),
			 POLICY_RECLAIM_ALL | POLICY_WAKE_THREAD | POLICY_FLUSH);
	assert_sleep(&policy, false, 0);
	/* It has yielded already: a second one does not wake it. */
	assert_int_equal(policy_on_wait_begin(&policy), POLICY_RECLAIM_ALL | POLICY_FLUSH);
	assert_int_equal(policy_on_loop_sleep_begin(&policy), POLICY_RECLAIM_ALL | POLICY_FLUSH);
}

static void test_policy_waiter_that_leaves_arms_one_tick(void **state)
{
	struct policy policy = fresh();

	(void)state;
	policy_on_wait_begin(&policy);
	policy_on_wait_begin(&policy);
	assert_int_equal(policy_on_wait_end(&policy), 100000);
	assert_sleep(&policy, false, 0);
	assert_int_equal(policy_on_wait_end(&policy), 0); /* it is armed */
	assert_sleep(&policy, false, 100000);
	assert_int_equal(policy_on_timer(&policy), 0);
	policy_on_wait_begin(&policy);
	assert_int_equal(policy_on_wait_end(&policy), 100000);
}

static void test_policy_loops_are_limited(void **state)
{
	struct policy policy = fresh();

	(void)state;
	for (int i = 0; i < 8; i++)
		assert_true(policy_on_loop_attach(&policy));
	assert_false(policy_on_loop_attach(&policy));
	assert_false(policy_on_loop_attach(&policy));
	policy_on_loop_detach(&policy);
	assert_true(policy_on_loop_attach(&policy));
	assert_false(policy_on_loop_attach(&policy));
}

/* ---- rule 6: ticks ---- */

static void test_policy_tick_doubles_while_all_is_well(void **state)
{
	static const unsigned lengths[] = {100000,  200000,  400000, 800000,
					   1600000, 2000000, 2000000};
	struct policy policy = yielding();

	(void)state;
	for (unsigned i = 0; i < COUNT(lengths); i++) {
		assert_sleep(&policy, false, lengths[i]);
		polled_tick(&policy);
	}
}

/* What happens before a tick, and how long the next one is when this one was 1.6 ms. */
static void test_policy_tick_is_short_when_in_doubt(void **state)
{
	static const struct {
		bool polls, unread, loop_sleeps;
		unsigned tick_ns;
	} rows[] = {
		{true, false, false, 2000000}, {false, false, false, 100000},
		{true, true, false, 100000},   {false, true, false, 100000},
		{false, false, true, 2000000}, {false, true, true, 100000},
	};

	(void)state;
	for (unsigned row = 0; row < COUNT(rows); row++) {
		struct policy policy = yielding();

		for (int i = 0; i < 4; i++)
			polled_tick(&policy);
		if (rows[row].loop_sleeps) {
			policy_on_loop_sleep_begin(&policy);
			polled_tick(&policy);
		}
		if (rows[row].polls)
			poll_once(&policy);
		tick_with(&policy, rows[row].unread);
		assert_sleep(&policy, false, rows[row].tick_ns);
	}
}

/* ---- rule 7: looks at the whole set ---- */

static void test_policy_pollers_look_at_whole_set(void **state)
{
	struct policy policy = yielding();

	(void)state;
	for (unsigned turn = 0; turn < 3000; turn++) {
		assert_int_equal(policy_on_miss(&policy, turn, false), turn % 8 ? 0 : POLICY_LOOK);
		assert_int_equal(policy_on_miss(&policy, turn, true),
				 turn % 1024 ? 0 : POLICY_LOOK);
		assert_int_equal(policy_on_completion(&policy, turn & 1, turn),
				 turn % 64 ? 0 : POLICY_LOOK);
	}
	assert_int_equal(policy_on_loop_wakeup(&policy), POLICY_LOOK);
}

static void test_policy_last_miss_wakes_and_looks(void **state)
{
	struct policy policy = fresh();

	(void)state;
	for (int i = 0; i < 256; i++)
		policy_on_miss(&policy, 1, false);
	assert_int_equal(policy_on_miss(&policy, 256, false), POLICY_WAKE_THREAD | POLICY_LOOK);
}

/* ---- rule 10: sends that were held back ---- */

static void test_policy_kick_arms_timer_without_tick(void **state)
{
	static const struct {
		bool yields, waits, loop_sleeps;
		unsigned ns;
	} rows[] = {
		{false, false, false, 50000}, {true, false, false, 0}, /* the tick flushes */
		{true, true, false, 50000},   {true, false, true, 50000}, {true, true, true, 50000},
	};

	(void)state;
	for (unsigned row = 0; row < COUNT(rows); row++) {
		struct policy policy = rows[row].yields ? yielding() : fresh();

		if (rows[row].waits)
			policy_on_wait_begin(&policy);
		if (rows[row].loop_sleeps)
			policy_on_loop_sleep_begin(&policy);
		assert_int_equal(policy_on_kick(&policy), rows[row].ns);
		assert_int_equal(policy_on_kick(&policy), 0); /* one is on its way */
		assert_int_equal(policy_on_timer(&policy), rows[row].ns ? POLICY_FLUSH : 0);
		assert_int_equal(policy_on_timer(&policy), 0);
		assert_int_equal(policy_on_kick(&policy), rows[row].ns);
	}
}

/* Who defers something without a kick relies on this. */
static void test_policy_ticks_only_while_others_drive_awake(void **state)
{
	struct policy policy = fresh();

	(void)state;
	assert_false(policy_ticks(&policy));
	policy = yielding();
	assert_true(policy_ticks(&policy));
	policy_on_wait_begin(&policy);
	assert_false(policy_ticks(&policy));
	assert_int_equal(policy_on_thread_sleep(&policy).tick_ns, 0);
	policy_on_wait_end(&policy);
	assert_true(policy_ticks(&policy));
}

static void test_policy_kick_comes_before_armed_tick(void **state)
{
	struct policy policy = fresh();

	(void)state;
	policy_on_wait_begin(&policy);
	policy_on_wait_begin(&policy);
	assert_int_equal(policy_on_wait_end(&policy), 100000);
	assert_int_equal(policy_on_kick(&policy), 50000);
	assert_int_equal(policy_on_wait_end(&policy), 0); /* must not put the kick off */

	policy = fresh();
	policy_on_wait_begin(&policy);
	assert_int_equal(policy_on_kick(&policy), 50000);
	assert_int_equal(policy_on_wait_end(&policy), 0);
}

static void test_policy_woken_thread_flushes(void **state)
{
	struct policy policy = fresh();

	(void)state;
	assert_int_equal(policy_on_thread_woken(&policy), POLICY_FLUSH);
}

/* ---- fork ---- */

static void test_policy_reset_is_fresh(void **state)
{
	struct policy policy = {
		.mode = POLICY_YIELD,
		.polled = true,
		.looked = true,
		.kicked = true,
		.timer_armed = true,
		.hits = 1,
		.misses = 1,
		.tick_ns = 2000000,
		.waiters = 1,
		.loops = 1,
		.loop_sleeps = 1,
		.long_moves = 1,
		.quiet_ticks = 1,
		.unread_ticks = 1,
	};

	(void)state;
	policy_reset(&policy);
	assert_int_equal(policy.mode, POLICY_WATCH);
	assert_false(policy.polled || policy.looked || policy.kicked || policy.timer_armed);
	assert_int_equal(policy.tick_ns, 100000);
	assert_int_equal(policy.hits + policy.misses, 0);
	assert_int_equal(policy.waiters, 0);
	assert_int_equal(policy.loops, 0);
	assert_int_equal(policy.loop_sleeps, 0);
	assert_int_equal(policy.long_moves, 0);
	assert_int_equal(policy.quiet_ticks + policy.unread_ticks, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_fresh_watches_without_tick),
		cmocka_unit_test(test_policy_polls_make_thread_yield),
		cmocka_unit_test(test_policy_completion_breaks_row_of_misses),
		cmocka_unit_test(test_policy_counts_begin_anew_after_take_over),
		cmocka_unit_test(test_policy_poller_stops_thread_takes_over),
		cmocka_unit_test(test_policy_poller_pauses_keeps_the_drive),
		cmocka_unit_test(test_policy_any_sign_of_life_counts),
		cmocka_unit_test(test_policy_loop_sleeper_is_trusted_longer),
		cmocka_unit_test(test_policy_loop_sleep_over_ends_the_trust),
		cmocka_unit_test(test_policy_unread_data_makes_thread_take_over),
		cmocka_unit_test(test_policy_data_read_in_time_is_not_unread),
		cmocka_unit_test(test_policy_look_at_set_makes_question_needless),
		cmocka_unit_test(test_policy_unread_data_ends_trust_in_loop),
		cmocka_unit_test(test_policy_waiter_is_not_taken_for_gone),
		cmocka_unit_test(test_policy_long_move_is_not_taken_for_gone),
		cmocka_unit_test(test_policy_waiter_relieves_thread),
		cmocka_unit_test(test_policy_waiter_that_leaves_arms_one_tick),
		cmocka_unit_test(test_policy_loops_are_limited),
		cmocka_unit_test(test_policy_tick_doubles_while_all_is_well),
		cmocka_unit_test(test_policy_tick_is_short_when_in_doubt),
		cmocka_unit_test(test_policy_pollers_look_at_whole_set),
		cmocka_unit_test(test_policy_last_miss_wakes_and_looks),
		cmocka_unit_test(test_policy_kick_arms_timer_without_tick),
		cmocka_unit_test(test_policy_ticks_only_while_others_drive_awake),
		cmocka_unit_test(test_policy_kick_comes_before_armed_tick),
		cmocka_unit_test(test_policy_woken_thread_flushes),
		cmocka_unit_test(test_policy_reset_is_fresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
