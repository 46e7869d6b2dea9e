/* SPDX-License-Identifier: MIT */
/* ZeroMQ: a pair of sockets, or many that ask and one that answers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "blocking_pair.h"

#define COPY_MOST   4096 /* longer messages are lent, not copied */
#define NAMES       60000
#define NAME_FORMAT "ipc://@ibmsg-bench-zmq-%u" /* abstract: nothing is left behind */

static struct {
	void *context;
	void **sockets;
	unsigned count;
	uint8_t *data;
} zmq;

static void check(int status, const char *what)
{
	if (status >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
	exit(1);
}

static void *open_socket(const struct options *options, int type)
{
	int depth = (int)messenger_depth(options);
	void *socket = zmq_socket(zmq.context, type);

	if (!socket)
		check(-1, "zmq_socket");
	check(zmq_setsockopt(socket, ZMQ_SNDHWM, &depth, sizeof(depth)), "ZMQ_SNDHWM");
	check(zmq_setsockopt(socket, ZMQ_RCVHWM, &depth, sizeof(depth)), "ZMQ_RCVHWM");
	zmq.sockets[zmq.count++] = socket;
	return socket;
}

static void init(const struct options *options)
{
	zmq.context = zmq_ctx_new();
	zmq.sockets = calloc(options->idle + 1, sizeof(*zmq.sockets));
	zmq.data = calloc(1, options->size);
	if (!zmq.context || !zmq.sockets || !zmq.data)
		die("memory");
	check(zmq_ctx_set(zmq.context, ZMQ_MAX_SOCKETS, (int)options->idle + 16), "zmq_ctx_set");
}

void messenger_listen(const struct options *options, bool many)
{
	unsigned port = (unsigned)getpid() % NAMES + 1;
	char endpoint[64];
	size_t length = sizeof(endpoint);
	void *socket;

	init(options);
	socket = open_socket(options, many ? ZMQ_REP : ZMQ_PAIR);
	if (options->local)
		snprintf(endpoint, sizeof(endpoint), NAME_FORMAT, port);
	else
		snprintf(endpoint, sizeof(endpoint), "tcp://%s:*", options->address);
	check(zmq_bind(socket, endpoint), "zmq_bind");
	if (!options->local) {
		check(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &length),
		      "ZMQ_LAST_ENDPOINT");
		port = (unsigned)strtoul(strrchr(endpoint, ':') + 1, NULL, 10);
	}
	say_listening_at(port);
}

void messenger_connect(const struct options *options, unsigned connection, bool many)
{
	unsigned port = (unsigned)options->port;
	char endpoint[64];

	if (!connection)
		init(options);
	if (options->local)
		snprintf(endpoint, sizeof(endpoint), NAME_FORMAT, port);
	else
		snprintf(endpoint, sizeof(endpoint), "tcp://%s:%u", options->address, port);
	check(zmq_connect(open_socket(options, many ? ZMQ_REQ : ZMQ_PAIR), endpoint),
	      "zmq_connect");
}

static void keep(void *data, void *hint)
{
	(void)data;
	(void)hint;
}

void messenger_send(unsigned connection, size_t size)
{
	zmq_msg_t msg;

	if (size <= COPY_MOST) {
		check(zmq_send(zmq.sockets[connection], zmq.data, size, 0), "zmq_send");
		return;
	}
	check(zmq_msg_init_data(&msg, zmq.data, size, keep, NULL), "zmq_msg_init_data");
	check(zmq_msg_send(&msg, zmq.sockets[connection], 0), "zmq_msg_send");
}

void messenger_receive(unsigned connection)
{
	zmq_msg_t msg;

	check(zmq_msg_init(&msg), "zmq_msg_init");
	check(zmq_msg_recv(&msg, zmq.sockets[connection], 0), "zmq_msg_recv");
	zmq_msg_close(&msg);
}

void messenger_close(void)
{
	for (unsigned i = 0; i < zmq.count; i++)
		zmq_close(zmq.sockets[i]);
	zmq_ctx_term(zmq.context); /* waits until all has left */
	free(zmq.sockets);
	free(zmq.data);
}
