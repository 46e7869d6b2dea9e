/* SPDX-License-Identifier: MIT */
/* How connections end: politely, by a failure, by a peer that is killed; and peers that sleep. */
#include "link.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define BYTES 4096

/* ---- peers in processes of their own ---- */

static _Noreturn void give_up(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, iw_error_text());
	_exit(3);
}

static void peer_join(uint16_t port, struct iw_ctx_conn *ctx)
{
	if (iw_ctx_alloc(link_address(), port, 0, NULL, ctx) || iw_connect("hi", 2, ctx))
		give_up("connect");
}

/* Connects and does nothing more, until it is killed. */
static void run_sleeper(uint16_t port)
{
	struct iw_ctx_conn ctx;

	peer_join(port, &ctx);
	for (;;)
		pause();
}

static volatile sig_atomic_t is_woken;

static void wake(int signal)
{
	(void)signal;
	is_woken = 1;
}

/*
 * Offers a buffer with pattern 1 and sleeps. Woken by a signal it must find pattern 2 there; it
 * leaves pattern 3 and sleeps again, for good. What is wrong is its exit status.
 */
static void run_target(uint16_t port)
{
	struct iw_ctx_conn ctx;
	struct iw_lmr lmr;

	signal(SIGUSR1, wake);
	peer_join(port, &ctx);
	if (iw_lmr_create(BYTES, BOTH, &lmr, &ctx))
		give_up("create");
	fill(lmr.addr, BYTES, 1);
	if (iw_post_send_adv(&lmr, &ctx))
		give_up("advertise");
	while (!is_woken)
		pause();
	if (!is_filled(lmr.addr, BYTES, 2))
		_exit(4);
	fill(lmr.addr, BYTES, 3);
	for (;;)
		pause();
}

/* Disconnects in the middle: its process just ends. */
static void run_leaver(uint16_t port)
{
	struct iw_ctx_conn ctx;

	peer_join(port, &ctx);
	_exit(0);
}

static const struct peer_role roles[] = {
	{"sleeper", run_sleeper},
	{"target", run_target},
	{"leaver", run_leaver},
};

/* A peer that has connected to us. */
struct guest {
	struct iw_ctx_conn listener, ctx;
	pid_t pid;
};

static void guest_open(struct guest *guest, const char *role)
{
	int port;

	listener_open(&guest->listener, &port);
	guest->pid = peer_start(role, (uint16_t)port);
	must(iw_listen_timeout(&guest->listener, &guest->ctx, WAIT_MS));
	must(iw_post_recv_adv(&guest->ctx));
	must(iw_accept(NULL, 0, &guest->ctx));
}

static void guest_close(struct guest *guest)
{
	must(iw_ctx_free(&guest->ctx));
	must(iw_close(&guest->listener));
}

/* ---- a target that sleeps ---- */

static void read_now(struct guest *guest, struct iw_lmr *lmr, const struct iw_rmr *rmr)
{
	must(post_read_lmr(lmr, 0, rmr, 0, BYTES, SIGNAL, &guest->ctx));
	link_await(&guest->ctx, IW_SCQ, 1);
}

static void test_write_and_read_while_the_target_sleeps_in_pause(void **state)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	struct iw_lmr source, sink;
	struct guest guest;
	struct iw_rmr rmr;

	(void)state;
	guest_open(&guest, "target");
	must(iw_lmr_create(BYTES, LOCAL, &source, &guest.ctx));
	must(iw_lmr_create(BYTES, LOCAL, &sink, &guest.ctx));
	must(iw_wait_recv_adv_timeout(&rmr, WAIT_MS, &guest.ctx));
	read_now(&guest, &sink, &rmr);
	assert_true(is_filled(sink.addr, BYTES, 1));
	fill(source.addr, BYTES, 2);
	must(post_write_lmr(&source, 0, &rmr, 0, BYTES, SIGNAL, &guest.ctx));
	link_await(&guest.ctx, IW_SCQ, 1);
	read_now(&guest, &sink, &rmr);
	assert_true(is_filled(sink.addr, BYTES, 2));
	/* A signal may come just before it sleeps: then another one. */
	do {
		assert_true(now_ms() < deadline);
		assert_int_equal(kill(guest.pid, SIGUSR1), 0);
		read_now(&guest, &sink, &rmr);
	} while (!is_filled(sink.addr, BYTES, 3));
	peer_kill(guest.pid);
	must(iw_lmr_destroy(&source, 1));
	must(iw_lmr_destroy(&sink, 1));
	guest_close(&guest);
}

