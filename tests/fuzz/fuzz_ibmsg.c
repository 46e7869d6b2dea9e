/* SPDX-License-Identifier: MIT */
/*
 * A rude peer against a live event loop of libibmsg. The bytes are a program: what the peer says,
 * what the application does meanwhile, and how much time passes. A second connection of the same
 * loop is honest at both ends and must not suffer. What holds for every input:
 *  - each posted message completes once, and before connection_closed;
 *  - a message is delivered once, in order, with the bytes that the peer sent;
 *  - the loop keeps to the protocol and to its credits, and reads only what was offered (rude.c);
 *  - every connection ends, and then no memory is left in the loop's accounts.
 */
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <ibmsg.h>

#include "../../src/common/log.h"
#include "fuzz.h"
#include "ibmsg/rude.h"

#define SLAB_BYTES   (16 * (4096 + 64)) /* libibmsg registers short messages' memory so */
#define MAX_KEPT     64
#define MAX_HONEST   128
#define AWAIT_MS     4000 /* what must happen does so within this, on a busy machine too */
#define SETTLE_MOST  10   /* looks for an acknowledgement; a message may have no receive */
#define MAX_OPS      64
/* libibmsg's own defaults are more than the fuzzer may take. */
#define MOST_MEMORY  (64u << 20)
#define MOST_MESSAGE (16u << 20)
#define OWN_SEED     0x10000u /* of the application's messages, plus their index */

/* ---- time ---- */

/*
 * loop.c is compiled to use these: libibmsg's timers are seconds long, and here the time passes
 * when the program says so.
 */
static struct {
	uint64_t ahead; /* of the real clock, ns */
	int fd;         /* the loop's timerfd, and what it was set to */
	struct itimerspec deadline;
} clock_;

int fuzz_clock_gettime(clockid_t id, struct timespec *out);
int fuzz_timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old);

static uint64_t ns_of(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

static struct timespec time_of(uint64_t ns)
{
	return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

static uint64_t real_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return ns_of(&now);
}

int fuzz_clock_gettime(clockid_t id, struct timespec *out)
{
	CHECK(id == CLOCK_MONOTONIC);
	*out = time_of(real_now() + clock_.ahead);
	return 0;
}

int fuzz_timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old)
{
	uint64_t deadline = ns_of(&value->it_value);
	/* Zero would disarm it. */
	struct itimerspec real = {
		.it_value = time_of(deadline > clock_.ahead ? deadline - clock_.ahead : 1)};

	CHECK(flags == TFD_TIMER_ABSTIME && !old);
	clock_.fd = fd;
	clock_.deadline = *value;
	return timerfd_settime(fd, flags, &real, NULL);
}

static void pass_time(unsigned ms)
{
	clock_.ahead += (uint64_t)ms * 1000000u;
	if (clock_.fd >= 0)
		CHECK(!fuzz_timerfd_settime(clock_.fd, TFD_TIMER_ABSTIME, &clock_.deadline, NULL));
}

/* ---- the application ---- */

/* What it does in callbacks. */
enum manner {
	KEEPS = 0x01,             /* messages that it receives */
	ECHOES = 0x02,            /* posts them back */
	LEAVES_WHEN_GIVEN = 0x04, /* disconnects in message_received */
	WRITES_BEYOND = 0x08,     /* over the header of a message that came together with one */
	REPOSTS = 0x10,           /* in message_sent */
	LEAVES_WHEN_SENT = 0x20,  /* disconnects in message_sent */
	POSTS_WHEN_OPEN = 0x40,   /* in connection_established */
	LEAVES_WHEN_OPEN = 0x80,  /* disconnects there */
};

/* The answer to the rude peer's request. */
enum decision { ACCEPT, REJECT, IGNORE, ACCEPT_AND_LEAVE };

