/* SPDX-License-Identifier: MIT */
/* ibmsg-recv: takes messages and says so, or takes a file. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "transfer/output.h"
#include "transfer/program.h"
#include "transfer/progress.h"
#include "transfer/recv-file.h"
#include "transfer/transfer.h"

#define BACKLOG 64

const char program_name[] = "ibmsg-rdma-recv";

static const char help[] = "usage: ibmsg-recv [-q] [--once] ADDRESS [PORT]\n"
			   "       ibmsg-recv [-q] -o FILE ADDRESS [PORT]\n"
			   "       ibmsg-recv --help | --version\n"
			   "\n"
			   "Listen at ADDRESS, or at all for \"*\", and port PORT (12345), and "
			   "take what ibmsg-send sends.\n"
			   "Without -o say \"message received\" for each message, for ever.\n"
			   "\n"
			   "  -o, --output FILE  take one file or stream and write it to FILE; - "
			   "is standard output; in a\n"
			   "                     folder it has the sender's name for it. FILE "
			   "appears when it is whole.\n"
			   "      --once         end after one connection\n"
			   "  -q, --quiet        no LOG lines, no progress bar\n"
			   "      --help         this\n"
			   "      --version      the version\n"
			   "\n"
			   "ibmsg-recv(1) has the details.\n";

struct options {
	const char *output; /* NULL: messages */
	bool once, quiet;
	char *address;
	unsigned short port;
};

/* ---- messages ---- */

/* A connection; its purpose is told when it comes. */
struct peer {
	ibmsg_socket socket;
	enum transfer_purpose purpose;
};

static bool once, has_peer, has_ended, leaving;
static int status = EXIT_SUCCESS;

static void connection_request(ibmsg_connection_request *request)
{
	static const char no_files[] = "takes messages only: needs -o";
	static const char no_more[] = "takes one connection only";
	enum transfer_purpose purpose =
		transfer_get_greeting(request->user_data, request->user_data_len);
	struct peer *peer;

	if (purpose == PURPOSE_FILE || (once && has_peer)) {
		const char *why = purpose == PURPOSE_FILE ? no_files : no_more;

		ibmsg_reject(request, why, strlen(why));
		return;
	}
	peer = malloc(sizeof(*peer));
	if (!peer)
		return;
	peer->purpose = purpose;
	peer->socket.user_data = peer;
	if (ibmsg_accept(request, &peer->socket))
		free(peer);
	else
		has_peer = true;
}

static void connection_established(ibmsg_socket *connection)
{
	(void)connection;
	puts("connection established");
}

static void message_received(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	const struct peer *peer = connection->user_data;

	if (peer->purpose == PURPOSE_TEXT) {
		program_make_printable(msg->data, msg->size);
		fputs("message received: ", stdout);
		fwrite(msg->data, 1, msg->size, stdout);
		putchar('\n');
	} else {
		puts("message received");
	}
	ibmsg_free_msg(msg);
}

static void connection_closed(ibmsg_socket *connection, int error)
{
	if (error && !leaving) {
		program_fails("a connection has ended: %s", ibmsg_strerror(error));
		status = EXIT_FAILURE;
	}
	free(connection->user_data);
	has_ended = once;
}

static void recv_messages_init(ibmsg_event_loop *loop, bool only_once)
{
	once = only_once;
	loop->connection_request = connection_request;
	loop->connection_established = connection_established;
	loop->message_received = message_received;
	loop->connection_closed = connection_closed;
}

/* ---- both ---- */

/* Until it is over, or a signal comes; then the sender of a file is given a moment. */
static int work(ibmsg_event_loop *loop, const struct options *options)
{
	uint64_t deadline = 0;

	while (options->output ? !recv_file_has_ended() : !has_ended) {
		if (program_signal() && !options->output)
			break;
		if (program_signal() && !deadline) {
			deadline = program_now_ms() + GOODBYE_MS;
			recv_file_give_up();
			continue;
		}
		if (deadline && program_now_ms() > deadline)
			break;
		if (ibmsg_dispatch_event_loop_timeout(
			    loop, deadline || recv_file_is_moving() ? PROGRESS_MS : -1))
			return program_fails(
				"something went wrong while working in the event loop");
	}
	return options->output ? recv_file_status() : status;
}

static int run(const struct options *options)
{
	ibmsg_event_loop loop;
	ibmsg_socket listener;
	int error, result;

	error = ibmsg_init_event_loop(&loop);
	if (error)
		return program_fails_by(error, "could not initialize event loop");
	if (options->output)
		recv_file_init(&loop, options->output, options->quiet);
	else
		recv_messages_init(&loop, options->once);
	program_catch_signals(&loop);

	error = ibmsg_listen(&loop, &listener, options->address, (short)options->port, BACKLOG);
	if (error) {
		ibmsg_destroy_event_loop(&loop);
		return program_fails_by(error, "could not listen");
	}
	result = work(&loop, options);
	leaving = true; /* connections that end with the loop are no news */
	if (ibmsg_disconnect(&listener))
		result = program_fails("could not disconnect socket");
	if (ibmsg_destroy_event_loop(&loop))
		result = program_fails("could not destroy event loop");
	return program_signal() ? 128 + program_signal() : result;
}

/* Whether to go on; otherwise @status is set. */
static bool parse(int argc, char **argv, struct options *options, int *status_)
{
	enum { HELP = 256, VERSION, ONCE };
	static const struct option known[] = {
		{"output", required_argument, NULL, 'o'}, {"quiet", no_argument, NULL, 'q'},
		{"once", no_argument, NULL, ONCE},        {"help", no_argument, NULL, HELP},
		{"version", no_argument, NULL, VERSION},  {NULL, 0, NULL, 0},
	};
	int option;

	*status_ = EXIT_SUCCESS;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "o:q", known, NULL)) != -1) {
		switch (option) {
		case 'o':
			options->output = optarg;
			break;
		case 'q':
			options->quiet = true;
			break;
		case ONCE:
			options->once = true;
			break;
		case HELP:
			fputs(help, stdout);
			return false;
		case VERSION:
			puts("ibmsg-recv " IBMSG_VERSION);
			return false;
		default:
			*status_ = program_usage_fails("illegal option; see ibmsg-recv --help");
			return false;
		}
	}
	if (argc - optind < 1 || argc - optind > 2) {
		*status_ = program_usage_fails("illegal number of arguments");
		return false;
	}
	options->address = argv[optind];
	options->port = DEFAULT_PORT;
	if (argc - optind == 2 && !program_parse_port(argv[optind + 1], &options->port)) {
		*status_ = program_usage_fails("illegal port");
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct options options = {.once = false};
	int result, error;

	if (!parse(argc, argv, &options, &result))
		return result;
	setvbuf(stdout, NULL, _IOLBF, 0);
	program_set_log(!options.output && !options.quiet);
	error = options.output ? output_check(options.output) : 0;
	if (error)
		return program_fails("could not write %s: %s", options.output, strerror(-error));
	return run(&options);
}
