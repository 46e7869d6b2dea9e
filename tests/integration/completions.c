/* SPDX-License-Identifier: MIT */
/* Completion events, shared receive queues, asynchronous events and what the query calls tell. */
#include "pair.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static const struct pair_options defaults;

/* An event that must be there, acked. */
static void take_event(struct side *side, struct ibv_cq *expected)
{
	struct ibv_cq *cq;
	void *context;

	if (!fd_is_readable(side->comp->fd, WAIT_MS))
		fail_msg("no completion event came");
	assert_int_equal(ibv_get_cq_event(side->comp, &cq, &context), 0);
	assert_ptr_equal(cq, expected);
	assert_ptr_equal(context, side);
	ibv_ack_cq_events(cq, 1);
}

static void expect_no_event(struct side *side)
{
	assert_false(fd_is_readable(side->comp->fd, QUIET_MS));
}

static void send_one(struct pair *pair, uint64_t id, unsigned flags)
{
	side_recv(&pair->server, id, 0, 64);
	side_post(&pair->client,
		  &(struct request){.opcode = IBV_WR_SEND, .id = id, .len = 8, .flags = flags});
}

/* ---- events ---- */

static void test_cq_armed_gives_one_event_for_many_completions(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 0), 0);
	for (unsigned i = 0; i < 10; i++)
		send_one(&pair, i, 0);
	take_event(&pair.server, pair.server.recv_cq);
	for (unsigned i = 0; i < 10; i++)
		cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
	expect_no_event(&pair.server);
	pair_close(&pair);
}

static void test_cq_not_armed_gives_no_event(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	send_one(&pair, 1, IBV_SEND_SOLICITED);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS);
	expect_no_event(&pair.server);
	/* Arming after the fact is for the next one. */
	assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 0), 0);
	expect_no_event(&pair.server);
	send_one(&pair, 2, 0);
	take_event(&pair.server, pair.server.recv_cq);
	pair_close(&pair);
}

static void test_cq_armed_for_solicited_ignores_others(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 1), 0);
	send_one(&pair, 1, 0);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS);
	expect_no_event(&pair.server);
	send_one(&pair, 2, IBV_SEND_SOLICITED);
	take_event(&pair.server, pair.server.recv_cq);
	cq_expect(pair.server.recv_cq, 2, IBV_WC_SUCCESS);
	pair_close(&pair);
}

static void test_cq_armed_for_solicited_tells_of_errors(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	side_recv(&pair.server, 1, 0, 64);
	assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 1), 0);
	rdma_disconnect(pair.client.id);
	take_event(&pair.server, pair.server.recv_cq);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
	pair_close(&pair);
}

/* To ask for all is not undone by asking for less. */
static void test_cq_armed_for_all_stays_so(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 0), 0);
	assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 1), 0);
	send_one(&pair, 1, 0);
	take_event(&pair.server, pair.server.recv_cq);
	pair_close(&pair);
}

static void test_channel_of_two_cqs_names_the_right_one(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(ibv_req_notify_cq(pair.client.recv_cq, 0), 0);
	assert_int_equal(ibv_req_notify_cq(pair.client.send_cq, 0), 0);
	send_one(&pair, 1, IBV_SEND_SIGNALED);
	take_event(&pair.client, pair.client.send_cq);
	side_recv(&pair.client, 2, 0, 64);
	side_send(&pair.server, 3, 0, 8);
	take_event(&pair.client, pair.client.recv_cq);
	expect_no_event(&pair.client);
	pair_close(&pair);
}

/* A thread that only ever sleeps in the channel, as an event-driven server does. */
struct echo {
	struct side *side;
	unsigned rounds;
};

/* The step that failed, or 0. */
static void *echo_thread(void *arg)
{
	struct echo *echo = arg;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	for (unsigned done = 0; done < echo->rounds;) {
		if (ibv_get_cq_event(echo->side->comp, &cq, &context))
			return (void *)(intptr_t)1;
		ibv_ack_cq_events(cq, 1);
		if (ibv_req_notify_cq(cq, 0))
			return (void *)(intptr_t)2;
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			if (wc.status != IBV_WC_SUCCESS)
				return (void *)(intptr_t)3;
			if (side_try(echo->side, &(struct request){.opcode = IBV_WR_SEND,
								   .id = wc.wr_id,
								   .len = 8}))
				return (void *)(intptr_t)4;
			done++;
		}
	}
	return NULL;
}

