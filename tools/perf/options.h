/* SPDX-License-Identifier: MIT */
/* What the user asked for. */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEFAULT_PORT    18515 /* as perftest's */
#define MAX_SIZE        (UINT64_C(1) << 30)
#define MAX_SIZES       64
#define MAX_CONNECTIONS 10000
#define MAX_THREADS     256

/* A dispatch looks so long for something to do before it sleeps: while a test runs it never does.
 */
#define BUSY_US 1000000

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

enum test { TEST_LAT, TEST_RATE, TEST_BW, TESTS };

extern const char *const test_names[TESTS];

struct options {
	bool server;
	const char *address; /* of the server; NULL: every one of this host's */
	unsigned short port;
	const char *device; /* NULL: any */
	bool tests[TESTS];
	uint64_t sizes[MAX_SIZES];
	unsigned size_count; /* 0: those that suit the test */
	unsigned connections, threads;
	uint64_t count; /* messages per connection; 0: for a while */
	double seconds;
	bool sleeps, json;
};

/* Leaves with EXIT_USAGE if something is wrong, and after --help and --version. */
void options_parse(struct options *options, int argc, char **argv);

#endif
