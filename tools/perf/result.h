/* SPDX-License-Identifier: MIT */
/* What was measured, and how it is shown. */
#ifndef PERF_RESULT_H
#define PERF_RESULT_H

#include <stdint.h>
#include <stdio.h>

#include "histogram.h"
#include "options.h"

struct result {
	enum test test;
	uint64_t size, iterations;
	double seconds;
	struct histogram *round_trips; /* of TEST_LAT, in ns */
};

/* ---- as perftest's users know it ---- */
void result_print_header(const struct options *options, enum test test, const char *device);
void result_print_row(const struct result *result);

/* ---- as JSON: begin, each result, end ---- */
void result_json_begin(const struct options *options, const char *device);
void result_json_add(const struct result *result, unsigned index);
void result_json_end(void);

#endif
