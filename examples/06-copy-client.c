/* SPDX-License-Identifier: MIT */
/* Send a file in pieces, reading ahead a little: 06-copy-client ADDRESS PORT <FILE */
#include <stdio.h>
#include <stdlib.h>

#include <ibmsg.h>

#define PIECE  ((size_t)256 * 1024)
#define PIECES 4 /* under way at a time */

static ibmsg_buffer pieces[PIECES];
static int ended, has_more = 1;

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

static void send_piece(ibmsg_socket *connection, ibmsg_buffer *piece)
{
	piece->size = fread(piece->data, 1, PIECE, stdin);
	if (piece->size) {
		must(ibmsg_post_send(connection, piece), "post");
	} else if (has_more) {
		has_more = 0;
		must(ibmsg_disconnect(connection),
		     "disconnect"); /* when all that is posted has left */
	}
}

static void connection_established(ibmsg_socket *connection)
{
	for (int i = 0; i < PIECES; i++) {
		must(ibmsg_alloc_msg(&pieces[i], connection, PIECE), "alloc");
		send_piece(connection, &pieces[i]);
	}
}

/* The buffer is ours again: the next piece goes into it. */
static void message_sent(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	must(msg->error, "send");
	if (has_more)
		send_piece(connection, msg);
}

static void connection_closed(ibmsg_socket *connection, int error)
{
	(void)connection;
	must(error, "connection"); /* IBMSG_OK: the server has all of it */
	ended = 1;
}

int main(int argc, char **argv)
{
	ibmsg_event_loop loop;
	ibmsg_socket connection;

	if (argc != 3)
		return 2;
	must(ibmsg_init_event_loop(&loop), "init");
	loop.connection_established = connection_established;
	loop.message_sent = message_sent;
	loop.connection_closed = connection_closed;
	must(ibmsg_connect(&loop, &connection, argv[1], (unsigned short)atoi(argv[2])), "connect");
	while (!ended)
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
	for (int i = 0; i < PIECES; i++)
		ibmsg_free_msg(&pieces[i]);
	must(ibmsg_destroy_event_loop(&loop), "destroy");
	return ferror(stdin) ? 1 : 0;
}