/* ---- killed ---- */

static void *kill_soon(void *data)
{
	struct guest *guest = data;

	usleep(20000); /* most likely the other thread waits by then; it need not */
	kill(guest->pid, SIGKILL);
	return NULL;
}

static void test_peer_killed_ends_an_await(void **state)
{
	struct guest guest;
	pthread_t thread;
	struct ibv_wc wc;

	(void)state;
	guest_open(&guest, "sleeper");
	assert_int_equal(pthread_create(&thread, NULL, kill_soon, &guest), 0);
	/* For ever, if need be: the end must be noticed. */
	must_fail(await_completions(IW_RCQ, 1, &wc, &guest.ctx), ECONNRESET);
	assert_int_equal(guest.ctx.num_wcs[IW_RCQ], 0);
	must_fail(await_completions(IW_SCQ, 1, &wc, &guest.ctx), ECONNRESET);
	assert_int_equal(pthread_join(thread, NULL), 0);
	peer_wait(guest.pid);
	must(iw_await_disconnect(&guest.ctx));
	guest_close(&guest);
}

static void test_peer_killed_ends_a_wait_for_an_advertisement(void **state)
{
	struct iw_rmr rmr;
	struct guest guest;
	pthread_t thread;

	(void)state;
	guest_open(&guest, "sleeper");
	assert_int_equal(pthread_create(&thread, NULL, kill_soon, &guest), 0);
	must_fail(iw_wait_recv_adv(&rmr, &guest.ctx), ECONNRESET);
	assert_int_equal(pthread_join(thread, NULL), 0);
	peer_wait(guest.pid);
	must_fail(iw_wait_recv_adv(&rmr, &guest.ctx), ECONNRESET);
	guest_close(&guest);
}

/* With work outstanding at this side: it ends, and giving back ends too. */
static void test_peer_killed_during_writes_ends_them(void **state)
{
	struct iw_lmr source;
	struct guest guest;
	struct iw_rmr rmr;
	struct ibv_wc wc;
	int error = 0;

	(void)state;
	guest_open(&guest, "target");
	must(iw_lmr_create(BYTES, LOCAL, &source, &guest.ctx));
	must(iw_wait_recv_adv_timeout(&rmr, WAIT_MS, &guest.ctx));
	peer_kill(guest.pid);
	/* As soon as it is noticed no more is taken. */
	while (!error)
		error = post_write_lmr(&source, 0, &rmr, 0, BYTES, SIGNAL, &guest.ctx) ||
			await_completions_timeout(IW_SCQ, 1, &wc, WAIT_MS, &guest.ctx);
	assert_true(errno == ECONNRESET || errno == EIO);
	must(iw_lmr_destroy(&source, 1));
	must(iw_disconnect(&guest.ctx));
	guest_close(&guest);
}

static void test_peer_that_exits_is_a_disconnect(void **state)
{
	struct guest guest;

	(void)state;
	guest_open(&guest, "leaver");
	must(iw_await_disconnect(&guest.ctx));
	assert_int_equal(peer_wait(guest.pid), 0);
	guest_close(&guest);
}

/* ---- polite ---- */

static void test_await_after_disconnect_is_an_error(void **state)
{
	struct iw_rmr rmr;
	struct link link;
	struct ibv_wc wc;

	(void)state;
	link_open(&link);
	must(iw_disconnect(&link.client));
	must_fail(await_completions(IW_SCQ, 1, &wc, &link.client), ENOTCONN);
	must_fail(await_completions(IW_RCQ, 1, &wc, &link.client), ENOTCONN);
	must_fail(iw_wait_recv_adv(&rmr, &link.client), ENOTCONN);
	must_fail(iw_await_disconnect(&link.client), ENOTCONN);
	/* And at the other end, which has not said so itself. */
	must_fail(await_completions(IW_RCQ, 1, &wc, &link.server), ECONNRESET);
	must_fail(await_completions(IW_SCQ, 1, &wc, &link.server), ECONNRESET);
	must_fail(iw_post_recv_adv(&link.server), ECONNRESET);
	must(iw_disconnect(&link.server));
	must(iw_close(&link.listener));
}

#define BURST 100
#define CHUNK ((size_t)16 * KIB) /* all of them are more than a device takes at once */

