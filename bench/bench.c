/* SPDX-License-Identifier: MIT */
/* What the measuring programs share. */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct option long_options[] = {
	{"connect", required_argument, NULL, 'c'}, {"count", required_argument, NULL, 'n'},
	{"size", required_argument, NULL, 's'},    {"batch", required_argument, NULL, 'b'},
	{"idle", required_argument, NULL, 'i'},    {"limit", required_argument, NULL, 'l'},
	{"one-cq", no_argument, NULL, '1'},        {"sleep", no_argument, NULL, 'z'},
	{"spin", no_argument, NULL, 'p'},          {NULL, 0, NULL, 0},
};

static void usage(const char *program, const char *tests)
{
	fprintf(stderr,
		"usage: %s TEST [--connect PORT] [--count N] [--size BYTES] [--batch N]\n"
		"       [--idle N] [--limit SECONDS] [--one-cq] [--sleep] [--spin]\n"
		"TEST is one of: %s\n"
		"Without --connect: listen on the loopback interface, and say where.\n",
		program, tests);
	exit(2);
}

static unsigned number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || !value || value > 1u << 30) {
		fprintf(stderr, "not a number that can be used: %s\n", text);
		exit(2);
	}
	return (unsigned)value;
}

void options_parse(struct options *options, int argc, char **argv, const char *tests)
{
	int letter;

	*options = (struct options){.count = 10000, .size = 64, .batch = 1, .limit = 60};
	while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (letter) {
		case 'c':
			options->port = (int)number(optarg);
			break;
		case 'n':
			options->count = number(optarg);
			break;
		case 's':
			options->size = number(optarg);
			break;
		case 'b':
			options->batch = number(optarg);
			break;
		case 'i':
			options->idle = number(optarg);
			break;
		case 'l':
			options->limit = number(optarg);
			break;
		case '1':
			options->one_cq = true;
			break;
		case 'p':
			options->spins = true;
			break;
		case 'z':
			options->sleeps = true;
			break;
		default:
			usage(argv[0], tests);
		}
	}
	if (optind + 1 != argc || options->port > 65535)
		usage(argv[0], tests);
	options->test = argv[optind];
	alarm(options->limit);
}

void die(const char *what)
{
	if (errno)
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
	else
		fprintf(stderr, "%s\n", what);
	exit(1);
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void say_listening(int port)
{
	printf("listening %d\n", port);
	fflush(stdout);
}

unsigned rss_kib(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	long total, resident = 0;

	if (!file || fscanf(file, "%ld %ld", &total, &resident) != 2)
		die("/proc/self/statm");
	fclose(file);
	return (unsigned)(resident * (sysconf(_SC_PAGESIZE) / 1024));
}

void samples_init(struct samples *samples, unsigned room)
{
	samples->ns = calloc(room, sizeof(*samples->ns));
	if (!samples->ns)
		die("samples");
	samples->count = 0;
	samples->room = room;
}

void samples_fini(struct samples *samples)
{
	free(samples->ns);
}

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

static double one_way_us(const struct samples *samples, unsigned percent)
{
	uint64_t rank = (uint64_t)(samples->count - 1) * percent / 100;

	return (double)samples->ns[rank] / 2000;
}

void samples_print(struct samples *samples, const char *prefix)
{
	uint64_t sum = 0;

	if (!samples->count)
		return;
	qsort(samples->ns, samples->count, sizeof(*samples->ns), compare);
	for (unsigned i = 0; i < samples->count; i++)
		sum += samples->ns[i];
	printf("%smean_us=%.3f %sp50_us=%.3f %sp99_us=%.3f ", prefix,
	       (double)sum / samples->count / 2000, prefix, one_way_us(samples, 50), prefix,
	       one_way_us(samples, 99));
}

void print_rate(uint64_t count, size_t size, uint64_t ns)
{
	double seconds = (double)ns / 1e9;

	printf("messages_per_s=%.0f gib_per_s=%.3f seconds=%.3f ", (double)count / seconds,
	       (double)count * (double)size / seconds / (1 << 30), seconds);
}
