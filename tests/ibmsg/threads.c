/* SPDX-License-Identifier: MIT */
/*
 * A loop in a thread of its own, while others connect, alloc, post, free and disconnect. Threads do
 * not assert: they count what went wrong.
 */
#include "pair.h"

#include <ibmsg.h>

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define THREADS  4
#define ROUNDS   12
#define MESSAGES 30
#define SHARED   200 /* messages of each thread on a connection that all use */

static struct {
	ibmsg_event_loop loop;
	ibmsg_socket listener;
	uint16_t port;
	pthread_t thread;
	atomic_bool stop;
	atomic_uint received, damaged, sent, failed, wrong;
	atomic_uint gone; /* requests whose sender was gone when they were to be accepted */
} house;

/* A connection that a thread here made. */
struct caller {
	ibmsg_socket socket;
	atomic_int closed; /* 1 + the error */
};

static void note_wrong(bool is_wrong)
{
	if (is_wrong)
		atomic_fetch_add(&house.wrong, 1);
}

/* ---- the loop ---- */

static void on_request(ibmsg_connection_request *request)
{
	ibmsg_socket *socket = malloc(sizeof(*socket));

	if (!socket)
		abort();
	memset(socket, 0xff, sizeof(*socket));
	socket->user_data = NULL;
	if (ibmsg_accept(request, socket) != IBMSG_OK) {
		atomic_fetch_add(&house.gone, 1);
		free(socket);
	}
}

/* The n-th message is full of n. */
static void on_received(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	const uint8_t *bytes = msg->data;

	(void)socket;
	if (msg->size && !is_all(bytes, msg->size, bytes[0]))
		atomic_fetch_add(&house.damaged, 1);
	note_wrong(ibmsg_free_msg(msg) != IBMSG_OK);
	atomic_fetch_add(&house.received, 1);
}

static void on_closed(ibmsg_socket *socket, int error)
{
	struct caller *caller = socket->user_data;

	if (caller)
		atomic_store(&caller->closed, 1 + error);
	else
		free(socket);
}

static void *run_loop(void *unused)
{
	(void)unused;
	while (!atomic_load(&house.stop))
		note_wrong(ibmsg_dispatch_event_loop(&house.loop) != IBMSG_OK);
	return NULL;
}

static uint16_t port_of_listener(void)
{
	struct sockaddr_storage at;

	assert_int_equal(ibmsg_local_address(&house.listener, &at), IBMSG_OK);
	/* The same place in both families. */
	return ntohs(((const struct sockaddr_in *)&at)->sin_port);
}

static char *address(void)
{
	static char loopback[] = "127.0.0.1";
	char *text = getenv("IBMSG_ADDR");

	return text ? text : loopback;
}

static void house_open(void (*sent)(ibmsg_socket *, ibmsg_buffer *))
{
	memset(&house, 0, sizeof(house));
	assert_int_equal(ibmsg_init_event_loop(&house.loop), IBMSG_OK);
	house.loop.connection_request = on_request;
	house.loop.message_received = on_received;
	house.loop.message_sent = sent;
	house.loop.connection_closed = on_closed;
	assert_int_equal(ibmsg_listen(&house.loop, &house.listener, address(), 0, 128), IBMSG_OK);
	house.port = port_of_listener();
	assert_int_equal(pthread_create(&house.thread, NULL, run_loop, NULL), 0);
}

static void house_close(void)
{
	atomic_store(&house.stop, true);
	assert_int_equal(ibmsg_wake_event_loop(&house.loop), IBMSG_OK);
	assert_int_equal(pthread_join(house.thread, NULL), 0);
	assert_int_equal(ibmsg_destroy_event_loop(&house.loop), IBMSG_OK);
	assert_int_equal(house.damaged, 0);
	assert_int_equal(house.wrong, 0);
}

/* ---- what threads wait for ---- */

