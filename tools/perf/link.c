/* SPDX-License-Identifier: MIT */
/* A connection under test: it asks and waits, or streams and marks the end. See hello.h. */
#include "link.h"

#include <stdio.h>

#include "hello.h"

#define PINGS        2 /* the next may be due before the last is known to be sent */
#define WINDOW_MOST  128
#define WINDOW_LEAST 2
#define WINDOW_BYTES (32u << 20)
#define LOOK_EVERY   64 /* messages of a stream, at the clock */

void run_fail(struct run *run, int error)
{
	const struct options *options = run->options;

	if (atomic_exchange(&run->failed, true))
		return;
	fprintf(stderr, "ibmsg-perf: %s port %u: %s. %s\n", options->address, options->port,
		ibmsg_strerror(error), ibmsg_error_hint(error));
}

/* What was posted on a connection that has just ended: its end will be told with the reason. */
static void check(struct link *link, int error)
{
	if (error && error != IBMSG_NOT_CONNECTED)
		run_fail(link->worker->run, error);
}

static bool is_echo(const struct link *link)
{
	return link->worker->run->test == TEST_LAT;
}

static bool is_part_over(struct link *link)
{
	struct worker *worker = link->worker;

	if (worker->count)
		return link->done >= worker->count;
	if (is_echo(link) || link->done % LOOK_EVERY == 0)
		worker->over = worker->over || now_ns() >= worker->until;
	return worker->over;
}

/* ---- ask and wait ---- */

static void ping(struct link *link)
{
	link->sent_at = now_ns();
	check(link, outbox_send(&link->outbox));
}

static void got_pong(struct link *link)
{
	struct worker *worker = link->worker;
	uint64_t now = now_ns();

	if (worker->measures)
		histogram_add(&worker->round_trips, now - link->sent_at);
	link->done++;
	if (!is_part_over(link)) {
		ping(link);
		return;
	}
	worker->end = now;
	worker->iterations += link->done;
	worker->busy--;
}

/* ---- stream ---- */

static unsigned window(uint64_t size)
{
	uint64_t fits = WINDOW_BYTES / size;

	return fits > WINDOW_MOST    ? WINDOW_MOST
	       : fits < WINDOW_LEAST ? WINDOW_LEAST
				     : (unsigned)fits;
}

/* As many as there are buffers for; and behind the last one a mark. */
static void pump(struct link *link)
{
	int error = IBMSG_OK;

	while (!error && !link->marked && link->outbox.ready_count) {
		if (is_part_over(link)) {
			link->marked = true;
			error = outbox_send(&link->marks);
		} else {
			error = outbox_send(&link->outbox);
			link->done++;
		}
	}
	check(link, error);
}

static void got_answer(struct link *link)
{
	struct worker *worker = link->worker;

	worker->end = now_ns();
	worker->iterations += link->done;
	worker->busy--;
}

/* ---- callbacks ---- */

static int make_buffers(struct link *link)
{
	uint64_t size = link->worker->run->size;
	int error;

	if (is_echo(link))
		return outbox_init(&link->outbox, &link->socket, PINGS, size, DATA);
	error = outbox_init(&link->outbox, &link->socket, window(size), size, DATA);
	return error ? error : outbox_init(&link->marks, &link->socket, PARTS, 1, MARK);
}

static void on_established(ibmsg_socket *socket)
{
	struct link *link = socket->user_data;

	check(link, make_buffers(link));
	link->worker->established++;
}

static void on_received(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	struct link *link = socket->user_data;

	if (is_echo(link))
		got_pong(link);
	else
		got_answer(link);
	ibmsg_free_msg(msg);
}

static bool is_mark(const struct link *link, const ibmsg_buffer *msg)
{
	return msg >= link->marks.buffers && msg < link->marks.buffers + link->marks.count;
}

static void on_sent(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	struct link *link = socket->user_data;

	if (msg->status != IBMSG_SENT || is_mark(link, msg))
		return;
	check(link, outbox_put_back(&link->outbox, msg));
	if (!is_echo(link))
		pump(link);
}

static void on_closed(ibmsg_socket *socket, int error)
{
	struct link *link = socket->user_data;

	link->worker->closed++;
	if (error || !link->closing)
		run_fail(link->worker->run, error ? error : IBMSG_CONNECTION_LOST);
}

void link_set_callbacks(ibmsg_event_loop *loop)
{
	loop->connection_established = on_established;
	loop->message_received = on_received;
	loop->message_sent = on_sent;
	loop->connection_closed = on_closed;
}

/* ---- */

int link_connect(struct link *link, struct worker *worker, unsigned index)
{
	const struct run *run = worker->run;
	uint8_t hello[HELLO_BYTES];

	link->worker = worker;
	link->socket.user_data = link;
	hello_put(hello, &(struct hello){.mode = run->test == TEST_LAT ? MODE_ECHO : MODE_STREAM,
					 .size = run->size});
	return ibmsg_connect_with(
		&worker->loop, &link->socket, run->options->address,
		(unsigned short)(run->options->port + index % run->server_threads), hello,
		sizeof(hello));
}

void link_begin_part(struct link *link)
{
	link->done = 0;
	link->marked = false;
	if (is_echo(link))
		ping(link);
	else
		pump(link);
}

void link_fini(struct link *link)
{
	outbox_fini(&link->outbox);
	outbox_fini(&link->marks);
}
