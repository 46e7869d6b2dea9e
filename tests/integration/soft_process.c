/* SPDX-License-Identifier: MIT */
/* The device as a guest in its process: signals, its thread, children by fork, cancellation. */
#include "pair.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct pair_options options = {.bytes = MIB};

static volatile sig_atomic_t signals;
static volatile sig_atomic_t elsewhere; /* caught by another thread than the program's own */
static _Thread_local volatile sig_atomic_t is_main;

static void catch (int number)
{
	(void)number;
	signals++;
	if (!is_main)
		elsewhere++;
}

/* ---- the device's thread ---- */

/* What /proc says of the device's thread under @key; false: there is no such thread. */
static bool thread_status(const char *key, char *value, size_t size)
{
	DIR *tasks = opendir("/proc/self/task");
	char path[300], line[256];
	struct dirent *task;
	bool found = false;

	assert_non_null(tasks);
	while (!found && (task = readdir(tasks))) {
		bool ours = false;
		FILE *status;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
		status = fopen(path, "r");
		while (status && fgets(line, sizeof(line), status)) {
			if (!strcmp(line, "Name:\tsoftrdma\n"))
				ours = true;
			if (ours && !strncmp(line, key, strlen(key))) {
				snprintf(value, size, "%s", line + strlen(key) + 1);
				found = true;
			}
		}
		if (status)
			fclose(status);
	}
	closedir(tasks);
	return found;
}

static void test_thread_has_all_signals_blocked(void **state)
{
	unsigned long long blocked, wanted = 0;
	struct pair pair;
	char text[64];

	(void)state;
	pair_open(&pair, &options);
	assert_true(thread_status("SigBlk:", text, sizeof(text)));
	blocked = strtoull(text, NULL, 16);
	for (int number = 1; number < 32; number++)
		if (number != SIGKILL && number != SIGSTOP)
			wanted |= 1ull << (number - 1);
	assert_true((blocked & wanted) == wanted);
	pair_close(&pair);
}

static void test_signals_reach_the_programs_own_thread(void **state)
{
	struct sigaction action = {.sa_handler = catch};
	struct pair pair;

	(void)state;
	is_main = 1;
	pair_open(&pair, &options);
	signals = elsewhere = 0;
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 100; i++) {
		kill(getpid(), SIGUSR1);
		side_recv(&pair.server, 1, 0, 64);
		side_send(&pair.client, 2, 0, 8);
		cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS);
		cq_expect(pair.client.send_cq, 2, IBV_WC_SUCCESS);
	}
	assert_int_equal(signals, 100);
	assert_int_equal(elsewhere, 0);
	signal(SIGUSR1, SIG_DFL);
	pair_close(&pair);
}

static void test_signal_interrupts_get_cq_event(void **state)
{
	struct sigaction action = {.sa_handler = catch};
	struct pair pair;
	struct ibv_cq *cq;
	void *context;

	(void)state;
	pair_open(&pair, &options);
	sigaction(SIGALRM, &action, NULL);
	ualarm(20000, 20000); /* again and again: the first may come before the sleep */
	assert_int_equal(ibv_get_cq_event(pair.client.comp, &cq, &context), -1);
	assert_int_equal(errno, EINTR);
	ualarm(0, 0);
	signal(SIGALRM, SIG_DFL);
	pair_close(&pair);
}

static unsigned long wakeups(void)
{
	char text[64];

	assert_true(thread_status("voluntary_ctxt_switches:", text, sizeof(text)));
	return strtoul(text, NULL, 10);
}

static void test_thread_of_an_idle_process_sleeps(void **state)
{
	unsigned long before;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	side_recv(&pair.server, 1, 0, 64);
	side_send(&pair.client, 2, 0, 8);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS);
	usleep(200000); /* for the last tick to pass */
	before = wakeups();
	usleep(500000);
	assert_in_range(wakeups() - before, 0, 5);
	pair_close(&pair);
}

/* ---- SIGPIPE ---- */