/* Look again soon; false: the time is over. */
static bool wait_a_little(uint64_t deadline)
{
	const struct timespec little = {.tv_nsec = 200000};

	nanosleep(&little, NULL);
	return now_ms() < deadline;
}

static bool await_status(const ibmsg_socket *socket, enum ibmsg_socket_status status)
{
	uint64_t deadline = now_ms() + WAIT_MS;

	while (ibmsg_socket_status(socket) != status)
		if (!wait_a_little(deadline))
			return false;
	return true;
}

static bool await_sent(const ibmsg_buffer *msg)
{
	uint64_t deadline = now_ms() + WAIT_MS;

	while (ibmsg_buffer_status(msg) == IBMSG_WAITING)
		if (!wait_a_little(deadline))
			return false;
	return ibmsg_buffer_status(msg) == IBMSG_SENT;
}

static bool await_closed(struct caller *caller)
{
	uint64_t deadline = now_ms() + WAIT_MS;

	while (!atomic_load(&caller->closed))
		if (!wait_a_little(deadline))
			return false;
	return true;
}

static struct caller *call(void)
{
	struct caller *caller = malloc(sizeof(*caller));

	if (!caller)
		abort();
	memset(caller, 0xff, sizeof(*caller));
	caller->socket.user_data = caller;
	atomic_init(&caller->closed, 0);
	note_wrong(ibmsg_connect(&house.loop, &caller->socket, address(), house.port) != IBMSG_OK);
	note_wrong(!await_status(&caller->socket, IBMSG_CONNECTED));
	return caller;
}

static void hang_up(struct caller *caller)
{
	note_wrong(ibmsg_disconnect(&caller->socket) != IBMSG_OK);
	note_wrong(!await_closed(caller));
	note_wrong(atomic_load(&caller->closed) != 1 + IBMSG_OK);
	free(caller);
}

static size_t size_of(unsigned i)
{
	return i % 10 == 4 ? 100 * KIB + i : i * 97 % 5000;
}

/* ---- each thread has connections of its own ---- */

static void *run_caller(void *unused)
{
	ibmsg_buffer messages[MESSAGES];

	(void)unused;
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct caller *caller = call();

		for (unsigned i = 0; i < MESSAGES; i++) {
			note_wrong(ibmsg_alloc_msg(&messages[i], &caller->socket, size_of(i)));
			memset(messages[i].data, (int)i, messages[i].size);
			note_wrong(ibmsg_post_send(&caller->socket, &messages[i]));
		}
		/* Half of them are known to have been sent, the others by the goodbye. */
		for (unsigned i = 0; i < MESSAGES / 2; i++) {
			note_wrong(!await_sent(&messages[i]));
			note_wrong(ibmsg_free_msg(&messages[i]));
		}
		hang_up(caller);
		for (unsigned i = MESSAGES / 2; i < MESSAGES; i++) {
			note_wrong(ibmsg_buffer_status(&messages[i]) != IBMSG_SENT);
			note_wrong(ibmsg_free_msg(&messages[i]));
		}
	}
	return NULL;
}

static void run_threads(void *(*run)(void *), void *argument)
{
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run, argument), 0);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void test_threads_with_connections_of_their_own_send_all(void **state)
{
	(void)state;
	house_open(NULL);
	run_threads(run_caller, NULL);
	assert_int_equal(house.gone, 0);
	assert_int_equal(house.received, THREADS * ROUNDS * MESSAGES);
	house_close();
}

/* ---- all threads use one connection ---- */

static void count_and_free(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	(void)socket;
	atomic_fetch_add(msg->status == IBMSG_SENT ? &house.sent : &house.failed, 1);
	note_wrong(ibmsg_free_msg(msg) != IBMSG_OK);
	free(msg);
}

static bool post_one(ibmsg_socket *socket, unsigned i)
{
	ibmsg_buffer *msg = malloc(sizeof(*msg));

	if (!msg)
		abort();
	if (ibmsg_alloc_msg(msg, socket, size_of(i)) != IBMSG_OK) {
		free(msg);
		return false;
	}
	memset(msg->data, (int)i, msg->size);
	if (ibmsg_post_send(socket, msg) == IBMSG_OK)
		return true;
	note_wrong(ibmsg_free_msg(msg) != IBMSG_OK);
	free(msg);
	return false;
}

