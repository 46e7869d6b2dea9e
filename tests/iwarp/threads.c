/* SPDX-License-Identifier: MIT */
/* The thread rules: many threads on one context, and contexts that share nothing. */
#include "link.h"

#include <stdio.h>
#include <unistd.h>

#define ROUNDS 300
#define SIZE   64

/* ---- both halves of both ends at once ---- */

struct half {
	struct iw_ctx_conn *ctx;
	struct iw_lmr *lmr;
	const char *failed;
	char text[128];
};

static void *fail_half(struct half *half, const char *what)
{
	half->failed = what;
	snprintf(half->text, sizeof(half->text), "%s", iw_error_text());
	return NULL;
}

static void *send_half(void *data)
{
	struct half *half = data;
	struct ibv_wc wc;

	for (unsigned i = 0; i < ROUNDS; i++) {
		/* The peer has posted its receives for all of them. */
		if (post_send_lmr(half->lmr, 0, SIZE, i % 3 ? 0 : SIGNAL, half->ctx))
			return fail_half(half, "send");
		if (i % 3 == 0 && await_completions_timeout(IW_SCQ, 1, &wc, WAIT_MS, half->ctx))
			return fail_half(half, "await sent");
	}
	return NULL;
}

static void *receive_half(void *data)
{
	struct half *half = data;
	struct ibv_wc wc;

	for (unsigned i = 0; i < ROUNDS; i++) {
		if (await_completions_timeout(IW_RCQ, 1, &wc, WAIT_MS, half->ctx))
			return fail_half(half, "await received");
		if (wc.byte_len != SIZE)
			return fail_half(half, "length");
	}
	return NULL;
}

static struct iw_lmr client_lmr, server_lmr;

static int post_receives(struct iw_ctx_conn *ctx, struct iw_lmr *lmr)
{
	if (iw_lmr_create((ROUNDS + 1) * SIZE, LOCAL, lmr, ctx))
		return -1;
	for (size_t i = 1; i <= ROUNDS; i++)
		if (post_recv_lmr(lmr, i * SIZE, SIZE, ctx))
			return -1;
	return 0;
}

static int prepare_client(struct link *link)
{
	return post_receives(&link->client, &client_lmr);
}

static int prepare_server(struct link *link)
{
	return post_receives(&link->server, &server_lmr);
}

static void test_two_threads_use_the_two_halves(void **state)
{
	struct link link = {.before_connect = prepare_client,
			    .before_accept = prepare_server,
			    .capacity = ROUNDS};
	struct half halves[] = {{.ctx = &link.client, .lmr = &client_lmr},
				{.ctx = &link.client, .lmr = &client_lmr},
				{.ctx = &link.server, .lmr = &server_lmr},
				{.ctx = &link.server, .lmr = &server_lmr}};
	pthread_t threads[4];

	(void)state;
	link_open_as(&link);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, i % 2 ? send_half : receive_half,
						&halves[i]),
				 0);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		if (halves[i].failed)
			fail_msg("%s: %s", halves[i].failed, halves[i].text);
	}
	must(iw_lmr_destroy(&client_lmr, 1));
	must(iw_lmr_destroy(&server_lmr, 1));
	link_close(&link);
}

/* Both threads that wait hear of the end, whichever of them fetches it. */
static void *await_end(void *data)
{
	struct half *half = data;
	struct ibv_wc wc;

	if (!await_completions_timeout(half->lmr ? IW_RCQ : IW_SCQ, 1, &wc, WAIT_MS, half->ctx) ||
	    errno != ECONNRESET)
		return fail_half(half, "await");
	return NULL;
}

static void test_end_wakes_both_halves(void **state)
{
	struct link link;

	(void)state;
	link_open(&link);
	struct half halves[] = {{.ctx = &link.server, .lmr = &server_lmr}, {.ctx = &link.server}};
	pthread_t threads[2];

	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, await_end, &halves[i]), 0);
	usleep(10000); /* most likely both sleep by then; they need not */
	must(iw_disconnect(&link.client));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		if (halves[i].failed)
			fail_msg("%s: %s", halves[i].failed, halves[i].text);
	}
	must(iw_ctx_free(&link.server));
	must(iw_close(&link.listener));
}

/* ---- many threads on one context ---- */

#define WRITERS 6

static struct iw_rmr common_rmr;

/* Each posts and awaits one; whose it gets does not matter, as long as nobody goes without. */
static void *run_writer(void *data)
{
	struct half *half = data;
	struct ibv_wc wc;

	for (unsigned i = 0; i < ROUNDS; i++) {
		if (post_write_lmr(half->lmr, 0, &common_rmr, 0, SIZE, SIGNAL, half->ctx))
			return fail_half(half, "write");
		if (await_completions_timeout(IW_SCQ, 1, &wc, WAIT_MS, half->ctx))
			return fail_half(half, "await");
	}
	return NULL;
}

