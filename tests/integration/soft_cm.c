/* SPDX-License-Identifier: MIT */
/*
 * Connections as the software device alone makes them: exact codes, both address families, and
 * strangers at its TCP ports.
 */
#include "pair.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

static const struct pair_options defaults;

/* ---- plain TCP ---- */

static int tcp_connect(uint16_t port)
{
	struct sockaddr_storage to;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	test_address(&to, port);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
	return fd;
}

/* A TCP listener, and its port. */
static int tcp_listen(uint16_t *port)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	test_address(&at, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(struct sockaddr_in)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	*port = ((struct sockaddr_in *)&at)->sin_port;
	return fd;
}

static int tcp_accept(int listener)
{
	int fd;

	assert_true(fd_is_readable(listener, WAIT_MS));
	fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	return fd;
}

/* Closing with a request unread would reset. */
static void tcp_read_and_close(int fd)
{
	char request[256];

	assert_true(fd_is_readable(fd, WAIT_MS));
	assert_true(recv(fd, request, sizeof(request), 0) >= 20);
	close(fd);
}

/* The peer closes, and may have sent something before. */
static void tcp_expect_end(int fd)
{
	char scrap[256];

	for (;;) {
		assert_true(fd_is_readable(fd, WAIT_MS));
		if (recv(fd, scrap, sizeof(scrap), 0) <= 0)
			break;
	}
	close(fd);
}

/* ---- refused and rejected ---- */

static void start_connect(struct side *side, uint16_t port)
{
	uint64_t begin = now_ms();

	memset(side, 0, sizeof(*side));
	side_resolve(side, port);
	side_equip(side, &defaults);
	side_connect(side, &defaults);
	assert_true(now_ms() - begin < WAIT_MS / 4); /* it does not wait for the peer */
}

static void test_connect_to_a_closed_port_gives_rejected_with_econnrefused(void **state)
{
	struct side side;

	(void)state;
	start_connect(&side, unused_port());
	assert_int_equal(cm_expect(side.channel, RDMA_CM_EVENT_REJECTED), -ECONNREFUSED);
	cm_expect_none(side.channel);
	side_close(&side);
}

