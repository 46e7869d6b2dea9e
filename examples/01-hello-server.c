/* SPDX-License-Identifier: MIT */
/* Print the messages of one client, then end: 01-hello-server ADDRESS PORT */
#include <stdio.h>
#include <stdlib.h>

#include <ibmsg.h>

static int ended;

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

/* A request that is not accepted here is rejected. */
static void connection_request(ibmsg_connection_request *request)
{
	ibmsg_socket *connection = malloc(sizeof(*connection));

	if (connection && ibmsg_accept(request, connection) != IBMSG_OK)
		free(connection);
}

static void connection_established(ibmsg_socket *connection)
{
	(void)connection;
	printf("connection established\n");
}

static void message_received(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	(void)connection;
	printf("message received: %.*s\n", (int)msg->size, (char *)msg->data);
	ibmsg_free_msg(msg);
}

static void connection_closed(ibmsg_socket *connection, int error)
{
	printf("connection closed: %s\n", ibmsg_strerror(error));
	free(connection);
	ended = 1;
}

int main(int argc, char **argv)
{
	ibmsg_event_loop loop;
	ibmsg_socket listener;

	if (argc != 3)
		return 2;
	must(ibmsg_init_event_loop(&loop), "init");
	loop.connection_request = connection_request;
	loop.connection_established = connection_established;
	loop.message_received = message_received;
	loop.connection_closed = connection_closed;
	must(ibmsg_listen(&loop, &listener, argv[1], (short)atoi(argv[2]), 16), "listen");
	printf("listening\n");
	fflush(stdout);
	while (!ended)
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
	must(ibmsg_destroy_event_loop(&loop), "destroy"); /* the listener ends with it */
	return 0;
}