static struct {
	ibmsg_event_loop loop;
	ibmsg_socket listener, guest, honest[2];
	enum decision decision;
	uint8_t manners;
	bool has_guest; /* its end will be told */
	bool is_destroyed;
	unsigned established, closed;
	unsigned next_told; /* to be delivered */
	ibmsg_buffer *kept[MAX_KEPT];
	uint32_t kept_seed[MAX_KEPT];
	unsigned num_kept;
	unsigned delivered, completed; /* of the guest */
	unsigned reposts;
	ibmsg_buffer msgs[MAX_POSTS];
	/* The honest connection. The bytes of its messages follow from their number. */
	unsigned honest_open, honest_closed;
	unsigned posted[2], sent[2], received[2];
	size_t sizes[2][MAX_HONEST];
} app;

static struct rude rude;
static char here[] = "127.0.0.1";
static int rude_listener;
static uint16_t rude_port;

static void step(int ms)
{
	CHECK(ibmsg_dispatch_event_loop_timeout(&app.loop, ms) == IBMSG_OK);
}

static void pump(void)
{
	step(1);
}

#define AWAIT(condition)                                                                           \
	do {                                                                                       \
		uint64_t limit_ = real_now() + AWAIT_MS * 1000000ull;                              \
		while (!(condition)) {                                                             \
			CHECK(real_now() < limit_ || (condition));                                 \
			step(1);                                                                   \
		}                                                                                  \
	} while (0)

/* ---- the application: posting to the guest ---- */

static void post(ibmsg_buffer *msg, uint32_t seed)
{
	struct post *post = rude_note_post(&rude, msg, msg->size, seed);
	int error;

	if (!post) {
		ibmsg_free_msg(msg);
		return;
	}
	error = ibmsg_post_send(&app.guest, msg);
	if (!error)
		return;
	CHECK(error == IBMSG_NOT_CONNECTED);
	rude.num_posts--;
	CHECK(ibmsg_free_msg(msg) == IBMSG_OK);
}

/* A message for which @room was allocated. */
static void post_new(size_t room, size_t size)
{
	uint32_t index = rude.num_posts;
	ibmsg_buffer *msg = &app.msgs[index % MAX_POSTS];

	if (!app.has_guest || app.closed || index == MAX_POSTS)
		return;
	memset(msg, 0xff, sizeof(*msg));
	if (ibmsg_alloc_msg(msg, &app.guest, room) != IBMSG_OK)
		return;
	CHECK(!msg->user_data && msg->size == room);
	msg->size = size;
	pattern_put(msg->data, OWN_SEED + index, 0, size);
	post(msg, OWN_SEED + index);
}

static void disconnect(void)
{
	if (app.has_guest)
		CHECK(ibmsg_disconnect(&app.guest) == IBMSG_OK);
}

/* ---- the application: receiving from the guest ---- */

/*
 * The message of the rude peer that this is: the next one, or a later one if those between were
 * offers that were not read to their end.
 */
static const struct told *told_as(const ibmsg_buffer *msg)
{
	for (; app.next_told < rude.num_told; app.next_told++) {
		const struct told *told = &rude.told[app.next_told];

		if (told->size == msg->size && pattern_is(msg->data, app.next_told, 0, msg->size))
			return told;
		CHECK(told->offered && (!told->size || told->delivered < told->size));
	}
	return NULL;
}

static void free_kept(void)
{
	while (app.num_kept) {
		ibmsg_buffer *msg = app.kept[--app.num_kept];

		CHECK(pattern_is(msg->data, app.kept_seed[app.num_kept], 0, msg->size));
		CHECK(ibmsg_free_msg(msg) == IBMSG_OK);
	}
}

static void post_kept(void)
{
	if (!app.num_kept || !app.has_guest || app.closed)
		return;
	app.num_kept--;
	post(app.kept[app.num_kept], app.kept_seed[app.num_kept]);
}

