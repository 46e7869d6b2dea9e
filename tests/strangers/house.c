/* SPDX-License-Identifier: MIT */
/* The listener, the good connection and the scenes. */
#include "house.h"

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define STALL_MS 5000 /* the good connection may pause for so long on a machine that is busy */

static struct {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct pair good;
	bool has_thread; /* that keeps the good connection moving */
	pthread_t thread;
	uint64_t until; /* without one: the round at hand must be over by then */
	atomic_bool stop;
	atomic_uint rounds;
	atomic_int failed; /* a completion's status, or -1 */
	unsigned descriptors;
	pid_t opened_by; /* 0: it was closed, and all was well */
} house;

unsigned count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

size_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long total, resident;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
	fclose(file);
	return resident * (size_t)sysconf(_SC_PAGESIZE);
}

void expect_growth_below(size_t before, size_t limit)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	(void)before;
	(void)limit;
#else
	assert_true(resident_bytes() < before + limit);
#endif
}

/* ---- the good connection: a program that sleeps on its channel and never spins ---- */

static bool take_completion(struct side *side)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(side->recv_cq, 1, &wc) == 1) {
		if (wc.status == IBV_WC_SUCCESS)
			return true;
		atomic_store(&house.failed, (int)wc.status);
	}
	return false;
}

static void take_event(struct side *side)
{
	struct pollfd fd = {.fd = side->comp->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, 100) == 1 && !ibv_get_cq_event(side->comp, &cq, &context))
		ibv_ack_cq_events(cq, 1);
}

static bool goes_on(void)
{
	return !atomic_load(&house.stop) && !atomic_load(&house.failed) &&
	       (house.has_thread || now_ms() < house.until);
}

static bool await_message(struct side *side)
{
	while (goes_on()) {
		if (take_completion(side))
			return true;
		ibv_req_notify_cq(side->recv_cq, 0);
		if (take_completion(side))
			return true;
		take_event(side);
	}
	return false;
}

static void post_recv(struct side *side)
{
	struct ibv_sge piece = {.addr = (uintptr_t)side->buf, .length = 64, .lkey = side->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &piece, .num_sge = 1}, *bad;

	if (ibv_post_recv(side->qp, &wr, &bad))
		atomic_store(&house.failed, -1);
}

