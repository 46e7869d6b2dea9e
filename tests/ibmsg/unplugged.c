/* SPDX-License-Identifier: MIT */
/*
 * Two hosts: unplugged serve PORT | connect ADDRESS PORT. The server accepts, answers one message
 * and then loses its wire; an idle client hears of it within 15 seconds, with the default settings.
 */
#include <ibmsg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static ibmsg_event_loop loop;
static ibmsg_socket accepted;
static unsigned received;
static int closed = -1;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void on_request(ibmsg_connection_request *request)
{
	ibmsg_accept(request, &accepted);
}

static void on_received(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	(void)socket;
	received++;
	ibmsg_free_msg(msg);
}

static void on_closed(ibmsg_socket *socket, int error)
{
	(void)socket;
	closed = error;
}

static int send_one(ibmsg_socket *socket)
{
	static ibmsg_buffer msg;

	if (ibmsg_alloc_msg(&msg, socket, 100))
		return 1;
	memset(msg.data, 1, 100);
	return ibmsg_post_send(socket, &msg);
}

static bool dispatch_until(const unsigned *what, double limit)
{
	double end = now() + limit;

	while (!*what && closed < 0 && now() < end)
		if (ibmsg_dispatch_event_loop_timeout(&loop, 100))
			return false;
	return *what;
}

static int serve(short port)
{
	ibmsg_socket listener;

	if (ibmsg_listen(&loop, &listener, NULL, port, 1) || !dispatch_until(&received, 60) ||
	    send_one(&accepted))
		return 1;
	for (double end = now() + 2; now() < end;)
		ibmsg_dispatch_event_loop_timeout(&loop, 100);
	/* Nothing leaves this host any more. */
	if (system("tc qdisc add dev eth0 root netem loss 100%"))
		return 1;
	printf("unplugged\n");
	fflush(stdout);
	for (double end = now() + 40; now() < end;)
		ibmsg_dispatch_event_loop_timeout(&loop, 100);
	return 0;
}

static int run_client(char *address, unsigned short port)
{
	static const unsigned never;
	ibmsg_socket socket;
	double begin;

	if (ibmsg_connect(&loop, &socket, address, port))
		return 1;
	while (socket.status != IBMSG_CONNECTED && socket.status != IBMSG_ERROR)
		if (ibmsg_dispatch_event_loop(&loop))
			return 1;
	if (socket.status == IBMSG_ERROR || send_one(&socket) || !dispatch_until(&received, 30)) {
		fprintf(stderr, "client: no answer: %s\n", ibmsg_strerror(socket.error));
		return 1;
	}
	/* Two seconds until the wire is pulled, fifteen until it must be known. */
	begin = now();
	dispatch_until(&never, 30);
	printf("closed after %.1f s: %s\n", now() - begin,
	       closed < 0 ? "not at all" : ibmsg_strerror(closed));
	return closed > 0 && now() - begin <= 2 + 15 ? 0 : 1;
}

int main(int argc, char **argv)
{
	int status = 2;

	if (ibmsg_init_event_loop(&loop))
		return 1;
	loop.connection_request = on_request;
	loop.message_received = on_received;
	loop.connection_closed = on_closed;
	if (argc == 3 && !strcmp(argv[1], "serve"))
		status = serve((short)atoi(argv[2]));
	else if (argc == 4 && !strcmp(argv[1], "connect"))
		status = run_client(argv[2], (unsigned short)atoi(argv[3]));
	else
		fprintf(stderr, "usage: unplugged serve PORT | connect ADDRESS PORT\n");
	ibmsg_destroy_event_loop(&loop);
	return status;
}
