/* SPDX-License-Identifier: MIT */
/*
 * The whole life of two sides in one process, every return value checked: devices, a listener, a
 * connection, messages, one-sided transfers, the end. A step that fails is reported and everything
 * is taken down. Then once more: what failed once must not stand in the way of the next.
 *
 * Exit status: 0, all went well; 1, an error was reported; 3, a wait ran out of time, or the second
 * life failed though nothing was wrong any more, or descriptors were left. A hang ends by SIGALRM.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define BYTES       (1u << 20)
#define DEPTH       8
#define WAIT_MS     13000 /* longer than a handshake may take */
#define LIMIT_S     60
#define PERMANENT   8 /* descriptors that stay for the life of the process: at most so many */
#define PIECE_SMALL 64u
#define PIECE_LARGE (300u << 10)

enum { ALL_WELL, REPORTED = 1, STUCK = 3 };

struct end {
	const char *name;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *buf;
	bool ended; /* DISCONNECTED, or an event that says that nothing comes of it */
	bool established;
};

struct life {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct end client, server;
	bool stuck;
};

static volatile bool failed_once; /* the call that was to fail has failed */

void sweep_failed(void);
__attribute__((visibility("default"))) void sweep_failed(void)
{
	failed_once = true;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- reporting ---- */

static bool report(const char *what, int error)
{
	fprintf(stderr, "life: %s: %s\n", what, strerror(error));
	return false;
}

static bool stuck(struct life *life, const char *what)
{
	fprintf(stderr, "life: %s: nothing came\n", what);
	life->stuck = true;
	return false;
}

/* For calls that return -1 or NULL and set errno. */
#define TRY(call)                                                                                  \
	do {                                                                                       \
		errno = 0;                                                                         \
		if (!(call))                                                                       \
			return report(#call, errno);                                               \
	} while (0)

/* ---- devices ---- */

static bool look_at(struct ibv_device *device)
{
	struct ibv_context *context;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	bool good;

	TRY((context = ibv_open_device(device)));
	good = !ibv_query_device(context, &attr) && !ibv_query_port(context, 1, &port) &&
	       !ibv_query_gid(context, 1, 0, &gid);
	if (ibv_close_device(context))
		return report("ibv_close_device", EBUSY);
	return good || report("queries", errno);
}

static bool look_at_devices(void)
{
	struct ibv_device **list;
	bool good = true;
	int count;

	TRY((list = ibv_get_device_list(&count)));
	for (int i = 0; i < count && good; i++)
		good = look_at(list[i]);
	ibv_free_device_list(list);
	return good;
}

/* ---- events ---- */

static void note_event(struct end *end, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ESTABLISHED:
		end->established = true;
		break;
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		fprintf(stderr, "life: %s: %s (%d)\n", end->name, rdma_event_str(event->event),
			event->status);
		end->ended = true;
		break;
	}
}

/* Take what has come within @ms. False: an error. */
static bool take_event(struct end *end, int ms)
{
	struct pollfd fd = {.fd = end->channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	if (poll(&fd, 1, ms) != 1)
		return true;
	while (rdma_get_cm_event(end->channel, &event)) {
		if (errno != EINTR)
			return report("rdma_get_cm_event", errno);
	}
	note_event(end, event);
	TRY(!rdma_ack_cm_event(event));
	return true;
}

/* The next event of a step that has just one. */
static bool await_step(struct life *life, struct end *end, const char *what)
{
	struct pollfd fd = {.fd = end->channel->fd, .events = POLLIN};

	if (poll(&fd, 1, WAIT_MS) != 1)
		return stuck(life, what);
	return take_event(end, 0) && !end->ended;
}

/* ---- both ends ---- */

static bool equip(struct end *end)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	TRY((end->pd = ibv_alloc_pd(end->id->verbs)));
	TRY((end->comp = ibv_create_comp_channel(end->id->verbs)));
	TRY((end->cq = ibv_create_cq(end->id->verbs, 4 * DEPTH, NULL, end->comp, 0)));
	attr.send_cq = attr.recv_cq = end->cq;
	TRY(!rdma_create_qp(end->id, end->pd, &attr));
	TRY((end->buf = calloc(1, BYTES)));
	TRY((end->mr = ibv_reg_mr(end->pd, end->buf, BYTES, access)));
	return true;
}

static bool take_down(struct end *end)
{
	bool good = true;

	if (end->id && end->id->qp)
		rdma_destroy_qp(end->id);
	good &= !end->mr || !ibv_dereg_mr(end->mr);
	good &= !end->cq || !ibv_destroy_cq(end->cq);
	good &= !end->comp || !ibv_destroy_comp_channel(end->comp);
	good &= !end->pd || !ibv_dealloc_pd(end->pd);
	good &= !end->id || !rdma_destroy_id(end->id);
	if (end->channel)
		rdma_destroy_event_channel(end->channel);
	free(end->buf);
	return good || report("taking down", errno);
}

static bool post_recv(struct end *end, uint64_t id, uint32_t len)
{
	struct ibv_sge piece = {.addr = (uintptr_t)end->buf, .length = len, .lkey = end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &piece, .num_sge = 1}, *bad;
	int error = ibv_post_recv(end->id->qp, &wr, &bad);

	return !error || report("ibv_post_recv", error);
}

static bool post(struct end *end, enum ibv_wr_opcode opcode, uint64_t id, uint32_t len,
		 const struct end *to)
{
	struct ibv_sge piece = {.addr = (uintptr_t)end->buf, .length = len, .lkey = end->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &piece, .num_sge = 1, .opcode = opcode};
	struct ibv_send_wr *bad;
	int error;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)to->buf;
		wr.wr.atomic.rkey = to->mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)to->buf;
		wr.wr.rdma.rkey = to->mr->rkey;
	}
	error = ibv_post_send(end->id->qp, &wr, &bad);
	return !error || report("ibv_post_send", error);
}

