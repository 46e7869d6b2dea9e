/* SPDX-License-Identifier: MIT */
/*
 * For fuzz_shm.c: a side that uses the public interface, and a rude process that shares memory with
 * it, the lodger. Here is how they meet and part, and what must hold for the side whatever the
 * lodger does:
 *
 * - every request and every receive completes once, or is flushed when the connection ends;
 * - a read that succeeds has brought something, and what the side sends is what it posted;
 * - memory that the lodger was not offered keeps its bytes, and so does memory whose key it had;
 * - the end is told once, and comes in time;
 * - another connection of the process goes on, and new ones can be made.
 */
#ifndef FUZZ_SHM_GUEST_H
#define FUZZ_SHM_GUEST_H

#include "../fuzz.h"
#include "lodger.h"
#include "shm/regions.h"

#define SLOT_BYTES (20u * KIB) /* longer than the shortest Send that is fetched */
#define SLOTS      40u
#define MAX_PIECES 3u
#define SOURCE     0x33 /* what the side sends */
#define ANSWER     0x42 /* what the lodger sends, */
#define OFFERED    0x24 /* and what is in its memory */

/* The memory of one request or receive of the side's, which is used once. */
struct slot {
	enum { SLOT_FREE, SLOT_REQUEST, SLOT_RECV } use;
	bool must_complete;
	bool done;
	bool reads;
	uint32_t writable; /* bytes that its request may change, */
	uint32_t filled;   /* or that it sends: they are all SOURCE */
};

/* How the two meet, and what they have. */
struct guest_options {
	bool side_connects;
	bool shared_receives;
	bool one_cq;
	bool reads_only; /* what the side's region grants */
	bool early;      /* the ring has an entry before the side sees it */
	enum {
		HELLO_TABLE, /* with a table of regions: the side may copy */
		HELLO_PLAIN, /* without */
		HELLO_BLIND, /* the side cannot see the lodger's memory: all goes through the ring
			      */
		HELLO_WRONG, /* one byte of it, or its descriptors */
		HELLO_LATE,  /* not yet; if the side connects: never */
	} hello;
	uint8_t spoil[3]; /* HELLO_WRONG: at, by what, descriptors */
};

struct guest {
	struct lodger lodger;
	struct guest_options options;
	int listener; /* -1, or the lodger's: the side connects */
	bool greeted; /* the hello was said */
	bool hung_up;
	struct area_side *own, *peer; /* of the area: the lodger's part, and the side's */
	struct regions_entry *table;  /* the lodger's own */
	struct slot slots[SLOTS];
	unsigned used;    /* slots */
	uint32_t old_key; /* of a region that was deregistered */
	uint8_t *kept;    /* what the region held then; NULL: it is registered */
	unsigned ends;    /* DISCONNECTED was told */
};

/* Once. */
void guest_prepare(void);

void guest_open(struct guest *guest, const struct guest_options *options);
void guest_greet(struct guest *guest); /* a hello that is right */
/* All that must hold is checked. */
void guest_close(struct guest *guest);

/* The lodger's memory, which the side may reach through the lodger's table. */
uint8_t *guest_memory(void);
#define GUEST_MEMORY (32u * KIB)

/* A slot that nothing has used; NULL: there is none. Its number is the wr_id. */
struct slot *guest_slot(struct guest *guest, uint64_t *id, uint8_t **at);
void guest_fill(struct slot *slot, uint8_t *at, uint32_t len);
bool guest_is_source(const uint8_t *at, size_t len);
/* Look for completions, @times, in both CQs. */
void guest_poll(struct guest *guest, unsigned times);
void guest_deregister(struct guest *guest);
void guest_register(struct guest *guest);
uint32_t guest_key(const struct guest *guest); /* of the region, or what it was */

#endif
