/* SPDX-License-Identifier: MIT */
/* How connections begin, or do not: refused, rejected, too late, with data for the peer. */
#include "side.h"

/* ---- no connection ---- */

static void assert_not_established(struct end *end, int error)
{
	await(end->closed);
	assert_int_equal(end->error, error);
	assert_int_equal(end->established, 0);
	assert_int_equal(end->socket.status, IBMSG_ERROR);
	assert_int_equal(end->socket.error, error);
	hubs_linger();
	assert_int_equal(end->closed, 1);
}

static void test_connect_to_nobody_is_refused(void **state)
{
	uint16_t port = hub_unused_port();
	struct hub *hub = hub_new();

	(void)state;
	for (unsigned i = 0; i < 5; i++)
		assert_not_established(end_connect(hub, port), IBMSG_REFUSED);
	hub_free(hub);
}

/* The status alone tells it, as in a program without connection_closed. */
static void test_connect_to_nobody_without_callbacks_becomes_an_error(void **state)
{
	uint16_t port = hub_unused_port();
	struct hub *hub = hub_new();
	struct end *end;

	(void)state;
	hub->loop.connection_closed = NULL;
	end = end_connect(hub, port);
	await(end->socket.status == IBMSG_ERROR);
	assert_int_equal(end->socket.error, IBMSG_REFUSED);
	hub_free(hub);
}

static void test_socket_that_was_refused_connects_when_somebody_listens(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct end *end = end_connect(client, hub_unused_port());

	(void)state;
	assert_not_established(end, IBMSG_REFUSED);
	end->closed = 0;
	assert_int_equal(ibmsg_connect(&client->loop, &end->socket, hub_address(), server->port),
			 IBMSG_OK);
	await(end->established && server->accepted && server->accepted->established);
	end_ping(end, server->accepted);
	end_ping(server->accepted, end);
	hub_free(client);
	hub_free(server);
}

static void test_request_without_callback_is_rejected(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();

	(void)state;
	server->loop.connection_request = NULL;
	assert_not_established(end_connect(client, server->port), IBMSG_REJECTED);
	hub_free(client);
	hub_free(server);
}

static void ignore_request(struct hub *hub, ibmsg_connection_request *request)
{
	(void)hub;
	assert_non_null(request->cmid);
}

static void test_request_that_is_not_accepted_is_rejected(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct end *end;

	(void)state;
	server->on.request = ignore_request;
	end = end_connect(client, server->port);
	assert_not_established(end, IBMSG_REJECTED);
	assert_int_equal(ibmsg_peer_data(&end->socket, NULL, 0), 0);
	assert_int_equal(server->requests, 1);
	/* The next one is none the worse for it. */
	server->on.request = NULL;
	end = end_connect(client, server->port);
	await(end->established && server->accepted && server->accepted->established);
	end_ping(end, server->accepted);
	hub_free(client);
	hub_free(server);
}

/* ---- user data ---- */

static uint8_t given[IBMSG_MAX_USER_DATA + 1]; /* by the side that is asked */
static size_t given_len;
static uint8_t told[IBMSG_MAX_USER_DATA]; /* to it */
static size_t told_len;
static unsigned looks; /* that found the peer's data in connection_closed */

static void assert_peer_data(const ibmsg_socket *socket, const uint8_t *data, size_t len)
{
	uint8_t seen[IBMSG_MAX_USER_DATA + 8];

	memset(seen, 0xaa, sizeof(seen));
	assert_int_equal(ibmsg_peer_data(socket, seen, sizeof(seen)), len);
	assert_memory_equal(seen, data, len);
	assert_true(is_all(seen + len, sizeof(seen) - len, 0xaa));
	/* No more than there is room for, but its whole length is told. */
	memset(seen, 0xaa, sizeof(seen));
	assert_int_equal(ibmsg_peer_data(socket, seen, len / 2), len);
	assert_memory_equal(seen, data, len / 2);
	assert_true(is_all(seen + len / 2, sizeof(seen) - len / 2, 0xaa));
}

static void look_at_close(struct end *end, int error)
{
	(void)error;
	if (end->is_server)
		assert_peer_data(&end->socket, told, told_len);
	else
		assert_peer_data(&end->socket, given, given_len);
	looks++;
}

static void assert_told(const ibmsg_connection_request *request)
{
	assert_int_equal(request->user_data_len, told_len);
	if (told_len)
		assert_memory_equal(request->user_data, told, told_len);
}

