/* SPDX-License-Identifier: MIT */
/* The same exchanges as verbs_pair's, by ibmsg: what messages on an event loop cost. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ibmsg.h>

#include "bench.h"

#define BUSY_US     1000000 /* to look before sleeping: in effect never to sleep */
#define ANSWER_SIZE 64      /* to a stream */

/* One, and in reach of all: a request for a connection does not say whose it is. */
static struct {
	const struct options *options;
	ibmsg_event_loop loop;
	ibmsg_socket listener;
	ibmsg_socket *sockets; /* the one that is measured, then the idle ones */
	unsigned opened, established, closed;
	unsigned rss_kib; /* before the idle ones */

	size_t size;           /* of what this side sends */
	ibmsg_buffer *buffers; /* options->buffers */
	ibmsg_buffer **ready;  /* those that can be posted */
	unsigned ready_count;
	unsigned owed; /* messages, to be posted as soon as a buffer is ready */

	void (*received_one)(void);
	unsigned received;
	struct samples samples;
	ibmsg_socket *to; /* of what is sent */
} pair;

static void check(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s\n", what, ibmsg_strerror(error));
	exit(1);
}

static void *make(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		die("memory");
	return memory;
}

static void dispatch(void)
{
	check(ibmsg_dispatch_event_loop(&pair.loop), "ibmsg_dispatch_event_loop");
}

/* ---- messages ---- */

static void send_owed(void)
{
	for (; pair.owed && pair.ready_count; pair.owed--)
		check(ibmsg_post_send(pair.to, pair.ready[--pair.ready_count]), "ibmsg_post_send");
}

static void send_messages(unsigned count)
{
	pair.owed += count;
	send_owed();
}

static void on_sent(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	(void)socket;
	if (msg->status != IBMSG_SENT)
		check(msg->error, "a message");
	pair.ready[pair.ready_count++] = msg;
	send_owed();
}

/* What there is to send leaves before the received message is given back. */
static void on_received(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	pair.received++;
	pair.to = socket; /* an answer's, and of a lone connection */
	pair.received_one();
	check(ibmsg_free_msg(msg), "ibmsg_free_msg");
}

static void make_buffers(void)
{
	unsigned count = pair.options->buffers;

	pair.buffers = make(count, sizeof(*pair.buffers));
	pair.ready = make(count, sizeof(ibmsg_buffer *));
	for (; pair.ready_count < count; pair.ready_count++) {
		ibmsg_buffer *buffer = &pair.buffers[pair.ready_count];

		check(ibmsg_alloc_msg(buffer, &pair.sockets[0], pair.size), "ibmsg_alloc_msg");
		memset(buffer->data, 1, pair.size);
		pair.ready[pair.ready_count] = buffer;
	}
}

/* ---- connections ---- */

static void on_request(ibmsg_connection_request *request)
{
	if (pair.opened == 1)
		pair.rss_kib = rss_kib();
	if (pair.opened <= pair.options->idle)
		check(ibmsg_accept(request, &pair.sockets[pair.opened++]), "ibmsg_accept");
}

static void on_established(ibmsg_socket *socket)
{
	if (socket == &pair.sockets[0])
		make_buffers();
	if (++pair.established > 1 && pair.established == pair.options->idle + 1)
		print_idle_memory(pair.options, pair.rss_kib);
}

static void on_closed(ibmsg_socket *socket, int error)
{
	(void)socket;
	check(error, "a connection");
	pair.closed++;
}

static void connect_next(void)
{
	ibmsg_socket *socket = &pair.sockets[pair.opened++];

	check(ibmsg_connect(&pair.loop, socket, (char *)pair.options->address,
			    (unsigned short)pair.options->port),
	      "ibmsg_connect");
	while (pair.established < pair.opened)
		dispatch();
}

static void connect_idle(void)
{
	pair.rss_kib = rss_kib();
	while (pair.opened <= pair.options->idle)
		connect_next();
}

static void listen_and_say(void)
{
	struct sockaddr_storage address;

	check(ibmsg_listen(&pair.loop, &pair.listener, (char *)pair.options->address, 0,
			   (int)pair.options->idle + 1),
	      "ibmsg_listen");
	check(ibmsg_local_address(&pair.listener, &address), "ibmsg_local_address");
	say_listening((struct sockaddr *)&address);
}

