/* SPDX-License-Identifier: MIT */
/* One-sided transfers: sizes, pieces, limits on reads, fences. */
#include "pair.h"

#include <pthread.h>

static const uint32_t sizes[] = {0,    1,     3,     511,   513,     2048,         4096,
				 4097, 64754, 65535, 65536, 1 << 20, (3 << 20) + 5};

static void check_outcome(struct side *side, uint64_t id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = cq_expect(side->send_cq, id, IBV_WC_SUCCESS);

	assert_int_equal(wc.opcode, opcode);
}

static void write_to(struct side *from, struct side *to, size_t at, uint32_t len, unsigned seed)
{
	side_settle(from);
	side_settle(to);
	fill(from->buf, len, seed);
	memset(to->buf, 0xee, to->size);
	side_post(from, &(struct request){.opcode = IBV_WR_RDMA_WRITE,
					  .id = seed,
					  .len = len,
					  .remote_at = at,
					  .flags = IBV_SEND_SIGNALED});
	check_outcome(from, seed, IBV_WC_RDMA_WRITE);
	/* A read behind a write sees it: only then has it arrived. */
	side_post(from, &(struct request){.opcode = IBV_WR_RDMA_READ,
					  .id = 1000 + seed,
					  .at = from->size - 1,
					  .len = 1,
					  .remote_at = to->size - 1,
					  .flags = IBV_SEND_SIGNALED});
	check_outcome(from, 1000 + seed, IBV_WC_RDMA_READ);
	side_settle(to);
	assert_true(is_all(to->buf, at, 0xee));
	assert_true(is_filled(to->buf + at, len, seed));
	assert_true(is_all(to->buf + at + len, to->size - at - len, 0xee));
}

static void test_write_of_every_size_arrives_exactly(void **state)
{
	struct pair_options options = {.bytes = 3 * MIB + 256};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		write_to(&pair.client, &pair.server, i, sizes[i], i);
		write_to(&pair.server, &pair.client, i, sizes[i], i + 50);
	}
	cq_expect_none(pair.client.recv_cq);
	cq_expect_none(pair.server.recv_cq);
	pair_close(&pair);
}

static void read_from(struct side *reader, struct side *target, size_t at, uint32_t len,
		      unsigned seed)
{
	side_settle(reader);
	side_settle(target);
	fill(target->buf + at, len, seed);
	memset(reader->buf, 0xee, reader->size);
	side_post(reader, &(struct request){.opcode = IBV_WR_RDMA_READ,
					    .id = seed,
					    .at = 7,
					    .len = len,
					    .remote_at = at,
					    .flags = IBV_SEND_SIGNALED});
	check_outcome(reader, seed, IBV_WC_RDMA_READ);
	assert_true(is_all(reader->buf, 7, 0xee));
	assert_true(is_filled(reader->buf + 7, len, seed));
	assert_true(is_all(reader->buf + 7 + len, reader->size - 7 - len, 0xee));
}

static void test_read_of_every_size_arrives_exactly(void **state)
{
	struct pair_options options = {.bytes = 3 * MIB + 256};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		read_from(&pair.client, &pair.server, i, sizes[i], i);
		read_from(&pair.server, &pair.client, i, sizes[i], i + 50);
	}
	pair_close(&pair);
}

static void test_write_and_read_of_64_mib_arrive_whole(void **state)
{
	struct pair_options options = {.bytes = 64 * MIB + 256};
	struct ibv_port_attr port;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(ibv_query_port(pair.client.id->verbs, 1, &port), 0);
	if (port.max_msg_sz >= 64 * MIB) {
		write_to(&pair.client, &pair.server, 1, 64 * MIB, 1);
		read_from(&pair.client, &pair.server, 1, 64 * MIB, 2);
	}
	pair_close(&pair);
}

static void test_write_of_nothing_needs_no_valid_key(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_WRITE,
						  .id = 1,
						  .key = 0xdead00,
						  .flags = IBV_SEND_SIGNALED});
	cq_expect(pair.client.send_cq, 1, IBV_WC_SUCCESS);
	write_to(&pair.client, &pair.server, 0, 10, 3);
	pair_close(&pair);
}

/* ---- pieces ---- */

