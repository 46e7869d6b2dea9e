/* SPDX-License-Identifier: MIT */
/* The numbers that hpibv-generate puts into packets, and what they tell the receiver. */
#ifndef TOOLS_PACKET_SEQUENCE_H
#define TOOLS_PACKET_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In a datagram: a magic word, a random stream number, the packet's number from 0, their total. */
#define SEQUENCE_BYTES 32

struct sequence_mark {
	uint64_t stream, number;
	uint64_t total; /* 0: not known */
};

void sequence_put(uint8_t *payload, const struct sequence_mark *mark);
/* False: it has none. */
bool sequence_get(const uint8_t *payload, size_t len, struct sequence_mark *mark);

#define SEQUENCE_WINDOW 65536 /* how late a packet may be to be recognised */

struct sequence {
	uint64_t stream;
	uint64_t received; /* different ones */
	uint64_t expected; /* the number behind the highest seen */
	uint64_t total;
	uint64_t out_of_order, twice;
	uint64_t seen[SEQUENCE_WINDOW / 64]; /* of the last ones */
};

void sequence_init(struct sequence *sequence, const struct sequence_mark *first);
void sequence_add(struct sequence *sequence, const struct sequence_mark *mark);
/* At the end, as far as can be told. */
uint64_t sequence_lost(const struct sequence *sequence);

#endif
