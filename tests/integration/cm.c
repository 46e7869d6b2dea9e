/* SPDX-License-Identifier: MIT */
/* Connections: ids, channels, events and their order, on any device. */
#include "pair.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

static const struct pair_options defaults;

/* A listener and, if @connect, a client whose request is on its way. */
static void open_half(struct pair *pair, int backlog, bool connect)
{
	struct sockaddr_storage at;

	memset(pair, 0, sizeof(*pair));
	test_address(&at, 0);
	pair->channel = rdma_create_event_channel();
	assert_non_null(pair->channel);
	pair->listener = listen_at(pair->channel, &at, backlog);
	if (!connect)
		return;
	side_resolve(&pair->client, rdma_get_src_port(pair->listener));
	side_equip(&pair->client, &defaults);
	side_connect(&pair->client, &defaults);
}

static void close_half(struct pair *pair)
{
	if (pair->client.id)
		side_close(&pair->client);
	rdma_destroy_id(pair->listener);
	rdma_destroy_event_channel(pair->channel);
}

/* ---- life and order of events ---- */

static void test_connect_accepted_gives_established_at_both(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(rdma_get_src_port(pair.client.id), rdma_get_dst_port(pair.server.id));
	assert_int_equal(rdma_get_dst_port(pair.client.id), rdma_get_src_port(pair.server.id));
	assert_int_equal(rdma_get_dst_port(pair.client.id), rdma_get_src_port(pair.listener));
	cm_expect_none(pair.client.channel);
	cm_expect_none(pair.server.channel);
	pair_close(&pair);
}

static void test_disconnect_gives_disconnected_once_at_both(void **state)
{
	struct pair pair;

	(void)state;
	for (int server_first = 0; server_first < 2; server_first++) {
		pair_open(&pair, &defaults);
		rdma_disconnect(server_first ? pair.server.id : pair.client.id);
		cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
		cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
		rdma_disconnect(server_first ? pair.client.id : pair.server.id);
		cm_expect_none(pair.client.channel);
		cm_expect_none(pair.server.channel);
		pair_close(&pair);
	}
}

static void test_disconnect_from_both_sides_at_once_ends_once(void **state)
{
	struct pair pair;

	(void)state;
	for (int i = 0; i < 20; i++) {
		pair_open(&pair, &defaults);
		rdma_disconnect(pair.client.id);
		rdma_disconnect(pair.server.id);
		cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
		cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
		assert_false(fd_is_readable(pair.client.channel->fd, 1));
		assert_false(fd_is_readable(pair.server.channel->fd, 1));
		pair_close(&pair);
	}
}

