/* SPDX-License-Identifier: MIT */
/* What the two programs tell each other: records of buffers, files with their proof, numbers of
 * users. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buffer_attr.h"
#include "common.h"
#include "endpoint.h"
#include "file.h"

#define GIB (1ull << 30)

/* ---- records ---- */

static int get(uint64_t address, uint32_t length, uint64_t max_length, struct buffer_attr *out)
{
	struct buffer_attr in = {address, length, 7};
	uint8_t bytes[BUFFER_ATTR_BYTES];

	buffer_attr_put(bytes, &in);
	return buffer_attr_get(bytes, sizeof(bytes), max_length, out);
}

static void test_put_gives_the_bytes_of_the_original(void **state)
{
	struct buffer_attr in = {0x0102030405060708, 0x11121314, 0x21222324};
	struct {
		uint64_t address;
		uint32_t length, stag;
	} __attribute__((packed)) original = {in.address, in.length, in.stag};
	uint8_t bytes[BUFFER_ATTR_BYTES + 1];

	(void)state;
	memset(bytes, 0xee, sizeof(bytes));
	buffer_attr_put(bytes, &in);
	assert_int_equal(sizeof(original), BUFFER_ATTR_BYTES);
	assert_memory_equal(bytes, &original, sizeof(original));
	assert_int_equal(bytes[BUFFER_ATTR_BYTES], 0xee);
}

static void test_get_gives_what_was_put(void **state)
{
	struct buffer_attr out;

	(void)state;
	assert_int_equal(get(0x123456789abcdef0, 15, GIB, &out), 0);
	assert_int_equal(out.address, 0x123456789abcdef0);
	assert_int_equal(out.length, 15);
	assert_int_equal(out.stag, 7);
}

static void test_get_of_any_other_size_is_refused(void **state)
{
	struct buffer_attr out = {1, 2, 3};

	(void)state;
	for (size_t size = 0; size < 40; size++) {
		uint8_t *bytes = malloc(size + 1);

		assert_non_null(bytes);
		memset(bytes, 1, size);
		assert_int_equal(buffer_attr_get(bytes, size, UINT64_MAX, &out),
				 size == BUFFER_ATTR_BYTES ? 0 : -EBADMSG);
		free(bytes);
	}
}

static void test_get_bounds_the_length(void **state)
{
	struct buffer_attr out = {1, 2, 3};

	(void)state;
	assert_int_equal(get(0, 0, GIB, &out), -EINVAL);
	assert_int_equal(get(0, (uint32_t)GIB + 1, GIB, &out), -EMSGSIZE);
	assert_int_equal(get(0, UINT32_MAX, GIB, &out), -EMSGSIZE);
	assert_int_equal(get(0, 1, 0, &out), -EMSGSIZE);
	assert_int_equal(out.length, 2);
	assert_int_equal(get(0, (uint32_t)GIB, GIB, &out), 0);
	assert_int_equal(get(0, UINT32_MAX, UINT64_MAX, &out), 0);
}

static void test_get_refuses_what_wraps_around(void **state)
{
	struct buffer_attr out;

	(void)state;
	assert_int_equal(get(UINT64_MAX, 1, GIB, &out), 0);
	assert_int_equal(get(UINT64_MAX, 2, GIB, &out), -EOVERFLOW);
	assert_int_equal(get(UINT64_MAX - 14, 15, GIB, &out), 0);
	assert_int_equal(get(UINT64_MAX - 13, 15, GIB, &out), -EOVERFLOW);
}

static void test_each_error_has_a_text_of_its_own(void **state)
{
	static const int errors[] = {-EBADMSG, -EINVAL, -EMSGSIZE, -EOVERFLOW, -EPERM};

	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(buffer_attr_strerror(errors[i]),
						buffer_attr_strerror(errors[j]));
}

static void test_the_key_that_is_told_is_the_remote_one(void **state)
{
	struct ibv_mr mr = {.addr = &mr, .length = 9, .lkey = 1, .rkey = 2};
	struct buffer_attr attr = buffer_attr_of(&mr);

	(void)state;
	assert_int_equal(attr.stag, 2);
	assert_int_equal(attr.length, 9);
	assert_int_equal(attr.address, (uintptr_t)&mr);
}

