/* SPDX-License-Identifier: MIT */
/* The command line of rdma_server. */
#include "server_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "common.h"

static const char help[] =
	"usage: rdma_server [-a ADDRESS] [-p PORT] [-f FILE] [--forever] [OPTION...]\n"
	"       rdma_server --help | --version\n"
	"\n"
	"Give a client memory of the length that it asks for, to write to and to read from by "
	"RDMA.\n"
	"Ends when the client has disconnected.\n"
	"\n"
	"  -a ADDRESS          listen there: a name, or an IPv4 or IPv6 address (every IPv4 one)\n"
	"  -p PORT             and at this port (20886); 0 is any that is free\n"
	"  -f FILE             store the file that rdma_client -f writes\n"
	"      --forever       serve clients, many at once, until interrupted\n"
	"      --max-length N  bytes that a client may ask for, at most (1G); K, M, G may follow\n"
	"      --max-total N   bytes that all clients may have together (4G)\n"
	"      --timeout S     seconds for a client to ask (10)\n"
	"      --help          this\n"
	"      --version       the version\n"
	"\n"
	"rdma_server(1) has the details.\n";

static const char usage[] = "Usage:\n"
			    "rdma_server: [-a <server_addr>] [-p <server_port>]\n"
			    "(default port is 20886)\n";

enum { HELP = 256, VERSION, FOREVER, MAX_LENGTH, MAX_TOTAL, TIMEOUT };

static const struct option known[] = {
	{"address", required_argument, NULL, 'a'},
	{"port", required_argument, NULL, 'p'},
	{"file", required_argument, NULL, 'f'},
	{"forever", no_argument, NULL, FOREVER},
	{"max-length", required_argument, NULL, MAX_LENGTH},
	{"max-total", required_argument, NULL, MAX_TOTAL},
	{"timeout", required_argument, NULL, TIMEOUT},
	{"help", no_argument, NULL, HELP},
	{"version", no_argument, NULL, VERSION},
	{NULL, 0, NULL, 0},
};

/* Whether the value is right. */
static bool take_option(struct server_options *options, int option)
{
	switch (option) {
	case 'a':
		options->address = optarg;
		return true;
	case 'p':
		return common_parse_port(optarg, &options->port);
	case 'f':
		options->file = optarg;
		return true;
	case FOREVER:
		options->forever = true;
		return true;
	case MAX_LENGTH:
		return common_parse_number(optarg, true, UINT64_MAX, &options->max_length);
	case MAX_TOTAL:
		return common_parse_number(optarg, true, UINT64_MAX, &options->max_total);
	case TIMEOUT:
		return common_parse_seconds(optarg, &options->timeout_ms) && options->timeout_ms;
	default:
		return false;
	}
}

bool server_options_parse(struct server_options *options, int argc, char **argv, int *status)
{
	bool is_right = true;
	int option;

	*options = (struct server_options){
		.port = DEFAULT_RDMA_PORT,
		.max_length = 1ull << 30,
		.max_total = 4ull << 30,
		.timeout_ms = DEFAULT_TIMEOUT_S * 1000,
	};
	*status = EXIT_SUCCESS;
	while (is_right && (option = getopt_long(argc, argv, "a:p:f:", known, NULL)) != -1) {
		if (option == HELP || option == VERSION) {
			fputs(option == HELP ? help : "rdma_server " RDMA_EXAMPLE_VERSION "\n",
			      stdout);
			return false;
		}
		is_right = take_option(options, option);
	}
	if (is_right && optind == argc)
		return true;
	fputs(usage, stdout);
	fputs("rdma_server --help tells more.\n", stderr);
	*status = EXIT_FAILURE;
	return false;
}
