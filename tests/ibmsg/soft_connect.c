/* SPDX-License-Identifier: MIT */
/* Connecting on the software device: listeners that are none of ours, and names. */
#include "side.h"

#include <arpa/inet.h>
#include <unistd.h>

/* A TCP socket that listens and does not know what RDMA is; nobody accepts what the kernel does. */
static int listen_on_tcp(uint16_t *port)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	int fd;

	test_address(&at, 0);
	fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at,
			      at.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						       : sizeof(struct sockaddr_in)),
			 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	*port = port_of(&at);
	return fd;
}

static void test_connect_to_a_silent_tcp_listener_times_out(void **state)
{
	struct hub *hub = hub_new();
	uint64_t begin = now_ms();
	struct end *end;
	uint16_t port;
	int fd = listen_on_tcp(&port);

	(void)state;
	assert_int_equal(ibmsg_set_connect_timeout(&hub->loop, 300), IBMSG_OK);
	end = end_connect(hub, port);
	await(end->closed);
	assert_int_equal(end->error, IBMSG_TIMED_OUT);
	assert_int_equal(end->socket.status, IBMSG_ERROR);
	assert_true(now_ms() - begin >= 290);
	assert_true(now_ms() - begin < 10000);
	hub_free(hub);
	close(fd);
}

static void test_disconnect_from_a_silent_tcp_listener_ends_at_once(void **state)
{
	struct hub *hub = hub_new();
	uint64_t begin = now_ms();
	struct end *end;
	uint16_t port;
	int fd = listen_on_tcp(&port);

	(void)state;
	end = end_connect(hub, port);
	await(end->socket.status >= IBMSG_ROUTE_RESOLVED);
	hubs_linger();
	assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
	await(end->closed);
	/* Not only when the time to connect is over. */
	assert_true(now_ms() - begin < 9000);
	hub_free(hub);
	close(fd);
}

static void test_destroy_while_a_tcp_listener_is_silent_ends_at_once(void **state)
{
	struct hub *hub = hub_new();
	uint64_t begin = now_ms();
	struct end *end;
	uint16_t port;
	int fd = listen_on_tcp(&port);

	(void)state;
	end = end_connect(hub, port);
	hubs_linger();
	hub_destroy(hub);
	assert_int_equal(end->closed, 1);
	assert_int_not_equal(end->error, IBMSG_OK);
	assert_true(now_ms() - begin < 9000);
	hub_free(hub);
	close(fd);
}

static void assert_failed(struct end *end)
{
	assert_int_not_equal(end->error, IBMSG_OK);
	assert_int_equal(end->established, 0);
	assert_int_equal(end->socket.status, IBMSG_ERROR);
}

/* However often it comes back. */
static void hang_up(int fd)
{
	if (fd_is_readable(fd, 0))
		close(accept4(fd, NULL, NULL, SOCK_CLOEXEC));
}

static void test_connect_to_a_tcp_listener_that_hangs_up_is_an_error(void **state)
{
	struct hub *hub = hub_new();
	uint64_t begin = now_ms();
	struct end *end;
	uint16_t port;
	int fd = listen_on_tcp(&port);

	(void)state;
	end = end_connect(hub, port);
	await((hang_up(fd), end->closed));
	assert_failed(end);
	assert_true(now_ms() - begin < 9000);
	hub_free(hub);
	close(fd);
}

static void test_connect_to_a_tcp_listener_of_another_kind_is_an_error(void **state)
{
	static const char greeting[] = "220 mail.example.org ESMTP, at your service\r\n";
	struct hub *hub = hub_new();
	struct end *end;
	uint16_t port;
	int fd = listen_on_tcp(&port), peer;

	(void)state;
	end = end_connect(hub, port);
	await(fd_is_readable(fd, 0));
	peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	assert_true(peer >= 0);
	assert_int_equal(write(peer, greeting, sizeof(greeting) - 1), sizeof(greeting) - 1);
	await(end->closed);
	assert_failed(end);
	close(peer);
	hub_free(hub);
	close(fd);
}

static void test_connect_by_name_reaches_the_host(void **state)
{
	struct hub *server = hub_new(), *client = hub_new();
	char name[] = "localhost";
	struct sockaddr_storage at;
	struct end *end;

	(void)state;
	/* The name may mean either family: so does the listener. */
	assert_int_equal(ibmsg_listen(&server->loop, &server->listener, NULL, 0, 8), IBMSG_OK);
	assert_int_equal(ibmsg_local_address(&server->listener, &at), IBMSG_OK);
	end = end_new(client);
	assert_int_equal(ibmsg_connect(&client->loop, &end->socket, name, port_of(&at)), IBMSG_OK);
	await(end->established && server->accepted && server->accepted->established);
	end_ping(end, server->accepted);
	hub_free(client);
	hub_free(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		hub_test(test_connect_to_a_silent_tcp_listener_times_out),
		hub_test(test_disconnect_from_a_silent_tcp_listener_ends_at_once),
		hub_test(test_destroy_while_a_tcp_listener_is_silent_ends_at_once),
		hub_test(test_connect_to_a_tcp_listener_that_hangs_up_is_an_error),
		hub_test(test_connect_to_a_tcp_listener_of_another_kind_is_an_error),
		hub_test(test_connect_by_name_reaches_the_host),
	};

	return cmocka_run_group_tests_name("soft_connect", tests, NULL, NULL);
}
