/* SPDX-License-Identifier: MIT */
/* Bare messages: a few buffers that are posted again and again. */
#include "send-messages.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "transfer.h"

#define MOST_BUFFERS 16
#define MOST_BYTES   ((size_t)64 << 20) /* in buffers, if more than one */

/* Of one process. */
static struct {
	const struct messages *messages;
	ibmsg_socket connection;
	ibmsg_buffer buffers[MOST_BUFFERS];
	unsigned num_buffers;
	uint64_t posted, sent, finished;
	int error; /* of the first that failed */
	bool has_ended;
	char reason[PEER_REASON_BYTES];
} sending;

static void post(ibmsg_buffer *msg)
{
	int error = ibmsg_post_send(&sending.connection, msg);

	if (!error)
		sending.posted++;
	else if (!sending.error)
		sending.error = error;
}

static void message_sent(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	(void)connection;
	sending.finished++;
	if (msg->status == IBMSG_SENT)
		sending.sent++;
	else if (!sending.error)
		sending.error = msg->error;
	if (!sending.error && sending.posted < sending.messages->count)
		post(msg);
}

static void connection_closed(ibmsg_socket *connection, int error)
{
	sending.has_ended = true;
	if (error == IBMSG_REJECTED)
		program_peer_reason(sending.reason, connection);
}

static bool alloc_buffers(void)
{
	const struct messages *messages = sending.messages;
	unsigned wanted = MOST_BUFFERS;

	if (messages->size > MOST_BYTES / MOST_BUFFERS)
		wanted = (unsigned)(MOST_BYTES / messages->size);
	if (wanted > messages->count)
		wanted = (unsigned)messages->count;
	if (!wanted && messages->count)
		wanted = 1;
	while (sending.num_buffers < wanted) {
		ibmsg_buffer *msg = &sending.buffers[sending.num_buffers];
		char *bytes;

		if (ibmsg_alloc_msg(msg, &sending.connection, messages->size))
			return false;
		sending.num_buffers++;
		bytes = msg->data;
		for (size_t i = 0; i < messages->size; i++)
			bytes[i] = messages->text ? messages->text[i] : (char)('a' + i % 26);
	}
	return true;
}

static bool free_buffers(void)
{
	bool all = true;

	while (sending.num_buffers)
		all &= !ibmsg_free_msg(&sending.buffers[--sending.num_buffers]);
	return all;
}

static int begin(ibmsg_event_loop *loop, char *host, unsigned short port)
{
	uint8_t greeting[TRANSFER_GREETING_BYTES];

	if (!sending.messages->text)
		return ibmsg_connect(loop, &sending.connection, host, port);
	transfer_put_greeting(greeting, PURPOSE_TEXT);
	return ibmsg_connect_with(loop, &sending.connection, host, port, greeting,
				  sizeof(greeting));
}

static int connect_fails(int error)
{
	if (!sending.reason[0])
		return program_fails_by(error, "could not connect to remote host");
	program_fails("could not connect to remote host");
	fprintf(stderr, "%s: the receiver says: %s\n", program_name, sending.reason);
	return EXIT_FAILURE;
}

/* The exit status; -1: go on. A signal ends it quietly: main knows. */
static int connect_to(ibmsg_event_loop *loop, char *host, unsigned short port)
{
	int error = begin(loop, host, port);

	if (error)
		return connect_fails(error);
	while (sending.connection.status != IBMSG_CONNECTED) {
		if (program_signal())
			return EXIT_FAILURE;
		if (sending.has_ended)
			return connect_fails(sending.connection.error);
		if (ibmsg_dispatch_event_loop(loop))
			return program_fails(
				"something went wrong while working in the event loop");
	}
	return -1;
}

static int send_all(ibmsg_event_loop *loop)
{
	if (!alloc_buffers())
		return program_fails("could not allocate message memory");
	for (unsigned i = 0; i < sending.num_buffers; i++)
		post(&sending.buffers[i]);
	while (sending.finished < sending.posted && !program_signal())
		if (ibmsg_dispatch_event_loop(loop))
			return program_fails(
				"something went wrong while working in the event loop");
	if (program_signal() || (sending.messages->count > 1 && !sending.messages->quiet))
		fprintf(stderr, "%s: %" PRIu64 " of %" PRIu64 " messages sent\n", program_name,
			sending.sent, sending.messages->count);
	if (program_signal())
		return EXIT_FAILURE;
	if (sending.error)
		return program_fails_by(sending.error, "could not send message");
	if (!free_buffers())
		return program_fails("could not free memory");
	return -1;
}

static int close_connection(ibmsg_event_loop *loop)
{
	if (ibmsg_disconnect(&sending.connection))
		return program_fails("could not disconnect");
	while (!sending.has_ended && !program_signal())
		if (ibmsg_dispatch_event_loop(loop))
			return program_fails(
				"something went wrong while working in the event loop");
	/* Closed without an error: all has arrived. */
	if (sending.connection.error)
		return program_fails_by(sending.connection.error, "could not disconnect");
	return EXIT_SUCCESS;
}

int send_messages(ibmsg_event_loop *loop, char *host, unsigned short port,
		  const struct messages *messages)
{
	int status;

	sending.messages = messages;
	loop->message_sent = message_sent;
	loop->connection_closed = connection_closed;
	status = connect_to(loop, host, port);
	if (status < 0)
		status = send_all(loop);
	if (status < 0)
		status = close_connection(loop);
	return status;
}
