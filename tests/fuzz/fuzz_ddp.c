/* SPDX-License-Identifier: MIT */
/*
 * A stream of FPDUs from a peer. Input: one byte of options, then FPDUs as on the wire (padding and
 * CRC are skipped, not checked); the last may be cut off.
 */
#include "fuzz.h"

#include <errno.h>

#include "../../src/common/bytes.h"
#include "wire/ddp.h"
#include "wire/mpa.h"

#define OPT_EXTENDED   0x01
/* Both open messages are 16 bytes short of the longest there may be. */
#define OPT_NEAR_LIMIT 0x02

/* What a part of the header decides, the whole does not revise. */
static void check_prefixes(const uint8_t *ulpdu, size_t have, size_t ulpdu_len, bool extended)
{
	size_t end = have < DDP_MAX_HEADER ? have : DDP_MAX_HEADER;
	struct ddp_header header;
	uint16_t why = 0, final_why = 0;
	int final = ddp_parse(ulpdu, have, ulpdu_len, extended, &header, &final_why);

	CHECK(final == 0 || final == -EPROTO || final == -EAGAIN);
	CHECK(final != -EAGAIN || (have < DDP_MAX_HEADER && have < ulpdu_len));
	for (size_t len = 0; len <= end; len++) {
		uint8_t *copy = exact_copy(ulpdu, len);
		int seen = ddp_parse(copy, len, ulpdu_len, extended, &header, &why);

		free(copy);
		CHECK(seen == -EAGAIN || seen == final);
		CHECK(seen != -EPROTO || why == final_why);
		CHECK(seen || len >= header.header_len);
	}
}

static bool is_fixed(uint8_t opcode)
{
	return opcode == RDMAP_READ_REQUEST || opcode >= RDMAP_IMMEDIATE;
}

/* The header with everything zero that is reserved or that our encoders never set. */
static void canonical(uint8_t *ulpdu, const struct ddp_header *header)
{
	ulpdu[0] &= 0xc3;
	ulpdu[1] &= 0xcf;
	if (header->tagged)
		return;
	if (header->opcode < RDMAP_SEND || header->opcode > RDMAP_SEND_SE_INV)
		put_be32(ulpdu + 2, 0);
	if (is_fixed(header->opcode))
		put_be32(ulpdu + 14, 0);
	if (header->opcode == RDMAP_ATOMIC_REQUEST)
		put_be32(ulpdu + 18, get_be32(ulpdu + 18) & 0x0f);
}

static size_t encode(const struct ddp_header *header, uint8_t *out)
{
	switch (header->opcode) {
	case RDMAP_WRITE:
	case RDMAP_READ_RESPONSE:
		return ddp_put_tagged(out, header->opcode, header->last, header->stag, header->to,
				      header->payload_len);
	case RDMAP_READ_REQUEST:
		return ddp_put_read_request(out, header->msn, &header->read);
	case RDMAP_IMMEDIATE:
	case RDMAP_IMMEDIATE_SE:
		return ddp_put_immediate(out, header->opcode == RDMAP_IMMEDIATE_SE, header->msn,
					 header->immediate);
	case RDMAP_ATOMIC_REQUEST:
		return ddp_put_atomic_request(out, header->msn, &header->atomic);
	case RDMAP_ATOMIC_RESPONSE:
		return ddp_put_atomic_response(out, header->msn, &header->atomic_response);
	default:
		return ddp_put_send(out, header->opcode, header->last, header->ulp_word,
				    header->msn, header->mo, header->payload_len);
	}
}

static void check_encode(const struct ddp_header *header, const uint8_t *ulpdu, size_t ulpdu_len)
{
	uint8_t expected[DDP_MAX_HEADER] = {0}, out[FPDU_LENGTH_LEN + DDP_MAX_HEADER];

	if (ulpdu_len > FPDU_MAX_ULPDU)
		return;
	memcpy(expected, ulpdu, header->header_len);
	canonical(expected, header);
	CHECK(encode(header, out) == FPDU_LENGTH_LEN + (size_t)header->header_len);
	CHECK(get_be16(out) == ulpdu_len);
	CHECK(!memcmp(out + FPDU_LENGTH_LEN, expected, header->header_len));
}

/* Not a byte written, padding included. */
static bool is_untouched(const void *before, const void *now, size_t len)
{
	return !memcmp(before, now, len);
}

static bool check_order(struct ddp_order *order, const struct ddp_header *header)
{
	struct ddp_order before;
	uint16_t why = 0;

	memcpy(&before, order, sizeof(before));
	if (ddp_order_check(order, header, &why) < 0) {
		CHECK(why);
		CHECK(is_untouched(&before, order, sizeof(before)));
		return false;
	}
	if (header->tagged) {
		CHECK(order->tagged.open == !header->last);
		CHECK(order->tagged.next_to >= header->to);
		CHECK(is_untouched(&before.untagged, &order->untagged, sizeof(before.untagged)));
		CHECK(is_untouched(before.next_msn, order->next_msn, sizeof(before.next_msn)));
		return true;
	}
	CHECK(header->msn == before.next_msn[header->qn]);
	CHECK(order->next_msn[header->qn] == header->msn + header->last);
	CHECK(is_untouched(&before.tagged, &order->tagged, sizeof(before.tagged)));
	if (header->qn == DDP_QN_SEND)
		CHECK(order->untagged.open == !header->last);
	else
		CHECK(is_untouched(&before.untagged, &order->untagged, sizeof(before.untagged)));
	return true;
}

static void start(struct ddp_order *order, uint8_t opts)
{
	ddp_order_init(order);
	if (!(opts & OPT_NEAR_LIMIT))
		return;
	order->tagged.open = order->untagged.open = true;
	order->tagged.opcode = RDMAP_WRITE;
	order->tagged.stag = 1;
	order->untagged.opcode = RDMAP_SEND;
	order->tagged.next_mo = order->untagged.next_mo = UINT32_MAX - 16;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	uint8_t opts = take_byte(&input);
	bool extended = opts & OPT_EXTENDED;
	struct ddp_order order;

	start(&order, opts);
	while (input.left >= FPDU_LENGTH_LEN) {
		size_t ulpdu_len = get_be16(input.at), frame = fpdu_len(ulpdu_len);
		const uint8_t *ulpdu = input.at + FPDU_LENGTH_LEN;
		size_t have = input.left - FPDU_LENGTH_LEN;
		struct ddp_header header;
		uint16_t why = 0;

		if (have > ulpdu_len)
			have = ulpdu_len;
		check_prefixes(ulpdu, have, ulpdu_len, extended);
		if (ddp_parse(ulpdu, have, ulpdu_len, extended, &header, &why) < 0)
			break;
		CHECK(header.header_len + header.payload_len == (int)ulpdu_len);
		CHECK(header.header_len <= have);
		CHECK(!is_fixed(header.opcode) || (header.last && !header.payload_len));
		check_encode(&header, ulpdu, ulpdu_len);
		if (!check_order(&order, &header) || input.left < frame)
			break;
		input.at += frame;
		input.left -= frame;
	}
	return 0;
}
