/* SPDX-License-Identifier: MIT */
/* Connecting, accepting, rejecting and giving back, with all that travels along. */
#include "link.h"

#include <arpa/inet.h>

static void test_private_data_goes_both_ways_with_its_length(void **state)
{
	static const char question[] = "from the client", reply[] = "and from the server, longer";
	struct link link = {0};
	struct accepting accepting = {.listener = &link.listener,
				      .server = &link.server,
				      .data = reply,
				      .len = sizeof(reply)};
	char seen[64];

	(void)state;
	listener_open(&link.listener, &link.port);
	accept_begin(&accepting);
	must(iw_ctx_alloc(link_address(), link.port, 8, NULL, &link.client));
	must(iw_connect(question, sizeof(question), &link.client));
	accept_end(&accepting);
	assert_int_equal(iw_peer_data(&link.client, seen, sizeof(seen)), sizeof(reply));
	assert_string_equal(seen, reply);
	assert_int_equal(iw_peer_data(&link.server, seen, sizeof(seen)), sizeof(question));
	assert_string_equal(seen, question);
	assert_int_equal(iw_peer_data(&link.server, NULL, 0), sizeof(question));
	link_close(&link);
}

static void test_private_data_of_every_length_comes_as_it_was(void **state)
{
	static const size_t lengths[] = {0, 1, IW_MAX_PRIVATE_DATA};
	struct iw_ctx_conn listener, client, server;
	uint8_t data[IW_MAX_PRIVATE_DATA + 1], seen[64];
	int port;

	(void)state;
	fill(data, sizeof(data), 7);
	listener_open(&listener, &port);
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct accepting accepting = {
			.listener = &listener, .server = &server, .data = data, .len = lengths[i]};

		accept_begin(&accepting);
		must(iw_ctx_alloc(link_address(), port, 8, NULL, &client));
		must_fail(iw_connect(data, IW_MAX_PRIVATE_DATA + 1, &client), EINVAL);
		must(iw_connect(data, lengths[i], &client));
		accept_end(&accepting);
		assert_int_equal(iw_peer_data(&client, seen, sizeof(seen)), lengths[i]);
		assert_true(is_filled(seen, lengths[i], 7));
		assert_int_equal(iw_peer_data(&server, seen, sizeof(seen)), lengths[i]);
		must(iw_ctx_free(&client));
		must(iw_ctx_free(&server));
	}
	must(iw_close(&listener));
}

static void test_nobody_listens_is_refused(void **state)
{
	struct iw_ctx_conn client;

	(void)state;
	must(iw_ctx_alloc(link_address(), ntohs(unused_port()), 8, NULL, &client));
	must_fail(iw_connect("x", 1, &client), ECONNREFUSED);
	must_fail(iw_connect("x", 1, &client), EISCONN);
	must(iw_ctx_free(&client));
	must(iw_ctx_free(&client));
}

static void test_rejected_client_reads_the_reason(void **state)
{
	struct iw_ctx_conn listener, client, server;
	struct accepting accepting = {.listener = &listener,
				      .server = &server,
				      .data = "full",
				      .len = 4,
				      .rejects = true};
	char seen[64];
	int port;

	(void)state;
	listener_open(&listener, &port);
	accept_begin(&accepting);
	must(iw_ctx_alloc(link_address(), port, 8, NULL, &client));
	must_fail(iw_connect(NULL, 0, &client), EACCES);
	accept_end(&accepting);
	assert_null(server.cm_id);
	assert_int_equal(iw_peer_data(&client, seen, sizeof(seen)), 4);
	assert_memory_equal(seen, "full", 4);
	must(iw_ctx_free(&client));
	/* The listener goes on. */
	link_join(&listener, port, &client, &server);
	must(iw_ctx_free(&client));
	must(iw_ctx_free(&server));
	must(iw_close(&listener));
}

static void *listen_and_free(void *data)
{
	struct iw_ctx_conn *listener = data, server;

	if (iw_listen_timeout(listener, &server, WAIT_MS) || iw_ctx_free(&server))
		return data;
	return NULL;
}

static void test_request_given_back_is_a_reject(void **state)
{
	struct iw_ctx_conn listener, client;
	pthread_t thread;
	void *failed;
	int port;

	(void)state;
	listener_open(&listener, &port);
	must(iw_ctx_alloc(link_address(), port, 8, NULL, &client));
	assert_int_equal(pthread_create(&thread, NULL, listen_and_free, &listener), 0);
	must_fail(iw_connect(NULL, 0, &client), EACCES);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	must(iw_ctx_free(&client));
	must(iw_close(&listener));
}

