/* SPDX-License-Identifier: MIT */
/*
 * A raw TCP stranger against a live queue pair of the software device. The input is a program: two
 * bytes say how they are connected, then each operation is a byte and its arguments. Some are the
 * stranger's, some the honest end's. Between two of them the honest end polls, unless LATER is set
 * in the operation.
 */
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tcp/session.h"

/* The first byte. */
#define INITIATOR 0x01 /* the honest end is it */
#define SOFT      0x02 /* the stranger says that it is softrdma */
#define CRC       0x04
#define SRQ       0x08
#define ACKS      0x10 /* with SOFT */
#define P2P       0x20 /* the stranger is the initiator, and opens with an RTR */
#define NARROW    0x40 /* the sockets hold little */
#define REVISION1 0x80 /* of the stranger's request */

/* An operation. */
#define LATER   0x80 /* the honest end does not look in between */
#define MAX_OPS 96

/* In milliseconds: what all waits of an input take at most, and one of each kind. */
#define WAIT_BUDGET 60
#define SHORT_WAIT  8

#define CHECK_EVERY   64 /* inputs: is anything left of them? */
#define END_MS        2000
#define LINGER_MS     4000
#define MAX_FDS       1024
#define NARROW_BYTES  (64 << 10) /* less, and the kernel would open a closed window late */
#define COMPANION_MAX (48u << 10)

int LLVMFuzzerInitialize(int *argc, char ***argv);

/* What is there for all inputs. */
static struct {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	int stranger_listener;
	uint16_t stranger_port;
	struct pair companion; /* another connection, in shared memory */
	unsigned fds;
	unsigned inputs;
} process;

static struct session session;

static bool has(const struct session *s, uint8_t option)
{
	return s->options & option;
}

/* ---- between operations ---- */

static bool has_unread(const struct session *s)
{
	int bytes = 0;

	return !ioctl(s->honest_fd, FIONREAD, &bytes) && bytes;
}

void session_look(struct session *s)
{
	for (int i = 0; i < 64; i++)
		if (!honest_poll(&s->honest) && !has_unread(s))
			break;
}

void session_wait(struct session *s, int ms)
{
	struct pollfd fd = {.fd = s->stranger.fd, .events = POLLIN};
	uint64_t begin = now_ms();

	if (ms > s->wait_budget)
		ms = s->wait_budget;
	if (ms > 0 && fd.fd >= 0)
		poll(&fd, 1, ms);
	s->wait_budget -= (int)(now_ms() - begin);
}

uint32_t session_size(uint8_t arg)
{
	static const uint32_t sizes[] = {0,    1,    8,    24,    100,   600,   2048,  4096,
					 5000, 8192, 8193, 16384, 40000, 60000, 90000, 150000};

	return sizes[arg % ARRAY_SIZE(sizes)];
}

/* ---- the honest end's operations ---- */

static void op_post_recv(struct session *s)
{
	uint8_t how = session_take(s);
	uint32_t room = session_size(how);

	honest_post_recv(&s->honest, room < ROOM ? room : ROOM, (how >> 4) % 5, how & 0x80);
}

static void op_post_send(struct session *s)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,
		IBV_WR_RDMA_READ,
		IBV_WR_RDMA_WRITE,
		IBV_WR_SEND_WITH_INV,
		IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	uint8_t how = session_take(s), what = session_take(s);
	struct honest_request request = {
		.opcode = opcodes[how % ARRAY_SIZE(opcodes)],
		.flags = (how & 0x08 ? 0 : IBV_SEND_SIGNALED) |
			 (how & 0x10 ? IBV_SEND_SOLICITED : 0) | (how & 0x20 ? IBV_SEND_FENCE : 0) |
			 (how & 0x40 ? IBV_SEND_INLINE : 0),
		.length = session_size(what),
		.pieces = (1 + (what >> 4)) % 5,
		.wrong_key = how & 0x80,
	};

	honest_post_send(&s->honest, &request);
}

static void op_look(struct session *s)
{
	session_look(s);
}

static void op_deregister(struct session *s)
{
	honest_deregister(&s->honest);
}

static void op_register(struct session *s)
{
	honest_register(&s->honest);
}

static void op_set_state(struct session *s)
{
	static const enum ibv_qp_state states[] = {IBV_QPS_SQD, IBV_QPS_RTS, IBV_QPS_SQD,
						   IBV_QPS_RTS, IBV_QPS_ERR};

	honest_set_state(&s->honest, states[session_take(s) % ARRAY_SIZE(states)]);
}

static void op_disconnect(struct session *s)
{
	rdma_disconnect(s->honest.side.id);
}

static void op_wait(struct session *s)
{
	session_wait(s, SHORT_WAIT);
}

