/* SPDX-License-Identifier: MIT */
/* Connections by ibmsg, tried for real: to a peer, and to itself. */
#include "try.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../../src/softrdma/interpose/redirect.h"
#include <ibmsg.h>

/* One at a time: a request for a connection does not say whose it is. */
static struct {
	ibmsg_event_loop loop;
	ibmsg_socket listener, client, server;
	ibmsg_buffer msg;
	bool accepted, arrived;
	bool established, closed; /* the client */
	int error;                /* why it was closed */
	char device[DEVICE_NAME];
	time_t until;
} try;

static const char text[] = "to myself";

static time_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

static int begin(void)
{
	int error;

	memset(&try, 0, sizeof(try));
	error = ibmsg_init_event_loop(&try.loop);
	if (error)
		return error;
	try.until = now() + TRY_SECONDS + TRY_SECONDS;
	return ibmsg_set_connect_timeout(&try.loop, TRY_SECONDS * 1000);
}

static int step(void)
{
	if (now() > try.until)
		return IBMSG_TIMED_OUT;
	return ibmsg_dispatch_event_loop_timeout(&try.loop, 100);
}

/* Told by callbacks: a connection may come and go within one dispatch. */
static void on_established(ibmsg_socket *socket)
{
	if (socket != &try.client)
		return;
	snprintf(try.device, sizeof(try.device), "%s",
		 ibv_get_device_name(socket->cmid->verbs->device));
	try.established = true;
}

static void on_closed(ibmsg_socket *socket, int error)
{
	if (socket != &try.client)
		return;
	try.closed = true;
	try.error = error;
}

static int establish(const char *host, unsigned short port, char device[static DEVICE_NAME])
{
	int error;

	try.loop.connection_established = on_established;
	try.loop.connection_closed = on_closed;
	error = ibmsg_connect_with(&try.loop, &try.client, host, port, NULL, 0);
	while (!error && !try.established && !try.closed)
		error = step();
	if (!error && !try.established)
		error = try.error;
	if (!error)
		memcpy(device, try.device, sizeof(try.device));
	return error;
}

/* What the peer thinks of the end of a connection that was established is not the question. */
static void close_client(void)
{
	if (!try.closed && ibmsg_disconnect(&try.client))
		return;
	while (!try.closed)
		if (step())
			return;
}

int try_connect(const char *host, unsigned short port, char device[static DEVICE_NAME])
{
	int error = begin();

	if (error)
		return error;
	error = establish(host, port, device);
	if (!error)
		close_client();
	ibmsg_destroy_event_loop(&try.loop);
	return error;
}

/* ---- to itself ---- */

static void on_request(ibmsg_connection_request *request)
{
	if (!try.accepted)
		try.accepted = !ibmsg_accept(request, &try.server);
}

static void on_received(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	(void)socket;
	try.arrived = msg->size == sizeof(text) && !memcmp(msg->data, text, sizeof(text));
	ibmsg_free_msg(msg);
}

static int listen_at(const char *address, unsigned short *port)
{
	struct sockaddr_storage local;
	int error;

	try.loop.connection_request = on_request;
	try.loop.message_received = on_received;
	error = ibmsg_listen(&try.loop, &try.listener, (char *)address, 0, 1);
	if (!error)
		error = ibmsg_local_address(&try.listener, &local);
	if (!error) /* at the same place in both families */
		*port = ntohs(((struct sockaddr_in *)&local)->sin_port);
	return error;
}

static int send_text(void)
{
	int error = ibmsg_alloc_msg(&try.msg, &try.client, sizeof(text));

	if (error)
		return error;
	memcpy(try.msg.data, text, sizeof(text));
	error = ibmsg_post_send(&try.client, &try.msg);
	while (!error && (try.msg.status == IBMSG_WAITING || !try.arrived)) {
		error = step();
		if (!error && try.msg.status == IBMSG_FAILED)
			error = try.msg.error;
	}
	if (try.msg.status != IBMSG_WAITING)
		ibmsg_free_msg(&try.msg);
	return error;
}

int try_self(const char *address, char device[static DEVICE_NAME])
{
	unsigned short port = 0;
	int error = begin();

	if (error)
		return error;
	error = listen_at(address, &port);
	if (!error)
		error = establish(address, port, device);
	if (!error)
		error = send_text();
	if (!error)
		close_client();
	ibmsg_destroy_event_loop(&try.loop);
	return error;
}
