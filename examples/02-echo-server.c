/* SPDX-License-Identifier: MIT */
/* Send every message back, to any number of clients, until SIGTERM: 02-echo-server ADDRESS PORT */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <ibmsg.h>

static ibmsg_event_loop loop;
static volatile sig_atomic_t stop;

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

static void on_signal(int number)
{
	(void)number;
	stop = 1;
	/* Or a dispatch that has just begun would sleep on. */
	ibmsg_wake_event_loop(&loop); /* NOLINT(bugprone-signal-handler): it may be called here */
}

static void connection_request(ibmsg_connection_request *request)
{
	ibmsg_socket *connection = malloc(sizeof(*connection));

	if (connection && ibmsg_accept(request, connection) != IBMSG_OK)
		free(connection);
}

/* What was received may be posted as it is: no copy. */
static void message_received(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	if (ibmsg_post_send(connection, msg) != IBMSG_OK)
		ibmsg_free_msg(msg);
}

/* Sent or failed, the message is ours again. */
static void message_sent(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	(void)connection;
	ibmsg_free_msg(msg);
}

static void connection_closed(ibmsg_socket *connection, int error)
{
	printf("connection closed: %s\n", ibmsg_strerror(error));
	free(connection);
}

int main(int argc, char **argv)
{
	ibmsg_socket listener;

	if (argc != 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0); /* seen at once, in a file too */
	must(ibmsg_init_event_loop(&loop), "init");
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	loop.connection_request = connection_request;
	loop.message_received = message_received;
	loop.message_sent = message_sent;
	loop.connection_closed = connection_closed;
	must(ibmsg_listen(&loop, &listener, argv[1], (short)atoi(argv[2]), 16), "listen");
	printf("listening\n");
	while (!stop)
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
	must(ibmsg_destroy_event_loop(&loop), "destroy");
	return 0;
}
