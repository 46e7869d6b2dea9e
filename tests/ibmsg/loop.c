/* SPDX-License-Identifier: MIT */
/* The loop itself: how long it waits, what wakes it, what its descriptor says; and texts. */
#include "side.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

/* A test that failed may have left its timer on. */
static int setup(void **state)
{
	struct itimerval never = {0};

	setitimer(ITIMER_REAL, &never, NULL);
	return hubs_forget(state);
}

/* ---- time ---- */

static void test_dispatch_for_no_time_with_nothing_to_do_returns(void **state)
{
	struct hub *hub = hub_new_listening();
	uint64_t begin = now_ms();

	(void)state;
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(hub_dispatch(hub, 0), IBMSG_OK);
	assert_true(now_ms() - begin < SOON_MS);
	hub_free(hub);
}

static void test_dispatch_for_50_ms_with_nothing_to_do_waits_and_returns(void **state)
{
	struct hub *hub = hub_new_listening();
	uint64_t begin = now_ms();

	(void)state;
	assert_int_equal(hub_dispatch(hub, 50), IBMSG_OK);
	assert_true(now_ms() - begin >= 49);
	assert_true(now_ms() - begin < 5000);
	hub_free(hub);
}

static void test_dispatch_of_an_idle_connection_waits_and_returns(void **state)
{
	struct link link;
	uint64_t begin;

	(void)state;
	link_open(&link, ONE_LOOP);
	end_ping(link.client, link.server);
	hubs_linger();
	/* Long enough for a timer of the beginning that nobody waits for any more. */
	begin = now_ms();
	assert_int_equal(hub_dispatch(link.client_hub, 200), IBMSG_OK);
	assert_true(now_ms() - begin >= 199);
	assert_true(now_ms() - begin < 5000);
	link_close(&link);
}

/* The dispatch without a limit, driven by what happens alone. */
static void test_dispatch_without_limit_returns_when_something_happened(void **state)
{
	struct hub *hub = hub_new_listening();
	struct end *end = end_connect(hub, hub->port);

	(void)state;
	alarm(WAIT_MS / 1000);
	while (!end->established)
		assert_int_equal(hub_dispatch(hub, -1), IBMSG_OK);
	alarm(0);
	hub_free(hub);
}

/* ---- wake ---- */

static struct hub *to_wake;
static volatile sig_atomic_t signals;

static void *wake_from_thread(void *at)
{
	struct hub *hub = at;
	int result = ibmsg_wake_event_loop(&hub->loop);

	return result == IBMSG_OK ? hub : NULL;
}

static void test_wake_from_another_thread_ends_the_wait(void **state)
{
	struct hub *hub = hub_new_listening();
	uint64_t begin = now_ms();

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		pthread_t thread;
		void *result;

		assert_int_equal(pthread_create(&thread, NULL, wake_from_thread, hub), 0);
		assert_int_equal(hub_dispatch(hub, WAIT_MS), IBMSG_OK);
		assert_int_equal(pthread_join(thread, &result), 0);
		assert_ptr_equal(result, hub);
	}
	assert_true(now_ms() - begin < WAIT_MS);
	hub_free(hub);
}

static void test_wake_before_the_wait_is_not_lost(void **state)
{
	struct hub *hub = hub_new_listening();
	uint64_t begin = now_ms();

	(void)state;
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(ibmsg_wake_event_loop(&hub->loop), IBMSG_OK);
	assert_int_equal(hub_dispatch(hub, WAIT_MS), IBMSG_OK);
	assert_true(now_ms() - begin < WAIT_MS);
	/* And not kept for ever. */
	hub_dispatch(hub, 0);
	begin = now_ms();
	assert_int_equal(hub_dispatch(hub, 50), IBMSG_OK);
	assert_true(now_ms() - begin >= 49);
	hub_free(hub);
}

static void wake_from_signal(int number)
{
	(void)number;
	signals++;
	if (to_wake)
		ibmsg_wake_event_loop(&to_wake->loop);
}

/* One signal, soon; without SA_RESTART. */
static void raise_soon(void)
{
	struct sigaction action = {.sa_handler = wake_from_signal};
	struct itimerval soon = {.it_value.tv_usec = 30000};

	signals = 0;
	assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
}

static void test_wake_from_a_signal_handler_ends_the_wait(void **state)
{
	struct hub *hub = hub_new_listening();
	uint64_t begin = now_ms();

	(void)state;
	to_wake = hub;
	raise_soon();
	assert_int_equal(hub_dispatch(hub, WAIT_MS), IBMSG_OK);
	to_wake = NULL;
	assert_true(now_ms() - begin < WAIT_MS);
	assert_int_equal(signals, 1);
	hub_free(hub);
}

static void test_signal_during_dispatch_is_not_an_error(void **state)
{
	struct hub *hub = hub_new_listening();

	(void)state;
	raise_soon();
	assert_int_equal(hub_dispatch(hub, 200), IBMSG_OK);
	while (!signals)
		assert_int_equal(hub_dispatch(hub, 10), IBMSG_OK);
	assert_int_equal(signals, 1);
	hub_free(hub);
}