static void test_ping_pong_between_sleepers_loses_no_wakeup(void **state)
{
	struct pair_options options = {.depth = 512};
	struct echo echo = {.rounds = 500};
	struct pair pair;
	pthread_t thread;
	void *failed;

	(void)state;
	pair_open(&pair, &options);
	echo.side = &pair.server;
	for (unsigned i = 0; i < echo.rounds; i++) {
		side_recv(&pair.server, i, 0, 64);
		side_recv(&pair.client, i, 0, 64);
	}
	assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, echo_thread, &echo), 0);
	for (unsigned i = 0; i < echo.rounds; i++) {
		assert_int_equal(ibv_req_notify_cq(pair.client.recv_cq, 0), 0);
		side_post(&pair.client, &(struct request){.opcode = IBV_WR_SEND, .len = 8});
		take_event(&pair.client, pair.client.recv_cq);
		cq_expect(pair.client.recv_cq, i, IBV_WC_SUCCESS);
	}
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_int_equal((intptr_t)failed, 0);
	pair_close(&pair);
}

/* ---- the end of a CQ ---- */

/* A peer process that connects and is silent from then on. */
static void run_silent(uint16_t port)
{
	struct side side = {0};

	side_resolve(&side, port);
	side_equip(&side, &defaults);
	side_connect(&side, &defaults);
	side_await_established(&side);
	for (;;)
		pause();
}

static const struct peer_role roles[] = {{"silent", run_silent}};

