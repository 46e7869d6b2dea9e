/* SPDX-License-Identifier: MIT */
/* The sending end of one transfer: bytes are read as buffers come back, and their end is confirmed.
 */
#include "send-file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"
#include "progress.h"
#include "transfer.h"
#include "wire/crc32c.h"

#define CHUNKS   16 /* in memory at a time */
#define CONTROLS 3  /* BEGIN, END, FAILED */

enum state {
	CONNECTING,
	SENDING,
	WAITING,   /* for the confirmation */
	CONFIRMED, /* by the receiver */
	BROKEN,    /* said so */
};

/* One transfer for one process. */
static struct {
	enum state state;
	bool has_ended, quiet;
	const char *path, *name; /* for people; name: without its folder */
	int input;
	ibmsg_socket connection;
	ibmsg_buffer chunks[CHUNKS], *free[CHUNKS];
	ibmsg_buffer controls[CONTROLS];
	unsigned num_chunks, num_free, num_controls;
	struct progress progress;
	uint64_t size, read, sent; /* sent: the receiver has it */
	uint32_t crc;
} transfer;

/* ---- the end ---- */

static void break_off(const char *what, const char *why)
{
	char so_far[PROGRAM_SO_FAR_TEXT];

	progress_stop(&transfer.progress, transfer.sent);
	program_fails("%s%s; after %s", what, why,
		      program_so_far(so_far, transfer.sent, transfer.size));
	transfer.state = BROKEN;
	ibmsg_disconnect(&transfer.connection);
}

static bool send_control(enum transfer_type type, uint64_t bytes, const char *text)
{
	struct transfer_message head = {.type = type, .bytes = bytes, .crc = transfer.crc};
	ibmsg_buffer *msg = &transfer.controls[transfer.num_controls];
	size_t len = strlen(text);

	if (ibmsg_alloc_msg(msg, &transfer.connection, TRANSFER_HEAD_BYTES + len))
		return false;
	transfer.num_controls++;
	transfer_put_head(msg->data, &head);
	memcpy((char *)msg->data + TRANSFER_HEAD_BYTES, text, len);
	return !ibmsg_post_send(&transfer.connection, msg);
}

/* The receiver is to know that the rest will not come. */
static void give_up(const char *what, const char *why)
{
	if (transfer.state == SENDING || transfer.state == WAITING)
		send_control(TRANSFER_FAILED, transfer.read, why);
	break_off(what, why);
}

/* ---- reading ---- */

