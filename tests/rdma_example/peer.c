/* SPDX-License-Identifier: MIT */
/*
 * The other side of rdma_server or rdma_client, on bare verbs and with nothing of their sources: it
 * does what the original programs do, byte for byte, or one thing that it should not.
 *
 *   peer client ADDRESS PORT BEHAVIOUR [STRING | KEY@ADDRESS]
 *   peer server ADDRESS PORT BEHAVIOUR
 *
 * Status 0: all went as the behaviour wants it. Lines on stdout tell what was seen.
 */
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#define EVERYTHING  (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
#define RESOLVE_MS  2000
#define MOST_STRING 4096

/* 16 bytes in our byte order. */
struct record {
	uint64_t address;
	uint32_t length;
	uint32_t stag;
} __attribute__((packed));

static struct {
	const char *behaviour, *argument;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	uint8_t received[sizeof(struct record)], sent[2 * sizeof(struct record)];
	struct ibv_mr *received_mr, *sent_mr;
	struct record theirs;
} me;

static bool is(const char *behaviour)
{
	return !strcmp(me.behaviour, behaviour);
}

static void fail(const char *what)
{
	fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void must(bool is_so, const char *what)
{
	if (!is_so)
		fail(what);
}

/* How long anything may take. */
static int patience_ms(void)
{
	const char *times = getenv("SOFTRDMA_TEST_PATIENCE");

	return 20000 * (times ? atoi(times) : 1);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool is_readable(int fd, int ms)
{
	struct pollfd one = {.fd = fd, .events = POLLIN};

	return poll(&one, 1, ms) == 1;
}

/* ---- events and completions ---- */

/* Take and ack the next event; its id too, for a connect request. */
static enum rdma_cm_event_type next_event(struct rdma_cm_id **id)
{
	enum rdma_cm_event_type type;
	struct rdma_cm_event *event;

	must(is_readable(me.events->fd, patience_ms()), "no event");
	must(!rdma_get_cm_event(me.events, &event), "rdma_get_cm_event");
	type = event->event;
	if (id)
		*id = event->id;
	rdma_ack_cm_event(event);
	return type;
}

static void expect_event(enum rdma_cm_event_type expected)
{
	enum rdma_cm_event_type type = next_event(NULL);

	if (type == expected)
		return;
	fprintf(stderr, "peer: %s instead of %s\n", rdma_event_str(type), rdma_event_str(expected));
	exit(1);
}

/* Whether a request has succeeded; false: it has failed, or the connection has ended. */
static bool completes(struct ibv_wc *wc)
{
	uint64_t deadline = now_ms() + (uint64_t)patience_ms();

	while (ibv_poll_cq(me.cq, 1, wc) != 1) {
		if (is_readable(me.events->fd, 1) && ibv_poll_cq(me.cq, 1, wc) != 1)
			return false;
		must(now_ms() < deadline, "no completion");
	}
	return wc->status == IBV_WC_SUCCESS;
}

static void await_end(void)
{
	enum rdma_cm_event_type type = next_event(NULL);

	must(type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_REJECTED,
	     rdma_event_str(type));
	puts("ended by the other side");
}

/* ---- what both do ---- */

static struct ibv_mr *reg(void *memory, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(me.pd, memory, length, access);

	must(mr, "ibv_reg_mr");
	return mr;
}

static void equip(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_sge piece = {.length = sizeof(me.received)};
	struct ibv_recv_wr wr = {.sg_list = &piece, .num_sge = 1}, *bad;

	me.pd = ibv_alloc_pd(me.id->verbs);
	must(me.pd, "ibv_alloc_pd");
	me.channel = ibv_create_comp_channel(me.id->verbs);
	must(me.channel, "ibv_create_comp_channel");
	me.cq = ibv_create_cq(me.id->verbs, 16, NULL, me.channel, 0);
	must(me.cq, "ibv_create_cq");
	attr.send_cq = attr.recv_cq = me.cq;
	must(!rdma_create_qp(me.id, me.pd, &attr), "rdma_create_qp");
	me.received_mr = reg(me.received, sizeof(me.received), IBV_ACCESS_LOCAL_WRITE);
	me.sent_mr = reg(me.sent, sizeof(me.sent), IBV_ACCESS_LOCAL_WRITE);
	piece.addr = (uintptr_t)me.received;
	piece.lkey = me.received_mr->lkey;
	must(!ibv_post_recv(me.id->qp, &wr, &bad), "ibv_post_recv");
}

static bool post(enum ibv_wr_opcode opcode, const struct ibv_mr *local, uint32_t length,
		 uint64_t address, uint32_t key)
{
	struct ibv_sge piece = {
		.addr = (uintptr_t)local->addr, .length = length, .lkey = local->lkey};
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &piece,
		.num_sge = length ? 1 : 0,
		.opcode = opcode,
		.send_flags = length ? IBV_SEND_SIGNALED : 0,
		.wr.rdma = {.remote_addr = address, .rkey = key},
	};
	struct ibv_send_wr *bad;

	return !ibv_post_send(me.id->qp, &wr, &bad);
}

/* One request, to its end; whether it has succeeded. */
static bool does(enum ibv_wr_opcode opcode, const struct ibv_mr *local, uint32_t length,
		 uint64_t address, uint32_t key)
{
	struct ibv_wc wc;

	return post(opcode, local, length, address, key) && completes(&wc);
}

static bool sends(const struct record *record, uint32_t bytes)
{
	memcpy(me.sent, record, sizeof(*record));
	return post(IBV_WR_SEND, me.sent_mr, bytes, 0, 0);
}

/* What every hostile record looks like, in either direction; how many bytes of it are sent. */
static uint32_t distort(struct record *record)
{
	if (is("huge"))
		record->length = UINT32_MAX;
	if (is("zero"))
		record->length = 0;
	if (is("wrap"))
		record->address = UINT64_MAX - record->length + 2;
	if (is("badkey"))
		record->stag ^= 0x5a5a5a5a;
	return is("short") ? 12 : is("long") ? 17 : sizeof(*record);
}

/*
 * siw answers a connect before it watches its socket, and overlooks what comes in between until
 * something else comes.
 */
static void nudge_siw(void)
{
	static const int waits_ms[] = {20, 100, 300};
	const char *device = getenv("IBMSG_DEVICE");

	if (!device || strcmp(device, "siw") != 0)
		return;
	for (unsigned i = 0; i < sizeof(waits_ms) / sizeof(*waits_ms); i++) {
		if (is_readable(me.events->fd, waits_ms[i]))
			return;
		post(IBV_WR_RDMA_WRITE, me.sent_mr, 0, 0, 0);
	}
}

/* ---- the client ---- */

static void connect_to(struct sockaddr *address)
{
	struct rdma_conn_param param = {
		.initiator_depth = 3, .responder_resources = 3, .retry_count = 3};

	must(!rdma_create_id(me.events, &me.id, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(!rdma_resolve_addr(me.id, NULL, address, RESOLVE_MS), "rdma_resolve_addr");
	expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
	must(!rdma_resolve_route(me.id, RESOLVE_MS), "rdma_resolve_route");
	expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	equip();
	must(!rdma_connect(me.id, &param), "rdma_connect");
	expect_event(RDMA_CM_EVENT_ESTABLISHED);
	puts("connected");
}

/* The server's record; false: there is none. */
static bool exchange(struct ibv_mr *source)
{
	struct record mine = {(uintptr_t)source->addr, (uint32_t)source->length, source->lkey};
	uint32_t bytes = distort(&mine);
	struct ibv_wc wc;

	if (is("silent"))
		return false;
	must(sends(&mine, bytes), "the record cannot be sent");
	if (is("twice"))
		sends(&mine, bytes);
	nudge_siw();
	/* Two completions: ours has left, theirs has come. */
	for (int i = 0; i < 2; i++)
		if (!completes(&wc))
			return false;
	memcpy(&me.theirs, me.received, sizeof(me.theirs));
	printf("offered 0x%" PRIx32 "@0x%" PRIx64 " %" PRIu32 "\n", me.theirs.stag,
	       me.theirs.address, me.theirs.length);
	return true;
}

/* A key and an address that the server gave to another client. */
static void steal(struct ibv_mr *into)
{
	uint64_t address = 0;
	uint32_t key = 0;

	must(sscanf(me.argument, "0x%" SCNx32 "@0x%" SCNx64, &key, &address) == 2, "KEY@ADDRESS");
	must(!does(IBV_WR_RDMA_READ, into, 1, address, key), "the key of another client opens");
	puts("refused");
}

/* What is more than the server gave. */
static void overreach(struct ibv_mr *from)
{
	uint64_t beyond = me.theirs.address + me.theirs.length - 1;

	/* The second may be needed to hear of the first: a write is not answered on iWARP. */
	must(!does(IBV_WR_RDMA_WRITE, from, 2, beyond, me.theirs.stag) ||
		     !does(IBV_WR_RDMA_READ, from, 1, me.theirs.address, me.theirs.stag),
	     "a byte beyond the buffer can be written");
	puts("refused");
}

static void write_and_read_back(struct ibv_mr *source, struct ibv_mr *copy)
{
	uint32_t length = (uint32_t)source->length;

	must(does(IBV_WR_RDMA_WRITE, source, length, me.theirs.address, me.theirs.stag), "write");
	must(does(IBV_WR_RDMA_READ, copy, length, me.theirs.address, me.theirs.stag), "read");
	must(!memcmp(source->addr, copy->addr, length), "the buffers differ");
	puts("SUCCESS");
}

static void linger(void)
{
	puts("lingering");
	if (is_readable(me.events->fd, -1))
		await_end();
}

static void be_client(struct sockaddr *address)
{
	static uint8_t source[MOST_STRING], copy[MOST_STRING];
	size_t length = strlen(me.argument);
	struct ibv_mr *source_mr, *copy_mr;

	must(length && length <= MOST_STRING, "STRING");
	memcpy(source, me.argument, length);
	connect_to(address);
	source_mr = reg(source, length, EVERYTHING);
	copy_mr = reg(copy, length, EVERYTHING);
	if (!exchange(source_mr)) {
		await_end();
		return;
	}
	if (is("steal"))
		steal(copy_mr);
	else if (is("beyond"))
		overreach(source_mr);
	else if (is("linger"))
		linger();
	else
		write_and_read_back(source_mr, copy_mr);
	if (is("good")) {
		must(!rdma_disconnect(me.id), "rdma_disconnect");
		expect_event(RDMA_CM_EVENT_DISCONNECTED);
	}
}

/* ---- the server ---- */

static void accept_client(struct sockaddr *address)
{
	struct rdma_conn_param param = {.initiator_depth = 3, .responder_resources = 3};
	struct rdma_cm_id *listener;

	must(!rdma_create_id(me.events, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(!rdma_bind_addr(listener, address), "rdma_bind_addr");
	must(!rdma_listen(listener, 8), "rdma_listen");
	puts("Server is listening successfully");
	must(next_event(&me.id) == RDMA_CM_EVENT_CONNECT_REQUEST, "another event");
	if (is("reject")) {
		must(!rdma_reject(me.id, "no\033 thanks", 11), "rdma_reject");
		rdma_destroy_id(me.id);
		exit(0);
	}
	equip();
	must(!rdma_accept(me.id, &param), "rdma_accept");
	expect_event(RDMA_CM_EVENT_ESTABLISHED);
	puts("connected");
}

/*
 * The client's buffer, with the key that it told us. On iWARP a write is not answered, but one that
 * is not allowed ends the connection, long before the client has lost its patience.
 */
static void open_client(enum ibv_wr_opcode opcode)
{
	static uint8_t byte;
	struct ibv_mr *mr = reg(&byte, 1, EVERYTHING);
	bool is_done = does(opcode, mr, 1, me.theirs.address, me.theirs.stag);

	if (is_done && opcode == IBV_WR_RDMA_WRITE)
		is_done = !is_readable(me.events->fd, patience_ms() / 2);
	must(!is_done, "the client's key opens");
	puts("refused");
}

/* What the client's second half is for: it cannot get on, and then it is alone. */
static void stop_and_die(void)
{
	puts("stopping");
	raise(SIGSTOP);
	_exit(0);
}

static void be_server(struct sockaddr *address)
{
	struct ibv_mr *mr;
	struct record mine;
	struct ibv_wc wc;
	uint32_t bytes;
	void *buffer;

	accept_client(address);
	must(completes(&wc) && wc.byte_len == sizeof(me.theirs), "no record of 16 bytes");
	memcpy(&me.theirs, me.received, sizeof(me.theirs));
	printf("asked for %" PRIu32 "\n", me.theirs.length);
	if (is("read") || is("write")) {
		open_client(is("read") ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE);
		return;
	}
	if (is("leave")) {
		rdma_disconnect(me.id);
		return;
	}
	if (is("silent")) {
		await_end();
		return;
	}
	buffer = calloc(1, me.theirs.length);
	must(buffer, "calloc");
	mr = reg(buffer, me.theirs.length, EVERYTHING);
	mine = (struct record){(uintptr_t)buffer, me.theirs.length - is("small"), mr->lkey};
	bytes = distort(&mine);
	must(sends(&mine, bytes), "the record cannot be sent");
	if (completes(&wc) && is("stop"))
		stop_and_die();
	expect_event(RDMA_CM_EVENT_DISCONNECTED);
	printf("holds %.*s\n", is("good") ? (int)me.theirs.length : 0, (char *)buffer);
	ibv_dereg_mr(mr);
	free(buffer);
}

int main(int argc, char **argv)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 5 || getaddrinfo(argv[2], argv[3], &hints, &found)) {
		fputs("usage: peer client|server ADDRESS PORT BEHAVIOUR [ARGUMENT]\n", stderr);
		return 2;
	}
	me.behaviour = argv[4];
	me.argument = argc > 5 ? argv[5] : "hello";
	me.events = rdma_create_event_channel();
	must(me.events, "rdma_create_event_channel");
	if (!strcmp(argv[1], "client"))
		be_client(found->ai_addr);
	else
		be_server(found->ai_addr);
	freeaddrinfo(found);
	return 0;
}
