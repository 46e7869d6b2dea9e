/* SPDX-License-Identifier: MIT */
/*
 * A server whose clients come and go, politely, without a word, or killed in the middle: after a
 * warm-up its memory and descriptors stay what they were. IBMSG_CHURN_S seconds, 8 unless told.
 */
#include "pair.h"

#include <dirent.h>
#include <ibmsg.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIENTS    4          /* at a time */
#define WARM_UPS   4          /* of so many parts of the time, the first */
#define HEAP_SLACK (2 * MIB)  /* messages of some thousand bytes are kept for reuse, */
#define MOST_KEPT  (96 * MIB) /* and larger ones up to a bound */

/* ---- clients ---- */

static ibmsg_socket client;
static unsigned in_flight, answers;

static void post_one(unsigned i)
{
	static const size_t sizes[] = {0, 10, 4000, 4096, 5000, 300 * KIB};
	ibmsg_buffer *msg = malloc(sizeof(*msg));

	assert_non_null(msg);
	if (ibmsg_alloc_msg(msg, &client, sizes[i % ARRAY_SIZE(sizes)])) {
		free(msg);
		return;
	}
	memset(msg->data, (int)i, msg->size);
	if (ibmsg_post_send(&client, msg)) {
		ibmsg_free_msg(msg);
		free(msg);
		return;
	}
	in_flight++;
}

static void on_sent_by_client(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	(void)socket;
	in_flight--;
	ibmsg_free_msg(msg);
	free(msg);
}

static void on_answer(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	(void)socket;
	answers++;
	ibmsg_free_msg(msg);
}

static void connect_client(ibmsg_event_loop *loop, uint16_t port)
{
	char *address = getenv("IBMSG_ADDR");
	char loopback[] = "127.0.0.1";

	assert_int_equal(ibmsg_init_event_loop(loop), IBMSG_OK);
	loop->message_sent = on_sent_by_client;
	loop->message_received = on_answer;
	assert_int_equal(ibmsg_connect(loop, &client, address ? address : loopback, ntohs(port)),
			 IBMSG_OK);
	while (client.status != IBMSG_CONNECTED && client.status != IBMSG_ERROR)
		assert_int_equal(ibmsg_dispatch_event_loop(loop), IBMSG_OK);
	assert_int_equal(client.status, IBMSG_CONNECTED);
}

/* A conversation, and a goodbye. */
static void run_polite(uint16_t port)
{
	ibmsg_event_loop loop;

	connect_client(&loop, port);
	for (unsigned i = 0; i < 40; i++)
		post_one(i);
	while (answers < 40)
		assert_int_equal(ibmsg_dispatch_event_loop(&loop), IBMSG_OK);
	ibmsg_disconnect(&client);
	while (client.status != IBMSG_UNCONNECTED)
		assert_int_equal(ibmsg_dispatch_event_loop(&loop), IBMSG_OK);
	ibmsg_destroy_event_loop(&loop);
	_exit(client.error == IBMSG_OK && !in_flight ? 0 : 1);
}

/* Leaves in the middle of a sentence. */
static void run_rude(uint16_t port)
{
	ibmsg_event_loop loop;

	connect_client(&loop, port);
	for (unsigned i = 0; i < 20; i++)
		post_one(i);
	ibmsg_dispatch_event_loop_timeout(&loop, 1);
	_exit(0);
}

/* Talks until it is killed. */
static void run_victim(uint16_t port)
{
	ibmsg_event_loop loop;

	connect_client(&loop, port);
	for (unsigned i = 0;; i++) {
		while (in_flight < 30)
			post_one(i++);
		ibmsg_dispatch_event_loop_timeout(&loop, 100);
		if (client.status != IBMSG_CONNECTED)
			_exit(0); /* the server has ended */
	}
}

static const struct peer_role roles[] = {
	{"polite", run_polite},
	{"rude", run_rude},
	{"victim", run_victim},
};

/* ---- the server ---- */

static struct {
	ibmsg_event_loop loop;
	ibmsg_socket listener;
	uint16_t port; /* network order */
	unsigned open, closed, echoes;
	pid_t pids[CLIENTS];
	unsigned kinds[CLIENTS];
	uint64_t kill_at[CLIENTS];
	unsigned started, failed;
} server;

static void on_request(ibmsg_connection_request *request)
{
	ibmsg_socket *socket = malloc(sizeof(*socket));

	assert_non_null(socket);
	assert_int_equal(ibmsg_accept(request, socket), IBMSG_OK);
	server.open++;
}

/* Every message goes back as it came. */
static void on_received(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	if (ibmsg_post_send(socket, msg))
		ibmsg_free_msg(msg);
	else
		server.echoes++;
}

