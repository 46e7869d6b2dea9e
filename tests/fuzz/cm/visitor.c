/* SPDX-License-Identifier: MIT */
/* Raw TCP connections, and what the input says over them. */
#include "visitor.h"

#include <errno.h>
#include <unistd.h>

#include "moment.h"
#include "pair.h"

/* The fields of a frame, as the input has them: two bytes of flags, then numbers. */
#define FRAME_REVISION_2   0x01
#define FRAME_ENHANCED     0x02
#define FRAME_MARKERS      0x04
#define FRAME_CRC          0x08
#define FRAME_REJECT       0x10
#define FRAME_SOFT         0x20
#define FRAME_SHM          0x40
#define FRAME_ACKS         0x80
#define FRAME_RTR          0x07
#define FRAME_PEER_TO_PEER 0x08
#define FRAME_OTHER_KIND   0x10
#define FRAME_REVISION_0   0x20
#define FRAME_LONG         0x40 /* twice the private data */
#define FRAME_LIES         0x80 /* the length counts more than there is */

/* How bytes are cut. */
#define CUT_EACH  0x7f /* byte by byte */
#define CUT_DROP  0x80 /* the second piece is never said */
#define EACH_MOST 40   /* then the rest at once, as every piece takes its time */

enum opening {
	OPEN_EMPTY,
	OPEN_WRITE,
	OPEN_READ,
	OPEN_SEND,
	OPEN_TERMINATE,
	OPEN_LONG_WRITE,
	OPEN_WRONG_LENGTH,
	OPEN_KINDS
};

static struct {
	int listener;
	uint16_t port; /* of the listener */
	struct visitor all[VISITORS_MAX];
	unsigned count;
	bool spoils;
	uint8_t spoil_at, spoil_value;
} visitors = {.listener = -1};

/* ---- all of one input ---- */

static uint16_t port_by(int fd, int (*get)(int fd, struct sockaddr *addr, socklen_t *len))
{
	struct sockaddr_in6 addr = {0};
	socklen_t len = sizeof(addr);

	/* A connection that was reset has no peer any more. */
	if (get(fd, (struct sockaddr *)&addr, &len))
		return 0;
	return addr.sin6_port; /* where IPv4 has it, too */
}

void visitors_open(struct sockaddr_storage *at)
{
	visitors.count = 0;
	visitors.spoils = false;
	visitors.listener = stranger_listen_at(at);
	visitors.port = port_by(visitors.listener, getsockname);
}

uint16_t visitors_port(void)
{
	return visitors.port;
}

void visitors_stop_listening(void)
{
	if (visitors.listener >= 0)
		close(visitors.listener);
	visitors.listener = -1;
}

void visitors_close(void)
{
	visitors_stop_listening();
	for (unsigned i = 0; i < visitors.count; i++) {
		visitor_hear(&visitors.all[i]);
		visitor_close(&visitors.all[i]);
	}
}

struct visitor *visitors_find(enum mpa_kind kind, uint16_t port)
{
	for (unsigned i = visitors.count; i > 0; i--) {
		struct visitor *visitor = &visitors.all[i - 1];

		if (visitor->kind == kind && visitor->port == port)
			return visitor;
	}
	return NULL;
}

struct visitor *visitor_choose(unsigned index)
{
	return visitors.count ? &visitors.all[index % visitors.count] : NULL;
}

/* ---- connecting ---- */

struct visitor *visitor_connect(const struct sockaddr_storage *to, void (*with_socket)(void))
{
	struct visitor *visitor = &visitors.all[visitors.count];

	if (visitors.count == VISITORS_MAX)
		return NULL;
	memset(visitor, 0, sizeof(*visitor));
	stranger_open(&visitor->stranger, to->ss_family);
	if (with_socket)
		with_socket();
	stranger_reach(&visitor->stranger, to);
	visitor->kind = MPA_REQUEST;
	visitor->port = port_by(visitor->stranger.fd, getsockname);
	visitors.count++;
	return visitor;
}

struct visitor *visitor_accept(int ms)
{
	struct visitor *visitor = &visitors.all[visitors.count];

	if (visitors.count == VISITORS_MAX || visitors.listener < 0 ||
	    !fd_is_readable(visitors.listener, ms))
		return NULL;
	memset(visitor, 0, sizeof(*visitor));
	stranger_accept(&visitor->stranger, visitors.listener);
	visitor->kind = MPA_REPLY;
	visitor->port = port_by(visitor->stranger.fd, getpeername);
	visitors.count++;
	return visitor;
}

void visitor_finish(struct visitor *visitor)
{
	/* After a reset there is nothing to shut down. */
	if (visitor->stranger.fd >= 0)
		shutdown(visitor->stranger.fd, SHUT_WR);
}