#define CLIENTS 8

static void test_one_listener_serves_many_clients(void **state)
{
	struct iw_ctx_conn listener, clients[CLIENTS], servers[CLIENTS];
	int port;

	(void)state;
	listener_open(&listener, &port);
	for (unsigned i = 0; i < CLIENTS; i++)
		link_join(&listener, port, &clients[i], &servers[i]);
	must(iw_close(&listener));
	/* They live on without it, and each talks to its own. */
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct iw_lmr from, to;
		struct iw_rmr rmr;

		link_offer(&servers[i], &clients[i], 64, WRITE, &to, &rmr);
		must(iw_lmr_create(64, LOCAL, &from, &clients[i]));
		fill(from.addr, 64, i);
		must(post_write_lmr(&from, 0, &rmr, 0, 64, SIGNAL, &clients[i]));
		link_await(&clients[i], IW_SCQ, 1);
		link_ping(&clients[i], &servers[i]);
		assert_true(is_filled(to.addr, 64, i));
		must(iw_lmr_destroy(&from, 1));
		must(iw_lmr_destroy(&to, 1));
	}
	for (unsigned i = 0; i < CLIENTS; i++) {
		must(iw_ctx_free(&clients[i]));
		must(iw_ctx_free(&servers[i]));
	}
}

static void test_listen_ends_in_time_when_nobody_comes(void **state)
{
	struct iw_ctx_conn listener, server;
	int port;

	(void)state;
	listener_open(&listener, &port);
	must_fail(iw_listen_timeout(&listener, &server, 10), ETIMEDOUT);
	must_fail(iw_listen_timeout(&listener, &listener, 10), EINVAL);
	must(iw_ctx_free(&server));
	must(iw_close(&listener));
	must_fail(iw_close(&listener), EINVAL);
}

static void test_addresses_are_those_of_the_ends(void **state)
{
	struct sockaddr_storage client_local, client_peer, server_local, server_peer;
	struct link link;

	(void)state;
	link_open(&link);
	must(iw_local_address(&link.client, &client_local));
	must(iw_peer_address(&link.client, &client_peer));
	must(iw_local_address(&link.server, &server_local));
	must(iw_peer_address(&link.server, &server_peer));
	assert_int_equal(ntohs(((struct sockaddr_in *)&client_peer)->sin_port), link.port);
	assert_int_equal(((struct sockaddr_in *)&client_local)->sin_port,
			 ((struct sockaddr_in *)&server_peer)->sin_port);
	assert_int_equal(((struct sockaddr_in *)&client_peer)->sin_port,
			 ((struct sockaddr_in *)&server_local)->sin_port);
	must_fail(iw_peer_address(&link.listener, &client_peer), ENOTCONN);
	link_close(&link);
}

