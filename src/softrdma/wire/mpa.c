/* SPDX-License-Identifier: MIT */
/* The MPA start-up frames, the negotiation they carry, and the arithmetic of FPDUs. */
#include <errno.h>

#include "../../common/bytes.h"
#include "wire/mpa.h"
#include "wire/terminate.h"

#define KEY_LEN     16
#define AT_FLAGS    16
#define AT_REVISION 17
#define AT_LENGTH   18

#define FLAG_MARKERS  0x80
#define FLAG_CRC      0x40
#define FLAG_REJECT   0x20
#define FLAG_ENHANCED 0x10

#define MAX_REVISION 2

/* The enhanced header: two 16-bit words, two flags and a 14-bit number in each. */
#define FLAG_PEER_TO_PEER 0x8000 /* first word, with IRD */
#define FLAG_RTR_FPDU     0x4000
#define FLAG_RTR_WRITE    0x8000 /* second word, with ORD */
#define FLAG_RTR_READ     0x4000
#define DEPTH_MASK        0x3fff

static const uint8_t keys[][KEY_LEN + 1] = {
	[MPA_REQUEST] = "MPA ID Req Frame",
	[MPA_REPLY] = "MPA ID Rep Frame",
};

/*
 * siw makes its reply from the request it got and so returns every reserved flag as it was: our own
 * mark comes back from a peer that is not softrdma. Hence a reply is marked with another bit.
 */
static const uint8_t soft_flags[] = {
	[MPA_REQUEST] = 0x01,
	[MPA_REPLY] = 0x02,
};
static const uint8_t shm_flags[] = {
	[MPA_REQUEST] = 0x04,
	[MPA_REPLY] = 0x08,
};

static const uint8_t ack_flags[] = {
	[MPA_REQUEST] = 0x08,
	[MPA_REPLY] = 0x01,
};

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

ssize_t mpa_frame_len(enum mpa_kind kind, const uint8_t *buf, size_t len)
{
	size_t private_len;

	if (memcmp(buf, keys[kind], smaller(len, KEY_LEN)) != 0)
		return -EPROTO;
	if (len > AT_REVISION && buf[AT_REVISION] > MAX_REVISION)
		return -EPROTO;
	if (len < MPA_HEADER_LEN)
		return MPA_HEADER_LEN;

	private_len = get_be16(buf + AT_LENGTH);
	if (private_len > MPA_MAX_PRIVATE)
		return -EPROTO;
	return (ssize_t)(MPA_HEADER_LEN + private_len);
}

static void parse_enhanced(const uint8_t *at, struct mpa_frame *out)
{
	uint16_t first = get_be16(at), second = get_be16(at + 2);

	out->peer_to_peer = first & FLAG_PEER_TO_PEER;
	out->rtr = (first & FLAG_RTR_FPDU ? MPA_RTR_FPDU : 0) |
		   (second & FLAG_RTR_WRITE ? MPA_RTR_WRITE : 0) |
		   (second & FLAG_RTR_READ ? MPA_RTR_READ : 0);
	out->ird = first & DEPTH_MASK;
	out->ord = second & DEPTH_MASK;
}

int mpa_parse(enum mpa_kind kind, const uint8_t *buf, size_t len, struct mpa_frame *out)
{
	struct mpa_frame frame = {.kind = kind};
	ssize_t expected = mpa_frame_len(kind, buf, len);
	uint8_t flags;

	if (expected < 0 || (size_t)expected != len)
		return -EPROTO;

	flags = buf[AT_FLAGS];
	frame.revision = buf[AT_REVISION];
	frame.markers = flags & FLAG_MARKERS;
	frame.crc = flags & FLAG_CRC;
	frame.reject = flags & FLAG_REJECT;
	frame.soft = flags & soft_flags[kind];
	frame.shm = frame.soft && flags & shm_flags[kind];
	frame.acks = frame.soft && flags & ack_flags[kind];
	frame.enhanced = (flags & FLAG_ENHANCED) && frame.revision == 2;
	frame.private_data = buf + MPA_HEADER_LEN;
	frame.private_len = get_be16(buf + AT_LENGTH);
	if (frame.enhanced) {
		if (frame.private_len < MPA_ENHANCED_LEN)
			return -EPROTO;
		parse_enhanced(frame.private_data, &frame);
		frame.private_data += MPA_ENHANCED_LEN;
		frame.private_len -= MPA_ENHANCED_LEN;
	}
	*out = frame;
	return 0;
}

