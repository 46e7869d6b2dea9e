/* SPDX-License-Identifier: MIT */
/* The stranger: it sends FPDUs in pieces, spoilt FPDUs, and bytes that are none. */
#include "session.h"

#include <sys/socket.h>

#include "tcp/conn.h"

#define HEARINGS    256 /* in a row: a bound for one operation */
#define HEAR_MS     8   /* for what is owed */
#define MAX_NOISE   64
#define MAX_PAYLOAD 64000u /* of an FPDU */

/* ---- speaking ---- */

/* The next bytes of what is pending. The honest end may have to read first. */
static void push(struct session *s, size_t most)
{
	size_t len = most < s->pending_len ? most : s->pending_len, done = 0;

	for (int i = 0; i < 8 && s->stranger.fd >= 0 && done < len; i++) {
		done += stranger_push(&s->stranger, s->pending + done, len - done, 0);
		if (done < len)
			session_look(s);
	}
	s->pending_len -= done;
	memmove(s->pending, s->pending + done, s->pending_len);
}

/* Whether nothing is in the way of new bytes. */
static bool say_pending(struct session *s)
{
	push(s, SIZE_MAX);
	return !s->pending_len;
}

/*
 * Where an FPDU is cut. The honest end looks between the parts. The second part of CUT_LATER leaves
 * with the next FPDU, so other operations can come in between.
 */
enum cut { CUT_NONE, CUT_HALF, CUT_BYTE, CUT_HEADER, CUT_CRUMBS, CUT_TRAILER, CUT_LATER, CUTS };

#define CRUMBS 24

static size_t first_part(enum cut cut, size_t len)
{
	switch (cut) {
	case CUT_HALF:
	case CUT_LATER:
		return len / 2;
	case CUT_BYTE:
	case CUT_CRUMBS:
		return 1;
	case CUT_HEADER:
		return len < 40 ? len / 2 : 24;
	case CUT_TRAILER:
		return len - 3;
	default:
		return len;
	}
}

static void say_in_parts(struct session *s, enum cut cut)
{
	push(s, first_part(cut, s->pending_len));
	if (cut == CUT_LATER)
		return;
	for (int i = 0; cut == CUT_CRUMBS && i < CRUMBS; i++) {
		session_look(s);
		push(s, 1);
	}
	if (s->pending_len)
		session_look(s);
	say_pending(s);
}

/* Nobody knows what the bytes will be taken for. */
static void go_wild(struct session *s)
{
	s->honest.wild = s->ear.wild = true;
}

/* End the FPDU at hand, spoilt if that was asked for, and say it. */
static void say_fpdu(struct session *s, unsigned cut)
{
	uint8_t *bytes = s->fpdu.bytes;
	bool ends_message = s->ends_message;

	s->ends_message = false;
	if (!say_pending(s) || !ear_note_said(&s->ear, ends_message))
		return;
	if (s->patch_with)
		go_wild(s);
	if (s->patch_at < s->fpdu.len)
		bytes[s->patch_at] ^= s->patch_with;
	s->pending_len = fpdu_end(&s->fpdu, &s->stranger);
	if (s->patch_at >= s->fpdu.len) /* the CRC */
		bytes[s->pending_len - 1] ^= s->patch_with;
	s->patch_with = 0;
	memcpy(s->pending, bytes, s->pending_len);
	say_in_parts(s, cut % CUTS);
}

/* ---- arguments ---- */

static uint32_t payload_size(uint8_t arg)
{
	uint32_t size = session_size(arg);

	return size < MAX_PAYLOAD ? size : MAX_PAYLOAD;
}

struct target {
	uint32_t key;
	uint64_t base;
	bool readonly;
};

static struct target target_of(const struct session *s, uint8_t arg)
{
	uint64_t window = (uintptr_t)honest_window();

	switch (arg % 8) {
	case 0: /* no remote rights */
		return (struct target){s->honest.side.mr->rkey, (uintptr_t)s->honest.side.buf,
				       false};
	case 1:
		return (struct target){s->honest.readonly->rkey, (uintptr_t)honest_readonly(),
				       true};
	case 2: /* of another protection domain */
		return (struct target){s->foreign->rkey, (uintptr_t)s->foreign->addr, false};
	case 3:
		return (struct target){s->honest.window_key ^ 1, window, false};
	case 4:
		return (struct target){arg >> 3, window, false};
	default:
		return (struct target){s->honest.window_key, window, false};
	}
}

static uint64_t address_of(uint64_t base, uint8_t arg)
{
	switch (arg % 8) {
	case 0:
		return base - 1;
	case 1:
		return base + WINDOW - 1;
	case 2:
		return base + WINDOW;
	case 3:
		return UINT64_MAX - (arg >> 3);
	case 4:
		return base + (arg >> 3);
	default:
		return base + (arg >> 3) * 1024;
	}
}

