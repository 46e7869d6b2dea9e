/* SPDX-License-Identifier: MIT */
/*
 * A life of two connected ibmsg ends in one loop, any call of which may fail: messages short and
 * long go both ways, then a graceful close. Whatever fails must be reported, every message must
 * complete once, and nothing may hang; a second life must then succeed.
 *   exit status: 0 all well, 1 an error was reported, 2 something is wrong
 */
#include <ibmsg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_S  60
#define WAIT_MS  20000
#define MESSAGES 6 /* of each side */

enum outcome { ALL_WELL, REPORTED, WRONG };

struct message {
	ibmsg_buffer buffer; /* first */
	bool posted;
	unsigned completed; /* times */
	bool sent;
};

struct end {
	ibmsg_socket socket; /* first */
	struct message messages[MESSAGES];
	bool begun;
	unsigned established, closed; /* times */
	int error;
};

static struct {
	ibmsg_event_loop loop;
	ibmsg_socket listener;
	struct end client, server;
	unsigned received, errors;
} life;

static char address[] = "127.0.0.1";
static bool failed_once;

/* Called by the copy of the library when the call has failed. */
void sweep_failed(void);
__attribute__((visibility("default"))) void sweep_failed(void)
{
	failed_once = true;
}

static size_t size_of(unsigned i)
{
	static const size_t sizes[MESSAGES] = {0, 64, 4096, 4097, 100000, 3000000};

	return sizes[i];
}

static void note(int error)
{
	if (error)
		life.errors++;
}

static void post_all(struct end *end)
{
	for (unsigned i = 0; i < MESSAGES; i++) {
		struct message *message = &end->messages[i];
		int error = ibmsg_alloc_msg(&message->buffer, &end->socket, size_of(i));

		note(error);
		if (error)
			continue;
		memset(message->buffer.data, (int)i + 1, size_of(i));
		error = ibmsg_post_send(&end->socket, &message->buffer);
		note(error);
		message->posted = !error;
		if (error)
			ibmsg_free_msg(&message->buffer);
	}
}

static void on_request(ibmsg_connection_request *request)
{
	int error = ibmsg_accept(request, &life.server.socket);

	note(error);
	life.server.begun = !error;
}

static void on_established(ibmsg_socket *socket)
{
	struct end *end = (struct end *)socket;

	end->established++;
	post_all(end);
}

static void on_received(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	const unsigned char *bytes = msg->data;

	(void)socket;
	for (size_t i = 1; i < msg->size; i++) {
		if (bytes[i] != bytes[0]) {
			fprintf(stderr, "messages: byte %zu of %zu is wrong\n", i, msg->size);
			_exit(WRONG);
		}
	}
	life.received++;
	ibmsg_free_msg(msg);
}

static void on_sent(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	struct message *message = (struct message *)msg;

	(void)socket;
	message->completed++;
	message->sent = msg->status == IBMSG_SENT;
	note(msg->error);
	ibmsg_free_msg(msg);
}

static void on_closed(ibmsg_socket *socket, int error)
{
	struct end *end = (struct end *)socket;

	end->closed++;
	end->error = error;
	note(error);
}

static unsigned now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned)(now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

/* What an end has posted and the device has taken; -1: it is not done with them. */
static int count_sent(const struct end *end)
{
	int sent = 0;

	for (unsigned i = 0; i < MESSAGES; i++) {
		if (end->messages[i].posted && !end->messages[i].completed)
			return -1;
		sent += end->messages[i].sent;
	}
	return end->established ? sent : -1;
}

/* Everything that was begun has ended, or all that was sent is there. */
static bool is_over(void)
{
	bool client = !life.client.begun || life.client.closed;
	bool server = !life.server.begun || life.server.closed;
	int from_client = count_sent(&life.client), from_server = count_sent(&life.server);

	return (client && server) || (from_client >= 0 && from_server >= 0 &&
				      life.received == (unsigned)(from_client + from_server));
}

static bool dispatch_until(bool (*over)(void))
{
	unsigned end = now_ms() + WAIT_MS;

	while (!over()) {
		int error = ibmsg_dispatch_event_loop_timeout(&life.loop, 100);

		note(error);
		if (error)
			return true;
		if (now_ms() > end) {
			fprintf(stderr, "messages: nothing happens any more\n");
			return false;
		}
	}
	return true;
}

static bool is_closed(void)
{
	return (!life.client.begun || life.client.closed) &&
	       (!life.server.begun || life.server.closed);
}

static bool completed_once(const struct end *end)
{
	for (unsigned i = 0; i < MESSAGES; i++) {
		const struct message *message = &end->messages[i];

		if (message->completed != (message->posted ? 1 : 0)) {
			fprintf(stderr, "messages: one completed %u times\n", message->completed);
			return false;
		}
	}
	return end->closed == (end->begun ? 1 : 0);
}

static bool talk(void)
{
	struct sockaddr_storage at;
	unsigned short port;
	int error = ibmsg_listen(&life.loop, &life.listener, address, 0, 4);

	note(error);
	if (error)
		return true;
	note(ibmsg_local_address(&life.listener, &at));
	port = ntohs(((struct sockaddr_in *)&at)->sin_port);
	error = ibmsg_connect(&life.loop, &life.client.socket, address, port);
	note(error);
	life.client.begun = !error;
	if (error || !dispatch_until(is_over))
		return !!error;
	if (life.client.begun && !life.client.closed)
		ibmsg_disconnect(&life.client.socket);
	return dispatch_until(is_closed);
}

static enum outcome live(void)
{
	bool fine;
	int error;

	memset(&life, 0, sizeof(life));
	error = ibmsg_init_event_loop(&life.loop);
	if (error)
		return REPORTED;
	life.loop.connection_request = on_request;
	life.loop.connection_established = on_established;
	life.loop.message_received = on_received;
	life.loop.message_sent = on_sent;
	life.loop.connection_closed = on_closed;
	fine = talk();
	note(ibmsg_destroy_event_loop(&life.loop));
	if (!fine || !completed_once(&life.client) || !completed_once(&life.server))
		return WRONG;
	return life.errors ? REPORTED : ALL_WELL;
}

int main(void)
{
	enum outcome first, second;

	alarm(LIMIT_S);
	first = live();
	if (first != WRONG) {
		bool had_failed = failed_once;

		second = live();
		if (second == WRONG || (second == REPORTED && had_failed)) {
			fprintf(stderr, "messages: the second life failed too\n");
			first = WRONG;
		}
	}
	printf("%s\n", failed_once ? "failed" : "not reached");
	return first;
}
