/* SPDX-License-Identifier: MIT */
/* The command line of rdma_client. */
#include "client_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "common.h"

static const char help[] = "usage: rdma_client [-a ADDRESS] [-p PORT] -s STRING | -f FILE\n"
			   "       rdma_client --help | --version\n"
			   "\n"
			   "Write a string or a file to the memory of the rdma_server at ADDRESS "
			   "(127.0.0.1) and PORT\n"
			   "(20886), read it back, and compare.\n"
			   "\n"
			   "  -a ADDRESS         the server: a name, or an IPv4 or IPv6 address\n"
			   "  -p PORT            its port\n"
			   "  -s STRING          what to write\n"
			   "  -f FILE            the same for a file, which rdma_server -f stores\n"
			   "      --timeout S    for each step, in seconds (10)\n"
			   "      --retry S      while nobody listens, try again for so long (0)\n"
			   "      --help         this\n"
			   "      --version      the version\n"
			   "\n"
			   "rdma_client(1) has the details.\n";

static const char usage[] =
	"Usage:\n"
	"rdma_client: [-a <server_addr>] [-p <server_port>] -s string (required)\n"
	"(default IP is 127.0.0.1 and port is 20886)\n";

enum { HELP = 256, VERSION, TIMEOUT, RETRY };

static const struct option known[] = {
	{"address", required_argument, NULL, 'a'},
	{"port", required_argument, NULL, 'p'},
	{"string", required_argument, NULL, 's'},
	{"file", required_argument, NULL, 'f'},
	{"timeout", required_argument, NULL, TIMEOUT},
	{"retry", required_argument, NULL, RETRY},
	{"help", no_argument, NULL, HELP},
	{"version", no_argument, NULL, VERSION},
	{NULL, 0, NULL, 0},
};

/* Whether the value is right. */
static bool take_option(struct client_options *options, int option)
{
	switch (option) {
	case 'a':
		options->address = optarg;
		return true;
	case 'p':
		return common_parse_port(optarg, &options->port) && options->port;
	case 's':
		options->string = optarg;
		return true;
	case 'f':
		options->file = optarg;
		return true;
	case TIMEOUT:
		return common_parse_seconds(optarg, &options->timeout_ms) && options->timeout_ms;
	case RETRY:
		return common_parse_seconds(optarg, &options->retry_ms);
	default:
		return false;
	}
}

static bool fail_usage(int *status)
{
	fputs(usage, stdout);
	fputs("rdma_client --help tells more.\n", stderr);
	*status = EXIT_FAILURE;
	return false;
}

bool client_options_parse(struct client_options *options, int argc, char **argv, int *status)
{
	int option;

	*options = (struct client_options){
		.address = "127.0.0.1",
		.port = DEFAULT_RDMA_PORT,
		.timeout_ms = DEFAULT_TIMEOUT_S * 1000,
	};
	*status = EXIT_SUCCESS;
	while ((option = getopt_long(argc, argv, "a:p:s:f:", known, NULL)) != -1) {
		if (option == HELP || option == VERSION) {
			fputs(option == HELP ? help : "rdma_client " RDMA_EXAMPLE_VERSION "\n",
			      stdout);
			return false;
		}
		if (!take_option(options, option))
			return fail_usage(status);
	}
	if (optind < argc || (options->string && options->file))
		return fail_usage(status);
	if (!options->file && (!options->string || !*options->string)) {
		puts("Please provide a string to copy ");
		return fail_usage(status);
	}
	return true;
}
