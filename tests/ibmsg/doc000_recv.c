/* SPDX-License-Identifier: MIT */
/*
 * A server as document 000 and originals.md A.4 describe it, with nothing but the inherited
 * interface: takes every connection and every message, for ever.
 */
#include <ibmsg.h>

#include <stdio.h>
#include <stdlib.h>

#define PROGRAM "ibmsg-rdma-recv"
#define BACKLOG 64

static int fails(const char *what)
{
	fprintf(stderr, PROGRAM ": error: %s\n", what);
	return EXIT_FAILURE;
}

/* Nothing of it is zeroed, and nobody says when it may be freed. */
static void connection_request(ibmsg_connection_request *request)
{
	ibmsg_socket *connection = malloc(sizeof(ibmsg_socket));

	if (connection)
		ibmsg_accept(request, connection);
}

static void connection_established(ibmsg_socket *connection)
{
	(void)connection;
	puts("connection established");
}

static void message_received(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	const char *text = msg->data;

	(void)connection;
	puts("message received");
	if (msg->size)
		printf("%zu bytes, from '%c' to '%c'\n", msg->size, text[0], text[msg->size - 1]);
	ibmsg_free_msg(msg);
}

int main(int argc, char **argv)
{
	ibmsg_event_loop event_loop;
	ibmsg_socket socket;
	short port;

	if (argc < 2 || argc > 3) {
		fails("illegal number of arguments");
		fprintf(stderr, PROGRAM ": usage: " PROGRAM " IP [PORT]\n");
		return EXIT_FAILURE;
	}
	port = argc == 3 ? (short)atoi(argv[2]) : 12345;
	setvbuf(stdout, NULL, _IOLBF, 0);

	if (ibmsg_init_event_loop(&event_loop))
		return fails("could not initialize event loop");
	event_loop.connection_request = connection_request;
	event_loop.connection_established = connection_established;
	event_loop.message_received = message_received;

	if (ibmsg_listen(&event_loop, &socket, argv[1], port, BACKLOG))
		return fails("could not listen");
	puts("listening");
	while (!ibmsg_dispatch_event_loop(&event_loop))
		;
	fails("something went wrong while working in the event loop");

	if (ibmsg_destroy_event_loop(&event_loop))
		return fails("could not destroy event loop");
	return EXIT_SUCCESS;
}
