/* SPDX-License-Identifier: MIT */
/* A loop inside the application's own epoll, beside a timer: 04-epoll ADDRESS PORT, of 02's server
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <ibmsg.h>

#define TICKS 5

static unsigned ticks, received;
static int ended;

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

static void message_received(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	printf("%.*s came back\n", (int)msg->size, (char *)msg->data);
	ibmsg_free_msg(msg);
	if (++received == TICKS)
		must(ibmsg_disconnect(connection), "disconnect");
}

static void message_sent(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	(void)connection;
	ibmsg_free_msg(msg);
	free(msg); /* the struct is ours, too */
}

static void connection_closed(ibmsg_socket *connection, int error)
{
	(void)connection;
	ended = 1;
	must(error, "connection");
}

static void send_tick(ibmsg_socket *connection)
{
	ibmsg_buffer *msg = malloc(sizeof(*msg));
	char text[16];
	int len;

	if (!msg)
		exit(1);
	len = snprintf(text, sizeof(text), "tick %u", ++ticks);
	must(ibmsg_alloc_msg(msg, connection, (size_t)len), "alloc");
	memcpy(msg->data, text, (size_t)len);
	must(ibmsg_post_send(connection, msg), "post");
}

static void watch(int epoll_fd, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event))
		exit(1);
}

int main(int argc, char **argv)
{
	const struct itimerspec every = {.it_interval.tv_nsec = 20000000, .it_value.tv_nsec = 1};
	ibmsg_event_loop loop;
	ibmsg_socket connection;
	struct epoll_event event;
	uint64_t count;
	int epoll_fd = epoll_create1(0), timer_fd = timerfd_create(CLOCK_MONOTONIC, 0);

	if (argc != 3 || epoll_fd < 0 || timer_fd < 0)
		return 2;
	must(ibmsg_init_event_loop(&loop), "init");
	loop.message_received = message_received;
	loop.message_sent = message_sent;
	loop.connection_closed = connection_closed;
	must(ibmsg_connect(&loop, &connection, argv[1], (unsigned short)atoi(argv[2])), "connect");
	timerfd_settime(timer_fd, 0, &every, NULL);
	watch(epoll_fd, timer_fd);
	watch(epoll_fd, ibmsg_event_loop_fd(&loop));
	while (!ended) {
		if (epoll_wait(epoll_fd, &event, 1, -1) < 1)
			continue;
		if (event.data.fd != timer_fd) /* then the loop has something to do, now */
			must(ibmsg_dispatch_event_loop_timeout(&loop, 0), "dispatch");
		else if (read(timer_fd, &count, sizeof(count)) > 0 && ticks < TICKS &&
			 connection.status == IBMSG_CONNECTED)
			send_tick(&connection);
	}
	must(ibmsg_destroy_event_loop(&loop), "destroy");
	close(timer_fd);
	close(epoll_fd);
	return 0;
}
