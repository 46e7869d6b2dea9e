/* SPDX-License-Identifier: MIT */
/* Terminate messages: what their codes mean, read in either nibble order, written in the RFC's. */
#include <stdbool.h>

#include "../../common/bytes.h"
#include "wire/ddp.h"
#include "wire/mpa.h"
#include "wire/terminate.h"

#define AT_CONTROL  (FPDU_LENGTH_LEN + DDP_UNTAGGED_LEN)
#define CONTROL_LEN (RDMAP_TERMINATE_LEN - DDP_UNTAGGED_LEN)
#define SEGMENT_LEN 2

/* The third byte of the control word; siw has these three at the other end of it. */
#define HAS_SEGMENT_LEN  0x80
#define HAS_DDP_HEADER   0x40
#define HAS_RDMAP_HEADER 0x20
#define SIW_FLAGS        0x07

#define LAYER_RDMAP 0
#define LAYER_DDP   1
#define LAYER_LLP   2

static const struct {
	uint16_t code;
	const char *text;
} known[] = {
	{TERM_RDMAP_INVALID_STAG, "invalid STag"},
	{TERM_RDMAP_BOUNDS, "access outside the memory region"},
	{TERM_RDMAP_ACCESS, "access right missing"},
	{TERM_RDMAP_FOREIGN_STAG, "STag not of this stream"},
	{TERM_RDMAP_TO_WRAP, "tagged offset wraps"},
	{TERM_RDMAP_NO_INVALIDATE, "STag cannot be invalidated"},
	{0x01ff, "unspecified protection error"},
	{TERM_RDMAP_VERSION, "unknown RDMAP version"},
	{TERM_RDMAP_OPCODE, "unexpected RDMAP opcode"},
	{TERM_RDMAP_STREAM, "catastrophic error of this RDMAP stream"},
	{0x0208, "catastrophic error of the peer's device"},
	{0x0209, "STag cannot be invalidated"},
	{0x02ff, "unspecified operation error"},
	{TERM_DDP_LOCAL, "local catastrophic DDP error"},
	{TERM_DDP_INVALID_STAG, "invalid STag in a tagged segment"},
	{TERM_DDP_BOUNDS, "tagged segment outside the memory region"},
	{TERM_DDP_FOREIGN_STAG, "STag of a tagged segment not of this stream"},
	{TERM_DDP_TO_WRAP, "tagged offset of a segment wraps"},
	{TERM_DDP_TAGGED_VERSION, "unknown DDP version in a tagged segment"},
	{TERM_DDP_QN, "invalid queue number"},
	{TERM_DDP_NO_BUFFER, "no receive posted"},
	{TERM_DDP_MSN, "message sequence number out of range"},
	{TERM_DDP_MO, "invalid message offset"},
	{TERM_DDP_TOO_LONG, "message longer than the receive"},
	{TERM_DDP_UNTAGGED_VERSION, "unknown DDP version in an untagged segment"},
	{TERM_MPA_CLOSED, "TCP connection closed or lost"},
	{TERM_MPA_CRC, "CRC error"},
	{TERM_MPA_MARKER, "marker and length do not match"},
	{TERM_MPA_STARTUP, "invalid MPA request or reply"},
	{TERM_MPA_LOCAL, "local catastrophic MPA error"},
	{TERM_MPA_IRD, "insufficient IRD"},
	{TERM_MPA_RTR, "no matching RTR"},
	{TERM_NONE, "no reason given"},
};

static const char *known_text(uint16_t code)
{
	if (code >> 8 == TERM_RDMAP_LOCAL >> 8)
		return "local catastrophic RDMAP error"; /* with any code */
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].code == code)
			return known[i].text;
	return NULL;
}

const char *terminate_text(uint16_t code)
{
	const char *text = known_text(code);

	if (text)
		return text;
	switch (code >> 12) {
	case LAYER_RDMAP:
		return "unknown RDMAP error";
	case LAYER_DDP:
		return "unknown DDP error";
	case LAYER_LLP:
		return "unknown MPA error";
	default:
		return "unknown error";
	}
}

static uint16_t swap_nibbles(uint16_t code)
{
	return (uint16_t)((code & 0x0f00) << 4 | (code & 0xf000) >> 4 | (code & 0x00ff));
}

/*
 * Some pairs mean something in both orders (10 00: invalid STag from siw, a DDP error by the RFC).
 * The flags that follow are at the top of their byte by the RFC and at the bottom in siw, so they
 * tell which it is when there are any.
 */
static bool is_reversed(const uint8_t *payload, size_t len)
{
	uint8_t flags = len > 2 ? payload[2] : 0;

	return (flags & SIW_FLAGS) && !(flags & ~SIW_FLAGS);
}

uint16_t terminate_parse(const uint8_t *payload, size_t len)
{
	uint16_t as_it_came, reversed;

	if (len < sizeof(as_it_came))
		return TERM_NONE;

	as_it_came = get_be16(payload);
	reversed = swap_nibbles(as_it_came);
	if (is_reversed(payload, len) && known_text(reversed))
		return reversed;
	if (!known_text(as_it_came) && known_text(reversed))
		return reversed;
	return as_it_came;
}

/* How much of the offending header a Terminate can carry: of one without a place, the DDP part. */
static size_t attached_len(const uint8_t *offending, size_t len)
{
	if (!offending || len < DDP_TAGGED_LEN)
		return 0;
	if (len < DDP_UNTAGGED_LEN)
		return DDP_TAGGED_LEN;
	return len == RDMAP_READ_REQUEST_LEN ? RDMAP_READ_REQUEST_LEN : DDP_UNTAGGED_LEN;
}

size_t terminate_build(uint8_t *out, uint16_t code, const uint8_t *offending, size_t offending_len,
		       uint16_t segment_len)
{
	size_t attached = attached_len(offending, offending_len);
	size_t extra = attached ? SEGMENT_LEN + attached : 0;
	size_t ulpdu_len = RDMAP_TERMINATE_LEN + extra;
	size_t len = FPDU_LENGTH_LEN + ulpdu_len + fpdu_pad(ulpdu_len);
	uint8_t *control = out + AT_CONTROL;

	memset(out, 0, len);
	/* The header is that of a Send; the opcode brings its own queue. */
	ddp_put_send(out, RDMAP_TERMINATE, true, 0, 1, 0, CONTROL_LEN + extra);
	put_be16(control, code);
	if (attached) {
		control[2] = HAS_SEGMENT_LEN | HAS_DDP_HEADER;
		if (attached == RDMAP_READ_REQUEST_LEN)
			control[2] |= HAS_RDMAP_HEADER;
		put_be16(control + CONTROL_LEN, segment_len);
		memcpy(control + CONTROL_LEN + SEGMENT_LEN, offending, attached);
	}
	return len;
}
