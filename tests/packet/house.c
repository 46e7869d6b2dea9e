/* SPDX-License-Identifier: MIT */
#include "house.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int namespaces[2]; /* here, there */

uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- the place ---- */

static void skip_all(const char *why)
{
	printf("skipped: %s\n", why);
	exit(getenv("CI") ? 1 : 77);
}

static int new_namespace(void)
{
	int fd;

	if (unshare(CLONE_NEWNET))
		skip_all("a network namespace needs root");
	fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void run(const char *command)
{
	if (system(command)) {
		fprintf(stderr, "failed: %s\n", command);
		exit(1);
	}
}

void here_run(const char *command)
{
	run(command);
}

void there_run(const char *command)
{
	assert_int_equal(setns(namespaces[1], CLONE_NEWNET), 0);
	run(command);
	assert_int_equal(setns(namespaces[0], CLONE_NEWNET), 0);
}

const char *house_path(void)
{
	static char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), namespaces[0]);
	return path;
}

void house_enter(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(setns(fd, CLONE_NEWNET), 0);
	close(fd);
}

/* An interface that has just come up drops what it is to send for a moment. */
static void wait_for_way(bool to_there)
{
	int from = udp_open(!to_there, 0), to = udp_open(to_there, 9);
	uint64_t until = now_ms() + WAIT_MS;
	struct pollfd arrival = {.fd = to, .events = POLLIN};

	do {
		assert_true(now_ms() < until);
		udp_send(from, to_there ? ADDRESS_THERE : ADDRESS_HERE, 9, "up?");
	} while (poll(&arrival, 1, 5) <= 0);
	close(from);
	close(to);
}

/* Neighbours are known from the start: no frame of the kernel's own comes between. */
void house_build(void)
{
	house_build_queues(1);
}

void house_build_queues(unsigned queues)
{
	char command[512];

	namespaces[1] = new_namespace();
	namespaces[0] = new_namespace();
	snprintf(command, sizeof(command),
		 "ip link add " HERE
		 " mtu 9000 address 02:77:00:00:00:01 numrxqueues %u numtxqueues %u type veth"
		 " peer name " THERE
		 " mtu 9000 address 02:77:00:00:00:02 numrxqueues %u numtxqueues %u"
		 " netns /proc/%d/fd/%d",
		 queues, queues, queues, queues, (int)getpid(), namespaces[1]);
	run(command);
	run("sysctl -qw net.ipv6.conf.all.accept_ra=0 net.ipv6.conf." HERE ".accept_dad=0");
	run("ip address add " ADDRESS_HERE "/24 dev " HERE
	    " && ip -6 address add fd77::1/64 nodad dev " HERE " && ip link set " HERE
	    " up && ip link set lo up && ip neighbour add " ADDRESS_THERE
	    " lladdr 02:77:00:00:00:02 dev " HERE);
	there_run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 && ip address add " ADDRESS_THERE
		  "/24 dev " THERE " && ip link set " THERE
		  " up && ip link set lo up && ip neighbour add " ADDRESS_HERE
		  " lladdr 02:77:00:00:00:01 dev " THERE);
	wait_for_way(true);
	wait_for_way(false);
}

int there_socket(int family, int type, int protocol)
{
	int fd;

	assert_int_equal(setns(namespaces[1], CLONE_NEWNET), 0);
	fd = socket(family, type | SOCK_CLOEXEC, protocol);
	assert_int_equal(setns(namespaces[0], CLONE_NEWNET), 0);
	assert_true(fd >= 0);
	return fd;
}

bool back_end_is(const char *name)
{
	const char *wanted = getenv("SOFTRDMA_RAW");

	return wanted && !strcmp(wanted, name);
}

/* ---- frames there ---- */

static unsigned index_there(void)
{
	unsigned index;

	assert_int_equal(setns(namespaces[1], CLONE_NEWNET), 0);
	index = if_nametoindex(THERE);
	assert_int_equal(setns(namespaces[0], CLONE_NEWNET), 0);
	assert_true(index > 0);
	return index;
}

int there_open(void)
{
	struct sockaddr_ll address = {.sll_family = AF_PACKET,
				      .sll_protocol = htons(ETHERTYPE_IP),
				      .sll_ifindex = (int)index_there()};
	int fd = there_socket(AF_PACKET, SOCK_RAW, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

void there_send_bytes(int fd, const void *frame, size_t len)
{
	assert_int_equal(send(fd, frame, len, 0), len);
}

void there_send(int fd, const struct fields *fields)
{
	uint8_t frame[FRAME_MAX];

	there_send_bytes(fd, frame, frame_build(fields, frame));
}

static bool wait_readable(int fd, uint64_t until)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	uint64_t now = now_ms();

	return now < until && poll(&poll_fd, 1, (int)(until - now)) > 0;
}

size_t there_receive(int fd, uint16_t ether_type, uint8_t out[FRAME_MAX])
{
	uint64_t until = now_ms() + WAIT_MS;

	while (wait_readable(fd, until)) {
		ssize_t got = recv(fd, out, FRAME_MAX, 0);

		if (got >= 14 && (out[12] << 8 | out[13]) == ether_type)
			return (size_t)got;
	}
	fail_msg("no frame arrived there");
	return 0;
}

/* ---- UDP ---- */

static struct sockaddr_in ipv4(const char *text, uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};

	assert_int_equal(inet_pton(AF_INET, text, &address.sin_addr), 1);
	return address;
}