/* A program's first call after the connection is up: post, then sleep for the completion. */
static void *post_and_sleep(void *arg)
{
	const struct request write = {
		.opcode = IBV_WR_RDMA_WRITE, .id = 1, .len = 8, .flags = IBV_SEND_SIGNALED};
	struct side *side = arg;
	struct ibv_cq *cq;
	void *context;

	if (side_try(side, &write) || ibv_get_cq_event(side->comp, &cq, &context))
		return side;
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void join_in_time(pthread_t thread, void *expected);

/* Nothing else happens on the machine's other sockets that could wake the sleeper by chance. */
static void test_first_request_on_a_cq_never_polled_wakes_its_sleeper(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct sockaddr_storage at;

	(void)state;
	test_address(&at, 0);
	listener = listen_at(channel, &at, 4);
	for (unsigned i = 0; i < 20; i++) {
		pid_t peer = peer_start("silent", rdma_get_src_port(listener));
		struct side side = {0};
		pthread_t thread;

		side_accept(&side, channel, &defaults);
		cm_expect(side.channel, RDMA_CM_EVENT_ESTABLISHED);
		assert_int_equal(ibv_req_notify_cq(side.send_cq, 0), 0);
		assert_int_equal(pthread_create(&thread, NULL, post_and_sleep, &side), 0);
		join_in_time(thread, NULL);
		cq_expect(side.send_cq, 1, IBV_WC_SUCCESS);
		peer_kill(peer);
		side_close(&side);
	}
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

static void test_destroy_cq_in_use_is_refused(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(ibv_destroy_cq(pair.client.send_cq), EBUSY);
	assert_int_equal(ibv_destroy_comp_channel(pair.client.comp), EBUSY);
	send_one(&pair, 1, IBV_SEND_SIGNALED);
	cq_expect(pair.client.send_cq, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

static void *destroy_thread(void *cq)
{
	return (void *)(intptr_t)ibv_destroy_cq(cq);
}

/* It waits for the acknowledgement of an event that was taken. */
static void test_destroy_cq_waits_for_acks(void **state)
{
	struct pair pair;
	struct ibv_cq *cq;
	pthread_t thread;
	void *context, *result;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(ibv_req_notify_cq(pair.client.send_cq, 0), 0);
	send_one(&pair, 1, IBV_SEND_SIGNALED);
	assert_true(fd_is_readable(pair.client.comp->fd, WAIT_MS));
	assert_int_equal(ibv_get_cq_event(pair.client.comp, &cq, &context), 0);
	rdma_destroy_qp(pair.client.id);
	assert_int_equal(pthread_create(&thread, NULL, destroy_thread, cq), 0);
	usleep(QUIET_MS * 1000);
	assert_int_equal(pthread_tryjoin_np(thread, &result), EBUSY);
	ibv_ack_cq_events(cq, 1);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((intptr_t)result, 0);
	pair.client.send_cq = ibv_create_cq(pair.client.id->verbs, 1, NULL, NULL, 0);
	pair_close(&pair);
}

static void test_destroy_cq_takes_its_queued_event_along(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	assert_int_equal(ibv_req_notify_cq(pair.client.send_cq, 0), 0);
	send_one(&pair, 1, IBV_SEND_SIGNALED);
	assert_true(fd_is_readable(pair.client.comp->fd, WAIT_MS));
	rdma_destroy_qp(pair.client.id);
	assert_int_equal(ibv_destroy_cq(pair.client.send_cq), 0);
	assert_false(fd_is_readable(pair.client.comp->fd, 0));
	pair.client.send_cq = ibv_create_cq(pair.client.id->verbs, 1, NULL, NULL, 0);
	pair_close(&pair);
}

/* ---- a thread that is cancelled ---- */

static void *sleep_thread(void *channel)
{
	struct ibv_cq *cq;
	void *context;

	if (!ibv_get_cq_event(channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void join_in_time(pthread_t thread, void *expected)
{
	struct timespec end;
	void *result;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += WAIT_MS / 1000;
	assert_int_equal(pthread_timedjoin_np(thread, &result, &end), 0);
	assert_ptr_equal(result, expected);
}

static void test_thread_cancelled_in_get_cq_event_leaves_nothing_locked(void **state)
{
	struct pair pair;
	pthread_t thread;

	(void)state;
	pair_open(&pair, &defaults);
	for (unsigned i = 0; i < 30; i++) {
		assert_int_equal(pthread_create(&thread, NULL, sleep_thread, pair.server.comp), 0);
		usleep(i * 50); /* sometimes before it sleeps, sometimes in its sleep */
		if (i % 3 == 0)
			send_one(&pair, i, IBV_SEND_SIGNALED); /* it drives that meanwhile */
		assert_int_equal(pthread_cancel(thread), 0);
		join_in_time(thread, PTHREAD_CANCELED);
		if (i % 3 == 0) {
			cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
			cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
		}
	}
	assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 0), 0);
	send_one(&pair, 99, 0);
	take_event(&pair.server, pair.server.recv_cq);
	pair_close(&pair);
}

/* Arm the CQ, and poll it until a completion is there: this thread makes the event. NULL if so. */
static void *arm_and_poll(void *arg)
{
	struct pair *pair = arg;
	struct ibv_wc wc;

	if (ibv_req_notify_cq(pair->server.recv_cq, 0) ||
	    side_try(&pair->client, &(struct request){.opcode = IBV_WR_SEND, .len = 8}))
		return pair;
	for (unsigned i = 0; i < 1000 * WAIT_MS; i++) {
		int count = ibv_poll_cq(pair->server.recv_cq, 1, &wc);

		if (count)
			return count == 1 && wc.status == IBV_WC_SUCCESS ? NULL : pair;
		sched_yield();
	}
	return pair;
}

/* The new thread often has the pthread_t of the cancelled one. It must not be mistaken for it. */
static void test_thread_after_a_cancelled_sleeper_makes_the_channel_readable(void **state)
{
	struct pair pair;
	pthread_t thread;

	(void)state;
	pair_open(&pair, &defaults);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(pthread_create(&thread, NULL, sleep_thread, pair.server.comp), 0);
		usleep(2000);
		assert_int_equal(pthread_cancel(thread), 0);
		join_in_time(thread, PTHREAD_CANCELED);
		side_recv(&pair.server, i, 0, 64);
		assert_int_equal(pthread_create(&thread, NULL, arm_and_poll, &pair), 0);
		join_in_time(thread, NULL);
		take_event(&pair.server, pair.server.recv_cq);
	}
	pair_close(&pair);
}

/* Both wait at one channel and answer what they find, until they are cancelled in their sleep. */
static void test_two_sleepers_at_one_channel_lose_no_wakeup(void **state)
{
	struct pair_options options = {.depth = 512};
	struct echo echo = {.rounds = UINT_MAX};
	pthread_t threads[2];
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	echo.side = &pair.server;
	for (unsigned i = 0; i < 500; i++) {
		side_recv(&pair.server, i, 0, 64);
		side_recv(&pair.client, i, 0, 64);
	}
	assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 0), 0);
	for (unsigned t = 0; t < 2; t++)
		assert_int_equal(pthread_create(&threads[t], NULL, echo_thread, &echo), 0);
	for (unsigned i = 0; i < 500; i++) {
		assert_int_equal(ibv_req_notify_cq(pair.client.recv_cq, 0), 0);
		side_post(&pair.client, &(struct request){.opcode = IBV_WR_SEND, .len = 8});
		take_event(&pair.client, pair.client.recv_cq);
		cq_expect(pair.client.recv_cq, i, IBV_WC_SUCCESS);
	}
	for (unsigned t = 0; t < 2; t++)
		assert_int_equal(pthread_cancel(threads[t]), 0);
	for (unsigned t = 0; t < 2; t++)
		join_in_time(threads[t], PTHREAD_CANCELED);
	pair_close(&pair);
}

/* One event for two sleepers: the one that gets none sleeps on, and can be cancelled. */
static void test_sleeper_that_lost_the_event_to_another_can_be_cancelled(void **state)
{
	struct pair pair;
	pthread_t threads[2];
	void *result;

	(void)state;
	pair_open(&pair, &defaults);
	for (unsigned i = 0; i < 20; i++) {
		struct timespec end;

		assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 0), 0);
		for (unsigned t = 0; t < 2; t++)
			pthread_create(&threads[t], NULL, sleep_thread, pair.server.comp);
		usleep(2000);
		send_one(&pair, i, 0);
		cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
		usleep(2000);
		for (unsigned t = 0; t < 2; t++)
			pthread_cancel(threads[t]);
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_sec += WAIT_MS / 1000;
		for (unsigned t = 0; t < 2; t++)
			assert_int_equal(pthread_timedjoin_np(threads[t], &result, &end), 0);
	}
	pair_close(&pair);
}

