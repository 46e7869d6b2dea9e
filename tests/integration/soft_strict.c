/* SPDX-License-Identifier: MIT */
/* SOFTRDMA_STRICT=1: what hardware would not forgive ends the connection, and the log names it. */
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"

static int real_stderr, log_fd;

/* From here on the log goes into a file. */
static int begin_log(void **state)
{
	(void)state;
	log_fd = memfd_create("log", 0);
	real_stderr = dup(STDERR_FILENO);
	return log_fd < 0 || dup2(log_fd, STDERR_FILENO) < 0;
}

static int end_log(void **state)
{
	(void)state;
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	close(log_fd);
	return 0;
}

static void expect_log(const char *text)
{
	char log[8192] = "";
	ssize_t len = pread(log_fd, log, sizeof(log) - 1, 0);

	assert_true(len >= 0);
	if (!strstr(log, text))
		fail_msg("no \"%s\" in the log:\n%s", text, log);
}

static void test_message_without_a_receive_ends_the_connection(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	side_send(&pair.client, 1, 0, 100);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
	expect_log("strict: ");
	expect_log("a message found no receive");
	pair_close(&pair);
}

static void test_read_sink_without_remote_write_fails(void **state)
{
	struct pair_options options = {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_READ,
						  .id = 1,
						  .len = 8,
						  .flags = IBV_SEND_SIGNALED});
	cq_expect(pair.client.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	expect_log("the sink of a READ lacks IBV_ACCESS_REMOTE_WRITE");
	pair_close(&pair);
}

static void test_read_into_pieces_fails(void **state)
{
	struct pair_options options = {.sge = 2};
	struct ibv_sge sge[2];
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = sge,
				 .num_sge = 2,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 2; i++)
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)pair.client.buf + i * 8,
					  .length = 8,
					  .lkey = pair.client.mr->lkey};
	wr.wr.rdma.remote_addr = pair.client.remote.addr;
	wr.wr.rdma.rkey = pair.client.remote.key;
	assert_int_equal(ibv_post_send(pair.client.qp, &wr, &bad), 0);
	cq_expect(pair.client.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	expect_log("a READ into 2 pieces");
	pair_close(&pair);
}

static void test_acceptor_that_speaks_first_fails(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	side_recv(&pair.client, 1, 0, 100);
	side_send(&pair.server, 2, 0, 10);
	cq_expect(pair.server.send_cq, 2, IBV_WC_LOC_QP_OP_ERR);
	expect_log("the acceptor sends before the initiator's first message");
	pair_close(&pair);
}

static void test_what_hardware_takes_works(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	side_recv(&pair.server, 1, 0, 100);
	side_recv(&pair.client, 2, 0, 100);
	side_send(&pair.client, 3, 0, 10);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS);
	side_send(&pair.server, 4, 0, 10);
	cq_expect(pair.client.recv_cq, 2, IBV_WC_SUCCESS);
	side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_READ,
						  .id = 5,
						  .len = 8,
						  .flags = IBV_SEND_SIGNALED});
	cq_expect(pair.client.send_cq, 3, IBV_WC_SUCCESS);
	cq_expect(pair.client.send_cq, 5, IBV_WC_SUCCESS);
	pair_close(&pair);
}

static void test_queue_pair_beyond_siw_is_refused(void **state)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 7, .max_recv_sge = 1}};
	struct ibv_device_attr device;
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(ibv_query_device(pair.client.id->verbs, &device), 0);
	assert_int_equal(device.max_sge, 6);
	assert_int_equal(device.max_sge_rd, 1);
	attr.send_cq = attr.recv_cq = pair.client.send_cq;
	assert_null(ibv_create_qp(pair.client.pd, &attr));
	assert_int_equal(errno, EINVAL);
	expect_log("beyond what siw offers");
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_message_without_a_receive_ends_the_connection),
		cmocka_unit_test(test_read_sink_without_remote_write_fails),
		cmocka_unit_test(test_read_into_pieces_fails),
		cmocka_unit_test(test_acceptor_that_speaks_first_fails),
		cmocka_unit_test(test_what_hardware_takes_works),
		cmocka_unit_test(test_queue_pair_beyond_siw_is_refused),
	};

	return cmocka_run_group_tests(tests, begin_log, end_log);
}
