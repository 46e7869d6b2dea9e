/* SPDX-License-Identifier: MIT */
/* What the rude peer says, and what it makes of what it hears. */
#include "rude.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "../fuzz.h"

#define PATIENCE        40    /* looks at a stream that does not move */
#define SHAKE_PATIENCE  2000  /* the same, for an answer to the handshake */
#define SEGMENT         60000 /* bytes of an answer in one FPDU */
#define MOST_ANSWERED   (4u << 20)
#define MOST_DATA       4096
#define PIECE           256u /* of a pattern */
#define KEY_ACKNOWLEDGE 2    /* an empty Write to it is an acknowledgement */

/* libibmsg's receives for each connection; they bound what it may promise. */
#define MOST_DATA_CREDITS    128
#define MOST_CONTROL_CREDITS 8

static struct fpdu fpdu;

/* ---- patterns ---- */

/*
 * Where in the table a pattern goes on, and for how many bytes: so that it is copied and compared
 * in pieces. A byte of a table is 7 more than the one before it, and each piece begins elsewhere.
 */
static const uint8_t *piece(uint32_t seed, uint64_t at, size_t *len)
{
	static uint8_t table[2 * PIECE];
	uint32_t turn = (uint32_t)(seed * 29 + at / PIECE * 3 + at / PIECE / PIECE);

	/* From the end: the second byte says that all are there. */
	for (unsigned i = sizeof(table) - 1; !table[1]; i--)
		table[i] = (uint8_t)(i * 7);
	if (*len > PIECE - at % PIECE)
		*len = PIECE - at % PIECE;
	return table + turn % PIECE + at % PIECE;
}

void pattern_put(uint8_t *to, uint32_t seed, uint64_t from, size_t len)
{
	for (size_t done = 0, part; done < len; done += part) {
		part = len - done;
		memcpy(to + done, piece(seed, from + done, &part), part);
	}
}

bool pattern_is(const uint8_t *bytes, uint32_t seed, uint64_t from, size_t len)
{
	for (size_t done = 0, part; done < len; done += part) {
		const uint8_t *expected;

		part = len - done;
		expected = piece(seed, from + done, &part);
		if (memcmp(bytes + done, expected, part) != 0)
			return false;
	}
	return true;
}

/* ---- the stream ---- */

void rude_init(struct rude *rude, void (*pump)(void))
{
	memset(rude, 0, sizeof(*rude));
	rude->wire.fd = -1;
	rude->pump = pump;
}

void rude_leave(struct rude *rude, unsigned how)
{
	if (rude->wire.fd < 0)
		return;
	if (how == 1)
		stranger_reset(&rude->wire);
	else if (how == 2)
		shutdown(rude->wire.fd, SHUT_WR);
	else
		stranger_close(&rude->wire);
	rude->is_open = false;
}

/* A stream that stays full is cut off: half an FPDU could not be continued later. */
static void push(struct rude *rude, const uint8_t *bytes, size_t len)
{
	unsigned tries = 0;
	size_t done = 0;

	while (rude->is_open && done < len) {
		size_t went = stranger_push(&rude->wire, bytes + done, len - done, 0);

		done += went;
		if (done == len)
			break;
		tries = went ? 0 : tries + 1;
		if (tries > PATIENCE)
			rude_leave(rude, 1);
		rude->pump();
	}
}

static void push_fpdu(struct rude *rude)
{
	push(rude, fpdu.bytes, fpdu_end(&fpdu, &rude->wire));
	rude->said++;
}

/* ---- the handshake ---- */

static struct mpa_frame frame_of(const struct rude *rude, enum mpa_kind kind, uint16_t reads)
{
	return (struct mpa_frame){
		.kind = kind,
		.revision = 2,
		.enhanced = true,
		.soft = true,
		.acks = rude->acks,
		.ird = reads,
		.ord = reads,
	};
}

static void push_frame(struct rude *rude, const struct mpa_frame *frame)
{
	uint8_t bytes[MPA_MAX_FRAME];

	push(rude, bytes, mpa_bytes(frame, bytes));
}

