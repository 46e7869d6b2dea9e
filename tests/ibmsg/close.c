/* SPDX-License-Identifier: MIT */
/* How connections end: from every state, inside every callback, with messages on their way. */
#include "side.h"

/* ---- from every state ---- */

/* All that a hub ever accepted or connected has ended, also what is still on its way to it. */
static void await_all_closed(struct hub *hub)
{
	hubs_linger();
	for (struct end *end = hub->ends; end; end = end->next)
		await(end->closed);
}

static void assert_still_usable(struct hub *client, struct hub *server)
{
	struct link link;

	link_join(&link, client, server);
	end_ping(link.client, link.server);
	end_ping(link.server, link.client);
	assert_int_equal(ibmsg_disconnect(&link.server->socket), IBMSG_OK);
	link_await_closed(&link);
}

static void run_disconnect_at(enum ibmsg_socket_status status, enum link_loops loops)
{
	struct hub *server = hub_new_listening();
	struct hub *client = loops == ONE_LOOP ? server : hub_new();
	struct end *end = end_connect(client, server->port);

	server->on.request = end_try_accept;
	await(end->socket.status >= status);
	assert_int_not_equal(end->socket.status, IBMSG_ERROR);
	assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
	await(end->closed);
	assert_true(end->socket.status == IBMSG_UNCONNECTED || end->socket.status == IBMSG_ERROR);
	await_all_closed(server);
	assert_still_usable(client, server);
	hub_free(client);
	if (client != server)
		hub_free(server);
}

static void test_disconnect_in_each_state_of_a_connector_ends_it(void **state)
{
	(void)state;
	for (int status = IBMSG_UNCONNECTED; status <= IBMSG_CONNECTED; status++) {
		run_disconnect_at((enum ibmsg_socket_status)status, ONE_LOOP);
		run_disconnect_at((enum ibmsg_socket_status)status, TWO_LOOPS);
	}
}

/* Not a status but every moment between two dispatches. */
static void test_disconnect_after_each_number_of_dispatches_ends_it(void **state)
{
	(void)state;
	for (int steps = 0; steps < 12; steps++) {
		struct hub *hub = hub_new_listening();
		struct end *end = end_connect(hub, hub->port);

		hub->on.request = end_try_accept;
		for (int i = 0; i < steps && !end->established; i++)
			assert_int_equal(hub_dispatch(hub, 20), IBMSG_OK);
		assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
		await_all_closed(hub);
		hub_free(hub);
	}
}