static void post_send(struct side *side)
{
	struct ibv_sge piece = {
		.addr = (uintptr_t)side->buf + 64, .length = 64, .lkey = side->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	if (ibv_post_send(side->qp, &wr, &bad))
		atomic_store(&house.failed, -1);
}

static void run_round(void)
{
	struct side *client = &house.good.client, *server = &house.good.server;

	post_send(client);
	if (!await_message(server))
		return;
	post_recv(server);
	post_send(server);
	if (!await_message(client))
		return;
	post_recv(client);
	atomic_fetch_add(&house.rounds, 1);
}

static void *run_good(void *unused)
{
	(void)unused;
	while (goes_on())
		run_round();
	return NULL;
}

void house_check(void)
{
	unsigned from = atomic_load(&house.rounds);
	/* The first that its thread ends may have begun before. */
	unsigned enough = house.has_thread ? 5 : 1;
	uint64_t begin = now_ms();

	house.until = begin + STALL_MS;
	while (atomic_load(&house.rounds) - from < enough) {
		if (house.has_thread)
			poll(NULL, 0, 1);
		else
			run_round();
		if (atomic_load(&house.failed))
			fail_msg("the good connection failed: %d", atomic_load(&house.failed));
		if (now_ms() - begin > STALL_MS)
			fail_msg("the good connection stalls");
	}
	assert_false(fd_is_readable(house.good.client.channel->fd, 0));
	assert_false(fd_is_readable(house.good.server.channel->fd, 0));
}

void house_check_newcomer(void)
{
	static const struct pair_options options = {.depth = 8};
	struct side client = {0}, server = {0};

	side_resolve(&client, house_port());
	side_equip(&client, &options);
	side_connect(&client, &options);
	side_accept(&server, house.channel, &options);
	side_recv(&server, 1, 0, 64);
	side_await_established(&client);
	assert_int_equal(cm_expect(server.channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	side_send(&client, 2, 0, 64);
	cq_expect(server.recv_cq, 1, IBV_WC_SUCCESS);
	cq_expect(client.send_cq, 2, IBV_WC_SUCCESS);
	assert_int_equal(rdma_disconnect(client.id), 0);
	cm_expect(client.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(server.channel, RDMA_CM_EVENT_DISCONNECTED);
	side_close(&client);
	side_close(&server);
}

/* cmocka's result says nothing of a teardown that failed. */
static void fail_unless_closed(void)
{
	if (house.opened_by != getpid())
		return;
	fflush(NULL);
	_exit(1);
}

void house_open_quietly(void)
{
	static const struct pair_options options = {.depth = 16};
	struct sockaddr_storage at;

	/* The first of each kind stays: the device's context, the thread's descriptors. */
	pair_open(&house.good, &options);
	test_address(&at, 0);
	house.channel = rdma_create_event_channel();
	assert_non_null(house.channel);
	house.listener = listen_at(house.channel, &at, 4096);
	post_recv(&house.good.client);
	post_recv(&house.good.server);
	house.descriptors = count_descriptors();
}

int house_open(void **state)
{
	(void)state;
	house.opened_by = getpid();
	assert_int_equal(atexit(fail_unless_closed), 0);
	house_open_quietly();
	house.has_thread = true;
	assert_int_equal(pthread_create(&house.thread, NULL, run_good, NULL), 0);
	house_check(); /* sides that share memory have closed their TCP connection by then */
	house.descriptors = count_descriptors();
	return 0;
}

/* What lingers has two seconds for it. */
static void expect_descriptors(unsigned expected)
{
	uint64_t end = now_ms() + WAIT_MS;

	while (count_descriptors() != expected && now_ms() < end)
		poll(NULL, 0, 20);
	assert_int_equal(count_descriptors(), expected);
}

int house_close(void **state)
{
	(void)state;
	house_check();
	expect_descriptors(house.descriptors);
	atomic_store(&house.stop, true);
	pthread_join(house.thread, NULL);
	if (fd_is_readable(house.channel->fd, 0))
		fail_msg("an event was left: %s", rdma_event_str(cm_next(house.channel)->event));
	rdma_destroy_id(house.listener);
	rdma_destroy_event_channel(house.channel);
	pair_close(&house.good);
	house.opened_by = 0;
	return 0;
}

uint16_t house_port(void)
{
	return rdma_get_src_port(house.listener);
}

struct rdma_event_channel *house_channel(void)
{
	return house.channel;
}

/* ---- scenes ---- */

static struct mpa_frame request_for(const struct scene_options *options, const struct offer *offer)
{
	return (struct mpa_frame){
		.kind = MPA_REQUEST,
		.revision = options->enhanced   ? 2
			    : options->revision ? options->revision
						: 1,
		.crc = options->crc,
		.soft = options->soft,
		.shm = options->offer_shm != NULL,
		.enhanced = options->enhanced,
		.peer_to_peer = options->peer_to_peer,
		.rtr = options->rtr,
		.ird = options->ird,
		.ord = options->ord,
		.private_data = (const uint8_t *)offer,
		.private_len = sizeof(*offer),
	};
}

static void make_arena(struct scene *scene, unsigned access)
{
	scene->arena = malloc(GUARD + REGION + GUARD);
	assert_non_null(scene->arena);
	memset(scene->arena, FRESH, GUARD + REGION + GUARD);
	scene->region = scene->arena + GUARD;
	scene->mr = ibv_reg_mr(scene->side.pd, scene->region, REGION,
			       (int)(access ? access : ALL_ACCESS));
	assert_non_null(scene->mr);
}

void scene_open(struct scene *scene, const struct scene_options *options)
{
	static const struct scene_options plain;
	struct offer offer = {.addr = SINK_TO, .key = SINK_STAG, .len = 1u << 20};
	struct mpa_frame request;

	if (!options)
		options = &plain;
	memset(scene, 0, sizeof(*scene));
	request = request_for(options, &offer);
	stranger_connect(&scene->stranger, house_port());
	if (options->offer_shm)
		options->offer_shm(&scene->stranger);
	stranger_say_frame(&scene->stranger, &request);
	side_accept(&scene->side, house.channel, &options->side);
	make_arena(scene, options->access);
	memset(scene->side.buf, FRESH, scene->side.size);
	for (unsigned i = 0; !options->no_recv && i < RECVS; i++)
		side_recv(&scene->side, i, i * 2 * ROOM, ROOM);
	scene->recvs.posted = options->no_recv ? 0 : RECVS;
	stranger_hear_frame(&scene->stranger, MPA_REPLY, scene->reply_bytes, &scene->reply);
	assert_false(scene->reply.reject);
	scene->stranger.crc = scene->reply.crc;
	if (!options->unopened)
		assert_int_equal(cm_expect(scene->side.channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

uint64_t scene_to(const struct scene *scene)
{
	return (uintptr_t)scene->region;
}

void scene_expect_recv(struct scene *scene, uint32_t len, uint8_t value)
{
	struct ibv_wc wc = cq_next(scene->side.recv_cq);
	size_t at = (size_t)wc.wr_id * 2 * ROOM;

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, len);
	assert_true(is_all(scene->side.buf + at, len, value));
	tally_count(&scene->recvs, &wc);
}

void scene_expect_disconnected(struct scene *scene)
{
	tally_drain(&scene->recvs, scene->side.recv_cq);
	cm_expect(scene->side.channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_false(fd_is_readable(scene->side.channel->fd, 0));
}

void scene_expect_terminate(struct scene *scene, uint16_t code)
{
	stranger_expect_terminate(&scene->stranger, code);
	scene_expect_disconnected(scene);
}

void scene_expect_alive(struct scene *scene)
{
	static struct fpdu fpdu;

	fpdu_send(&fpdu, &scene->stranger, 24, 0x77);
	stranger_say_fpdu(&scene->stranger, &fpdu);
	scene_expect_recv(scene, 24, 0x77);
	side_settle(&scene->side);
	memset(scene->side.buf + 32 * KIB, 0x66, 40);
	side_send(&scene->side, 99, 32 * KIB, 40);
	cq_expect(scene->side.send_cq, 99, IBV_WC_SUCCESS);
	stranger_expect_send(&scene->stranger, 40, 0x66);
}

int scene_send_queue(const struct scene *scene)
{
	int bytes = 0;
	socklen_t len = sizeof(bytes);

	assert_int_equal(getsockopt(stranger_other_end(&scene->stranger), SOL_SOCKET, SO_SNDBUF,
				    &bytes, &len),
			 0);
	return bytes;
}

void scene_shrink_buffers(struct scene *scene)
{
	const int small = 64 << 10;

	assert_int_equal(
		setsockopt(scene->stranger.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	assert_int_equal(setsockopt(stranger_other_end(&scene->stranger), SOL_SOCKET, SO_SNDBUF,
				    &small, sizeof(small)),
			 0);
}

bool scene_is_untouched(const struct scene *scene)
{
	return is_all(scene->arena, GUARD + REGION + GUARD, FRESH);
}

static void check_guards(struct scene *scene)
{
	const uint8_t *end = scene->region + REGION;

	assert_true(is_all(scene->arena, GUARD, FRESH));
	assert_true(is_all(end, GUARD, FRESH));
	for (unsigned i = 0; i < scene->recvs.posted && i < RECVS; i++)
		assert_true(is_all(scene->side.buf + i * 2 * ROOM + ROOM, ROOM, FRESH));
}

void scene_close(struct scene *scene)
{
	house_check();
	if (scene->mr)
		assert_int_equal(ibv_dereg_mr(scene->mr), 0);
	side_settle(&scene->side);
	check_guards(scene);
	side_close(&scene->side);
	stranger_close(&scene->stranger);
	free(scene->arena);
}

void scene_refuse(struct scene *scene, struct fpdu *fpdu, uint16_t code)
{
	stranger_say_fpdu(&scene->stranger, fpdu);
	scene_expect_terminate(scene, code);
	assert_true(scene_is_untouched(scene));
}