int udp_open(bool there, uint16_t port)
{
	struct sockaddr_in address = ipv4(there ? ADDRESS_THERE : ADDRESS_HERE, port);
	int fd = there ? there_socket(AF_INET, SOCK_DGRAM, 0)
		       : socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

void udp_send(int fd, const char *address, uint16_t port, const char *text)
{
	struct sockaddr_in to = ipv4(address, port);

	assert_int_equal(sendto(fd, text, strlen(text), 0, (struct sockaddr *)&to, sizeof(to)),
			 strlen(text));
}

bool udp_has(int fd, const char *text, bool must)
{
	char got[256] = "";

	if (must && !wait_readable(fd, now_ms() + WAIT_MS))
		return false;
	if (recv(fd, got, sizeof(got) - 1, MSG_DONTWAIT) < 0)
		return false;
	assert_string_equal(got, text);
	return true;
}

/* ---- a queue pair here ---- */

struct ibv_context *open_here(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	assert_non_null(list);
	for (unsigned i = 0; list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "soft_" HERE))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(context);
	return context;
}

static void move_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1};

	assert_int_equal(
		ibv_modify_qp(qp, &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0)),
		0);
}

void end_open(struct end *end, unsigned receives)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = END_FRAMES,
			.max_recv_wr = END_FRAMES,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 256},
		.qp_type = IBV_QPT_RAW_PACKET,
		.sq_sig_all = 1,
	};

	*end = (struct end){.context = open_here()};
	end->pd = ibv_alloc_pd(end->context);
	assert_non_null(end->pd);
	end->memory = malloc(2 * END_FRAMES * END_ROOM);
	assert_non_null(end->memory);
	end->mr =
		ibv_reg_mr(end->pd, end->memory, 2 * END_FRAMES * END_ROOM, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(end->mr);
	end->channel = ibv_create_comp_channel(end->context);
	assert_non_null(end->channel);
	end->send_cq = ibv_create_cq(end->context, END_FRAMES, NULL, NULL, 0);
	end->recv_cq = ibv_create_cq(end->context, END_FRAMES, NULL, end->channel, 0);
	assert_true(end->send_cq && end->recv_cq);
	attr.send_cq = end->send_cq;
	attr.recv_cq = end->recv_cq;
	end->qp = ibv_create_qp(end->pd, &attr);
	assert_non_null(end->qp);
	move_to(end->qp, IBV_QPS_INIT);
	for (unsigned i = 0; i < receives; i++)
		end_post(end, i);
	move_to(end->qp, IBV_QPS_RTR);
	move_to(end->qp, IBV_QPS_RTS);
}

struct ibv_qp *end_create_qp(struct end *end, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RAW_PACKET,
		.sq_sig_all = 1,
	};

	return ibv_create_qp(end->pd, &attr);
}

void end_close(struct end *end)
{
	assert_int_equal(ibv_destroy_qp(end->qp), 0);
	assert_int_equal(ibv_destroy_cq(end->send_cq), 0);
	assert_int_equal(ibv_destroy_cq(end->recv_cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(end->channel), 0);
	assert_int_equal(ibv_dereg_mr(end->mr), 0);
	assert_int_equal(ibv_dealloc_pd(end->pd), 0);
	assert_int_equal(ibv_close_device(end->context), 0);
	free(end->memory);
}

void end_post(struct end *end, unsigned id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)end->memory + (uint64_t)id * END_ROOM,
			      .length = END_ROOM,
			      .lkey = end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(end->qp, &wr, &bad), 0);
}

uint8_t *end_send_buffer(const struct end *end, unsigned id)
{
	return end->memory + (size_t)(END_FRAMES + id) * END_ROOM;
}

void end_send(struct end *end, unsigned id, uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)end_send_buffer(end, id), .length = len, .lkey = end->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
			   *bad;

	assert_int_equal(ibv_post_send(end->qp, &wr, &bad), 0);
}

struct ibv_wc end_take(struct ibv_cq *cq)
{
	uint64_t until = now_ms() + WAIT_MS;
	struct ibv_wc wc = {0};
	int count;

	do
		count = ibv_poll_cq(cq, 1, &wc);
	while (!count && now_ms() < until);
	assert_int_equal(count, 1);
	return wc;
}

void end_wait(struct end *end)
{
	struct ibv_wc wc = end_take(end->recv_cq);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.qp_num, end->qp->qp_num);
	memcpy(end->arrived, end->memory + wc.wr_id * END_ROOM, wc.byte_len);
	end->length = wc.byte_len;
	end_post(end, (unsigned)wc.wr_id);
}

void end_expect(struct end *end, const struct fields *fields)
{
	uint8_t frame[FRAME_MAX];
	size_t len = frame_build(fields, frame);

	end_wait(end);
	assert_int_equal(end->length, len);
	assert_memory_equal(end->arrived, frame, len);
}

bool end_is_empty(struct end *end)
{
	struct ibv_wc wc;

	return ibv_poll_cq(end->recv_cq, 1, &wc) == 0;
}

struct ibv_flow *flow_add(struct end *end, struct rule *rule)
{
	struct ibv_flow *flow = ibv_create_flow(end->qp, &rule->attr);

	if (!flow)
		fail_msg("ibv_create_flow: %s", strerror(errno));
	return flow;
}

struct ibv_flow *flow_add_port(struct end *end, uint16_t port)
{
	struct fields fields = frame_udp4;
	struct rule rule;

	fields.dst_port = port;
	rule_build(&rule, &fields, 1u << F_DST_PORT, MASK_ALL);
	return flow_add(end, &rule);
}

void flow_remove(struct ibv_flow *flow)
{
	assert_int_equal(ibv_destroy_flow(flow), 0);
}
