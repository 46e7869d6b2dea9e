/* SPDX-License-Identifier: MIT */
/* CRC32C against published values, the sample frames and a bit-by-bit calculation. */
#include "test_wire_frames.h"

#include <sys/mman.h>

#include "wire/crc32c.h"
#include "wire/mpa.h"

static uint32_t crc_bit_by_bit(const uint8_t *data, size_t len)
{
	uint32_t crc = ~0U;

	for (size_t i = 0; i < len; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

static void test_crc32c_check_string_has_published_value(void **state)
{
	(void)state;
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
}

static void test_crc32c_iscsi_samples_have_published_values(void **state)
{
	uint8_t block[32];

	(void)state;
	memset(block, 0, sizeof(block));
	assert_int_equal(crc32c(0, block, sizeof(block)), 0x8a9136aa);
	memset(block, 0xff, sizeof(block));
	assert_int_equal(crc32c(0, block, sizeof(block)), 0x62a8ab43);
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (uint8_t)i;
	assert_int_equal(crc32c(0, block, sizeof(block)), 0x46dd794e);
}

static void test_crc32c_nothing_leaves_value(void **state)
{
	(void)state;
	assert_int_equal(crc32c(0, "", 0), 0);
	assert_int_equal(crc32c(0, NULL, 0), 0);
	assert_int_equal(crc32c(0x12345678, "", 0), 0x12345678);
}

static void test_crc32c_split_anywhere_equals_whole(void **state)
{
	uint8_t data[300];
	uint32_t whole;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + 3);
	whole = crc_bit_by_bit(data, sizeof(data));
	for (size_t cut = 0; cut <= sizeof(data); cut++)
		assert_int_equal(crc32c(crc32c(0, data, cut), data + cut, sizeof(data) - cut),
				 whole);
}

static void test_crc32c_any_length_and_alignment_equals_bit_by_bit(void **state)
{
	uint8_t data[600];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * i + 11);
	for (size_t start = 0; start < 16; start++)
		for (size_t len = 0; len <= sizeof(data) - 16; len += 7)
			assert_int_equal(crc32c(0, data + start, len),
					 crc_bit_by_bit(data + start, len));
}

static void test_crc32c_sample_fpdus_match_their_crc(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(fpdus) / sizeof(fpdus[0]); i++) {
		size_t covered = fpdus[i].len - FPDU_CRC_LEN;

		assert_int_equal(crc32c(0, fpdus[i].bytes, covered),
				 fpdu_get_crc(fpdus[i].bytes + covered));
	}
}

static void test_crc32c_one_bit_changed_is_noticed(void **state)
{
	uint8_t frame[sizeof(frame_c)];

	(void)state;
	for (size_t bit = 0; bit < 8 * (sizeof(frame) - FPDU_CRC_LEN); bit++) {
		memcpy(frame, frame_c, sizeof(frame));
		frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(crc32c(0, frame, sizeof(frame) - FPDU_CRC_LEN),
				     fpdu_get_crc(frame + sizeof(frame) - FPDU_CRC_LEN));
	}
}

/* Longer than 32 bits count; the pages are all the kernel's one page of zeros. */
static void test_crc32c_more_than_4_gib_is_counted_whole(void **state)
{
	size_t len = ((size_t)4 << 30) + 4099;
	uint8_t *zeros =
		mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)state;
	if (zeros == MAP_FAILED)
		skip();
	assert_int_equal(crc32c(0, zeros, len), 0xb9e32774);
	munmap(zeros, len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc32c_check_string_has_published_value),
		cmocka_unit_test(test_crc32c_iscsi_samples_have_published_values),
		cmocka_unit_test(test_crc32c_nothing_leaves_value),
		cmocka_unit_test(test_crc32c_split_anywhere_equals_whole),
		cmocka_unit_test(test_crc32c_any_length_and_alignment_equals_bit_by_bit),
		cmocka_unit_test(test_crc32c_sample_fpdus_match_their_crc),
		cmocka_unit_test(test_crc32c_one_bit_changed_is_noticed),
		cmocka_unit_test(test_crc32c_more_than_4_gib_is_counted_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