void visitor_close(struct visitor *visitor)
{
	stranger_close(&visitor->stranger);
}

void visitor_reset(struct visitor *visitor)
{
	if (visitor->stranger.fd >= 0)
		stranger_reset(&visitor->stranger);
}

/* ---- saying ---- */

/* What does not go has met an end: the program may have closed. */
static void say(struct visitor *visitor, const uint8_t *bytes, size_t len)
{
	size_t room = sizeof(visitor->said) - visitor->said_len;
	size_t kept = len < room ? len : room;

	if (visitor->stranger.fd < 0 || !len)
		return;
	memcpy(visitor->said + visitor->said_len, bytes, kept);
	visitor->said_len += kept;
	stranger_push(&visitor->stranger, bytes, len, 0);
}

static void say_in_pieces(struct visitor *visitor, const uint8_t *bytes, size_t len, uint8_t cut)
{
	size_t at = cut & ~CUT_DROP;

	if ((cut & ~CUT_DROP) == CUT_EACH) {
		for (at = 0; at < len && at < EACH_MOST; at++) {
			say(visitor, bytes + at, 1);
			moment_settle();
		}
	} else if (at && at < len) {
		say(visitor, bytes, at);
		moment_settle();
	} else {
		at = 0;
	}
	if (!(cut & CUT_DROP))
		say(visitor, bytes + at, len - at);
}

/* The last two values of a byte mean the last two that the field has. */
static uint16_t take_depth(struct input *input)
{
	uint8_t depth = take_byte(input);

	return depth < 0xfe ? depth : (uint16_t)(MPA_NOT_NEGOTIATED - UINT8_MAX + depth);
}

static struct mpa_frame take_frame(struct visitor *visitor, struct input *input, uint8_t more)
{
	static uint8_t data[MPA_MAX_PRIVATE];
	uint8_t flags = take_byte(input);
	struct mpa_frame frame = {
		.kind = more & FRAME_OTHER_KIND ? !visitor->kind : visitor->kind,
		.revision = flags & FRAME_REVISION_2 ? 2 : 1,
		.enhanced = flags & FRAME_ENHANCED,
		.markers = flags & FRAME_MARKERS,
		.crc = flags & FRAME_CRC,
		.reject = flags & FRAME_REJECT,
		.soft = flags & FRAME_SOFT,
		.shm = flags & FRAME_SHM,
		.acks = flags & FRAME_ACKS,
		.peer_to_peer = more & FRAME_PEER_TO_PEER,
		.rtr = more & FRAME_RTR,
		.private_data = data,
	};

	frame.ird = take_depth(input);
	frame.ord = take_depth(input);
	frame.private_len = (uint16_t)(take_byte(input) * (more & FRAME_LONG ? 2 : 1));
	if (frame.private_len > MPA_MAX_PRIVATE - MPA_ENHANCED_LEN)
		frame.private_len = MPA_MAX_PRIVATE - MPA_ENHANCED_LEN;
	for (size_t i = 0; i < frame.private_len; i++)
		data[i] = (uint8_t)(i + flags);
	return frame;
}

void visitor_say_frame(struct visitor *visitor, struct input *input)
{
	uint8_t more = take_byte(input), bytes[MPA_MAX_FRAME];
	struct mpa_frame frame = take_frame(visitor, input, more);
	size_t len = mpa_bytes(&frame, bytes);

	if (more & FRAME_REVISION_0)
		bytes[17] = 0;
	if (more & FRAME_LIES)
		put_be16(bytes + 18, (uint16_t)(get_be16(bytes + 18) + 1 + frame.ird));
	if (visitors.spoils)
		bytes[visitors.spoil_at % len] = visitors.spoil_value;
	visitors.spoils = false;
	visitor->stranger.crc |= frame.crc;
	say_in_pieces(visitor, bytes, len, take_byte(input));
}

void visitor_spoil_next(struct input *input)
{
	visitors.spoils = true;
	visitors.spoil_at = take_byte(input);
	visitors.spoil_value = take_byte(input);
}

static void make_opening(struct fpdu *fpdu, struct stranger *stranger, uint8_t kind)
{
	switch (kind % OPEN_KINDS) {
	case OPEN_EMPTY:
		fpdu->len = FPDU_LENGTH_LEN;
		put_be16(fpdu->bytes, 0);
		break;
	case OPEN_WRITE:
		fpdu_tagged(fpdu, RDMAP_WRITE, true, 1, 0, 0, 0);
		break;
	case OPEN_READ:
		fpdu_read(fpdu, stranger, 1, 0, 0);
		break;
	case OPEN_SEND:
		fpdu_send(fpdu, stranger, 24, kind);
		break;
	case OPEN_TERMINATE:
		fpdu_terminate(fpdu, kind, 0, 0);
		break;
	case OPEN_LONG_WRITE:
		fpdu_tagged(fpdu, RDMAP_WRITE, true, 1, 0, 64, kind);
		break;
	default:
		fpdu_send(fpdu, stranger, 24, kind);
		put_be16(fpdu->bytes, (uint16_t)(get_be16(fpdu->bytes) + kind));
		break;
	}
}