/* What does not fit 14 bits is too many to negotiate, and the largest number says just that. */
static void put_enhanced(uint8_t *at, const struct mpa_frame *frame)
{
	uint16_t first = (uint16_t)smaller(frame->ird, DEPTH_MASK);
	uint16_t second = (uint16_t)smaller(frame->ord, DEPTH_MASK);

	if (frame->peer_to_peer)
		first |= FLAG_PEER_TO_PEER;
	if (frame->rtr & MPA_RTR_FPDU)
		first |= FLAG_RTR_FPDU;
	if (frame->rtr & MPA_RTR_WRITE)
		second |= FLAG_RTR_WRITE;
	if (frame->rtr & MPA_RTR_READ)
		second |= FLAG_RTR_READ;
	put_be16(at, first);
	put_be16(at + 2, second);
}

ssize_t mpa_build(const struct mpa_frame *frame, uint8_t *out)
{
	uint8_t revision = frame->revision ? frame->revision : 1;
	bool enhanced = frame->enhanced && revision == 2;
	size_t head = enhanced ? MPA_ENHANCED_LEN : 0;
	size_t private_len = head + frame->private_len;

	if (private_len > MPA_MAX_PRIVATE)
		return -EINVAL;

	memcpy(out, keys[frame->kind], KEY_LEN);
	out[AT_FLAGS] = (frame->markers ? FLAG_MARKERS : 0) | (frame->crc ? FLAG_CRC : 0) |
			(frame->reject ? FLAG_REJECT : 0) | (enhanced ? FLAG_ENHANCED : 0) |
			(frame->soft ? soft_flags[frame->kind] : 0) |
			(frame->soft && frame->shm ? shm_flags[frame->kind] : 0) |
			(frame->soft && frame->acks ? ack_flags[frame->kind] : 0);
	out[AT_REVISION] = revision;
	put_be16(out + AT_LENGTH, (uint16_t)private_len);
	if (enhanced)
		put_enhanced(out + MPA_HEADER_LEN, frame);
	if (frame->private_len)
		memcpy(out + MPA_HEADER_LEN + head, frame->private_data, frame->private_len);
	return (ssize_t)(MPA_HEADER_LEN + private_len);
}

/* One depth from both ends' wishes; a peer that does not negotiate it leaves it to us. */
static uint16_t agree_depth(uint16_t ours, uint16_t theirs)
{
	return theirs == MPA_NOT_NEGOTIATED || ours < theirs ? ours : theirs;
}

static uint16_t echo_depth(uint16_t agreed, uint16_t theirs)
{
	return theirs == MPA_NOT_NEGOTIATED ? MPA_NOT_NEGOTIATED : agreed;
}

static uint8_t choose_rtr(uint8_t offered)
{
	static const uint8_t preference[] = {MPA_RTR_WRITE, MPA_RTR_READ, MPA_RTR_FPDU};

	for (size_t i = 0; i < sizeof(preference); i++)
		if (offered & preference[i])
			return preference[i];
	return 0;
}

/* A Read that says "ready" needs a place for itself, whatever was asked for. */
static uint16_t room_for_rtr(uint16_t depth, uint8_t rtr)
{
	return rtr == MPA_RTR_READ && depth == 0 ? 1 : depth;
}

static int refuse(uint16_t code, uint16_t *why, int err)
{
	*why = code;
	return err;
}

