/* SPDX-License-Identifier: MIT */
/* Percentiles are within 0.4 %, of small values exact, also after a merge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../../tools/perf/histogram.h"

static struct histogram *new_histogram(void)
{
	struct histogram *histogram = calloc(1, sizeof(*histogram));

	assert_non_null(histogram);
	return histogram;
}

static void assert_close(uint64_t is, uint64_t should_be)
{
	uint64_t difference = is > should_be ? is - should_be : should_be - is;

	assert_true((double)difference <= (double)should_be * 0.004);
}

static void test_histogram_empty_has_no_percentiles(void **state)
{
	struct histogram *histogram = new_histogram();

	(void)state;
	assert_int_equal(histogram_percentile(histogram, 500), 0);
	assert_true(histogram_mean(histogram) == 0 && histogram_deviation(histogram) == 0);
	free(histogram);
}

static void test_histogram_small_values_are_exact(void **state)
{
	struct histogram *histogram = new_histogram();

	(void)state;
	for (uint64_t value = 1; value <= 100; value++)
		histogram_add(histogram, value);
	assert_int_equal(histogram_percentile(histogram, 500), 50);
	assert_int_equal(histogram_percentile(histogram, 990), 99);
	assert_int_equal(histogram_percentile(histogram, 999), 100);
	assert_int_equal(histogram_percentile(histogram, 0), 1);
	assert_int_equal(histogram->min, 1);
	assert_int_equal(histogram->max, 100);
	assert_true(histogram_mean(histogram) == 50.5);
	assert_true(histogram_deviation(histogram) > 28.8 && histogram_deviation(histogram) < 28.9);
	free(histogram);
}

static void test_histogram_every_magnitude_is_close(void **state)
{
	(void)state;
	for (unsigned bit = 0; bit < 64; bit++) {
		for (int offset = -1; offset <= 1; offset++) {
			uint64_t value = (UINT64_C(1) << bit) + (uint64_t)offset;
			struct histogram *histogram = new_histogram();

			if (!value || value == UINT64_MAX)
				value = 1;
			/* Neighbours, so that neither least nor greatest answers. */
			histogram_add(histogram, 0);
			histogram_add(histogram, value);
			histogram_add(histogram, UINT64_MAX);
			assert_close(histogram_percentile(histogram, 500), value);
			free(histogram);
		}
	}
}

static void test_histogram_merge_is_as_added_at_once(void **state)
{
	struct histogram *both = new_histogram(), *one = new_histogram(), *other = new_histogram();

	(void)state;
	for (uint64_t value = 1000; value < 3000; value++)
		histogram_add(value % 3 ? one : other, value);
	histogram_merge(both, one);
	histogram_merge(both, other);
	assert_int_equal(both->count, 2000);
	assert_int_equal(both->min, 1000);
	assert_int_equal(both->max, 2999);
	assert_close(histogram_percentile(both, 500), 1999);
	assert_close(histogram_percentile(both, 990), 2979);
	free(both);
	free(one);
	free(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_histogram_empty_has_no_percentiles),
		cmocka_unit_test(test_histogram_small_values_are_exact),
		cmocka_unit_test(test_histogram_every_magnitude_is_close),
		cmocka_unit_test(test_histogram_merge_is_as_added_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
