/* SPDX-License-Identifier: MIT */
/* Why an RDMAP stream ends, as a Terminate message says it (RFC 5040, 4.8). */
#ifndef SOFTRDMA_WIRE_TERMINATE_H
#define SOFTRDMA_WIRE_TERMINATE_H

#include <stddef.h>
#include <stdint.h>

/* layer << 12 | error type << 8 | code: the first 16 bits of the message as the RFC orders them. */
enum terminate_code {
	TERM_NONE = 0xffff, /* no reason: a code no layer uses */
	TERM_RDMAP_LOCAL = 0x0000,
	TERM_RDMAP_INVALID_STAG = 0x0100,
	TERM_RDMAP_BOUNDS = 0x0101,
	TERM_RDMAP_ACCESS = 0x0102,
	TERM_RDMAP_FOREIGN_STAG = 0x0103,
	TERM_RDMAP_TO_WRAP = 0x0104,
	TERM_RDMAP_NO_INVALIDATE = 0x0109,
	TERM_RDMAP_VERSION = 0x0205,
	TERM_RDMAP_OPCODE = 0x0206,
	TERM_RDMAP_STREAM = 0x0207,
	TERM_DDP_LOCAL = 0x1000,
	TERM_DDP_INVALID_STAG = 0x1100,
	TERM_DDP_BOUNDS = 0x1101,
	TERM_DDP_FOREIGN_STAG = 0x1102,
	TERM_DDP_TO_WRAP = 0x1103,
	TERM_DDP_TAGGED_VERSION = 0x1104,
	TERM_DDP_QN = 0x1201,
	TERM_DDP_NO_BUFFER = 0x1202,
	TERM_DDP_MSN = 0x1203,
	TERM_DDP_MO = 0x1204,
	TERM_DDP_TOO_LONG = 0x1205,
	TERM_DDP_UNTAGGED_VERSION = 0x1206,
	TERM_MPA_CLOSED = 0x2001,
	TERM_MPA_CRC = 0x2002,
	TERM_MPA_MARKER = 0x2003,
	TERM_MPA_STARTUP = 0x2004,
	TERM_MPA_LOCAL = 0x2005,
	TERM_MPA_IRD = 0x2006,
	TERM_MPA_RTR = 0x2007,
};

/* What a code means, in a few words for the log; never NULL. */
const char *terminate_text(uint16_t code);

/*
 * Decode the @len payload bytes of a Terminate message (after its 18-byte header). siw writes the
 * two nibbles of the first byte in the reverse order; as only layers 0 to 2 exist and the pair is
 * looked up, both orders are understood; where both make sense, the flags that follow decide, if
 * there are any, and the RFC's order otherwise. Returns the code in the RFC's order (a pair that
 * neither order explains is returned as it came), TERM_NONE when @len is too short to hold one.
 */
uint16_t terminate_parse(const uint8_t *payload, size_t len);

#define TERMINATE_MAX_FPDU 76

/*
 * Build a whole Terminate FPDU less its CRC field: length, header, control word and, where
 * @offending is not NULL, the @offending_len bytes of the header (14, 18 or, for a Read Request, 46
 * bytes of the ULPDU; of any other its first 18) that caused it with the segment's length
 * @segment_len. @out has room for
 * TERMINATE_MAX_FPDU. Returns the bytes written, padding included, so that 4 bytes of CRC follow.
 */
size_t terminate_build(uint8_t *out, uint16_t code, const uint8_t *offending, size_t offending_len,
		       uint16_t segment_len);

#endif