/* The objects of a context are for use with libibverbs. */
static void test_context_shows_its_verbs_objects(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct link link;

	(void)state;
	link_open(&link);
	assert_ptr_equal(link.client.cm_id->qp, link.client.qp);
	assert_ptr_equal(link.client.cm_id->channel, link.client.cm_channel);
	assert_int_equal(ibv_query_qp(link.client.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_ptr_equal(init.send_cq, link.client.scq);
	assert_ptr_equal(init.recv_cq, link.client.rcq);
	assert_ptr_equal(link.client.scq->channel, link.client.scq_channel);
	assert_ptr_equal(link.client.rcq->channel, link.client.rcq_channel);
	assert_ptr_equal(link.client.qp->pd, link.client.pd);
	assert_null(link.client.user_data);
	link_close(&link);
	assert_null(link.client.qp);
	assert_null(link.server.cm_id);
}

/* ---- protection domains ---- */

static void test_shared_pd_serves_connections_of_both_kinds(void **state)
{
	struct iw_ctx_conn second_client, second_server;
	struct iw_lmr on_server, on_client;
	struct iw_rmr rmr;
	struct link link;

	(void)state;
	link_open(&link);
	must(iw_set_client_options(&link.listener, 0, link.server.pd));
	struct accepting accepting = {.listener = &link.listener, .server = &second_server};

	accept_begin(&accepting);
	must(iw_ctx_alloc(link_address(), link.port, 8, link.client.pd, &second_client));
	must(iw_connect(NULL, 0, &second_client));
	accept_end(&accepting);
	assert_ptr_equal(second_client.pd, link.client.pd);
	assert_ptr_equal(second_server.pd, link.server.pd);
	/* A buffer of the first connection's, at either end, is good for the second. */
	link_offer(&link.server, &link.client, 4096, WRITE, &on_server, &rmr);
	must(iw_lmr_create(4096, LOCAL, &on_client, &link.client));
	fill(on_client.addr, 4096, 3);
	must(post_write_lmr(&on_client, 0, &rmr, 0, 4096, SIGNAL, &second_client));
	link_await(&second_client, IW_SCQ, 1);
	link_ping(&second_client, &second_server);
	assert_true(is_filled(on_server.addr, 4096, 3));
	/* The domain outlives the context that it came from. */
	link_close(&link);
	fill(on_client.addr, 4096, 4);
	must(post_write_lmr(&on_client, 0, &rmr, 0, 4096, SIGNAL, &second_client));
	link_await(&second_client, IW_SCQ, 1);
	link_ping(&second_client, &second_server);
	assert_true(is_filled(on_server.addr, 4096, 4));
	must(iw_ctx_free(&second_client));
	must(iw_ctx_free(&second_server));
	must(iw_lmr_destroy(&on_client, 1));
	must(iw_lmr_destroy(&on_server, 1));
}

static void test_buffer_of_another_domain_is_refused(void **state)
{
	struct iw_ctx_conn client, server;
	struct iw_lmr lmr;
	struct link link;

	(void)state;
	link_open(&link);
	link_join(&link.listener, link.port, &client, &server);
	must(iw_lmr_create(64, READ, &lmr, &client));
	must_fail(post_send_lmr(&lmr, 0, 64, 0, &link.client), EINVAL);
	must_fail(post_recv_lmr(&lmr, 0, 64, &link.client), EINVAL);
	must_fail(iw_post_send_adv(&lmr, &link.client), EINVAL);
	must(iw_lmr_destroy(&lmr, 1));
	must(iw_ctx_free(&client));
	must(iw_ctx_free(&server));
	link_close(&link);
}

/* ---- wrong use ---- */

static void test_wrong_arguments_are_refused(void **state)
{
	struct iw_ctx_conn ctx, listener;
	struct iw_lmr lmr;
	int port;

	(void)state;
	listener_open(&listener, &port);
	must_fail(iw_ctx_alloc(NULL, port, 8, NULL, &ctx), EINVAL);
	must_fail(iw_ctx_alloc(link_address(), 65536, 8, NULL, &ctx), EINVAL);
	must_fail(iw_ctx_alloc(link_address(), -1, 8, NULL, &ctx), EINVAL);
	must_fail(iw_ctx_alloc(link_address(), port, 1 << 28, NULL, &ctx), EINVAL);
	must_fail(iw_ctx_alloc(link_address(), port, 8, NULL, NULL), EINVAL);
	must_fail(iw_ctx_alloc("no such host.", port, 8, NULL, &ctx), EHOSTUNREACH);
	/* What failed leaves nothing, and may be given back. */
	must(iw_ctx_free(&ctx));
	must_fail(iw_open(link_address(), port, 8, &ctx), EADDRINUSE);
	must_fail(iw_connect(NULL, 0, &listener), ENOTCONN);
	must_fail(iw_accept(NULL, 0, &listener), ENOTCONN);
	must_fail(iw_lmr_create(64, 0, &lmr, &listener), ENOTCONN);
	must(iw_ctx_alloc(link_address(), port, 8, NULL, &ctx));
	must_fail(iw_accept(NULL, 0, &ctx), EINVAL);
	must_fail(iw_listen(&ctx, &listener), EINVAL);
	must_fail(iw_await_disconnect(&ctx), ENOTCONN);
	must_fail(await_completions(IW_RCQ, 0, NULL, &ctx), ENOTCONN);
	must(iw_disconnect(&ctx));
	must_fail(iw_disconnect(&ctx), ENOTCONN);
	must(iw_ctx_free(&listener));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_private_data_goes_both_ways_with_its_length),
		cmocka_unit_test(test_private_data_of_every_length_comes_as_it_was),
		cmocka_unit_test(test_nobody_listens_is_refused),
		cmocka_unit_test(test_rejected_client_reads_the_reason),
		cmocka_unit_test(test_request_given_back_is_a_reject),
		cmocka_unit_test(test_one_listener_serves_many_clients),
		cmocka_unit_test(test_listen_ends_in_time_when_nobody_comes),
		cmocka_unit_test(test_addresses_are_those_of_the_ends),
		cmocka_unit_test(test_context_shows_its_verbs_objects),
		cmocka_unit_test(test_shared_pd_serves_connections_of_both_kinds),
		cmocka_unit_test(test_buffer_of_another_domain_is_refused),
		cmocka_unit_test(test_wrong_arguments_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