static void guest_gave(ibmsg_buffer *msg)
{
	const struct told *told = told_as(msg);
	uint32_t seed = app.next_told++;

	CHECK(told && msg->status == IBMSG_RECEIVED);
	app.delivered++;
	if (app.manners & LEAVES_WHEN_GIVEN)
		disconnect();
	if ((app.manners & WRITES_BEYOND) && told->packed)
		memset((uint8_t *)msg->data + (msg->size / 16 + 1) * 16, 0xff, 2);
	if (app.manners & ECHOES) {
		post(msg, seed);
	} else if ((app.manners & KEEPS) && app.num_kept < MAX_KEPT) {
		app.kept[app.num_kept] = msg;
		app.kept_seed[app.num_kept++] = seed;
	} else {
		memset(msg->data, 0xee, msg->size);
		CHECK(ibmsg_free_msg(msg) == IBMSG_OK);
	}
}

/* ---- the application: what became of messages to the guest ---- */

static struct post *post_of(const ibmsg_buffer *msg)
{
	for (unsigned i = 0; i < rude.num_posts; i++)
		if (rude.posts[i].msg == msg && !rude.posts[i].done)
			return &rude.posts[i];
	return NULL;
}

static void check_outcome(const struct post *post, const ibmsg_buffer *msg)
{
	CHECK(msg->status == IBMSG_SENT || msg->status == IBMSG_FAILED);
	CHECK((msg->status == IBMSG_SENT) == (msg->error == IBMSG_OK));
	CHECK(pattern_is(msg->data, post->seed, 0, post->size));
	if ((post->is_offer && post->answer >= 0) || rude.has_guessed)
		return;
	/* Nobody says so but the peer. */
	CHECK(msg->error != IBMSG_PEER_OUT_OF_MEMORY);
	CHECK(msg->error != IBMSG_MESSAGE_TOO_LARGE || rude.original);
	if (msg->status == IBMSG_SENT && rude.acks)
		CHECK(post->heard && !post->is_offer);
}

static void guest_was_sent(ibmsg_buffer *msg)
{
	struct post *post_ = post_of(msg);
	uint32_t seed;

	CHECK(post_);
	check_outcome(post_, msg);
	post_->done = true;
	post_->error = msg->error;
	seed = post_->seed;
	app.completed++;
	if (app.manners & LEAVES_WHEN_SENT)
		disconnect();
	if ((app.manners & REPOSTS) && app.reposts < 8) {
		app.reposts++;
		post(msg, seed);
	} else {
		CHECK(ibmsg_free_msg(msg) == IBMSG_OK);
	}
}

/* ---- the honest connection ---- */

static void honest_post(unsigned from, size_t size)
{
	unsigned number = app.posted[from]++;
	ibmsg_buffer *msg = malloc(sizeof(*msg));

	CHECK(msg && number < MAX_HONEST);
	app.sizes[from][number] = size;
	CHECK(ibmsg_alloc_msg(msg, &app.honest[from], size) == IBMSG_OK);
	pattern_put(msg->data, number, 0, size);
	CHECK(ibmsg_post_send(&app.honest[from], msg) == IBMSG_OK);
}

static void honest_was_sent(unsigned from, ibmsg_buffer *msg)
{
	CHECK(msg->status == IBMSG_SENT);
	app.sent[from]++;
	CHECK(ibmsg_free_msg(msg) == IBMSG_OK);
	free(msg);
}

static void honest_gave(unsigned to, ibmsg_buffer *msg)
{
	unsigned number = app.received[to]++;

	CHECK(number < app.posted[!to] && msg->size == app.sizes[!to][number]);
	CHECK(pattern_is(msg->data, number, 0, msg->size));
	CHECK(ibmsg_free_msg(msg) == IBMSG_OK);
}

static bool honest_is_quiet(void)
{
	return app.sent[0] == app.posted[0] && app.received[1] == app.posted[0] &&
	       app.sent[1] == app.posted[1] && app.received[0] == app.posted[1];
}

static void honest_exchange(void)
{
	honest_post(0, 64);
	honest_post(0, 9000);
	honest_post(0, 4096);
	honest_post(1, 0);
	AWAIT(honest_is_quiet());
}

/* ---- callbacks ---- */

static bool is_honest(const ibmsg_socket *socket)
{
	return socket == &app.honest[0] || socket == &app.honest[1];
}

