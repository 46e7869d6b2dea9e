/* SPDX-License-Identifier: MIT */
/*
 * Random sequences of events for progress/policy.h, in a world with a clock of its own, against
 * what must always hold. A failure names its seed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "progress/policy.h"

#define NEVER       UINT64_MAX
#define NUM_SOURCES 3

struct world {
	struct policy policy;
	struct policy_source sources[NUM_SOURCES];
	bool slept_for[NUM_SOURCES];
	bool looked_at[NUM_SOURCES]; /* or handed over, since the last tick */
	uint64_t now;
	uint64_t seed, random;

	struct policy_sleep sleep; /* of the thread */
	uint64_t tick_at, timer_at;
	bool woken;

	uint64_t unsent_since; /* NEVER: all is sent */
	bool unread;           /* data is there */
	int waiters, loop_sleeps, long_moves;
	unsigned turn;
};

/* As an assertion, which also says how to see it again. */
#define MUST(world, what)                                                                          \
	do {                                                                                       \
		if (!(what))                                                                       \
			fail_msg("seed %lu: not so: %s", (unsigned long)(world)->seed, #what);     \
	} while (0)

static unsigned pick(struct world *world, unsigned bound)
{
	world->random ^= world->random << 13;
	world->random ^= world->random >> 7;
	world->random ^= world->random << 17;
	return (unsigned)((world->random >> 16) % bound);
}

static void sleep_again(struct world *world)
{
	world->sleep = policy_on_thread_sleep(&world->policy);
	world->tick_at = world->sleep.tick_ns ? world->now + world->sleep.tick_ns : NEVER;
	if (world->sleep.tick_ns)
		MUST(world, world->sleep.tick_ns >= 100000 && world->sleep.tick_ns <= 2000000);
}

static bool is_owned(const struct world *world, int i)
{
	return atomic_load(&world->sources[i].poller_owned);
}

static void act(struct world *world, unsigned actions)
{
	for (int i = 0; i < NUM_SOURCES; i++) {
		struct policy_source *source = &world->sources[i];

		if (!is_owned(world, i))
			continue;
		if ((actions & POLICY_RECLAIM_ALL) ||
		    ((actions & POLICY_RECLAIM_IDLE) && policy_is_source_idle(source)))
			atomic_store(&source->poller_owned, false);
	}
	if (actions & POLICY_WAKE_THREAD)
		world->woken = true;
	if (actions & POLICY_FLUSH)
		world->unsent_since = NEVER;
	if (actions & POLICY_LOOK)
		world->unread = false;
}

static void arm_timer(struct world *world, unsigned ns)
{
	if (ns)
		world->timer_at = world->now + ns;
}

/* A source that pollers own stays theirs exactly if somebody looked at it. */
static void serve_tick(struct world *world)
{
	struct policy_tick tick = policy_on_tick_begin(&world->policy);
	bool was_owned[NUM_SOURCES];
	unsigned actions;

	for (int i = 0; i < NUM_SOURCES; i++)
		was_owned[i] = is_owned(world, i);
	actions = policy_on_tick_end(&world->policy, &tick, tick.asks_for_unread && world->unread);
	MUST(world, actions & POLICY_FLUSH);
	act(world, actions);
	for (int i = 0; i < NUM_SOURCES; i++) {
		bool stays = world->looked_at[i] && !policy_is_watching(&world->policy);

		MUST(world, !was_owned[i] || is_owned(world, i) == stays);
		world->looked_at[i] = false;
	}
}

/* As sleep_and_serve in thread.c. */
static void serve(struct world *world)
{
	if (world->woken) {
		world->woken = false;
		act(world, policy_on_thread_woken(&world->policy));
	}
	if (world->timer_at <= world->now) {
		world->timer_at = NEVER;
		act(world, policy_on_timer(&world->policy));
	}
	if (!world->sleep.watches_data)
		serve_tick(world);
	else
		world->unread = false;
	sleep_again(world);
}

static bool is_due(const struct world *world)
{
	return world->woken || world->tick_at <= world->now || world->timer_at <= world->now ||
	       (world->sleep.watches_data && world->unread);
}

static void check(const struct world *world)
{
	bool watches = policy_is_watching(&world->policy);

	for (int i = 0; i < NUM_SOURCES; i++)
		MUST(world, !is_owned(world, i) || (!watches && !world->waiters));
	/* A request never waits for longer than a tick. */
	MUST(world, world->unsent_since == NEVER || world->now - world->unsent_since <= 2000000);
	/* Whatever it sleeps on, it is what the mode says, or it is about to wake up. */
	MUST(world, is_due(world) || world->sleep.watches_data == watches);
}

static void pass_time(struct world *world, uint64_t ns)
{
	uint64_t until = world->now + ns;

	for (;;) {
		uint64_t next;

		while (is_due(world))
			serve(world);
		check(world);
		next = world->tick_at < world->timer_at ? world->tick_at : world->timer_at;
		if (next > until)
			break;
		world->now = next;
	}
	world->now = until;
}

static void look_at_source(struct world *world, int i)
{
	bool is_free = i == 0;

	world->looked_at[i] = true;
	if (policy_on_source_looked(&world->sources[i], pick(world, 40), is_free, true) &&
	    policy_may_hand_over(&world->policy, world->slept_for[i]))
		policy_on_source_handed_over(&world->sources[i]);
}

static void step(struct world *world)
{
	switch (pick(world, 12)) {
	case 0:
		act(world, policy_on_completion(&world->policy, pick(world, 2), world->turn++));
		break;
	case 1:
		for (unsigned i = pick(world, 300); i; i--)
			act(world, policy_on_miss(&world->policy, world->turn++, pick(world, 2)));
		break;
	case 2:
		if (world->unsent_since == NEVER)
			world->unsent_since = world->now;
		arm_timer(world, policy_on_kick(&world->policy));
		break;
	case 3:
		world->waiters++;
		act(world, policy_on_wait_begin(&world->policy));
		break;
	case 4:
	case 5:
		if (world->waiters) {
			world->waiters--;
			arm_timer(world, policy_on_wait_end(&world->policy));
		}
		break;
	case 6:
		if (!world->loop_sleeps) {
			world->loop_sleeps++;
			world->slept_for[1] = true;
			act(world, policy_on_loop_sleep_begin(&world->policy));
			MUST(world, !is_owned(world, 1));
		}
		break;
	case 7:
		if (world->loop_sleeps) {
			act(world, policy_on_loop_wakeup(&world->policy));
			world->loop_sleeps--;
			world->slept_for[1] = false;
			policy_on_loop_sleep_end(&world->policy);
		}
		break;
	case 8:
		look_at_source(world, (int)pick(world, NUM_SOURCES));
		break;
	case 9:
		world->long_moves = !world->long_moves;
		policy_on_long_move(&world->policy, world->long_moves);
		break;
	case 10:
		world->unread = true;
		break;
	default:
		pass_time(world, pick(world, 4) ? pick(world, 200000) : pick(world, 5000000));
	}
	check(world);
}

static struct world random_world(uint64_t seed)
{
	struct world world = {
		.policy = POLICY_INITIALIZER,
		.seed = seed,
		.random = seed * 0x9e3779b97f4a7c15u + 1,
		.timer_at = NEVER,
		.unsent_since = NEVER,
	};

	sleep_again(&world);
	for (int i = 0; i < 300; i++)
		step(&world);
	return world;
}

static void end_all_sleeps(struct world *world, bool loops_too)
{
	for (; world->waiters; world->waiters--)
		arm_timer(world, policy_on_wait_end(&world->policy));
	if (world->long_moves)
		policy_on_long_move(&world->policy, false);
	world->long_moves = 0;
	for (; loops_too && world->loop_sleeps; world->loop_sleeps--)
		policy_on_loop_sleep_end(&world->policy);
}

/* Everybody goes away: the thread watches after a tick that saw them and two that did not. */
static void test_policy_random_all_gone_thread_watches(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 500; seed++) {
		struct world world = random_world(seed);

		end_all_sleeps(&world, true);
		pass_time(&world, 3 * 2000000);
		MUST(&world, world.sleep.watches_data);
	}
}

/* All but a loop that sleeps: the thread watches after 25 more. */
static void test_policy_random_loop_not_seen_thread_watches(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 500; seed++) {
		struct world world = random_world(seed);

		end_all_sleeps(&world, false);
		pass_time(&world, 27 * 2000000);
		MUST(&world, world.sleep.watches_data);
	}
}

/* Somebody polls, never looks at the whole set, and data comes: it is read in a few ticks. */
static void test_policy_random_unread_data_is_read(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 500; seed++) {
		struct world world = random_world(seed);

		end_all_sleeps(&world, true);
		world.unread = true;
		for (int i = 0; i < 100 && world.unread; i++) {
			policy_on_miss(&world.policy, 1, false);
			pass_time(&world, 60000);
		}
		MUST(&world, !world.unread);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_random_all_gone_thread_watches),
		cmocka_unit_test(test_policy_random_loop_not_seen_thread_watches),
		cmocka_unit_test(test_policy_random_unread_data_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
