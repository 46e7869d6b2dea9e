/* SPDX-License-Identifier: MIT */
/* Standard input and a loop in one poll. Needs 02-echo-server: 04-poll ADDRESS PORT <FILE */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ibmsg.h>

static unsigned posted, received;
static int ended;

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

static void message_received(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	(void)connection;
	fwrite(msg->data, 1, msg->size, stdout);
	ibmsg_free_msg(msg);
	received++;
}

static void message_sent(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	(void)connection;
	ibmsg_free_msg(msg);
	free(msg); /* the struct is ours, too */
}

static void connection_closed(ibmsg_socket *connection, int error)
{
	(void)connection;
	ended = 1;
	must(error, "connection");
}

/* False: standard input has ended. */
static int send_input(ibmsg_socket *connection)
{
	char bytes[1000];
	ssize_t len = read(STDIN_FILENO, bytes, sizeof(bytes));
	ibmsg_buffer *msg;

	if (len <= 0)
		return 0;
	msg = malloc(sizeof(*msg));
	if (!msg)
		exit(1);
	must(ibmsg_alloc_msg(msg, connection, (size_t)len), "alloc");
	memcpy(msg->data, bytes, (size_t)len);
	must(ibmsg_post_send(connection, msg), "post");
	posted++;
	return 1;
}

int main(int argc, char **argv)
{
	ibmsg_event_loop loop;
	ibmsg_socket connection;
	struct pollfd fds[2];

	if (argc != 3)
		return 2;
	must(ibmsg_init_event_loop(&loop), "init");
	loop.message_received = message_received;
	loop.message_sent = message_sent;
	loop.connection_closed = connection_closed;
	must(ibmsg_connect(&loop, &connection, argv[1], (unsigned short)atoi(argv[2])), "connect");
	fds[0] = (struct pollfd){.fd = ibmsg_event_loop_fd(&loop), .events = POLLIN};
	fds[1] = (struct pollfd){.events = POLLIN};
	while (!ended) {
		fds[1].fd = connection.status == IBMSG_CONNECTED ? STDIN_FILENO : -1;
		poll(fds, 2, -1);
		if (fds[0].revents)
			must(ibmsg_dispatch_event_loop_timeout(&loop, 0), "dispatch");
		/* What the peer posts in answer still arrives after this. */
		if (fds[1].revents && connection.status == IBMSG_CONNECTED &&
		    !send_input(&connection))
			must(ibmsg_disconnect(&connection), "disconnect");
	}
	must(ibmsg_destroy_event_loop(&loop), "destroy");
	return received == posted ? 0 : 1;
}
