/* SPDX-License-Identifier: MIT */
/* DDP segments with their RDMAP headers: what each opcode looks like, and what may follow what. */
#include <assert.h>
#include <errno.h>

#include "../../common/bytes.h"
#include "wire/ddp.h"
#include "wire/mpa.h"
#include "wire/terminate.h"

#define CONTROL_LEN        2
#define CTL_TAGGED         0x80
#define CTL_LAST           0x40
#define DDP_VERSION        1
#define VERSION_MASK       0x03
#define RDMAP_VERSION      0x40
#define RDMAP_VERSION_MASK 0xc0
#define OPCODE_MASK        0x0f
#define ATOMIC_OP_MASK     0x0f

/* What every message looks like (RFC 5040, 4; RFC 7306, 4), by opcode. */
static const struct message {
	bool tagged;
	bool fixed; /* one segment, and not a byte more than the header */
	uint8_t qn;
	uint8_t header_len;
	uint8_t min_len;
} messages[] = {
	[RDMAP_WRITE] = {.tagged = true, .header_len = DDP_TAGGED_LEN},
	[RDMAP_READ_REQUEST] = {.fixed = true,
				.qn = DDP_QN_REQUEST,
				.header_len = RDMAP_READ_REQUEST_LEN},
	[RDMAP_READ_RESPONSE] = {.tagged = true, .header_len = DDP_TAGGED_LEN},
	[RDMAP_SEND] = {.header_len = DDP_UNTAGGED_LEN},
	[RDMAP_SEND_INV] = {.header_len = DDP_UNTAGGED_LEN},
	[RDMAP_SEND_SE] = {.header_len = DDP_UNTAGGED_LEN},
	[RDMAP_SEND_SE_INV] = {.header_len = DDP_UNTAGGED_LEN},
	[RDMAP_TERMINATE] = {.qn = DDP_QN_TERMINATE,
			     .header_len = DDP_UNTAGGED_LEN,
			     .min_len = RDMAP_TERMINATE_LEN},
	[RDMAP_IMMEDIATE] = {.fixed = true, .header_len = RDMAP_IMMEDIATE_LEN},
	[RDMAP_IMMEDIATE_SE] = {.fixed = true, .header_len = RDMAP_IMMEDIATE_LEN},
	[RDMAP_ATOMIC_REQUEST] = {.fixed = true,
				  .qn = DDP_QN_REQUEST,
				  .header_len = RDMAP_ATOMIC_REQ_LEN},
	[RDMAP_ATOMIC_RESPONSE] = {.fixed = true,
				   .qn = DDP_QN_ATOMIC_RESPONSE,
				   .header_len = RDMAP_ATOMIC_RESP_LEN},
};

static bool is_send(uint8_t opcode)
{
	return opcode >= RDMAP_SEND && opcode <= RDMAP_SEND_SE_INV;
}

static int refuse(uint16_t code, uint16_t *why)
{
	*why = code;
	return -EPROTO;
}

/* The two control bytes, without which the length of the header is unknown. */
static int check_control(const uint8_t *ulpdu, bool extended, uint16_t *why)
{
	bool tagged = ulpdu[0] & CTL_TAGGED;
	uint8_t opcode = ulpdu[1] & OPCODE_MASK;

	if ((ulpdu[0] & VERSION_MASK) != DDP_VERSION)
		return refuse(tagged ? TERM_DDP_TAGGED_VERSION : TERM_DDP_UNTAGGED_VERSION, why);
	if ((ulpdu[1] & RDMAP_VERSION_MASK) != RDMAP_VERSION)
		return refuse(TERM_RDMAP_VERSION, why);
	if (opcode > (extended ? RDMAP_ATOMIC_RESPONSE : RDMAP_TERMINATE))
		return refuse(TERM_RDMAP_OPCODE, why);
	if (tagged != messages[opcode].tagged)
		return refuse(TERM_RDMAP_OPCODE, why);
	return 0;
}

/* What an untagged message of this opcode may not be. */
static int check_untagged(const struct message *message, const struct ddp_header *header,
			  uint16_t *why)
{
	if (header->qn != message->qn)
		return refuse(message->qn == DDP_QN_SEND ? TERM_DDP_QN : TERM_RDMAP_OPCODE, why);
	/* A queue's buffer for one of these holds just the header: more would not fit. */
	if (message->fixed && (!header->last || header->payload_len))
		return refuse(TERM_DDP_TOO_LONG, why);
	if (header->opcode == RDMAP_TERMINATE && !header->last)
		return refuse(TERM_DDP_TOO_LONG, why);
	return 0;
}

static void parse_read_request(const uint8_t *at, struct rdmap_read_request *out)
{
	out->sink_stag = get_be32(at);
	out->sink_to = get_be64(at + 4);
	out->size = get_be32(at + 12);
	out->source_stag = get_be32(at + 16);
	out->source_to = get_be64(at + 20);
}

