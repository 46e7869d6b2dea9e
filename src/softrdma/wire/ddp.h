/* SPDX-License-Identifier: MIT */
/*
 * DDP segments and the RDMAP headers in them (RFC 5041, 5040, 7306): decoded, encoded, and checked
 * for their order. Bytes in, bytes out: no descriptor, no clock, no allocation.
 */
#ifndef SOFTRDMA_WIRE_DDP_H
#define SOFTRDMA_WIRE_DDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DDP_TAGGED_LEN         14
#define DDP_UNTAGGED_LEN       18
#define RDMAP_READ_REQUEST_LEN (DDP_UNTAGGED_LEN + 28)
#define RDMAP_TERMINATE_LEN    (DDP_UNTAGGED_LEN + 4)
#define RDMAP_IMMEDIATE_LEN    (DDP_UNTAGGED_LEN + 8)
#define RDMAP_ATOMIC_REQ_LEN   (DDP_UNTAGGED_LEN + 52)
#define RDMAP_ATOMIC_RESP_LEN  (DDP_UNTAGGED_LEN + 12)
#define DDP_MAX_HEADER         RDMAP_ATOMIC_REQ_LEN

enum rdmap_opcode {
	RDMAP_WRITE,
	RDMAP_READ_REQUEST,
	RDMAP_READ_RESPONSE,
	RDMAP_SEND,
	RDMAP_SEND_INV,
	RDMAP_SEND_SE,
	RDMAP_SEND_SE_INV,
	RDMAP_TERMINATE,
	RDMAP_IMMEDIATE,
	RDMAP_IMMEDIATE_SE,
	RDMAP_ATOMIC_REQUEST,
	RDMAP_ATOMIC_RESPONSE,
};

enum ddp_queue {
	DDP_QN_SEND,
	DDP_QN_REQUEST,
	DDP_QN_TERMINATE,
	DDP_QN_ATOMIC_RESPONSE,
	DDP_QN_COUNT
};

enum rdmap_atomic_op { RDMAP_FETCH_ADD = 0, RDMAP_CMP_SWAP = 2 };

struct rdmap_read_request {
	uint32_t sink_stag;
	uint32_t size;
	uint64_t sink_to;
	uint32_t source_stag;
	uint64_t source_to;
};

struct rdmap_atomic_request {
	uint32_t op; /* enum rdmap_atomic_op, or one we do not know */
	uint32_t id;
	uint32_t stag;
	uint64_t to;
	uint64_t add_swap;
	uint64_t add_swap_mask;
	uint64_t compare;
	uint64_t compare_mask;
};

struct rdmap_atomic_response {
	uint32_t id;
	uint64_t value;
};

/* One segment's headers. */
struct ddp_header {
	bool tagged;
	bool last;
	uint8_t opcode; /* enum rdmap_opcode */
	uint16_t header_len;
	uint16_t payload_len; /* what follows the header in this ULPDU */
	union {
		struct { /* tagged */
			uint32_t stag;
			uint64_t to;
		};
		struct {                   /* untagged */
			uint32_t ulp_word; /* of a Send: the STag to invalidate, or reserved */
			uint32_t qn;
			uint32_t msn;
			uint32_t mo;
		};
	};
	union { /* by opcode */
		struct rdmap_read_request read;
		struct rdmap_atomic_request atomic;
		struct rdmap_atomic_response atomic_response;
		uint64_t immediate;
	};
};

/*
 * Decode the headers of a ULPDU of @ulpdu_len (16 bits) bytes of which @have are at @ulpdu. Returns
 * 0; -EAGAIN when more bytes are needed to decide (never more than DDP_MAX_HEADER, nor than
 * @ulpdu_len); -EPROTO with the terminate code in *@why: versions, opcode, T flag and queue number,
 * a ULPDU shorter than its opcode's header (a zero-length FPDU too), a one-segment message that is
 * not marked last or has bytes left over. A Terminate's payload is all that follows its 18 bytes,
 * at least the control word. @extended: opcodes 8 to 11 are known; else they are refused as siw
 * does. A fixed header (Read Request, Immediate, atomics) leaves payload_len 0.
 */
int ddp_parse(const uint8_t *ulpdu, size_t have, size_t ulpdu_len, bool extended,
	      struct ddp_header *out, uint16_t *why);

/*
 * What has been received on one stream, as far as the order of segments depends on it; made ready
 * by ddp_order_init. A tagged message and a Send may be in progress at once, two of a kind may not;
 * messages of one segment on other queues may come between.
 */
struct ddp_order {
	uint32_t next_msn[DDP_QN_COUNT];
	struct {
		bool open;
		uint8_t opcode;
		uint32_t stag;    /* tagged */
		uint64_t next_to; /* tagged */
		uint32_t next_mo; /* bytes of this message so far */
	} tagged, untagged;
};

void ddp_order_init(struct ddp_order *order);

/*
 * Check @header, which ddp_parse gave, against what came before and note it.
 * -EPROTO, the code in *@why and nothing noted: MSN not the expected one, MO not the bytes so far,
 * another opcode or STag inside an open message, a TO that does not continue the open tagged
 * message (a new message may go anywhere) or that wraps, a message of more than 4 GiB - 1.
 */
int ddp_order_check(struct ddp_order *order, const struct ddp_header *header, uint16_t *why);

/*
 * Encoders: each writes the FPDU's length field and the headers at @out, and returns their length;
 * payload, padding and CRC follow. @out has room for FPDU_LENGTH_LEN + DDP_MAX_HEADER.
 */
size_t ddp_put_tagged(uint8_t *out, enum rdmap_opcode opcode, bool last, uint32_t stag, uint64_t to,
		      size_t payload_len);
size_t ddp_put_send(uint8_t *out, enum rdmap_opcode opcode, bool last, uint32_t ulp_word,
		    uint32_t msn, uint32_t mo, size_t payload_len);
size_t ddp_put_read_request(uint8_t *out, uint32_t msn, const struct rdmap_read_request *read);
size_t ddp_put_immediate(uint8_t *out, bool solicited, uint32_t msn, uint64_t immediate);
size_t ddp_put_atomic_request(uint8_t *out, uint32_t msn,
			      const struct rdmap_atomic_request *atomic);
size_t ddp_put_atomic_response(uint8_t *out, uint32_t msn,
			       const struct rdmap_atomic_response *response);

#endif