static void *sleep_in_cm(void *channel)
{
	struct rdma_cm_event *event;

	rdma_get_cm_event(channel, &event);
	return NULL;
}

static void test_thread_cancelled_in_get_cm_event_leaves_nothing_locked(void **state)
{
	struct pair pair;
	pthread_t thread;

	(void)state;
	pair_open(&pair, &defaults);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(pthread_create(&thread, NULL, sleep_in_cm, pair.server.channel),
				 0);
		usleep(i * 50);
		assert_int_equal(pthread_cancel(thread), 0);
		join_in_time(thread, PTHREAD_CANCELED);
	}
	pair_disconnect(&pair);
	pair_close(&pair);
}

/* ---- shared receive queues ---- */

static void test_srq_limit_gives_one_event_below_it(void **state)
{
	struct pair_options options = {.shared_receives = true};
	struct ibv_srq_attr attr = {.srq_limit = 4};
	struct ibv_async_event event;
	struct ibv_context *verbs;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	verbs = pair.server.id->verbs;
	for (unsigned i = 0; i < 8; i++)
		side_recv(&pair.server, i, 0, 64);
	assert_int_equal(ibv_modify_srq(pair.server.srq, &attr, IBV_SRQ_LIMIT), 0);
	for (unsigned i = 0; i < 4; i++)
		side_send(&pair.client, i, 0, 8);
	for (unsigned i = 0; i < 4; i++)
		cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
	assert_false(fd_is_readable(verbs->async_fd, QUIET_MS));
	for (unsigned i = 4; i < 8; i++)
		side_send(&pair.client, i, 0, 8);
	for (unsigned i = 4; i < 8; i++)
		cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
	assert_true(fd_is_readable(verbs->async_fd, WAIT_MS));
	assert_int_equal(ibv_get_async_event(verbs, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, pair.server.srq);
	ibv_ack_async_event(&event);
	assert_false(fd_is_readable(verbs->async_fd, QUIET_MS));
	assert_int_equal(ibv_query_srq(pair.server.srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0);
	pair_close(&pair);
}

/* Two connections, one shared queue: each message takes one receive, on the right queue pair. */
static void test_srq_of_two_queue_pairs_serves_both(void **state)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 64, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC};
	struct pair_options options = {.shared_receives = true, .depth = 64};
	struct tally tally = {.posted = 40};
	unsigned by_qp[2] = {0};
	struct pair pair;
	struct side client = {0}, server = {0};
	struct rdma_cm_event *event;

	(void)state;
	pair_open(&pair, &options);
	side_resolve(&client, rdma_get_src_port(pair.listener));
	side_equip(&client, &defaults);
	side_connect(&client, &defaults);
	event = cm_take(pair.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	server.id = event->id;
	rdma_ack_cm_event(event);
	attr.send_cq = attr.recv_cq = pair.server.recv_cq;
	attr.srq = pair.server.srq;
	assert_int_equal(rdma_create_qp(server.id, pair.server.pd, &attr), 0);
	assert_int_equal(rdma_accept(server.id, NULL), 0);
	cm_expect(client.channel, RDMA_CM_EVENT_ESTABLISHED);
	for (unsigned i = 0; i < 40; i++)
		side_recv(&pair.server, i, i * 64, 64);
	for (unsigned i = 0; i < 20; i++) {
		side_send(&pair.client, i, 0, 8);
		side_send(&client, i, 0, 8);
	}
	while (tally.done < tally.posted) {
		struct ibv_wc wc = cq_next(pair.server.recv_cq);

		tally_count(&tally, &wc);
		by_qp[wc.qp_num == server.id->qp->qp_num]++;
	}
	assert_int_equal(by_qp[0], 20);
	assert_int_equal(by_qp[1], 20);
	assert_int_equal(ibv_destroy_srq(pair.server.srq), EBUSY);
	rdma_destroy_qp(server.id);
	rdma_destroy_id(server.id);
	side_close(&client);
	pair_close(&pair);
}

/* Shared receives are not the queue pair's to flush. */
static void test_srq_receives_survive_a_disconnect(void **state)
{
	struct pair_options options = {.shared_receives = true};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 4; i++)
		side_recv(&pair.server, i, 0, 64);
	pair_disconnect(&pair);
	cq_expect_none(pair.server.recv_cq);
	pair_close(&pair);
}