static void parse_atomic_request(const uint8_t *at, struct rdmap_atomic_request *out)
{
	out->op = get_be32(at) & ATOMIC_OP_MASK;
	out->id = get_be32(at + 4);
	out->stag = get_be32(at + 8);
	out->to = get_be64(at + 12);
	out->add_swap = get_be64(at + 20);
	out->add_swap_mask = get_be64(at + 28);
	out->compare = get_be64(at + 36);
	out->compare_mask = get_be64(at + 44);
}

static void parse_untagged(const uint8_t *ulpdu, struct ddp_header *out)
{
	const uint8_t *at = ulpdu + DDP_UNTAGGED_LEN;

	out->ulp_word = is_send(out->opcode) ? get_be32(ulpdu + 2) : 0;
	out->qn = get_be32(ulpdu + 6);
	out->msn = get_be32(ulpdu + 10);
	out->mo = get_be32(ulpdu + 14);

	switch (out->opcode) {
	case RDMAP_READ_REQUEST:
		parse_read_request(at, &out->read);
		break;
	case RDMAP_IMMEDIATE:
	case RDMAP_IMMEDIATE_SE:
		out->immediate = get_be64(at);
		break;
	case RDMAP_ATOMIC_REQUEST:
		parse_atomic_request(at, &out->atomic);
		break;
	case RDMAP_ATOMIC_RESPONSE:
		out->atomic_response.id = get_be32(at);
		out->atomic_response.value = get_be64(at + 4);
		break;
	default: /* what follows is payload */
		break;
	}
}

int ddp_parse(const uint8_t *ulpdu, size_t have, size_t ulpdu_len, bool extended,
	      struct ddp_header *out, uint16_t *why)
{
	struct ddp_header header = {0};
	const struct message *message;
	int err;

	assert(ulpdu_len <= UINT16_MAX); /* as its length field says */
	if (ulpdu_len < CONTROL_LEN)
		return refuse(TERM_RDMAP_STREAM, why);
	if (have < CONTROL_LEN)
		return -EAGAIN;
	err = check_control(ulpdu, extended, why);
	if (err)
		return err;

	header.opcode = ulpdu[1] & OPCODE_MASK;
	message = &messages[header.opcode];
	if (ulpdu_len < message->header_len || ulpdu_len < message->min_len)
		return refuse(TERM_RDMAP_STREAM, why);
	if (have < message->header_len)
		return -EAGAIN;

	header.tagged = message->tagged;
	header.last = ulpdu[0] & CTL_LAST;
	header.header_len = message->header_len;
	header.payload_len = (uint16_t)(ulpdu_len - message->header_len);
	if (header.tagged) {
		header.stag = get_be32(ulpdu + 2);
		header.to = get_be64(ulpdu + 6);
	} else {
		parse_untagged(ulpdu, &header);
		err = check_untagged(message, &header, why);
		if (err)
			return err;
	}
	*out = header;
	return 0;
}

void ddp_order_init(struct ddp_order *order)
{
	memset(order, 0, sizeof(*order));
	for (size_t qn = 0; qn < DDP_QN_COUNT; qn++)
		order->next_msn[qn] = 1;
}

static int check_tagged_order(struct ddp_order *order, const struct ddp_header *header,
			      uint16_t *why)
{
	uint64_t so_far = order->tagged.open ? order->tagged.next_mo : 0;
	uint64_t next_to;

	if (order->tagged.open) {
		if (header->opcode != order->tagged.opcode)
			return refuse(TERM_RDMAP_OPCODE, why);
		if (header->stag != order->tagged.stag)
			return refuse(TERM_DDP_INVALID_STAG, why);
		if (header->to != order->tagged.next_to)
			return refuse(TERM_DDP_BOUNDS, why);
	}
	if (__builtin_add_overflow(header->to, header->payload_len, &next_to))
		return refuse(TERM_DDP_TO_WRAP, why);
	if (so_far + header->payload_len > UINT32_MAX)
		return refuse(TERM_DDP_BOUNDS, why);

	order->tagged.open = !header->last;
	order->tagged.opcode = header->opcode;
	order->tagged.stag = header->stag;
	order->tagged.next_to = next_to;
	order->tagged.next_mo = (uint32_t)(so_far + header->payload_len);
	return 0;
}

/* Only Sends come in several segments, so that the open message is always one of their queue. */
static int check_send_order(struct ddp_order *order, const struct ddp_header *header, uint16_t *why)
{
	uint64_t so_far = order->untagged.open ? order->untagged.next_mo : 0;

	if (order->untagged.open && header->opcode != order->untagged.opcode)
		return refuse(TERM_RDMAP_OPCODE, why);
	if (header->mo != so_far)
		return refuse(TERM_DDP_MO, why);
	if (so_far + header->payload_len > UINT32_MAX)
		return refuse(TERM_DDP_TOO_LONG, why);

	order->untagged.open = !header->last;
	order->untagged.opcode = header->opcode;
	order->untagged.next_mo = (uint32_t)(so_far + header->payload_len);
	return 0;
}