static void op_wait_long(struct session *s)
{
	session_wait(s, WAIT_BUDGET);
}

static void run(struct session *s)
{
	static void (*const ops[])(struct session * s) = {
		rude_send,      rude_write,     rude_read,     rude_atomic,      rude_answer,
		rude_immediate, rude_terminate, rude_garbage,  rude_noise,       rude_empty,
		rude_patch,     rude_hear,      rude_finish,   rude_reset,       op_post_recv,
		op_post_send,   op_look,        op_deregister, op_register,      op_set_state,
		op_disconnect,  op_wait,        op_wait_long,  rude_acknowledge,
	};

	for (int i = 0; i < MAX_OPS && s->input.left; i++) {
		uint8_t op = session_take(s);

		ops[(op & ~LATER) % ARRAY_SIZE(ops)](s);
		if (!(op & LATER))
			session_look(s);
	}
}

/* ---- the beginning and the end ---- */

static const struct offer nothing = {.addr = SINK_TO, .key = SINK_STAG, .len = 1};

/* What the stranger says, as far as it is the same in a request and a reply. */
static struct mpa_frame stranger_frame(const struct session *s, enum mpa_kind kind)
{
	static const uint16_t depths[] = {16, 1, 3, 0};
	uint16_t depth = depths[s->depths >> 6];

	return (struct mpa_frame){
		.kind = kind,
		.revision = has(s, REVISION1) ? 1 : 2,
		.enhanced = !has(s, REVISION1),
		.crc = has(s, CRC),
		.soft = has(s, SOFT),
		.acks = has(s, SOFT) && has(s, ACKS),
		.ird = depth,
		.ord = depth,
		.private_data = (const uint8_t *)&nothing,
		.private_len = sizeof(nothing),
	};
}

static struct pair_options honest_options(const struct session *s)
{
	return (struct pair_options){
		.bytes = HONEST_BYTES,
		.depth = HONEST_DEPTH,
		.sge = 4,
		.inline_bytes = 512,
		.shared_receives = has(s, SRQ),
		.access = IBV_ACCESS_LOCAL_WRITE,
	};
}

static void meet_as_acceptor(struct session *s)
{
	struct mpa_frame request = stranger_frame(s, MPA_REQUEST), reply;
	struct pair_options options = honest_options(s);
	uint8_t bytes[MPA_MAX_FRAME];

	if (has(s, P2P) && request.enhanced) {
		request.peer_to_peer = true;
		request.rtr = s->depths & 7 ? s->depths & 7 : MPA_RTR_WRITE;
	}
	stranger_connect(&s->stranger, rdma_get_src_port(process.listener));
	stranger_say_frame(&s->stranger, &request);
	side_accept(&s->honest.side, process.channel, &options);
	stranger_hear_frame(&s->stranger, MPA_REPLY, bytes, &reply);
	CHECK(!reply.reject && reply.crc == request.crc);
}

static void meet_as_initiator(struct session *s)
{
	struct mpa_frame reply = stranger_frame(s, MPA_REPLY), request;
	struct pair_options options = honest_options(s);
	uint8_t bytes[MPA_MAX_FRAME];

	reply.revision = 2;
	reply.enhanced = true;
	side_resolve(&s->honest.side, process.stranger_port);
	side_equip(&s->honest.side, &options);
	side_connect(&s->honest.side, &options);
	stranger_accept(&s->stranger, process.stranger_listener);
	stranger_hear_frame(&s->stranger, MPA_REQUEST, bytes, &request);
	stranger_say_frame(&s->stranger, &reply);
	side_await_established(&s->honest.side);
}

static void narrow(const struct session *s)
{
	const int bytes = NARROW_BYTES;

	CHECK(!setsockopt(s->stranger.fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)));
	CHECK(!setsockopt(s->honest_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)));
}

static void begin(struct session *s, const uint8_t *data, size_t size)
{
	memset(s, 0, sizeof(*s));
	s->input = (struct input){data, size};
	s->options = session_take(s);
	s->depths = session_take(s);
	s->wait_budget = WAIT_BUDGET;
	s->foreign = process.companion.client.mr;
	s->result_msn = 1;
	if (has(s, INITIATOR))
		meet_as_initiator(s);
	else
		meet_as_acceptor(s);
	s->stranger.crc = has(s, CRC);
	s->honest_fd = stranger_other_end(&s->stranger);
	if (has(s, NARROW))
		narrow(s);
	ear_begin(&s->ear, has(s, SOFT), has(s, SOFT) && has(s, ACKS));
	honest_begin(&s->honest);
	for (int i = 0; i < (s->depths >> 3 & 7); i++)
		honest_post_recv(&s->honest, ROOM, 1, false);
}

