/* SPDX-License-Identifier: MIT */
/* A loop in a thread of its own, others that send. Needs 02-echo-server: 03-threads ADDRESS PORT */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <ibmsg.h>

#define THREADS  4
#define MESSAGES 100 /* of each thread */

static ibmsg_event_loop loop;
static ibmsg_socket connection;
static atomic_bool stop;
static atomic_uint received, failed;

static void must(int error, const char *what)
{
	if (error == IBMSG_OK)
		return;
	fprintf(stderr, "%s: %s. %s\n", what, ibmsg_strerror(error), ibmsg_error_hint(error));
	exit(1);
}

/* Callbacks run here, one at a time. */
static void *run_loop(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop))
		must(ibmsg_dispatch_event_loop(&loop), "dispatch");
	return NULL;
}

static void message_received(ibmsg_socket *from, ibmsg_buffer *msg)
{
	ibmsg_free_msg(msg);
	if (atomic_fetch_add(&received, 1) + 1 == THREADS * MESSAGES)
		ibmsg_disconnect(from);
}

/* The field msg.status is written by the loop's thread: others ask with ibmsg_buffer_status. */
static void *run_sender(void *number)
{
	ibmsg_buffer msg;

	for (unsigned i = 0; i < MESSAGES; i++) {
		must(ibmsg_alloc_msg(&msg, &connection, 64), "alloc");
		snprintf(msg.data, msg.size, "message %u of thread %u", i, *(unsigned *)number);
		must(ibmsg_post_send(&connection, &msg), "post");
		while (ibmsg_buffer_status(&msg) == IBMSG_WAITING)
			usleep(100);
		if (ibmsg_buffer_status(&msg) == IBMSG_FAILED)
			atomic_fetch_add(&failed, 1);
		must(ibmsg_free_msg(&msg), "free");
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t dispatcher, senders[THREADS];
	unsigned numbers[THREADS];

	if (argc != 3)
		return 2;
	must(ibmsg_init_event_loop(&loop), "init");
	loop.message_received = message_received;
	must(ibmsg_connect(&loop, &connection, argv[1], (unsigned short)atoi(argv[2])), "connect");
	pthread_create(&dispatcher, NULL, run_loop, NULL);
	while (ibmsg_socket_status(&connection) != IBMSG_CONNECTED) {
		if (ibmsg_socket_status(&connection) == IBMSG_ERROR)
			must(connection.error, "connect");
		usleep(100);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		numbers[i] = i;
		pthread_create(&senders[i], NULL, run_sender, &numbers[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(senders[i], NULL);
	while (ibmsg_socket_status(&connection) != IBMSG_UNCONNECTED)
		usleep(100);

	atomic_store(&stop, true);
	ibmsg_wake_event_loop(&loop);
	pthread_join(dispatcher, NULL);
	must(ibmsg_destroy_event_loop(&loop), "destroy"); /* nobody dispatches any more */
	printf("%u came back, %u failed\n", received, failed);
	return received == THREADS * MESSAGES && !failed ? 0 : 1;
}