static unsigned honest_index(const ibmsg_socket *socket)
{
	return socket == &app.honest[1];
}

static void on_request(ibmsg_connection_request *request)
{
	if (app.honest_open < 2) {
		CHECK(ibmsg_accept(request, &app.honest[1]) == IBMSG_OK);
		return;
	}
	if (app.decision == REJECT)
		CHECK(ibmsg_reject(request, "no", 2) == IBMSG_OK);
	if (app.decision == REJECT || app.decision == IGNORE)
		return;
	/* Its sender may be gone by now. */
	app.has_guest = ibmsg_accept_with(request, &app.guest, "yes", 3) == IBMSG_OK;
	if (app.decision == ACCEPT_AND_LEAVE)
		disconnect();
}

static void on_established(ibmsg_socket *socket)
{
	if (is_honest(socket)) {
		app.honest_open++;
		return;
	}
	CHECK(socket == &app.guest && !app.established++ && !app.closed);
	if (app.manners & POSTS_WHEN_OPEN) {
		post_new(100, 100);
		post_new(5000, 5000);
	}
	if (app.manners & LEAVES_WHEN_OPEN)
		disconnect();
}

static void on_received(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	if (is_honest(socket))
		honest_gave(honest_index(socket), msg);
	else
		guest_gave(msg);
}

static void on_sent(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	if (is_honest(socket))
		honest_was_sent(honest_index(socket), msg);
	else
		guest_was_sent(msg);
}

/*
 * The connection is said to have ended well: all that the peer has sent was delivered, but for
 * offers, and all that was posted was sent, but for what the peer did not want.
 */
static void check_good_end(void)
{
	CHECK(!rude.has_violated);
	for (; app.next_told < rude.num_told; app.next_told++)
		CHECK(rude.told[app.next_told].offered || rude.original);
	for (unsigned i = 0; i < rude.num_posts; i++)
		CHECK(rude.posts[i].error == IBMSG_OK ||
		      rude.posts[i].error == IBMSG_PEER_OUT_OF_MEMORY ||
		      rude.posts[i].error == IBMSG_MESSAGE_TOO_LARGE);
}

static void on_closed(ibmsg_socket *socket, int error)
{
	if (is_honest(socket)) {
		CHECK(error == IBMSG_OK || (error == IBMSG_CLOSED && app.is_destroyed));
		app.honest_closed++;
		return;
	}
	CHECK(socket == &app.guest && !app.closed++);
	for (unsigned i = 0; i < rude.num_posts; i++)
		CHECK(rude.posts[i].done);
	if (error == IBMSG_OK && app.established)
		check_good_end();
}

/* ---- the program ---- */

static uint16_t take_16(struct input *input)
{
	uint16_t high = take_byte(input);

	return (uint16_t)(high << 8 | take_byte(input));
}

/* Until all that was said has been placed and looked at. */
static void settle(void)
{
	for (unsigned i = 0; i < SETTLE_MOST; i++) {
		bool waits = rude_waits(&rude) || (!rude.acks && i < 2);

		step(waits ? 1 : 0);
		rude_hear(&rude);
		if (!waits && i)
			break;
	}
	step(0);
}

static size_t take_size(struct input *input)
{
	static const size_t sizes[] = {0,    1,    15,   16,   100,  240,  241,   256,
				       1000, 1024, 1025, 4095, 4096, 4097, 70000, 1100000};

	return sizes[take_byte(input) % 16];
}

static void take_offer(struct input *input)
{
	static const uint64_t sizes[] = {0,         1,       100,        4096,       4097,
					 8191,      65536,   70000,      1 << 20,    (1 << 20) + 1,
					 3 << 20,   5 << 20, 1ull << 32, 1ull << 62, UINT64_MAX - 1,
					 UINT64_MAX};
	uint64_t size = sizes[take_byte(input) % 16];
	uint8_t how = take_byte(input);

	/* Some wrap around the address space; some have the number of another one. */
	for (unsigned i = 0; i < (how & 0x20 ? 16 : 1); i++)
		rude_say_offer(&rude, size, how & 0x80 ? UINT64_MAX - 50 : (uint64_t)how << 32,
			       how & 0x40 ? 7 : rude.num_told);
}

