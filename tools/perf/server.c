/* SPDX-License-Identifier: MIT */
/* The server: threads with a loop and a port each; it answers as hello.h says. */
#include "server.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <ibmsg.h>

#include "device.h"
#include "hello.h"
#include "outbox.h"

#define REPLIES 2 /* the next may be due before the last is known to be sent */

struct service {
	ibmsg_event_loop loop;
	ibmsg_socket listener;
	pthread_t thread;
	bool runs;
};

/* One connection of a client. */
struct guest {
	ibmsg_socket socket;
	struct hello hello;
	struct outbox replies;
};

static uint16_t threads; /* set before the first of them runs */
static atomic_bool stopping, failed;

static void complain(const char *what, int error)
{
	fprintf(stderr, "ibmsg-perf: %s: %s. %s\n", what, ibmsg_strerror(error),
		ibmsg_error_hint(error));
}

/* A connection that cannot be served is closed; that ends it at the client's side too. */
static void check_guest(struct guest *guest, int error, const char *what)
{
	if (!error || error == IBMSG_NOT_CONNECTED)
		return;
	complain(what, error);
	ibmsg_disconnect(&guest->socket);
}

/* ---- callbacks ---- */

static void on_request(ibmsg_connection_request *request)
{
	static const char reason[] = "not a client of ibmsg-perf";
	struct guest *guest = calloc(1, sizeof(*guest));
	uint8_t answer[ANSWER_BYTES];

	if (!guest)
		return;
	if (!hello_get(&guest->hello, request->user_data, request->user_data_len)) {
		ibmsg_reject(request, reason, sizeof(reason));
		free(guest);
		return;
	}
	guest->socket.user_data = guest;
	answer_put(answer, &(struct answer){.threads = threads});
	if (ibmsg_accept_with(request, &guest->socket, answer, sizeof(answer)))
		free(guest);
}

static void on_established(ibmsg_socket *socket)
{
	struct guest *guest = socket->user_data;
	size_t size = guest->hello.mode == MODE_ECHO ? guest->hello.size : 1;

	check_guest(guest, outbox_init(&guest->replies, socket, REPLIES, size, DATA), "a reply");
}

/* The answer leaves before the message is given back. */
static void on_received(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	struct guest *guest = socket->user_data;

	if (guest->hello.mode == MODE_ECHO || (msg->size && *(const uint8_t *)msg->data == MARK))
		check_guest(guest, outbox_send(&guest->replies), "a reply");
	ibmsg_free_msg(msg);
}

static void on_sent(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	struct guest *guest = socket->user_data;

	if (msg->status == IBMSG_SENT)
		check_guest(guest, outbox_put_back(&guest->replies, msg), "a reply");
}

/* A client that is killed, or whose user had enough, is nothing to talk about. */
static void on_closed(ibmsg_socket *socket, int error)
{
	struct guest *guest = socket->user_data;

	if (error && error != IBMSG_CONNECTION_LOST && error != IBMSG_CLOSED)
		complain("a client", error);
	outbox_fini(&guest->replies);
	free(guest);
}

/* ---- threads ---- */

static int open_service(struct service *service, const struct options *options, const char *address,
			unsigned short port)
{
	int error = ibmsg_init_event_loop(&service->loop);

	if (error)
		return error;
	service->loop.connection_request = on_request;
	service->loop.connection_established = on_established;
	service->loop.message_received = on_received;
	service->loop.message_sent = on_sent;
	service->loop.connection_closed = on_closed;
	ibmsg_set_busy_poll(&service->loop, options->sleeps ? 0 : BUSY_US);
	error = ibmsg_listen(&service->loop, &service->listener, (char *)address, (short)port,
			     MAX_CONNECTIONS);
	if (error)
		ibmsg_destroy_event_loop(&service->loop);
	return error;
}

static void *serve(void *argument)
{
	struct service *service = argument;

	while (!stopping) {
		int error = ibmsg_dispatch_event_loop(&service->loop);

		if (!error)
			continue;
		complain("dispatch", error);
		failed = true;
		kill(getpid(), SIGTERM);
		break;
	}
	return NULL;
}

static bool start(struct service *services, const struct options *options, const char *address)
{
	for (unsigned i = 0; i < options->threads; i++) {
		unsigned short port = (unsigned short)(options->port + i);
		int error = open_service(&services[i], options, address, port);

		if (error) {
			fprintf(stderr, "ibmsg-perf: cannot serve at %s port %u: %s. %s\n",
				address ? address : "*", port, ibmsg_strerror(error),
				ibmsg_error_hint(error));
			return false;
		}
		services[i].runs = !pthread_create(&services[i].thread, NULL, serve, &services[i]);
		if (!services[i].runs) {
			fprintf(stderr, "ibmsg-perf: no thread could be made\n");
			ibmsg_destroy_event_loop(&services[i].loop);
			return false;
		}
	}
	return true;
}

static void stop(struct service *services)
{
	stopping = true;
	for (unsigned i = 0; i < threads && services[i].runs; i++) {
		ibmsg_wake_event_loop(&services[i].loop);
		pthread_join(services[i].thread, NULL);
		ibmsg_destroy_event_loop(&services[i].loop);
	}
}

int server_run(const struct options *options)
{
	char chosen[ADDRESS_TEXT];
	const char *address = options->address;
	struct service *services = calloc(options->threads, sizeof(*services));
	sigset_t signals;
	int signal;

	if (!services)
		return EXIT_FAILED;
	if (options->device) {
		device_choose_address(options->device, address, chosen);
		address = chosen;
	}
	threads = (uint16_t)options->threads;
	/* For every thread, as they inherit it; this one waits for them. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (start(services, options, address)) {
		printf("serving at %s port %u\n", address ? address : "*", options->port);
		fflush(stdout);
		sigwait(&signals, &signal);
	} else {
		failed = true;
	}
	stop(services);
	free(services);
	return failed ? EXIT_FAILED : 0;
}