static void test_no_sigpipe_however_a_peer_ends(void **state)
{
	struct pair pair;

	(void)state;
	signals = 0;
	signal(SIGPIPE, catch);
	for (int i = 0; i < 20; i++) {
		pair_open(&pair, &options);
		for (int j = 0; j < 8; j++)
			side_post(&pair.client,
				  &(struct request){.opcode = IBV_WR_RDMA_WRITE, .len = MIB});
		rdma_destroy_qp(pair.server.id);
		for (int j = 0; j < 8; j++)
			side_try(&pair.client,
				 &(struct request){.opcode = IBV_WR_RDMA_WRITE, .len = MIB});
		cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
		pair_close(&pair);
	}
	assert_int_equal(signals, 0);
	signal(SIGPIPE, SIG_DFL);
}

/* ---- fork ---- */

static void ping(struct pair *pair)
{
	side_recv(&pair->server, 1, 0, 64);
	side_send(&pair->client, 2, 0, 8);
	cq_expect(pair->server.recv_cq, 1, IBV_WC_SUCCESS);
	cq_expect(pair->client.send_cq, 2, IBV_WC_SUCCESS);
}

static void test_parent_goes_on_after_fork(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (int i = 0; i < 10; i++) {
		pid_t pid = fork();
		int status;

		assert_true(pid >= 0);
		if (!pid) {
			if (i % 2)
				execl("/bin/true", "true", NULL);
			_exit(0);
		}
		ping(&pair);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		ping(&pair);
	}
	cm_expect_none(pair.client.channel);
	pair_disconnect(&pair);
	pair_close(&pair);
}

/* Until @at can be bound. */
static void await_free(struct rdma_event_channel *channel, struct sockaddr_storage *at)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct rdma_cm_id *id;
	int result;

	do {
		assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
		result = rdma_bind_addr(id, (struct sockaddr *)at);
		rdma_destroy_id(id);
		if (result)
			usleep(1000);
	} while (result && now_ms() < end);
}

/* A child that lives on neither keeps the parent's connections open nor its ports. */
static void test_child_that_lives_on_holds_nothing_open(void **state)
{
	struct sockaddr_storage at;
	struct pair pair;
	uint16_t port;
	pid_t pid;

	(void)state;
	pair_open(&pair, &options);
	port = rdma_get_src_port(pair.listener);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	ping(&pair);
	rdma_destroy_id(pair.listener);
	test_address(&at, port);
	await_free(pair.channel, &at); /* the child may not have begun */
	pair.listener = listen_at(pair.channel, &at, 1);
	rdma_destroy_qp(pair.client.id);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_kill(pid);
	pair_close(&pair);
}

static unsigned count_inheritable(void)
{
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned count = 0;

	assert_non_null(fds);
	while ((entry = readdir(fds))) {
		int fd = atoi(entry->d_name);

		if (fd > 2 && fd != dirfd(fds) && !(fcntl(fd, F_GETFD) & FD_CLOEXEC))
			count++;
	}
	closedir(fds);
	return count;
}

static void test_no_descriptor_survives_exec(void **state)
{
	unsigned before = count_inheritable();
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(count_inheritable(), before);
	pair_close(&pair);
}

static unsigned count_descriptors(void)
{
	DIR *fds = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(fds);
	while (readdir(fds))
		count++;
	closedir(fds);
	return count;
}

static void test_connections_leave_no_descriptor_behind(void **state)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct pair pair;
	unsigned before;

	(void)state;
	pair_open(&pair, &options); /* whatever is opened once is open now */
	pair_close(&pair);
	before = count_descriptors();
	for (int i = 0; i < 50; i++) {
		pair_open(&pair, &options);
		ping(&pair);
		pair_close(&pair);
	}
	while (count_descriptors() > before && now_ms() < end)
		usleep(10000); /* goodbyes take a moment */
	assert_true(count_descriptors() <= before);
}

/* ---- a thread that is cancelled ---- */

/* Nothing here but verbs may be a cancellation point: so no sleep between two looks. */
static bool await_one(struct ibv_cq *cq, enum ibv_wc_status status)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct ibv_wc wc;
	int count;

	do
		count = ibv_poll_cq(cq, 1, &wc);
	while (!count && now_ms() < end);
	return count == 1 && wc.status == status;
}