static bool hear_frame(struct rude *rude, enum mpa_kind kind, struct mpa_frame *out)
{
	size_t len = 0;
	ssize_t wanted = MPA_HEADER_LEN;

	for (unsigned tries = 0; tries < SHAKE_PATIENCE; tries++) {
		ssize_t n = recv(rude->wire.fd, rude->in + len, (size_t)wanted - len, MSG_DONTWAIT);

		if (!n || (n < 0 && errno != EAGAIN))
			return false;
		len += n > 0 ? (size_t)n : 0;
		wanted = mpa_frame_len(kind, rude->in, len);
		CHECK(wanted > 0);
		if (len == (size_t)wanted && len >= MPA_HEADER_LEN) {
			CHECK(!mpa_parse(kind, rude->in, len, out));
			return true;
		}
		if (n < 0)
			rude->pump();
	}
	return false;
}

static void take_private(struct rude *rude, const struct mpa_frame *frame)
{
	enum proto_peer peer =
		proto_get_private(frame->private_data, frame->private_len, &rude->theirs);

	/* One that meets an original says nothing of itself. */
	CHECK(peer == (rude->original && frame->kind == MPA_REPLY ? PEER_ORIGINAL : PEER_IBMSG));
	rude->data_credits += rude->theirs.data_credits;
	rude->control_credits += rude->theirs.control_credits;
}

static void begin(struct rude *rude)
{
	rude->is_open = true;
	rude->data_given = rude->ours.data_credits;
	rude->control_given = rude->ours.control_credits;
}

bool rude_connect(struct rude *rude, uint16_t port, uint16_t reads, bool early)
{
	struct mpa_frame request = frame_of(rude, MPA_REQUEST, reads), reply;
	uint8_t private_data[PROTO_PRIVATE_MAX];

	stranger_connect(&rude->wire, port);
	begin(rude);
	if (!rude->original) {
		request.private_len = (uint16_t)proto_put_private(private_data, &rude->ours);
		request.private_data = private_data;
	}
	push_frame(rude, &request);
	if (early)
		rude_say_hello(rude, 0, 0);
	if (!hear_frame(rude, MPA_REPLY, &reply) || reply.reject) {
		rude_leave(rude, 0);
		return false;
	}
	CHECK(reply.acks == rude->acks);
	take_private(rude, &reply);
	return true;
}

bool rude_is_called(int listener)
{
	struct pollfd one = {.fd = listener, .events = POLLIN};

	return poll(&one, 1, 0) == 1;
}

bool rude_accept(struct rude *rude, int listener, uint16_t reads, unsigned how)
{
	struct mpa_frame request, reply = frame_of(rude, MPA_REPLY, reads);
	uint8_t private_data[PROTO_PRIVATE_MAX] = {0};

	stranger_accept(&rude->wire, listener);
	begin(rude);
	if (!hear_frame(rude, MPA_REQUEST, &request)) {
		rude_leave(rude, 0);
		return false;
	}
	take_private(rude, &request);
	reply.acks = rude->acks && request.acks;
	reply.reject = how == 1 || how == 2;
	if (!rude->original && how != 2) {
		reply.private_len = (uint16_t)proto_put_private(private_data, &rude->ours);
		reply.private_data = private_data;
	}
	if (how == 3)
		private_data[4]++;
	push_frame(rude, &reply);
	return !reply.reject;
}

/* ---- speaking ---- */

static void push_send(struct rude *rude, const void *bytes, size_t len)
{
	fpdu_send(&fpdu, &rude->wire, len, 0);
	if (len)
		memcpy(fpdu.bytes + fpdu.len - len, bytes, len);
	push_fpdu(rude);
	rude->awaits = rude->said;
}

static bool has_credit(struct rude *rude, enum proto_type type)
{
	int64_t *credits = proto_is_control(type) ? &rude->control_credits : &rude->data_credits;

	if ((rude->habits & RUDE_COUNTS) && *credits <= 0)
		return false;
	--*credits;
	return true;
}

/* What is wrong at this place of the stream, whatever the loop does meanwhile. */
static bool is_violation(const struct rude *rude, const struct proto_message *message)
{
	if (message->type == PROTO_HELLO || !rude->hello_said)
		return message->type != PROTO_HELLO || rude->hello_said;
	if (message->type == PROTO_END)
		return rude->end_said && !(message->flags & PROTO_SEEN);
	return rude->end_said && !proto_is_control(message->type);
}

static void note_said(struct rude *rude, const struct proto_message *message)
{
	rude->has_violated |= !rude->seen_said && is_violation(rude, message);
	rude->hello_said |= message->type == PROTO_HELLO;
	rude->end_said |= message->type == PROTO_END;
	rude->seen_said |= message->type == PROTO_END && message->flags & PROTO_SEEN;
	rude->data_given += message->data_credits;
	rude->control_given += message->control_credits;
}