void visitor_say_fpdu(struct visitor *visitor, struct input *input)
{
	static struct fpdu fpdu;
	size_t len;

	make_opening(&fpdu, &visitor->stranger, take_byte(input));
	len = fpdu_end(&fpdu, &visitor->stranger);
	say_in_pieces(visitor, fpdu.bytes, len, take_byte(input));
}

void visitor_say_bytes(struct visitor *visitor, struct input *input)
{
	uint8_t bytes[UINT8_MAX], len = take_byte(input), cut = take_byte(input);

	for (size_t i = 0; i < len; i++)
		bytes[i] = take_byte(input);
	say_in_pieces(visitor, bytes, len, cut);
}

/* ---- hearing ---- */

static bool parse_start(enum mpa_kind kind, const uint8_t *bytes, size_t len,
			struct mpa_frame *frame)
{
	ssize_t whole = mpa_frame_len(kind, bytes, len);

	return whole > 0 && (size_t)whole <= len && !mpa_parse(kind, bytes, (size_t)whole, frame);
}

bool visitor_has_said(const struct visitor *visitor, struct mpa_frame *frame)
{
	return parse_start(visitor->kind, visitor->said, visitor->said_len, frame);
}

/* The one whose request it was could conclude the handshake with this reply. */
static void check_reply(const struct visitor *visitor, const struct mpa_frame *reply)
{
	struct mpa_frame request;
	struct mpa_agreed agreed;
	struct mpa_local local;
	uint16_t why;

	CHECK(visitor_has_said(visitor, &request));
	if (reply->reject)
		return;
	local = (struct mpa_local){.ird = request.ird, .ord = request.ord, .crc = request.crc};
	CHECK(!mpa_conclude(&request, &local, reply, &agreed, &why));
}

/* Whatever the program says first is a frame. */
static void check_heard(const struct visitor *visitor)
{
	enum mpa_kind kind = visitor->kind == MPA_REQUEST ? MPA_REPLY : MPA_REQUEST;
	ssize_t whole = mpa_frame_len(kind, visitor->heard, visitor->heard_len);
	struct mpa_frame frame;

	CHECK(whole > 0);
	if ((size_t)whole > visitor->heard_len)
		return;
	CHECK(!mpa_parse(kind, visitor->heard, (size_t)whole, &frame));
	if (kind == MPA_REPLY)
		check_reply(visitor, &frame);
}

void visitor_hear(struct visitor *visitor)
{
	uint8_t bytes[4096];
	ssize_t n;

	if (visitor->stranger.fd < 0)
		return;
	while ((n = recv(visitor->stranger.fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
		size_t room = sizeof(visitor->heard) - visitor->heard_len;
		size_t kept = (size_t)n < room ? (size_t)n : room;

		memcpy(visitor->heard + visitor->heard_len, bytes, kept);
		visitor->heard_len += kept;
	}
	visitor->has_heard_end |= n == 0 || errno != EAGAIN;
	check_heard(visitor);
}

/* ---- whether it was heard ---- */

bool visitor_is_decided(const struct visitor *visitor)
{
	ssize_t whole = mpa_frame_len(visitor->kind, visitor->said, visitor->said_len);

	return visitor->stranger.fd >= 0 && (whole < 0 || (size_t)whole <= visitor->said_len);
}

/* The program knows of it, or it knows of the program. */
static bool is_settled(struct visitor *visitor)
{
	visitor_hear(visitor);
	return visitor->is_shown || visitor->heard_len || visitor->has_heard_end;
}

bool visitors_are_decided(void)
{
	for (struct visitor *visitor = visitors.all; visitor < visitors.all + visitors.count;
	     visitor++)
		if (visitor->kind == MPA_REQUEST && visitor_is_decided(visitor) &&
		    !is_settled(visitor))
			return false;
	return true;
}

bool visitors_are_cut_off(void)
{
	for (struct visitor *visitor = visitors.all; visitor < visitors.all + visitors.count;
	     visitor++)
		if (visitor->kind == MPA_REQUEST && visitor->stranger.fd >= 0 &&
		    !is_settled(visitor))
			return false;
	return true;
}
