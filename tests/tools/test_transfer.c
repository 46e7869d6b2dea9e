/* SPDX-License-Identifier: MIT */
/* The messages of a transfer, to bytes and back, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../tools/transfer/transfer.h"

static void test_a_message_comes_back_as_it_was(void **state)
{
	uint8_t bytes[TRANSFER_HEAD_BYTES + 4];
	struct transfer_message again;

	(void)state;
	for (int type = TRANSFER_BEGIN; type <= TRANSFER_FAILED; type++) {
		const struct transfer_message message = {
			.type = (enum transfer_type)type,
			.crc = 0x01020304,
			.bytes = 0x1122334455667788,
		};

		transfer_put_head(bytes, &message);
		memset(bytes + TRANSFER_HEAD_BYTES, 'n', 4);
		assert_true(transfer_get(bytes, sizeof(bytes), &again));
		assert_int_equal(again.type, type);
		assert_int_equal(again.crc, message.crc);
		assert_int_equal(again.bytes, message.bytes);
		assert_int_equal(again.len, 4);
		assert_memory_equal(again.data, "nnnn", 4);
	}
}

static void test_the_bytes_are_big_endian(void **state)
{
	static const uint8_t expected[TRANSFER_HEAD_BYTES] = {3, 0, 0, 0, 1, 2, 3, 4,
							      0, 0, 0, 0, 0, 0, 1, 0};
	const struct transfer_message message = {
		.type = TRANSFER_END, .crc = 0x01020304, .bytes = 256};
	uint8_t bytes[TRANSFER_HEAD_BYTES];

	(void)state;
	transfer_put_head(bytes, &message);
	assert_memory_equal(bytes, expected, sizeof(expected));
}

static void test_what_is_short_is_none(void **state)
{
	const struct transfer_message message = {.type = TRANSFER_END};
	struct transfer_message untouched = {.type = TRANSFER_DONE};
	uint8_t bytes[TRANSFER_HEAD_BYTES];

	(void)state;
	transfer_put_head(bytes, &message);
	for (size_t len = 0; len < sizeof(bytes); len++)
		assert_false(transfer_get(bytes, len, &untouched));
	assert_int_equal(untouched.type, TRANSFER_DONE);
	assert_true(transfer_get(bytes, sizeof(bytes), &untouched));
	assert_int_equal(untouched.len, 0);
}

static void test_an_unknown_type_is_none(void **state)
{
	uint8_t bytes[TRANSFER_HEAD_BYTES] = {0};
	struct transfer_message message;

	(void)state;
	for (unsigned type = 0; type < 256; type++) {
		bytes[0] = (uint8_t)type;
		assert_int_equal(transfer_get(bytes, sizeof(bytes), &message),
				 type >= TRANSFER_BEGIN && type <= TRANSFER_FAILED);
	}
}

static void test_a_greeting_names_its_purpose(void **state)
{
	static const enum transfer_purpose purposes[] = {PURPOSE_TEXT, PURPOSE_FILE};
	uint8_t greeting[TRANSFER_GREETING_BYTES];

	(void)state;
	for (int i = 0; i < 2; i++) {
		transfer_put_greeting(greeting, purposes[i]);
		assert_int_equal(transfer_get_greeting(greeting, sizeof(greeting)), purposes[i]);
	}
}

/* An original ibmsg sends none, rxe pads what it is given, and others may send anything. */
static void test_whatever_else_is_for_messages(void **state)
{
	uint8_t greeting[TRANSFER_GREETING_BYTES + 1] = {0};

	(void)state;
	assert_int_equal(transfer_get_greeting(NULL, 0), PURPOSE_MESSAGES);
	assert_int_equal(transfer_get_greeting(greeting, 4), PURPOSE_MESSAGES);
	transfer_put_greeting(greeting, PURPOSE_FILE);
	assert_int_equal(transfer_get_greeting(greeting, 3), PURPOSE_MESSAGES);
	assert_int_equal(transfer_get_greeting(greeting, 5), PURPOSE_MESSAGES);
	greeting[3] = 'x';
	assert_int_equal(transfer_get_greeting(greeting, 4), PURPOSE_MESSAGES);
	greeting[3] = PURPOSE_FILE;
	greeting[2]++; /* another version */
	assert_int_equal(transfer_get_greeting(greeting, 4), PURPOSE_MESSAGES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_message_comes_back_as_it_was),
		cmocka_unit_test(test_the_bytes_are_big_endian),
		cmocka_unit_test(test_what_is_short_is_none),
		cmocka_unit_test(test_an_unknown_type_is_none),
		cmocka_unit_test(test_a_greeting_names_its_purpose),
		cmocka_unit_test(test_whatever_else_is_for_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
