/* SPDX-License-Identifier: MIT */
/* What two libiwarp ends say to each other: the bytes, round trips, and all that is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "record.h"

/* A copy that ends where an allocation ends, so that sanitizers see a read beyond it. */
static uint8_t *exact_copy(const void *bytes, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	if (len)
		memcpy(copy, bytes, len);
	return copy;
}

static int get(const void *bytes, size_t len, struct record *out)
{
	uint8_t *copy = exact_copy(bytes, len);
	const char *why = NULL;
	int error = record_get(copy, len, out, &why);

	free(copy);
	assert_true(error ? why && *why : !why);
	return error;
}

static const struct record advertisement = {
	.type = RECORD_ADVERTISEMENT,
	.rights = RECORD_READ | RECORD_WRITE,
	.address = 0x0102030405060708,
	.length = 0x0000111213141516,
	.key = 0x21222324,
};

/* ---- records ---- */

static void test_advertisement_has_the_documented_bytes(void **state)
{
	static const uint8_t expected[RECORD_LEN] = {
		'i',  'w',  'r',  0xad, 1,    2,    3,    0,    /* magic, version, type, rights */
		1,    2,    3,    4,    5,    6,    7,    8,    /* address */
		0x00, 0x00, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, /* length */
		0x21, 0x22, 0x23, 0x24, 0,    0,    0,    0,    /* key */
	};
	uint8_t out[RECORD_LEN];

	(void)state;
	memset(out, 0xee, sizeof(out));
	record_put(out, &advertisement);
	assert_memory_equal(out, expected, RECORD_LEN);
}

static void test_hello_has_the_documented_bytes(void **state)
{
	static const uint8_t expected[RECORD_LEN] = {'i', 'w', 'r', 0xad, 1, 1};
	struct record record = advertisement;
	uint8_t out[RECORD_LEN];

	(void)state;
	record.type = RECORD_HELLO; /* the rest of it does not go out */
	memset(out, 0xee, sizeof(out));
	record_put(out, &record);
	assert_memory_equal(out, expected, RECORD_LEN);
	assert_int_equal(get(out, RECORD_LEN, &record), 0);
	assert_int_equal(record.type, RECORD_HELLO);
}

static void test_advertisement_comes_back(void **state)
{
	uint8_t bytes[RECORD_LEN];
	struct record out;

	(void)state;
	record_put(bytes, &advertisement);
	memset(&out, 0xff, sizeof(out));
	assert_int_equal(get(bytes, RECORD_LEN, &out), 0);
	assert_int_equal(out.type, advertisement.type);
	assert_int_equal(out.rights, advertisement.rights);
	assert_int_equal(out.address, advertisement.address);
	assert_int_equal(out.length, advertisement.length);
	assert_int_equal(out.key, advertisement.key);
}

static void test_record_of_any_other_length_is_refused(void **state)
{
	uint8_t bytes[2 * RECORD_LEN] = {0};
	struct record out;

	(void)state;
	record_put(bytes, &advertisement);
	for (size_t len = 0; len <= sizeof(bytes); len++)
		assert_int_equal(get(bytes, len, &out), len == RECORD_LEN ? 0 : -EPROTO);
}

/* Every bit of what must be as it is. */
static void test_record_with_any_fixed_bit_changed_is_refused(void **state)
{
	static const uint8_t fixed[] = {0, 1, 2, 3, 4, 5, 7, 28, 29, 30, 31};
	uint8_t bytes[RECORD_LEN];
	struct record out;

	(void)state;
	record_put(bytes, &advertisement);
	for (unsigned i = 0; i < sizeof(fixed); i++) {
		for (unsigned bit = 0; bit < 8; bit++) {
			bytes[fixed[i]] ^= (uint8_t)(1u << bit);
			assert_int_equal(get(bytes, RECORD_LEN, &out), -EPROTO);
			bytes[fixed[i]] ^= (uint8_t)(1u << bit);
		}
	}
	assert_int_equal(get(bytes, RECORD_LEN, &out), 0);
}

static int get_region(uint64_t address, uint64_t length, uint8_t rights)
{
	struct record record = advertisement, out;
	uint8_t bytes[RECORD_LEN];

	record.address = address;
	record.length = length;
	record.rights = rights;
	record_put(bytes, &record);
	return get(bytes, RECORD_LEN, &out);
}

static void test_impossible_regions_are_refused(void **state)
{
	(void)state;
	assert_int_equal(get_region(0, 0, RECORD_READ), -EPROTO);
	assert_int_equal(get_region(0, 1, RECORD_READ), 0);
	assert_int_equal(get_region(0, RECORD_MAX_LENGTH, RECORD_READ), 0);
	assert_int_equal(get_region(0, RECORD_MAX_LENGTH + 1, RECORD_READ), -EPROTO);
	assert_int_equal(get_region(0, UINT64_MAX, RECORD_READ), -EPROTO);
	assert_int_equal(get_region(UINT64_MAX, 1, RECORD_READ), -EPROTO);
	assert_int_equal(get_region(UINT64_MAX - 1, 1, RECORD_READ), 0);
	assert_int_equal(get_region(UINT64_MAX - 99, 100, RECORD_READ), -EPROTO);
	assert_int_equal(
		get_region(UINT64_MAX - RECORD_MAX_LENGTH + 1, RECORD_MAX_LENGTH, RECORD_READ),
		-EPROTO);
	for (unsigned rights = 0; rights < 256; rights++)
		assert_int_equal(get_region(4096, 4096, (uint8_t)rights),
				 rights >= 1 && rights <= 3 ? 0 : -EPROTO);
}

