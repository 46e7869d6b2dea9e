/* SPDX-License-Identifier: MIT */
/* Send messages all at once, and check what comes back: 02-echo-client ADDRESS PORT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ibmsg.h>

#define MESSAGES 1000u
#define BYTES    100

static unsigned received, wrong;
static int ended;

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

/* More than the peer has receives for: what cannot leave yet waits in its buffer. */
static void connection_established(ibmsg_socket *connection)
{
	ibmsg_buffer *messages = connection->user_data;

	for (unsigned i = 0; i < MESSAGES; i++) {
		must(ibmsg_alloc_msg(&messages[i], connection, BYTES), "alloc");
		memset(messages[i].data, (int)(i % 256), BYTES);
		must(ibmsg_post_send(connection, &messages[i]), "post");
	}
}

/* The peer's come in the order in which they were posted there. */
static void message_received(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	const unsigned char *bytes = msg->data;

	if (msg->size != BYTES || bytes[0] != received % 256 || bytes[BYTES - 1] != received % 256)
		wrong++;
	ibmsg_free_msg(msg);
	if (++received == MESSAGES)
		ibmsg_disconnect(connection);
}

static void message_sent(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	(void)connection;
	if (msg->status == IBMSG_FAILED)
		fprintf(stderr, "a message failed: %s\n", ibmsg_strerror(msg->error));
	ibmsg_free_msg(msg);
}

/* Also called when the connection could not be established. */
static void connection_closed(ibmsg_socket *connection, int error)
{
	(void)connection;
	ended = 1;
	must(error, "connection");
}

int main(int argc, char **argv)
{
	static ibmsg_buffer messages[MESSAGES];
	ibmsg_event_loop loop;
	ibmsg_socket connection;

	if (argc != 3)
		return 2;
	must(ibmsg_init_event_loop(&loop), "init");
	loop.connection_established = connection_established;
	loop.message_received = message_received;
	loop.message_sent = message_sent;
	loop.connection_closed = connection_closed;
	connection.user_data = messages;
	must(ibmsg_connect(&loop, &connection, argv[1], (unsigned short)atoi(argv[2])), "connect");
	while (!ended)
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
	must(ibmsg_destroy_event_loop(&loop), "destroy");
	printf("%u of %u came back, %u wrong\n", received, MESSAGES, wrong);
	return received == MESSAGES && !wrong ? 0 : 1;
}