static void take_credit(struct input *input)
{
	static const uint16_t amounts[] = {0, 1, 8, 255, 0x7fff, 0xffff};
	uint8_t how = take_byte(input);
	uint16_t data = (uint16_t)rude.owed_data, control = (uint16_t)rude.owed_control;

	if (how & 0x80) {
		data = amounts[(how & 7) % 6];
		control = amounts[(how >> 3 & 7) % 6];
	} else {
		rude.owed_data = 0;
		rude.owed_control = 0;
	}
	rude_say_credit(&rude, data, control, how & 0x40 ? PROTO_WANT_CREDIT : 0);
}

/* Anything but a message that would have to be delivered. */
static void take_raw(struct input *input)
{
	uint8_t bytes[64];
	size_t len = take_byte(input) % sizeof(bytes);

	for (size_t i = 0; i < len; i++)
		bytes[i] = take_byte(input);
	if (len && !proto_is_control(bytes[0]))
		bytes[0] = 0;
	rude_send(&rude, bytes, len);
}

static void set_limits(uint64_t memory, uint64_t message, unsigned busy_us)
{
	CHECK(ibmsg_set_max_memory(&app.loop, memory) == IBMSG_OK);
	CHECK(ibmsg_set_max_message(&app.loop, message) == IBMSG_OK);
	CHECK(ibmsg_set_busy_poll(&app.loop, busy_us) == IBMSG_OK);
}

static void take_limits(struct input *input)
{
	static const uint64_t memory[] = {MOST_MEMORY, 1 << 20, 128 << 10, 0};
	static const uint64_t message[] = {MOST_MESSAGE, 2 << 20, 65536, 4096};
	uint8_t how = take_byte(input);

	set_limits(memory[how & 3], message[how >> 2 & 3], how & 0x10 ? 50 : 0);
}

static void take_time(struct input *input)
{
	static const unsigned ms[] = {100, 500, 4000, 10000};

	pass_time(ms[take_byte(input) & 3]);
	settle();
}

enum op {
	SAY_HELLO,
	SAY_DATA,
	SAY_MANY,
	SAY_OFFER,
	SAY_DONE,
	SAY_CREDIT,
	SAY_END,
	SAY_RAW,
	ANSWER_READS,
	READ_OFFER,
	ACKNOWLEDGE,
	POST,
	POST_MANY,
	POST_SHORTENED,
	POST_KEPT,
	FREE_KEPT,
	DISCONNECT,
	SET_LIMITS,
	SET_MANNERS,
	SET_HABITS,
	PASS_TIME,
	LEAVE,
	TERMINATE,
	HONEST_POST,
	SAY_DATA_AGAIN,
	NUM_OPS
};

#define UNSETTLED 0x80 /* of an op's byte: the loop does not run before the next one */

/* What the peer says. False: it is not of these. */
static bool run_saying(enum op op, struct input *input)
{
	uint8_t how;

	switch (op) {
	case SAY_HELLO:
		rude_say_hello(&rude, take_byte(input), take_byte(input));
		return true;
	case SAY_DATA:
		how = take_byte(input);
		rude_say_data(&rude, take_16(input) % 5000, how & 0x83);
		return true;
	case SAY_DATA_AGAIN:
		for (how = take_byte(input) % 40; how; how--)
			rude_say_data(&rude, how, 0);
		return true;
	case SAY_MANY:
		how = take_byte(input);
		rude_say_many(&rude, how & 0x1f, take_byte(input) * 5u,
			      how >> 5 > 4 ? 0 : how >> 5);
		return true;
	case SAY_OFFER:
		take_offer(input);
		return true;
	case SAY_DONE:
		how = take_byte(input);
		rude_say_done(&rude, how & 0xf, !(how & 0x80), how >> 4 & 3);
		return true;
	case SAY_CREDIT:
		take_credit(input);
		return true;
	case SAY_END:
		rude_say_end(&rude, take_byte(input) & 3);
		return true;
	case SAY_RAW:
		take_raw(input);
		return true;
	default:
		return false;
	}
}