/* A storm of them under traffic. */
static void test_signals_during_traffic_lose_nothing(void **state)
{
	struct itimerval often = {.it_value.tv_usec = 500, .it_interval.tv_usec = 500};
	struct link link;

	(void)state;
	/* A device may block while it connects, and be interrupted there. */
	link_open(&link, ONE_LOOP);
	raise_soon();
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	for (unsigned i = 0; i < 300; i++) {
		end_post(link.client, i * 100);
		end_post(link.server, i * 300);
	}
	await(end_has_delivered(link.client, link.server) &&
	      end_has_delivered(link.server, link.client));
	end_assert_delivered(link.client, link.server);
	link_close(&link);
	assert_true(signals > 0);
}

/* ---- the descriptor ---- */

static uint64_t poll_limit;

/* One dispatch for each time that a descriptor is readable, and none without. */
static void poll_step(struct hub *first, struct hub *second)
{
	struct hub *both[] = {first, second};
	struct pollfd fds[2];

	for (unsigned i = 0; i < 2; i++)
		fds[i] = (struct pollfd){.fd = ibmsg_event_loop_fd(&both[i]->loop),
					 .events = POLLIN};
	if (poll(fds, 2, WAIT_MS) == 0)
		fail_msg("no descriptor became readable");
	if (now_ms() > poll_limit)
		fail_msg("the descriptors are readable, but nothing goes on");
	for (unsigned i = 0; i < 2; i++)
		if (fds[i].revents)
			assert_int_equal(hub_dispatch(both[i], 0), IBMSG_OK);
}

static void test_descriptor_alone_drives_a_whole_life(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link link = {client, server, end_connect(client, server->port), NULL};

	(void)state;
	poll_limit = now_ms() + WAIT_MS;
	while (!link.client->established || !server->accepted || !server->accepted->established)
		poll_step(client, server);
	link.server = server->accepted;
	for (unsigned i = 0; i < 200; i++) {
		end_post(link.client, i * 200);
		end_post(link.server, i * 300);
	}
	while (!end_has_delivered(link.client, link.server) ||
	       !end_has_delivered(link.server, link.client))
		poll_step(client, server);
	end_assert_delivered(link.client, link.server);
	/* One at a time, each wakes anew. */
	for (unsigned i = 1; i <= 50; i++) {
		end_post(link.client, i % 2 ? 10 : 100 * KIB);
		while (link.server->received < 200 + i || link.client->sent < 200 + i)
			poll_step(client, server);
	}
	assert_int_equal(ibmsg_disconnect(&link.server->socket), IBMSG_OK);
	while (!link.client->closed || !link.server->closed)
		poll_step(client, server);
	assert_int_equal(link.client->error, IBMSG_OK);
	assert_int_equal(link.server->error, IBMSG_OK);
	hub_free(client);
	hub_free(server);
}

/* A time that has come is something to dispatch too. */
static void test_descriptor_is_readable_when_a_time_out_is_due(void **state)
{
	struct hub *server, *client;
	struct end *end;

	(void)state;
	/* rdma_connect itself waits for the peer's answer. */
	if (!strcmp(hub_device(), "siw"))
		skip();
	server = hub_new_listening();
	client = hub_new();
	assert_int_equal(ibmsg_set_connect_timeout(&client->loop, 300), IBMSG_OK);
	end = end_connect(client, server->port);
	while (!end->closed) {
		assert_true(fd_is_readable(ibmsg_event_loop_fd(&client->loop), WAIT_MS));
		assert_int_equal(hub_dispatch(client, 0), IBMSG_OK);
	}
	assert_int_equal(end->error, IBMSG_TIMED_OUT);
	hub_free(client);
	hub_free(server);
}

static void await_not_readable(struct hub *hub)
{
	int fd = ibmsg_event_loop_fd(&hub->loop);
	uint64_t limit = now_ms() + WAIT_MS;

	/* The device's own thread may have what made it readable, and not be running just now. */
	while (fd_is_readable(fd, QUIET_MS)) {
		assert_true(now_ms() < limit);
		assert_int_equal(hub_dispatch(hub, 0), IBMSG_OK);
	}
}

static void test_descriptor_with_nothing_to_do_is_not_readable(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	end_ping(link.client, link.server);
	await_not_readable(link.client_hub);
	await_not_readable(link.server_hub);
	end_post(link.client, 10);
	assert_true(fd_is_readable(ibmsg_event_loop_fd(&link.server_hub->loop), WAIT_MS));
	await(link.server->received == 2);
	await_not_readable(link.server_hub);
	assert_int_equal(ibmsg_wake_event_loop(&link.server_hub->loop), IBMSG_OK);
	assert_true(fd_is_readable(ibmsg_event_loop_fd(&link.server_hub->loop), WAIT_MS));
	await_not_readable(link.server_hub);
	link_close(&link);
}