static void reject_with_reason(struct hub *hub, ibmsg_connection_request *request)
{
	(void)hub;
	assert_told(request);
	assert_int_equal(ibmsg_reject(request, given, given_len), IBMSG_OK);
}

static void accept_with_data(struct hub *hub, ibmsg_connection_request *request)
{
	struct end *end = end_new(hub);

	assert_told(request);
	end->is_server = true;
	assert_int_equal(ibmsg_accept_with(request, &end->socket, given, given_len), IBMSG_OK);
	assert_int_equal(request->status, IBMSG_ACCEPTED);
	hub->accepted = end;
}

static struct end *connect_with_data(struct hub *client, struct hub *server, size_t to, size_t from)
{
	struct end *end = end_new(client);

	fill(told, to, 5);
	told_len = to;
	fill(given, from, 6);
	given_len = from;
	looks = 0;
	assert_int_equal(ibmsg_connect_with(&client->loop, &end->socket, hub_address(),
					    server->port, told, told_len),
			 IBMSG_OK);
	return end;
}

static const size_t lengths[] = {0, 1, 2, 31, IBMSG_MAX_USER_DATA};

static void test_reject_with_a_reason_tells_it(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct hub *server = hub_new_listening(), *client = hub_new();

		server->on.request = reject_with_reason;
		client->on.closed = look_at_close;
		assert_not_established(connect_with_data(client, server, 3, lengths[i]),
				       IBMSG_REJECTED);
		assert_int_equal(looks, 1);
		hub_free(client);
		hub_free(server);
	}
}

static void test_user_data_of_each_length_travels_both_ways(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(lengths) * ARRAY_SIZE(lengths); i++) {
		struct hub *server = hub_new_listening(), *client = hub_new();
		struct link link = {client, server, NULL, NULL};

		server->on.request = accept_with_data;
		server->on.closed = client->on.closed = look_at_close;
		link.client = connect_with_data(client, server, lengths[i % ARRAY_SIZE(lengths)],
						lengths[i / ARRAY_SIZE(lengths)]);
		await(link.client->established && server->accepted &&
		      server->accepted->established);
		link.server = server->accepted;
		assert_peer_data(&link.client->socket, given, given_len);
		assert_peer_data(&link.server->socket, told, told_len);
		end_ping(link.client, link.server);
		link_close(&link);
		assert_int_equal(looks, 2);
	}
}

static void test_connect_with_too_much_user_data_is_an_invalid_argument(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct end *end = end_new(client);

	(void)state;
	assert_int_equal(ibmsg_connect_with(&client->loop, &end->socket, hub_address(),
					    server->port, given, IBMSG_MAX_USER_DATA + 1),
			 IBMSG_INVALID_ARGUMENT);
	hubs_linger();
	assert_int_equal(server->requests, 0);
	assert_int_equal(end->closed, 0);
	hub_free(client);
	hub_free(server);
}

static void answer_with_too_much(struct hub *hub, ibmsg_connection_request *request)
{
	struct end *end = end_new(hub);

	assert_int_equal(ibmsg_reject(request, given, IBMSG_MAX_USER_DATA + 1),
			 IBMSG_INVALID_ARGUMENT);
	assert_int_equal(ibmsg_accept_with(request, &end->socket, given, IBMSG_MAX_USER_DATA + 1),
			 IBMSG_INVALID_ARGUMENT);
	assert_int_equal(request->status, IBMSG_UNDECIDED);
	end_accept(hub, request);
}

static void test_answer_with_too_much_user_data_is_an_invalid_argument(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link link;

	(void)state;
	server->on.request = answer_with_too_much;
	link_join(&link, client, server);
	end_ping(link.client, link.server);
	link_close(&link);
}

/* ---- in time ---- */

/* A listener that never answers: its loop is not dispatched. */
static void test_connect_that_nobody_answers_times_out(void **state)
{
	uint64_t begin = now_ms();
	struct hub *server, *client;
	struct end *end;

	(void)state;
	/* rdma_connect itself waits for the peer's answer. */
	if (!strcmp(hub_device(), "siw"))
		skip();
	server = hub_new_listening();
	client = hub_new();
	server->on.request = end_try_accept;
	server->sleeps = true;
	assert_int_equal(ibmsg_set_connect_timeout(&client->loop, 300), IBMSG_OK);
	end = end_connect(client, server->port);
	assert_not_established(end, IBMSG_TIMED_OUT);
	assert_true(now_ms() - begin >= 290);
	assert_true(now_ms() - begin < 10000);
	/* What the server accepts now is nobody's, and ends. */
	server->sleeps = false;
	hubs_linger();
	await(!server->accepted || server->accepted->closed);
	hub_free(client);
	hub_free(server);
}

