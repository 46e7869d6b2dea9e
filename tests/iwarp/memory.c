/* SPDX-License-Identifier: MIT */
/* Buffers: made, registered, given back, advertised; what a peer may and may not say of its own. */
#include "link.h"

#include <arpa/inet.h>

#include "record.h"

/* ---- buffers ---- */

static void test_created_buffer_is_zeroed_and_usable(void **state)
{
	struct iw_lmr lmr;
	struct link link;

	(void)state;
	link_open(&link);
	memset(&lmr, 0xff, sizeof(lmr));
	must(iw_lmr_create(100000, LOCAL, &lmr, &link.client));
	assert_int_equal(lmr.length, 100000);
	assert_int_equal(lmr.access_flags, LOCAL);
	assert_ptr_equal(lmr.mr->addr, lmr.addr);
	assert_true(is_all(lmr.addr, lmr.length, 0));
	must(iw_lmr_destroy(&lmr, 1));
	must_fail(iw_lmr_destroy(&lmr, 1), EINVAL);
	link_close(&link);
}

static void test_registered_buffer_stays_the_callers(void **state)
{
	uint8_t *bytes = malloc(5000);
	struct iw_lmr lmr;
	struct link link;

	(void)state;
	assert_non_null(bytes);
	link_open(&link);
	fill(bytes, 5000, 1);
	must(iw_lmr_register(bytes, 5000, READ, &lmr, &link.client));
	assert_ptr_equal(lmr.addr, bytes);
	must(iw_lmr_destroy(&lmr, 0));
	assert_true(is_filled(bytes, 5000, 1));
	must(iw_lmr_register(bytes, 5000, READ, &lmr, &link.client));
	must(iw_lmr_destroy(&lmr, 1)); /* and this one not */
	link_close(&link);
}

static void test_buffer_outlives_its_connection(void **state)
{
	struct iw_lmr lmr;
	struct link link;

	(void)state;
	link_open(&link);
	must(iw_lmr_create(4096, WRITE, &lmr, &link.client));
	link_close(&link);
	fill(lmr.addr, lmr.length, 2);
	must_fail(post_send_lmr(&lmr, 0, 1, 0, &link.client), ENOTCONN);
	must(iw_lmr_destroy(&lmr, 1));
}

static void test_wrong_buffers_are_refused(void **state)
{
	struct iw_lmr lmr;
	struct link link;
	char byte;

	(void)state;
	link_open(&link);
	must_fail(iw_lmr_create(0, LOCAL, &lmr, &link.client), EINVAL);
	must_fail(iw_lmr_register(NULL, 10, LOCAL, &lmr, &link.client), EINVAL);
	must_fail(iw_lmr_register(&byte, 0, LOCAL, &lmr, &link.client), EINVAL);
	must_fail(iw_lmr_register(&byte, 1, IBV_ACCESS_REMOTE_WRITE, &lmr, &link.client), EINVAL);
	must_fail(iw_lmr_create(64, LOCAL, NULL, &link.client), EINVAL);
	must_fail(iw_lmr_create(64, LOCAL, &lmr, NULL), EINVAL);
	must_fail(iw_lmr_destroy(NULL, 0), EINVAL);
	link_close(&link);
}

static void test_list_takes_what_fits(void **state)
{
	struct iw_lmr lmr;
	struct iw_sgl sgl;
	struct link link;

	(void)state;
	link_open(&link);
	must(iw_lmr_create(100, LOCAL, &lmr, &link.client));
	memset(&sgl, 0xff, sizeof(sgl));
	iw_sgl_init(&sgl);
	must_fail(iw_sgl_add(&sgl, &lmr, 0, 101), EINVAL);
	must_fail(iw_sgl_add(&sgl, &lmr, 101, 0), EINVAL);
	must_fail(iw_sgl_add(&sgl, &lmr, 1, SIZE_MAX), EINVAL);
	must_fail(iw_sgl_add(&sgl, NULL, 0, 0), EINVAL);
	assert_int_equal(sgl.num_sge, 0);
	for (unsigned i = 0; i < IW_MAX_SGE; i++)
		must(iw_sgl_add(&sgl, &lmr, 100 - i, i));
	must_fail(iw_sgl_add(&sgl, &lmr, 0, 1), E2BIG);
	must(iw_lmr_destroy(&lmr, 1));
	link_close(&link);
}

