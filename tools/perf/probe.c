/* SPDX-License-Identifier: MIT */
/* A first connection: who is there, and by which device. */
#include "probe.h"

#include <stdio.h>

#include "../../src/softrdma/interpose/redirect.h"
#include <ibmsg.h>

#include "hello.h"

struct call {
	ibmsg_event_loop loop;
	ibmsg_socket socket;
	struct probe *probe;
	bool established, closed;
	int error; /* why it was closed */
};

/* Told by callbacks: a connection may come and go within one dispatch. */
static void on_established(ibmsg_socket *socket)
{
	struct call *call = socket->user_data;
	struct answer answer = {0};
	char data[IBMSG_MAX_USER_DATA];

	snprintf(call->probe->device, sizeof(call->probe->device), "%s",
		 ibv_get_device_name(socket->cmid->verbs->device));
	if (answer_get(&answer, data, ibmsg_peer_data(socket, data, sizeof(data))))
		call->probe->server_threads = answer.threads;
	call->established = true;
}

static void on_closed(ibmsg_socket *socket, int error)
{
	struct call *call = socket->user_data;

	call->closed = true;
	call->error = error;
}

static int establish(struct call *call, const struct options *options)
{
	uint8_t hello[HELLO_BYTES];
	int error;

	call->loop.connection_established = on_established;
	call->loop.connection_closed = on_closed;
	call->socket.user_data = call;
	hello_put(hello, &(struct hello){.mode = MODE_PROBE, .size = 1});
	error = ibmsg_connect_with(&call->loop, &call->socket, options->address, options->port,
				   hello, sizeof(hello));
	while (!error && !call->established && !call->closed)
		error = ibmsg_dispatch_event_loop(&call->loop);
	return error || call->established ? error : call->error;
}

static void hang_up(struct call *call)
{
	int error = call->closed ? IBMSG_OK : ibmsg_disconnect(&call->socket);

	while (!error && !call->closed)
		error = ibmsg_dispatch_event_loop(&call->loop);
}

bool probe_server(const struct options *options, struct probe *probe)
{
	struct call call = {.probe = probe};
	int error = ibmsg_init_event_loop(&call.loop);

	*probe = (struct probe){0};
	if (!error) {
		error = establish(&call, options);
		if (!error)
			hang_up(&call);
		ibmsg_destroy_event_loop(&call.loop);
	}
	if (error)
		fprintf(stderr, "ibmsg-perf: %s port %u: %s. %s\n", options->address, options->port,
			ibmsg_strerror(error), ibmsg_error_hint(error));
	else if (!probe->server_threads)
		fprintf(stderr, "ibmsg-perf: %s port %u: the server there is not ibmsg-perf's\n",
			options->address, options->port);
	return !error && probe->server_threads;
}
