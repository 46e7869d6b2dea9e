/* SPDX-License-Identifier: MIT */
/* Names with several addresses, and listeners at all of them: on the loopback interface. */
#include "link.h"

#include <arpa/inet.h>

static int port_of_listener(struct iw_ctx_conn *listener)
{
	struct sockaddr_storage at;

	must(iw_local_address(listener, &at));
	return ntohs(((struct sockaddr_in *)&at)->sin_port);
}

/* What was posted before it was clear which address answers is not lost. */
static void connect_by_name(struct iw_ctx_conn *listener, const char *name)
{
	struct iw_ctx_conn client, server;
	struct accepting accepting = {.listener = listener, .server = &server};
	struct iw_lmr lmr, offer;
	struct iw_rmr rmr;

	accept_begin(&accepting);
	must(iw_ctx_alloc(name, port_of_listener(listener), 8, NULL, &client));
	must(iw_lmr_create(64, LOCAL, &lmr, &client));
	must(post_recv_lmr(&lmr, 0, 64, &client));
	must(iw_post_recv_adv(&client));
	must(iw_connect(NULL, 0, &client));
	accept_end(&accepting);
	must(iw_lmr_create(64, READ, &offer, &server));
	fill(offer.addr, 64, 3);
	must(post_send_lmr(&offer, 0, 64, 0, &server));
	must(iw_post_send_adv(&offer, &server));
	must(iw_wait_recv_adv_timeout(&rmr, WAIT_MS, &client));
	link_await(&client, IW_RCQ, 1);
	assert_true(is_filled(lmr.addr, 64, 3));
	must(post_read_lmr(&lmr, 0, &rmr, 0, 64, SIGNAL, &client));
	link_await(&client, IW_SCQ, 1);
	must(iw_ctx_free(&client));
	must(iw_ctx_free(&server));
	must(iw_lmr_destroy(&lmr, 1));
	must(iw_lmr_destroy(&offer, 1));
}

static void test_name_leads_to_whichever_address_answers(void **state)
{
	static const char *const addresses[] = {"127.0.0.1", "::1"};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(addresses); i++) {
		struct iw_ctx_conn listener;

		must(iw_open(addresses[i], 0, 8, &listener));
		connect_by_name(&listener, addresses[i]);
		/* Whether it has both addresses is the machine's affair; one is tried in any case.
		 */
		if (i == 0)
			connect_by_name(&listener, "localhost");
		must(iw_close(&listener));
	}
}

static void test_listener_at_every_address_takes_both_families(void **state)
{
	static const char *const any[] = {NULL, "*", ""};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(any); i++) {
		struct iw_ctx_conn listener;

		must(iw_open(any[i], 0, 8, &listener));
		connect_by_name(&listener, "127.0.0.1");
		connect_by_name(&listener, "::1");
		must(iw_close(&listener));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_name_leads_to_whichever_address_answers),
		cmocka_unit_test(test_listener_at_every_address_takes_both_families),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
