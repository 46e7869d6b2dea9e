/* SPDX-License-Identifier: MIT */
/*
 * A program with live connections forks: the parent goes on, and what the child keeps open keeps no
 * connection alive.
 */
#include "house.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CHILDREN 60

static const struct pair_options options = {.depth = 16};

/* ---- children of a process that is busy ---- */

/*
 * Processes that live on beside the parent, as a daemon's helpers do; they end with it, and when
 * their time is over.
 */
static pid_t fork_idle(void)
{
	pid_t parent = getpid(), pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned i = 0; i < 20 && getppid() == parent; i++)
		poll(NULL, 0, 50);
	_exit(0);
}

static pid_t fork_and_exec(void)
{
	static char *const argv[] = {(char *)(uintptr_t) "true", NULL};
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	execv("/bin/true", argv);
	_exit(126);
}

static pid_t fork_and_exit(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(0);
	return pid;
}

static void test_fork_leaves_the_parents_traffic_alone(void **state)
{
	pid_t (*const kinds[])(void) = {fork_and_exit, fork_and_exec, fork_idle};
	pid_t children[CHILDREN];

	(void)state;
	for (unsigned i = 0; i < CHILDREN; i++) {
		children[i] = kinds[i % ARRAY_SIZE(kinds)]();
		house_check();
	}
	for (unsigned i = 0; i < CHILDREN; i++)
		assert_int_equal(peer_wait(children[i]), 0);
	house_check_newcomer();
}

static void test_child_that_stays_does_not_keep_a_closed_connection_open(void **state)
{
	struct scene scene;
	pid_t child;

	(void)state;
	scene_open(&scene, NULL);
	child = fork_idle();
	assert_int_equal(rdma_disconnect(scene.side.id), 0);
	stranger_expect_end_within(&scene.stranger, 1000);
	scene_expect_disconnected(&scene);
	scene_close(&scene);
	peer_kill(child);
}

static void test_connections_opened_beside_a_child_work(void **state)
{
	pid_t child = fork_idle();

	(void)state;
	for (unsigned i = 0; i < 5; i++)
		house_check_newcomer();
	peer_kill(child);
}

/* ---- a parent that is killed while its child lives ---- */

/*
 * The role: connects to the house's port, forks a child that outlives it, tells of it by a message,
 * and waits for its end.
 */
static void run_parent(uint16_t port)
{
	struct side side = {0};
	pid_t child;

	side_resolve(&side, port);
	side_equip(&side, &options);
	side_connect(&side, &options);
	side_await_established(&side);
	child = fork();
	if (!child) {
		/* Not with its parent, but with the one who started both. */
		for (int i = 0; i < 600; i++)
			poll(NULL, 0, 50);
		_exit(0);
	}
	memcpy(side.buf, &child, sizeof(child));
	side_send(&side, 1, 0, sizeof(child));
	for (;;)
		pause();
}

/* The role: a request that is not answered yet, and a listener, while a child lives on. */
static void run_silent_server(uint16_t port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage at;
	struct side side = {0};
	struct rdma_cm_id *id;
	uint16_t mine;
	pid_t child;

	test_address(&at, 0);
	id = listen_at(channel, &at, 4);
	mine = rdma_get_src_port(id);
	side_resolve(&side, port);
	side_equip(&side, &options);
	side_connect(&side, &options);
	side_await_established(&side);
	memcpy(side.buf, &mine, sizeof(mine));
	side_send(&side, 1, 0, sizeof(mine));
	cm_expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST); /* and no answer to it */
	child = fork();
	if (!child) {
		for (int i = 0; i < 600; i++)
			poll(NULL, 0, 50);
		_exit(0);
	}
	memcpy(side.buf, &child, sizeof(child));
	side_send(&side, 2, 0, sizeof(child));
	for (;;)
		pause();
}

static const struct peer_role roles[] = {
	{"parent", run_parent},
	{"silent-server", run_silent_server},
};

static void accept_parent(struct side *side)
{
	side_accept(side, house_channel(), &options);
	for (unsigned i = 0; i < 2; i++)
		side_recv(side, i, i * 64, 64);
	cm_expect(side->channel, RDMA_CM_EVENT_ESTABLISHED);
}

static void expect_noticed(struct side *side, unsigned recvs)
{
	uint64_t begin = now_ms();

	cm_expect(side->channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_true(now_ms() - begin < SOON_MS);
	for (unsigned i = 0; i < recvs; i++)
		assert_int_equal(cq_next(side->recv_cq).status, IBV_WC_WR_FLUSH_ERR);
}

/* It is not ours to wait for. */
static void kill_grandchild(pid_t pid)
{
	assert_true(pid > 1); /* others have no process, but a meaning */
	assert_int_equal(kill(pid, SIGKILL), 0);
}

static void test_parent_killed_while_its_child_lives_is_noticed(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct side side = {0};
		pid_t parent, child;

		parent = peer_start("parent", house_port());
		accept_parent(&side);
		assert_int_equal(cq_expect(side.recv_cq, 0, IBV_WC_SUCCESS).byte_len,
				 sizeof(child));
		memcpy(&child, side.buf, sizeof(child));
		peer_kill(parent);
		expect_noticed(&side, 1);
		kill_grandchild(child);
		side_close(&side);
		house_check();
	}
}

/* One who waits for the answer to its request hears of it too, and the port is free again. */
static void test_server_killed_while_its_child_lives_leaves_nothing_open(void **state)
{
	struct side side = {0}, client = {0};
	struct sockaddr_storage at;
	struct rdma_cm_id *id;
	pid_t parent, child;
	uint64_t begin;
	uint16_t port;

	(void)state;
	parent = peer_start("silent-server", house_port());
	accept_parent(&side);
	cq_expect(side.recv_cq, 0, IBV_WC_SUCCESS);
	memcpy(&port, side.buf, sizeof(port));
	side_resolve(&client, port);
	side_equip(&client, &options);
	side_connect(&client, &options);
	cq_expect(side.recv_cq, 1, IBV_WC_SUCCESS);
	memcpy(&child, side.buf + 64, sizeof(child));
	peer_kill(parent);
	begin = now_ms();
	cm_expect(client.channel, RDMA_CM_EVENT_REJECTED);
	assert_true(now_ms() - begin < SOON_MS);
	expect_noticed(&side, 0);
	test_address(&at, port);
	assert_int_equal(rdma_create_id(house_channel(), &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&at), 0);
	assert_int_equal(rdma_listen(id, 1), 0);
	rdma_destroy_id(id);
	kill_grandchild(child);
	side_close(&client);
	side_close(&side);
	house_check();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fork_leaves_the_parents_traffic_alone),
		cmocka_unit_test(test_child_that_stays_does_not_keep_a_closed_connection_open),
		cmocka_unit_test(test_connections_opened_beside_a_child_work),
		cmocka_unit_test(test_parent_killed_while_its_child_lives_is_noticed),
		cmocka_unit_test(test_server_killed_while_its_child_lives_leaves_nothing_open),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	return cmocka_run_group_tests_name("fork", tests, house_open, house_close);
}
