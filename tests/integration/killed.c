/* SPDX-License-Identifier: MIT */
/*
 * A peer process that is killed at any moment: every request here completes exactly once, and the
 * end is told once.
 */
#include "pair.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SENDS  48
#define RECVS  32
#define ROUNDS 24

static const struct pair_options options = {.bytes = 4 * MIB, .depth = 64, .reads = 2};

static volatile sig_atomic_t pipe_signals;

static void count_signal(int number)
{
	(void)number;
	pipe_signals++;
}

/* ---- the peer: sends, writes and reads without end, and takes what comes ---- */

static void peer_connect(struct side *side, uint16_t port)
{
	side_resolve(side, port);
	side_equip(side, &options);
	for (unsigned i = 0; i < RECVS; i++)
		side_recv(side, i, 0, MIB);
	side_connect(side, &options);
	side_await_established(side);
}

static void run_busy(uint16_t port)
{
	static const enum ibv_wr_opcode kinds[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						   IBV_WR_SEND};
	struct side side = {0};
	struct ibv_wc wc;

	peer_connect(&side, port);
	for (unsigned i = 0;; i++) {
		side_try(&side, &(struct request){.opcode = kinds[i % 3],
						  .id = i,
						  .len = i % 3 == 2 ? 100 : i % 5 * 60000,
						  .flags = IBV_SEND_SIGNALED});
		while (ibv_poll_cq(side.send_cq, 1, &wc) > 0)
			continue;
		if (ibv_poll_cq(side.recv_cq, 1, &wc) > 0)
			side_recv(&side, 0, 0, MIB);
	}
}

/* Connects and sleeps: what is sent to it piles up. */
static void run_idle(uint16_t port)
{
	struct side side = {0};

	peer_connect(&side, port);
	for (;;)
		pause();
}

/* Leaves without a word, having told nobody. */
static void run_exit(uint16_t port)
{
	struct side side = {0};

	peer_connect(&side, port);
	_exit(0);
}

static const struct peer_role roles[] = {
	{"busy", run_busy},
	{"idle", run_idle},
	{"exit", run_exit},
};

/* ---- this side ---- */

struct host {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct side side;
	struct tally sends, recvs;
	pid_t pid;
};

static void host_open(struct host *host, const char *role)
{
	struct sockaddr_storage at;

	memset(host, 0, sizeof(*host));
	test_address(&at, 0);
	host->channel = rdma_create_event_channel();
	host->listener = listen_at(host->channel, &at, 4);
	host->pid = peer_start(role, rdma_get_src_port(host->listener));
	side_accept(&host->side, host->channel, &options);
	for (unsigned i = 0; i < RECVS; i++)
		side_recv(&host->side, i, 2 * MIB, MIB);
	cm_expect(host->side.channel, RDMA_CM_EVENT_ESTABLISHED);
	host->recvs.posted = RECVS;
}

static void host_post(struct host *host)
{
	static const enum ibv_wr_opcode kinds[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
						   IBV_WR_SEND};

	for (unsigned i = 0; i < SENDS; i++)
		side_post(&host->side, &(struct request){.opcode = kinds[i % 3],
							 .id = i,
							 .len = i % 3 == 2 ? 100 : i % 5 * 600000,
							 .flags = IBV_SEND_SIGNALED});
	host->sends.posted = SENDS;
}

/* Take completions for a while that differs from round to round. */
static void host_take_some(struct host *host, unsigned microseconds)
{
	struct timespec begin, now;
	struct ibv_wc wc;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		if (ibv_poll_cq(host->side.send_cq, 1, &wc) > 0)
			tally_count(&host->sends, &wc);
		if (ibv_poll_cq(host->side.recv_cq, 1, &wc) > 0)
			tally_count(&host->recvs, &wc);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 <
		 microseconds);
}

static void host_expect_end(struct host *host)
{
	uint64_t killed = now_ms();

	tally_drain(&host->sends, host->side.send_cq);
	tally_drain(&host->recvs, host->side.recv_cq);
	cm_expect(host->side.channel, RDMA_CM_EVENT_DISCONNECTED);
	if (now_ms() - killed > 1000)
		print_message("the end took %u ms\n", (unsigned)(now_ms() - killed));
	tally_drain(&host->sends, host->side.send_cq);
	tally_drain(&host->recvs, host->side.recv_cq);
	assert_int_equal(host->sends.failed + host->recvs.failed, 0);
	assert_false(fd_is_readable(host->side.channel->fd, 1));
	assert_int_equal(pipe_signals, 0);
}

static void host_close(struct host *host)
{
	side_close(&host->side);
	rdma_destroy_id(host->listener);
	rdma_destroy_event_channel(host->channel);
}