static void test_disconnect_twice_closes_once(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	assert_int_equal(link.client->socket.status, IBMSG_DISCONNECTING);
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	link_await_closed(&link);
	hubs_linger();
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

static void test_disconnect_of_what_has_closed_does_nothing(void **state)
{
	struct link link;
	int result;

	(void)state;
	link_open(&link, TWO_LOOPS);
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	link_await_closed(&link);
	result = ibmsg_disconnect(&link.client->socket);
	assert_true(result == IBMSG_OK || result == IBMSG_NOT_CONNECTED);
	result = ibmsg_disconnect(&link.server->socket);
	assert_true(result == IBMSG_OK || result == IBMSG_NOT_CONNECTED);
	hubs_linger();
	assert_int_equal(link.client->socket.status, IBMSG_UNCONNECTED);
	assert_int_equal(link.client->closed, 1);
	assert_int_equal(link.server->closed, 1);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

static void test_disconnect_of_what_was_refused_does_nothing(void **state)
{
	uint16_t port = hub_unused_port();
	struct hub *hub = hub_new();
	struct end *end = end_connect(hub, port);
	int result;

	(void)state;
	await(end->closed);
	result = ibmsg_disconnect(&end->socket);
	assert_true(result == IBMSG_OK || result == IBMSG_NOT_CONNECTED);
	hubs_linger();
	assert_int_equal(end->closed, 1);
	hub_free(hub);
}

static void test_disconnect_of_a_listener_frees_its_port(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link link;
	struct end *end;

	(void)state;
	link_join(&link, client, server);
	assert_int_equal(ibmsg_disconnect(&server->listener), IBMSG_OK);
	/* What it accepted lives on. */
	end_ping(link.client, link.server);
	end = end_connect(client, server->port);
	await(end->closed);
	assert_int_equal(end->error, IBMSG_REFUSED);
	assert_int_equal(ibmsg_listen(&server->loop, &server->listener, hub_address(),
				      (short)server->port, 8),
			 IBMSG_OK);
	assert_still_usable(client, server);
	link_close(&link);
}

static void test_disconnect_by_both_at_once_closes_both(void **state)
{
	struct link link;

	(void)state;
	for (int loops = ONE_LOOP; loops <= TWO_LOOPS; loops++) {
		link_open(&link, (enum link_loops)loops);
		for (unsigned i = 0; i < 20; i++) {
			end_post(link.client, i * 3000);
			end_post(link.server, i * 5000);
		}
		assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
		assert_int_equal(ibmsg_disconnect(&link.server->socket), IBMSG_OK);
		link_await_closed(&link);
		end_assert_delivered(link.client, link.server);
		end_assert_delivered(link.server, link.client);
		hub_free(link.client_hub);
		if (link.server_hub != link.client_hub)
			hub_free(link.server_hub);
	}
}

static void test_post_after_disconnect_is_refused(void **state)
{
	struct parcel *parcel;
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	parcel = end_alloc(link.client, 100);
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	assert_int_not_equal(ibmsg_post_send(&link.client->socket, &parcel->msg), IBMSG_OK);
	link_await_closed(&link);
	assert_int_equal(parcel->done, 0);
	assert_int_equal(link.server->received, 0);
	assert_int_equal(ibmsg_free_msg(&parcel->msg), IBMSG_OK);
	free(parcel);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

/* ---- inside every callback ---- */

static void disconnect_in_request(struct hub *hub, ibmsg_connection_request *request)
{
	struct end *end = end_accept(hub, request);

	assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
}

static void test_disconnect_in_connection_request_ends_both(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct end *end = end_connect(client, server->port);

	(void)state;
	server->on.request = disconnect_in_request;
	await(server->accepted && server->accepted->closed && end->closed);
	server->on.request = NULL;
	assert_still_usable(client, server);
	hub_free(client);
	hub_free(server);
}

static void disconnect_in_established(struct end *end)
{
	assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
}

static void run_disconnect_in_established(bool client_does, bool server_does)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct end *end = end_connect(client, server->port);

	if (client_does)
		client->on.established = disconnect_in_established;
	if (server_does)
		server->on.established = disconnect_in_established;
	await(server->accepted && server->accepted->closed && end->closed);
	assert_int_equal(end->error, IBMSG_OK);
	assert_int_equal(server->accepted->error, IBMSG_OK);
	client->on.established = server->on.established = NULL;
	assert_still_usable(client, server);
	hub_free(client);
	hub_free(server);
}

static void test_disconnect_in_connection_established_closes_both(void **state)
{
	(void)state;
	run_disconnect_in_established(true, false);
	run_disconnect_in_established(false, true);
	run_disconnect_in_established(true, true);
}

static void disconnect_in_received(struct end *end, ibmsg_buffer *msg)
{
	assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
	assert_int_equal(ibmsg_free_msg(msg), IBMSG_OK);
}

/* What the peer had posted by then still arrives. */
static void test_disconnect_in_message_received_closes_both_and_loses_nothing(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.server_hub->on.received = disconnect_in_received;
	for (unsigned i = 0; i < 50; i++)
		end_post(link.client, i * 2000);
	link_await_closed(&link);
	end_assert_delivered(link.client, link.server);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

static void disconnect_in_sent(struct end *end, struct parcel *parcel)
{
	assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
	assert_int_equal(ibmsg_free_msg(&parcel->msg), IBMSG_OK);
	parcel->is_freed = true;
}

static void test_disconnect_in_message_sent_closes_both_and_loses_nothing(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.client_hub->on.sent = disconnect_in_sent;
	for (unsigned i = 0; i < 50; i++)
		end_post(link.client, i * 2000);
	link_await_closed(&link);
	end_assert_delivered(link.client, link.server);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

static void disconnect_in_closed(struct end *end, int error)
{
	int result = ibmsg_disconnect(&end->socket);

	(void)error;
	assert_true(result == IBMSG_OK || result == IBMSG_NOT_CONNECTED);
}

static void test_disconnect_in_connection_closed_does_nothing(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.client_hub->on.closed = link.server_hub->on.closed = disconnect_in_closed;
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	link_await_closed(&link);
	hubs_linger();
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

static void reconnect_in_closed(struct end *end, int error)
{
	struct hub *hub = end->hub;

	assert_int_equal(error, IBMSG_OK);
	hub->on.closed = NULL;
	end_connect(hub, hub->port);
}

static void test_connect_in_connection_closed_works(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link link;

	(void)state;
	client->port = server->port;
	client->on.closed = reconnect_in_closed;
	link_join(&link, client, server);
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	await(client->ends != link.client && client->ends->established &&
	      server->accepted != link.server && server->accepted->established);
	end_ping(client->ends, server->accepted);
	hub_free(client);
	hub_free(server);
}

static void call_what_is_busy(struct end *end)
{
	assert_int_equal(ibmsg_dispatch_event_loop_timeout(&end->hub->loop, 0), IBMSG_BUSY);
	assert_int_equal(ibmsg_dispatch_event_loop(&end->hub->loop), IBMSG_BUSY);
	assert_int_equal(ibmsg_destroy_event_loop(&end->hub->loop), IBMSG_BUSY);
}

static void test_dispatch_and_destroy_inside_a_callback_are_refused(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link link;

	(void)state;
	server->on.established = client->on.established = call_what_is_busy;
	link_join(&link, client, server);
	end_ping(link.client, link.server);
	link_close(&link);
}

/* ---- the goodbye proves delivery ---- */

static void post_hundred(struct end *end)
{
	for (unsigned i = 0; i < 100; i++)
		end_post(end, i % 20 == 10 ? MIB + i : i * 100);
}

static void run_graceful(enum link_loops loops, bool server_closes)
{
	struct link link;

	link_open(&link, loops);
	post_hundred(link.client);
	post_hundred(link.server);
	assert_int_equal(
		ibmsg_disconnect(server_closes ? &link.server->socket : &link.client->socket),
		IBMSG_OK);
	link_await_closed(&link);
	end_assert_delivered(link.client, link.server);
	end_assert_delivered(link.server, link.client);
	hub_free(link.client_hub);
	if (link.server_hub != link.client_hub)
		hub_free(link.server_hub);
}

static void test_disconnect_right_after_100_posts_delivers_them(void **state)
{
	(void)state;
	run_graceful(ONE_LOOP, false);
	run_graceful(ONE_LOOP, true);
	run_graceful(TWO_LOOPS, false);
	run_graceful(TWO_LOOPS, true);
}

static void post_and_disconnect(struct end *end)
{
	post_hundred(end);
	assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
}

static void test_acceptor_that_posts_and_disconnects_at_once_delivers(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct end *end = end_connect(client, server->port);

	(void)state;
	server->on.established = post_and_disconnect;
	await(server->accepted && server->accepted->closed && end->closed);
	assert_int_equal(end->error, IBMSG_OK);
	assert_int_equal(server->accepted->error, IBMSG_OK);
	end_assert_delivered(server->accepted, end);
	hub_free(client);
	hub_free(server);
}

/* Messages that are kept do not hold up the goodbye. */
static void test_disconnect_with_messages_kept_by_the_reader_closes(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.server_hub->keep = KEEP_COPIES;
	post_hundred(link.client);
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	link_await_closed(&link);
	end_assert_delivered(link.client, link.server);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

/* ---- destroy ---- */

static void test_destroy_with_open_connections_ends_them(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link links[3];

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		link_join(&links[i], client, server);
	hub_destroy(client);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(links[i].client->closed, 1);
		assert_int_not_equal(links[i].client->error, IBMSG_OK);
		await(links[i].server->closed);
		assert_int_not_equal(links[i].server->error, IBMSG_OK);
	}
	hub_free(client);
	hub_free(server);
}

static void test_destroy_with_both_ends_in_one_loop_ends_them(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, ONE_LOOP);
	post_hundred(link.client);
	post_hundred(link.server);
	hub_destroy(link.client_hub);
	assert_int_equal(link.client->closed, 1);
	assert_int_equal(link.server->closed, 1);
	hub_free(link.client_hub);
}

static void test_destroy_with_messages_outstanding_fails_each_once(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.server_hub->sleeps = true;
	for (unsigned i = 0; i < 500; i++)
		end_post(link.client, i % 10 == 5 ? 200 * KIB : 1000);
	hubs_step();
	hub_destroy(link.client_hub);
	assert_int_equal(link.client->closed, 1);
	assert_int_not_equal(link.client->error, IBMSG_OK);
	assert_int_equal(link.client->sent + link.client->failed, 500);
	/* Nobody has read the large ones, and what is behind them has not left. */
	for (unsigned i = 5; i < 500; i += 10)
		assert_int_equal(link.client->parcels[i]->status, IBMSG_FAILED);
	link.server_hub->sleeps = false;
	await(link.server->closed);
	assert_int_not_equal(link.server->error, IBMSG_OK);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

/* The reader goes away while it reads large messages. */
static void post_anew_in_vain(struct end *end, struct parcel *parcel)
{
	if (parcel->status == IBMSG_FAILED)
		assert_int_equal(ibmsg_post_send(&end->socket, &parcel->msg), IBMSG_NOT_CONNECTED);
	assert_int_equal(ibmsg_free_msg(&parcel->msg), IBMSG_OK);
	parcel->is_freed = true;
}

static void test_post_anew_while_the_connection_ends_is_refused(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.server_hub->sleeps = true;
	link.client_hub->on.sent = post_anew_in_vain;
	for (unsigned i = 0; i < 20; i++)
		end_post(link.client, 200 * KIB);
	hub_destroy(link.client_hub);
	assert_int_equal(link.client->failed, 20);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

static void test_destroy_of_the_reader_fails_what_it_has_not_read(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	for (unsigned i = 0; i < 50; i++)
		end_post(link.client, MIB);
	await(link.server->received);
	hub_free(link.server_hub);
	await(link.client->closed);
	assert_int_not_equal(link.client->error, IBMSG_OK);
	assert_int_equal(link.client->sent + link.client->failed, 50);
	hub_free(link.client_hub);
}

static void test_destroy_with_a_listener_frees_its_port(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	uint16_t port = server->port;
	struct end *end;

	(void)state;
	hub_free(server);
	end = end_connect(client, port);
	await(end->closed);
	assert_int_equal(end->error, IBMSG_REFUSED);
	hub_free(client);
}

static void test_destroy_while_connecting_ends_it(void **state)
{
	(void)state;
	for (int steps = 0; steps < 8; steps++) {
		struct hub *server = hub_new_listening(), *client = hub_new();
		struct end *end = end_connect(client, server->port);

		server->on.request = end_try_accept;
		for (int i = 0; i < steps && !end->closed; i++)
			hubs_step();
		hub_destroy(client);
		assert_int_equal(end->closed, 1);
		hub_free(client);
		await_all_closed(server);
		hub_free(server);
	}
}

static void test_destroy_with_a_disconnect_under_way_ends_it(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	post_hundred(link.client);
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	hub_destroy(link.client_hub);
	assert_int_equal(link.client->closed, 1);
	assert_int_not_equal(link.client->error, IBMSG_OK);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

/* ---- whose memory it is ---- */

static unsigned closed_sockets;

static void accept_on_heap(ibmsg_connection_request *request)
{
	ibmsg_socket *socket = malloc(sizeof(*socket));

	assert_non_null(socket);
	memset(socket, 0xff, sizeof(*socket));
	assert_int_equal(ibmsg_accept(request, socket), IBMSG_OK);
}

static void free_socket(ibmsg_socket *socket, int error)
{
	(void)error;
	memset(socket, 0xff, sizeof(*socket));
	free(socket);
	closed_sockets++;
}

static void test_socket_freed_in_connection_closed_is_not_touched_again(void **state)
{
	struct hub *server = hub_new(), *client = hub_new();

	(void)state;
	closed_sockets = 0;
	server->loop.connection_request = accept_on_heap;
	server->loop.connection_established = NULL;
	server->loop.message_received = NULL;
	server->loop.connection_closed = free_socket;
	hub_listen(server);
	for (unsigned i = 0; i < 10; i++) {
		struct end *end = end_connect(client, server->port);

		await(end->established);
		post_hundred(end);
		if (i % 2)
			assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
	}
	await(closed_sockets == 5);
	/* The other five end with their loop. */
	hub_free(server);
	assert_int_equal(closed_sockets, 10);
	await(hub_closed(client) == 10);
	hub_free(client);
}

static void assert_is_busy(int result)
{
	assert_true(result == IBMSG_BUSY || result == IBMSG_FREE_BUFFER_FAILED);
}

static void test_free_of_a_posted_message_is_refused_and_harmless(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.server_hub->sleeps = true;
	for (unsigned i = 0; i < 40; i++) {
		struct parcel *parcel = end_post(link.client, i % 2 ? 100 * KIB : 200);

		assert_is_busy(ibmsg_free_msg(&parcel->msg));
	}
	for (unsigned i = 1; i < 40; i += 2)
		assert_is_busy(ibmsg_free_msg(&link.client->parcels[i]->msg));
	link.server_hub->sleeps = false;
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	link_close(&link);
}

static void test_post_of_a_posted_message_is_refused_and_harmless(void **state)
{
	struct parcel *parcel;
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.server_hub->sleeps = true;
	for (unsigned i = 0; i < 40; i++) {
		parcel = end_post(link.client, i % 2 ? 100 * KIB : 200);
		assert_int_equal(ibmsg_post_send(&link.client->socket, &parcel->msg), IBMSG_BUSY);
	}
	link.server_hub->sleeps = false;
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	link_close(&link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		hub_test(test_disconnect_in_each_state_of_a_connector_ends_it),
		hub_test(test_disconnect_after_each_number_of_dispatches_ends_it),
		hub_test(test_disconnect_twice_closes_once),
		hub_test(test_disconnect_of_what_has_closed_does_nothing),
		hub_test(test_disconnect_of_what_was_refused_does_nothing),
		hub_test(test_disconnect_of_a_listener_frees_its_port),
		hub_test(test_disconnect_by_both_at_once_closes_both),
		hub_test(test_post_after_disconnect_is_refused),
		hub_test(test_disconnect_in_connection_request_ends_both),
		hub_test(test_disconnect_in_connection_established_closes_both),
		hub_test(test_disconnect_in_message_received_closes_both_and_loses_nothing),
		hub_test(test_disconnect_in_message_sent_closes_both_and_loses_nothing),
		hub_test(test_disconnect_in_connection_closed_does_nothing),
		hub_test(test_connect_in_connection_closed_works),
		hub_test(test_dispatch_and_destroy_inside_a_callback_are_refused),
		hub_test(test_disconnect_right_after_100_posts_delivers_them),
		hub_test(test_acceptor_that_posts_and_disconnects_at_once_delivers),
		hub_test(test_disconnect_with_messages_kept_by_the_reader_closes),
		hub_test(test_destroy_with_open_connections_ends_them),
		hub_test(test_destroy_with_both_ends_in_one_loop_ends_them),
		hub_test(test_destroy_with_messages_outstanding_fails_each_once),
		hub_test(test_post_anew_while_the_connection_ends_is_refused),
		hub_test(test_destroy_of_the_reader_fails_what_it_has_not_read),
		hub_test(test_destroy_with_a_listener_frees_its_port),
		hub_test(test_destroy_while_connecting_ends_it),
		hub_test(test_destroy_with_a_disconnect_under_way_ends_it),
		hub_test(test_socket_freed_in_connection_closed_is_not_touched_again),
		hub_test(test_free_of_a_posted_message_is_refused_and_harmless),
		hub_test(test_post_of_a_posted_message_is_refused_and_harmless),
	};

	return cmocka_run_group_tests_name("close", tests, NULL, NULL);
}
