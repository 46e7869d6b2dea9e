/* SPDX-License-Identifier: MIT */
/* Rules 3, 8 and 9 of progress/policy.h, as far as they are about one source of data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "progress/policy.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void test_policy_finds_hand_source_over(void **state)
{
	static const struct {
		unsigned found, looks; /* so many looks are not enough; one more is */
	} rows[] = {{1, 63}, {2, 31}, {32, 1}, {64, 0}, {100, 0}};

	(void)state;
	for (unsigned row = 0; row < COUNT(rows); row++) {
		struct policy_source source = {0};
		unsigned found = rows[row].found;

		for (unsigned i = 0; i < rows[row].looks; i++) {
			assert_false(policy_on_source_looked(&source, found, false, true));
			assert_false(policy_on_source_looked(&source, 0, false, true));
		}
		assert_true(policy_on_source_looked(&source, found, false, true));
		/* The count begins anew. */
		for (unsigned i = 0; i < rows[row].looks; i++)
			assert_false(policy_on_source_looked(&source, found, false, true));
		assert_true(policy_on_source_looked(&source, found, false, true));
	}
}

static void test_policy_free_source_is_handed_over_at_once(void **state)
{
	struct policy_source source = {0};

	(void)state;
	assert_true(policy_on_source_looked(&source, 0, true, true));
	policy_on_source_handed_over(&source);
	assert_false(policy_on_source_looked(&source, 0, true, true));
}

static void test_policy_source_stays_where_it_is(void **state)
{
	struct policy_source watched_for_room = {0}, owned = {0};

	(void)state;
	assert_false(policy_on_source_looked(&watched_for_room, 64, false, false));
	policy_on_source_handed_over(&owned);
	assert_false(policy_on_source_looked(&owned, 64, false, true));
}

static void test_policy_hand_over_is_refused_to_sleepers(void **state)
{
	struct policy policy = POLICY_INITIALIZER;

	(void)state;
	assert_false(policy_may_hand_over(&policy, false)); /* the thread watches */
	for (int i = 0; i < 17; i++)
		policy_on_completion(&policy, true, 1); /* it yields */
	assert_true(policy_may_hand_over(&policy, false));
	assert_false(policy_may_hand_over(&policy, true));
	policy_on_wait_begin(&policy);
	assert_false(policy_may_hand_over(&policy, false));
	policy_on_wait_end(&policy);
	assert_true(policy_may_hand_over(&policy, false));
	/* A sleeper in a loop is in the way of its own sources alone. */
	policy_on_loop_sleep_begin(&policy);
	assert_true(policy_may_hand_over(&policy, false));
}

static void test_policy_source_not_looked_at_is_idle(void **state)
{
	struct policy_source source = {0};

	(void)state;
	policy_on_source_handed_over(&source);
	assert_false(policy_is_source_idle(&source)); /* the look that led to it */
	policy_on_source_looked(&source, 0, false, true);
	assert_false(policy_is_source_idle(&source));
	assert_true(policy_is_source_idle(&source));
}

static void test_policy_backlog_is_not_unread_once(void **state)
{
	struct policy_source source = {0};

	(void)state;
	assert_true(policy_is_source_unread(&source));
	policy_set_once(&source.has_backlog);
	assert_false(policy_is_source_unread(&source));
	assert_true(policy_is_source_unread(&source));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_finds_hand_source_over),
		cmocka_unit_test(test_policy_free_source_is_handed_over_at_once),
		cmocka_unit_test(test_policy_source_stays_where_it_is),
		cmocka_unit_test(test_policy_hand_over_is_refused_to_sleepers),
		cmocka_unit_test(test_policy_source_not_looked_at_is_idle),
		cmocka_unit_test(test_policy_backlog_is_not_unread_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
