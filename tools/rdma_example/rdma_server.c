/* SPDX-License-Identifier: MIT */
/*
 * rdma_server: gives clients memory to write to and to read from by RDMA.
 *
 *   1. set up RDMA resources
 *   2. wait for a client to connect
 *   3. allocate and pin a server buffer
 *   4. accept the client's connection
 *   5. send information about the buffer to the client
 *   6. wait for disconnect
 *
 * A client says how much it wants in its first message, so step 4 comes before step 3.
 *
 * One thread serves all clients. It sleeps until the connection manager has an event, or the
 * completion channel of a client has; it takes no part in what clients write and read. The steps of
 * one client are in served.c, the loop that takes them is at the bottom of this file.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "endpoint.h"
#include "file.h"
#include "served.h"
#include "server_options.h"

#define BACKLOG     128
#define MAX_CLIENTS 256

struct server {
	const struct server_options *options;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct served *clients[MAX_CLIENTS];
	unsigned count;
	uint64_t given; /* bytes of all clients' buffers */
	bool is_done;
	int result; /* of the one client */
};

/* ---- step 1: set up RDMA resources ---- */

static int listen_at(struct server *server, struct sockaddr *address)
{
	char text[ADDRESS_TEXT];
	int error;

	if (rdma_create_id(server->events, &server->listener, NULL, RDMA_PS_TCP)) {
		error = -errno;
		report_error("Creating the cm id failed with errno : (%d)", error);
		return error;
	}
	common_address_text(address, text);
	if (rdma_bind_addr(server->listener, address) || rdma_listen(server->listener, BACKLOG)) {
		error = -errno;
		report_error("Listening at %s port %d failed with errno : (%d), %s", text,
			     server->options->port, error, strerror(-error));
		if (error == -ENODEV || error == -EADDRNOTAVAIL)
			common_hint_device();
		return error;
	}
	printf("Server is listening successfully at: %s , port: %d \n", text,
	       ntohs(rdma_get_src_port(server->listener)));
	return 0;
}

static int start(struct server *server)
{
	const struct server_options *options = server->options;
	struct addrinfo hints = {
		.ai_flags = AI_PASSIVE,
		.ai_family = options->address ? AF_UNSPEC : AF_INET,
		.ai_socktype = SOCK_STREAM,
	};
	struct addrinfo *found;
	char port[8];
	int error;

	/* Where all events of the connection manager arrive. It takes a device to make one. */
	server->events = rdma_create_event_channel();
	if (!server->events) {
		error = errno ? -errno : -ENODEV;
		report_error("Creating cm event channel failed with errno : (%d)", error);
		return error;
	}
	snprintf(port, sizeof(port), "%d", options->port);
	error = getaddrinfo(options->address, port, &hints, &found);
	if (error) {
		report_error("%s is no address: %s", options->address, gai_strerror(error));
		return -EINVAL;
	}
	error = listen_at(server, found->ai_addr);
	freeaddrinfo(found);
	return error;
}

/* ---- steps 2 to 6, as the events tell ---- */

static unsigned index_of(const struct server *server, const struct served *client)
{
	unsigned i = 0;

	while (server->clients[i] != client)
		i++;
	return i;
}

/* The last one takes its place: who walks over the clients begins at the end. */
static void drop(struct server *server, struct served *client, int result)
{
	server->clients[index_of(server, client)] = server->clients[--server->count];
	server->given -= client->buffer.length;
	/* One that never was established was no client. */
	if (!server->options->forever && client->state != SERVED_ACCEPTED) {
		server->is_done = true;
		server->result = result;
	}
	served_free(client);
}

/* Steps 3 to 5. */
static void answer(struct server *server, struct served *client)
{
	uint64_t most = server->options->max_total, had = client->buffer.length;
	int error = served_answer(client, most > server->given ? most - server->given : 0);

	server->given += client->buffer.length - had;
	if (error)
		drop(server, client, error);
}

static void reject(struct rdma_cm_id *id, const char *why)
{
	char text[ADDRESS_TEXT];

	report_error("%s is rejected: %s", common_address_text(rdma_get_peer_addr(id), text), why);
	rdma_reject(id, why, (uint8_t)strlen(why));
	rdma_destroy_id(id);
}