static bool exchange(struct side *from, struct side *to, uint32_t room, uint32_t len,
		     enum ibv_wc_status outcome)
{
	struct ibv_sge sge = {(uintptr_t)to->buf, room, to->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	const struct request request = {
		.opcode = IBV_WR_SEND, .len = len, .flags = IBV_SEND_SIGNALED};

	return !(to->srq ? ibv_post_srq_recv(to->srq, &wr, &bad)
			 : ibv_post_recv(to->qp, &wr, &bad)) &&
	       !ibv_req_notify_cq(to->recv_cq, 0) && !side_try(from, &request) &&
	       await_one(to->recv_cq, outcome) &&
	       (outcome != IBV_WC_SUCCESS || await_one(from->send_cq, IBV_WC_SUCCESS));
}

/* Short and long, to a peer that sleeps; at last one that is too long, which ends the connection.
 */
static bool use_all(struct pair *pair)
{
	static const uint32_t lengths[] = {8, 64, 1000, 100000, MIB};
	bool good = true;

	for (unsigned i = 0; i < 2 * ARRAY_SIZE(lengths); i++)
		good = good &&
		       exchange(&pair->client, &pair->server, MIB, lengths[i / 2], IBV_WC_SUCCESS);
	return good && exchange(&pair->client, &pair->server, 8, 64, IBV_WC_LOC_LEN_ERR);
}

static bool survived;

/* From now on the first cancellation point ends this thread. */
static void cancel_oneself(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
}

static void *work_while_cancelled(void *pair)
{
	cancel_oneself();
	survived = use_all(pair);
	pthread_testcancel();
	return NULL;
}

static void survive(const struct pair_options *of)
{
	struct pair pair;
	pthread_t thread;
	void *result;

	pair_open(&pair, of);
	/* An event from within a poll, as soon as there are fewer than so many. */
	if (of->shared_receives)
		assert_int_equal(ibv_modify_srq(pair.server.srq,
						&(struct ibv_srq_attr){.srq_limit = 1},
						IBV_SRQ_LIMIT),
				 0);
	survived = false;
	assert_int_equal(pthread_create(&thread, NULL, work_while_cancelled, &pair), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_true(survived);
	pair_close(&pair);
}

static void test_verbs_calls_are_no_cancellation_points(void **state)
{
	static const struct pair_options shared = {.bytes = MIB, .shared_receives = true};

	(void)state;
	survive(&options);
	survive(&shared);
}

static void *register_while_cancelled(void *pd)
{
	static uint8_t bytes[64];
	struct ibv_mr *mr;

	cancel_oneself();
	mr = ibv_reg_mr(pd, bytes, sizeof(bytes), ALL_ACCESS);
	survived = mr && !ibv_dereg_mr(mr);
	pthread_testcancel();
	return NULL;
}

/* Ended there, the thread would leave the table of regions locked for everybody. */
static void test_registration_is_no_cancellation_point(void **state)
{
	struct pair pair;
	pthread_t thread;
	void *result;

	(void)state;
	pair_open(&pair, &options);
	survived = false;
	assert_int_equal(pthread_create(&thread, NULL, register_while_cancelled, pair.client.pd),
			 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_true(survived);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thread_has_all_signals_blocked),
		cmocka_unit_test(test_signals_reach_the_programs_own_thread),
		cmocka_unit_test(test_signal_interrupts_get_cq_event),
		cmocka_unit_test(test_thread_of_an_idle_process_sleeps),
		cmocka_unit_test(test_no_sigpipe_however_a_peer_ends),
		cmocka_unit_test(test_parent_goes_on_after_fork),
		cmocka_unit_test(test_child_that_lives_on_holds_nothing_open),
		cmocka_unit_test(test_no_descriptor_survives_exec),
		cmocka_unit_test(test_connections_leave_no_descriptor_behind),
		cmocka_unit_test(test_verbs_calls_are_no_cancellation_points),
		cmocka_unit_test(test_registration_is_no_cancellation_point),
	};

	return cmocka_run_group_tests_name("soft_process", tests, NULL, NULL);
}