/* What else the peer does. */
static bool run_doing(enum op op, struct input *input)
{
	uint8_t how;

	switch (op) {
	case ANSWER_READS:
		how = take_byte(input);
		for (unsigned i = 0; i <= how >> 4; i++)
			rude_answer_read(&rude, how & 7);
		return true;
	case READ_OFFER:
		how = take_byte(input);
		rude_read(&rude, how & 0xf, how >> 4 & 3);
		return true;
	case ACKNOWLEDGE:
		rude_acknowledge(&rude, take_byte(input) >> 6);
		return true;
	case LEAVE:
		rude_leave(&rude, take_byte(input) % 3);
		return true;
	case TERMINATE:
		rude_terminate(&rude, take_byte(input));
		return true;
	case SET_HABITS:
		rude.habits = take_byte(input);
		return true;
	default:
		return false;
	}
}

/* What the application does. */
static void run_applying(enum op op, struct input *input)
{
	size_t size;

	switch (op) {
	case POST:
		size = take_size(input);
		post_new(size, size);
		break;
	case POST_MANY:
		size = take_size(input);
		for (uint8_t count = take_byte(input) % 160; count; count--)
			post_new(size % 4096, size % 4096);
		break;
	case POST_SHORTENED:
		size = take_size(input);
		post_new(size + 5000, size);
		break;
	case POST_KEPT:
		post_kept();
		break;
	case FREE_KEPT:
		free_kept();
		break;
	case DISCONNECT:
		disconnect();
		break;
	case SET_LIMITS:
		take_limits(input);
		break;
	case SET_MANNERS:
		app.manners = take_byte(input);
		break;
	case PASS_TIME:
		take_time(input);
		break;
	default:
		/* Short ones, which only wait if there is no memory. */
		if (app.posted[0] - app.received[1] < 8)
			honest_post(0, 200);
		break;
	}
}

/* The handshake is over for the peer. It is for the application too, after its event. */
static void settle_in(void)
{
	for (unsigned i = 0; i < 1000 && !app.established && !app.closed; i++)
		step(1);
}

static void run(struct input *input, bool at_once)
{
	if (!at_once)
		settle_in();
	for (unsigned i = 0; i < MAX_OPS && input->left; i++) {
		uint8_t byte = take_byte(input);
		enum op op = (byte & 0x7f) % NUM_OPS;

		if (!run_saying(op, input) && !run_doing(op, input))
			run_applying(op, input);
		if (!(byte & UNSETTLED))
			settle();
	}
}

/* ---- life ---- */

static void open_loop(void)
{
	struct sockaddr_storage address;

	memset(&app, 0, sizeof(app));
	clock_.fd = -1;
	CHECK(ibmsg_init_event_loop(&app.loop) == IBMSG_OK);
	app.loop.connection_request = on_request;
	app.loop.connection_established = on_established;
	app.loop.message_received = on_received;
	app.loop.message_sent = on_sent;
	app.loop.connection_closed = on_closed;
	/* The honest connection has no timers: it is not to be disturbed by time that jumps. */
	CHECK(ibmsg_set_keepalive(&app.loop, 0) == IBMSG_OK);
	CHECK(ibmsg_listen(&app.loop, &app.listener, here, 0, 8) == IBMSG_OK);
	CHECK(ibmsg_local_address(&app.listener, &address) == IBMSG_OK);
	CHECK(ibmsg_connect(&app.loop, &app.honest[0], here,
			    be16toh(((struct sockaddr_in *)&address)->sin_port)) == IBMSG_OK);
	AWAIT(app.honest_open == 2);
	honest_exchange();
	CHECK(ibmsg_set_keepalive(&app.loop, 4000) == IBMSG_OK);
	set_limits(MOST_MEMORY, MOST_MESSAGE, 0);
}

