/* SPDX-License-Identifier: MIT */
/* Receive a file into COPY, which is there only when all has come: 06-copy-server ADDRESS PORT
 * [COPY] */
#include <stdio.h>
#include <stdlib.h>

#include <ibmsg.h>

static const char *copy = "copy";
static char unfinished[4096];
static FILE *file;
static ibmsg_socket connection;
static int accepted, ended, failed;

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

static void connection_request(ibmsg_connection_request *request)
{
	if (!accepted && ibmsg_accept(request, &connection) == IBMSG_OK)
		accepted = 1;
	/* Others are rejected: there is one file. */
}

static void message_received(ibmsg_socket *from, ibmsg_buffer *msg)
{
	(void)from;
	if (fwrite(msg->data, 1, msg->size, file) != msg->size)
		failed = 1;
	ibmsg_free_msg(msg);
}

/* Only IBMSG_OK says that this was the end of the file, and not of the sender. */
static void connection_closed(ibmsg_socket *from, int error)
{
	(void)from;
	ended = 1;
	failed |= error != IBMSG_OK;
	printf("connection closed: %s\n", ibmsg_strerror(error));
}

int main(int argc, char **argv)
{
	ibmsg_event_loop loop;
	ibmsg_socket listener;

	if (argc < 3 || argc > 4)
		return 2;
	if (argc == 4)
		copy = argv[3];
	snprintf(unfinished, sizeof(unfinished), "%s.part", copy);
	file = fopen(unfinished, "wb");
	if (!file) {
		perror(unfinished);
		return 1;
	}
	must(ibmsg_init_event_loop(&loop), "init");
	loop.connection_request = connection_request;
	loop.message_received = message_received;
	loop.connection_closed = connection_closed;
	must(ibmsg_listen(&loop, &listener, argv[1], (short)atoi(argv[2]), 1), "listen");
	printf("listening\n");
	fflush(stdout);
	while (!ended)
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
	must(ibmsg_destroy_event_loop(&loop), "destroy");
	if (fclose(file) || failed || rename(unfinished, copy)) {
		remove(unfinished);
		fprintf(stderr, "%s: not complete\n", copy);
		return 1;
	}
	return 0;
}