/* The client has its connection afterwards; the server serves until its connections are closed. */
static void open_pair(const struct options *options, size_t size, unsigned busy_us,
		      void (*received_one)(void))
{
	pair.options = options;
	pair.size = size;
	pair.received_one = received_one;
	pair.sockets = make(options->idle + 1, sizeof(*pair.sockets));
	pair.to = &pair.sockets[0];
	check(ibmsg_init_event_loop(&pair.loop), "ibmsg_init_event_loop");
	check(ibmsg_set_busy_poll(&pair.loop, busy_us), "ibmsg_set_busy_poll");
	pair.loop.connection_request = on_request;
	pair.loop.connection_established = on_established;
	pair.loop.connection_closed = on_closed;
	pair.loop.message_received = on_received;
	pair.loop.message_sent = on_sent;
	if (options->port)
		connect_next();
	else
		listen_and_say();
}

static void close_pair(void)
{
	for (unsigned i = 0; pair.options->port && i < pair.opened; i++)
		check(ibmsg_disconnect(&pair.sockets[i]), "ibmsg_disconnect");
	while (pair.closed < pair.options->idle + 1)
		dispatch();
	for (unsigned i = 0; i < pair.options->buffers; i++)
		check(ibmsg_free_msg(&pair.buffers[i]), "ibmsg_free_msg");
	if (!pair.options->port)
		check(ibmsg_disconnect(&pair.listener), "ibmsg_disconnect");
	check(ibmsg_destroy_event_loop(&pair.loop), "ibmsg_destroy_event_loop");
	free(pair.sockets);
	free(pair.buffers);
	free(pair.ready);
}

/* ---- ping-pong ---- */

static void answer(void)
{
	send_messages(1);
}

static unsigned round_trips(void)
{
	return pair.options->count / BENCH_WARM_UP + pair.options->count;
}

static void count_round_trip(void)
{
	samples_add_lap(&pair.samples, pair.received > pair.options->count / BENCH_WARM_UP);
	if (pair.received < round_trips())
		send_messages(1);
}

static void ask(const char *prefix)
{
	samples_init(&pair.samples, pair.options->count);
	pair.received = 0;
	send_messages(1);
	while (pair.received < round_trips())
		dispatch();
	samples_print(&pair.samples, prefix);
	samples_fini(&pair.samples);
}

static void ping_pong(const struct options *options, unsigned busy_us)
{
	open_pair(options, options->size, busy_us, options->port ? count_round_trip : answer);
	if (options->port && options->idle) {
		ask("lone_");
		connect_idle();
	}
	if (options->port)
		ask("");
	close_pair();
}

static void ping_pong_polling(const struct options *options)
{
	ping_pong(options, BUSY_US);
}

static void ping_pong_sleeping(const struct options *options)
{
	ping_pong(options, 0);
}

/* The lone connection first, then the same one among many that say nothing. */
static void among_idle(const struct options *options)
{
	allow_descriptors(options->idle);
	ping_pong(options, BUSY_US);
}

/* ---- many connections: the client asks over each in its turn, the server answers who asks ---- */

static void count_turn(void)
{
	pair.to = &pair.sockets[pair.received % (pair.options->idle + 1)];
	count_round_trip();
}

static void in_turn(const struct options *options)
{
	allow_descriptors(options->idle);
	open_pair(options, options->size, BUSY_US, options->port ? count_turn : answer);
	if (options->port) {
		connect_idle();
		ask("");
	}
	close_pair();
}

/* ---- a stream: the client sends, the server answers when it has all of a part ---- */

static void count_message(void)
{
	unsigned warm_up = pair.options->count / BENCH_WARM_UP;

	if (pair.received == warm_up || pair.received == warm_up + pair.options->count)
		send_messages(1);
}

static void count_answer(void)
{
}

static void send_part(unsigned count)
{
	unsigned answers = pair.received + 1;

	send_messages(count);
	while (pair.received < answers)
		dispatch();
}

static void stream(const struct options *options)
{
	uint64_t begin;

	open_pair(options, options->port ? options->size : ANSWER_SIZE, BUSY_US,
		  options->port ? count_answer : count_message);
	if (options->port) {
		if (options->count >= BENCH_WARM_UP)
			send_part(options->count / BENCH_WARM_UP);
		begin = now_ns();
		send_part(options->count);
		print_rate(options->count, options->size, now_ns() - begin);
	}
	close_pair();
}

/* ---- */

static const struct test tests[] = {
	{"poll", ping_pong_polling}, {"sleep", ping_pong_sleeping},
	{"idle", among_idle},        {"turns", in_turn},
	{"stream", stream},          {NULL, NULL},
};

int main(int argc, char **argv)
{
	return run_test(tests, argc, argv);
}
