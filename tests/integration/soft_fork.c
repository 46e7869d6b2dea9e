/* SPDX-License-Identifier: MIT */
/*
 * fork() in the middle of everything: the child connects anew, whatever other threads were doing,
 * and shares no event with its parent.
 */
#include "pair.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS  200
#define CHILD_S 60 /* a child that hangs ends then */

static const struct pair_options options = {.depth = 16};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool is_sanitized = true;
#else
static const bool is_sanitized = false;
#endif

/* ---- a connection without asserts: they belong to the process that runs the test ---- */

struct end {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	char bytes[64];
};

static struct rdma_cm_id *take(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (!fd_is_readable(channel->fd, WAIT_MS) || rdma_get_cm_event(channel, &event))
		return NULL;
	id = event->event == type ? event->id : NULL;
	rdma_ack_cm_event(event);
	return id;
}

static bool end_equip(struct end *end, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_sge sge = {(uintptr_t)end->bytes, sizeof(end->bytes), 0};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	end->id = id;
	if (!id || rdma_create_qp(id, NULL, &attr))
		return false;
	end->mr = ibv_reg_mr(id->pd, end->bytes, sizeof(end->bytes), ALL_ACCESS);
	if (!end->mr)
		return false;
	sge.lkey = end->mr->lkey;
	return !ibv_post_recv(id->qp, &wr, &bad);
}

static bool end_send(struct end *from, struct end *to, const char *text)
{
	struct ibv_sge sge = {(uintptr_t)from->bytes, (uint32_t)strlen(text) + 1, from->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	snprintf(from->bytes, sizeof(from->bytes), "%s", text);
	return !ibv_post_send(from->id->qp, &wr, &bad) && cq_poll(to->id->recv_cq, &wc, WAIT_MS) &&
	       wc.status == IBV_WC_SUCCESS && cq_poll(from->id->send_cq, &wc, WAIT_MS) &&
	       wc.status == IBV_WC_SUCCESS && !strcmp(to->bytes, text);
}

static bool end_close(struct end *end)
{
	rdma_destroy_qp(end->id);
	return !ibv_dereg_mr(end->mr) && !rdma_destroy_id(end->id);
}

static struct rdma_cm_id *new_listener(struct rdma_event_channel *channel)
{
	struct sockaddr_storage at;
	struct rdma_cm_id *id;

	test_address(&at, 0);
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		return NULL;
	if (!rdma_bind_addr(id, (struct sockaddr *)&at) && !rdma_listen(id, 8))
		return id;
	rdma_destroy_id(id);
	return NULL;
}

static struct rdma_cm_id *new_client(struct rdma_event_channel *channel, uint16_t port)
{
	struct sockaddr_storage to;
	struct rdma_cm_id *id;

	test_address(&to, port);
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, WAIT_MS) ||
	    take(channel, RDMA_CM_EVENT_ADDR_RESOLVED) != id || rdma_resolve_route(id, WAIT_MS) ||
	    take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) != id)
		return NULL;
	return id;
}

/* Whether it worked; if not, says what did not. */
static bool report(bool good, const char *what)
{
	if (!good)
		fprintf(stderr, "%d: failed: %s (errno: %s)\n", (int)getpid(), what,
			strerror(errno));
	return good;
}

#define STEP(condition) report((condition), #condition)

/* Connects to itself, says something in both directions, and parts. */
static bool talk(struct rdma_event_channel *connecting, struct rdma_event_channel *listening)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_id *listener = listening ? new_listener(listening) : NULL;
	struct end client = {0}, server = {0};

	return STEP(connecting && listener) &&
	       STEP(end_equip(&client, new_client(connecting, rdma_get_src_port(listener)))) &&
	       STEP(!rdma_connect(client.id, &param)) &&
	       STEP(end_equip(&server, take(listening, RDMA_CM_EVENT_CONNECT_REQUEST))) &&
	       STEP(!rdma_accept(server.id, &param)) &&
	       STEP(take(connecting, RDMA_CM_EVENT_ESTABLISHED)) &&
	       STEP(take(listening, RDMA_CM_EVENT_ESTABLISHED)) &&
	       STEP(end_send(&client, &server, "there")) &&
	       STEP(end_send(&server, &client, "and back")) && STEP(!rdma_disconnect(client.id)) &&
	       STEP(take(connecting, RDMA_CM_EVENT_DISCONNECTED)) &&
	       STEP(take(listening, RDMA_CM_EVENT_DISCONNECTED)) &&
	       STEP(end_close(&client) && end_close(&server) && !rdma_destroy_id(listener));
}

/* ---- what the other threads are doing ---- */

static struct pair busy;
static atomic_bool stop;
static atomic_uint failures;

static void *register_memory(void *unused)
{
	static char memory[4096];

	while (!atomic_load(&stop)) {
		struct ibv_mr *mr = ibv_reg_mr(busy.client.pd, memory, sizeof(memory), ALL_ACCESS);

		if (!mr || ibv_dereg_mr(mr))
			atomic_fetch_add(&failures, 1);
	}
	return unused;
}

static void *open_devices(void *unused)
{
	while (!atomic_load(&stop)) {
		struct ibv_device **list = ibv_get_device_list(NULL);
		struct ibv_context *context = list ? ibv_open_device(list[0]) : NULL;

		if (!context || ibv_close_device(context))
			atomic_fetch_add(&failures, 1);
		if (list)
			ibv_free_device_list(list);
	}
	return unused;
}

