/* SPDX-License-Identifier: MIT */
/* What both sides of ibmsg-perf say: it comes through, and nothing else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../../tools/perf/hello.h"
#include "../../../tools/perf/options.h"

static void test_hello_comes_through(void **state)
{
	struct hello in = {.mode = MODE_STREAM, .size = MAX_SIZE}, out;
	struct answer answer = {.threads = 258}, got;
	uint8_t bytes[HELLO_BYTES];

	(void)state;
	hello_put(bytes, &in);
	assert_true(hello_get(&out, bytes, sizeof(bytes)));
	assert_true(out.mode == in.mode && out.size == in.size);
	answer_put(bytes, &answer);
	assert_true(answer_get(&got, bytes, ANSWER_BYTES));
	assert_int_equal(got.threads, 258);
}

static void test_hello_of_strangers_is_refused(void **state)
{
	struct hello hello = {.mode = MODE_ECHO, .size = 64};
	struct answer answer;
	uint8_t bytes[HELLO_BYTES];

	(void)state;
	assert_false(hello_get(&hello, NULL, 0));
	assert_false(answer_get(&answer, NULL, 0));
	hello_put(bytes, &hello);
	assert_false(hello_get(&hello, bytes, sizeof(bytes) - 1));
	bytes[7] = MODE_STREAM + 1;
	assert_false(hello_get(&hello, bytes, sizeof(bytes)));
	hello_put(bytes, &(struct hello){.mode = MODE_ECHO, .size = 0});
	assert_false(hello_get(&hello, bytes, sizeof(bytes)));
	hello_put(bytes, &(struct hello){.mode = MODE_ECHO, .size = MAX_SIZE + 1});
	assert_false(hello_get(&hello, bytes, sizeof(bytes)));
	hello_put(bytes, &hello);
	bytes[0] ^= 1;
	assert_false(hello_get(&hello, bytes, sizeof(bytes)));
	answer_put(bytes, &(struct answer){.threads = 0});
	assert_false(answer_get(&answer, bytes, ANSWER_BYTES));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello_comes_through),
		cmocka_unit_test(test_hello_of_strangers_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
