/* SPDX-License-Identifier: MIT */
#include "ring.h"

#include <errno.h>
#include <string.h>

#define MASK (RING_CELLS - 1)

static uint32_t cells_for(size_t len)
{
	return (uint32_t)((RING_HEADER + len + RING_CELL - 1) / RING_CELL);
}

/* The first word of the entry that begins at a cell. */
static _Atomic uint64_t *first_word(const uint8_t *cells, uint32_t index)
{
	return (_Atomic uint64_t *)(uintptr_t)(cells + (size_t)(index & MASK) * RING_CELL);
}

/* ---- the writer ---- */

void ring_writer_init(struct ring_writer *ring, uint8_t *cells, const _Atomic uint32_t *consumed)
{
	*ring = (struct ring_writer){.cells = cells, .consumed = consumed};
}

/* Whether @cells are free, and one more for the word that says that nothing follows. */
static int check_room(struct ring_writer *ring, uint32_t cells)
{
	uint32_t consumed;

	if (ring->tail - ring->seen + cells < RING_CELLS)
		return 0;
	consumed = atomic_load_explicit(ring->consumed, memory_order_acquire);
	if (ring->tail - consumed > RING_CELLS)
		return -EPROTO;
	ring->seen = consumed;
	return ring->tail - ring->seen + cells < RING_CELLS ? 0 : -EAGAIN;
}

/* Nothing follows the entry that is about to be written. */
static void end_behind(struct ring_writer *ring, uint32_t cells)
{
	atomic_store_explicit(first_word(ring->cells, ring->tail + cells), 0, memory_order_relaxed);
}

/* Everything else of the entry is there: it appears as a whole. */
static void appear(struct ring_writer *ring, const struct ring_entry *entry, uint32_t cells)
{
	uint64_t word;

	memcpy(&word, entry, sizeof(word));
	atomic_store_explicit(first_word(ring->cells, ring->tail), word, memory_order_release);
	ring->tail += cells;
}

/* Have the line at hand, to write it. */
static void own(const void *line)
{
#ifdef __x86_64__
	/* What the compiler has for this is for reading, unless it knows the very processor. */
	__asm__ volatile("prefetchw %0" ::"m"(*(const char *)line));
#else
	__builtin_prefetch(line, 1);
#endif
}

int ring_reserve(struct ring_writer *ring, size_t len, uint8_t **payload)
{
	const struct ring_entry pad = {.kind = RING_PAD};
	uint32_t cells = cells_for(len), to_end = RING_CELLS - (ring->tail & MASK);
	int error = check_room(ring, cells <= to_end ? cells : to_end + cells);

	if (error)
		return error;
	if (cells > to_end) {
		end_behind(ring, to_end);
		appear(ring, &pad, to_end);
	}
	end_behind(ring, cells);
	*payload = ring->cells + (size_t)(ring->tail & MASK) * RING_CELL + RING_HEADER;
	return 0;
}

void ring_commit(struct ring_writer *ring, const struct ring_entry *entry)
{
	uint8_t *at = ring->cells + (size_t)(ring->tail & MASK) * RING_CELL;

	memcpy(at + sizeof(uint64_t), (const uint8_t *)entry + sizeof(uint64_t),
	       sizeof(*entry) - sizeof(uint64_t));
	appear(ring, entry, cells_for(entry->len));
	own(first_word(ring->cells, ring->tail + 1)); /* to be cleared by a short one */
}

bool ring_has_moved(const struct ring_writer *ring)
{
	return atomic_load_explicit(ring->consumed, memory_order_acquire) != ring->seen;
}

bool ring_is_past(const struct ring_writer *ring, uint32_t tail)
{
	uint32_t consumed = atomic_load_explicit(ring->consumed, memory_order_acquire);

	return (int32_t)(consumed - tail) >= 0;
}

/* ---- the reader ---- */

void ring_reader_init(struct ring_reader *ring, const uint8_t *cells, _Atomic uint32_t *consumed)
{
	ring->cells = cells;
	ring->consumed = consumed;
	atomic_init(&ring->head, 0);
	ring->published = 0;
}

static uint32_t head_of(const struct ring_reader *ring)
{
	return atomic_load_explicit(&ring->head, memory_order_relaxed);
}

bool ring_is_empty(const struct ring_reader *ring)
{
	const _Atomic uint64_t *first = first_word(ring->cells, head_of(ring));

	/* The writer fills the second line first: so it comes while that one is being written. */
	__builtin_prefetch((const uint8_t *)first + RING_CELL / 2);
	return !atomic_load_explicit(first, memory_order_acquire);
}

/* At most one step to the start of the ring: a pad there would be a way to walk in circles. */
static int skip_pad(struct ring_reader *ring, uint64_t *word)
{
	uint32_t at = head_of(ring) & MASK;

	if (!at)
		return -EPROTO;
	atomic_store_explicit(&ring->head, head_of(ring) + RING_CELLS - at, memory_order_relaxed);
	*word = atomic_load_explicit(first_word(ring->cells, head_of(ring)), memory_order_acquire);
	return 0;
}

int ring_peek(struct ring_reader *ring, struct ring_entry *entry, const uint8_t **payload)
{
	uint64_t word =
		atomic_load_explicit(first_word(ring->cells, head_of(ring)), memory_order_acquire);
	const uint8_t *at;

	if (!word)
		return 0;
	memcpy(entry, &word, sizeof(word));
	if (entry->kind == RING_PAD) {
		if (skip_pad(ring, &word))
			return -EPROTO;
		if (!word)
			return 0;
		memcpy(entry, &word, sizeof(word));
	}
	at = ring->cells + (size_t)(head_of(ring) & MASK) * RING_CELL;
	memcpy((uint8_t *)entry + sizeof(word), at + sizeof(word), sizeof(*entry) - sizeof(word));
	if (entry->kind <= RING_PAD || entry->kind >= RING_KINDS || entry->flags & ~RING_FLAGS ||
	    entry->zero || entry->len > RING_MAX_PAYLOAD ||
	    cells_for(entry->len) > RING_CELLS - (head_of(ring) & MASK))
		return -EPROTO;
	*payload = at + RING_HEADER;
	return 1;
}

void ring_pop(struct ring_reader *ring, const struct ring_entry *entry)
{
	atomic_store_explicit(&ring->head, head_of(ring) + cells_for(entry->len),
			      memory_order_relaxed);
}

bool ring_is_unpublished(const struct ring_reader *ring, uint32_t cells)
{
	return head_of(ring) - ring->published >= cells;
}

void ring_publish(struct ring_reader *ring)
{
	ring->published = head_of(ring);
	atomic_store_explicit(ring->consumed, ring->published, memory_order_release);
}
