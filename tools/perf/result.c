/* SPDX-License-Identifier: MIT */
/* How results are shown: tables as perftest's, and JSON. */
#include "result.h"

#include <inttypes.h>

#include "../common/json.h"

static const char *const titles[TESTS] = {"Latency", "Message rate", "Bandwidth"};

#define LATENCY_HEADER                                                                             \
	" #bytes    #iterations  t_min[usec]  t_max[usec]  t_typical[usec]  t_avg[usec]  "         \
	"t_stdev[usec]  99% percentile[usec]  99.9% percentile[usec]"

static const char *const headers[TESTS] = {
	[TEST_LAT] = LATENCY_HEADER,
	[TEST_RATE] = " #bytes    #iterations  MsgRate[Mpps]  BW average[MiB/sec]",
	[TEST_BW] =
		" #bytes    #iterations  BW average[MiB/sec]  BW average[Gb/sec]  MsgRate[Mpps]"};

static const char line[] =
	"--------------------------------------------------------------------------------";

/* One way, as perftest has it. */
static double half_us(double ns)
{
	return ns / 2000;
}

static double percentile_us(const struct result *result, unsigned permille)
{
	return half_us((double)histogram_percentile(result->round_trips, permille));
}

static double rate(const struct result *result)
{
	return (double)result->iterations / result->seconds;
}

static double bytes_per_s(const struct result *result)
{
	return rate(result) * (double)result->size;
}

void result_print_header(const struct options *options, enum test test, const char *device)
{
	printf("%s\n %s test (%s)   Device: %s   Connections: %u   Threads: %u   %s\n%s\n%s\n",
	       line, titles[test], test_names[test], device, options->connections, options->threads,
	       options->sleeps ? "Sleeping" : "Polling", line, headers[test]);
	fflush(stdout);
}

static void print_latency(const struct result *result)
{
	const struct histogram *times = result->round_trips;

	printf(" %-9" PRIu64 " %-11" PRIu64 "  %-11.2f  %-11.2f  %-15.2f  %-11.2f  %-13.2f  "
	       "%-20.2f  %.2f\n",
	       result->size, result->iterations, half_us((double)times->min),
	       half_us((double)times->max), percentile_us(result, 500),
	       half_us(histogram_mean(times)), half_us(histogram_deviation(times)),
	       percentile_us(result, 990), percentile_us(result, 999));
}

void result_print_row(const struct result *result)
{
	double mib = bytes_per_s(result) / (1 << 20), gbit = bytes_per_s(result) * 8 / 1e9;
	double mpps = rate(result) / 1e6;

	if (result->test == TEST_LAT)
		print_latency(result);
	else if (result->test == TEST_RATE)
		printf(" %-9" PRIu64 " %-11" PRIu64 "  %-13.6f  %.2f\n", result->size,
		       result->iterations, mpps, mib);
	else
		printf(" %-9" PRIu64 " %-11" PRIu64 "  %-19.2f  %-18.2f  %.6f\n", result->size,
		       result->iterations, mib, gbit, mpps);
	fflush(stdout);
}

/* ---- JSON ---- */

void result_json_begin(const struct options *options, const char *device)
{
	printf("{\n  \"version\": \"" TOOLS_VERSION "\",\n  \"server\": ");
	json_print_string(stdout, options->address);
	printf(",\n  \"port\": %u,\n  \"device\": ", options->port);
	json_print_string(stdout, device);
	printf(",\n  \"connections\": %u,\n  \"threads\": %u,\n  \"wait\": \"%s\",\n"
	       "  \"results\": [",
	       options->connections, options->threads, options->sleeps ? "sleep" : "poll");
}

void result_json_add(const struct result *result, unsigned index)
{
	const struct histogram *times = result->round_trips;

	printf("%s\n    {\"test\": \"%s\", \"bytes\": %" PRIu64 ", \"iterations\": %" PRIu64
	       ", \"seconds\": %.6f, ",
	       index ? "," : "", test_names[result->test], result->size, result->iterations,
	       result->seconds);
	if (result->test == TEST_LAT)
		printf("\"min_us\": %.3f, \"max_us\": %.3f, \"mean_us\": %.3f, "
		       "\"deviation_us\": %.3f, \"p50_us\": %.3f, \"p99_us\": %.3f, "
		       "\"p999_us\": %.3f}",
		       half_us((double)times->min), half_us((double)times->max),
		       half_us(histogram_mean(times)), half_us(histogram_deviation(times)),
		       percentile_us(result, 500), percentile_us(result, 990),
		       percentile_us(result, 999));
	else
		printf("\"messages_per_s\": %.1f, \"mib_per_s\": %.3f}", rate(result),
		       bytes_per_s(result) / (1 << 20));
}

void result_json_end(void)
{
	printf("\n  ]\n}\n");
}