static void test_connect_timeout_leaves_an_established_connection_alone(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	uint64_t begin = now_ms();
	struct link link;

	(void)state;
	assert_int_equal(ibmsg_set_connect_timeout(&client->loop, 1000), IBMSG_OK);
	assert_int_equal(ibmsg_set_connect_timeout(&server->loop, 1000), IBMSG_OK);
	link_join(&link, client, server);
	while (now_ms() < begin + 1200)
		hubs_step();
	end_ping(link.client, link.server);
	link_close(&link);
}

/* ---- addresses ---- */

static void test_addresses_of_two_ends_agree(void **state)
{
	struct sockaddr_storage mine, theirs;
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	assert_int_equal(ibmsg_peer_address(&link.client->socket, &theirs), IBMSG_OK);
	assert_int_equal(port_of(&theirs), link.server_hub->port);
	assert_int_equal(ibmsg_local_address(&link.client->socket, &mine), IBMSG_OK);
	assert_int_equal(ibmsg_peer_address(&link.server->socket, &theirs), IBMSG_OK);
	assert_int_equal(mine.ss_family, theirs.ss_family);
	assert_int_equal(port_of(&mine), port_of(&theirs));
	link_close(&link);
}

/* Nothing in the guest leads there; elsewhere something might. */
static void test_connect_without_a_route_is_unreachable(void **state)
{
	char nowhere[] = "203.0.113.1";
	struct hub *hub;
	struct end *end;
	int result;

	(void)state;
	if (!*hub_device())
		skip();
	hub = hub_new();
	end = end_new(hub);
	result = ibmsg_connect(&hub->loop, &end->socket, nowhere, 7471);
	if (result == IBMSG_OK)
		assert_not_established(end, IBMSG_UNREACHABLE);
	else
		assert_int_equal(result, IBMSG_UNREACHABLE);
	hub_free(hub);
}

/* ---- wrong arguments ---- */

static void test_connect_to_a_name_that_does_not_exist_is_an_error(void **state)
{
	char name[] = "no.such.host.invalid";
	struct hub *hub = hub_new();
	struct end *end = end_new(hub);

	(void)state;
	assert_int_equal(ibmsg_connect(&hub->loop, &end->socket, name, 7471),
			 IBMSG_GETADDRINFO_FAILED);
	hubs_linger();
	assert_int_equal(end->closed, 0);
	hub_free(hub);
}

static void test_listen_at_a_port_in_use_is_an_error(void **state)
{
	struct hub *hub = hub_new_listening(), *other = hub_new();
	int result;

	(void)state;
	result = ibmsg_listen(&other->loop, &other->listener, hub_address(), (short)hub->port, 8);
	assert_true(result == IBMSG_BIND_FAILED || result == IBMSG_LISTEN_FAILED);
	hub_free(other);
	hub_free(hub);
}

static void test_listen_at_a_foreign_address_is_an_error(void **state)
{
	char foreign[] = "203.0.113.1";
	struct hub *hub = hub_new();

	(void)state;
	assert_int_equal(ibmsg_listen(&hub->loop, &hub->listener, foreign, 0, 8),
			 IBMSG_BIND_FAILED);
	hub_free(hub);
}

static void run_listen_anywhere(char *where)
{
	struct hub *server = hub_new(), *client = hub_new();
	struct sockaddr_storage at;
	struct link link;

	assert_int_equal(ibmsg_listen(&server->loop, &server->listener, where, 0, 8), IBMSG_OK);
	assert_int_equal(ibmsg_local_address(&server->listener, &at), IBMSG_OK);
	server->port = port_of(&at);
	link_join(&link, client, server);
	end_ping(link.client, link.server);
	link_close(&link);
}

static void test_listen_at_every_address_is_reached(void **state)
{
	char star[] = "*";

	(void)state;
	run_listen_anywhere(NULL);
	run_listen_anywhere(star);
}