/* ---- advertisements ---- */

static void test_advertisement_says_what_the_owner_has(void **state)
{
	struct iw_lmr mine, theirs;
	struct iw_rmr rmr;
	struct link link;

	(void)state;
	link_open(&link);
	link_offer(&link.server, &link.client, 12345, READ, &mine, &rmr);
	assert_int_equal(rmr.addr, (uintptr_t)mine.addr);
	assert_int_equal(rmr.length, 12345);
	assert_int_equal(rmr.rkey, mine.mr->rkey);
	assert_int_equal(rmr.access_flags, IBV_ACCESS_REMOTE_READ);
	link_offer(&link.client, &link.server, 7, BOTH, &theirs, &rmr);
	assert_int_equal(rmr.addr, (uintptr_t)theirs.addr);
	assert_int_equal(rmr.access_flags, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	must(iw_lmr_destroy(&mine, 1));
	must(iw_lmr_destroy(&theirs, 1));
	link_close(&link);
}

static int post_recv_adv_by_client(struct link *link)
{
	return iw_post_recv_adv(&link->client);
}

/* The acceptor speaks at once, the connector has not said a word of its own. */
static void test_acceptor_may_advertise_first(void **state)
{
	struct link link = {.before_connect = post_recv_adv_by_client};
	struct iw_lmr lmr;
	struct iw_rmr rmr;

	(void)state;
	link_open_as(&link);
	must(iw_lmr_create(64, READ, &lmr, &link.server));
	must(iw_post_send_adv(&lmr, &link.server));
	must(iw_wait_recv_adv_timeout(&rmr, WAIT_MS, &link.client));
	assert_int_equal(rmr.rkey, lmr.mr->rkey);
	must(iw_lmr_destroy(&lmr, 1));
	link_close(&link);
}

static void test_buffer_without_remote_rights_is_not_advertised(void **state)
{
	struct iw_lmr lmr;
	struct link link;

	(void)state;
	link_open(&link);
	must(iw_lmr_create(64, LOCAL, &lmr, &link.client));
	must_fail(iw_post_send_adv(&lmr, &link.client), EACCES);
	must(iw_lmr_destroy(&lmr, 1));
	must_fail(iw_post_send_adv(&lmr, &link.client), EINVAL);
	link_close(&link);
}

static void test_wait_needs_a_receive_and_ends_in_time(void **state)
{
	struct iw_rmr rmr;
	struct link link;

	(void)state;
	link_open(&link);
	must_fail(iw_wait_recv_adv(&rmr, &link.client), EINVAL);
	must(iw_post_recv_adv(&link.client));
	must_fail(iw_wait_recv_adv_timeout(&rmr, 10, &link.client), ETIMEDOUT);
	link_close(&link);
}

#define ADVERTS 5

/* Receives of both kinds take what comes in the order of posting. */
static void test_advertisements_mix_with_messages_in_order(void **state)
{
	struct iw_lmr to, from, offers[ADVERTS];
	struct ibv_wc wc[ADVERTS];
	struct iw_rmr rmr;
	struct link link;
	uint64_t numbers[ADVERTS];

	(void)state;
	link_open(&link);
	must(iw_lmr_create(ADVERTS * 64, LOCAL, &to, &link.server));
	must(iw_lmr_create(ADVERTS * 64, LOCAL, &from, &link.client));
	fill(from.addr, from.length, 9);
	for (unsigned i = 0; i < ADVERTS; i++) {
		must(iw_post_recv_adv(&link.server));
		must(post_recv_lmr(&to, (size_t)i * 64, 64, &link.server));
		numbers[i] = link.server.last_wr_id;
	}
	for (unsigned i = 0; i < ADVERTS; i++) {
		must(iw_lmr_create(100 + i, READ, &offers[i], &link.client));
		must(iw_post_send_adv(&offers[i], &link.client));
		must(post_send_lmr(&from, (size_t)i * 64, 64, 0, &link.client));
	}
	/* Each wait finds its own, whatever came in between. */
	must(iw_wait_recv_adv_timeout(&rmr, WAIT_MS, &link.server));
	assert_int_equal(rmr.length, 100);
	must(await_completions_timeout(IW_RCQ, ADVERTS, wc, WAIT_MS, &link.server));
	for (unsigned i = 0; i < ADVERTS; i++)
		assert_int_equal(wc[i].wr_id, numbers[i]);
	assert_true(is_filled(to.addr, to.length, 9));
	for (unsigned i = 1; i < ADVERTS; i++) {
		must(iw_wait_recv_adv_timeout(&rmr, WAIT_MS, &link.server));
		assert_int_equal(rmr.length, 100 + i);
		assert_int_equal(rmr.addr, (uintptr_t)offers[i].addr);
	}
	for (unsigned i = 0; i < ADVERTS; i++)
		must(iw_lmr_destroy(&offers[i], 1));
	must(iw_lmr_destroy(&to, 1));
	must(iw_lmr_destroy(&from, 1));
	link_close(&link);
}

/* ---- peers that say what they should not ---- */

static const struct pair_options bare_options = {.bytes = 4096};

/* A peer that uses verbs itself connects; @data is what it says then. */
static void bare_connect(struct side *side, int port, const void *data, size_t len)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = (uint8_t)len,
		.responder_resources = 4,
		.initiator_depth = 4,
		.retry_count = 6,
		.rnr_retry_count = 7,
	};

	memset(side, 0, sizeof(*side));
	side_resolve(side, htons((uint16_t)port));
	side_equip(side, &bare_options);
	if (rdma_connect(side->id, &param))
		assert_true(errno == ECONNREFUSED || errno == ECONNRESET);
}

