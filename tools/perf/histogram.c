/* SPDX-License-Identifier: MIT */
/* Percentiles of many values: buckets whose width grows with the value. */
#include "histogram.h"

#include <math.h>

/* Up to 2 << HISTOGRAM_BITS each value has its own bucket; then each doubling has 1 << BITS. */
static unsigned bucket_of(uint64_t value)
{
	unsigned shift;

	if (value < 2u << HISTOGRAM_BITS)
		return (unsigned)value;
	shift = 63 - (unsigned)__builtin_clzll(value) - HISTOGRAM_BITS;
	return (shift << HISTOGRAM_BITS) + (unsigned)(value >> shift);
}

/* The middle of a bucket. */
static uint64_t value_of(unsigned bucket)
{
	unsigned shift;

	if (bucket < 2u << HISTOGRAM_BITS)
		return bucket;
	shift = (bucket >> HISTOGRAM_BITS) - 1;
	return ((uint64_t)(bucket - (shift << HISTOGRAM_BITS)) << shift) + (1ull << shift >> 1);
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
	if (!histogram->count || value < histogram->min)
		histogram->min = value;
	if (value > histogram->max)
		histogram->max = value;
	histogram->count++;
	histogram->sum += (double)value;
	histogram->squares += (double)value * (double)value;
	histogram->buckets[bucket_of(value)]++;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	if (!from->count)
		return;
	if (!into->count || from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
	into->count += from->count;
	into->sum += from->sum;
	into->squares += from->squares;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
}

uint64_t histogram_percentile(const struct histogram *histogram, unsigned permille)
{
	uint64_t rank = (histogram->count * permille + 999) / 1000, seen = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS && histogram->count; i++) {
		uint64_t value = value_of(i);

		seen += histogram->buckets[i];
		if (!histogram->buckets[i] || seen < rank)
			continue;
		/* The middle of the first and of the last bucket may lie beyond what was there. */
		if (value < histogram->min)
			return histogram->min;
		return value > histogram->max ? histogram->max : value;
	}
	return 0;
}

double histogram_mean(const struct histogram *histogram)
{
	return histogram->count ? histogram->sum / (double)histogram->count : 0;
}

double histogram_deviation(const struct histogram *histogram)
{
	double mean = histogram_mean(histogram), variance;

	if (!histogram->count)
		return 0;
	variance = histogram->squares / (double)histogram->count - mean * mean;
	return variance > 0 ? sqrt(variance) : 0;
}