/* The first bytes: who connects to whom, and with which properties. */
static bool meet(struct input *input, bool *at_once)
{
	uint8_t who = take_byte(input), how = take_byte(input);
	uint16_t reads = how & 0xf;
	struct sockaddr_storage address;

	rude_init(&rude, pump);
	rude.original = who & 2;
	rude.acks = !(who & 4);
	app.decision = who >> 4 & 3;
	rude.ours = (struct proto_private){
		.version = PROTO_VERSION,
		.features = who & 8 ? PROTO_TAKES_MANY : 0,
		.max_send = PROTO_MIN_SEND,
		.data_credits = take_byte(input),
		.control_credits = take_byte(input),
	};
	rude.habits = take_byte(input);
	app.manners = take_byte(input);
	*at_once = how & 0x40;
	if (!(who & 1)) {
		CHECK(ibmsg_local_address(&app.listener, &address) == IBMSG_OK);
		return rude_connect(&rude, ((struct sockaddr_in *)&address)->sin_port, reads,
				    how & 0x10);
	}
	while (rude_is_called(rude_listener)) /* by somebody who has given up */
		close(accept(rude_listener, NULL, NULL));
	app.has_guest = ibmsg_connect_with(&app.loop, &app.guest, here, be16toh(rude_port), "guest",
					   5) == IBMSG_OK;
	CHECK(app.has_guest);
	if (how & 0x20)
		disconnect();
	if (how & 0x10)
		return true; /* the peer does not answer */
	AWAIT(app.closed || rude_is_called(rude_listener));
	return !app.closed && rude_accept(&rude, rude_listener, reads, app.decision);
}

/* The guest's end. It may have none: then it was rejected. */
static void part(void)
{
	rude_leave(&rude, 0);
	disconnect();
	if (!app.has_guest)
		return;
	for (unsigned i = 0; i < 20 && !app.closed; i++)
		step(1);
	/* What is left to a timer ends by it. */
	for (unsigned i = 0; i < 8 && !app.closed; i++) {
		pass_time(10000);
		step(1);
	}
	AWAIT(app.closed);
}

static void check_accounts(void)
{
	ibmsg_stats stats;

	CHECK(ibmsg_get_stats(&app.loop, NULL, &stats) == IBMSG_OK);
	CHECK(!stats.connections && !stats.arriving_bytes);
	CHECK(stats.registered_bytes % SLAB_BYTES == 0);
	CHECK(stats.messages_received == app.delivered + app.received[0] + app.received[1]);
	CHECK(stats.messages_sent + stats.messages_failed ==
	      app.completed + app.sent[0] + app.sent[1]);
}

static void close_loop(void)
{
	part();
	free_kept();
	set_limits(MOST_MEMORY, MOST_MESSAGE, 0);
	honest_exchange();
	CHECK(ibmsg_disconnect(&app.honest[0]) == IBMSG_OK);
	AWAIT(app.honest_closed == 2);
	check_accounts();
	CHECK(ibmsg_destroy_event_loop(&app.loop) == IBMSG_OK);
}

/* In the middle of everything. */
static void destroy_loop(void)
{
	set_limits(MOST_MEMORY, MOST_MESSAGE, 0);
	AWAIT(honest_is_quiet());
	app.is_destroyed = true;
	CHECK(ibmsg_destroy_event_loop(&app.loop) == IBMSG_OK);
	CHECK(app.honest_closed == 2 && app.closed == app.has_guest);
	rude_leave(&rude, 0);
	free_kept();
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	setenv("SOFTRDMA", "on", 1);
	setenv("SOFTRDMA_SHM", "off", 1);
	/* What a rude peer does is worth a line in the log; here it is the normal case. */
	if (!getenv("SOFTRDMA_LOG"))
		log_levels = 1u << 31;
	rude_listener = stranger_listen(&rude_port);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	bool in_the_middle, at_once;

	if (size < 6)
		return 0;
	in_the_middle = data[0] & 0x80;
	open_loop();
	if (meet(&input, &at_once))
		run(&input, at_once);
	if (in_the_middle)
		destroy_loop();
	else
		close_loop();
	return 0;
}