static void test_recv_posted_to_a_qp_with_srq_is_refused(void **state)
{
	struct pair_options options = {.shared_receives = true};
	struct ibv_recv_wr wr = {0}, *bad;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_not_equal(ibv_post_recv(pair.server.qp, &wr, &bad), 0);
	pair_close(&pair);
}

/* ---- queries ---- */

static void test_query_qp_tells_state_and_capabilities(void **state)
{
	struct pair_options options = {.depth = 20, .sge = 3, .reads = 5, .inline_bytes = 32};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(ibv_query_qp(pair.client.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_true(init.cap.max_send_wr >= 20 && init.cap.max_recv_wr >= 20);
	assert_true(init.cap.max_send_sge >= 3 && init.cap.max_recv_sge >= 3);
	assert_true(init.cap.max_inline_data >= 32);
	assert_ptr_equal(init.send_cq, pair.client.send_cq);
	assert_ptr_equal(init.recv_cq, pair.client.recv_cq);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	pair_disconnect(&pair);
	assert_int_equal(ibv_query_qp(pair.client.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	pair_close(&pair);
}

static void test_query_device_and_port_tell_the_limits(void **state)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct side side = {0};
	union ibv_gid gid;

	(void)state;
	side_resolve(&side, unused_port());
	assert_int_equal(ibv_query_device(side.id->verbs, &device), 0);
	assert_true(device.max_sge >= 6);
	assert_true(device.max_qp_wr >= 32768);
	assert_true(device.max_qp_rd_atom >= 128);
	assert_int_equal(device.phys_port_cnt, 1);
	assert_true(device.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS);
	assert_int_equal(ibv_query_port(side.id->verbs, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(port.max_msg_sz, UINT32_MAX);
	assert_int_equal(ibv_query_gid(side.id->verbs, 1, 0, &gid), 0);
	assert_int_not_equal(ibv_query_port(side.id->verbs, 2, &port), 0);
	assert_int_not_equal(ibv_query_gid(side.id->verbs, 1, 100000, &gid), 0);
	rdma_destroy_id(side.id);
	rdma_destroy_event_channel(side.channel);
}

static void test_create_beyond_the_limits_is_refused(void **state)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	attr.send_cq = attr.recv_cq = pair.client.send_cq;
	attr.cap.max_send_wr = 1 << 30;
	assert_null(ibv_create_qp(pair.client.pd, &attr));
	attr.cap.max_send_wr = 1;
	attr.cap.max_send_sge = 10000;
	assert_null(ibv_create_qp(pair.client.pd, &attr));
	attr.cap.max_send_sge = 1;
	attr.cap.max_inline_data = 1 << 20;
	assert_null(ibv_create_qp(pair.client.pd, &attr));
	assert_null(ibv_create_cq(pair.client.id->verbs, 0, NULL, NULL, 0));
	assert_null(ibv_create_cq(pair.client.id->verbs, 1, NULL, NULL, 1000));
	pair_close(&pair);
}

/* ---- asynchronous events ---- */

/* Nobody fetched the event of the failed queue pair; when it is gone, the descriptor says so. */
static void test_async_events_of_a_destroyed_qp_vanish(void **state)
{
	struct ibv_context *verbs;
	struct pair pair;

	(void)state;
	pair_open(&pair, &defaults);
	verbs = pair.server.id->verbs;
	side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_WRITE,
						  .len = 8,
						  .key = pair.client.remote.key ^ 0x01000100});
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	pair_close(&pair);
	assert_false(fd_is_readable(verbs->async_fd, 0));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cq_armed_gives_one_event_for_many_completions),
		cmocka_unit_test(test_cq_not_armed_gives_no_event),
		cmocka_unit_test(test_cq_armed_for_solicited_ignores_others),
		cmocka_unit_test(test_cq_armed_for_solicited_tells_of_errors),
		cmocka_unit_test(test_cq_armed_for_all_stays_so),
		cmocka_unit_test(test_channel_of_two_cqs_names_the_right_one),
		cmocka_unit_test(test_ping_pong_between_sleepers_loses_no_wakeup),
		cmocka_unit_test(test_first_request_on_a_cq_never_polled_wakes_its_sleeper),
		cmocka_unit_test(test_destroy_cq_in_use_is_refused),
		cmocka_unit_test(test_destroy_cq_waits_for_acks),
		cmocka_unit_test(test_destroy_cq_takes_its_queued_event_along),
		cmocka_unit_test(test_thread_cancelled_in_get_cq_event_leaves_nothing_locked),
		cmocka_unit_test(test_thread_after_a_cancelled_sleeper_makes_the_channel_readable),
		cmocka_unit_test(test_two_sleepers_at_one_channel_lose_no_wakeup),
		cmocka_unit_test(test_sleeper_that_lost_the_event_to_another_can_be_cancelled),
		cmocka_unit_test(test_thread_cancelled_in_get_cm_event_leaves_nothing_locked),
		cmocka_unit_test(test_srq_limit_gives_one_event_below_it),
		cmocka_unit_test(test_srq_of_two_queue_pairs_serves_both),
		cmocka_unit_test(test_srq_receives_survive_a_disconnect),
		cmocka_unit_test(test_recv_posted_to_a_qp_with_srq_is_refused),
		cmocka_unit_test(test_query_qp_tells_state_and_capabilities),
		cmocka_unit_test(test_query_device_and_port_tell_the_limits),
		cmocka_unit_test(test_create_beyond_the_limits_is_refused),
		cmocka_unit_test(test_async_events_of_a_destroyed_qp_vanish),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	return cmocka_run_group_tests_name("completions", tests, NULL, NULL);
}