/* Sleep in the device until there is an event. The alarm bounds it. */
static bool sleep_for_event(struct end *end)
{
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(end->comp, &cq, &context)) {
		if (errno != EINTR)
			return report("ibv_get_cq_event", errno);
	}
	ibv_ack_cq_events(cq, 1);
	return true;
}

/* A completion, waited for as a sleeper does. */
static bool await_wc(struct life *life, struct end *end, struct ibv_wc *wc)
{
	struct pollfd fd = {.fd = end->comp->fd, .events = POLLIN};
	uint64_t until = now_ms() + WAIT_MS;

	while (now_ms() < until) {
		int count = ibv_poll_cq(end->cq, 1, wc);
		int error = count ? 0 : ibv_req_notify_cq(end->cq, 0);

		if (!count && !error)
			count = ibv_poll_cq(end->cq, 1, wc);
		if (error || count < 0)
			return report("completion queue", errno);
		if (count)
			return true;
		if (poll(&fd, 1, 100) == 1 && !sleep_for_event(end))
			return false;
	}
	return stuck(life, "a completion");
}

/* The requests with these ids complete, in any order among the two queues. */
static bool await_ids(struct life *life, struct end *end, unsigned ids)
{
	struct ibv_wc wc;

	while (ids) {
		if (!await_wc(life, end, &wc))
			return false;
		if (wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "life: %s: request %u: %s\n", end->name, (unsigned)wc.wr_id,
				ibv_wc_status_str(wc.status));
			return false;
		}
		if (!(ids & 1u << wc.wr_id)) {
			fprintf(stderr, "life: %s: request %u completed twice, or never posted\n",
				end->name, (unsigned)wc.wr_id);
			life->stuck = true;
			return false;
		}
		ids &= ~(1u << wc.wr_id);
	}
	return true;
}

/* ---- the connection ---- */

