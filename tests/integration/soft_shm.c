/* SPDX-License-Identifier: MIT */
/*
 * What holds in shared memory alone: a target need not run, pollers make no system calls, and
 * nothing is left of a peer that is killed or stopped.
 */
#include "pair.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../src/softrdma/shm/ring.h"

#define LONG_MESSAGE (300 * KIB)
#define ROUNDS       12

static const struct pair_options options = {.bytes = 4 * MIB, .depth = 64, .reads = 4};

/* ---- system calls of the library are seen here first ---- */

static atomic_uint bells;

/* As the library calls it: this program's symbol comes before libc's. */
ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
	atomic_fetch_add(&bells, 1);
	return syscall(SYS_sendto, fd, bytes, len, flags, NULL, 0);
}

/* ---- the peer ---- */

static void peer_open(struct side *side, uint16_t port)
{
	side_resolve(side, port);
	side_equip(side, &options);
	for (unsigned i = 0; i < 32; i++)
		side_recv(side, i, i * 64, 64);
	memset(side->buf + MIB, 0x3c, MIB);
	side_connect(side, &options);
	side_await_established(side);
}

/* Connects, and stops itself: whoever wants something of it must do it alone. */
static void run_stop(uint16_t port)
{
	struct side side = {0};

	peer_open(&side, port);
	raise(SIGSTOP);
	/* Goes on: what was written is here, and what was sent. */
	cq_expect(side.recv_cq, 0, IBV_WC_SUCCESS);
	assert_true(is_all(side.buf + 2 * MIB, LONG_MESSAGE, 0x77));
	exit(0);
}

/* Answers every message at once. */
static void run_echo(uint16_t port)
{
	struct side side = {0};
	struct ibv_wc wc;

	peer_open(&side, port);
	for (;;) {
		while (ibv_poll_cq(side.send_cq, 1, &wc) > 0)
			continue;
		if (ibv_poll_cq(side.recv_cq, 1, &wc) <= 0)
			continue;
		if (wc.status)
			exit(0);
		side_recv(&side, wc.wr_id, wc.wr_id * 64, 64);
		side_send(&side, 0, 0, 64);
	}
}

/* Writes, reads and sends long messages without end. */
static void run_busy(uint16_t port)
{
	static const enum ibv_wr_opcode kinds[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						   IBV_WR_SEND};
	struct side side = {0};
	struct ibv_wc wc;

	peer_open(&side, port);
	for (unsigned i = 0;; i++) {
		side_try(&side, &(struct request){.opcode = kinds[i % 3],
						  .id = i,
						  .at = MIB,
						  .len = i % 4 * LONG_MESSAGE,
						  .flags = IBV_SEND_SIGNALED});
		while (ibv_poll_cq(side.send_cq, 1, &wc) > 0)
			continue;
		while (ibv_poll_cq(side.recv_cq, 1, &wc) > 0)
			continue;
	}
}

static const struct peer_role roles[] = {
	{"stop", run_stop},
	{"echo", run_echo},
	{"busy", run_busy},
};

/* ---- this side ---- */

struct host {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct side side;
	pid_t pid;
};