/* A SEND whose header is @message, with @len bytes that are at @bytes + PROTO_HEADER_LEN. */
static bool say_with(struct rude *rude, const struct proto_message *message, uint8_t *bytes,
		     size_t len)
{
	/* From an original even this would be a message. */
	if (!rude->is_open || rude->original || !has_credit(rude, message->type))
		return false;
	note_said(rude, message);
	push_send(rude, bytes, proto_put_message(bytes, message) + len);
	return true;
}

void rude_send(struct rude *rude, const void *bytes, size_t len)
{
	struct proto_message message;

	if (!rude->is_open || rude->original)
		return; /* from an original it would be a message */
	if (proto_get_message(bytes, len, &message)) {
		rude->has_violated |= !rude->seen_said;
	} else {
		if (message.type == PROTO_HELLO)
			return; /* it would name another sign of life */
		note_said(rude, &message);
		rude->has_guessed = true;
	}
	push_send(rude, bytes, len);
}

bool rude_say(struct rude *rude, const struct proto_message *message)
{
	uint8_t bytes[PROTO_HEADER_LEN + PROTO_REGION_LEN];

	return say_with(rude, message, bytes, 0);
}

/* Behind its END, and behind a violation, nothing may be delivered any more. */
static void note_told(struct rude *rude, struct told told)
{
	if (rude->end_said || rude->has_violated)
		return;
	rude->told[rude->num_told++] = told;
	rude->num_offers += told.offered;
}

void rude_say_data(struct rude *rude, size_t size, uint8_t flags)
{
	const struct proto_message data = {.type = PROTO_DATA, .flags = flags};
	static uint8_t bytes[PROTO_HEADER_LEN + UINT16_MAX];

	if (rude->num_told == MAX_TOLD || !rude->is_open)
		return;
	pattern_put(bytes + PROTO_HEADER_LEN, rude->num_told, 0, size);
	if (rude->original)
		push_send(rude, bytes + PROTO_HEADER_LEN, size);
	else if (!say_with(rude, &data, bytes, size))
		return;
	/* One that is too long for a receive ends the connection. */
	if (size <= MOST_DATA + (rude->original ? PROTO_HEADER_LEN : 0))
		note_told(rude, (struct told){.size = size});
}

/* Returns what is said after @len bytes of a MANY were made worse. */
static size_t spoil_many(uint8_t *bytes, struct proto_message *many, size_t len, unsigned lie)
{
	switch (lie) {
	case 1:
		many->length++;
		return len;
	case 2:
		many->length = 0;
		return len;
	case 3:
		put_be16(bytes + PROTO_HEADER_LEN, UINT16_MAX);
		return len;
	default:
		return len - 1;
	}
}

void rude_say_many(struct rude *rude, unsigned count, size_t size, unsigned lie)
{
	static uint8_t bytes[PROTO_HEADER_LEN + MOST_DATA], part[MOST_DATA];
	struct proto_message many = {.type = PROTO_MANY};
	unsigned most = (unsigned)(MOST_DATA / proto_part_len(size));
	size_t len = 0;

	count = count < most ? count : most;
	if (!count || rude->num_told + count > MAX_TOLD)
		return;
	many.length = count;
	for (unsigned i = 0; i < count; i++) {
		pattern_put(part, rude->num_told + i, 0, size);
		len += proto_put_part(bytes + PROTO_HEADER_LEN + len, part, (uint16_t)size);
	}
	if (lie)
		len = spoil_many(bytes, &many, len, lie);
	if (!say_with(rude, &many, bytes, len))
		return;
	rude->has_violated |= lie && !rude->seen_said;
	if (lie)
		return;
	for (unsigned i = 0; i < count; i++)
		note_told(rude, (struct told){.size = size, .packed = i + 1 < count});
}

void rude_say_hello(struct rude *rude, uint16_t data, uint16_t control)
{
	const struct proto_message hello = {
		.type = PROTO_HELLO,
		.data_credits = data,
		.control_credits = control,
		.address = WORD_ADDRESS,
		.key = WORD_KEY,
	};

	rude_say(rude, &hello);
}