static void post_pieces(struct side *side, enum ibv_wr_opcode opcode, struct ibv_sge *pieces,
			unsigned count)
{
	struct ibv_send_wr wr = {.wr_id = count,
				 .sg_list = pieces,
				 .num_sge = (int)count,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	for (unsigned i = 0; i < count; i++)
		pieces[i] = (struct ibv_sge){.addr = (uintptr_t)side->buf +
						     (size_t)(count - 1 - i) * 8192,
					     .length = 3000 + i,
					     .lkey = side->mr->lkey};
	wr.wr.rdma.remote_addr = side->remote.addr;
	wr.wr.rdma.rkey = side->remote.key;
	assert_int_equal(ibv_post_send(side->qp, &wr, &bad), 0);
	cq_expect(side->send_cq, count, IBV_WC_SUCCESS);
}

/* Piece @i of the client against its part of the server's buffer. */
static void compare_pieces(const struct pair *pair, const struct ibv_sge *pieces, unsigned count)
{
	size_t at = 0;

	for (unsigned i = 0; i < count; i++) {
		assert_memory_equal((void *)(uintptr_t)pieces[i].addr, pair->server.buf + at,
				    pieces[i].length);
		at += pieces[i].length;
	}
}

static void test_write_gathers_and_read_scatters_pieces(void **state)
{
	struct pair_options options = {.bytes = 32 * 8192, .sge = 6};
	struct ibv_device_attr attr;
	struct ibv_sge pieces[16];
	struct pair pair;
	unsigned most;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(ibv_query_device(pair.client.id->verbs, &attr), 0);
	fill(pair.client.buf, pair.client.size, 1);
	post_pieces(&pair.client, IBV_WR_RDMA_WRITE, pieces, 6);
	read_from(&pair.client, &pair.server, 200000, 1, 9); /* has arrived */
	fill(pair.client.buf, pair.client.size, 1);
	side_settle(&pair.server);
	compare_pieces(&pair, pieces, 6);

	most = attr.max_sge_rd > 1 ? 6 : 1; /* siw reads into one piece only */
	side_settle(&pair.server);
	fill(pair.server.buf, pair.server.size, 2);
	post_pieces(&pair.client, IBV_WR_RDMA_READ, pieces, most);
	compare_pieces(&pair, pieces, most);
	pair_close(&pair);
}

/* ---- how many reads at once ---- */

static void read_many(uint8_t depth)
{
	struct pair_options options = {.reads = depth, .depth = 256, .bytes = 256 * 1000};
	struct pair pair;

	pair_open(&pair, &options);
	fill(pair.server.buf, pair.server.size, depth);
	for (unsigned i = 0; i < 256; i++)
		side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_READ,
							  .id = i,
							  .at = i * 1000,
							  .len = 1000,
							  .remote_at = i * 1000,
							  .flags = IBV_SEND_SIGNALED});
	for (unsigned i = 0; i < 256; i++)
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
	assert_memory_equal(pair.client.buf, pair.server.buf, pair.server.size);
	pair_close(&pair);
}

static void test_reads_beyond_the_agreed_depth_wait_and_complete(void **state)
{
	(void)state;
	read_many(1);
	read_many(2);
	read_many(16);
}

/* ---- Writes beside Reads ---- */

#define WRITES       64
#define READS        4
#define LONG_READ    (4 * MIB)
#define SHORT_WRITE  (4 * KIB)
#define MIXED_ROUNDS 100

static void post_many(struct side *side, enum ibv_wr_opcode opcode, unsigned count, uint32_t len)
{
	for (unsigned i = 0; i < count; i++)
		side_post(side, &(struct request){.opcode = opcode,
						  .id = i,
						  .at = LONG_READ,
						  .len = len,
						  .flags = IBV_SEND_SIGNALED});
}

static void *read_again_and_again(void *arg)
{
	struct side *side = arg;

	for (unsigned round = 0; round < MIXED_ROUNDS; round++) {
		post_many(side, IBV_WR_RDMA_READ, READS, LONG_READ);
		for (unsigned i = 0; i < READS; i++) {
			struct ibv_wc wc;

			if (!cq_poll(side->send_cq, &wc, WAIT_MS) || wc.status)
				return side;
		}
	}
	return NULL;
}

/*
 * The server answers long reads while it sends short writes: neither message may begin inside the
 * other.
 */
