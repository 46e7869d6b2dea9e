/* SPDX-License-Identifier: MIT */
/* What one end of a reliable connection says to the other, whatever carries it. */
#ifndef SOFTRDMA_RC_FRAME_H
#define SOFTRDMA_RC_FRAME_H

#include <stdbool.h>
#include <stdint.h>

enum rc_kind {
	RC_NONE,       /* framing of the transport: means nothing here */
	RC_SEND,       /* a piece of a Send */
	RC_WRITE,      /* a piece of a Write */
	RC_WRITE_IMM,  /* the immediate data of the Write before it; takes a receive */
	RC_READ,       /* asks for memory */
	RC_READ_DATA,  /* a piece of the answer to the oldest request that is not answered */
	RC_ATOMIC,     /* asks for an atomic operation */
	RC_RESULT,     /* what the oldest one found */
	RC_SEND_FETCH, /* a whole Send whose data the receiver fetches by itself */
	RC_KINDS,
};

enum rc_flag {
	RC_LAST = 1, /* piece of its message */
	RC_SOLICITED = 2,
	RC_INVALIDATE = 4, /* @key */
	RC_IMMEDIATE = 8,  /* @imm */
	RC_SWAP = 16,      /* an atomic: compare and swap, not fetch and add */
	RC_FLAGS = 31,
};

struct rc_frame {
	uint8_t kind;  /* enum rc_kind */
	uint8_t flags; /* enum rc_flag */
	uint32_t len;  /* payload of this frame */
	uint32_t key;  /* of the memory that a one-sided request is for, or to be invalidated */
	uint32_t imm;  /* network order */
	uint64_t addr; /* in that memory */
	/*
	 * RC_READ, RC_SEND_FETCH: bytes in all. RC_WRITE_IMM: of the Write. RC_ATOMIC: to add or to
	 * compare with. RC_RESULT: what was found.
	 */
	uint64_t arg;
	uint64_t swap; /* RC_ATOMIC with RC_SWAP */
	/* RC_READ and its RC_READ_DATA, RC_ATOMIC and its RC_RESULT: what the answer repeats. */
	uint32_t sink_key;
	uint64_t sink_addr;
};

#endif
