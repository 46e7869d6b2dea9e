/* SPDX-License-Identifier: MIT */
/*
 * MPA start-up frames from a peer. Input: one byte of options, our IRD and ORD, then the frame.
 * A request is answered and the answer concluded; a reply is concluded against a request of ours.
 */
#include "fuzz.h"

#include "../../src/common/bytes.h"
#include "wire/mpa.h"

#define OPT_REPLY        0x01
#define OPT_CRC          0x02
#define OPT_REVISION_2   0x04
#define OPT_PEER_TO_PEER 0x08
#define OPT_RTR_SHIFT    4 /* three bits */

/* A header decides once: what a prefix says, every longer one says too. */
static void check_prefixes(enum mpa_kind kind, const uint8_t *frame, size_t size)
{
	size_t end = size < MPA_HEADER_LEN ? size : MPA_HEADER_LEN;
	ssize_t whole = mpa_frame_len(kind, frame, size);

	CHECK(whole < 0 || (whole >= MPA_HEADER_LEN && whole <= MPA_MAX_FRAME));
	for (size_t len = 0; len <= end; len++) {
		uint8_t *copy = exact_copy(frame, len);
		ssize_t seen = mpa_frame_len(kind, copy, len);

		free(copy);
		CHECK(seen == whole || (seen == MPA_HEADER_LEN && len < MPA_HEADER_LEN));
	}
}

static void check_equal(const struct mpa_frame *a, const struct mpa_frame *b)
{
	CHECK(a->kind == b->kind && a->markers == b->markers && a->crc == b->crc);
	CHECK(a->reject == b->reject && a->enhanced == b->enhanced && a->soft == b->soft);
	CHECK(a->shm == b->shm && (a->soft || !a->shm));
	CHECK(a->peer_to_peer == b->peer_to_peer && a->rtr == b->rtr);
	CHECK(a->ird == b->ird && a->ord == b->ord && a->private_len == b->private_len);
	CHECK(!a->private_len || !memcmp(a->private_data, b->private_data, a->private_len));
}

/* Written again, a frame is the same but for what is reserved. */
static void check_build(const struct mpa_frame *frame, const uint8_t *bytes, size_t len)
{
	uint8_t out[MPA_MAX_FRAME];
	struct mpa_frame again;

	CHECK(mpa_build(frame, out) == (ssize_t)len);
	CHECK(!memcmp(out, bytes, 16) && !((out[16] ^ bytes[16]) & 0xe0));
	CHECK(out[17] == (bytes[17] ? bytes[17] : 1));
	CHECK(!memcmp(out + 18, bytes + 18, len - 18));
	CHECK(mpa_parse(frame->kind, out, len, &again) == 0);
	check_equal(frame, &again);
}

static void check_request(const struct mpa_frame *request, const struct mpa_local *local)
{
	const struct mpa_local initiator = {request->ird, request->ord, request->crc};
	struct mpa_frame reply, received;
	struct mpa_agreed theirs, ours;
	uint8_t out[MPA_MAX_FRAME];
	uint16_t why = 0;
	ssize_t len;

	if (mpa_answer(request, local, &reply, &theirs, &why) < 0) {
		CHECK(why);
		CHECK(request->markers || (request->peer_to_peer && !request->rtr));
		return;
	}
	CHECK(__builtin_popcount(theirs.rtr) == request->peer_to_peer);
	CHECK(theirs.ird <= local->ird || theirs.rtr == MPA_RTR_READ);
	CHECK(theirs.ord <= local->ord);

	len = mpa_build(&reply, out);
	CHECK(len > 0 && mpa_parse(MPA_REPLY, out, (size_t)len, &received) == 0);
	check_equal(&reply, &received);
	CHECK(mpa_conclude(request, &initiator, &received, &ours, &why) == 0);
	CHECK(ours.crc == theirs.crc && ours.rtr == theirs.rtr && ours.soft == theirs.soft);
	CHECK(!request->enhanced || ours.ord <= theirs.ird || request->ord == MPA_NOT_NEGOTIATED);
	CHECK(!request->enhanced || theirs.ord <= ours.ird || request->ird == MPA_NOT_NEGOTIATED);
}

static void check_reply(const struct mpa_frame *reply, const struct mpa_local *local, uint8_t opts)
{
	const struct mpa_frame request = {
		.kind = MPA_REQUEST,
		.revision = opts & OPT_REVISION_2 ? 2 : 1,
		.enhanced = opts & OPT_REVISION_2,
		.crc = local->crc,
		.peer_to_peer = opts & OPT_PEER_TO_PEER,
		.rtr = opts >> OPT_RTR_SHIFT & 7,
		.ird = local->ird,
		.ord = local->ord,
	};
	struct mpa_agreed agreed;
	uint16_t why = 0;

	if (mpa_conclude(&request, local, reply, &agreed, &why) < 0) {
		CHECK(why);
		return;
	}
	CHECK(!reply->reject && !reply->markers);
	CHECK(agreed.crc || !request.crc);
	CHECK(!(agreed.rtr & ~request.rtr));
	CHECK(__builtin_popcount(agreed.rtr) == (request.enhanced && request.peer_to_peer));
	CHECK(agreed.ird <= local->ird);
	CHECK(agreed.ord <= local->ord || agreed.rtr == MPA_RTR_READ);
}

/* The first bytes of the input once more, as numbers. */
static void check_fpdu(const uint8_t *data, size_t size)
{
	uint8_t field[FPDU_CRC_LEN] = {0}, again[FPDU_CRC_LEN];
	size_t mss;

	memcpy(field, data, size < sizeof(field) ? size : sizeof(field));
	fpdu_put_crc(again, fpdu_get_crc(field));
	CHECK(!memcmp(field, again, sizeof(field)));

	mss = get_be32(field);
	CHECK(fpdu_max_ulpdu(mss) <= FPDU_MAX_ULPDU);
	CHECK(mss < 8 || fpdu_len(fpdu_max_ulpdu(mss)) <= mss);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	uint8_t opts = take_byte(&input);
	enum mpa_kind kind = opts & OPT_REPLY ? MPA_REPLY : MPA_REQUEST;
	struct mpa_local local = {.ird = take_byte(&input), .crc = opts & OPT_CRC};
	struct mpa_frame frame;

	local.ord = take_byte(&input);
	check_fpdu(data, size);
	check_prefixes(kind, input.at, input.left);
	if (mpa_parse(kind, input.at, input.left, &frame) < 0)
		return 0;

	CHECK(mpa_frame_len(kind, input.at, input.left) == (ssize_t)input.left);
	CHECK(frame.private_data + frame.private_len == input.at + input.left);
	check_build(&frame, input.at, input.left);
	if (kind == MPA_REQUEST)
		check_request(&frame, &local);
	else
		check_reply(&frame, &local, opts);
	frame.private_len = MPA_MAX_PRIVATE + 1;
	CHECK(mpa_build(&frame, NULL) < 0);
	return 0;
}
