/* SPDX-License-Identifier: MIT */
/*
 * The CM handshake from both ends. A program of ours listens, connects, accepts, rejects, migrates
 * and destroys. Strangers connect to it, or accept its connections, and say over raw TCP what they
 * like. Input: two bytes about all of it, then the steps of both sides; see enum step.
 *
 * Properties:
 *  - Each connect and each accept is told one outcome, within its deadline.
 *  - Events tell what the peer said, and whatever it said whole is decided at once.
 *  - The first thing that a stranger hears is a frame, which fits its own.
 *  - The listener still takes an honest connection.
 *  - No descriptor is left.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cm/moment.h"
#include "cm/program.h"
#include "cm/sync.h"
#include "cm/visitor.h"
#include "fuzz.h"
#include "settings.h"

#define STEPS_MAX  40
#define CROWD      260  /* more than a listener has handshakes under way */
#define CROWD_ALL  0xc7 /* it takes long, so the input has to ask for it by this number */
#define CROWD_FEW  8
#define ACCEPT_MS  20    /* a thread of ours may be about to connect */
#define BACKLOG_MS 300   /* a listener that was full or without descriptors looks again */
#define REQUEST_MS 5100  /* more than a request has to come */
#define CONNECT_MS 10100 /* more than either end has to be answered */
#define LINGER_MS  3000
#define FDS_ROUNDS 2000

/* The first byte. */
#define ALL_CRC          0x01
#define ALL_PEER_TO_PEER 0x02
#define ALL_REVISION_1   0x04
#define ALL_STRICT       0x08
#define ALL_ADDRESS      0x30 /* see enum address */
#define ALL_SYNC         0x40 /* the listener is a synchronous one, in a thread */
#define ALL_ABRUPT       0x80 /* the ids are destroyed as they are */

/* How the program listens. */
#define LISTEN_CHANNEL 0x01
#define LISTEN_RIVAL   0x02
#define LISTEN_BACKLOG 0x04 /* and up: how long; 0: as long as it can be */

/* Beside a step. */
#define STEP_CODE     0x1f
#define STEP_DEARTH   0x20 /* only a few descriptors are left meanwhile */
#define STEP_UNSERVED 0x40 /* events stay in their channels */
#define STEP_AT_ONCE  0x80 /* the next step does not wait for the effects of this one */

enum address { ADDRESS_V4, ADDRESS_V6, ADDRESS_V6_ANY, ADDRESS_NONE };

enum step {
	/* strangers */
	STEP_KNOCK,
	STEP_TAKE,
	STEP_CHOOSE_VISITOR,
	STEP_FRAME,
	STEP_BYTES,
	STEP_SPOIL,
	STEP_FPDU,
	STEP_FINISH,
	STEP_CLOSE,
	STEP_RESET,
	STEP_HEAR,
	STEP_CROWD,
	STEP_STOP_LISTENING,
	/* the program */
	STEP_LISTEN,
	STEP_CALL,
	STEP_CHOOSE_END,
	STEP_ACCEPT,
	STEP_REJECT,
	STEP_DISCONNECT,
	STEP_DESTROY,
	STEP_DESTROY_QP,
	STEP_MIGRATE,
	STEP_RENEW_CHANNEL,
	STEP_HOLD_EVENT,
	STEP_RELEASE_EVENTS,
	STEP_CONNECT_AGAIN,
	STEP_ASK,
	STEP_SYNC,
	STEP_HONEST,
	/* both */
	STEP_TIME,
};

static struct {
	enum address address;
	struct sockaddr_storage strangers; /* where they listen */
	uint16_t sync_port;                /* 0: the program's listener is not a synchronous one */
	struct stranger crowd[CROWD];
	unsigned num_crowd;
	struct visitor *visitor;
	struct end *end;
	rlim_t fds_allowed; /* 0: as many as ever */
	bool has_lacked;    /* descriptors, or places at the listener */
	bool may_be_full;   /* a short backlog: some may wait to be accepted */
} scene;

/* ---- addresses ---- */

static struct sockaddr_storage loopback(int family, uint16_t port)
{
	struct sockaddr_in v4 = {
		.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 v6 = {
		.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_storage out = {0};

	if (family == AF_INET)
		memcpy(&out, &v4, sizeof(v4));
	else
		memcpy(&out, &v6, sizeof(v6));
	return out;
}

/* A host or container may do without. */
static bool has_v6(void)
{
	struct sockaddr_storage at = loopback(AF_INET6, 0);
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool has = fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof(struct sockaddr_in6));

