/* SPDX-License-Identifier: MIT */
/* The client: each test at each size, by threads that share the connections. */
#include "client.h"

#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "probe.h"
#include "result.h"
#include "worker.h"

static const struct {
	uint64_t sizes[2];
	unsigned count;
} default_sizes[TESTS] = {
	[TEST_LAT] = {{64, 4096}, 2}, [TEST_RATE] = {{64}, 1}, [TEST_BW] = {{65536, 1 << 20}, 2}};

struct results {
	struct result *list;
	unsigned count;
};

/* ---- one test at one size ---- */

static void share_connections(struct worker *workers, struct run *run)
{
	unsigned threads = run->options->threads, connections = run->options->connections;

	for (unsigned i = 0; i < threads; i++) {
		workers[i].run = run;
		workers[i].first = connections * i / threads;
		workers[i].link_count = connections * (i + 1) / threads - workers[i].first;
	}
}

/* False if the run has failed. */
static bool run_workers(struct worker *workers, const struct run *run)
{
	unsigned threads = run->options->threads;

	for (unsigned i = 0; i < threads; i++) {
		if (!pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]))
			continue;
		/* Those that run wait for this one, and there is nothing to measure without it. */
		fprintf(stderr, "ibmsg-perf: no thread could be made\n");
		exit(EXIT_FAILED);
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	return !run->failed;
}

/* From the first message of all threads to the last. */
static void sum_up(const struct worker *workers, unsigned threads, struct result *result)
{
	uint64_t begin = workers[0].begin, end = workers[0].end;

	for (unsigned i = 0; i < threads; i++) {
		begin = workers[i].begin < begin ? workers[i].begin : begin;
		end = workers[i].end > end ? workers[i].end : end;
		result->iterations += workers[i].iterations;
		if (result->round_trips)
			histogram_merge(result->round_trips, &workers[i].round_trips);
	}
	result->seconds = (double)(end - begin) / 1e9;
}

static bool measure(const struct options *options, unsigned server_threads, struct result *result)
{
	struct run run = {.options = options,
			  .test = result->test,
			  .size = result->size,
			  .server_threads = server_threads};
	struct worker *workers = calloc(options->threads, sizeof(*workers));
	bool good;

	if (result->test == TEST_LAT)
		result->round_trips = calloc(1, sizeof(*result->round_trips));
	if (!workers || (result->test == TEST_LAT && !result->round_trips) ||
	    pthread_barrier_init(&run.ready, NULL, options->threads)) {
		fprintf(stderr, "ibmsg-perf: out of memory\n");
		free(workers);
		return false;
	}
	share_connections(workers, &run);
	good = run_workers(workers, &run);
	if (good)
		sum_up(workers, options->threads, result);
	pthread_barrier_destroy(&run.ready);
	free(workers);
	return good;
}

/* ---- all ---- */

static struct result *add_result(struct results *results, enum test test, uint64_t size)
{
	struct result *list = realloc(results->list, (results->count + 1) * sizeof(*results->list));

	if (!list)
		return NULL;
	results->list = list;
	list += results->count++;
	*list = (struct result){.test = test, .size = size};
	return list;
}

static bool run_test(const struct options *options, const struct probe *probe, enum test test,
		     struct results *results)
{
	const uint64_t *sizes = options->size_count ? options->sizes : default_sizes[test].sizes;
	unsigned count = options->size_count ? options->size_count : default_sizes[test].count;

	if (!options->json)
		result_print_header(options, test, probe->device);
	for (unsigned i = 0; i < count; i++) {
		struct result *result = add_result(results, test, sizes[i]);

		if (!result || !measure(options, probe->server_threads, result))
			return false;
		if (!options->json)
			result_print_row(result);
	}
	return true;
}

static void print_json(const struct options *options, const struct probe *probe,
		       const struct results *results)
{
	result_json_begin(options, probe->device);
	for (unsigned i = 0; i < results->count; i++)
		result_json_add(&results->list[i], i);
	result_json_end();
}

int client_run(const struct options *options)
{
	struct results results = {0};
	struct probe probe;
	bool good = true;

	if (!probe_server(options, &probe))
		return EXIT_FAILED;
	if (options->device && strcmp(options->device, probe.device) != 0)
		device_explain(options->device, probe.device, options->address);
	for (unsigned test = 0; test < TESTS && good; test++)
		if (options->tests[test])
			good = run_test(options, &probe, test, &results);
	if (good && options->json)
		print_json(options, &probe, &results);
	for (unsigned i = 0; i < results.count; i++)
		free(results.list[i].round_trips);
	free(results.list);
	return good ? 0 : EXIT_FAILED;
}