void rude_say_offer(struct rude *rude, uint64_t size, uint64_t address, uint32_t number)
{
	const struct proto_message offer = {
		.type = PROTO_OFFER,
		.length = size,
		.address = address,
		.key = OFFER_KEY + rude->num_told,
		.number = number,
	};

	if (rude->num_told < MAX_TOLD && rude_say(rude, &offer))
		note_told(rude, (struct told){.size = size,
					      .offered = true,
					      .address = address,
					      .number = number});
}

void rude_say_done(struct rude *rude, unsigned which, bool exists, uint32_t status)
{
	struct proto_message done = {.type = PROTO_DONE, .number = which, .status = status};
	struct post *post = NULL;
	unsigned seen = 0;

	for (unsigned i = 0; exists && i < rude->num_posts; i++)
		if (rude->posts[i].is_offer && seen++ <= which)
			post = &rude->posts[i];
	if (exists && !post)
		return;
	if (post)
		done.number = post->number;
	else
		rude->has_guessed = true;
	if (rude_say(rude, &done) && post && post->answer < 0)
		post->answer = (int)status;
}

void rude_say_credit(struct rude *rude, uint16_t data, uint16_t control, uint8_t flags)
{
	const struct proto_message credit = {.type = PROTO_CREDIT,
					     .flags = flags,
					     .data_credits = data,
					     .control_credits = control};

	rude_say(rude, &credit);
}

void rude_say_end(struct rude *rude, uint8_t flags)
{
	rude_say(rude, &(struct proto_message){.type = PROTO_END, .flags = flags});
}

void rude_acknowledge(struct rude *rude, uint32_t more)
{
	if (!rude->is_open || !rude->acks)
		return;
	rude->has_guessed |= more;
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, KEY_ACKNOWLEDGE, rude->heard + more, 0, 0);
	push_fpdu(rude);
}

void rude_terminate(struct rude *rude, uint8_t code)
{
	if (!rude->is_open)
		return;
	fpdu_terminate(&fpdu, 0x01, code, 0);
	push_fpdu(rude);
	rude->awaits = rude->said;
}

/* ---- reads ---- */

/* The offer that a read is for; NULL: the sign of life. Nothing else may be read. */
static struct told *source_of(struct rude *rude, const struct rdmap_read_request *read)
{
	uint32_t index = read->source_stag - OFFER_KEY;
	struct told *told = &rude->told[index % MAX_TOLD];
	uint64_t offset = read->source_to - told->address;

	if (read->source_stag == WORD_KEY) {
		CHECK(read->source_to == WORD_ADDRESS && read->size == 8);
		return NULL;
	}
	CHECK(index < rude->num_told && told->offered);
	CHECK(offset <= told->size && read->size <= told->size - offset);
	return told;
}

static void answer_with(struct rude *rude, const struct rdmap_read_request *read, uint32_t size,
			bool whole)
{
	const struct told *told = source_of(rude, read);
	uint32_t seed = read->source_stag - OFFER_KEY, done = 0;

	do {
		uint32_t len = size - done < SEGMENT ? size - done : SEGMENT;

		fpdu_tagged(&fpdu, RDMAP_READ_RESPONSE, whole && done + len == size,
			    read->sink_stag, read->sink_to + done, len, 0);
		if (told)
			pattern_put(fpdu.bytes + fpdu.len - len, seed,
				    read->source_to - told->address + done, len);
		push_fpdu(rude);
		done += len;
	} while (done < size && rude->is_open);
	rude->awaits = rude->said;
}

void rude_answer_read(struct rude *rude, unsigned how)
{
	struct rdmap_read_request read = rude->reads[0];
	struct told *told;

	if (!rude->num_reads || !rude->is_open || rude->pushed + read.size > MOST_ANSWERED)
		return;
	memmove(rude->reads, rude->reads + 1, --rude->num_reads * sizeof(*rude->reads));
	rude->pushed += read.size;
	told = source_of(rude, &read);
	if (how == 3)
		read.sink_stag ^= 1;
	answer_with(rude, &read,
		    how == 1                ? read.size + 1
		    : how == 2 && read.size ? read.size - 1
		    : how == 4              ? read.size / 2
					    : read.size,
		    how != 4);
	if (told && !how)
		told->delivered += read.size;
}

