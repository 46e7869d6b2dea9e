/* SPDX-License-Identifier: MIT */
/* The receiving end of one transfer: bytes arrive, are written aside, checked and confirmed. */
#include "recv-file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "program.h"
#include "progress.h"
#include "transfer.h"
#include "wire/crc32c.h"

enum state {
	WAITING,   /* for a sender */
	GREETED,   /* by one, which is connecting */
	CONNECTED, /* with it */
	RECEIVING, /* the output is open */
	IN_PLACE,  /* whole, and under its final name */
	BROKEN,    /* said so */
};

/* One transfer for one process. */
static struct {
	enum state state;
	bool has_ended, quiet;
	const char *path;
	ibmsg_socket connection;
	ibmsg_buffer answer;
	struct output output;
	struct progress progress;
	uint64_t size, received;
	uint32_t crc;
} transfer;

static void answer(enum transfer_type type, const char *why)
{
	struct transfer_message head = {
		.type = type, .bytes = transfer.received, .crc = transfer.crc};
	size_t len = strlen(why);

	/* Without an answer the sender still sees the connection end. */
	if (ibmsg_alloc_msg(&transfer.answer, &transfer.connection, TRANSFER_HEAD_BYTES + len))
		return;
	transfer_put_head(transfer.answer.data, &head);
	memcpy((char *)transfer.answer.data + TRANSFER_HEAD_BYTES, why, len);
	if (ibmsg_post_send(&transfer.connection, &transfer.answer))
		ibmsg_free_msg(&transfer.answer);
}

/* The transfer ends without a file, and whoever sits here is told why. */
static void break_off(const char *why)
{
	char so_far[PROGRAM_SO_FAR_TEXT];

	if (transfer.state == RECEIVING) {
		progress_stop(&transfer.progress, transfer.received);
		output_discard(&transfer.output);
		program_fails("%s; after %s. Nothing is kept", why,
			      program_so_far(so_far, transfer.received, transfer.size));
	} else {
		program_fails("%s", why);
	}
	transfer.state = BROKEN;
}

/* And so is the sender. */
static void refuse(const char *why, const char *what)
{
	char text[PATH_MAX + 100];

	answer(TRANSFER_FAILED, what);
	snprintf(text, sizeof(text), "%s%s", why, what);
	break_off(text);
	ibmsg_disconnect(&transfer.connection);
}

static void refuse_output(int error)
{
	char why[PATH_MAX + 50];

	snprintf(why, sizeof(why), "could not write %s: ", transfer.output.final);
	refuse(why, strerror(-error));
}

/* ---- what the sender says ---- */

static void take_begin(const struct transfer_message *begin)
{
	char name[TRANSFER_NAME_BYTES + 1];
	const char *slash;
	int error;

	if (transfer.state != CONNECTED || begin->len > TRANSFER_NAME_BYTES) {
		refuse("", "the sender does not keep to the protocol");
		return;
	}
	memcpy(name, begin->data, begin->len);
	name[begin->len] = '\0';
	strcpy(transfer.output.final, transfer.path); /* for the complaint */
	error = output_open(&transfer.output, transfer.path, name);
	if (error) {
		refuse_output(error);
		return;
	}
	transfer.state = RECEIVING;
	transfer.size = begin->bytes;
	slash = strrchr(transfer.output.final, '/');
	progress_start(&transfer.progress, slash ? slash + 1 : transfer.output.final, transfer.size,
		       !transfer.quiet);
}

static void take_chunk(const struct transfer_message *chunk)
{
	int error;

	if (chunk->bytes != transfer.received) {
		refuse("", "the sender does not keep to the protocol");
		return;
	}
	error = output_write(&transfer.output, chunk->data, chunk->len);
	if (error == -EINTR) {
		refuse("", "interrupted");
		return;
	}
	if (error) {
		refuse_output(error);
		return;
	}
	transfer.crc = crc32c(transfer.crc, chunk->data, chunk->len);
	transfer.received += chunk->len;
}

