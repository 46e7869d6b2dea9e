/* SPDX-License-Identifier: MIT */
/*
 * How long things took: of any number of values in nanoseconds, percentiles to within 0.4 %, in
 * fixed memory. Least, greatest and mean are exact.
 */
#ifndef PERF_HISTOGRAM_H
#define PERF_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BITS    8 /* of a value that are kept below its highest one */
#define HISTOGRAM_BUCKETS ((65 - HISTOGRAM_BITS) << HISTOGRAM_BITS)

struct histogram {
	uint64_t count, min, max;
	double sum, squares;
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

/* Zeroed is empty. */
void histogram_add(struct histogram *histogram, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);
/* The value that @permille of 1000 values do not exceed; 0 if there are none. */
uint64_t histogram_percentile(const struct histogram *histogram, unsigned permille);
double histogram_mean(const struct histogram *histogram);
double histogram_deviation(const struct histogram *histogram);

#endif