void rude_read(struct rude *rude, unsigned which, unsigned spoil)
{
	uint32_t key = rude->word_key, size = 8;
	uint64_t address = rude->word_address;

	if (!rude->is_open || rude->is_reading || !rude->hello_heard)
		return;
	rude->read_post = MAX_POSTS;
	for (unsigned i = 0; which && i < rude->num_posts; i++) {
		const struct post *post = &rude->posts[i];

		if (!post->is_offer || --which)
			continue;
		rude->read_post = i;
		key = post->key;
		address = post->address;
		size = post->size < SEGMENT ? (uint32_t)post->size : SEGMENT;
	}
	fpdu_read(&fpdu, &rude->wire, key + (spoil == 1), address + (spoil == 2), size);
	push_fpdu(rude);
	rude->is_reading = true;
	rude->awaits = rude->said;
}

/* ---- hearing ---- */

/* The next message that was posted. An original is not sent what is too long for it. */
static struct post *next_post(struct rude *rude)
{
	struct post *post;

	do {
		CHECK(rude->next_post < rude->num_posts);
		post = &rude->posts[rude->next_post++];
	} while (rude->original && post->size > MOST_DATA);
	post->heard = true;
	return post;
}

static void hear_bytes(struct rude *rude, const uint8_t *bytes, size_t len)
{
	const struct post *post = next_post(rude);

	CHECK(post->size == len && pattern_is(bytes, post->seed, 0, len));
}

static void hear_many(struct rude *rude, const uint8_t *at, size_t left, uint64_t count)
{
	uint16_t len;

	CHECK(rude->ours.features & PROTO_TAKES_MANY);
	CHECK(count > 1);
	while (count--) {
		size_t taken = proto_get_part(at, left, &len);

		CHECK(taken);
		hear_bytes(rude, at + PROTO_HEADER_LEN, len);
		at += taken;
		left -= taken;
	}
	CHECK(!left);
}

static void hear_offer(struct rude *rude, const struct proto_message *offer)
{
	struct post *post = next_post(rude);

	CHECK(post->size == offer->length);
	post->is_offer = true;
	post->number = offer->number;
	post->address = offer->address;
	post->key = offer->key;
	if (rude->habits & RUDE_ANSWERS_OFFERS) {
		post->answer = PROTO_TAKEN;
		if (!rude_say(rude,
			      &(struct proto_message){.type = PROTO_DONE, .number = offer->number}))
			post->answer = -1;
	}
}

static void hear_done(struct rude *rude, const struct proto_message *done)
{
	bool any = false;

	for (unsigned i = 0; i < rude->num_told; i++)
		any |= rude->told[i].offered && rude->told[i].number == done->number;
	CHECK(any && ++rude->dones_heard <= rude->num_offers);
}

static void hear_end(struct rude *rude, const struct proto_message *end)
{
	bool seen = end->flags & PROTO_SEEN;

	CHECK(!rude->seen_heard && (seen ? rude->end_said : !rude->end_heard));
	rude->end_heard = true;
	rude->seen_heard = seen;
	if (!(rude->habits & RUDE_CLOSES))
		return;
	if (!rude->end_said || !seen)
		rude_say_end(rude, PROTO_SEEN);
}

/* No message without a credit, and no promise without a receive. */
static void count_credits(struct rude *rude, const struct proto_message *message)
{
	if (proto_is_control(message->type)) {
		CHECK(++rude->control_heard <= rude->control_given);
		rude->owed_control++;
	} else {
		CHECK(++rude->data_heard <= rude->data_given);
		CHECK(!rude->end_heard);
		rude->owed_data++;
	}
	rude->data_credits += message->data_credits;
	rude->control_credits += message->control_credits;
	CHECK(rude->data_credits <= MOST_DATA_CREDITS);
	CHECK(rude->control_credits <= MOST_CONTROL_CREDITS);
}

static void return_credits(struct rude *rude)
{
	unsigned data = rude->owed_data, control = rude->owed_control;

	/* One credit alone would be spent by telling of it, at both sides in turn, for ever. */
	if (!(rude->habits & RUDE_RETURNS_CREDITS) || (!data && control < 4))
		return;
	rude->owed_data = 0;
	rude->owed_control = 0;
	rude_say_credit(rude, (uint16_t)data, (uint16_t)control, 0);
}