static void test_writes_beside_the_answers_to_reads_stay_whole(void **state)
{
	struct pair_options options = {.bytes = 2 * LONG_READ, .depth = WRITES};
	struct pair pair;
	pthread_t reader;
	void *failed;

	(void)state;
	pair_open(&pair, &options);
	fill(pair.server.buf, pair.server.size, 5);
	pthread_create(&reader, NULL, read_again_and_again, &pair.client);
	for (unsigned round = 0; round < MIXED_ROUNDS; round++) {
		post_many(&pair.server, IBV_WR_RDMA_WRITE, WRITES, SHORT_WRITE);
		for (unsigned i = 0; i < WRITES; i++)
			cq_expect(pair.server.send_cq, i, IBV_WC_SUCCESS);
	}
	pthread_join(reader, &failed);
	assert_null(failed);
	/* A message behind the writes proves that they are there. */
	side_recv(&pair.client, 1, 0, 0);
	side_send(&pair.server, 1, 0, 0);
	cq_expect(pair.client.recv_cq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(pair.client.buf, pair.server.buf + LONG_READ, SHORT_WRITE);
	assert_memory_equal(pair.client.buf + LONG_READ, pair.server.buf, LONG_READ);
	pair_close(&pair);
}

/* ---- a queue that is always full ---- */

#define SMALL_DEPTH 2

/*
 * Slots are used again while their neighbours are still on their way: a read that is answered,
 * beside a write that is not.
 */
static void test_small_full_queue_completes_all_in_order(void **state)
{
	static const enum ibv_wr_opcode kinds[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
						   IBV_WR_SEND};
	struct pair_options options = {.bytes = 8 * MIB, .depth = SMALL_DEPTH};
	unsigned seed = 7, posted = 0, received = 0;
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < SMALL_DEPTH; i++)
		side_recv(&pair.server, i, 4 * MIB, 64);
	for (unsigned done = 0; done < 600; done++) {
		for (; posted < done + SMALL_DEPTH; posted++) {
			enum ibv_wr_opcode kind = kinds[(unsigned)rand_r(&seed) % 3];
			uint32_t len = (unsigned)rand_r(&seed) % 4 ? 64 : 3 * MIB;

			side_post(&pair.client,
				  &(struct request){.opcode = kind,
						    .id = posted,
						    .at = 4 * MIB,
						    .len = kind == IBV_WR_SEND ? 64 : len,
						    .flags = IBV_SEND_SIGNALED});
		}
		cq_expect(pair.client.send_cq, done, IBV_WC_SUCCESS);
		while (ibv_poll_cq(pair.server.recv_cq, 1, &wc) > 0) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, received++ % SMALL_DEPTH);
			side_recv(&pair.server, wc.wr_id, 4 * MIB, 64);
		}
	}
	pair_close(&pair);
}

/* ---- fence and visibility ---- */

/* What a read brings is sent on in the same list: only a fence makes that right. */
static void test_send_with_fence_waits_for_the_read_before_it(void **state)
{
	struct pair_options options = {.bytes = 2 * MIB};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 10; i++) {
		side_settle(&pair.server);
		fill(pair.server.buf, MIB, i);
		side_recv(&pair.server, i, MIB, MIB);
		side_post(&pair.client,
			  &(struct request){.opcode = IBV_WR_RDMA_READ, .id = i, .len = MIB});
		side_post(&pair.client,
			  &(struct request){.opcode = IBV_WR_SEND,
					    .id = i,
					    .len = MIB,
					    .flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED});
		cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
		assert_true(is_filled(pair.server.buf + MIB, MIB, i));
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

static void test_send_behind_writes_proves_their_arrival(void **state)
{
	struct pair_options options = {.bytes = MIB, .depth = 32};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned round = 0; round < 20; round++) {
		fill(pair.client.buf, 256 * KIB, round);
		side_recv(&pair.server, round, 512 * KIB, 64);
		for (unsigned i = 0; i < 16; i++)
			side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_WRITE,
								  .at = i * 16 * KIB,
								  .remote_at = i * 16 * KIB,
								  .len = 16 * KIB});
		side_send(&pair.client, round, 0, 1);
		cq_expect(pair.server.recv_cq, round, IBV_WC_SUCCESS);
		assert_true(is_filled(pair.server.buf, 256 * KIB, round));
		cq_expect(pair.client.send_cq, round, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

static void test_unsupported_opcode_is_refused(void **state)
{
	struct pair_options options = {0};
	struct ibv_device_attr attr;
	struct pair pair;
	int error;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(ibv_query_device(pair.client.id->verbs, &attr), 0);
	if (attr.atomic_cap == IBV_ATOMIC_NONE) {
		error = side_try(
			&pair.client,
			&(struct request){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .len = 8});
		assert_int_not_equal(error, 0);
	}
	write_to(&pair.client, &pair.server, 0, 10, 3);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_of_every_size_arrives_exactly),
		cmocka_unit_test(test_read_of_every_size_arrives_exactly),
		cmocka_unit_test(test_write_and_read_of_64_mib_arrive_whole),
		cmocka_unit_test(test_write_of_nothing_needs_no_valid_key),
		cmocka_unit_test(test_write_gathers_and_read_scatters_pieces),
		cmocka_unit_test(test_reads_beyond_the_agreed_depth_wait_and_complete),
		cmocka_unit_test(test_writes_beside_the_answers_to_reads_stay_whole),
		cmocka_unit_test(test_small_full_queue_completes_all_in_order),
		cmocka_unit_test(test_send_with_fence_waits_for_the_read_before_it),
		cmocka_unit_test(test_send_behind_writes_proves_their_arrival),
		cmocka_unit_test(test_unsupported_opcode_is_refused),
	};

	return cmocka_run_group_tests_name("onesided", tests, NULL, NULL);
}