static void test_two_listeners_of_one_loop_both_answer(void **state)
{
	struct hub *hub = hub_new_listening();
	struct sockaddr_storage at;
	ibmsg_socket second;
	struct link link;

	(void)state;
	memset(&second, 0xff, sizeof(second));
	assert_int_equal(ibmsg_listen(&hub->loop, &second, hub_address(), 0, 8), IBMSG_OK);
	link_join(&link, hub, hub);
	end_ping(link.client, link.server);
	assert_int_equal(ibmsg_local_address(&second, &at), IBMSG_OK);
	assert_int_not_equal(port_of(&at), hub->port);
	hub->port = port_of(&at);
	link_join(&link, hub, hub);
	end_ping(link.client, link.server);
	hub_free(hub);
}

static void test_post_on_a_socket_without_connection_is_refused(void **state)
{
	struct parcel *parcel;
	struct link link;
	ibmsg_buffer msg;

	(void)state;
	link_open(&link, TWO_LOOPS);
	parcel = end_alloc(link.client, 100);
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	link_await_closed(&link);
	assert_int_equal(ibmsg_post_send(&link.client->socket, &parcel->msg), IBMSG_NOT_CONNECTED);
	assert_int_equal(ibmsg_alloc_msg(&msg, &link.client->socket, 10), IBMSG_NOT_CONNECTED);
	hubs_linger();
	assert_int_equal(parcel->done, 0);
	assert_int_equal(ibmsg_free_msg(&parcel->msg), IBMSG_OK);
	free(parcel);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

/* ---- without callbacks ---- */

static ibmsg_socket only;

static void accept_only(ibmsg_connection_request *request)
{
	assert_int_equal(ibmsg_accept(request, &only), IBMSG_OK);
}

/* All that a program must have is the one that accepts: messages that nobody takes are freed. */
static void test_loops_without_callbacks_send_and_close(void **state)
{
	struct hub *server = hub_new(), *client = hub_new();
	struct end *end;
	ibmsg_buffer msg;

	(void)state;
	memset(&only, 0xff, sizeof(only));
	memset(&msg, 0xff, sizeof(msg));
	server->loop.connection_request = accept_only;
	server->loop.connection_established = client->loop.connection_established = NULL;
	server->loop.message_received = client->loop.message_received = NULL;
	server->loop.message_sent = client->loop.message_sent = NULL;
	server->loop.connection_closed = client->loop.connection_closed = NULL;
	hub_listen(server);
	end = end_connect(client, server->port);
	assert_int_equal(end->socket.status, IBMSG_UNCONNECTED);
	await(end->socket.status == IBMSG_CONNECTED && only.status == IBMSG_CONNECTED);
	for (unsigned i = 0; i < 200; i++) {
		assert_int_equal(ibmsg_alloc_msg(&msg, &end->socket, i * 500), IBMSG_OK);
		memset(msg.data, (int)i, msg.size);
		assert_int_equal(ibmsg_post_send(&end->socket, &msg), IBMSG_OK);
		await(msg.status == IBMSG_SENT);
		assert_int_equal(ibmsg_free_msg(&msg), IBMSG_OK);
	}
	assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
	await(end->socket.status == IBMSG_UNCONNECTED && only.status == IBMSG_UNCONNECTED);
	hub_free(client);
	hub_free(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		hub_test(test_connect_to_nobody_is_refused),
		hub_test(test_connect_to_nobody_without_callbacks_becomes_an_error),
		hub_test(test_socket_that_was_refused_connects_when_somebody_listens),
		hub_test(test_request_without_callback_is_rejected),
		hub_test(test_request_that_is_not_accepted_is_rejected),
		hub_test(test_reject_with_a_reason_tells_it),
		hub_test(test_user_data_of_each_length_travels_both_ways),
		hub_test(test_connect_with_too_much_user_data_is_an_invalid_argument),
		hub_test(test_answer_with_too_much_user_data_is_an_invalid_argument),
		hub_test(test_connect_that_nobody_answers_times_out),
		hub_test(test_connect_timeout_leaves_an_established_connection_alone),
		hub_test(test_addresses_of_two_ends_agree),
		hub_test(test_connect_without_a_route_is_unreachable),
		hub_test(test_connect_to_a_name_that_does_not_exist_is_an_error),
		hub_test(test_listen_at_a_port_in_use_is_an_error),
		hub_test(test_listen_at_a_foreign_address_is_an_error),
		hub_test(test_listen_at_every_address_is_reached),
		hub_test(test_two_listeners_of_one_loop_both_answer),
		hub_test(test_post_on_a_socket_without_connection_is_refused),
		hub_test(test_loops_without_callbacks_send_and_close),
	};

	return cmocka_run_group_tests_name("life", tests, NULL, NULL);
}