static void take_end(const struct transfer_message *end)
{
	int error;

	if (end->bytes != transfer.received || end->crc != transfer.crc ||
	    (transfer.size != TRANSFER_SIZE_UNKNOWN && transfer.size != transfer.received)) {
		refuse("", "the checksum or the length is wrong");
		return;
	}
	error = output_commit(&transfer.output);
	if (error) {
		refuse_output(error);
		return;
	}
	transfer.state = IN_PLACE;
	progress_stop(&transfer.progress, transfer.received);
	answer(TRANSFER_DONE, "");
	ibmsg_disconnect(&transfer.connection); /* when it is delivered */
	if (!transfer.quiet)
		fprintf(stderr, "%s: %" PRIu64 " bytes received, crc32c %08x\n",
			transfer.output.final, transfer.received, transfer.crc);
}

static void take_failed(const struct transfer_message *failed)
{
	char why[200];
	int len = failed->len < 150 ? (int)failed->len : 150;

	snprintf(why, sizeof(why), "the sender gave up: %.*s", len, (const char *)failed->data);
	program_make_printable(why, strlen(why));
	break_off(why);
}

static void take(const struct transfer_message *message)
{
	if (message->type == TRANSFER_FAILED)
		take_failed(message);
	else if (message->type == TRANSFER_BEGIN)
		take_begin(message);
	else if (message->type == TRANSFER_CHUNK && transfer.state == RECEIVING)
		take_chunk(message);
	else if (message->type == TRANSFER_END && transfer.state == RECEIVING)
		take_end(message);
	else
		refuse("", "the sender does not keep to the protocol");
}

/* ---- callbacks ---- */

static void connection_request(ibmsg_connection_request *request)
{
	static const char busy[] = "busy with another transfer";
	static const char wrong[] = "takes files and streams only";
	uint8_t greeting[TRANSFER_GREETING_BYTES];

	if (transfer_get_greeting(request->user_data, request->user_data_len) != PURPOSE_FILE) {
		ibmsg_reject(request, wrong, strlen(wrong));
	} else if (transfer.state != WAITING) {
		ibmsg_reject(request, busy, strlen(busy));
	} else {
		transfer_put_greeting(greeting, PURPOSE_FILE);
		if (!ibmsg_accept_with(request, &transfer.connection, greeting, sizeof(greeting)))
			transfer.state = GREETED;
	}
}

static void connection_established(ibmsg_socket *connection)
{
	(void)connection;
	transfer.state = CONNECTED;
}

static void message_received(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	struct transfer_message message;

	(void)connection;
	if (transfer.state == CONNECTED || transfer.state == RECEIVING) {
		if (transfer_get(msg->data, msg->size, &message))
			take(&message);
		else
			refuse("", "the sender does not keep to the protocol");
	}
	ibmsg_free_msg(msg);
}

static void message_sent(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	(void)connection;
	ibmsg_free_msg(msg);
}

static void connection_closed(ibmsg_socket *connection, int error)
{
	(void)connection;
	if (transfer.state == GREETED) { /* it went away before it was there */
		transfer.state = WAITING;
		return;
	}
	if (transfer.state == CONNECTED || transfer.state == RECEIVING)
		break_off(error ? ibmsg_strerror(error) : "the sender left before the end");
	transfer.has_ended = true;
}

/* ---- life ---- */

void recv_file_init(ibmsg_event_loop *loop, const char *path, bool quiet)
{
	transfer.path = path;
	transfer.quiet = quiet;
	loop->connection_request = connection_request;
	loop->connection_established = connection_established;
	loop->message_received = message_received;
	loop->message_sent = message_sent;
	loop->connection_closed = connection_closed;
}

bool recv_file_has_ended(void)
{
	if (transfer.state == RECEIVING)
		progress_show(&transfer.progress, transfer.received);
	return transfer.has_ended;
}

bool recv_file_is_moving(void)
{
	return transfer.state == RECEIVING;
}

void recv_file_give_up(void)
{
	if (transfer.state == CONNECTED || transfer.state == RECEIVING)
		refuse("", "interrupted");
	else if (transfer.state == WAITING || transfer.state == GREETED)
		transfer.has_ended = true;
}

int recv_file_status(void)
{
	return transfer.state == IN_PLACE ? EXIT_SUCCESS : EXIT_FAILURE;
}
