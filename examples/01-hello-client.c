/* SPDX-License-Identifier: MIT */
/* Send one message, without a callback: 01-hello-client ADDRESS PORT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ibmsg.h>

static const char text[] = "hello";

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

int main(int argc, char **argv)
{
	ibmsg_event_loop loop;
	ibmsg_socket connection;
	ibmsg_buffer msg;

	if (argc != 3)
		return 2;
	must(ibmsg_init_event_loop(&loop), "init");
	must(ibmsg_connect(&loop, &connection, argv[1], (unsigned short)atoi(argv[2])), "connect");
	while (connection.status != IBMSG_CONNECTED) {
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
		if (connection.status == IBMSG_ERROR)
			must(connection.error, "connect");
	}

	must(ibmsg_alloc_msg(&msg, &connection, strlen(text)), "alloc");
	memcpy(msg.data, text, strlen(text));
	must(ibmsg_post_send(&connection, &msg), "post");
	while (msg.status == IBMSG_WAITING)
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
	must(msg.error, "send");
	must(ibmsg_free_msg(&msg), "free");

	must(ibmsg_disconnect(&connection), "disconnect");
	while (connection.status != IBMSG_UNCONNECTED)
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
	must(connection.error, "close"); /* IBMSG_OK: all has arrived */
	must(ibmsg_destroy_event_loop(&loop), "destroy");
	return 0;
}
