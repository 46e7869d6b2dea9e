/* SPDX-License-Identifier: MIT */
/* ibmsg-send: sends a message, many messages, or a file. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "transfer/program.h"
#include "transfer/send-file.h"
#include "transfer/send-messages.h"

const char program_name[] = "ibmsg-rdma-send";

static const char help[] =
	"usage: ibmsg-send [-q] [-n COUNT] [-s SIZE | -m TEXT] ADDRESS [PORT]\n"
	"       ibmsg-send [-q] -f FILE ADDRESS [PORT]\n"
	"       ibmsg-send --help | --version\n"
	"\n"
	"Send a message of 4096 bytes to the ibmsg-recv at ADDRESS and port PORT (12345).\n"
	"\n"
	"  -f, --file FILE    send a file; - is standard input. The receiver is ibmsg-recv -o.\n"
	"  -m, --message TEXT send TEXT, which the receiver prints\n"
	"  -n, --count COUNT  send so many messages\n"
	"  -s, --size SIZE    of so many bytes; K, M and G may stand behind it\n"
	"  -q, --quiet        no LOG lines, no progress bar\n"
	"      --help         this\n"
	"      --version      the version\n"
	"\n"
	"ibmsg-send(1) has the details.\n";

struct options {
	const char *file; /* NULL: messages */
	bool quiet, messages_asked_for;
	struct messages messages;
	char *address;
	unsigned short port;
};

static int run(const struct options *options)
{
	ibmsg_event_loop loop;
	int error, result;

	error = ibmsg_init_event_loop(&loop);
	if (error)
		return program_fails_by(error, "could not initialize event loop");
	program_catch_signals(&loop);
	if (options->file)
		result = send_file(&loop, options->address, options->port, options->file,
				   options->quiet);
	else
		result = send_messages(&loop, options->address, options->port, &options->messages);
	if (ibmsg_destroy_event_loop(&loop))
		result = program_fails("could not destroy event loop");
	return program_signal() ? 128 + program_signal() : result;
}

/* Whether the value is right. */
static bool take_option(struct options *options, int option)
{
	struct messages *messages = &options->messages;
	uint64_t size;

	switch (option) {
	case 'f':
		options->file = optarg;
		return true;
	case 'm':
		options->messages_asked_for = true;
		messages->text = optarg;
		messages->size = strlen(optarg);
		return true;
	case 'n':
		options->messages_asked_for = true;
		return program_parse_number(optarg, false, UINT64_MAX, &messages->count);
	case 's':
		options->messages_asked_for = true;
		if (!program_parse_number(optarg, true, SIZE_MAX / 2, &size))
			return false;
		messages->size = (size_t)size;
		return !messages->text;
	case 'q':
		options->quiet = true;
		messages->quiet = true;
		return true;
	default:
		return false;
	}
}

/* Whether to go on; otherwise @status is set. */
static bool parse(int argc, char **argv, struct options *options, int *status)
{
	enum { HELP = 256, VERSION };
	static const struct option known[] = {
		{"file", required_argument, NULL, 'f'},  {"message", required_argument, NULL, 'm'},
		{"count", required_argument, NULL, 'n'}, {"size", required_argument, NULL, 's'},
		{"quiet", no_argument, NULL, 'q'},       {"help", no_argument, NULL, HELP},
		{"version", no_argument, NULL, VERSION}, {NULL, 0, NULL, 0},
	};
	int option;

	*status = EXIT_SUCCESS;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "f:m:n:s:q", known, NULL)) != -1) {
		if (option == HELP || option == VERSION) {
			fputs(option == HELP ? help : "ibmsg-send " IBMSG_VERSION "\n", stdout);
			return false;
		}
		if (!take_option(options, option)) {
			*status = program_usage_fails("illegal option; see ibmsg-send --help");
			return false;
		}
	}
	if (argc - optind < 1 || argc - optind > 2)
		*status = program_usage_fails("illegal number of arguments");
	else if (options->file && options->messages_asked_for)
		*status = program_usage_fails("either messages or a file");
	else if (argc - optind == 2 && !program_parse_port(argv[optind + 1], &options->port))
		*status = program_usage_fails("illegal port");
	options->address = argv[optind];
	return *status == EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct options options = {
		.port = DEFAULT_PORT,
		.messages = {.count = 1, .size = IBMSG_MAX_MSGSIZE},
	};
	int status;

	if (!parse(argc, argv, &options, &status))
		return status;
	setvbuf(stdout, NULL, _IOLBF, 0);
	program_set_log(!options.file && !options.quiet);
	return run(&options);
}
