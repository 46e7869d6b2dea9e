/* SPDX-License-Identifier: MIT */
/* The command line. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const test_names[TESTS] = {"lat", "rate", "bw"};

static const char usage[] = "usage: ibmsg-perf --server [OPTION...] [ADDRESS]\n"
			    "       ibmsg-perf [OPTION...] ADDRESS [lat|rate|bw]...\n"
			    "       ibmsg-perf --help | --version\n";

static const char help[] =
	"\n"
	"Measure messages by ibmsg between two processes or hosts: latency (lat: half a round\n"
	"trip), message rate (rate) and bandwidth (bw); all three unless told. The server serves\n"
	"any number of clients, until it is ended.\n"
	"\n"
	"  -p, --port PORT        the server's port (18515)\n"
	"  -t, --threads N        threads, with an event loop each; a server with N uses N ports\n"
	"      --sleep            sleep while there is nothing to do, instead of polling\n"
	"      --device NAME      insist on this RDMA device\n"
	"Of the client:\n"
	"  -s, --size LIST        bytes of a message, as 64,4096,1M\n"
	"  -a, --all              all powers of two from 2 to 8M\n"
	"  -c, --connections N    connections, shared by the threads (one for each thread)\n"
	"  -n, --count N          messages per connection and size\n"
	"  -D, --duration SECONDS per size (1)\n"
	"      --json             results as JSON\n"
	"\n"
	"Exit status: 0; 1 something failed; 2 the arguments are wrong. ibmsg-perf(1) has the\n"
	"details.\n";

static void __attribute__((noreturn)) complain(const char *what, const char *about)
{
	fprintf(stderr, "ibmsg-perf: %s%s\n%s", what, about, usage);
	exit(EXIT_USAGE);
}

/* ---- numbers ---- */

/* From @text to a comma or the end, which @next then is; K, M and G are powers of 1024. */
static bool parse_size(const char *text, const char **next, uint64_t *size)
{
	static const char suffixes[] = "KMG";
	const char *suffix;
	char *end;

	errno = 0;
	*size = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || errno)
		return false;
	suffix = *end ? strchr(suffixes, *end & ~0x20) : NULL;
	if (suffix) {
		if (*size > MAX_SIZE)
			return false;
		*size <<= 10 * (suffix - suffixes + 1);
		end++;
	}
	*next = end;
	return (!*end || *end == ',') && *size && *size <= MAX_SIZE;
}

static void parse_sizes(struct options *options, const char *list)
{
	for (options->size_count = 0;; list++) {
		if (options->size_count == MAX_SIZES)
			complain("too many sizes: ", list);
		if (!parse_size(list, &list, &options->sizes[options->size_count++]))
			complain("not a size from 1 to 1G: ", list);
		if (!*list)
			return;
	}
}

static void set_all_sizes(struct options *options)
{
	options->size_count = 0;
	for (uint64_t size = 2; size <= 8 << 20; size *= 2)
		options->sizes[options->size_count++] = size;
}

static uint64_t parse_number(const char *text, const char *what, uint64_t max)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || !value || value > max)
		complain(what, text);
	return value;
}

static double parse_seconds(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (*text < '0' || *text > '9' || *end || !(value >= 0.01 && value <= 86400))
		complain("not a number of seconds from 0.01 to 86400: ", text);
	return value;
}

static void parse_test(struct options *options, const char *name)
{
	for (unsigned i = 0; i < TESTS; i++) {
		if (strcmp(name, test_names[i]) != 0)
			continue;
		options->tests[i] = true;
		return;
	}
	complain("not a test, which are lat, rate and bw: ", name);
}

/* ---- options ---- */

enum { HELP = 256, VERSION, SERVER, SLEEP, DEVICE, JSON };

static const struct option long_options[] = {
	{"help", no_argument, NULL, HELP},
	{"version", no_argument, NULL, VERSION},
	{"server", no_argument, NULL, SERVER},
	{"sleep", no_argument, NULL, SLEEP},
	{"device", required_argument, NULL, DEVICE},
	{"json", no_argument, NULL, JSON},
	{"port", required_argument, NULL, 'p'},
	{"threads", required_argument, NULL, 't'},
	{"size", required_argument, NULL, 's'},
	{"all", no_argument, NULL, 'a'},
	{"connections", required_argument, NULL, 'c'},
	{"count", required_argument, NULL, 'n'},
	{"duration", required_argument, NULL, 'D'},
	{NULL, 0, NULL, 0},
};

static void print_and_leave(int option)
{
	if (option == HELP)
		printf("%s%s", usage, help);
	else
		puts("ibmsg-perf " TOOLS_VERSION);
	exit(0);
}

static void parse_option(struct options *options, int option)
{
	switch (option) {
	case HELP:
	case VERSION:
		print_and_leave(option);
		break;
	case SERVER:
		options->server = true;
		break;
	case SLEEP:
		options->sleeps = true;
		break;
	case DEVICE:
		options->device = optarg;
		break;
	case JSON:
		options->json = true;
		break;
	case 'p':
		options->port = (unsigned short)parse_number(optarg, "not a port: ", 65535);
		break;
	case 't':
		options->threads = (unsigned)parse_number(
			optarg, "not a number of threads from 1 to 256: ", MAX_THREADS);
		break;
	case 's':
		parse_sizes(options, optarg);
		break;
	case 'a':
		set_all_sizes(options);
		break;
	case 'c':
		options->connections = (unsigned)parse_number(
			optarg, "not a number of connections from 1 to 10000: ", MAX_CONNECTIONS);
		break;
	case 'n':
		options->count = parse_number(optarg, "not a number of messages: ", UINT32_MAX);
		break;
	case 'D':
		options->seconds = parse_seconds(optarg);
		break;
	default:
		fputs(usage, stderr);
		exit(EXIT_USAGE);
	}
}

static void check_server(const struct options *options, int arguments)
{
	if (arguments > 1)
		complain("a server takes one address", "");
	if (options->size_count || options->connections || options->count || options->seconds > 0 ||
	    options->json)
		complain("a server takes --port, --threads, --sleep and --device only: the client "
			 "decides the rest",
			 "");
	if (options->port + options->threads > 65536)
		complain("there are not so many ports for the threads", "");
}

static void check_client(struct options *options)
{
	if (!options->address)
		complain("of which server? An address is missing", "");
	if (options->count && options->seconds > 0)
		complain("either --count or --duration", "");
	if (options->connections && options->connections < options->threads)
		complain("fewer connections than threads", "");
	if (!options->connections)
		options->connections = options->threads;
	if (!options->count && !(options->seconds > 0))
		options->seconds = 1;
}

void options_parse(struct options *options, int argc, char **argv)
{
	int option;

	*options = (struct options){.port = DEFAULT_PORT, .threads = 1};
	while ((option = getopt_long(argc, argv, "p:t:s:ac:n:D:", long_options, NULL)) != -1)
		parse_option(options, option);
	if (optind < argc)
		options->address = argv[optind];
	if (options->server) {
		check_server(options, argc - optind);
		return;
	}
	check_client(options);
	for (int i = optind + 1; i < argc; i++)
		parse_test(options, argv[i]);
	if (optind + 1 >= argc)
		memset(options->tests, true, sizeof(options->tests));
}