static void test_reject_by_the_program_gives_econnreset(void **state)
{
	struct rdma_cm_event *event;
	struct sockaddr_storage at;
	struct pair pair = {0};

	(void)state;
	test_address(&at, 0);
	pair.channel = rdma_create_event_channel();
	pair.listener = listen_at(pair.channel, &at, 1);
	start_connect(&pair.client, rdma_get_src_port(pair.listener));
	event = cm_take(pair.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	pair.server.id = event->id;
	assert_int_equal(rdma_reject(event->id, NULL, 0), 0);
	rdma_ack_cm_event(event);
	event = cm_take(pair.client.channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, -ECONNRESET);
	assert_int_equal(event->param.conn.private_data_len, 0);
	rdma_ack_cm_event(event);
	rdma_destroy_id(pair.server.id);
	side_close(&pair.client);
	rdma_destroy_id(pair.listener);
	rdma_destroy_event_channel(pair.channel);
}

/* ---- private data ---- */

static void exchange_private_data(uint8_t len)
{
	struct rdma_conn_param param = {.private_data_len = len};
	struct rdma_cm_event *event;
	struct sockaddr_storage at;
	struct pair pair = {0};
	uint8_t bytes[255];

	fill(bytes, sizeof(bytes), len);
	param.private_data = bytes;
	test_address(&at, 0);
	pair.channel = rdma_create_event_channel();
	pair.listener = listen_at(pair.channel, &at, 1);
	side_resolve(&pair.client, rdma_get_src_port(pair.listener));
	side_equip(&pair.client, &defaults);
	assert_int_equal(rdma_connect(pair.client.id, &param), 0);

	event = cm_take(pair.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(event->param.conn.private_data_len, len);
	assert_true(is_filled(event->param.conn.private_data, len, len));
	pair.server.id = event->id;
	rdma_ack_cm_event(event);
	pair.server.channel = rdma_create_event_channel();
	rdma_migrate_id(pair.server.id, pair.server.channel);
	side_equip(&pair.server, &defaults);
	assert_int_equal(rdma_accept(pair.server.id, &param), 0);

	event = cm_take(pair.client.channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(event->param.conn.private_data_len, len);
	assert_true(is_filled(event->param.conn.private_data, len, len));
	rdma_ack_cm_event(event);
	pair_close(&pair);
}

static void test_private_data_to_252_bytes_arrives_exactly(void **state)
{
	static const uint8_t lengths[] = {0, 1, 2, 3, 4, 5, 56, 148, 196, 251, 252};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++)
		exchange_private_data(lengths[i]);
}

static void test_private_data_above_252_bytes_is_refused(void **state)
{
	struct rdma_conn_param param = {.private_data_len = 253};
	struct rdma_cm_event *event;
	struct sockaddr_storage at;
	struct pair pair = {0};
	uint8_t bytes[255] = {0};

	(void)state;
	param.private_data = bytes;
	test_address(&at, 0);
	pair.channel = rdma_create_event_channel();
	pair.listener = listen_at(pair.channel, &at, 1);
	side_resolve(&pair.client, rdma_get_src_port(pair.listener));
	side_equip(&pair.client, &defaults);
	assert_int_equal(rdma_connect(pair.client.id, &param), -1);
	assert_int_equal(errno, EINVAL);
	side_connect(&pair.client, &defaults);
	event = cm_take(pair.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	pair.server.id = event->id;
	assert_int_equal(rdma_reject(event->id, bytes, 253), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_reject(event->id, bytes, 252), 0);
	rdma_ack_cm_event(event);
	event = cm_take(pair.client.channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->param.conn.private_data_len, 252);
	rdma_ack_cm_event(event);
	rdma_destroy_id(pair.server.id);
	side_close(&pair.client);
	rdma_destroy_id(pair.listener);
	rdma_destroy_event_channel(pair.channel);
}

/* ---- strangers at a listener ---- */

/* A connection is made and works, whatever else goes on at that listener. */
static void check_listener(struct rdma_event_channel *channel, struct rdma_cm_id *listener)
{
	struct side client, server = {0};

	start_connect(&client, rdma_get_src_port(listener));
	side_accept(&server, channel, &defaults);
	side_await_established(&client);
	side_recv(&server, 1, 0, 64);
	side_send(&client, 2, 0, 8);
	cq_expect(server.recv_cq, 1, IBV_WC_SUCCESS);
	side_close(&client);
	side_close(&server);
}

static void test_garbage_at_a_listener_does_not_disturb_it(void **state)
{
	static const char request[] = "MPA ID Req Frame\x10\x02\x00\x0a\x00\x04\x00\x03xy";
	static const struct {
		const char *bytes;
		size_t len;
	} garbage[] = {
		{"GET / HTTP/1.1\r\n\r\n", 18},
		{"MPA ID Rep Frame\x00\x01\x00\x00", 20},
		{"MPA ID Req Frame\x00\x09\x00\x00", 20},         /* revision 9 */
		{"MPA ID Req Frame\x00\x01\xff\xff", 20},         /* 64 KiB of private data */
		{"MPA ID Req Frame\x10\x02\x00\x02\x00\x00", 22}, /* too short to be enhanced */
	};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct sockaddr_storage at;
	int fd;

	(void)state;
	test_address(&at, 0);
	listener = listen_at(channel, &at, 4);
	for (unsigned i = 0; i < ARRAY_SIZE(garbage); i++) {
		fd = tcp_connect(rdma_get_src_port(listener));
		assert_int_equal(send(fd, garbage[i].bytes, garbage[i].len, MSG_NOSIGNAL),
				 garbage[i].len);
		tcp_expect_end(fd);
		assert_false(fd_is_readable(channel->fd, 0));
		check_listener(channel, listener);
	}
	for (size_t len = 0; len < sizeof(request) - 1; len += 3) { /* closed in the middle */
		fd = tcp_connect(rdma_get_src_port(listener));
		assert_int_equal(send(fd, request, len, MSG_NOSIGNAL), len);
		close(fd);
	}
	check_listener(channel, listener);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

/* They hold no place that others need. */
static void test_silent_connections_do_not_block_a_listener(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct sockaddr_storage at;
	int fds[100];

	(void)state;
	test_address(&at, 0);
	listener = listen_at(channel, &at, 4);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = tcp_connect(rdma_get_src_port(listener));
	check_listener(channel, listener);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	check_listener(channel, listener);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

/* The request is shown; whoever answers it finds out. */
static void answer_to_nobody(bool accept, bool leaves_first)
{
	static const char request[] = "MPA ID Req Frame\x10\x02\x00\x04\x00\x04\x00\x03";
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *listener;
	struct sockaddr_storage at;
	struct side side = {0};
	int fd, result;

	test_address(&at, 0);
	listener = listen_at(channel, &at, 4);
	fd = tcp_connect(rdma_get_src_port(listener));
	assert_int_equal(send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL), sizeof(request) - 1);
	if (leaves_first)
		close(fd);
	event = cm_take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	side.id = event->id;
	rdma_ack_cm_event(event);
	side.channel = rdma_create_event_channel();
	rdma_migrate_id(side.id, side.channel);
	side_equip(&side, &defaults);
	if (!leaves_first)
		close(fd);
	result = accept ? rdma_accept(side.id, NULL) : rdma_reject(side.id, NULL, 0);
	if (accept && !result) { /* it had not been noticed yet */
		cm_expect(side.channel, RDMA_CM_EVENT_ESTABLISHED);
		cm_expect(side.channel, RDMA_CM_EVENT_DISCONNECTED);
	}
	side_close(&side);
	check_listener(channel, listener);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

static void test_peer_gone_before_the_answer_does_no_harm(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++)
		answer_to_nobody(i & 1, i & 2);
}

/* ---- strangers who listen ---- */

static void run_stranger(const char *reply, size_t len, enum rdma_cm_event_type type, int status)
{
	struct side side;
	uint16_t port;
	int listener = tcp_listen(&port), fd;

	start_connect(&side, port);
	fd = tcp_accept(listener);
	assert_true(fd_is_readable(fd, WAIT_MS));
	assert_int_equal(send(fd, reply, len, MSG_NOSIGNAL), len);
	if (!len) { /* closes; asked once more with revision 1, it closes again */
		tcp_read_and_close(fd);
		tcp_read_and_close(tcp_accept(listener));
	} else {
		tcp_expect_end(fd);
	}
	assert_int_equal(cm_expect(side.channel, type), status);
	cm_expect_none(side.channel);
	side_close(&side);
	close(listener);
}

static void test_connect_to_one_who_closes_gives_rejected(void **state)
{
	(void)state;
	run_stranger("", 0, RDMA_CM_EVENT_REJECTED, -ECONNRESET);
}

static void test_connect_to_another_protocol_gives_connect_error(void **state)
{
	(void)state;
	run_stranger("SSH-2.0-OpenSSH_9.2p1 Debian\r\n", 30, RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO);
}

/* ---- IPv6 ---- */

static bool has_ipv6(void)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	bool good = fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof(at));

	if (fd >= 0)
		close(fd);
	return good;
}

static void converse_v6(const struct in6_addr *bound)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = *bound};
	struct sockaddr_storage storage = {0};
	struct rdma_cm_id *listener;

	memcpy(&storage, &at, sizeof(at));
	listener = listen_at(channel, &storage, 4);
	setenv("IBMSG_ADDR", "::1", 1);
	check_listener(channel, listener);
	if (IN6_IS_ADDR_UNSPECIFIED(bound)) { /* and IPv4 as well */
		setenv("IBMSG_ADDR", "127.0.0.1", 1);
		check_listener(channel, listener);
	}
	unsetenv("IBMSG_ADDR");
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

static void test_ipv6_connects_to_bound_and_wildcard_listeners(void **state)
{
	(void)state;
	if (!has_ipv6()) {
		print_message("no IPv6 on the loopback interface\n");
		skip();
	}
	converse_v6(&in6addr_loopback);
	converse_v6(&in6addr_any);
}

static void test_listeners_bound_and_wildcard_of_one_port_collide(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct rdma_cm_id *listener, *id;
	struct sockaddr_storage at;
	int result;

	(void)state;
	test_address(&at, 0);
	listener = listen_at(channel, &at, 4);
	any.sin_port = rdma_get_src_port(listener);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	result = rdma_bind_addr(id, (struct sockaddr *)&any);
	if (!result)
		result = rdma_listen(id, 1);
	assert_int_equal(result, -1);
	assert_int_equal(errno, EADDRINUSE);
	rdma_destroy_id(id);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

/* The number is that of the TCP port, so a plain socket there is in the way. */
static void test_listener_collides_with_a_tcp_socket(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage at;
	struct rdma_cm_id *id;
	uint16_t port;
	int fd = tcp_listen(&port);

	(void)state;
	test_address(&at, port);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&at), -1);
	assert_int_equal(errno, EADDRINUSE);
	rdma_destroy_id(id);
	close(fd);
	rdma_destroy_event_channel(channel);
}