static void test_connect_request_names_listener_and_depths(void **state)
{
	struct rdma_cm_event *event;
	struct pair pair;

	(void)state;
	open_half(&pair, 8, true);
	event = cm_take(pair.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(event->listen_id, pair.listener);
	assert_ptr_equal(event->id->channel, pair.channel);
	assert_non_null(event->id->verbs);
	assert_non_null(event->id->pd);
	assert_int_equal(event->param.conn.responder_resources, 16);
	assert_int_equal(event->param.conn.initiator_depth, 16);
	pair.server.id = event->id;
	rdma_ack_cm_event(event);
	rdma_destroy_id(pair.server.id);
	close_half(&pair);
}

static void test_qp_destroyed_by_one_side_ends_the_other(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	side_recv(&pair.server, 7, 0, 64);
	rdma_destroy_qp(pair.client.id);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	cq_expect(pair.server.recv_cq, 7, IBV_WC_WR_FLUSH_ERR);
	pair_close(&pair);
}

/* rping's habit: id->qp is left dangling. */
static void test_id_destroyed_after_ibv_destroy_qp_is_clean(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(ibv_destroy_qp(pair.client.qp), 0);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_disconnect(pair.client.id);
	pair.client.id->qp = NULL;
	pair_close(&pair);
}

static void test_id_destroyed_before_its_qp_ends_the_connection(void **state)
{
	struct rdma_cm_id *id;
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	side_recv(&pair.client, 3, 0, 64);
	id = pair.client.id;
	assert_int_equal(rdma_destroy_id(id), 0);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	cq_expect(pair.client.recv_cq, 3, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_destroy_qp(pair.client.qp), 0);
	/* The rest as side_close has it. */
	assert_int_equal(rdma_create_id(pair.client.channel, &pair.client.id, NULL, RDMA_PS_TCP),
			 0);
	pair_close(&pair);
}

static void test_disconnect_before_connection_is_refused(void **state)
{
	struct pair pair;

	(void)state;
	open_half(&pair, 8, false);
	side_resolve(&pair.client, rdma_get_src_port(pair.listener));
	side_equip(&pair.client, &defaults);
	assert_int_equal(rdma_disconnect(pair.client.id), -1);
	assert_int_equal(errno, EINVAL);
	close_half(&pair);
}

static void test_destroy_id_while_connecting_is_clean(void **state)
{
	struct pair pair;

	(void)state;
	for (int i = 0; i < 20; i++) {
		open_half(&pair, 8, true);
		close_half(&pair);
	}
}

static void test_connect_again_on_used_id_is_refused(void **state)
{
	struct rdma_conn_param param = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(rdma_connect(pair.client.id, &param), -1);
	assert_int_equal(rdma_accept(pair.server.id, &param), -1);
	assert_int_equal(rdma_listen(pair.client.id, 1), -1);
	pair_disconnect(&pair);
	assert_int_equal(rdma_connect(pair.client.id, &param), -1);
	pair_close(&pair);
}

/* ---- reject ---- */

static void test_reject_carries_private_data(void **state)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct pair pair;

	(void)state;
	open_half(&pair, 8, true);
	side_recv(&pair.client, 5, 0, 64);
	event = cm_take(pair.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	assert_int_equal(rdma_reject(id, "go away", 8), 0);
	rdma_ack_cm_event(event);
	event = cm_take(pair.client.channel, RDMA_CM_EVENT_REJECTED);
	assert_int_not_equal(event->status, 0);
	assert_true(event->param.conn.private_data_len >= 8);
	assert_string_equal(event->param.conn.private_data, "go away");
	rdma_ack_cm_event(event);
	cq_expect(pair.client.recv_cq, 5, IBV_WC_WR_FLUSH_ERR);
	rdma_destroy_id(id);
	close_half(&pair);
}

static void test_reject_after_reject_is_refused(void **state)
{
	struct rdma_cm_event *event;
	struct pair pair;

	(void)state;
	open_half(&pair, 8, true);
	event = cm_take(pair.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(rdma_reject(event->id, NULL, 0), 0);
	assert_int_equal(rdma_reject(event->id, NULL, 0), -1);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_REJECTED);
	pair.server.id = event->id;
	rdma_ack_cm_event(event);
	rdma_destroy_id(pair.server.id);
	close_half(&pair);
}

static void test_request_destroyed_unanswered_rejects(void **state)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct pair pair;

	(void)state;
	open_half(&pair, 8, true);
	event = cm_take(pair.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_destroy_id(id), 0);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_REJECTED);
	close_half(&pair);
}

static void test_listener_destroyed_with_request_queued_rejects(void **state)
{
	struct pair pair;

	(void)state;
	open_half(&pair, 8, true);
	assert_true(fd_is_readable(pair.channel->fd, WAIT_MS));
	assert_int_equal(rdma_destroy_id(pair.listener), 0);
	assert_false(fd_is_readable(pair.channel->fd, 0));
	cm_expect(pair.client.channel, RDMA_CM_EVENT_REJECTED);
	side_close(&pair.client);
	rdma_destroy_event_channel(pair.channel);
}

