/* SPDX-License-Identifier: MIT */
/* Take messages of up to 64 MiB from one client: 05-large-server ADDRESS PORT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ibmsg.h>

#define LARGEST (64u << 20)

static int ended;

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

static void connection_request(ibmsg_connection_request *request)
{
	ibmsg_socket *connection = malloc(sizeof(*connection));

	if (connection && ibmsg_accept(request, connection) != IBMSG_OK)
		free(connection);
}

static void message_received(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	const char *bytes = msg->data;
	int intact = bytes[0] == 'x' && !memcmp(bytes, bytes + 1, msg->size - 1);

	(void)connection;
	printf("%zu bytes, %s\n", msg->size, intact ? "intact" : "damaged");
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
	must(ibmsg_set_max_message(&loop, LARGEST), "limit"); /* 1 GiB unless told */
	loop.connection_request = connection_request;
	loop.message_received = message_received;
	loop.connection_closed = connection_closed;
	must(ibmsg_listen(&loop, &listener, argv[1], (short)atoi(argv[2]), 16), "listen");
	printf("listening\n");
	fflush(stdout);
	while (!ended)
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
	must(ibmsg_destroy_event_loop(&loop), "destroy");
	return 0;
}