static void hear_send(struct rude *rude, const uint8_t *bytes, size_t len)
{
	struct proto_message message;

	if (rude->original) {
		hear_bytes(rude, bytes, len);
		return;
	}
	CHECK(len <= rude->ours.max_send && !proto_get_message(bytes, len, &message));
	CHECK(message.type == PROTO_HELLO ? !rude->hello_heard : rude->hello_heard);
	count_credits(rude, &message);
	switch (message.type) {
	case PROTO_HELLO:
		rude->hello_heard = true;
		rude->word_address = message.address;
		rude->word_key = message.key;
		break;
	case PROTO_DATA:
		hear_bytes(rude, bytes + PROTO_HEADER_LEN, len - PROTO_HEADER_LEN);
		break;
	case PROTO_MANY:
		hear_many(rude, bytes + PROTO_HEADER_LEN, len - PROTO_HEADER_LEN, message.length);
		break;
	case PROTO_OFFER:
		hear_offer(rude, &message);
		break;
	case PROTO_DONE:
		hear_done(rude, &message);
		break;
	case PROTO_END:
		hear_end(rude, &message);
		break;
	default:
		break;
	}
	return_credits(rude);
}

static void hear_read(struct rude *rude, const struct rdmap_read_request *read)
{
	CHECK(rude->num_reads < MAX_RUDE_READS);
	source_of(rude, read);
	rude->reads[rude->num_reads++] = *read;
	if (rude->habits & RUDE_ANSWERS_READS)
		rude_answer_read(rude, 0);
}

/* An answer to a read of ours: the bytes of the offer, as long as it is one. */
static void hear_answer(struct rude *rude, const struct ddp_header *header, const uint8_t *bytes)
{
	const struct post *post = &rude->posts[rude->read_post % MAX_POSTS];

	CHECK(rude->is_reading && header->stag == SINK_STAG);
	if (rude->read_post < MAX_POSTS && post->answer < 0 && !post->done)
		CHECK(pattern_is(bytes, post->seed, header->to - SINK_TO, header->payload_len));
	rude->is_reading = !header->last;
}

/* Returns whether it is worth an acknowledgement. */
static bool hear_ulpdu(struct rude *rude, const uint8_t *ulpdu, size_t len)
{
	struct ddp_header header;
	uint16_t why;

	CHECK(!ddp_parse(ulpdu, len, len, true, &header, &why));
	switch (header.opcode) {
	case RDMAP_SEND:
		CHECK(header.last);
		hear_send(rude, ulpdu + header.header_len, header.payload_len);
		return true;
	case RDMAP_READ_REQUEST:
		hear_read(rude, &header.read);
		return true;
	case RDMAP_READ_RESPONSE:
		hear_answer(rude, &header, ulpdu + header.header_len);
		return true;
	case RDMAP_WRITE:
		CHECK(!header.payload_len);
		if (header.stag == KEY_ACKNOWLEDGE) {
			CHECK(rude->acks && header.to <= rude->said);
			rude->placed = (uint32_t)header.to;
		}
		return false;
	default:
		CHECK(header.opcode == RDMAP_TERMINATE);
		rude->is_open = false;
		return false;
	}
}

static bool hear_fpdus(struct rude *rude)
{
	const uint8_t *at = rude->in;
	size_t left = rude->in_len;
	bool any = false;

	while (left >= FPDU_LENGTH_LEN && left >= fpdu_len(get_be16(at))) {
		size_t len = get_be16(at);

		rude->heard++;
		any |= hear_ulpdu(rude, at + FPDU_LENGTH_LEN, len);
		at += fpdu_len(len);
		left -= fpdu_len(len);
	}
	memmove(rude->in, at, left);
	rude->in_len = left;
	return any;
}

void rude_hear(struct rude *rude)
{
	bool any = false;

	while (rude->wire.fd >= 0) {
		ssize_t n = recv(rude->wire.fd, rude->in + rude->in_len,
				 sizeof(rude->in) - rude->in_len, MSG_DONTWAIT);

		if (!n || (n < 0 && errno != EAGAIN))
			rude->is_open = false;
		if (n <= 0)
			break;
		rude->in_len += (size_t)n;
		any |= hear_fpdus(rude);
	}
	if (any && (rude->habits & RUDE_ACKNOWLEDGES))
		rude_acknowledge(rude, 0);
}

bool rude_waits(const struct rude *rude)
{
	return rude->is_open && rude->acks && rude->placed < rude->awaits;
}

struct post *rude_note_post(struct rude *rude, void *msg, size_t size, uint32_t seed)
{
	struct post *post = &rude->posts[rude->num_posts];

	if (rude->num_posts == MAX_POSTS)
		return NULL;
	rude->num_posts++;
	*post = (struct post){.msg = msg, .size = size, .seed = seed, .answer = -1};
	return post;
}
