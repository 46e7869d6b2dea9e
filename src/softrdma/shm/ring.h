/* SPDX-License-Identifier: MIT */
/*
 * A ring of entries in memory that two processes share: one writes, the other reads.
 *
 * The ring is made of cells; an entry is a header and a payload in as many cells in a row as it
 * takes. The first word of the cell behind the entry is made to say that nothing follows,
 * everything is put in place, and the entry's own first word is stored last: so one that says
 * anything else means a whole entry, and a reader that polls touches no line but the one that the
 * entry begins in. It takes that line away from the writer with every look; so the writer touches
 * it last, and all at once.
 *
 * To write to a line that the reader has read a lap ago takes as long as to hand one over, and
 * stores become visible in their order. So the writer takes the lines that a short entry will need
 * beforehand, when the entry before it has left.
 *
 * A short Send has a cell, and the first word alone as its header. That word has a mark; a Send of
 * just one line whose own first word has not travels without a header, as that line.
 *
 * A header also tells how much the writer has placed of what came the other way: a reply
 * acknowledges what it replies to, and touches no further line for it.
 *
 * Who writes which index: @tail is the writer's own and nowhere else, @head the reader's. The
 * reader publishes how far it is in *@consumed, now and then. Either checks what it reads of the
 * other's before it uses it: memory that a peer can write holds anything at any moment.
 */
#ifndef SOFTRDMA_SHM_RING_H
#define SOFTRDMA_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../rc/frame.h"

#define RING_CELL        128u /* two lines: a short message fits one cell */
#define RING_CELLS       512u /* a power of two */
#define RING_BYTES       (RING_CELL * RING_CELLS)
#define RING_LINE        64u
#define RING_HEADER      32u
#define RING_WORD        8u                        /* of it, and for a short Send all of it */
#define RING_FIRST       (RING_LINE - RING_HEADER) /* bytes of a payload in its first line */
#define RING_MARK        0x275u                    /* ten bits */
#define RING_SHORT       (RING_CELL - RING_WORD)   /* bytes of a short Send at most */
#define RING_MAX_PAYLOAD (64u * RING_CELL - RING_HEADER)

/* The kinds and flags of entries are those of frames; apart from them: */
#define RING_NOTHING RC_NONE
#define RING_PAD     RC_KINDS /* the rest of the ring up to its end is empty */

_Static_assert(offsetof(struct rc_frame, key) == RING_WORD &&
		       offsetof(struct rc_frame, arg) + sizeof(uint64_t) == RING_HEADER,
	       "from the key to the argument a frame lies in the ring as it is");

/*
 * The first word of a header, from the lowest bit on: kind (4), flags (5), length (13), mark (10),
 * placed (32). Made of numbers, not by looking at the bytes of a struct: those would just have been
 * written one by one, and a processor waits until they have reached its cache before it reads them
 * as one.
 */
static inline uint64_t ring_first_word(uint8_t kind, uint8_t flags, uint32_t len, uint32_t placed)
{
	return (uint64_t)placed << 32 | (uint64_t)RING_MARK << 22 | (uint64_t)len << 9 |
	       (uint64_t)flags << 4 | kind;
}

/* A Send, or a piece of one, of which there is nothing more to say than its length. */
static inline bool ring_is_short(uint8_t kind, uint8_t flags, uint32_t len)
{
	return kind == RC_SEND && !(flags & (RC_INVALIDATE | RC_IMMEDIATE)) && len <= RING_SHORT;
}

/* ---- the writer ---- */

struct ring_writer {
	uint8_t *cells;
	const _Atomic uint32_t *consumed; /* written by the reader */
	uint32_t tail;                    /* cells written; runs freely */
	uint32_t seen;                    /* of *consumed */
	uint32_t prepared;                /* this cell, ahead of the tail, says nothing already */
	uint32_t placed;                  /* what headers are to tell; set by the owner */
	uint32_t told;                    /* what the last one told */
};

/* Before anybody reads or writes. */
void ring_clear(uint8_t *cells);

void ring_writer_init(struct ring_writer *ring, uint8_t *cells, const _Atomic uint32_t *consumed);

/* A short Send. 0; -EAGAIN: there is no room now; -EPROTO: the reader says that it has read what
 * was not written. */
int ring_put_short(struct ring_writer *ring, uint8_t flags, const void *bytes, uint32_t len);

/*
 * Where the payload of the next entry goes, which is any other. Its first RING_FIRST bytes are best
 * written last. As ring_put_short.
 */
int ring_reserve(struct ring_writer *ring, const struct rc_frame *entry, uint8_t **payload);

/* The payload is in place: the entry that was reserved, as every one must, becomes visible. */
void ring_commit(struct ring_writer *ring, const struct rc_frame *entry);

/* Has the reader told of more room since we looked? */
bool ring_has_moved(const struct ring_writer *ring);

/* Has the reader passed all that was written up to @tail? */
bool ring_is_past(const struct ring_writer *ring, uint32_t tail);

/* ---- the reader ---- */

struct ring_reader {
	const uint8_t *cells;
	_Atomic uint32_t *consumed;
	_Atomic uint32_t head; /* atomic, because another thread may ask whether there is more */
	uint32_t next;         /* behind the entry that was looked at */
	uint32_t published;
	uint32_t placed; /* what the last header that was looked at told; unchecked */
};

void ring_reader_init(struct ring_reader *ring, const uint8_t *cells, _Atomic uint32_t *consumed);

/* Is there nothing, not even a pad? By any thread. */
bool ring_is_empty(const struct ring_reader *ring);

/* One is there and about to be taken: have its second line on the way here meanwhile. */
void ring_fetch(const struct ring_reader *ring);

/*
 * The next entry, copied once and checked as far as it can be without knowing what it is for; its
 * payload lies in the ring, where the peer can change it. Of a short Send only kind, flags and
 * length are set. 1; 0: there is none; -EPROTO.
 */
int ring_peek(struct ring_reader *ring, struct rc_frame *entry, const uint8_t **payload);

/* What was looked at last has been dealt with. */
void ring_pop(struct ring_reader *ring);

/* Has so much been read since it was last published that the writer should know? */
bool ring_is_unpublished(const struct ring_reader *ring, uint32_t cells);

/* Let the writer know how far it is. */
void ring_publish(struct ring_reader *ring);

#endif
