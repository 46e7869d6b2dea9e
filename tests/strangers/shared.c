/* SPDX-License-Identifier: MIT */
/*
 * Strangers and an honest connection share one SRQ. The strangers take all receives with messages
 * that they begin and never end. They have to go, and the honest connection stays;
 * SOFTRDMA_RECV_TIMEOUT is short here.
 */
#include "house.h"

#include <poll.h>

#define DEPTH  16u /* receives of the SRQ, and strangers */
#define LENGTH 64u

static struct fpdu fpdu;

/* What the server has. All its ids report to the house's channel. */
static struct {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint8_t buf[DEPTH][4096];
	unsigned delivered; /* messages */
	unsigned ended;     /* connections */
} server;

static void post_recv(uint64_t index)
{
	struct ibv_sge piece = {.addr = (uintptr_t)server.buf[index],
				.length = sizeof(server.buf[index]),
				.lkey = server.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = index, .sg_list = &piece, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_srq_recv(server.srq, &wr, &bad), 0);
}

static void make_server(struct ibv_context *verbs)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	struct ibv_srq_attr limit = {.srq_limit = 1};

	memset(&server, 0, sizeof(server));
	server.pd = ibv_alloc_pd(verbs);
	assert_non_null(server.pd);
	server.cq = ibv_create_cq(verbs, 64, NULL, NULL, 0);
	assert_non_null(server.cq);
	server.srq = ibv_create_srq(server.pd, &srq);
	assert_non_null(server.srq);
	server.mr = ibv_reg_mr(server.pd, server.buf, sizeof(server.buf), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(server.mr);
	for (unsigned i = 0; i < DEPTH; i++)
		post_recv(i);
	/* An event tells when none is left. */
	assert_int_equal(ibv_modify_srq(server.srq, &limit, IBV_SRQ_LIMIT), 0);
}

static void destroy_server(void)
{
	assert_int_equal(ibv_destroy_srq(server.srq), 0);
	assert_int_equal(ibv_destroy_cq(server.cq), 0);
	assert_int_equal(ibv_dereg_mr(server.mr), 0);
	assert_int_equal(ibv_dealloc_pd(server.pd), 0);
}

/* The next request gets a queue pair on the SRQ. */
static struct rdma_cm_id *admit(void)
{
	const struct offer mine = {.len = 1};
	struct rdma_conn_param param = {.private_data = &mine, .private_data_len = sizeof(mine)};
	struct rdma_cm_event *event = cm_take(house_channel(), RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 4, .max_send_sge = 1}};

	rdma_ack_cm_event(event);
	if (!server.pd)
		make_server(id->verbs);
	attr.send_cq = attr.recv_cq = server.cq;
	attr.srq = server.srq;
	assert_int_equal(rdma_create_qp(id, server.pd, &attr), 0);
	assert_int_equal(rdma_accept(id, &param), 0);
	assert_int_equal(cm_expect(house_channel(), RDMA_CM_EVENT_ESTABLISHED), 0);
	return id;
}

/* A stranger that begins a message of many segments with one byte, and says no more. */
static void begin_message(struct stranger *stranger)
{
	const struct mpa_frame request = {.kind = MPA_REQUEST, .revision = 1};
	uint8_t bytes[MPA_MAX_FRAME];
	struct mpa_frame reply;

	stranger_connect(stranger, house_port());
	stranger_say_frame(stranger, &request);
	admit();
	stranger_hear_frame(stranger, MPA_REPLY, bytes, &reply);
	stranger->crc = reply.crc;
	fpdu_segment(&fpdu, stranger, RDMAP_SEND, false, 0, 1, 0x11);
	stranger_say_fpdu(stranger, &fpdu);
}

static void await_empty_srq(void)
{
	struct ibv_context *verbs = server.pd->context;
	struct ibv_async_event event;

	assert_true(fd_is_readable(verbs->async_fd, WAIT_MS));
	assert_int_equal(ibv_get_async_event(verbs, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	ibv_ack_async_event(&event);
}

/* Every receive that completes is posted again, as a server does. */
static void serve_completions(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(server.cq, 1, &wc) == 1) {
		if (wc.status == IBV_WC_SUCCESS) {
			assert_int_equal(wc.byte_len, LENGTH);
			assert_true(is_all(server.buf[wc.wr_id], LENGTH, 0x22));
			server.delivered++;
		}
		post_recv(wc.wr_id);
	}
}

static void serve_events(const struct rdma_cm_id *honest)
{
	while (fd_is_readable(house_channel()->fd, 0)) {
		struct rdma_cm_event *event = cm_take(house_channel(), RDMA_CM_EVENT_DISCONNECTED);
		struct rdma_cm_id *id = event->id;

		rdma_ack_cm_event(event);
		if (id == honest)
			fail_msg("the honest connection has ended");
		rdma_destroy_qp(id);
		rdma_destroy_id(id);
		server.ended++;
	}
}

static void serve_until(const struct rdma_cm_id *honest, unsigned delivered, unsigned ended)
{
	uint64_t end = now_ms() + WAIT_MS;

	while (server.delivered < delivered || server.ended < ended) {
		if (now_ms() > end)
			fail_msg("%u messages and %u ends", server.delivered, server.ended);
		/* In this order a queue pair goes before its flushed receives were polled. */
		serve_events(honest);
		serve_completions();
		poll(NULL, 0, 1);
	}
	assert_int_equal(server.delivered, delivered);
	assert_int_equal(server.ended, ended);
}

static void test_begun_messages_do_not_keep_the_receives_of_others(void **state)
{
	static const struct pair_options options = {.depth = 8};
	struct stranger strangers[DEPTH];
	struct rdma_cm_id *honest;
	struct side client = {0};

	(void)state;
	side_resolve(&client, house_port());
	side_equip(&client, &options);
	side_connect(&client, &options);
	honest = admit();
	side_await_established(&client);
	for (unsigned i = 0; i < DEPTH; i++)
		begin_message(&strangers[i]);
	await_empty_srq();
	memset(client.buf, 0x22, LENGTH);
	side_send(&client, 1, 0, LENGTH);
	serve_until(honest, 1, DEPTH);
	cq_expect(client.send_cq, 1, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < DEPTH; i++) {
		stranger_expect_end_after_all(&strangers[i]);
		stranger_close(&strangers[i]);
	}
	side_send(&client, 2, 0, LENGTH);
	serve_until(honest, 2, DEPTH);
	cq_expect(client.send_cq, 2, IBV_WC_SUCCESS);
	assert_false(fd_is_readable(client.channel->fd, 0));
	assert_int_equal(rdma_disconnect(client.id), 0);
	cm_expect(client.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(house_channel(), RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(honest);
	rdma_destroy_id(honest);
	side_close(&client);
	destroy_server();
	house_check();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_begun_messages_do_not_keep_the_receives_of_others),
	};

	if (!getenv("SOFTRDMA_RECV_TIMEOUT")) {
		print_message("needs SOFTRDMA_RECV_TIMEOUT in the environment\n");
		return 77;
	}
	return cmocka_run_group_tests_name("shared", tests, house_open, house_close);
}
