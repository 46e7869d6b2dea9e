/* SPDX-License-Identifier: MIT */
/* A hundred connections on one loop, each with a state of its own: 07-many-clients ADDRESS PORT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ibmsg.h>

#define CLIENTS 100
#define ROUNDS  10

/* What a connection knows; its socket's user_data leads here. */
struct client {
	ibmsg_socket socket;
	ibmsg_buffer first;
	unsigned number, rounds;
};

static struct client clients[CLIENTS];
static unsigned still_open = CLIENTS, answers, failures;

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

static void connection_established(ibmsg_socket *connection)
{
	struct client *client = connection->user_data;

	must(ibmsg_alloc_msg(&client->first, connection, sizeof(client->number)), "alloc");
	memcpy(client->first.data, &client->number, sizeof(client->number));
	must(ibmsg_post_send(connection, &client->first), "post");
}

/* The answer is the next question. */
static void message_received(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	struct client *client = connection->user_data;

	if (msg->size == sizeof(client->number) && !memcmp(msg->data, &client->number, msg->size))
		answers++;
	if (++client->rounds < ROUNDS) {
		must(ibmsg_post_send(connection, msg), "post");
	} else {
		ibmsg_free_msg(msg);
		must(ibmsg_disconnect(connection), "disconnect");
	}
}

static void message_sent(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	(void)connection;
	ibmsg_free_msg(msg);
}

static void connection_closed(ibmsg_socket *connection, int error)
{
	(void)connection;
	still_open--;
	if (error)
		failures++;
}

int main(int argc, char **argv)
{
	ibmsg_event_loop loop;

	if (argc != 3)
		return 2;
	must(ibmsg_init_event_loop(&loop), "init");
	loop.connection_established = connection_established;
	loop.message_received = message_received;
	loop.message_sent = message_sent;
	loop.connection_closed = connection_closed;
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *client = &clients[i];

		must(ibmsg_connect(&loop, &client->socket, argv[1], (unsigned short)atoi(argv[2])),
		     "connect");
		client->socket.user_data = client;
		client->number = i;
	}
	while (still_open)
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
	printf("%d clients, %u answers, %u failed\n", CLIENTS, answers, failures);
	must(ibmsg_destroy_event_loop(&loop), "destroy");
	return failures || answers != CLIENTS * ROUNDS;
}