static void test_many_threads_share_one_context(void **state)
{
	struct link link = {.capacity = 4}; /* so that they wait for room too */
	struct half halves[WRITERS] = {0};
	pthread_t threads[WRITERS];
	struct ibv_wc wc;

	(void)state;
	link_open_as(&link);
	link_offer(&link.server, &link.client, SIZE, WRITE, &server_lmr, &common_rmr);
	must(iw_lmr_create(SIZE, LOCAL, &client_lmr, &link.client));
	for (unsigned i = 0; i < WRITERS; i++) {
		halves[i] = (struct half){.ctx = &link.client, .lmr = &client_lmr};
		assert_int_equal(pthread_create(&threads[i], NULL, run_writer, &halves[i]), 0);
	}
	for (unsigned i = 0; i < WRITERS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		if (halves[i].failed)
			fail_msg("%s: %s", halves[i].failed, halves[i].text);
	}
	must_fail(await_completions_timeout(IW_SCQ, 1, &wc, 0, &link.client), ETIMEDOUT);
	link_ping(&link.client, &link.server);
	must(iw_lmr_destroy(&client_lmr, 1));
	must(iw_lmr_destroy(&server_lmr, 1));
	link_close(&link);
}

/* ---- many contexts ---- */

#define CLIENTS 12

static int common_port;

static void *run_client(void *data)
{
	struct half *half = data;
	struct iw_ctx_conn ctx;
	struct iw_lmr lmr;
	struct iw_rmr rmr;
	struct ibv_wc wc;

	if (iw_ctx_alloc(link_address(), common_port, 8, NULL, &ctx) || iw_post_recv_adv(&ctx) ||
	    iw_connect(NULL, 0, &ctx))
		return fail_half(half, "connect");
	if (iw_wait_recv_adv_timeout(&rmr, WAIT_MS, &ctx) || iw_lmr_create(SIZE, LOCAL, &lmr, &ctx))
		return fail_half(half, "advertisement");
	fill(lmr.addr, SIZE, (unsigned)(uintptr_t)half);
	if (post_write_lmr(&lmr, 0, &rmr, 0, SIZE, 0, &ctx))
		return fail_half(half, "write");
	if (await_completions_timeout(IW_SCQ, 0, &wc, WAIT_MS, &ctx) || iw_disconnect(&ctx))
		return fail_half(half, "disconnect");
	if (iw_lmr_destroy(&lmr, 1))
		return fail_half(half, "destroy");
	return NULL;
}

/* One server, each of whose clients has a thread; at the end its buffer says that it was there. */
static void *serve_client(void *data)
{
	struct half *half = data;
	struct iw_ctx_conn ctx = *half->ctx;
	struct iw_lmr lmr;

	free(half->ctx);
	if (iw_accept(NULL, 0, &ctx) || iw_lmr_create(SIZE, WRITE, &lmr, &ctx) ||
	    iw_post_send_adv(&lmr, &ctx) || iw_await_disconnect(&ctx))
		return fail_half(half, "serve");
	if (is_all(lmr.addr, SIZE, 0))
		return fail_half(half, "nothing was written");
	if (iw_lmr_destroy(&lmr, 1))
		return fail_half(half, "destroy");
	return NULL;
}

static void join_all(pthread_t *threads, struct half *halves)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		if (halves[i].failed)
			fail_msg("%s: %s", halves[i].failed, halves[i].text);
	}
}

static void test_many_clients_at_once_each_with_a_thread(void **state)
{
	struct half clients[CLIENTS] = {0}, servers[CLIENTS] = {0};
	pthread_t client_threads[CLIENTS], server_threads[CLIENTS];
	struct iw_ctx_conn listener;

	(void)state;
	listener_open(&listener, &common_port);
	must(iw_set_client_options(&listener, 8, NULL));
	for (unsigned i = 0; i < CLIENTS; i++)
		assert_int_equal(pthread_create(&client_threads[i], NULL, run_client, &clients[i]),
				 0);
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct iw_ctx_conn *ctx = malloc(sizeof(*ctx));

		assert_non_null(ctx);
		must(iw_listen_timeout(&listener, ctx, WAIT_MS));
		servers[i].ctx = ctx; /* a context may be moved */
		assert_int_equal(
			pthread_create(&server_threads[i], NULL, serve_client, &servers[i]), 0);
	}
	join_all(client_threads, clients);
	join_all(server_threads, servers);
	must(iw_close(&listener));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_threads_use_the_two_halves),
		cmocka_unit_test(test_end_wakes_both_halves),
		cmocka_unit_test(test_many_threads_share_one_context),
		cmocka_unit_test(test_many_clients_at_once_each_with_a_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