static bool start_listening(struct life *life)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	TRY((life->channel = rdma_create_event_channel()));
	TRY(!rdma_create_id(life->channel, &life->listener, NULL, RDMA_PS_TCP));
	TRY(!rdma_bind_addr(life->listener, (struct sockaddr *)&at));
	TRY(!rdma_listen(life->listener, 4));
	return true;
}

static bool start_connecting(struct life *life)
{
	struct rdma_conn_param param = {.initiator_depth = 4, .responder_resources = 4};
	struct end *client = &life->client;
	struct rdma_addrinfo *info,
		hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
	char port[8];
	int error;

	snprintf(port, sizeof(port), "%u", ntohs(rdma_get_src_port(life->listener)));
	TRY((client->channel = rdma_create_event_channel()));
	TRY(!rdma_create_id(client->channel, &client->id, NULL, RDMA_PS_TCP));
	TRY(!rdma_getaddrinfo((char *)(uintptr_t) "127.0.0.1", port, &hints, &info));
	error = rdma_resolve_addr(client->id, NULL, info->ai_dst_addr, 2000) ? errno : 0;
	rdma_freeaddrinfo(info);
	if (error)
		return report("rdma_resolve_addr", error);
	if (!await_step(life, client, "the address"))
		return false;
	TRY(!rdma_resolve_route(client->id, 2000));
	if (!await_step(life, client, "the route"))
		return false;
	if (!equip(client) || !post_recv(client, 0, BYTES))
		return false;
	TRY(!rdma_connect(client->id, &param));
	return true;
}

static bool take_request(struct life *life)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(life->channel, &event)) {
		if (errno != EINTR)
			return report("rdma_get_cm_event", errno);
	}
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		life->server.id = event->id;
	TRY(!rdma_ack_cm_event(event));
	return life->server.id || report("the listener's event", EPROTO);
}

/* Either the request comes, or the client hears that it does not. */
static bool await_request(struct life *life)
{
	struct pollfd fds[] = {
		{.fd = life->channel->fd, .events = POLLIN},
		{.fd = life->client.channel->fd, .events = POLLIN},
	};

	while (!life->client.ended) {
		if (poll(fds, 2, WAIT_MS) < 1)
			return stuck(life, "the request");
		if (fds[0].revents)
			return take_request(life);
		if (!take_event(&life->client, 0))
			return false;
	}
	return false;
}

static bool accept_request(struct life *life)
{
	struct rdma_conn_param param = {.initiator_depth = 4, .responder_resources = 4};
	struct end *server = &life->server;

	TRY((server->channel = rdma_create_event_channel()));
	TRY(!rdma_migrate_id(server->id, server->channel));
	if (!equip(server) || !post_recv(server, 0, BYTES))
		return false;
	TRY(!rdma_accept(server->id, &param));
	return true;
}

static bool await_established(struct life *life)
{
	uint64_t until = now_ms() + WAIT_MS;

	while (!life->client.established || !life->server.established) {
		if (life->client.ended || life->server.ended)
			return false;
		if (now_ms() > until)
			return stuck(life, "ESTABLISHED");
		if (!take_event(&life->client, 1) || !take_event(&life->server, 1))
			return false;
	}
	return true;
}

static bool start_life(struct life *life)
{
	return look_at_devices() && start_listening(life) && start_connecting(life) &&
	       await_request(life) && accept_request(life) && await_established(life);
}

/* ---- what is done with it ---- */

/* A message each way. The server sleeps for its own; a flush would wake it too. */
static bool exchange(struct life *life)
{
	struct end *client = &life->client, *server = &life->server;

	TRY(!ibv_req_notify_cq(server->cq, 0));
	return post(client, IBV_WR_SEND, 1, PIECE_SMALL, server) &&
	       await_ids(life, client, 1u << 1) && sleep_for_event(server) &&
	       await_ids(life, server, 1u << 0) &&
	       post(server, IBV_WR_SEND_WITH_IMM, 1, PIECE_LARGE, client) &&
	       await_ids(life, server, 1u << 1) && await_ids(life, client, 1u << 0);
}