	if (fd >= 0)
		close(fd);
	return has;
}

static int family(void)
{
	return scene.address == ADDRESS_V6 ? AF_INET6 : AF_INET;
}

static uint16_t listener_port(void)
{
	return scene.sync_port ? scene.sync_port : program_port();
}

static void listen_at_address(uint8_t how)
{
	unsigned channel = how & LISTEN_CHANNEL;
	int backlog = how / LISTEN_BACKLOG;
	struct sockaddr_storage at = loopback(family(), 0);
	struct sockaddr_in6 any = {.sin6_family = AF_INET6};

	scene.may_be_full |= backlog > 0;
	if (scene.address == ADDRESS_V6_ANY)
		memcpy(&at, &any, sizeof(any));
	program_listen(scene.address == ADDRESS_NONE ? NULL : &at, channel, backlog,
		       how & LISTEN_RIVAL);
}

/* ---- descriptors ---- */

static unsigned count_fds(bool shows)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned count = 0;

	CHECK(dir);
	while ((entry = readdir(dir)) != NULL) {
		char target[256];
		ssize_t len = 0;

		if (shows)
			len = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target));
		if (len > 0)
			fprintf(stderr, "%s -> %.*s\n", entry->d_name, (int)len, target);
		count++;
	}
	closedir(dir);
	return count;
}

/* No more than @more beyond those that are open. */
static void limit_fds(unsigned more)
{
	int fds[2] = {dup(STDERR_FILENO), dup(STDERR_FILENO)};
	struct rlimit limit;

	CHECK(more < 2 && fds[0] >= 0 && fds[1] >= 0);
	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	scene.fds_allowed = limit.rlim_cur;
	limit.rlim_cur = (rlim_t)fds[more];
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	close(fds[0]);
	close(fds[1]);
	scene.has_lacked = true;
}

static void allow_no_fds(void)
{
	limit_fds(0);
}

static void unlimit_fds(void)
{
	struct rlimit limit;

	if (!scene.fds_allowed)
		return;
	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = scene.fds_allowed;
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	scene.fds_allowed = 0;
}

/* Sockets that the device is about to close are closed soon, or when they have lingered enough. */
static void check_fds(unsigned before)
{
	for (unsigned i = 0; count_fds(false) > before; i++) {
		if (i == FDS_ROUNDS)
			count_fds(true);
		CHECK(i < FDS_ROUNDS);
		if (i > 4)
			moment_pass();
		if (i == FDS_ROUNDS / 4)
			moment_advance(LINGER_MS);
		moment_settle();
	}
}

/* ---- steps of strangers ---- */

static void knock(uint8_t how, bool lacks)
{
	struct sockaddr_storage to = loopback(family(), listener_port());
	struct visitor *visitor;

	if (!listener_port())
		return;
	if (scene.address == ADDRESS_V6_ANY && !scene.sync_port && how & 1)
		to = loopback(AF_INET6, listener_port());
	visitor = visitor_connect(&to, lacks ? allow_no_fds : NULL);
	if (visitor)
		scene.visitor = visitor;
}

static void take(void)
{
	struct visitor *visitor = visitor_accept(sync_is_running() ? ACCEPT_MS : 0);

	if (visitor)
		scene.visitor = visitor;
}

/* They connect and say nothing. */
static void gather_crowd(uint8_t how)
{
	unsigned wanted = how == CROWD_ALL ? CROWD : how % CROWD_FEW;
	struct sockaddr_storage to = loopback(family(), listener_port());

	if (!listener_port() || scene.num_crowd)
		return;
	while (scene.num_crowd < wanted) {
		struct stranger *stranger = &scene.crowd[scene.num_crowd++];

		stranger_open(stranger, family());
		stranger_reach(stranger, &to);
	}
	scene.has_lacked = true;
}

static void scatter_crowd(void)
{
	while (scene.num_crowd)
		stranger_close(&scene.crowd[--scene.num_crowd]);
}

static void step_visitor(enum step step, struct input *input)
{
	struct visitor *visitor = scene.visitor;

	if (!visitor)
		return;
	switch (step) {
	case STEP_FRAME:
		visitor_say_frame(visitor, input);
		break;
	case STEP_BYTES:
		visitor_say_bytes(visitor, input);
		break;
	case STEP_FPDU:
		visitor_say_fpdu(visitor, input);
		break;
	case STEP_FINISH:
		visitor_finish(visitor);
		break;
	case STEP_CLOSE:
		visitor_close(visitor);
		break;
	case STEP_RESET:
		visitor_reset(visitor);
		break;
	case STEP_HEAR:
		visitor_hear(visitor);
		break;
	default:
		break;
	}
}

/* ---- steps of the program ---- */