static bool is_end(enum rdma_cm_event_type event)
{
	/* The latter if it was never told of a beginning. */
	return event == RDMA_CM_EVENT_DISCONNECTED || event == RDMA_CM_EVENT_CONNECT_ERROR;
}

/* It is told of the end once. */
static void check_events(struct rdma_event_channel *channel)
{
	unsigned ends = 0;

	while (fd_is_readable(channel->fd, ends ? 0 : END_MS)) {
		struct rdma_cm_event *event = cm_next(channel);

		ends += is_end(event->event);
		CHECK(!rdma_ack_cm_event(event));
	}
	CHECK(ends == 1);
}

static void end(struct session *s)
{
	session_look(s);
	ear_hear(&s->ear, &s->stranger);
	stranger_close(&s->stranger);
	honest_await_end(&s->honest);
	check_events(s->honest.side.channel);
	honest_end(&s->honest);
}

/* ---- what goes on beside it ---- */

static void exchange(struct side *from, struct side *to, enum ibv_wr_opcode opcode, uint32_t len)
{
	side_recv(to, 1, COMPANION_MAX, len);
	side_post(from, &(struct request){
				.opcode = opcode, .id = 2, .len = len, .flags = IBV_SEND_SIGNALED});
	CHECK(cq_expect(to->recv_cq, 1, IBV_WC_SUCCESS).byte_len == len);
	cq_expect(from->send_cq, 2, IBV_WC_SUCCESS);
	CHECK(!memcmp(from->buf, to->buf + COMPANION_MAX, len));
}

/* There by a Write, and back by a Read. */
static void carry(struct side *from, const struct side *to)
{
	struct request request = {.opcode = IBV_WR_RDMA_WRITE,
				  .id = 3,
				  .len = COMPANION_MAX,
				  .remote_at = COMPANION_MAX,
				  .flags = IBV_SEND_SIGNALED};

	side_post(from, &request);
	cq_expect(from->send_cq, 3, IBV_WC_SUCCESS);
	request.opcode = IBV_WR_RDMA_READ;
	request.at = COMPANION_MAX;
	side_post(from, &request);
	cq_expect(from->send_cq, 3, IBV_WC_SUCCESS);
	CHECK(!memcmp(from->buf, to->buf + COMPANION_MAX, COMPANION_MAX));
	CHECK(!memcmp(from->buf, from->buf + COMPANION_MAX, COMPANION_MAX));
}

/* The other connection works. */
static void check_companion(void)
{
	struct side *client = &process.companion.client, *server = &process.companion.server;

	exchange(client, server, IBV_WR_SEND, 64);
	exchange(server, client, IBV_WR_SEND_WITH_IMM, 64);
	exchange(client, server, IBV_WR_SEND, COMPANION_MAX);
	carry(client, server);
}

/* Pipes are not counted: the fuzzer itself opens some, to a program that knows the symbols. */
static unsigned count_fds(void)
{
	unsigned count = 0;
	struct stat about;

	for (int fd = 0; fd < MAX_FDS; fd++)
		count += !fstat(fd, &about) && !S_ISFIFO(about.st_mode);
	return count;
}

/* Nothing is left of the inputs so far; the last ones may take a moment to go. */
static void check_leftovers(void)
{
	uint64_t limit = now_ms() + LINGER_MS;

	while (count_fds() > process.fds) {
		CHECK(now_ms() < limit);
		poll(NULL, 0, 5);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const struct pair_options options = {.bytes = 2 * COMPANION_MAX, .depth = 8};
	struct sockaddr_storage at;

	(void)argc;
	(void)argv;
	setenv("SOFTRDMA", "on", 1);
	setenv("SOFTRDMA_LOG", "error", 1);
	setenv("SOFTRDMA_SHM", "on", 1);
	setenv("SOFTRDMA_RECV_TIMEOUT", "20", 1);
	setenv("CMOCKA_TEST_ABORT", "1", 1); /* also what a helper of the tests asserts */
	unsetenv("IBMSG_ADDR");
	pair_open(&process.companion, &options);
	fill(process.companion.client.buf, COMPANION_MAX, 1);
	fill(process.companion.server.buf, COMPANION_MAX, 2);
	process.channel = rdma_create_event_channel();
	CHECK(process.channel);
	test_address(&at, 0);
	process.listener = listen_at(process.channel, &at, 16);
	process.stranger_listener = stranger_listen(&process.stranger_port);
	check_companion();
	process.fds = count_fds();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	begin(&session, data, size);
	run(&session);
	end(&session);
	check_companion();
	if (++process.inputs % CHECK_EVERY == 0)
		check_leftovers();
	return 0;
}