static void host_open(struct host *host, const char *role, uint32_t recv_len)
{
	struct sockaddr_storage at;

	memset(host, 0, sizeof(*host));
	test_address(&at, 0);
	host->channel = rdma_create_event_channel();
	host->listener = listen_at(host->channel, &at, 4);
	host->pid = peer_start(role, rdma_get_src_port(host->listener));
	side_accept(&host->side, host->channel, &options);
	for (unsigned i = 0; i < 8; i++)
		side_recv(&host->side, i, 0, recv_len);
	assert_int_equal(cm_expect(host->side.channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

static void host_close(struct host *host)
{
	side_close(&host->side);
	rdma_destroy_id(host->listener);
	rdma_destroy_event_channel(host->channel);
}

static void await_stop(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
}

static bool is_single_copy(void)
{
	const char *mode = getenv("SOFTRDMA_SHM");

	return !mode || !strcmp(mode, "on");
}

/* ---- a target that is stopped ---- */

static void test_write_and_read_complete_while_the_target_is_stopped(void **state)
{
	static const uint32_t lengths[] = {1, 64, 5000, LONG_MESSAGE};
	struct host host;
	uint64_t id = 100;

	(void)state;
	if (!is_single_copy())
		skip();
	host_open(&host, "stop", 64);
	await_stop(host.pid);
	memset(host.side.buf + MIB, 0x77, LONG_MESSAGE);
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		side_post(&host.side, &(struct request){.opcode = IBV_WR_RDMA_WRITE,
							.id = id,
							.at = MIB,
							.len = lengths[i],
							.remote_at = 2 * MIB,
							.flags = IBV_SEND_SIGNALED});
		cq_expect(host.side.send_cq, id++, IBV_WC_SUCCESS);
		memset(host.side.buf + 2 * MIB, 0, LONG_MESSAGE);
		/* What was just written, and what was there before. */
		side_post(&host.side, &(struct request){.opcode = IBV_WR_RDMA_READ,
							.id = id,
							.at = 2 * MIB,
							.len = lengths[i],
							.remote_at = 2 * MIB,
							.flags = IBV_SEND_SIGNALED});
		cq_expect(host.side.send_cq, id++, IBV_WC_SUCCESS);
		assert_true(is_all(host.side.buf + 2 * MIB, lengths[i], 0x77));
		side_post(&host.side, &(struct request){.opcode = IBV_WR_RDMA_READ,
							.id = id,
							.at = 2 * MIB,
							.len = lengths[i],
							.remote_at = MIB,
							.flags = IBV_SEND_SIGNALED});
		cq_expect(host.side.send_cq, id++, IBV_WC_SUCCESS);
		assert_true(is_all(host.side.buf + 2 * MIB, lengths[i], 0x3c));
	}
	side_send(&host.side, 1, MIB, 64);
	cq_expect_none(host.side.send_cq); /* a message needs the peer */
	assert_int_equal(kill(host.pid, SIGCONT), 0);
	assert_int_equal(peer_wait(host.pid), 0);
	cq_expect(host.side.send_cq, 1, IBV_WC_SUCCESS); /* though the peer has ended since */
	host_close(&host);
}

/* A long message waits for the peer, and nothing else does. */
static void test_disconnect_from_a_stopped_peer_ends(void **state)
{
	struct host host;

	(void)state;
	host_open(&host, "stop", 64);
	await_stop(host.pid);
	for (unsigned i = 0; i < 4; i++)
		side_send(&host.side, i, 0, MIB);
	assert_int_equal(rdma_disconnect(host.side.id), 0);
	cm_expect(host.side.channel, RDMA_CM_EVENT_DISCONNECTED);
	for (unsigned i = 0; i < 4; i++)
		cq_expect(host.side.send_cq, i, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_dereg_mr(host.side.mr), 0);
	host.side.mr = ibv_reg_mr(host.side.pd, host.side.buf, 1, 0);
	peer_kill(host.pid);
	host_close(&host);
}

/* ---- two that poll ---- */

static void exchange(struct host *host, unsigned count)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < count; i++) {
		uint64_t end = now_ms() + WAIT_MS;

		side_send(&host->side, 0, 0, 64);
		while (ibv_poll_cq(host->side.recv_cq, 1, &wc) <= 0)
			assert_true(now_ms() < end);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		side_recv(&host->side, wc.wr_id, 0, 64);
		while (ibv_poll_cq(host->side.send_cq, 1, &wc) > 0)
			continue;
	}
}

/*
 * On a machine that is busy a peer is now and then taken for one that sleeps; so a few bells are
 * rung, but not one for every message.
 */
static void test_pollers_do_not_ring(void **state)
{
	struct host host;
	unsigned before;

	(void)state;
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	host_open(&host, "echo", 64);
	exchange(&host, 1000);
	before = atomic_load(&bells);
	exchange(&host, 10000);
	assert_true(atomic_load(&bells) - before < 5000);
	peer_kill(host.pid);
	host_close(&host);
}

/* ---- peers that are stopped and killed at any moment ---- */

static unsigned count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static unsigned count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	unsigned count = 0;
	char line[512];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, "memfd:softrdma") != NULL;
	fclose(file);
	return count;
}

static void move_for(struct host *host, unsigned microseconds)
{
	uint64_t end = now_ms() + 1 + microseconds / 1000;
	struct ibv_wc wc;

	for (unsigned i = 0; now_ms() < end; i++) {
		side_try(&host->side,
			 &(struct request){.opcode = i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
					   .id = i,
					   .at = MIB,
					   .len = i % 3 * LONG_MESSAGE,
					   .flags = IBV_SEND_SIGNALED});
		while (ibv_poll_cq(host->side.send_cq, 1, &wc) > 0)
			continue;
		if (ibv_poll_cq(host->side.recv_cq, 1, &wc) > 0)
			side_recv(&host->side, 0, 2 * MIB, MIB);
	}
}