/* ---- the stranger's operations ---- */

/* Segments of Sends, some in a row. */
void rude_send(struct session *s)
{
	uint8_t how = session_take(s), what = session_take(s);
	unsigned count = 1 + (how >> 4) * 4;
	bool last = !(how & 0x08);

	for (unsigned i = 0; i < count; i++) {
		uint8_t value = SEND_BYTE | (s->stranger.send_msn & 0x0f);
		uint32_t size = payload_size(what);

		fpdu_segment(&s->fpdu, &s->stranger, RDMAP_SEND + (how & 3), last, s->mo, size,
			     value);
		if (how & 1) /* with invalidate: of the window mostly */
			put_be32(s->fpdu.bytes + ULPDU(2), target_of(s, what >> 4).key);
		s->mo = last ? 0 : s->mo + size;
		s->ends_message = last;
		say_fpdu(s, i ? CUT_NONE : what >> 4);
	}
}

void rude_write(struct session *s)
{
	uint8_t how = session_take(s), what = session_take(s), where = session_take(s);
	struct target target = target_of(s, how >> 4);
	uint32_t size = payload_size(what);
	bool last = !(how & 0x08);

	if (!s->write_open || (how & 0x04)) {
		s->write_stag = target.key;
		s->write_to = address_of(target.base, where);
	}
	fpdu_tagged(&s->fpdu, RDMAP_WRITE, last, s->write_stag, s->write_to, size, WRITE_BYTE);
	s->write_to += size;
	s->write_open = !last;
	say_fpdu(s, what >> 4);
}

void rude_read(struct session *s)
{
	uint8_t how = session_take(s), what = session_take(s), where = session_take(s);
	struct target target = target_of(s, how >> 4);
	struct rdmap_read_request read = {
		.sink_stag = target.readonly ? SINK_READONLY : SINK_STAG,
		.sink_to = SINK_TO,
		.size = session_size(what),
		.source_stag = target.key,
		.source_to = address_of(target.base, where),
	};

	for (unsigned i = 0; i <= (how & 0x0f); i++) {
		s->fpdu.len = ddp_put_read_request(s->fpdu.bytes, s->stranger.read_msn++, &read);
		s->ear.owed++;
		say_fpdu(s, what >> 4);
	}
}

void rude_atomic(struct session *s)
{
	uint8_t how = session_take(s), what = session_take(s), where = session_take(s);
	struct target target = target_of(s, how >> 4);
	struct rdmap_atomic_request atomic = {
		.op = how & 3,
		.id = s->stranger.read_msn,
		.stag = target.key,
		.to = address_of(target.base, where),
		.add_swap = what,
		.compare = UINT64_MAX / UINT8_MAX * FRESH_BYTE,
	};

	if (!(how & 0x08)) /* mostly where one may be */
		atomic.to &= ~(uint64_t)7;
	s->fpdu.len = ddp_put_atomic_request(s->fpdu.bytes, s->stranger.read_msn++, &atomic);
	s->ear.owed++;
	say_fpdu(s, what >> 4);
}

static void answer_atomic(struct session *s, const struct asked *asked, uint8_t how)
{
	const struct rdmap_atomic_response result = {
		.id = asked->id + (how & 1),
		.value = UINT64_MAX / UINT8_MAX * ANSWER_BYTE,
	};

	s->fpdu.len = ddp_put_atomic_response(s->fpdu.bytes, s->result_msn++, &result);
	s->ear.answered++;
}

/* What the answer to a read would be, for a request that is none: the stranger knows too much. */
static struct rdmap_read_request guess(const struct session *s)
{
	const struct posted *oldest = &s->honest.send[s->honest.sends_seen % MAX_POSTED];

	return (struct rdmap_read_request){
		.sink_stag = s->honest.side.mr->lkey,
		.sink_to = (uintptr_t)oldest->at,
		.size = sizeof(uint64_t),
	};
}

/* The next segment of it, as long as the request wants it or as the program says. */
static void answer_read(struct session *s, const struct asked *asked, uint8_t how, uint8_t what)
{
	struct rdmap_read_request read = asked->atomic ? guess(s) : asked->read;
	uint32_t left = read.size - s->answer_done;
	uint32_t size = how & 0x08 ? payload_size(what) : left;
	bool last = how & 0x04 ? !(how & 0x02) : size >= left;

	if (s->answer_done > read.size)
		size = 0;
	fpdu_tagged(&s->fpdu, RDMAP_READ_RESPONSE, last, read.sink_stag + (how & 1),
		    read.sink_to + s->answer_done + (how >> 7), size, ANSWER_BYTE);
	s->answer_done = last ? 0 : s->answer_done + size;
	s->ear.answered += last;
}