static void test_hello_with_more_in_it_is_refused(void **state)
{
	static const uint8_t places[] = {6, 8, 15, 16, 23, 24, 27};
	static const struct record hello = {.type = RECORD_HELLO};
	uint8_t bytes[RECORD_LEN];
	struct record out;

	(void)state;
	for (unsigned i = 0; i < sizeof(places); i++) {
		record_put(bytes, &hello);
		bytes[places[i]] = 1;
		assert_int_equal(get(bytes, RECORD_LEN, &out), -EPROTO);
	}
}

static void test_refused_record_leaves_the_result_alone(void **state)
{
	struct record out, before;
	uint8_t bytes[RECORD_LEN];

	(void)state;
	memset(&before, 0x77, sizeof(before));
	out = before;
	record_put(bytes, &advertisement);
	bytes[6] = 0;
	assert_int_equal(get(bytes, RECORD_LEN, &out), -EPROTO);
	assert_memory_equal(&out, &before, sizeof(out));
}

/* ---- private data ---- */

static void test_private_has_the_documented_bytes(void **state)
{
	static const uint8_t expected[] = {'i', 'w', 'p', 0xad, 1, 3, 0, 0, 'a', 'b', 'c'};
	uint8_t out[RECORD_PRIVATE_MAX];

	(void)state;
	memset(out, 0xee, sizeof(out));
	assert_int_equal(record_put_private(out, "abc", 3), sizeof(expected));
	assert_memory_equal(out, expected, sizeof(expected));
	assert_int_equal(out[sizeof(expected)], 0xee);
}

/* rxe pads to 56, 196 and 148 bytes. */
static void test_private_of_each_length_comes_back_padded_or_not(void **state)
{
	static const size_t padded[] = {0, 56, 148, 196, 252};
	uint8_t user[RECORD_MAX_USER];

	(void)state;
	for (unsigned i = 0; i < sizeof(user); i++)
		user[i] = (uint8_t)(i + 1);
	for (size_t len = 0; len <= RECORD_MAX_USER; len++) {
		for (unsigned i = 0; i < 5; i++) {
			uint8_t bytes[256] = {0}, *copy;
			size_t size = record_put_private(bytes, user, len), seen_len;
			const uint8_t *seen;

			if (padded[i] > size)
				size = padded[i];
			copy = exact_copy(bytes, size);
			assert_int_equal(record_get_private(copy, size, &seen, &seen_len),
					 PEER_OURS);
			assert_int_equal(seen_len, len);
			assert_memory_equal(seen, user, len);
			free(copy);
		}
	}
}

static void test_private_cut_off_or_too_long_is_unknown(void **state)
{
	uint8_t bytes[RECORD_PRIVATE_LEN + 256] = {0}, user[RECORD_MAX_USER] = {0};
	const uint8_t *seen;
	size_t len;

	(void)state;
	record_put_private(bytes, user, sizeof(user));
	for (size_t size = 0; size < RECORD_PRIVATE_MAX; size++) {
		uint8_t *copy = exact_copy(bytes, size);

		assert_int_equal(record_get_private(copy, size, &seen, &len),
				 size < RECORD_PRIVATE_LEN ? PEER_BARE : PEER_UNKNOWN);
		free(copy);
	}
	for (unsigned claim = RECORD_MAX_USER + 1; claim < 256; claim++) {
		bytes[5] = (uint8_t)claim;
		assert_int_equal(record_get_private(bytes, sizeof(bytes), &seen, &len),
				 PEER_UNKNOWN);
	}
	bytes[5] = 0;
	bytes[4] = 2;
	assert_int_equal(record_get_private(bytes, sizeof(bytes), &seen, &len), PEER_UNKNOWN);
}

static void test_private_of_others_is_passed_on(void **state)
{
	static const char text[] = "something else";
	const uint8_t *seen = NULL;
	size_t len = 99;

	(void)state;
	assert_int_equal(record_get_private(text, sizeof(text), &seen, &len), PEER_BARE);
	assert_ptr_equal(seen, text);
	assert_int_equal(len, sizeof(text));
	assert_int_equal(record_get_private(NULL, 0, &seen, &len), PEER_BARE);
	assert_int_equal(len, 0);
	assert_int_equal(record_get_private(NULL, 56, &seen, &len), PEER_BARE);
	assert_int_equal(len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_advertisement_has_the_documented_bytes),
		cmocka_unit_test(test_hello_has_the_documented_bytes),
		cmocka_unit_test(test_advertisement_comes_back),
		cmocka_unit_test(test_record_of_any_other_length_is_refused),
		cmocka_unit_test(test_record_with_any_fixed_bit_changed_is_refused),
		cmocka_unit_test(test_impossible_regions_are_refused),
		cmocka_unit_test(test_hello_with_more_in_it_is_refused),
		cmocka_unit_test(test_refused_record_leaves_the_result_alone),
		cmocka_unit_test(test_private_has_the_documented_bytes),
		cmocka_unit_test(test_private_of_each_length_comes_back_padded_or_not),
		cmocka_unit_test(test_private_cut_off_or_too_long_is_unknown),
		cmocka_unit_test(test_private_of_others_is_passed_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
