/* SPDX-License-Identifier: MIT */
/* Peers in processes of their own: killed at any moment, gone without a word, or just busy. */
#include "side.h"

#include <signal.h>
#include <unistd.h>

#define KEEPALIVE_MS 800

static volatile sig_atomic_t pipe_signals;

static void count_signal(int number)
{
	(void)number;
	pipe_signals++;
}

/* ---- the peers ---- */

static struct end *peer_connect(uint16_t port)
{
	struct hub *hub = hub_new();
	struct end *end;

	assert_int_equal(ibmsg_set_keepalive(&hub->loop, KEEPALIVE_MS), IBMSG_OK);
	end = end_connect(hub, port);
	await(end->established);
	return end;
}

/* Takes what comes. */
static void run_sink(uint16_t port)
{
	struct end *end = peer_connect(port);

	for (;;)
		assert_int_equal(hub_dispatch(end->hub, 1000), IBMSG_OK);
}

/* Takes what comes and sends without end. */
static void run_busy(uint16_t port)
{
	struct end *end = peer_connect(port);

	for (unsigned i = 0;; i++) {
		if (end->posted - end->sent < 50)
			end_post(end, i % 7 == 3 ? 100 * KIB + i % KIB : i % 4000);
		assert_int_equal(hub_dispatch(end->hub, 0), IBMSG_OK);
	}
}

/* Connects and sleeps: what is sent to it piles up. */
static void run_stuck(uint16_t port)
{
	peer_connect(port);
	for (;;)
		pause();
}

static void run_exit(uint16_t port)
{
	peer_connect(port);
	_exit(0);
}

/* Computes for many times the keepalive, then goes on. */
static void run_computing(uint16_t port)
{
	struct end *end = peer_connect(port);
	uint64_t until = now_ms() + 5 * KEEPALIVE_MS;

	while (now_ms() < until)
		continue;
	end_post(end, 100);
	end_post(end, 100 * KIB);
	await(end->closed);
	exit(end->error == IBMSG_OK && end->sent == 2 ? 0 : 1);
}

static const struct peer_role roles[] = {
	{"sink", run_sink}, {"busy", run_busy},           {"stuck", run_stuck},
	{"exit", run_exit}, {"computing", run_computing},
};

/* ---- killed ---- */

static struct end *await_peer(struct hub *hub)
{
	struct end *before = hub->accepted;

	await(hub->accepted != before && hub->accepted->established);
	return hub->accepted;
}

static void await_lost(struct end *end)
{
	uint64_t begin = now_ms();

	await(end->closed);
	assert_true(now_ms() - begin < 3000);
	assert_int_not_equal(end->error, IBMSG_OK);
	assert_int_equal(end->sent + end->failed, end->posted);
	assert_int_equal(pipe_signals, 0);
}

static void post_500(struct end *end)
{
	for (unsigned i = 0; i < 500; i++)
		end_post(end, i % 25 == 9 ? 300 * KIB + i : i * 11);
}

static void run_killed(const char *role, unsigned rounds)
{
	struct hub *hub = hub_new_listening();
	unsigned seed = 0x1b5;

	for (unsigned i = 0; i < rounds; i++) {
		pid_t pid = peer_start(role, hub->port);
		struct end *end = await_peer(hub);
		uint64_t until = now_ms() + (unsigned)rand_r(&seed) % 20;

		post_500(end);
		while (now_ms() < until)
			hubs_step();
		peer_kill(pid);
		await_lost(end);
	}
	hub_free(hub);
}

static void test_peer_killed_while_it_takes_messages_completes_each_once(void **state)
{
	(void)state;
	run_killed("sink", 8);
}

static void test_peer_killed_while_both_send_completes_each_once(void **state)
{
	(void)state;
	run_killed("busy", 8);
}

static void test_peer_killed_while_it_is_stuck_fails_what_it_has_not_read(void **state)
{
	struct hub *hub = hub_new_listening();
	pid_t pid = peer_start("stuck", hub->port);
	struct end *end = await_peer(hub);

	(void)state;
	post_500(end);
	hubs_linger();
	peer_kill(pid);
	await_lost(end);
	for (unsigned i = 9; i < 500; i += 25)
		assert_int_equal(end->parcels[i]->status, IBMSG_FAILED);
	hub_free(hub);
}

static void test_peer_killed_on_an_idle_connection_is_noticed(void **state)
{
	struct hub *hub = hub_new_listening();
	pid_t pid = peer_start("stuck", hub->port);
	struct end *end = await_peer(hub);

	(void)state;
	peer_kill(pid);
	await_lost(end);
	hub_free(hub);
}