static void bare_send(struct side *side, const void *bytes, size_t len)
{
	memcpy(side->buf, bytes, len);
	side_send(side, 1, 0, (uint32_t)len);
	cq_expect(side->send_cq, 1, IBV_WC_SUCCESS);
}

static void make_record(uint8_t *out, uint64_t address, uint64_t length)
{
	record_put(out, &(struct record){.type = RECORD_ADVERTISEMENT,
					 .rights = RECORD_READ,
					 .address = address,
					 .length = length,
					 .key = 1});
}

static int post_recv_advs(struct link *link)
{
	for (unsigned i = 0; i < 8; i++)
		if (iw_post_recv_adv(&link->server))
			return -1;
	return 0;
}

static void expect_fault(struct iw_ctx_conn *ctx, const char *word)
{
	struct iw_rmr rmr = {.length = 77};

	must_fail(iw_wait_recv_adv_timeout(&rmr, WAIT_MS, ctx), EPROTO);
	if (!strstr(iw_error_text(), word))
		fail_msg("'%s' does not say '%s'", iw_error_text(), word);
	assert_int_equal(rmr.length, 77);
}

static void test_hostile_advertisements_are_named_and_harmless(void **state)
{
	struct link link = {0};
	struct accepting accepting = {.listener = &link.listener,
				      .server = &link.server,
				      .before = post_recv_advs,
				      .link = &link};
	uint8_t record[RECORD_LEN + 1] = {0};
	struct iw_rmr rmr;
	struct side bare;

	(void)state;
	listener_open(&link.listener, &link.port);
	accept_begin(&accepting);
	bare_connect(&bare, link.port, "bare", 4);
	assert_int_equal(cm_expect(bare.channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	accept_end(&accepting);
	/* siw overlooks what comes first until something else comes. */
	side_post(&bare, &(struct request){.opcode = IBV_WR_RDMA_WRITE});

	make_record(record, 0x1000, UINT64_MAX);
	bare_send(&bare, record, RECORD_LEN);
	expect_fault(&link.server, "impossible length");
	make_record(record, UINT64_MAX - 10, 100);
	bare_send(&bare, record, RECORD_LEN);
	expect_fault(&link.server, "beyond the end of memory");
	make_record(record, 0x1000, 0x1000);
	bare_send(&bare, record, RECORD_LEN - 1);
	expect_fault(&link.server, "too short");
	bare_send(&bare, record, 0);
	expect_fault(&link.server, "too short");
	record[4]++;
	bare_send(&bare, record, RECORD_LEN);
	expect_fault(&link.server, "version");
	memset(record, 'x', RECORD_LEN);
	bare_send(&bare, record, RECORD_LEN);
	expect_fault(&link.server, "not an advertisement");
	/* The connection is none the worse for it. */
	make_record(record, 0x1000, 0x2000);
	bare_send(&bare, record, RECORD_LEN);
	must(iw_wait_recv_adv_timeout(&rmr, WAIT_MS, &link.server));
	assert_int_equal(rmr.length, 0x2000);
	/* Longer than its receive: that ends it, and is an error here. */
	side_try(&bare, &(struct request){.opcode = IBV_WR_SEND, .len = RECORD_LEN + 1});
	assert_int_equal(iw_wait_recv_adv_timeout(&rmr, WAIT_MS, &link.server), -1);
	assert_true(errno == EIO || errno == ECONNRESET);
	side_close(&bare);
	must(iw_ctx_free(&link.server));
	must(iw_close(&link.listener));
}

static void test_peer_of_another_version_is_rejected(void **state)
{
	struct iw_ctx_conn listener, client, server;
	struct accepting accepting = {.listener = &listener, .server = &server};
	uint8_t data[RECORD_PRIVATE_MAX];
	size_t len = record_put_private(data, "x", 1);
	struct side bare;
	int port;

	(void)state;
	listener_open(&listener, &port);
	accept_begin(&accepting);
	data[4]++;
	bare_connect(&bare, port, data, len);
	assert_int_not_equal(cm_expect(bare.channel, RDMA_CM_EVENT_REJECTED), 0);
	side_close(&bare);
	/* The next one is served. */
	must(iw_ctx_alloc(link_address(), port, 8, NULL, &client));
	must(iw_connect(NULL, 0, &client));
	accept_end(&accepting);
	must(iw_ctx_free(&client));
	must(iw_ctx_free(&server));
	must(iw_close(&listener));
}

/*
 * siw overlooks what comes before it is ready to receive until something else comes. The connection
 * may have ended by then.
 */
static void join_with_nudges(pthread_t thread, struct side *side)
{
	struct timespec at;

	do {
		side_try(side, &(struct request){.opcode = IBV_WR_RDMA_WRITE});
		assert_int_equal(clock_gettime(CLOCK_REALTIME, &at), 0);
		at.tv_sec++;
	} while (pthread_timedjoin_np(thread, NULL, &at));
}

/* On iWARP a libiwarp peer says hello first. */
static void test_peer_without_a_hello_is_not_accepted(void **state)
{
	struct iw_ctx_conn listener, server;
	struct accepting accepting = {.listener = &listener, .server = &server};
	uint8_t data[RECORD_PRIVATE_MAX];
	size_t len = record_put_private(data, NULL, 0);
	struct side bare;
	int port;

	(void)state;
	if (!strcmp(link_device(), "rxe"))
		skip();
	listener_open(&listener, &port);
	accept_begin(&accepting);
	bare_connect(&bare, port, data, len);
	assert_int_equal(cm_expect(bare.channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	bare_send(&bare, data, len);
	join_with_nudges(accepting.thread, &bare);
	assert_string_equal(accepting.text, "the connection has ended: the peer said no hello");
	must(iw_ctx_free(&server));
	side_close(&bare);
	must(iw_close(&listener));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_created_buffer_is_zeroed_and_usable),
		cmocka_unit_test(test_registered_buffer_stays_the_callers),
		cmocka_unit_test(test_buffer_outlives_its_connection),
		cmocka_unit_test(test_wrong_buffers_are_refused),
		cmocka_unit_test(test_list_takes_what_fits),
		cmocka_unit_test(test_advertisement_says_what_the_owner_has),
		cmocka_unit_test(test_acceptor_may_advertise_first),
		cmocka_unit_test(test_buffer_without_remote_rights_is_not_advertised),
		cmocka_unit_test(test_wait_needs_a_receive_and_ends_in_time),
		cmocka_unit_test(test_advertisements_mix_with_messages_in_order),
		cmocka_unit_test(test_hostile_advertisements_are_named_and_harmless),
		cmocka_unit_test(test_peer_of_another_version_is_rejected),
		cmocka_unit_test(test_peer_without_a_hello_is_not_accepted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