static void test_request_fetched_outlives_its_listener(void **state)
{
	struct rdma_cm_event *event;
	struct pair pair;

	(void)state;
	open_half(&pair, 8, true);
	event = cm_take(pair.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	pair.server.id = event->id;
	pair.server.channel = rdma_create_event_channel();
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_destroy_id(pair.listener), 0);
	assert_int_equal(rdma_migrate_id(pair.server.id, pair.server.channel), 0);
	side_equip(&pair.server, &defaults);
	assert_int_equal(rdma_accept(pair.server.id, NULL), 0);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_ESTABLISHED);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_ESTABLISHED);
	side_close(&pair.client);
	side_close(&pair.server);
	rdma_destroy_event_channel(pair.channel);
}

/* ---- listeners ---- */

static void test_listeners_on_ephemeral_ports_differ_and_get_their_own(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage at;
	struct rdma_cm_id *listeners[4];
	struct rdma_cm_event *event;

	(void)state;
	test_address(&at, 0);
	for (unsigned i = 0; i < 4; i++) {
		listeners[i] = listen_at(channel, &at, 4);
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(rdma_get_src_port(listeners[i]),
					     rdma_get_src_port(listeners[j]));
	}
	for (unsigned i = 0; i < 4; i++) {
		struct side client = {0};
		struct rdma_cm_id *id;

		side_resolve(&client, rdma_get_src_port(listeners[i]));
		side_equip(&client, &defaults);
		side_connect(&client, &defaults);
		event = cm_take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		assert_ptr_equal(event->listen_id, listeners[i]);
		id = event->id;
		rdma_ack_cm_event(event);
		rdma_destroy_id(id);
		cm_expect(client.channel, RDMA_CM_EVENT_REJECTED);
		side_close(&client);
	}
	for (unsigned i = 0; i < 4; i++)
		rdma_destroy_id(listeners[i]);
	rdma_destroy_event_channel(channel);
}

static void test_listen_wildcard_takes_requests_for_any_address(void **state)
{
	struct rdma_cm_event *event;
	struct sockaddr_storage at, bound;
	struct pair pair = {0};

	(void)state;
	test_address(&bound, 0);
	any_address(&at, bound.ss_family);
	pair.channel = rdma_create_event_channel();
	pair.listener = listen_at(pair.channel, &at, 8);
	assert_null(pair.listener->verbs);
	side_resolve(&pair.client, rdma_get_src_port(pair.listener));
	side_equip(&pair.client, &defaults);
	side_connect(&pair.client, &defaults);
	event = cm_take(pair.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_non_null(event->id->verbs);
	assert_int_equal(rdma_get_local_addr(event->id)->sa_family, bound.ss_family);
	pair.server.id = event->id;
	rdma_ack_cm_event(event);
	rdma_destroy_id(pair.server.id);
	close_half(&pair);
}

static void test_bind_taken_port_gives_eaddrinuse(void **state)
{
	struct rdma_cm_id *id;
	struct sockaddr_storage at;
	struct pair pair;
	int result;

	(void)state;
	open_half(&pair, 8, false);
	test_address(&at, rdma_get_src_port(pair.listener));
	assert_int_equal(rdma_create_id(pair.channel, &id, NULL, RDMA_PS_TCP), 0);
	result = rdma_bind_addr(id, (struct sockaddr *)&at);
	if (!result)
		result = rdma_listen(id, 1);
	assert_int_equal(result, -1);
	assert_int_equal(errno, EADDRINUSE);
	rdma_destroy_id(id);
	close_half(&pair);
}

static void test_bind_port_of_destroyed_listener_is_free(void **state)
{
	struct sockaddr_storage at;
	uint16_t port;
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	port = rdma_get_src_port(pair.listener);
	rdma_destroy_id(pair.listener);
	test_address(&at, port);
	pair.listener = listen_at(pair.channel, &at, 8); /* while its connection lives */
	pair_disconnect(&pair);
	pair_close(&pair);
}

static void test_backlog_of_one_serves_many_in_turn(void **state)
{
	struct side clients[6] = {0};
	struct side servers[6] = {0};
	struct pair pair;

	(void)state;
	open_half(&pair, 1, false);
	for (unsigned i = 0; i < 6; i++) {
		side_resolve(&clients[i], rdma_get_src_port(pair.listener));
		side_equip(&clients[i], &defaults);
		side_connect(&clients[i], &defaults);
	}
	for (unsigned i = 0; i < 6; i++)
		side_accept(&servers[i], pair.channel, &defaults);
	for (unsigned i = 0; i < 6; i++) {
		side_await_established(&clients[i]);
		side_close(&clients[i]);
		side_close(&servers[i]);
	}
	close_half(&pair);
}

/* ---- channels ---- */

static void test_channel_nonblocking_and_empty_gives_eagain(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;

	(void)state;
	assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(rdma_get_cm_event(channel, &event), -1);
	assert_int_equal(errno, EAGAIN);
	rdma_destroy_event_channel(channel);
}

static void test_channel_is_readable_exactly_while_events_are_queued(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage to;
	struct rdma_cm_id *ids[3];

	(void)state;
	test_address(&to, htons(9));
	assert_false(fd_is_readable(channel->fd, 0));
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(rdma_create_id(channel, &ids[i], NULL, RDMA_PS_TCP), 0);
		rdma_resolve_addr(ids[i], NULL, (struct sockaddr *)&to, WAIT_MS);
	}
	for (unsigned i = 0; i < 3; i++) {
		struct rdma_cm_event *event = cm_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);

		assert_ptr_equal(event->id, ids[i]);
		rdma_ack_cm_event(event);
	}
	assert_false(fd_is_readable(channel->fd, QUIET_MS));
	for (unsigned i = 0; i < 3; i++)
		rdma_destroy_id(ids[i]);
	rdma_destroy_event_channel(channel);
}