static void *make_ids(void *unused)
{
	while (!atomic_load(&stop)) {
		struct rdma_event_channel *channel = rdma_create_event_channel();

		if (!channel || !talk(channel, channel))
			atomic_fetch_add(&failures, 1);
		if (channel)
			rdma_destroy_event_channel(channel);
	}
	return unused;
}

/* Requests that are posted in a row are held back for a moment. */
static void *move_data(void *unused)
{
	struct ibv_sge from = {(uintptr_t)busy.client.buf, 64, busy.client.mr->lkey};
	struct ibv_sge to = {(uintptr_t)busy.server.buf, 64, busy.server.mr->lkey};
	struct ibv_send_wr send = {.sg_list = &from,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad_send;
	struct ibv_recv_wr recv = {.sg_list = &to, .num_sge = 1}, *bad_recv;
	struct ibv_wc wc;

	while (!atomic_load(&stop)) {
		bool good = true;

		for (int i = 0; i < 8; i++)
			good = good && !ibv_post_recv(busy.server.qp, &recv, &bad_recv) &&
			       !ibv_post_send(busy.client.qp, &send, &bad_send);
		for (int i = 0; i < 8; i++)
			good = good && cq_poll(busy.server.recv_cq, &wc, WAIT_MS) &&
			       cq_poll(busy.client.send_cq, &wc, WAIT_MS);
		if (!good)
			atomic_fetch_add(&failures, 1);
	}
	return unused;
}

/* ---- tests ---- */

/* In the child: an exit status. @listener is the parent's. */
static int live_on(struct rdma_event_channel *inherited, struct rdma_cm_id *listener)
{
	struct rdma_event_channel *own = rdma_create_event_channel();

	if (!talk(own, own))
		return 1;
	if (!talk(inherited, own))
		return 2;
	rdma_destroy_event_channel(own);
	/* The end of it here is not its end there. */
	return rdma_destroy_id(listener) ? 3 : 0;
}

static int wait_for(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child); /* its alarm ends it */
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static pid_t fork_child(void)
{
	pid_t parent = getpid(), child = fork();

	assert_true(child >= 0);
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(CHILD_S);
	if (getppid() != parent)
		_exit(100);
	return 0;
}

static void test_child_of_a_busy_process_connects_anew(void **state)
{
	void *(*const work[])(void *) = {register_memory, open_devices, make_ids, move_data};
	struct rdma_event_channel *inherited = rdma_create_event_channel();
	pthread_t threads[ARRAY_SIZE(work)];
	struct rdma_cm_id *listener;

	(void)state;
	if (is_sanitized) {
		print_message("a sanitizer's allocator may be locked in a child of threads\n");
		rdma_destroy_event_channel(inherited);
		skip();
	}
	assert_non_null(inherited);
	listener = new_listener(inherited);
	assert_non_null(listener);
	pair_open(&busy, &options);
	for (unsigned i = 0; i < ARRAY_SIZE(work); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work[i], NULL), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		pid_t child = fork_child();
		int status;

		if (!child)
			_exit(live_on(inherited, listener));
		status = wait_for(child);
		if (status)
			fail_msg("round %u: the child ended with %d", i, status);
	}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < ARRAY_SIZE(work); i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(atomic_load(&failures), 0);
	pair_close(&busy);
	assert_int_equal(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(inherited);
}

static bool is_quiet(int fd)
{
	return !fd_is_readable(fd, 0);
}

/* Waits for the word that the parent has its events, and has none itself. */
static int expect_no_events(int word, const struct pair *pair)
{
	struct ibv_context *verbs = pair->server.id->verbs;
	struct ibv_async_event event;

	if (!fd_is_readable(word, WAIT_MS))
		return 1;
	if (!is_quiet(verbs->async_fd))
		return 2;
	if (!is_quiet(pair->server.channel->fd))
		return 3;
	if (fcntl(verbs->async_fd, F_SETFL, O_NONBLOCK))
		return 4;
	return ibv_get_async_event(verbs, &event) == -1 && errno == EAGAIN ? 0 : 5;
}

static void test_child_shares_no_event_with_its_parent(void **state)
{
	static const struct pair_options shared = {.shared_receives = true};
	struct ibv_async_event event;
	struct pair pair;
	int word[2];
	pid_t child;

	(void)state;
	pair_open(&pair, &shared);
	assert_int_equal(pipe(word), 0);
	assert_int_equal(ibv_modify_srq(pair.server.srq, &(struct ibv_srq_attr){.srq_limit = 1},
					IBV_SRQ_LIMIT),
			 0);
	child = fork_child();
	if (!child)
		_exit(expect_no_events(word[0], &pair));
	side_recv(&pair.server, 1, 0, 64);
	side_send(&pair.client, 2, 0, 8);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(rdma_disconnect(pair.client.id), 0);
	assert_true(fd_is_readable(pair.server.id->verbs->async_fd, WAIT_MS));
	assert_true(fd_is_readable(pair.server.channel->fd, WAIT_MS));
	assert_int_equal(write(word[1], "x", 1), 1);
	assert_int_equal(wait_for(child), 0);
	assert_int_equal(ibv_get_async_event(pair.server.id->verbs, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	ibv_ack_async_event(&event);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
	close(word[0]);
	close(word[1]);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_child_shares_no_event_with_its_parent),
		cmocka_unit_test(test_child_of_a_busy_process_connects_anew),
	};

	return cmocka_run_group_tests_name("soft_fork", tests, NULL, NULL);
}