/* To the oldest request that was heard; to none if there is none. */
void rude_answer(struct session *s)
{
	static const struct asked nobody = {.read = {.sink_stag = SINK_STAG, .size = 64}};
	uint8_t how = session_take(s), what = session_take(s);
	const struct asked *asked;
	unsigned answered = s->ear.answered;

	ear_hear(&s->ear, &s->stranger);
	asked = ear_oldest(&s->ear);
	if (asked ? asked->atomic != !!(how & 0x20) : how & 0x20)
		answer_atomic(s, asked ? asked : &nobody, how);
	else
		answer_read(s, asked ? asked : &nobody, how, what);
	if (!asked)
		s->ear.answered = answered;
	say_fpdu(s, what >> 4);
}

void rude_immediate(struct session *s)
{
	uint8_t how = session_take(s);
	uint64_t mark = how & 2 ? IMMEDIATE_OF_SEND : 0;

	s->fpdu.len = ddp_put_immediate(s->fpdu.bytes, how & 1, s->stranger.send_msn++, mark | how);
	s->ends_message = !mark;
	say_fpdu(s, how >> 4);
}

void rude_acknowledge(struct session *s)
{
	uint8_t how = session_take(s);
	uint64_t position;

	ear_hear(&s->ear, &s->stranger);
	position = s->ear.heard;
	switch (how & 7) {
	case 1: /* backwards, or at least not forward */
		position -= how >> 3;
		break;
	case 2: /* early */
		position += how >> 3;
		break;
	case 3:
		position += 1ull << 32;
		break;
	default:
		break;
	}
	fpdu_tagged(&s->fpdu, RDMAP_WRITE, true, STAG_ACKNOWLEDGE, position, 0, 0);
	say_fpdu(s, CUT_NONE);
}

void rude_terminate(struct session *s)
{
	static const uint16_t codes[] = {TERM_RDMAP_LOCAL,      TERM_RDMAP_INVALID_STAG,
					 TERM_RDMAP_BOUNDS,     TERM_RDMAP_NO_INVALIDATE,
					 TERM_RDMAP_STREAM,     TERM_DDP_LOCAL,
					 TERM_DDP_INVALID_STAG, TERM_DDP_NO_BUFFER,
					 TERM_DDP_TOO_LONG,     TERM_MPA_CRC};
	uint8_t how = session_take(s);
	uint16_t code = codes[how % ARRAY_SIZE(codes)];

	fpdu_terminate(&s->fpdu, (uint8_t)(code >> 8), (uint8_t)code, how & 0x80 ? 0xc0 : 0);
	say_fpdu(s, (how >> 4) & 7);
}

/* An FPDU of bytes that the input has. */
void rude_garbage(struct session *s)
{
	size_t len = session_take(s) & 0x7f;

	go_wild(s);
	put_be16(s->fpdu.bytes, (uint16_t)len);
	for (size_t i = 0; i < len; i++)
		s->fpdu.bytes[ULPDU(i)] = session_take(s);
	s->fpdu.len = ULPDU(len);
	say_fpdu(s, CUT_NONE);
}

/* Not even an FPDU. */
void rude_noise(struct session *s)
{
	size_t len = session_take(s) % MAX_NOISE;

	go_wild(s);
	if (!say_pending(s))
		return;
	for (size_t i = 0; i < len; i++)
		s->pending[i] = session_take(s);
	s->pending_len = len;
	say_pending(s);
}

void rude_empty(struct session *s)
{
	put_be16(s->fpdu.bytes, 0);
	s->fpdu.len = FPDU_LENGTH_LEN;
	say_fpdu(s, CUT_NONE);
}

void rude_patch(struct session *s)
{
	s->patch_at = session_take(s);
	s->patch_with = session_take(s);
}

/* What the honest end says it has placed has reached its program. */
static void check_placed(const struct session *s)
{
	CHECK(ear_acknowledged_messages(&s->ear) <= s->honest.messages);
}

/* All that is there, and what is owed: the honest end may have waited for room to say it. */
void rude_hear(struct session *s)
{
	for (int i = 0; i < HEARINGS; i++) {
		bool any = ear_hear(&s->ear, &s->stranger);

		session_look(s);
		check_placed(s);
		if (!any && (s->ear.owed <= 0 || s->ear.ended || s->wait_budget <= 0))
			break;
		if (!any)
			session_wait(s, HEAR_MS);
	}
}

void rude_finish(struct session *s)
{
	if (s->stranger.fd >= 0)
		shutdown(s->stranger.fd, SHUT_WR);
}

void rude_reset(struct session *s)
{
	ear_hear(&s->ear, &s->stranger);
	if (s->stranger.fd >= 0)
		stranger_reset(&s->stranger);
}