static void test_destroy_id_removes_its_queued_events_only(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct sockaddr_storage to;
	struct rdma_cm_id *first, *second;

	(void)state;
	test_address(&to, htons(9));
	rdma_create_id(channel, &first, NULL, RDMA_PS_TCP);
	rdma_create_id(channel, &second, NULL, RDMA_PS_TCP);
	rdma_resolve_addr(first, NULL, (struct sockaddr *)&to, WAIT_MS);
	rdma_resolve_addr(second, NULL, (struct sockaddr *)&to, WAIT_MS);
	assert_true(fd_is_readable(channel->fd, WAIT_MS));
	assert_int_equal(rdma_destroy_id(first), 0);
	event = cm_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(event->id, second);
	rdma_ack_cm_event(event);
	assert_false(fd_is_readable(channel->fd, QUIET_MS));
	rdma_destroy_id(second);
	rdma_destroy_event_channel(channel);
}

static void test_migrate_id_moves_queued_events(void **state)
{
	struct rdma_event_channel *from = rdma_create_event_channel();
	struct rdma_event_channel *to = rdma_create_event_channel();
	struct sockaddr_storage dst;
	struct rdma_cm_id *moved, *left;

	(void)state;
	test_address(&dst, htons(9));
	rdma_create_id(from, &moved, NULL, RDMA_PS_TCP);
	rdma_create_id(from, &left, NULL, RDMA_PS_TCP);
	rdma_resolve_addr(moved, NULL, (struct sockaddr *)&dst, WAIT_MS);
	rdma_resolve_addr(left, NULL, (struct sockaddr *)&dst, WAIT_MS);
	assert_true(fd_is_readable(from->fd, WAIT_MS));
	assert_int_equal(rdma_migrate_id(moved, to), 0);
	assert_ptr_equal(moved->channel, to);
	cm_expect(to, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_false(fd_is_readable(to->fd, 0));
	cm_expect(from, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_false(fd_is_readable(from->fd, 0));
	assert_int_equal(rdma_resolve_route(moved, WAIT_MS), 0);
	cm_expect(to, RDMA_CM_EVENT_ROUTE_RESOLVED);
	rdma_destroy_id(moved);
	rdma_destroy_id(left);
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

/* ---- address and route ---- */

static void test_connect_without_route_is_refused(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {0};
	struct rdma_cm_id *id;

	(void)state;
	rdma_create_id(channel, &id, NULL, RDMA_PS_TCP);
	assert_int_equal(rdma_connect(id, &param), -1);
	assert_int_equal(rdma_resolve_route(id, 1000), -1);
	assert_int_equal(rdma_accept(id, &param), -1);
	assert_int_equal(rdma_reject(id, NULL, 0), -1);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

static void test_resolve_gives_device_and_default_pd(void **state)
{
	struct side side = {0};

	(void)state;
	side_resolve(&side, htons(9));
	assert_non_null(side.id->verbs);
	assert_non_null(side.id->pd);
	assert_ptr_equal(side.id->pd->context, side.id->verbs);
	assert_int_equal(side.id->port_num, 1);
	rdma_destroy_id(side.id);
	rdma_destroy_event_channel(side.channel);
}

static void test_options_are_accepted(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	uint8_t tos = 0x20, timeout = 14;
	int on = 1;

	(void)state;
	rdma_create_id(channel, &id, NULL, RDMA_PS_TCP);
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
	assert_int_equal(
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), 0);
	assert_int_equal(
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), 0);
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof(on)),
			 -1);
	assert_int_equal(rdma_set_option(id, 77, 1, &on, sizeof(on)), -1);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect_accepted_gives_established_at_both),
		cmocka_unit_test(test_disconnect_gives_disconnected_once_at_both),
		cmocka_unit_test(test_disconnect_from_both_sides_at_once_ends_once),
		cmocka_unit_test(test_connect_request_names_listener_and_depths),
		cmocka_unit_test(test_qp_destroyed_by_one_side_ends_the_other),
		cmocka_unit_test(test_id_destroyed_after_ibv_destroy_qp_is_clean),
		cmocka_unit_test(test_id_destroyed_before_its_qp_ends_the_connection),
		cmocka_unit_test(test_disconnect_before_connection_is_refused),
		cmocka_unit_test(test_destroy_id_while_connecting_is_clean),
		cmocka_unit_test(test_connect_again_on_used_id_is_refused),
		cmocka_unit_test(test_reject_carries_private_data),
		cmocka_unit_test(test_reject_after_reject_is_refused),
		cmocka_unit_test(test_request_destroyed_unanswered_rejects),
		cmocka_unit_test(test_listener_destroyed_with_request_queued_rejects),
		cmocka_unit_test(test_request_fetched_outlives_its_listener),
		cmocka_unit_test(test_listeners_on_ephemeral_ports_differ_and_get_their_own),
		cmocka_unit_test(test_listen_wildcard_takes_requests_for_any_address),
		cmocka_unit_test(test_bind_taken_port_gives_eaddrinuse),
		cmocka_unit_test(test_bind_port_of_destroyed_listener_is_free),
		cmocka_unit_test(test_backlog_of_one_serves_many_in_turn),
		cmocka_unit_test(test_channel_nonblocking_and_empty_gives_eagain),
		cmocka_unit_test(test_channel_is_readable_exactly_while_events_are_queued),
		cmocka_unit_test(test_destroy_id_removes_its_queued_events_only),
		cmocka_unit_test(test_migrate_id_moves_queued_events),
		cmocka_unit_test(test_connect_without_route_is_refused),
		cmocka_unit_test(test_resolve_gives_device_and_default_pd),
		cmocka_unit_test(test_options_are_accepted),
	};

	return cmocka_run_group_tests_name("cm", tests, NULL, NULL);
}
