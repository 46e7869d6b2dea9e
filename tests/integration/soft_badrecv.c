/* SPDX-License-Identifier: MIT */
/*
 * Receives with a piece that is wrong: they take what ends before it, and a message that reaches it
 * fails with a line in the log that names the key.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"

#define BAD_KEY 0xbad0bad5u
#define FIRST   (64 * KIB) /* bytes of the good piece */
#define SECOND  (64 * KIB) /* of the wrong one, which lies behind it */

static int real_stderr, log_fd;

/* ---- the log ---- */

static int capture_log(void **state)
{
	(void)state;
	log_fd = memfd_create("log", 0);
	real_stderr = dup(STDERR_FILENO);
	return log_fd < 0 || dup2(log_fd, STDERR_FILENO) < 0;
}

static int release_log(void **state)
{
	(void)state;
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	close(log_fd);
	return 0;
}

static void log_clear(void)
{
	assert_int_equal(ftruncate(log_fd, 0), 0);
	lseek(log_fd, 0, SEEK_SET);
}

static bool log_says(const char *text)
{
	char bytes[16384];
	ssize_t len = pread(log_fd, bytes, sizeof(bytes) - 1, 0);

	assert_true(len >= 0);
	bytes[len] = '\0';
	return strstr(bytes, text);
}

/* ---- receives ---- */

static void post(struct side *side, uint64_t id, struct ibv_sge *pieces, int count)
{
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = pieces, .num_sge = count}, *bad;

	assert_int_equal(side->srq ? ibv_post_srq_recv(side->srq, &wr, &bad)
				   : ibv_post_recv(side->qp, &wr, &bad),
			 0);
}

static void post_half_good(struct side *side, uint64_t id)
{
	struct ibv_sge pieces[] = {
		{.addr = (uintptr_t)side->buf, .length = FIRST, .lkey = side->mr->lkey},
		{.addr = (uintptr_t)side->buf + FIRST, .length = SECOND, .lkey = BAD_KEY},
	};

	post(side, id, pieces, 2);
}

/* One piece that begins @room bytes before the end of its region, and is longer. */
static void post_beyond(struct side *side, uint64_t id, uint32_t room)
{
	struct ibv_sge piece = {.addr = (uintptr_t)side->buf + side->size - room,
				.length = room + 100,
				.lkey = side->mr->lkey};

	post(side, id, &piece, 1);
}

static void check_arrived(struct pair *pair, const uint8_t *at, uint32_t len)
{
	assert_int_equal(cq_expect(pair->server.recv_cq, 1, IBV_WC_SUCCESS).byte_len, len);
	cq_expect(pair->client.send_cq, 2, IBV_WC_SUCCESS);
	assert_true(is_filled(at, len, len));
}

/* The receive is to blame, and the connection ends. */
static void check_refused(struct pair *pair)
{
	cq_expect(pair->server.recv_cq, 1, IBV_WC_LOC_PROT_ERR);
	cm_expect(pair->client.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair->server.channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_false(log_says("no receive posted"));
}

static const uint32_t good_lengths[] = {0, 8, 64, 5000, FIRST - 1, FIRST};

static void run_short_of_it(bool shared)
{
	struct pair_options options = {.bytes = MIB, .sge = 2, .shared_receives = shared};
	struct pair pair;

	pair_open(&pair, &options);
	for (unsigned i = 0; i < ARRAY_SIZE(good_lengths); i++) {
		fill(pair.client.buf, good_lengths[i], good_lengths[i]);
		post_half_good(&pair.server, 1);
		side_send(&pair.client, 2, 0, good_lengths[i]);
		check_arrived(&pair, pair.server.buf, good_lengths[i]);
	}
	pair_close(&pair);
}

static void test_message_that_ends_before_a_wrong_piece_arrives(void **state)
{
	(void)state;
	log_clear();
	run_short_of_it(false);
	run_short_of_it(true);
	assert_false(log_says("cannot be placed"));
}

/* The message is there before its receive. */
static void test_message_that_waited_arrives_before_a_wrong_piece(void **state)
{
	struct pair_options options = {.bytes = MIB, .sge = 2};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	fill(pair.client.buf, 5000, 5000);
	side_send(&pair.client, 2, 0, 5000);
	cq_expect_none(pair.server.recv_cq); /* and it is looked for */
	post_half_good(&pair.server, 1);
	check_arrived(&pair, pair.server.buf, 5000);
	pair_close(&pair);
}

static void run_reaches_it(uint32_t len, bool shared, bool early)
{
	struct pair_options options = {.bytes = MIB, .sge = 2, .shared_receives = shared};
	struct pair pair;

	log_clear();
	pair_open(&pair, &options);
	memset(pair.client.buf, 0xc3, pair.client.size);
	if (!early)
		post_half_good(&pair.server, 1);
	side_send(&pair.client, 2, 0, len);
	if (early) {
		cq_expect_none(pair.server.recv_cq);
		post_half_good(&pair.server, 1);
	}
	check_refused(&pair);
	assert_true(log_says("0xbad0bad5"));
	assert_true(is_all(pair.server.buf + FIRST, pair.server.size - FIRST, 0));
	pair_close(&pair);
}

static void test_message_that_reaches_a_wrong_piece_fails_and_the_log_names_its_key(void **state)
{
	(void)state;
	run_reaches_it(FIRST + 1, false, false);
	run_reaches_it(FIRST + 1, true, false);
	run_reaches_it(FIRST + SECOND, false, false);
	run_reaches_it(FIRST + SECOND + 1, false, false);
	run_reaches_it(FIRST + 1, false, true);
}

static void test_piece_longer_than_its_region_takes_what_fits(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	log_clear();
	pair_open(&pair, &options);
	fill(pair.client.buf, 64, 64);
	post_beyond(&pair.server, 1, 64);
	side_send(&pair.client, 2, 0, 64);
	check_arrived(&pair, pair.server.buf + pair.server.size - 64, 64);
	post_beyond(&pair.server, 1, 64);
	side_send(&pair.client, 3, 0, 65);
	check_refused(&pair);
	assert_true(log_says("cannot be placed"));
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_message_that_ends_before_a_wrong_piece_arrives),
		cmocka_unit_test(test_message_that_waited_arrives_before_a_wrong_piece),
		cmocka_unit_test(
			test_message_that_reaches_a_wrong_piece_fails_and_the_log_names_its_key),
		cmocka_unit_test(test_piece_longer_than_its_region_takes_what_fits),
	};

	return cmocka_run_group_tests_name("soft_badrecv", tests, capture_log, release_log);
}