/* Stopped, then gone. The memory that it copies from and to is taken away meanwhile. */
static void stop_and_kill(unsigned round)
{
	struct host host;

	host_open(&host, "busy", MIB);
	move_for(&host, round * 700);
	assert_int_equal(kill(host.pid, SIGSTOP), 0);
	await_stop(host.pid);
	move_for(&host, 500);
	if (round % 2) {
		assert_int_equal(ibv_dereg_mr(host.side.mr), 0);
		host.side.mr = ibv_reg_mr(host.side.pd, host.side.buf, 1, 0);
	}
	if (round % 3 == 0) {
		assert_int_equal(kill(host.pid, SIGCONT), 0);
		move_for(&host, 300);
	}
	peer_kill(host.pid);
	cm_expect(host.side.channel, RDMA_CM_EVENT_DISCONNECTED);
	host_close(&host);
}

static void expect_count(unsigned (*count)(void), unsigned expected)
{
	uint64_t end = now_ms() + WAIT_MS;

	while (count() != expected && now_ms() < end)
		poll(NULL, 0, 10);
	assert_int_equal(count(), expected);
}

static void test_nothing_is_left_of_peers_that_are_stopped_and_killed(void **state)
{
	unsigned descriptors, mappings;

	(void)state;
	stop_and_kill(0); /* the first of each kind stays */
	expect_count(count_mappings, is_single_copy());
	mappings = count_mappings();
	descriptors = count_descriptors();
	for (unsigned round = 1; round < ROUNDS; round++)
		stop_and_kill(round);
	expect_count(count_mappings, mappings);
	expect_count(count_descriptors, descriptors);
}

/* ---- messages of one line, which may travel without a header ---- */

/* @before bytes, then a line that begins with @word, from one piece or from two. */
static void send_line(struct pair *pair, uint32_t before, uint64_t word, unsigned num_sge)
{
	uint32_t len = before + RING_LINE, half = len / 2;
	uint64_t base = (uintptr_t)pair->client.buf;
	struct ibv_sge sge[2] = {{base, num_sge == 1 ? len : half, pair->client.mr->lkey},
				 {base + half, len - half, pair->client.mr->lkey}};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = sge,
				 .num_sge = (int)num_sge,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	fill(pair->client.buf, len, (unsigned)word);
	memcpy(pair->client.buf + before, &word, sizeof(word));
	memset(pair->server.buf, 0xee, len + 1);
	side_recv(&pair->server, 2, 0, len + 1);
	assert_int_equal(ibv_post_send(pair->client.qp, &wr, &bad), 0);
	assert_int_equal(cq_expect(pair->server.recv_cq, 2, IBV_WC_SUCCESS).byte_len, len);
	cq_expect(pair->client.send_cq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(pair->server.buf, pair->client.buf, len);
	assert_int_equal(pair->server.buf[len], 0xee);
}

static void test_line_arrives_whatever_it_looks_like(void **state)
{
	static const struct pair_options two_pieces = {.bytes = 64 * KIB, .sge = 2};
	const uint64_t words[] = {
		0,
		1,
		UINT64_MAX,
		ring_first_word(RING_NOTHING, 0, 0, 0),
		ring_first_word(RING_PAD, 0, 0, 0),
		ring_first_word(RC_SEND, RC_LAST, RING_MAX_PAYLOAD, 0),
		ring_first_word(15, RC_FLAGS, 8191, UINT32_MAX),
	};
	struct pair pair;

	(void)state;
	pair_open(&pair, &two_pieces);
	for (unsigned lap = 0; lap < RING_CELLS / ARRAY_SIZE(words); lap++)
		for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
			send_line(&pair, i % 3 ? 0 : RING_MAX_PAYLOAD, words[i], 1 + lap % 2);
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_and_read_complete_while_the_target_is_stopped),
		cmocka_unit_test(test_disconnect_from_a_stopped_peer_ends),
		cmocka_unit_test(test_pollers_do_not_ring),
		cmocka_unit_test(test_line_arrives_whatever_it_looks_like),
		cmocka_unit_test(test_nothing_is_left_of_peers_that_are_stopped_and_killed),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	return cmocka_run_group_tests_name("soft_shm", tests, NULL, NULL);
}