#define CALL_CHANNEL  0x01
#define CALL_BOUND    0x02
#define CALL_RESOLVES 0x04
#define CALL_TOS      0x08
#define CALL_BARE     0x10
#define CALL_NO_PARAM 0x20
#define CALL_NOBODY   0x40 /* at a port where nobody listens */
#define CALL_SELF     0x80 /* our own listener */

static void call(struct input *input)
{
	struct sockaddr_storage to = scene.strangers, from = loopback(family(), 0);
	uint8_t how = take_byte(input);
	struct call call = {
		.to = &to,
		.from = how & CALL_BOUND ? &from : NULL,
		.channel = how & CALL_CHANNEL,
		.resolves = how & CALL_RESOLVES,
		.sets_tos = how & CALL_TOS,
		.is_bare = how & CALL_BARE,
		.no_param = how & CALL_NO_PARAM,
		.private_len = take_byte(input),
	};
	struct end *end;

	call.ird = call.ord = take_byte(input);
	if (how & CALL_NOBODY)
		to = loopback(family(), htons(1));
	else if (how & CALL_SELF && listener_port() && !scene.sync_port)
		to = loopback(family(), listener_port());
	end = program_call(&call);
	if (end)
		scene.end = end;
}

static void check_honest(void)
{
	struct sockaddr_storage at = loopback(family(), listener_port());

	if (!listener_port())
		return;
	if (scene.has_lacked) {
		moment_settle();
		moment_advance(BACKLOG_MS);
		moment_settle();
	}
	program_serve();
	program_check_listener(&at, !scene.sync_port);
}

static void step_end(enum step step, struct input *input)
{
	struct end *end = scene.end;
	uint8_t how;

	/* It may be gone, or another one may have its place. */
	if (!end || !end->id)
		end = scene.end = program_choose(0);
	if (!end)
		return;
	switch (step) {
	case STEP_ACCEPT:
		end_accept(end, input);
		break;
	case STEP_REJECT:
		end_reject(end, input);
		break;
	case STEP_DISCONNECT:
		end_disconnect(end);
		break;
	case STEP_DESTROY:
		end_destroy(end, take_byte(input) & 1);
		break;
	case STEP_DESTROY_QP:
		end_destroy_qp(end);
		break;
	case STEP_MIGRATE:
		how = take_byte(input);
		end_migrate(end, how, how & 2);
		break;
	case STEP_CONNECT_AGAIN:
		end_connect_again(end);
		break;
	case STEP_ASK:
		end_ask(end);
		break;
	default:
		break;
	}
}

static void step_program(enum step step, struct input *input)
{
	uint8_t how;

	switch (step) {
	case STEP_LISTEN:
		how = take_byte(input);
		if (!scene.sync_port)
			listen_at_address(how);
		break;
	case STEP_CALL:
		call(input);
		break;
	case STEP_CHOOSE_END:
		scene.end = program_choose(take_byte(input));
		break;
	case STEP_RENEW_CHANNEL:
		program_renew_channel(take_byte(input));
		break;
	case STEP_HOLD_EVENT:
		program_hold_event(take_byte(input));
		break;
	case STEP_RELEASE_EVENTS:
		program_release_events();
		break;
	case STEP_SYNC:
		sync_connect(&scene.strangers, take_byte(input));
		break;
	default:
		step_end(step, input);
		break;
	}
}

/* ---- steps ---- */

/* By then a request must have come, and a handshake must have ended. */
static void check_deadlines(unsigned ms)
{
	moment_settle();
	program_serve();
	if (ms >= REQUEST_MS && !scene.has_lacked && !scene.may_be_full && !scene.sync_port)
		CHECK(visitors_are_cut_off());
	if (ms >= CONNECT_MS)
		CHECK(!program_is_waiting());
}

static void pass_time(uint8_t how)
{
	static const unsigned spans[] = {25, 110, 260, 2100, REQUEST_MS, CONNECT_MS, 1, 0};
	unsigned ms = spans[how % (sizeof(spans) / sizeof(*spans))];

	moment_settle(); /* what was under way has its deadline set */
	moment_advance(ms);
	check_deadlines(ms);
}

static void take_step(enum step step, struct input *input, bool lacks)
{
	switch (step) {
	case STEP_KNOCK:
		knock(take_byte(input), lacks);
		break;
	case STEP_TAKE:
		take();
		break;
	case STEP_CHOOSE_VISITOR:
		scene.visitor = visitor_choose(take_byte(input));
		break;
	case STEP_SPOIL:
		visitor_spoil_next(input);
		break;
	case STEP_CROWD:
		gather_crowd(take_byte(input));
		break;
	case STEP_STOP_LISTENING:
		visitors_stop_listening();
		break;
	case STEP_HONEST:
		if (!scene.sync_port)
			check_honest();
		break;
	case STEP_TIME:
		pass_time(take_byte(input));
		break;
	default:
		if (step < STEP_LISTEN)
			step_visitor(step, input);
		else
			step_program(step, input);
		break;
	}
}