/* Step 2: a client. Step 4: it is accepted. */
static void admit(struct server *server, struct rdma_cm_id *id)
{
	if (server->is_done || (!server->options->forever && server->count))
		reject(id, "this server serves one client, and has it");
	else if (server->count == MAX_CLIENTS)
		reject(id, "this server has as many clients as it can serve");
	else if (served_new(&server->clients[server->count], id, server->options))
		reject(id, "this server lacks the means to serve a client");
	else
		server->count++;
}

/* Step 6. */
static void take_leave(struct server *server, struct served *client)
{
	if (client->state == SERVED_ACCEPTED)
		drop(server, client, 0);
	else
		drop(server, client, served_finish(client));
}

/*
 * One event of the connection manager. A client is known by the event's id. The event is acked
 * before the id may be destroyed, which waits for that.
 */
static int take_event(struct server *server)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	struct served *client;
	struct rdma_cm_id *id;

	if (rdma_get_cm_event(server->events, &event)) {
		report_error("Taking a cm event failed with errno : (%d)", -errno);
		return -errno;
	}
	type = event->event;
	id = event->id;
	rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		admit(server, id);
		return 0;
	}
	client = id->context;
	if (!client) {
		report_error("The listener has ended: %s", rdma_event_str(type));
		return -ENODEV;
	}
	switch (type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		served_established(client);
		answer(server, client);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		take_leave(server, client);
		break;
	default: /* that the network has changed, or that a connection's last packet is gone */
		break;
	}
	return 0;
}

/* ---- the loop ---- */

/* When the first client has had its time; -1 if none is waited for. */
static int next_deadline(const struct server *server)
{
	int least = -1;

	for (unsigned i = 0; i < server->count; i++) {
		int ms = common_ms_until(server->clients[i]->deadline_ms);

		if (server->clients[i]->state != SERVED_OFFERED && (least < 0 || ms < least))
			least = ms;
	}
	return least;
}

static void drop_late(struct server *server)
{
	for (unsigned i = server->count; i-- > 0;) {
		struct served *client = server->clients[i];

		if (client->state == SERVED_OFFERED || common_ms_until(client->deadline_ms))
			continue;
		report_error("%s has not said in time how much it wants", client->name);
		drop(server, client, -ETIMEDOUT);
	}
}

static int serve(struct server *server)
{
	struct pollfd fds[2 + MAX_CLIENTS];
	int error;

	while (!server->is_done) {
		fds[1] = (struct pollfd){.fd = server->events->fd, .events = POLLIN};
		for (unsigned i = 0; i < server->count; i++)
			fds[2 + i] = (struct pollfd){.fd = server->clients[i]->endpoint.channel->fd,
						     .events = POLLIN};
		error = common_wait(fds, 2 + server->count, next_deadline(server));
		if (error < 0)
			return error;
		/* What clients have said comes before that they have gone. */
		for (unsigned i = server->count; i-- > 0;) {
			struct served *client = server->clients[i];

			if (!fds[2 + i].revents)
				continue;
			error = served_complete(client);
			if (error)
				drop(server, client, error);
			else
				answer(server, client);
		}
		error = fds[1].revents ? take_event(server) : 0;
		if (error)
			return error;
		drop_late(server);
	}
	return server->result;
}

static void shut_down(struct server *server)
{
	while (server->count)
		drop(server, server->clients[server->count - 1], 0);
	if (server->listener)
		rdma_destroy_id(server->listener);
	if (server->events)
		rdma_destroy_event_channel(server->events);
}

static int run_server(struct server *server)
{
	int error = start(server);

	if (error) {
		report_error("RDMA server failed to start cleanly, ret = %d ", error);
		if (!server->events)
			common_hint_device();
		shut_down(server);
		return error;
	}
	error = serve(server);
	shut_down(server);
	printf("Server shut-down is complete \n");
	return error;
}

int main(int argc, char **argv)
{
	struct server_options options;
	struct server server = {.options = &options};
	int error;

	if (!server_options_parse(&options, argc, argv, &error))
		return error;
	setvbuf(stdout, NULL, _IOLBF, 0);
	error = common_catch_signals();
	if (!error && options.file)
		error = file_try_place(options.file);
	if (!error)
		error = run_server(&server);
	return common_exit_status(error);
}
