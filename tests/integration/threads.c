/* SPDX-License-Identifier: MIT */
/* Threads that share a queue pair and its CQs; connections and memory that come and go. */
#include "pair.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define THREADS 4

/* What a thread found wrong: the number of a line, as only the test's own thread may assert. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return (void *)(intptr_t)__LINE__;                                         \
	} while (0)

static void start(pthread_t *threads, unsigned count, void *(*run)(void *), void *arg, size_t size)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run, (char *)arg + i * size), 0);
}

static void join(pthread_t *threads, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		void *line;

		assert_int_equal(pthread_join(threads[i], &line), 0);
		if (line)
			fail_msg("a thread failed at line %d", (int)(intptr_t)line);
	}
}

/* ---- one queue pair, one CQ ---- */

#define PER_THREAD 500

struct shared {
	struct pair pair;
	atomic_uint sent, send_done, recv_done;
	atomic_uint seen[THREADS * PER_THREAD];
	atomic_uint next_id;
};

static int post(struct side *side, uint64_t id, unsigned len)
{
	struct ibv_sge piece = {
		.addr = (uintptr_t)side->buf, .length = len, .lkey = side->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &piece,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	return ibv_post_send(side->qp, &wr, &bad);
}

static int post_recv(struct side *side)
{
	struct ibv_sge piece = {
		.addr = (uintptr_t)side->buf + 4096, .length = 4096, .lkey = side->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &piece, .num_sge = 1}, *bad;

	return ibv_post_recv(side->qp, &wr, &bad);
}

/* Posts, and polls in between for whoever posted. */
static void *post_and_poll(void *arg)
{
	struct shared *shared = arg;
	uint64_t end = now_ms() + WAIT_MS;
	unsigned posted = 0;
	struct ibv_wc wc;

	while (posted < PER_THREAD || atomic_load(&shared->send_done) < THREADS * PER_THREAD) {
		CHECK(now_ms() < end);
		if (posted < PER_THREAD) {
			unsigned id = atomic_fetch_add(&shared->next_id, 1);
			int error;

			while ((error = post(&shared->pair.client, id, 64)) == ENOMEM) {
				CHECK(now_ms() < end);
				if (ibv_poll_cq(shared->pair.client.send_cq, 1, &wc) > 0) {
					CHECK(wc.status == IBV_WC_SUCCESS);
					CHECK(!atomic_fetch_add(&shared->seen[wc.wr_id], 1));
					atomic_fetch_add(&shared->send_done, 1);
				}
			}
			CHECK(!error);
			posted++;
		}
		if (ibv_poll_cq(shared->pair.client.send_cq, 1, &wc) > 0) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			CHECK(!atomic_fetch_add(&shared->seen[wc.wr_id], 1));
			atomic_fetch_add(&shared->send_done, 1);
		}
	}
	return NULL;
}

static void *receive(void *arg)
{
	struct shared *shared = arg;
	uint64_t end = now_ms() + WAIT_MS;
	struct ibv_wc wc;

	while (atomic_load(&shared->recv_done) < THREADS * PER_THREAD) {
		CHECK(now_ms() < end);
		if (ibv_poll_cq(shared->pair.server.recv_cq, 1, &wc) <= 0)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == 64);
		atomic_fetch_add(&shared->recv_done, 1);
		CHECK(!post_recv(&shared->pair.server));
	}
	return NULL;
}

static void test_threads_on_one_qp_lose_and_double_nothing(void **state)
{
	struct pair_options options = {.depth = 128};
	struct shared *shared = calloc(1, sizeof(*shared));
	pthread_t threads[THREADS + 2];

	(void)state;
	pair_open(&shared->pair, &options);
	for (unsigned i = 0; i < 120; i++)
		assert_int_equal(post_recv(&shared->pair.server), 0);
	start(threads, THREADS, post_and_poll, shared, 0);
	start(threads + THREADS, 2, receive, shared, 0);
	join(threads, THREADS + 2);
	assert_int_equal(shared->send_done, THREADS * PER_THREAD);
	cq_expect_none(shared->pair.client.send_cq);
	pair_close(&shared->pair);
	free(shared);
}

/* ---- coming and going ---- */

#define CHURN 25

static struct ibv_qp_init_attr small_qp(void)
{
	return (struct ibv_qp_init_attr){
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC};
}

/* The next event, which must be of that type. */
static bool expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	bool right;

	if (!fd_is_readable(channel->fd, WAIT_MS) || rdma_get_cm_event(channel, &event))
		return false;
	right = event->event == type;
	rdma_ack_cm_event(event);
	return right;
}

static void *connect_one(struct rdma_event_channel *channel, const struct sockaddr_storage *to,
			 bool polite)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct ibv_qp_init_attr attr = small_qp();
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)(uintptr_t)to, WAIT_MS));
	CHECK(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK(!rdma_resolve_route(id, WAIT_MS));
	CHECK(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
	CHECK(!rdma_create_qp(id, NULL, &attr));
	CHECK(!rdma_connect(id, &param));
	CHECK(expect(channel, RDMA_CM_EVENT_ESTABLISHED));
	if (polite) {
		CHECK(!rdma_disconnect(id));
		CHECK(expect(channel, RDMA_CM_EVENT_DISCONNECTED));
	}
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
	return NULL;
}

static void *churn(void *arg)
{
	struct sockaddr_storage *to = arg;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	void *line = NULL;

	CHECK(channel);
	for (unsigned i = 0; i < CHURN && !line; i++)
		line = connect_one(channel, to, i % 2);
	CHECK(line || !fd_is_readable(channel->fd, 0));
	rdma_destroy_event_channel(channel);
	return line;
}

static void serve_event(const struct rdma_cm_event *event, unsigned *ended)
{
	struct ibv_qp_init_attr attr = small_qp();

	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		assert_int_equal(rdma_create_qp(event->id, NULL, &attr), 0);
		rdma_accept(event->id, NULL); /* the client may have gone by now */
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		(*ended)++;
		break;
	default:
		fail_msg("%s", rdma_event_str(event->event));
	}
}