static int post_burst_receives(struct link *link)
{
	struct iw_lmr *lmr = malloc(sizeof(*lmr));

	if (!lmr || iw_lmr_create(BURST * CHUNK, LOCAL, lmr, &link->server))
		return -1;
	link->server.user_data = lmr;
	for (size_t i = 0; i < BURST; i++)
		if (post_recv_lmr(lmr, i * CHUNK, CHUNK, &link->server))
			return -1;
	return 0;
}

/* What was posted before a disconnect arrives, though nobody has waited for it. */
static void test_disconnect_lets_all_leave_first(void **state)
{
	struct link link = {.before_accept = post_burst_receives};
	struct ibv_wc wc[BURST + 1];
	struct iw_lmr from, *to;

	(void)state;
	link_open_as(&link);
	to = link.server.user_data;
	must(iw_lmr_create(BURST * CHUNK, LOCAL, &from, &link.client));
	fill(from.addr, from.length, 5);
	for (size_t i = 0; i < BURST; i++)
		must(post_send_lmr(&from, i * CHUNK, CHUNK, 0, &link.client));
	must(iw_disconnect(&link.client));
	/* All of them first, and only then the end. */
	must_fail(await_completions(IW_RCQ, BURST + 1, wc, &link.server), ECONNRESET);
	assert_true(link.server.num_wcs[IW_RCQ] >= BURST);
	for (unsigned i = 0; i < BURST; i++)
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
	assert_true(is_filled(to->addr, to->length, 5));
	must(iw_lmr_destroy(&from, 1));
	must(iw_lmr_destroy(to, 1));
	free(to);
	must(iw_await_disconnect(&link.server));
	must(iw_close(&link.listener));
}

static void *disconnect_it(void *ctx)
{
	return iw_disconnect(ctx) ? ctx : NULL;
}

static void test_both_may_disconnect_at_once(void **state)
{
	struct link link;
	pthread_t thread;
	void *failed;

	(void)state;
	link_open(&link);
	assert_int_equal(pthread_create(&thread, NULL, disconnect_it, &link.server), 0);
	must(iw_disconnect(&link.client));
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	must(iw_close(&link.listener));
}

static void test_context_is_used_for_one_connection_after_another(void **state)
{
	struct iw_ctx_conn client, server, listener;
	int port;

	(void)state;
	listener_open(&listener, &port);
	for (unsigned i = 0; i < 5; i++) {
		link_join(&listener, port, &client, &server);
		link_ping(&client, &server);
		must(iw_disconnect(&client));
		must(iw_await_disconnect(&server));
	}
	must(iw_close(&listener));
}

/* ---- failures ---- */

static void test_wrong_key_fails_and_says_why(void **state)
{
	struct iw_lmr to, from;
	struct iw_rmr rmr;
	struct link link;
	struct ibv_wc wc;

	(void)state;
	link_open(&link);
	link_offer(&link.server, &link.client, BYTES, BOTH, &to, &rmr);
	must(iw_lmr_create(BYTES, LOCAL, &from, &link.client));
	rmr.rkey ^= 0x5a5a00;
	must(post_read_lmr(&from, 0, &rmr, 0, 64, SIGNAL, &link.client));
	assert_int_equal(await_completions_timeout(IW_SCQ, 1, &wc, WAIT_MS, &link.client), -1);
	assert_true(errno == EIO || errno == ECONNRESET);
	if (link.client.num_wcs[IW_SCQ]) {
		assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, link.client.last_wr_id);
	}
	assert_int_equal(await_completions(IW_SCQ, 1, &wc, &link.client), -1);
	assert_int_equal(post_read_lmr(&from, 0, &rmr, 0, 64, SIGNAL, &link.client), -1);
	must(iw_lmr_destroy(&from, 1));
	must(iw_lmr_destroy(&to, 1));
	must(iw_disconnect(&link.client));
	must(iw_ctx_free(&link.server));
	must(iw_close(&link.listener));
}

