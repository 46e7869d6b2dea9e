/* SPDX-License-Identifier: MIT */
#include "ring.h"

#include <errno.h>
#include <string.h>

#define MASK (RING_CELLS - 1)

#define NOTHING ring_first_word(RING_NOTHING, 0, 0, 0)
#define PAD     ring_first_word(RING_PAD, 0, 0, 0)

#define KIND_MASK  0xfu
#define FLAGS_MASK 0x1fu
#define LEN_MASK   0x1fffu

_Static_assert(RING_PAD <= KIND_MASK && RC_FLAGS <= FLAGS_MASK && RING_MAX_PAYLOAD <= LEN_MASK,
	       "they fit the first word");

static bool is_marked(uint64_t word)
{
	return ((uint32_t)word >> 22) == RING_MARK;
}

/* Of any but a short one. */
static uint32_t cells_for(const struct rc_frame *entry)
{
	return (RING_HEADER + entry->len + RING_CELL - 1) / RING_CELL;
}

static uint8_t *cell_at(const uint8_t *cells, uint32_t index)
{
	return (uint8_t *)(uintptr_t)cells + (size_t)(index & MASK) * RING_CELL;
}

/* The first word of the entry that begins at a cell. */
static _Atomic uint64_t *first_word(const uint8_t *cells, uint32_t index)
{
	return (_Atomic uint64_t *)cell_at(cells, index);
}

static void say_nothing(uint8_t *cells, uint32_t index)
{
	atomic_store_explicit(first_word(cells, index), NOTHING, memory_order_relaxed);
}

void ring_clear(uint8_t *cells)
{
	say_nothing(cells, 0);
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
	if (ring->prepared != ring->tail + cells)
		say_nothing(ring->cells, ring->tail + cells);
}

/* Everything else of the entry is there: it appears as a whole. */
static void appear(struct ring_writer *ring, uint64_t word, uint32_t cells)
{
	atomic_store_explicit(first_word(ring->cells, ring->tail), word, memory_order_release);
	ring->tail += cells;
}

static void appear_with_header(struct ring_writer *ring, uint8_t kind, uint8_t flags, uint32_t len,
			       uint32_t cells)
{
	appear(ring, ring_first_word(kind, flags, len, ring->placed), cells);
	ring->told = ring->placed;
}

/*
 * For the entries to come, if they are as short as this one was: have the lines of the cell behind
 * the next one at hand, which the reader is not looking at, by writing to them. A prefetch would
 * leave it at the copy for reading that is here already.
 */
static void prepare(struct ring_writer *ring, bool two_lines)
{
	uint32_t index = ring->tail + 1;

	ring->prepared = ring->tail; /* none */
	if (index - ring->seen >= RING_CELLS)
		return;
	say_nothing(ring->cells, index);
	ring->prepared = index;
	if (two_lines)
		atomic_store_explicit(first_word(ring->cells, index) + RING_LINE / RING_WORD, 0,
				      memory_order_relaxed);
}

static int reserve(struct ring_writer *ring, uint32_t cells)
{
	uint32_t to_end = RING_CELLS - (ring->tail & MASK);
	int error = check_room(ring, cells <= to_end ? cells : to_end + cells);

	if (error)
		return error;
	if (cells > to_end) {
		end_behind(ring, to_end);
		appear(ring, PAD, to_end);
	}
	end_behind(ring, cells);
	return 0;
}

int ring_reserve(struct ring_writer *ring, const struct rc_frame *entry, uint8_t **payload)
{
	int error = reserve(ring, cells_for(entry));

	*payload = cell_at(ring->cells, ring->tail) + RING_HEADER;
	return error;
}

void ring_commit(struct ring_writer *ring, const struct rc_frame *entry)
{
	memcpy(cell_at(ring->cells, ring->tail) + RING_WORD, (const uint8_t *)entry + RING_WORD,
	       RING_HEADER - RING_WORD);
	appear_with_header(ring, entry->kind, entry->flags, entry->len, cells_for(entry));
	prepare(ring, entry->len > RING_FIRST);
}

/* Whether it was one that needs no header. */
static bool put_line(struct ring_writer *ring, const uint8_t *line)
{
	uint64_t word;

	memcpy(&word, line, sizeof(word));
	if (is_marked(word))
		return false;
	memcpy(cell_at(ring->cells, ring->tail) + sizeof(word), line + sizeof(word),
	       RING_LINE - sizeof(word));
	appear(ring, word, 1);
	prepare(ring, false);
	return true;
}