/* What a test cannot do without descriptors, and what would not notice. */
static bool can_lack(enum step step)
{
	return step != STEP_RENEW_CHANNEL && step != STEP_HONEST && step != STEP_CROWD &&
	       step != STEP_TAKE && step != STEP_SYNC && sync_is_running() == !!scene.sync_port;
}

static void run_step(struct input *input)
{
	uint8_t code = take_byte(input);
	enum step step = code & STEP_CODE;
	bool lacks = code & STEP_DEARTH && can_lack(step);

	/*
	 * A stranger that knocks needs a socket first. A synchronous id needs three descriptors,
	 * and finds one.
	 */
	if (lacks && step != STEP_KNOCK)
		limit_fds(scene.sync_port ? 1 : 0);
	take_step(step, input, lacks);
	if (!(code & STEP_AT_ONCE))
		moment_settle();
	if (!(code & STEP_UNSERVED))
		program_serve();
	if (lacks && scene.sync_port && step == STEP_FRAME)
		sync_await_lack();
	unlimit_fds();
}

/* ---- an input ---- */

/*
 * The environment is read once in a process. Nothing runs between two inputs, so what was read can
 * be changed then.
 */
static void change_settings(uint8_t all)
{
	struct settings *current = (struct settings *)settings();

	current->crc = all & ALL_CRC;
	current->peer_to_peer = all & ALL_PEER_TO_PEER;
	current->revision_1 = all & ALL_REVISION_1;
	current->strict = all & ALL_STRICT;
}

static void open_scene(struct input *input)
{
	uint8_t all = take_byte(input), how = take_byte(input);
	struct sockaddr_storage at;

	memset(&scene, 0, sizeof(scene));
	change_settings(all);
	scene.address = (all & ALL_ADDRESS) / (ALL_ADDRESS & -ALL_ADDRESS);
	if (!has_v6())
		scene.address = ADDRESS_V4;
	scene.strangers = loopback(family(), 0);
	visitors_open(&scene.strangers);
	program_open();
	at = loopback(family(), 0);
	if (all & ALL_SYNC)
		scene.sync_port = sync_listen(&at, how);
	else
		listen_at_address(how);
}

/*
 * What was said is heard, before anybody closes. A listener that is full takes one after the other
 * as their events are fetched, and one that has lacked something looks again after a while.
 */
static void check_heard(void)
{
	for (unsigned i = 0; i <= VISITORS_MAX; i++) {
		moment_settle();
		program_serve();
		if (scene.has_lacked)
			moment_advance(BACKLOG_MS);
	}
	program_check_replies();
	/* A thread that waits for one visitor to open its connection leaves the next one waiting.
	 */
	CHECK(scene.sync_port || visitors_are_decided());
}

static void close_scene(uint8_t all)
{
	bool abrupt = all & ALL_ABRUPT && !(all & ALL_SYNC);

	if (!abrupt) {
		check_heard();
		visitors_close();
		scatter_crowd();
		if (scene.sync_port)
			check_honest(); /* which ends the thread */
		sync_await();
		scene.sync_port = 0;
		program_await_outcomes();
		check_honest();
		program_disconnect();
	}
	program_close(all & ALL_ABRUPT);
	visitors_close();
	scatter_crowd();
	sync_await();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	uint8_t all = size ? data[0] : 0;
	unsigned fds = count_fds(false);

	open_scene(&input);
	for (unsigned i = 0; input.left && i < STEPS_MAX; i++)
		run_step(&input);
	close_scene(all);
	check_fds(fds);
	return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	setenv("CMOCKA_TEST_ABORT", "1", 1); /* a stranger's assertion ends the process */
	setenv("SOFTRDMA", "on", 1);
	setenv("SOFTRDMA_LOG", "error", 0); /* who looks for a cause may ask for more */
	setenv("SOFTRDMA_RECV_TIMEOUT", "100", 1);
	/* What stays open for the life of the process is opened now. */
	for (uint8_t i = 0; i < 2; i++) {
		const uint8_t all[] = {(uint8_t)(i ? ADDRESS_V6 << 4 : 0)};
		struct input input = {all, sizeof(all)};

		open_scene(&input);
		close_scene(all[0]);
		moment_settle();
	}
	return 0;
}
