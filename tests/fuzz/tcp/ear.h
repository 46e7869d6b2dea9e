/* SPDX-License-Identifier: MIT */
/* What the stranger hears: FPDUs of the honest end, each checked against the protocol. */
#ifndef FUZZ_TCP_EAR_H
#define FUZZ_TCP_EAR_H

#include "stranger.h"

/* The sink of reads from memory that may only be read: what they bring is known. */
#define SINK_READONLY 0x55667788u

#define MAX_ASKED 64u
#define MAX_SAID  8192u

/* A request of the honest end that wants an answer. */
struct asked {
	bool atomic;
	uint32_t id;
	struct rdmap_read_request read; /* of a read */
};

struct ear {
	bool soft, acks;
	bool terminated; /* the last word has been heard */
	bool ended;      /* and nothing more will be */
	int owed;        /* answers that the stranger waits for */
	unsigned heard;  /* FPDUs */
	unsigned said;   /* FPDUs that the stranger has begun to say */
	bool wild;       /* some are not as the protocol has them, so nobody knows their effect */
	uint64_t acknowledged;
	uint16_t messages[MAX_SAID + 1]; /* whole messages, by the FPDUs said */
	unsigned asked, answered;        /* numbers of requests */
	struct asked request[MAX_ASKED];
	struct ddp_order order;
	size_t len;
	uint8_t bytes[FPDU_LENGTH_LEN + UINT16_MAX + 3 + FPDU_CRC_LEN];
};

void ear_begin(struct ear *ear, bool soft, bool acks);
/* All that is there. Whether there was anything. */
bool ear_hear(struct ear *ear, const struct stranger *stranger);
/* The stranger says an FPDU, which may end a message. False: it has said enough. */
bool ear_note_said(struct ear *ear, bool ends_message);
/* Messages that the honest end says it has placed. */
unsigned ear_acknowledged_messages(const struct ear *ear);
/* The oldest request that has no answer yet; NULL: there is none. */
const struct asked *ear_oldest(const struct ear *ear);

#endif