static int answer_enhanced(const struct mpa_frame *request, const struct mpa_local *local,
			   struct mpa_frame *reply, struct mpa_agreed *agreed, uint16_t *why)
{
	if (request->peer_to_peer) {
		agreed->rtr = choose_rtr(request->rtr);
		if (!agreed->rtr)
			return refuse(TERM_MPA_RTR, why, -EPROTO);
	}
	agreed->ird = room_for_rtr(agree_depth(local->ird, request->ord), agreed->rtr);
	agreed->ord = agree_depth(local->ord, request->ird);

	reply->enhanced = true;
	reply->peer_to_peer = request->peer_to_peer;
	reply->rtr = agreed->rtr;
	reply->ird = echo_depth(agreed->ird, request->ord);
	reply->ord = echo_depth(agreed->ord, request->ird);
	return 0;
}

int mpa_answer(const struct mpa_frame *request, const struct mpa_local *local,
	       struct mpa_frame *reply, struct mpa_agreed *agreed, uint16_t *why)
{
	struct mpa_agreed result = {
		.crc = request->crc || local->crc,
		.soft = request->soft,
		.acks = request->acks,
		.ird = local->ird,
		.ord = local->ord,
	};
	struct mpa_frame answer = {
		.kind = MPA_REPLY,
		.revision = request->revision ? request->revision : 1,
		.crc = result.crc,
		.soft = request->soft, /* to others the reserved bits stay 0 */
		.acks = request->acks,
	};
	int err;

	if (request->markers)
		return refuse(TERM_MPA_STARTUP, why, -ECONNREFUSED);
	if (request->enhanced) {
		err = answer_enhanced(request, local, &answer, &result, why);
		if (err)
			return err;
	}
	*reply = answer;
	*agreed = result;
	return 0;
}

/* Is what the reply says of RTR exactly one of those offered, or nothing where none was offered? */
static bool is_rtr_acceptable(const struct mpa_frame *request, const struct mpa_frame *reply)
{
	uint8_t offered = request->peer_to_peer ? request->rtr : 0;

	if (reply->rtr & ~offered)
		return false;
	return !request->peer_to_peer || __builtin_popcount(reply->rtr) == 1;
}

int mpa_conclude(const struct mpa_frame *request, const struct mpa_local *local,
		 const struct mpa_frame *reply, struct mpa_agreed *agreed, uint16_t *why)
{
	struct mpa_agreed result = {
		.crc = reply->crc,
		.soft = reply->soft,
		.acks = request->acks && reply->acks,
		.ird = local->ird,
		.ord = local->ord,
	};

	if (reply->reject)
		return refuse(TERM_NONE, why, -ECONNREFUSED);
	if (reply->markers || reply->revision < request->revision ||
	    reply->enhanced != request->enhanced || (request->crc && !reply->crc))
		return refuse(TERM_MPA_STARTUP, why, -EPROTO);
	if (reply->enhanced) {
		if (!is_rtr_acceptable(request, reply))
			return refuse(TERM_MPA_RTR, why, -EPROTO);
		if (reply->ord != MPA_NOT_NEGOTIATED && reply->ord > local->ird)
			return refuse(TERM_MPA_IRD, why, -ENOSPC);
		result.rtr = reply->rtr;
		result.ird = agree_depth(local->ird, reply->ord);
		result.ord = room_for_rtr(agree_depth(local->ord, reply->ird), reply->rtr);
	}
	*agreed = result;
	return 0;
}

void fpdu_put_crc(uint8_t out[FPDU_CRC_LEN], uint32_t crc)
{
	crc = htole32(crc);
	memcpy(out, &crc, sizeof(crc));
}

uint32_t fpdu_get_crc(const uint8_t in[FPDU_CRC_LEN])
{
	uint32_t crc;

	memcpy(&crc, in, sizeof(crc));
	return le32toh(crc);
}

size_t fpdu_max_ulpdu(size_t mss)
{
	size_t whole = mss & ~(size_t)3; /* an FPDU is a multiple of 4 bytes */

	if (whole < FPDU_LENGTH_LEN + FPDU_CRC_LEN)
		return 0;
	return smaller(whole - FPDU_LENGTH_LEN - FPDU_CRC_LEN, FPDU_MAX_ULPDU);
}