static void test_peer_killed_during_the_goodbye_ends_it(void **state)
{
	struct hub *hub = hub_new_listening();
	pid_t pid = peer_start("stuck", hub->port);
	struct end *end = await_peer(hub);

	(void)state;
	post_500(end);
	assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
	hubs_linger();
	assert_int_equal(end->closed, 0);
	peer_kill(pid);
	await_lost(end);
	hub_free(hub);
}

static void test_peer_that_exits_without_a_goodbye_is_an_error(void **state)
{
	struct hub *hub = hub_new_listening();
	pid_t pid = peer_start("exit", hub->port);

	(void)state;
	await(hub->accepted && hub->accepted->closed);
	assert_int_not_equal(hub->accepted->error, IBMSG_OK);
	assert_int_equal(peer_wait(pid), 0);
	hub_free(hub);
}

static void test_peer_killed_leaves_other_connections_alone(void **state)
{
	struct hub *hub = hub_new_listening();
	pid_t pid = peer_start("stuck", hub->port);
	struct end *dies = await_peer(hub);
	struct link link;

	(void)state;
	link_join(&link, hub, hub);
	post_500(link.client);
	post_500(dies);
	peer_kill(pid);
	await_lost(dies);
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	end_ping(link.server, link.client);
	hub_free(hub);
}

/* ---- alive ---- */

static void test_peer_that_computes_longer_than_the_keepalive_stays(void **state)
{
	struct hub *hub = hub_new_listening();
	struct end *end;
	pid_t pid;

	(void)state;
	assert_int_equal(ibmsg_set_keepalive(&hub->loop, KEEPALIVE_MS), IBMSG_OK);
	pid = peer_start("computing", hub->port);
	end = await_peer(hub);
	await(end->received == 2 || end->closed);
	assert_int_equal(end->closed, 0);
	assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
	await(end->closed);
	assert_int_equal(end->error, IBMSG_OK);
	assert_int_equal(peer_wait(pid), 0);
	hub_free(hub);
}

/* Also one that owes an answer: its loop is late, not its host. */
static void test_loop_that_was_not_dispatched_for_long_stays_connected(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link link;
	uint64_t until;

	(void)state;
	assert_int_equal(ibmsg_set_keepalive(&server->loop, KEEPALIVE_MS), IBMSG_OK);
	assert_int_equal(ibmsg_set_keepalive(&client->loop, KEEPALIVE_MS), IBMSG_OK);
	link_join(&link, client, server);
	server->sleeps = true;
	post_500(link.client);
	until = now_ms() + 5 * KEEPALIVE_MS;
	while (now_ms() < until)
		hubs_step();
	assert_int_equal(link.client->closed, 0);
	server->sleeps = false;
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	end_ping(link.server, link.client);
	link_close(&link);
}

/* Both were late at once: neither may hold that against the other. */
static void test_process_that_stood_still_stays_connected(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link link;
	uint64_t until;

	(void)state;
	assert_int_equal(ibmsg_set_keepalive(&server->loop, KEEPALIVE_MS), IBMSG_OK);
	assert_int_equal(ibmsg_set_keepalive(&client->loop, KEEPALIVE_MS), IBMSG_OK);
	link_join(&link, client, server);
	until = now_ms() + 5 * KEEPALIVE_MS;
	while (now_ms() < until)
		continue;
	end_ping(link.client, link.server);
	end_ping(link.server, link.client);
	link_close(&link);
}

static void test_idle_connection_outlives_many_keepalives(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link link;
	uint64_t until;

	(void)state;
	assert_int_equal(ibmsg_set_keepalive(&server->loop, KEEPALIVE_MS), IBMSG_OK);
	assert_int_equal(ibmsg_set_keepalive(&client->loop, KEEPALIVE_MS), IBMSG_OK);
	link_join(&link, client, server);
	until = now_ms() + 5 * KEEPALIVE_MS;
	while (now_ms() < until)
		hubs_step();
	end_ping(link.client, link.server);
	link_close(&link);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		hub_test(test_peer_killed_while_it_takes_messages_completes_each_once),
		hub_test(test_peer_killed_while_both_send_completes_each_once),
		hub_test(test_peer_killed_while_it_is_stuck_fails_what_it_has_not_read),
		hub_test(test_peer_killed_on_an_idle_connection_is_noticed),
		hub_test(test_peer_killed_during_the_goodbye_ends_it),
		hub_test(test_peer_that_exits_without_a_goodbye_is_an_error),
		hub_test(test_peer_killed_leaves_other_connections_alone),
		hub_test(test_peer_that_computes_longer_than_the_keepalive_stays),
		hub_test(test_loop_that_was_not_dispatched_for_long_stays_connected),
		hub_test(test_process_that_stood_still_stays_connected),
		hub_test(test_idle_connection_outlives_many_keepalives),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	signal(SIGPIPE, count_signal);
	return cmocka_run_group_tests_name("peers", tests, NULL, NULL);
}