static void *run_poster(void *at)
{
	struct caller *caller = at;

	for (unsigned i = 0; i < SHARED; i++)
		note_wrong(!post_one(&caller->socket, i));
	return NULL;
}

static void test_threads_on_one_connection_send_all(void **state)
{
	struct caller *caller;

	(void)state;
	house_open(count_and_free);
	caller = call();
	run_threads(run_poster, caller);
	assert_int_equal(house.gone, 0);
	hang_up(caller);
	assert_int_equal(house.received, THREADS * SHARED);
	assert_int_equal(house.sent, THREADS * SHARED);
	house_close();
}

/* ---- a connection ends under the threads that use it ---- */

static atomic_uint taken;

static void *post_until_refused(void *at)
{
	struct caller *caller = at;
	uint64_t deadline = now_ms() + WAIT_MS;

	for (unsigned i = 0; post_one(&caller->socket, i); i++) {
		atomic_fetch_add(&taken, 1);
		if (i % 50 == 49 && !wait_a_little(deadline))
			break;
	}
	return NULL;
}

static void *disconnect_soon(void *at)
{
	struct caller *caller = at;
	uint64_t deadline = now_ms() + WAIT_MS;

	while (atomic_load(&taken) < 300 && wait_a_little(deadline))
		continue;
	note_wrong(ibmsg_disconnect(&caller->socket) != IBMSG_OK);
	return NULL;
}

static void test_disconnect_under_threads_that_post_completes_each_once(void **state)
{
	(void)state;
	house_open(count_and_free);
	for (unsigned round = 0; round < 5; round++) {
		struct caller *caller = call();
		pthread_t thread;

		atomic_store(&taken, 0);
		house.sent = house.failed = house.received = 0;
		assert_int_equal(pthread_create(&thread, NULL, disconnect_soon, caller), 0);
		run_threads(post_until_refused, caller);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_true(await_closed(caller));
		assert_int_equal(caller->closed, 1 + IBMSG_OK);
		assert_int_equal(house.sent, taken);
		assert_int_equal(house.failed, 0);
		assert_int_equal(house.received, taken);
		free(caller);
	}
	house_close();
}

/* ---- ends of connections that have hardly begun ---- */

/* siw blocks for ten seconds when it is to end what the same thread has not accepted yet. */
static unsigned attempts(void)
{
	const char *device = getenv("IBMSG_DEVICE");

	return device && !strcmp(device, "siw") ? 2 : 25;
}

static void *connect_and_disconnect(void *at)
{
	unsigned seed = 77;

	(void)at;
	for (unsigned i = attempts(); i; i--) {
		struct caller *caller = calloc(1, sizeof(*caller));
		unsigned looks = (unsigned)rand_r(&seed) % 8;

		if (!caller)
			abort();
		caller->socket.user_data = caller;
		note_wrong(ibmsg_connect(&house.loop, &caller->socket, address(), house.port));
		while (looks-- && wait_a_little(UINT64_MAX))
			continue;
		note_wrong(ibmsg_disconnect(&caller->socket) != IBMSG_OK);
		note_wrong(!await_closed(caller));
		free(caller);
	}
	return NULL;
}

static void test_threads_that_connect_and_disconnect_at_once_leave_nothing(void **state)
{
	(void)state;
	house_open(NULL);
	run_threads(connect_and_disconnect, NULL);
	house_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_with_connections_of_their_own_send_all),
		cmocka_unit_test(test_threads_on_one_connection_send_all),
		cmocka_unit_test(test_disconnect_under_threads_that_post_completes_each_once),
		cmocka_unit_test(test_threads_that_connect_and_disconnect_at_once_leave_nothing),
	};

	return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
