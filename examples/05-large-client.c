/* SPDX-License-Identifier: MIT */
/* A large message, one that is too large, and a last one: 05-large-client ADDRESS PORT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ibmsg.h>

#define LARGEST (64u << 20) /* that the server takes */

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

/* The error that the message ended with. The server reads it from where it is: no copy is made. */
static int send_bytes(ibmsg_event_loop *loop, ibmsg_socket *connection, size_t size)
{
	ibmsg_buffer msg;
	int error;

	must(ibmsg_alloc_msg(&msg, connection, size), "alloc");
	memset(msg.data, 'x', size);
	must(ibmsg_post_send(connection, &msg), "post");
	while (msg.status == IBMSG_WAITING)
		must(ibmsg_dispatch_event_loop(loop), "dispatch");
	error = msg.error;
	must(ibmsg_free_msg(&msg), "free");
	return error;
}

int main(int argc, char **argv)
{
	ibmsg_event_loop loop;
	ibmsg_socket connection;
	int error;

	if (argc != 3)
		return 2;
	must(ibmsg_init_event_loop(&loop), "init");
	must(ibmsg_connect(&loop, &connection, argv[1], (unsigned short)atoi(argv[2])), "connect");
	while (connection.status != IBMSG_CONNECTED) {
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
		if (connection.status == IBMSG_ERROR)
			must(connection.error, "connect");
	}

	must(send_bytes(&loop, &connection, LARGEST), "send");
	error = send_bytes(&loop, &connection, LARGEST + 1);
	printf("%u bytes: %s. Hint: %s\n", LARGEST + 1, ibmsg_strerror(error),
	       ibmsg_error_hint(error));
	must(send_bytes(&loop, &connection, 1000), "send"); /* only that message has failed */

	must(ibmsg_disconnect(&connection), "disconnect");
	while (connection.status != IBMSG_UNCONNECTED)
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
	must(connection.error, "close");
	must(ibmsg_destroy_event_loop(&loop), "destroy");
	return error == IBMSG_MESSAGE_TOO_LARGE ? 0 : 1;
}