/* Accept until as many have ended as have come. */
static void serve(struct rdma_event_channel *channel, unsigned count)
{
	unsigned ended = 0;

	while (ended < count) {
		struct rdma_cm_event *event = cm_next(channel);
		struct rdma_cm_id *id = event->id;
		bool over = event->event == RDMA_CM_EVENT_DISCONNECTED;

		serve_event(event, &ended);
		rdma_ack_cm_event(event);
		if (over) {
			rdma_destroy_qp(id);
			rdma_destroy_id(id);
		}
	}
}

static void test_connections_come_and_go_from_several_threads(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage at, to[THREADS];
	struct rdma_cm_id *listener;
	pthread_t threads[THREADS];

	(void)state;
	test_address(&at, 0);
	listener = listen_at(channel, &at, 64);
	for (unsigned i = 0; i < THREADS; i++)
		test_address(&to[i], rdma_get_src_port(listener));
	start(threads, THREADS, churn, to, sizeof(*to));
	serve(channel, THREADS * CHURN);
	join(threads, THREADS);
	cm_expect_none(channel);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

/* ---- registration under traffic ---- */

#define ROUNDS 300

static void *ping_pong(void *arg)
{
	struct pair *pair = arg;
	struct ibv_wc wc;

	for (unsigned i = 0; i < ROUNDS; i++) {
		CHECK(!post_recv(&pair->server) && !post_recv(&pair->client));
		CHECK(!post(&pair->client, i, 1000));
		CHECK(cq_poll(pair->server.recv_cq, &wc, WAIT_MS));
		CHECK(wc.status == IBV_WC_SUCCESS);
		CHECK(!post(&pair->server, i, 1000));
		CHECK(cq_poll(pair->client.recv_cq, &wc, WAIT_MS));
		CHECK(wc.status == IBV_WC_SUCCESS);
		CHECK(cq_poll(pair->client.send_cq, &wc, WAIT_MS) && wc.wr_id == i);
		CHECK(cq_poll(pair->server.send_cq, &wc, WAIT_MS) && wc.wr_id == i);
	}
	return NULL;
}

struct registrar {
	struct ibv_pd *pd;
	atomic_bool *stop;
};

static void *register_and_forget(void *arg)
{
	struct registrar *registrar = arg;
	uint8_t bytes[256];

	while (!atomic_load(registrar->stop)) {
		struct ibv_mr *mr = ibv_reg_mr(registrar->pd, bytes, sizeof(bytes), ALL_ACCESS);

		CHECK(mr);
		CHECK(!ibv_dereg_mr(mr));
	}
	return NULL;
}

static void test_registration_beside_traffic_is_clean(void **state)
{
	struct pair_options options = {0};
	atomic_bool stop = false;
	struct registrar registrar;
	pthread_t threads[2];
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	registrar = (struct registrar){pair.server.pd, &stop};
	start(threads, 1, register_and_forget, &registrar, 0);
	start(threads + 1, 1, ping_pong, &pair, 0);
	join(threads + 1, 1);
	atomic_store(&stop, true);
	join(threads, 1);
	pair_close(&pair);
}

/*
 * The peer reads what is being taken away: the end of the connection is fine, a crash or a hang is
 * not. What is read afterwards fails in any case.
 */
static void test_deregistration_under_a_peers_reads_ends_the_connection(void **state)
{
	struct pair_options options = {.bytes = 4 * MIB, .depth = 32};
	struct request read = {
		.opcode = IBV_WR_RDMA_READ, .len = 4 * MIB, .flags = IBV_SEND_SIGNALED};
	struct tally tally = {.posted = 32};
	struct pair pair;

	(void)state;
	for (unsigned round = 0; round < 10; round++) {
		pair_open(&pair, &options);
		for (read.id = 0; read.id < 31; read.id++)
			side_post(&pair.client, &read);
		for (unsigned i = 0; i < round; i++)
			sched_yield();
		assert_int_equal(ibv_dereg_mr(pair.server.mr), 0);
		memset(pair.server.buf, 0xff, pair.server.size);
		side_post(&pair.client, &read);
		tally = (struct tally){.posted = 32};
		tally_drain(&tally, pair.client.send_cq);
		assert_true(tally.failed + tally.flushed > 0);
		pair.server.mr = ibv_reg_mr(pair.server.pd, pair.server.buf, 1, 0);
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_on_one_qp_lose_and_double_nothing),
		cmocka_unit_test(test_connections_come_and_go_from_several_threads),
		cmocka_unit_test(test_registration_beside_traffic_is_clean),
		cmocka_unit_test(test_deregistration_under_a_peers_reads_ends_the_connection),
	};

	return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
