/* SPDX-License-Identifier: MIT */
/*
 * A client as document 000 and originals.md A.4 describe it, with nothing but the inherited
 * interface: one message of 4096 bytes, then it disconnects. It watches the status fields.
 */
#include <ibmsg.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM "ibmsg-rdma-send"

static int fails(const char *what)
{
	fprintf(stderr, PROGRAM ": error: %s\n", what);
	return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	ibmsg_event_loop event_loop;
	ibmsg_socket connection;
	ibmsg_buffer msg;
	unsigned short port;

	if (argc < 2 || argc > 3) {
		fails("illegal number of arguments");
		fprintf(stderr, PROGRAM ": usage: " PROGRAM " IP [PORT]\n");
		return EXIT_FAILURE;
	}
	port = argc == 3 ? (unsigned short)atoi(argv[2]) : 12345;

	if (ibmsg_init_event_loop(&event_loop))
		return fails("could not initialize event loop");
	if (ibmsg_connect(&event_loop, &connection, argv[1], port))
		return fails("could not connect to remote host");
	while (connection.status != IBMSG_CONNECTED)
		if (connection.status == IBMSG_ERROR || ibmsg_dispatch_event_loop(&event_loop))
			return fails("could not connect to remote host");

	if (ibmsg_alloc_msg(&msg, &connection, IBMSG_MAX_MSGSIZE))
		return fails("could not allocate message memory");
	memset(msg.data, 'o', msg.size);
	((char *)msg.data)[0] = 'f';
	((char *)msg.data)[msg.size - 1] = 'l';
	if (ibmsg_post_send(&connection, &msg))
		return fails("could not send message");
	while (msg.status != IBMSG_SENT)
		if (ibmsg_dispatch_event_loop(&event_loop))
			return fails("something went wrong while working in the event loop");
	if (ibmsg_free_msg(&msg))
		return fails("could not free memory");

	if (ibmsg_disconnect(&connection))
		return fails("could not disconnect");
	while (connection.status != IBMSG_UNCONNECTED)
		if (ibmsg_dispatch_event_loop(&event_loop))
			return fails("something went wrong while working in the event loop");
	if (ibmsg_destroy_event_loop(&event_loop))
		return fails("could not destroy event loop");
	return EXIT_SUCCESS;
}