/* The line that the reader polls is written last. */
static void copy_short(uint8_t *payload, const uint8_t *bytes, uint32_t len)
{
	const uint32_t first = RING_LINE - RING_WORD;

	if (len > first) {
		memcpy(payload + first, bytes + first, len - first);
		memcpy(payload, bytes, first);
	} else if (len) { /* else there may be no bytes at all */
		memcpy(payload, bytes, len);
	}
}

int ring_put_short(struct ring_writer *ring, uint8_t flags, const void *bytes, uint32_t len)
{
	int error = reserve(ring, 1);

	if (error)
		return error;
	if (len == RING_LINE && flags == RC_LAST && put_line(ring, bytes))
		return 0;
	copy_short(cell_at(ring->cells, ring->tail) + RING_WORD, bytes, len);
	appear_with_header(ring, RC_SEND, flags, len, 1);
	prepare(ring, len > RING_LINE - RING_WORD);
	return 0;
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
	ring->next = 0;
	ring->published = 0;
	ring->placed = 0;
}

static uint32_t head_of(const struct ring_reader *ring)
{
	return atomic_load_explicit(&ring->head, memory_order_relaxed);
}

static uint64_t word_at_head(const struct ring_reader *ring)
{
	return atomic_load_explicit(first_word(ring->cells, head_of(ring)), memory_order_acquire);
}

bool ring_is_empty(const struct ring_reader *ring)
{
	return word_at_head(ring) == NOTHING;
}

void ring_fetch(const struct ring_reader *ring)
{
	__builtin_prefetch(cell_at(ring->cells, head_of(ring)) + RING_LINE);
}

/* At most one step to the start of the ring: a pad there would be a way to walk in circles. */
static int skip_pad(struct ring_reader *ring)
{
	uint32_t at = head_of(ring) & MASK;

	if (!at)
		return -EPROTO;
	atomic_store_explicit(&ring->head, head_of(ring) + RING_CELLS - at, memory_order_relaxed);
	return 0;
}

/* Of any but a short one, whose first word is in @entry already. */
static int take_header(struct ring_reader *ring, struct rc_frame *entry, const uint8_t **payload)
{
	const uint8_t *at = cell_at(ring->cells, head_of(ring));

	if (entry->kind == RING_NOTHING || entry->kind >= RC_KINDS ||
	    entry->len > RING_MAX_PAYLOAD || cells_for(entry) > RING_CELLS - (head_of(ring) & MASK))
		return -EPROTO;
	memcpy((uint8_t *)entry + RING_WORD, at + RING_WORD, RING_HEADER - RING_WORD);
	entry->swap = 0;
	entry->sink_key = 0;
	entry->sink_addr = 0;
	*payload = at + RING_HEADER;
	ring->next = head_of(ring) + cells_for(entry);
	return 1;
}

static int take_short(struct ring_reader *ring, uint32_t header, const uint8_t **payload)
{
	*payload = cell_at(ring->cells, head_of(ring)) + header;
	ring->next = head_of(ring) + 1;
	return 1;
}

/* What begins with @word, which was copied already. */
static int take(struct ring_reader *ring, uint64_t word, struct rc_frame *entry,
		const uint8_t **payload)
{
	if (!is_marked(word)) {
		entry->kind = RC_SEND;
		entry->flags = RC_LAST;
		entry->len = RING_LINE;
		return take_short(ring, 0, payload);
	}
	entry->kind = word & KIND_MASK;
	entry->flags = word >> 4 & FLAGS_MASK;
	entry->len = word >> 9 & LEN_MASK;
	ring->placed = (uint32_t)(word >> 32);
	return ring_is_short(entry->kind, entry->flags, entry->len)
		       ? take_short(ring, RING_WORD, payload)
		       : take_header(ring, entry, payload);
}

int ring_peek(struct ring_reader *ring, struct rc_frame *entry, const uint8_t **payload)
{
	uint64_t word = word_at_head(ring);

	if (word == PAD) {
		if (skip_pad(ring))
			return -EPROTO;
		word = word_at_head(ring);
	}
	if (word == NOTHING)
		return 0;
	return take(ring, word, entry, payload);
}

void ring_pop(struct ring_reader *ring)
{
	atomic_store_explicit(&ring->head, ring->next, memory_order_relaxed);
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