static bool has_more_input(void)
{
	struct pollfd fd = {.fd = transfer.input, .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

/* As much as is there now, up to a chunk. Its length; 0: the end; -errno. */
static ssize_t read_chunk(char *to)
{
	uint64_t left = transfer.size == TRANSFER_SIZE_UNKNOWN ? TRANSFER_CHUNK_BYTES
							       : transfer.size - transfer.read;
	size_t most = left < TRANSFER_CHUNK_BYTES ? (size_t)left : TRANSFER_CHUNK_BYTES, len = 0;

	while (len < most) {
		ssize_t part = read(transfer.input, to + len, most - len);

		if (part < 0)
			return len ? (ssize_t)len : -errno;
		len += (size_t)part;
		if (!part || !has_more_input())
			break;
	}
	return (ssize_t)len;
}

static void post_chunk(ibmsg_buffer *msg, size_t len)
{
	struct transfer_message head = {.type = TRANSFER_CHUNK, .bytes = transfer.read};

	transfer_put_head(msg->data, &head);
	msg->size = TRANSFER_HEAD_BYTES + len;
	transfer.crc = crc32c(transfer.crc, (const char *)msg->data + TRANSFER_HEAD_BYTES, len);
	transfer.read += len;
	/* While the receiver closes it is refused: what it said, or the end, will tell why. */
	if (!ibmsg_post_send(&transfer.connection, msg))
		transfer.num_free--;
}

static void end_input(void)
{
	if (transfer.size != TRANSFER_SIZE_UNKNOWN && transfer.read != transfer.size)
		give_up("", "the file has become shorter while it was read");
	else if (send_control(TRANSFER_END, transfer.read, ""))
		transfer.state = WAITING;
}

static bool may_read(void)
{
	return transfer.state == SENDING && transfer.num_free &&
	       transfer.connection.status == IBMSG_CONNECTED;
}

static void send_more(void)
{
	ibmsg_buffer *msg = transfer.free[transfer.num_free - 1];
	ssize_t len = read_chunk((char *)msg->data + TRANSFER_HEAD_BYTES);

	if (len > 0)
		post_chunk(msg, (size_t)len);
	else if (!len)
		end_input();
	else if (len != -EINTR && len != -EAGAIN)
		give_up("could not read: ", strerror((int)-len));
}

/* ---- callbacks ---- */

static bool alloc_chunks(void)
{
	for (unsigned i = 0; i < CHUNKS; i++) {
		if (ibmsg_alloc_msg(&transfer.chunks[i], &transfer.connection,
				    TRANSFER_MESSAGE_BYTES))
			return false;
		transfer.num_chunks++;
		transfer.free[transfer.num_free++] = &transfer.chunks[i];
	}
	return true;
}

static void connection_established(ibmsg_socket *connection)
{
	uint8_t greeting[TRANSFER_GREETING_BYTES];
	size_t len = ibmsg_peer_data(connection, greeting, sizeof(greeting));

	if (transfer_get_greeting(greeting, len) != PURPOSE_FILE) {
		break_off("", "the receiver takes no files: it must be an ibmsg-recv with -o");
		return;
	}
	if (!alloc_chunks() || !send_control(TRANSFER_BEGIN, transfer.size, transfer.name)) {
		break_off("", "could not allocate message memory");
		return;
	}
	transfer.state = SENDING;
	progress_start(&transfer.progress, transfer.name, transfer.size, !transfer.quiet);
}

static void message_sent(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	(void)connection;
	if (msg < transfer.chunks || msg >= transfer.chunks + CHUNKS)
		return;
	if (msg->status == IBMSG_SENT)
		transfer.sent += msg->size - TRANSFER_HEAD_BYTES;
	transfer.free[transfer.num_free++] = msg;
}

static void take_done(const struct transfer_message *done)
{
	if (transfer.state != WAITING || done->bytes != transfer.read ||
	    done->crc != transfer.crc) {
		break_off("", "the receiver confirms something else");
		return;
	}
	transfer.state = CONFIRMED;
	ibmsg_disconnect(&transfer.connection);
}

static void take_failed(const struct transfer_message *failed)
{
	char why[150];
	size_t len = failed->len < sizeof(why) ? failed->len : sizeof(why) - 1;

	memcpy(why, failed->data, len);
	why[len] = '\0';
	program_make_printable(why, len);
	break_off("the receiver gave up: ", why);
}

static void message_received(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	struct transfer_message message;

	(void)connection;
	if (transfer.state == SENDING || transfer.state == WAITING) {
		if (!transfer_get(msg->data, msg->size, &message))
			break_off("", "the receiver does not keep to the protocol");
		else if (message.type == TRANSFER_DONE)
			take_done(&message);
		else if (message.type == TRANSFER_FAILED)
			take_failed(&message);
	}
	ibmsg_free_msg(msg);
}

static void connection_closed(ibmsg_socket *connection, int error)
{
	char reason[PEER_REASON_BYTES];

	transfer.has_ended = true;
	if (transfer.state == CONNECTING && error == IBMSG_REJECTED &&
	    *program_peer_reason(reason, connection)) {
		program_fails("could not connect to remote host");
		fprintf(stderr, "%s: the receiver says: %s\n", program_name, reason);
	} else if (transfer.state == CONNECTING && error) {
		program_fails_by(error, "could not connect to remote host");
	} else if (transfer.state == SENDING || transfer.state == WAITING) {
		break_off("", error ? ibmsg_strerror(error) : "the receiver left before the end");
	}
}

/* ---- life ---- */

/* 0, or -errno. */
static int open_input(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct stat stat_;

	transfer.path = strcmp(path, "-") ? path : "standard input";
	transfer.name = slash ? slash + 1 : transfer.path;
	transfer.input = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	if (transfer.input < 0 || fstat(transfer.input, &stat_))
		return -errno;
	if (S_ISDIR(stat_.st_mode))
		return -EISDIR;
	transfer.size = TRANSFER_SIZE_UNKNOWN;
	/* Of an input that has been read from, or of /proc, the size says little. */
	if (S_ISREG(stat_.st_mode) && stat_.st_size && !lseek(transfer.input, 0, SEEK_CUR))
		transfer.size = (uint64_t)stat_.st_size;
	return 0;
}

/* False: the loop does not work. */
static bool step(ibmsg_event_loop *loop, int timeout)
{
	struct pollfd fds[2] = {
		{.fd = ibmsg_event_loop_fd(loop), .events = POLLIN},
		{.fd = may_read() ? transfer.input : -1, .events = POLLIN},
	};

	if (poll(fds, 2, timeout) < 0)
		return errno == EINTR;
	if (fds[0].revents && ibmsg_dispatch_event_loop_timeout(loop, 0))
		return false;
	if (fds[1].revents && may_read())
		send_more();
	progress_show(&transfer.progress, transfer.sent);
	return true;
}

static void work(ibmsg_event_loop *loop)
{
	uint64_t deadline = 0;

	while (!transfer.has_ended) {
		if (program_signal() && !deadline) {
			deadline = program_now_ms() + GOODBYE_MS;
			give_up("", "interrupted");
		}
		if (deadline && program_now_ms() > deadline)
			return;
		if (!step(loop, deadline || transfer.progress.name ? PROGRESS_MS : -1)) {
			program_fails("something went wrong while working in the event loop");
			transfer.state = BROKEN;
			return;
		}
	}
}

static int conclude(void)
{
	/* Those that are still on their way, after a signal, end with the loop. */
	for (unsigned i = 0; i < transfer.num_chunks; i++)
		ibmsg_free_msg(&transfer.chunks[i]);
	for (unsigned i = 0; i < transfer.num_controls; i++)
		ibmsg_free_msg(&transfer.controls[i]);
	progress_stop(&transfer.progress, transfer.sent);
	if (transfer.state != CONFIRMED)
		return EXIT_FAILURE;
	if (!transfer.quiet)
		fprintf(stderr, "%s: %" PRIu64 " bytes sent, crc32c %08x, confirmed\n",
			transfer.path, transfer.sent, transfer.crc);
	return EXIT_SUCCESS;
}

int send_file(ibmsg_event_loop *loop, const char *host, unsigned short port, const char *path,
	      bool quiet)
{
	uint8_t greeting[TRANSFER_GREETING_BYTES];
	int error = open_input(path);

	if (error)
		return program_fails("could not read %s: %s", path, strerror(-error));
	transfer.quiet = quiet;
	loop->connection_established = connection_established;
	loop->message_received = message_received;
	loop->message_sent = message_sent;
	loop->connection_closed = connection_closed;
	transfer_put_greeting(greeting, PURPOSE_FILE);
	error = ibmsg_connect_with(loop, &transfer.connection, host, port, greeting,
				   sizeof(greeting));
	if (error)
		return program_fails_by(error, "could not connect to remote host");
	work(loop);
	return conclude();
}