/* ---- files ---- */

static int64_t check(const uint8_t *buffer, size_t size)
{
	uint32_t checksum = 0;
	int64_t length = file_check_proof(buffer, size, &checksum);

	if (length >= 0)
		assert_int_equal(checksum, file_checksum(buffer, (size_t)length));
	return length;
}

static void test_checksum_is_crc32c(void **state)
{
	uint8_t zeros[32] = {0};

	(void)state;
	assert_int_equal(file_checksum("", 0), 0);
	assert_int_equal(file_checksum("123456789", 9), 0xe3069283);
	assert_int_equal(file_checksum(zeros, sizeof(zeros)), 0x8a9136aa); /* RFC 3720 */
}

static void test_proof_holds_for_each_length(void **state)
{
	(void)state;
	for (size_t length = 0; length < 70; length++) {
		uint8_t *buffer = malloc(length + FILE_PROOF_BYTES);

		assert_non_null(buffer);
		memset(buffer, 'x', length);
		file_put_proof(buffer, length);
		assert_int_equal(check(buffer, length + FILE_PROOF_BYTES), length);
		free(buffer);
	}
}

static void test_proof_fails_for_each_changed_byte(void **state)
{
	uint8_t buffer[20 + FILE_PROOF_BYTES];

	(void)state;
	memset(buffer, 'x', 20);
	file_put_proof(buffer, 20);
	for (size_t i = 0; i < sizeof(buffer); i++) {
		buffer[i] ^= 1;
		assert_true(check(buffer, sizeof(buffer)) < 0);
		buffer[i] ^= 1;
	}
	assert_int_equal(check(buffer, sizeof(buffer)), 20);
}

static void test_proof_fails_for_what_is_short(void **state)
{
	uint8_t buffer[20 + FILE_PROOF_BYTES] = {0};

	(void)state;
	for (size_t size = 0; size <= sizeof(buffer); size++)
		assert_int_equal(check(buffer, size), -EBADMSG);
}

/* ---- numbers ---- */

static void test_numbers_as_users_write_them(void **state)
{
	uint64_t out = 99;
	uint16_t port;
	int ms;

	(void)state;
	assert_true(common_parse_number("0x10", false, 100, &out) && out == 16);
	assert_true(common_parse_number("4k", true, UINT64_MAX, &out) && out == 4096);
	assert_true(common_parse_number("2G", true, UINT64_MAX, &out) && out == 2 * GIB);
	assert_false(common_parse_number("2G", false, UINT64_MAX, &out));
	assert_false(common_parse_number("17179869184G", true, UINT64_MAX, &out));
	assert_false(common_parse_number("99999999999999999999", true, UINT64_MAX, &out));
	assert_false(common_parse_number("", true, 9, &out));
	assert_false(common_parse_number("-1", true, UINT64_MAX, &out));
	assert_false(common_parse_number("1KB", true, UINT64_MAX, &out));
	assert_int_equal(out, 2 * GIB);
	assert_true(common_parse_port("65535", &port) && port == 65535);
	assert_false(common_parse_port("65536", &port));
	assert_true(common_parse_seconds("86400", &ms) && ms == 86400000);
	assert_false(common_parse_seconds("86401", &ms));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_gives_the_bytes_of_the_original),
		cmocka_unit_test(test_get_gives_what_was_put),
		cmocka_unit_test(test_get_of_any_other_size_is_refused),
		cmocka_unit_test(test_get_bounds_the_length),
		cmocka_unit_test(test_get_refuses_what_wraps_around),
		cmocka_unit_test(test_each_error_has_a_text_of_its_own),
		cmocka_unit_test(test_the_key_that_is_told_is_the_remote_one),
		cmocka_unit_test(test_checksum_is_crc32c),
		cmocka_unit_test(test_proof_holds_for_each_length),
		cmocka_unit_test(test_proof_fails_for_each_changed_byte),
		cmocka_unit_test(test_proof_fails_for_what_is_short),
		cmocka_unit_test(test_numbers_as_users_write_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