static void on_sent(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	(void)socket;
	ibmsg_free_msg(msg);
}

static void on_closed(ibmsg_socket *socket, int error)
{
	(void)error;
	server.open--;
	server.closed++;
	free(socket);
}

static void open_server(void)
{
	struct sockaddr_storage at;
	char *address = getenv("IBMSG_ADDR");
	char loopback[] = "127.0.0.1";

	assert_int_equal(ibmsg_init_event_loop(&server.loop), IBMSG_OK);
	server.loop.connection_request = on_request;
	server.loop.message_received = on_received;
	server.loop.message_sent = on_sent;
	server.loop.connection_closed = on_closed;
	assert_int_equal(ibmsg_listen(&server.loop, &server.listener, address ? address : loopback,
				      0, CLIENTS),
			 IBMSG_OK);
	assert_int_equal(ibmsg_local_address(&server.listener, &at), IBMSG_OK);
	/* At the same place in both families. */
	server.port = ((struct sockaddr_in *)&at)->sin_port;
}

static void start_client(unsigned i)
{
	server.kinds[i] = (unsigned)random() % ARRAY_SIZE(roles);
	server.pids[i] = peer_start(roles[server.kinds[i]].name, server.port);
	server.kill_at[i] = now_ms() + 20 + (uint64_t)random() % 200;
	server.started++;
}

/* Has it ended? Victims are killed when their time has come. */
static bool reap_client(unsigned i)
{
	int status;

	if (roles[server.kinds[i]].run == run_victim && now_ms() >= server.kill_at[i])
		kill(server.pids[i], SIGKILL);
	if (waitpid(server.pids[i], &status, WNOHANG) <= 0)
		return false;
	if (roles[server.kinds[i]].run != run_victim &&
	    (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
		server.failed++;
	server.pids[i] = 0;
	return true;
}

static void serve(void)
{
	assert_int_equal(ibmsg_dispatch_event_loop_timeout(&server.loop, 5), IBMSG_OK);
	for (unsigned i = 0; i < CLIENTS; i++)
		if (server.pids[i])
			reap_client(i);
}

static void churn_until(uint64_t end)
{
	while (now_ms() < end) {
		for (unsigned i = 0; i < CLIENTS; i++)
			if (!server.pids[i])
				start_client(i);
		serve();
	}
}

static bool is_quiet(void)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		if (server.pids[i])
			return false;
	return !server.open;
}

static unsigned count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

struct usage {
	size_t heap, mapped;
	unsigned descriptors;
	uint64_t registered;
};

/* When all clients have gone. What lingers at the device has its time. */
static struct usage settle(unsigned most_descriptors)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct mallinfo2 info;
	ibmsg_stats stats;

	while (!is_quiet() || count_descriptors() > most_descriptors) {
		assert_true(now_ms() < end);
		serve();
	}
	info = mallinfo2();
	assert_int_equal(ibmsg_get_stats(&server.loop, NULL, &stats), IBMSG_OK);
	return (struct usage){info.uordblks, info.hblkhd, count_descriptors(),
			      stats.registered_bytes};
}

static void test_churn_leaves_memory_and_descriptors_as_they_were(void **state)
{
	const char *seconds = getenv("IBMSG_CHURN_S");
	uint64_t span = (seconds ? (uint64_t)atoi(seconds) : 8) * 1000;
	struct usage warm, after;
	unsigned before;

	(void)state;
	/* Long messages and slabs are mapped, and can be told from the rest. */
	mallopt(M_MMAP_THRESHOLD, 64 * KIB);
	open_server();
	before = count_descriptors();
	churn_until(now_ms() + span / WARM_UPS);
	/* The device's own descriptors came with the first connection: a few. */
	warm = settle(before + 8);
	churn_until(now_ms() + span - span / WARM_UPS);
	after = settle(warm.descriptors);
	print_message("%u clients, %u connections, %u messages; heap %zu then %zu bytes, "
		      "%u then %u descriptors\n",
		      server.started, server.closed, server.echoes, warm.heap, after.heap,
		      warm.descriptors, after.descriptors);
	assert_int_equal(server.failed, 0);
	assert_true(server.closed >= CLIENTS);
	assert_true(after.heap <= warm.heap + warm.heap / 4 + HEAP_SLACK);
	assert_true(after.mapped <= MOST_KEPT);
	assert_true(after.registered <= warm.registered + warm.registered / 4 + HEAP_SLACK);
	assert_int_equal(ibmsg_destroy_event_loop(&server.loop), IBMSG_OK);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_churn_leaves_memory_and_descriptors_as_they_were),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	srandom((unsigned)getpid());
	return cmocka_run_group_tests_name("churn", tests, NULL, NULL);
}