/* ---- busy poll ---- */

static void test_busy_poll_exchanges_messages(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	assert_int_equal(ibmsg_set_busy_poll(&link.client_hub->loop, 500), IBMSG_OK);
	assert_int_equal(ibmsg_set_busy_poll(&link.server_hub->loop, 500), IBMSG_OK);
	for (unsigned i = 0; i < 50; i++) {
		end_ping(link.client, link.server);
		end_ping(link.server, link.client);
	}
	end_post(link.client, MIB);
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	assert_int_equal(ibmsg_set_busy_poll(&link.client_hub->loop, 0), IBMSG_OK);
	end_ping(link.client, link.server);
	link_close(&link);
}

static void test_busy_poll_does_not_exceed_the_timeout(void **state)
{
	struct hub *hub = hub_new_listening();
	uint64_t begin = now_ms();

	(void)state;
	assert_int_equal(ibmsg_set_busy_poll(&hub->loop, 1000u * WAIT_MS), IBMSG_OK);
	assert_int_equal(hub_dispatch(hub, 0), IBMSG_OK);
	assert_int_equal(hub_dispatch(hub, 50), IBMSG_OK);
	assert_true(now_ms() - begin < 5000);
	hub_free(hub);
}

static void test_busy_poll_is_ended_by_wake(void **state)
{
	struct hub *hub = hub_new_listening();
	uint64_t begin = now_ms();
	pthread_t thread;

	(void)state;
	assert_int_equal(ibmsg_set_busy_poll(&hub->loop, 1000u * WAIT_MS), IBMSG_OK);
	assert_int_equal(pthread_create(&thread, NULL, wake_from_thread, hub), 0);
	assert_int_equal(hub_dispatch(hub, WAIT_MS), IBMSG_OK);
	assert_true(now_ms() - begin < WAIT_MS);
	assert_int_equal(pthread_join(thread, NULL), 0);
	hub_free(hub);
}

/* ---- texts ---- */

static void test_strerror_of_each_error_is_a_text_of_its_own(void **state)
{
	(void)state;
	for (int i = IBMSG_OK; i <= IBMSG_BUSY; i++) {
		assert_non_null(ibmsg_strerror(i));
		assert_true(strlen(ibmsg_strerror(i)) > 1);
		assert_null(strcasestr(ibmsg_strerror(i), "unknown"));
		for (int j = IBMSG_OK; j < i; j++)
			assert_string_not_equal(ibmsg_strerror(i), ibmsg_strerror(j));
	}
}

static void test_strerror_of_anything_else_is_unknown(void **state)
{
	static const int others[] = {-1, IBMSG_BUSY + 1, 1000, INT32_MAX, INT32_MIN};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(others); i++) {
		assert_non_null(strcasestr(ibmsg_strerror(others[i]), "unknown"));
		assert_string_equal(ibmsg_error_hint(others[i]), "");
	}
}

static void test_error_hint_says_something_where_a_user_can_help(void **state)
{
	static const int helped[] = {IBMSG_MEMORY_REGISTRATION_FAILED, IBMSG_NO_DEVICE,
				     IBMSG_UNREACHABLE, IBMSG_REFUSED};

	(void)state;
	for (int i = IBMSG_OK; i <= IBMSG_BUSY; i++)
		assert_non_null(ibmsg_error_hint(i));
	assert_string_equal(ibmsg_error_hint(IBMSG_OK), "");
	for (unsigned i = 0; i < ARRAY_SIZE(helped); i++)
		assert_true(strlen(ibmsg_error_hint(helped[i])) > 1);
}

#define loop_test(function) cmocka_unit_test_setup(function, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		loop_test(test_dispatch_for_no_time_with_nothing_to_do_returns),
		loop_test(test_dispatch_for_50_ms_with_nothing_to_do_waits_and_returns),
		loop_test(test_dispatch_of_an_idle_connection_waits_and_returns),
		loop_test(test_dispatch_without_limit_returns_when_something_happened),
		loop_test(test_wake_from_another_thread_ends_the_wait),
		loop_test(test_wake_before_the_wait_is_not_lost),
		loop_test(test_wake_from_a_signal_handler_ends_the_wait),
		loop_test(test_signal_during_dispatch_is_not_an_error),
		loop_test(test_signals_during_traffic_lose_nothing),
		loop_test(test_descriptor_alone_drives_a_whole_life),
		loop_test(test_descriptor_is_readable_when_a_time_out_is_due),
		loop_test(test_descriptor_with_nothing_to_do_is_not_readable),
		loop_test(test_busy_poll_exchanges_messages),
		loop_test(test_busy_poll_does_not_exceed_the_timeout),
		loop_test(test_busy_poll_is_ended_by_wake),
		loop_test(test_strerror_of_each_error_is_a_text_of_its_own),
		loop_test(test_strerror_of_anything_else_is_unknown),
		loop_test(test_error_hint_says_something_where_a_user_can_help),
	};

	return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