int ddp_order_check(struct ddp_order *order, const struct ddp_header *header, uint16_t *why)
{
	int err = 0;

	if (header->tagged)
		return check_tagged_order(order, header, why);

	assert(header->qn < DDP_QN_COUNT); /* ddp_parse saw to it */
	if (header->msn != order->next_msn[header->qn])
		return refuse(TERM_DDP_MSN, why);
	if (header->qn == DDP_QN_SEND)
		err = check_send_order(order, header, why);
	else if (header->mo != 0)
		err = refuse(TERM_DDP_MO, why);
	if (!err && header->last)
		order->next_msn[header->qn]++;
	return err;
}

/* The length field and the control bytes. Returns where the ULPDU begins. */
static uint8_t *put_control(uint8_t *out, enum rdmap_opcode opcode, bool last, size_t ulpdu_len)
{
	uint8_t *ulpdu = out + FPDU_LENGTH_LEN;

	assert(ulpdu_len <= FPDU_MAX_ULPDU);
	put_be16(out, (uint16_t)ulpdu_len);
	ulpdu[0] = DDP_VERSION | (messages[opcode].tagged ? CTL_TAGGED : 0) | (last ? CTL_LAST : 0);
	ulpdu[1] = RDMAP_VERSION | (uint8_t)opcode;
	return ulpdu;
}

/* Returns what follows the DDP header. */
static uint8_t *put_untagged(uint8_t *out, enum rdmap_opcode opcode, bool last, uint32_t ulp_word,
			     uint32_t msn, uint32_t mo, size_t ulpdu_len)
{
	uint8_t *ulpdu = put_control(out, opcode, last, ulpdu_len);

	put_be32(ulpdu + 2, ulp_word);
	put_be32(ulpdu + 6, messages[opcode].qn);
	put_be32(ulpdu + 10, msn);
	put_be32(ulpdu + 14, mo);
	return ulpdu + DDP_UNTAGGED_LEN;
}

/* A message that is all header. */
static uint8_t *put_fixed(uint8_t *out, enum rdmap_opcode opcode, uint32_t msn)
{
	return put_untagged(out, opcode, true, 0, msn, 0, messages[opcode].header_len);
}

size_t ddp_put_tagged(uint8_t *out, enum rdmap_opcode opcode, bool last, uint32_t stag, uint64_t to,
		      size_t payload_len)
{
	uint8_t *ulpdu = put_control(out, opcode, last, DDP_TAGGED_LEN + payload_len);

	put_be32(ulpdu + 2, stag);
	put_be64(ulpdu + 6, to);
	return FPDU_LENGTH_LEN + DDP_TAGGED_LEN;
}

size_t ddp_put_send(uint8_t *out, enum rdmap_opcode opcode, bool last, uint32_t ulp_word,
		    uint32_t msn, uint32_t mo, size_t payload_len)
{
	put_untagged(out, opcode, last, ulp_word, msn, mo, DDP_UNTAGGED_LEN + payload_len);
	return FPDU_LENGTH_LEN + DDP_UNTAGGED_LEN;
}

size_t ddp_put_read_request(uint8_t *out, uint32_t msn, const struct rdmap_read_request *read)
{
	uint8_t *at = put_fixed(out, RDMAP_READ_REQUEST, msn);

	put_be32(at, read->sink_stag);
	put_be64(at + 4, read->sink_to);
	put_be32(at + 12, read->size);
	put_be32(at + 16, read->source_stag);
	put_be64(at + 20, read->source_to);
	return FPDU_LENGTH_LEN + RDMAP_READ_REQUEST_LEN;
}

size_t ddp_put_immediate(uint8_t *out, bool solicited, uint32_t msn, uint64_t immediate)
{
	uint8_t *at = put_fixed(out, solicited ? RDMAP_IMMEDIATE_SE : RDMAP_IMMEDIATE, msn);

	put_be64(at, immediate);
	return FPDU_LENGTH_LEN + RDMAP_IMMEDIATE_LEN;
}

size_t ddp_put_atomic_request(uint8_t *out, uint32_t msn, const struct rdmap_atomic_request *atomic)
{
	uint8_t *at = put_fixed(out, RDMAP_ATOMIC_REQUEST, msn);

	put_be32(at, atomic->op & ATOMIC_OP_MASK);
	put_be32(at + 4, atomic->id);
	put_be32(at + 8, atomic->stag);
	put_be64(at + 12, atomic->to);
	put_be64(at + 20, atomic->add_swap);
	put_be64(at + 28, atomic->add_swap_mask);
	put_be64(at + 36, atomic->compare);
	put_be64(at + 44, atomic->compare_mask);
	return FPDU_LENGTH_LEN + RDMAP_ATOMIC_REQ_LEN;
}

size_t ddp_put_atomic_response(uint8_t *out, uint32_t msn,
			       const struct rdmap_atomic_response *response)
{
	uint8_t *at = put_fixed(out, RDMAP_ATOMIC_RESPONSE, msn);

	put_be32(at, response->id);
	put_be64(at + 4, response->value);
	return FPDU_LENGTH_LEN + RDMAP_ATOMIC_RESP_LEN;
}