static void run_killed(const char *role, unsigned microseconds)
{
	struct host host;

	host_open(&host, role);
	host_post(&host);
	host_take_some(&host, microseconds);
	peer_kill(host.pid);
	host_expect_end(&host);
	/* Afterwards too, each is flushed. */
	side_send(&host.side, 77, 0, 100);
	cq_expect(host.side.send_cq, 77, IBV_WC_WR_FLUSH_ERR);
	host_close(&host);
}

static void test_peer_killed_while_busy_flushes_everything_once(void **state)
{
	unsigned seed = 0x1b5;

	(void)state;
	for (int i = 0; i < ROUNDS; i++)
		run_killed("busy", (unsigned)rand_r(&seed) % 4000);
}

static void test_peer_killed_while_idle_flushes_everything_once(void **state)
{
	unsigned seed = 0x1b6;

	(void)state;
	for (int i = 0; i < 4; i++)
		run_killed("idle", (unsigned)rand_r(&seed) % 4000);
}

/* Nothing but receives: the end itself must be noticed. */
static void test_peer_killed_with_only_receives_posted_is_noticed(void **state)
{
	struct host host;

	(void)state;
	host_open(&host, "idle");
	peer_kill(host.pid);
	host_expect_end(&host);
	assert_int_equal(host.recvs.flushed, RECVS);
	host_close(&host);
}

/* A program that sleeps in the channel, and never polls. */
static void test_peer_killed_wakes_a_sleeping_program(void **state)
{
	struct ibv_cq *cq;
	struct host host;
	void *context;

	(void)state;
	host_open(&host, "idle");
	assert_int_equal(ibv_req_notify_cq(host.side.recv_cq, 0), 0);
	peer_kill(host.pid);
	assert_true(fd_is_readable(host.side.comp->fd, WAIT_MS));
	assert_int_equal(ibv_get_cq_event(host.side.comp, &cq, &context), 0);
	assert_ptr_equal(cq, host.side.recv_cq);
	ibv_ack_cq_events(cq, 1);
	host_expect_end(&host);
	host_close(&host);
}

static void test_peer_that_exits_is_like_one_that_disconnects(void **state)
{
	struct host host;

	(void)state;
	host_open(&host, "exit");
	assert_int_equal(peer_wait(host.pid), 0);
	host_expect_end(&host);
	host_close(&host);
}

static bool has_failed(struct side *side)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(side->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state == IBV_QPS_ERR;
}

/* Without a look at what came: the socket may be written to after its end. */
static void test_posting_into_a_dying_peer_raises_no_sigpipe(void **state)
{
	struct request request = {.opcode = IBV_WR_RDMA_WRITE, .len = 16};

	(void)state;
	for (int i = 0; i < 10; i++) {
		struct host host;

		host_open(&host, "idle");
		for (int j = 0; j < 20000 && !has_failed(&host.side); j++) {
			if (j == 100)
				assert_int_equal(kill(host.pid, SIGKILL), 0);
			side_try(&host.side, &request);
		}
		assert_int_equal(waitpid(host.pid, NULL, 0), host.pid);
		cm_expect(host.side.channel, RDMA_CM_EVENT_DISCONNECTED);
		tally_drain(&host.recvs, host.side.recv_cq);
		assert_int_equal(pipe_signals, 0);
		host_close(&host);
	}
}

/* One of two connections dies; the other does not notice. */
static void test_peer_killed_leaves_other_connections_alone(void **state)
{
	struct host dies, lives;

	(void)state;
	host_open(&lives, "idle");
	host_open(&dies, "idle");
	peer_kill(dies.pid);
	host_expect_end(&dies);
	side_send(&lives.side, 5, 0, 100);
	cq_expect(lives.side.send_cq, 5, IBV_WC_SUCCESS);
	cm_expect_none(lives.side.channel);
	peer_kill(lives.pid);
	host_expect_end(&lives);
	host_close(&dies);
	host_close(&lives);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peer_killed_while_busy_flushes_everything_once),
		cmocka_unit_test(test_peer_killed_while_idle_flushes_everything_once),
		cmocka_unit_test(test_peer_killed_with_only_receives_posted_is_noticed),
		cmocka_unit_test(test_peer_killed_wakes_a_sleeping_program),
		cmocka_unit_test(test_peer_that_exits_is_like_one_that_disconnects),
		cmocka_unit_test(test_posting_into_a_dying_peer_raises_no_sigpipe),
		cmocka_unit_test(test_peer_killed_leaves_other_connections_alone),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	signal(SIGPIPE, count_signal);
	return cmocka_run_group_tests_name("killed", tests, NULL, NULL);
}