static void test_bind_to_a_foreign_address_is_refused(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in at = {.sin_family = AF_INET};
	struct rdma_cm_id *id;

	(void)state;
	inet_pton(AF_INET, "192.0.2.1", &at.sin_addr);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&at), -1);
	assert_true(errno == EADDRNOTAVAIL || errno == ENODEV);
	rdma_destroy_id(id);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), -1);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect_to_a_closed_port_gives_rejected_with_econnrefused),
		cmocka_unit_test(test_reject_by_the_program_gives_econnreset),
		cmocka_unit_test(test_private_data_to_252_bytes_arrives_exactly),
		cmocka_unit_test(test_private_data_above_252_bytes_is_refused),
		cmocka_unit_test(test_garbage_at_a_listener_does_not_disturb_it),
		cmocka_unit_test(test_silent_connections_do_not_block_a_listener),
		cmocka_unit_test(test_peer_gone_before_the_answer_does_no_harm),
		cmocka_unit_test(test_connect_to_one_who_closes_gives_rejected),
		cmocka_unit_test(test_connect_to_another_protocol_gives_connect_error),
		cmocka_unit_test(test_ipv6_connects_to_bound_and_wildcard_listeners),
		cmocka_unit_test(test_listeners_bound_and_wildcard_of_one_port_collide),
		cmocka_unit_test(test_listener_collides_with_a_tcp_socket),
		cmocka_unit_test(test_bind_to_a_foreign_address_is_refused),
	};

	return cmocka_run_group_tests_name("soft_cm", tests, NULL, NULL);
}
