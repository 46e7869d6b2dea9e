/* SPDX-License-Identifier: MIT */
/* Lists cut into requests: every byte once and in order, within the limits, and in as few as can
 * be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cut.h"

/* The requests that come of @sgl; each byte's place is checked against where it should be. */
static unsigned check(const struct iw_sgl *sgl, unsigned most_pieces, uint32_t most_bytes)
{
	const struct cut_limits limits = {most_pieces, most_bytes};
	struct cut cut = {.sgl = sgl};
	unsigned requests = 0, piece = 0;
	size_t at = 0;

	do {
		struct cut_part parts[IW_MAX_SGE];
		uint32_t bytes, sum = 0;
		unsigned count = cut_next(&cut, &limits, parts, &bytes);

		requests++;
		assert_true(count <= most_pieces && bytes <= most_bytes);
		for (unsigned i = 0; i < count; i++) {
			while (at == sgl->sge[piece].length) {
				piece++;
				at = 0;
			}
			assert_int_equal(parts[i].piece, piece);
			assert_int_equal(parts[i].at, at);
			assert_int_not_equal(parts[i].length, 0);
			at += parts[i].length;
			sum += parts[i].length;
			assert_true(at <= sgl->sge[piece].length);
		}
		assert_int_equal(sum, bytes);
		/* No request is smaller than it must be, but the last. */
		assert_true(count == most_pieces || bytes == most_bytes || cut_is_done(&cut));
	} while (!cut_is_done(&cut));
	while (piece < sgl->num_sge && at == sgl->sge[piece].length) {
		piece++;
		at = 0;
	}
	assert_int_equal(piece, sgl->num_sge);
	return requests;
}

static struct iw_sgl make_list(const size_t *lengths, unsigned count)
{
	struct iw_sgl sgl;

	memset(&sgl, 0xff, sizeof(sgl));
	sgl.num_sge = count;
	for (unsigned i = 0; i < count; i++)
		sgl.sge[i].length = lengths[i];
	return sgl;
}

static void test_what_fits_is_one_request(void **state)
{
	static const size_t lengths[] = {10, 20, 30};
	struct iw_sgl sgl = make_list(lengths, 3);

	(void)state;
	assert_int_equal(check(&sgl, 3, 60), 1);
	assert_int_equal(check(&sgl, 16, UINT32_MAX), 1);
}

static void test_nothing_is_one_empty_request(void **state)
{
	static const size_t lengths[] = {0, 0, 0};
	struct iw_sgl sgl = make_list(lengths, 3);

	(void)state;
	assert_int_equal(check(&sgl, 1, 1), 1);
	sgl.num_sge = 0;
	assert_int_equal(check(&sgl, 1, 1), 1);
}

static void test_pieces_beyond_the_limit_begin_a_new_request(void **state)
{
	static const size_t lengths[] = {10, 0, 20, 30, 0, 40, 0};
	struct iw_sgl sgl = make_list(lengths, 7);

	(void)state;
	assert_int_equal(check(&sgl, 1, 1000), 4);
	assert_int_equal(check(&sgl, 2, 1000), 2);
	assert_int_equal(check(&sgl, 3, 1000), 2);
	assert_int_equal(check(&sgl, 4, 1000), 1);
}

static void test_bytes_beyond_the_limit_begin_a_new_request(void **state)
{
	static const size_t lengths[] = {100};
	struct iw_sgl sgl = make_list(lengths, 1);

	(void)state;
	assert_int_equal(check(&sgl, 1, 100), 1);
	assert_int_equal(check(&sgl, 1, 99), 2);
	assert_int_equal(check(&sgl, 1, 50), 2);
	assert_int_equal(check(&sgl, 1, 33), 4);
	assert_int_equal(check(&sgl, 1, 1), 100);
}

static void test_any_list_within_any_limits(void **state)
{
	unsigned seed = 1;

	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		size_t lengths[IW_MAX_SGE];
		unsigned count = (unsigned)rand_r(&seed) % (IW_MAX_SGE + 1);
		struct iw_sgl sgl;

		for (unsigned i = 0; i < count; i++)
			lengths[i] = rand_r(&seed) % 4 ? (size_t)rand_r(&seed) % 300 : 0;
		sgl = make_list(lengths, count);
		check(&sgl, 1 + (unsigned)rand_r(&seed) % IW_MAX_SGE,
		      1 + (uint32_t)rand_r(&seed) % 200);
	}
}

static void test_more_than_four_gigabytes(void **state)
{
	const size_t lengths[] = {(size_t)5 << 30, 7};
	struct iw_sgl sgl;
	uint64_t total;

	(void)state;
	if (sizeof(size_t) < 8)
		skip();
	sgl = make_list(lengths, 2);
	assert_int_equal(check(&sgl, 16, 1u << 30), 6);
	assert_int_equal(check(&sgl, 1, UINT32_MAX), 3);
	assert_true(cut_total(&sgl, &total));
	assert_int_equal(total, (UINT64_C(5) << 30) + 7);
	sgl.sge[0].length = sgl.sge[1].length = SIZE_MAX;
	assert_false(cut_total(&sgl, &total));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_fits_is_one_request),
		cmocka_unit_test(test_nothing_is_one_empty_request),
		cmocka_unit_test(test_pieces_beyond_the_limit_begin_a_new_request),
		cmocka_unit_test(test_bytes_beyond_the_limit_begin_a_new_request),
		cmocka_unit_test(test_any_list_within_any_limits),
		cmocka_unit_test(test_more_than_four_gigabytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