/* The message waits for its receive, and is over when it has been placed there. */
static bool transfer(struct life *life)
{
	struct end *client = &life->client, *server = &life->server;

	return post(client, IBV_WR_SEND, 2, PIECE_SMALL, server) &&
	       post(client, IBV_WR_RDMA_WRITE, 3, PIECE_LARGE, server) &&
	       post(client, IBV_WR_RDMA_READ, 4, PIECE_LARGE, server) &&
	       post(client, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, sizeof(uint64_t), server) &&
	       post_recv(server, 6, PIECE_SMALL) && await_ids(life, server, 1u << 6) &&
	       await_ids(life, client, 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5);
}

static bool talk(struct life *life)
{
	return exchange(life) && transfer(life);
}

static bool await_ended(struct life *life)
{
	uint64_t until = now_ms() + WAIT_MS;

	while (!life->client.ended || !life->server.ended) {
		if (now_ms() > until)
			return stuck(life, "DISCONNECTED");
		if (!take_event(&life->client, 1) || !take_event(&life->server, 1))
			return false;
	}
	return true;
}

static bool part(struct life *life)
{
	TRY(!rdma_disconnect(life->client.id));
	return await_ended(life);
}

/* One side reports an error: the other must hear of the end, if it was connected. */
static void give_up(struct life *life)
{
	struct end *client = &life->client, *server = &life->server;

	if (client->established && !client->ended && client->id)
		rdma_disconnect(client->id);
	else if (server->established && !server->ended && server->id)
		rdma_disconnect(server->id);
	if (client->established && server->established && !life->stuck)
		await_ended(life);
}

static int live(void)
{
	struct life life = {.client.name = "client", .server.name = "server"};
	bool good = start_life(&life) && talk(&life) && part(&life);

	if (!good)
		give_up(&life);
	good &= take_down(&life.client);
	good &= take_down(&life.server);
	if (life.listener && rdma_destroy_id(life.listener))
		good = report("rdma_destroy_id", errno);
	if (life.channel)
		rdma_destroy_event_channel(life.channel);
	if (life.stuck)
		return STUCK;
	return good ? ALL_WELL : REPORTED;
}

/* ---- descriptors ---- */

static unsigned count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

/* What lingers has two seconds for it. */
static bool descriptors_fall_to(unsigned most)
{
	uint64_t until = now_ms() + 5000;

	while (count_descriptors() > most) {
		if (now_ms() > until) {
			fprintf(stderr, "life: %u descriptors are open, at most %u were expected\n",
				count_descriptors(), most);
			return false;
		}
		poll(NULL, 0, 5);
	}
	return true;
}

/* One life with at most @count. */
static int live_with(rlim_t count)
{
	struct rlimit limit, before;
	int status;

	if (getrlimit(RLIMIT_NOFILE, &before))
		return 2;
	limit = (struct rlimit){.rlim_cur = count, .rlim_max = before.rlim_max};
	if (setrlimit(RLIMIT_NOFILE, &limit))
		return 2;
	status = live();
	setrlimit(RLIMIT_NOFILE, &before); /* leak detectors need some too */
	return status;
}

/* Two lives: what failed in the first must not stand in the way of the second. */
static int live_twice(void)
{
	unsigned before = count_descriptors();
	int status = ALL_WELL;

	for (int i = 0; i < 2; i++) {
		bool had_failed = failed_once;

		status = live();
		if (status == REPORTED && had_failed) {
			fprintf(stderr, "life: the second one failed too\n");
			status = STUCK;
		}
		if (status == STUCK)
			return STUCK;
	}
	return descriptors_fall_to(before + PERMANENT) ? status : STUCK;
}

/* life [DESCRIPTORS] */
int main(int argc, char **argv)
{
	int status;

	alarm(LIMIT_S);
	if (argc > 1)
		return live_with((rlim_t)atoi(argv[1]));
	status = live_twice();
	printf("%s\n", failed_once ? "failed" : "not reached");
	return status;
}