/* One completion for an operation of many requests, with its own number. */
static void test_failed_list_completes_once(void **state)
{
	struct iw_lmr to, from;
	struct iw_sgl list;
	struct iw_rmr rmr;
	struct link link;
	struct ibv_wc wc[3];
	int told = 0;

	(void)state;
	link_open(&link);
	link_offer(&link.server, &link.client, BYTES, BOTH, &to, &rmr);
	must(iw_lmr_create(BYTES, LOCAL, &from, &link.client));
	iw_sgl_init(&list);
	for (unsigned i = 0; i < IW_MAX_SGE; i++)
		must(iw_sgl_add(&list, &from, (size_t)i * 64, 64));
	rmr.rkey ^= 0x5a5a00;
	must(post_read_sgl(&list, &rmr, 0, 0, &link.client)); /* not even signalled */
	/* Some devices tell of the end first, and of what it has discarded a moment later. */
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(await_completions_timeout(IW_SCQ, 3, wc, WAIT_MS, &link.client),
				 -1);
		assert_int_not_equal(errno, ETIMEDOUT);
		if (link.client.num_wcs[IW_SCQ]) {
			assert_int_equal(wc[0].wr_id, link.client.last_wr_id);
			assert_int_not_equal(wc[0].status, IBV_WC_SUCCESS);
		}
		told += link.client.num_wcs[IW_SCQ];
	}
	assert_true(told <= 1);
	must(iw_lmr_destroy(&from, 1));
	must(iw_lmr_destroy(&to, 1));
	must(iw_ctx_free(&link.client));
	must(iw_ctx_free(&link.server));
	must(iw_close(&link.listener));
}

/* ---- waiting ---- */

static void test_await_in_time_loses_nothing(void **state)
{
	struct iw_sgl nothing;
	struct ibv_wc wc[2];
	struct iw_lmr lmr;
	struct link link;

	(void)state;
	link_open(&link);
	must(iw_lmr_create(64, LOCAL, &lmr, &link.server));
	must(post_recv_lmr(&lmr, 0, 64, &link.server));
	link_ping(&link.server, &link.client);
	must_fail(await_completions_timeout(IW_RCQ, 1, wc, 20, &link.server), ETIMEDOUT);
	/* One of two comes: it stays for the next who asks. */
	iw_sgl_init(&nothing);
	must(post_send_sgl(&nothing, SIGNAL, &link.client));
	link_await(&link.client, IW_SCQ, 1);
	must_fail(await_completions_timeout(IW_RCQ, 2, wc, 50, &link.server), ETIMEDOUT);
	assert_int_equal(link.server.num_wcs[IW_RCQ], 0);
	link_await(&link.server, IW_RCQ, 1);
	must(await_completions(IW_RCQ, 0, NULL, &link.server));
	must_fail(await_completions(IW_RCQ, -1, wc, &link.server), EINVAL);
	must_fail(await_completions((enum iw_cq_type)7, 1, wc, &link.server), EINVAL);
	must(iw_lmr_destroy(&lmr, 1));
	link_close(&link);
}

struct poker {
	pthread_t target;
	atomic_bool *is_done;
};

static void *poke_it(void *data)
{
	struct poker *poker = data;

	while (!atomic_load(poker->is_done)) {
		pthread_kill(poker->target, SIGUSR1);
		usleep(1000);
	}
	return NULL;
}

static void test_signal_ends_an_await_that_sleeps(void **state)
{
	struct sigaction action = {.sa_handler = wake}, before;
	atomic_bool is_done = false;
	struct poker poker = {pthread_self(), &is_done};
	struct iw_ctx_conn server;
	struct link link;
	pthread_t thread;
	struct ibv_wc wc;

	(void)state;
	link_open(&link);
	must(iw_set_busy_poll(0, &link.client));
	assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
	assert_int_equal(pthread_create(&thread, NULL, poke_it, &poker), 0);
	must_fail(await_completions(IW_RCQ, 1, &wc, &link.client), EINTR);
	must_fail(iw_listen(&link.listener, &server), EINTR);
	must_fail(iw_await_disconnect(&link.client), EINTR);
	atomic_store(&is_done, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
	link_ping(&link.client, &link.server);
	link_close(&link);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_and_read_while_the_target_sleeps_in_pause),
		cmocka_unit_test(test_peer_killed_ends_an_await),
		cmocka_unit_test(test_peer_killed_ends_a_wait_for_an_advertisement),
		cmocka_unit_test(test_peer_killed_during_writes_ends_them),
		cmocka_unit_test(test_peer_that_exits_is_a_disconnect),
		cmocka_unit_test(test_await_after_disconnect_is_an_error),
		cmocka_unit_test(test_disconnect_lets_all_leave_first),
		cmocka_unit_test(test_both_may_disconnect_at_once),
		cmocka_unit_test(test_context_is_used_for_one_connection_after_another),
		cmocka_unit_test(test_wrong_key_fails_and_says_why),
		cmocka_unit_test(test_failed_list_completes_once),
		cmocka_unit_test(test_await_in_time_loses_nothing),
		cmocka_unit_test(test_signal_ends_an_await_that_sleeps),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
