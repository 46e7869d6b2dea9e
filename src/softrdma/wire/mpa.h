/* SPDX-License-Identifier: MIT */
/*
 * MPA: the two start-up frames and what they agree on (RFC 5044, RFC 6581), and the FPDU frame.
 * Bytes in, bytes out: no descriptor, no clock, no allocation.
 */
#ifndef SOFTRDMA_WIRE_MPA_H
#define SOFTRDMA_WIRE_MPA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MPA_HEADER_LEN     20  /* key, flags, revision, private data length */
#define MPA_ENHANCED_LEN   4   /* IRD and ORD, the head of the private data when enhanced */
#define MPA_MAX_PRIVATE    512 /* on the wire, enhanced header included */
#define MPA_MAX_FRAME      (MPA_HEADER_LEN + MPA_MAX_PRIVATE)
#define MPA_USER_PRIVATE   252 /* what a user may send: Linux takes 256 in all */
#define MPA_NOT_NEGOTIATED 0x3fff

enum mpa_kind { MPA_REQUEST, MPA_REPLY };

/* The ways to say "ready to receive" in peer-to-peer mode; a mask. */
enum mpa_rtr {
	MPA_RTR_FPDU = 1,  /* zero-length FPDU */
	MPA_RTR_WRITE = 2, /* zero-length RDMA Write */
	MPA_RTR_READ = 4,  /* zero-length RDMA Read */
};

struct mpa_frame {
	enum mpa_kind kind;
	uint8_t revision; /* 1 or 2; 0 is read as siw reads it, and written never */
	bool markers;
	bool crc;
	bool reject;
	bool enhanced; /* ird, ord, peer_to_peer and rtr are meaningful */
	/*
	 * The sender is softrdma: reserved flag 0x01 in a request, 0x02 in a reply, because siw
	 * sends the reserved flags of a request back in its reply.
	 */
	bool soft;
	bool shm; /* softrdma alone, 0x04 and 0x08: shared memory is offered, or will be used */
	/*
	 * softrdma alone: it acknowledges what it has placed, and wants to be told. 0x08 in a
	 * request, 0x01 in a reply: each is free in the other's frame, and a request's flags that
	 * siw sends back do not look like softrdma's reply.
	 */
	bool acks;
	bool peer_to_peer;
	uint8_t rtr; /* mask of enum mpa_rtr */
	uint16_t ird;
	uint16_t ord;
	uint16_t private_len; /* the user's part, without the enhanced header */
	const uint8_t *private_data;
};

/*
 * How long the frame at @buf is in all, as far as @len bytes tell: MPA_HEADER_LEN as long as its
 * header is not complete, then the whole. A reader that never takes more than this from the socket
 * leaves the first FPDU where it is. -EPROTO: not a frame of this @kind (the key is compared as
 * soon as its bytes are there), a revision above 2, or private data above MPA_MAX_PRIVATE.
 */
ssize_t mpa_frame_len(enum mpa_kind kind, const uint8_t *buf, size_t len);

/*
 * Decode a whole frame of @len bytes; @out->private_data points into @buf. -EPROTO as above, when
 * @len is not the frame's length, or when an enhanced frame is too short for its header.
 * The enhanced header is read only with revision 2 and the S flag.
 */
int mpa_parse(enum mpa_kind kind, const uint8_t *buf, size_t len, struct mpa_frame *out);

/*
 * Encode into @out (MPA_MAX_FRAME bytes). Returns the length; -EINVAL if the private data is too
 * long. An enhanced header needs revision 2; an IRD or ORD above 14 bits is sent as not negotiated.
 */
ssize_t mpa_build(const struct mpa_frame *frame, uint8_t *out);

/* What one end can do and wants. */
struct mpa_local {
	uint16_t ird; /* inbound reads it will hold */
	uint16_t ord; /* outbound reads it wants to have open */
	bool crc;     /* wants CRC */
};

/* What both ends agreed on, seen from one of them. */
struct mpa_agreed {
	bool crc;
	bool soft;   /* the peer is softrdma */
	bool acks;   /* both ends acknowledge what they have placed */
	uint8_t rtr; /* 0, or the one enum mpa_rtr with which the initiator must open */
	uint16_t ird;
	uint16_t ord;
	bool either_first; /* they met by number: the responder may speak first, too */
};

/*
 * The responder's side: from @request and what is offered here make the accepting @reply (without
 * private data: the caller adds it) and the agreement. The revision follows the request (1 for 0);
 * CRC is on when either side wants it. Enhanced: our IRD is the request's ORD and our ORD the
 * request's IRD, each cut to @local (MPA_NOT_NEGOTIATED: local values are used and echoed as not
 * negotiated); in peer-to-peer mode A is returned and exactly one RTR of those offered, Write
 * first, then Read, then FPDU, with IRD at least 1 for a Read. Not enhanced: @local as it is.
 * Returns 0, or with *@why set: -ECONNREFUSED when markers are demanded (answer: a rejecting reply,
 * as siw does), -EPROTO when peer-to-peer offers no RTR (TERM_MPA_RTR). The reply is marked soft
 * only towards softrdma.
 */
int mpa_answer(const struct mpa_frame *request, const struct mpa_local *local,
	       struct mpa_frame *reply, struct mpa_agreed *agreed, uint16_t *why);

/*
 * The initiator's side: check @reply against our own @request. Returns 0 and the agreement, or with
 * *@why set: -ECONNREFUSED if rejected (@reply->private_data tells why, *@why is TERM_NONE);
 * -EPROTO for markers demanded, a lower revision than asked, enhanced where we are not or the
 * reverse, CRC asked for and denied, an RTR that was not offered, none where one was, or more than
 * one; -ENOSPC when the peer's ORD needs more IRD than we have (TERM_MPA_IRD). A smaller reply.IRD
 * lowers our ORD, though not below the 1 that a Read as RTR takes.
 */
int mpa_conclude(const struct mpa_frame *request, const struct mpa_local *local,
		 const struct mpa_frame *reply, struct mpa_agreed *agreed, uint16_t *why);

/* FPDU: 2 bytes length, ULPDU, 0 to 3 bytes of padding, 4 bytes CRC (zero when CRC is off). */
#define FPDU_LENGTH_LEN 2
#define FPDU_CRC_LEN    4
#define FPDU_MAX_ULPDU  64768

static inline size_t fpdu_pad(size_t ulpdu_len)
{
	return -(FPDU_LENGTH_LEN + ulpdu_len) & 3;
}

static inline size_t fpdu_len(size_t ulpdu_len)
{
	return FPDU_LENGTH_LEN + ulpdu_len + fpdu_pad(ulpdu_len) + FPDU_CRC_LEN;
}

/* The CRC field: least significant byte first. */
void fpdu_put_crc(uint8_t out[FPDU_CRC_LEN], uint32_t crc);
uint32_t fpdu_get_crc(const uint8_t in[FPDU_CRC_LEN]);

/* The largest ULPDU for a TCP segment of @mss bytes without markers, at most FPDU_MAX_ULPDU. */
size_t fpdu_max_ulpdu(size_t mss);

#endif
