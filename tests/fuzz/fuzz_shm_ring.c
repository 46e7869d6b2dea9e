/* SPDX-License-Identifier: MIT */
/*
 * A ring that a peer has written, or reads. Input: 0, where reading begins, then patches: cell,
 * byte of it, length, bytes. Whatever is there, an entry that is accepted lies in the ring, and
 * reading goes forward. Or 1, then lengths or lines to be written, and what the reader says that it
 * has read.
 */
#include "fuzz.h"

#include "shm/ring.h"

#define LINE 0xfe /* a line is to be written, which begins with the bytes that follow */

static _Alignas(128) uint8_t cells[RING_BYTES];

static void patch(struct input *input)
{
	while (input->left) {
		size_t at = take_byte(input) * 2u % RING_CELLS * RING_CELL;
		size_t len;

		at += take_byte(input) % RING_CELL;
		if (take_byte(input) % 2)
			at = (at + RING_BYTES - RING_CELL) % RING_BYTES;
		len = take_byte(input) % (RING_HEADER + 1);
		for (size_t i = 0; i < len && at + i < RING_BYTES; i++)
			cells[at + i] = take_byte(input);
	}
}

static void put_line(struct ring_writer *writer, struct input *input)
{
	uint64_t line[RING_LINE / sizeof(uint64_t)] = {0};
	uint32_t before = writer->tail;
	bool put;

	for (unsigned i = 0; i < sizeof(uint64_t); i++)
		line[0] = line[0] << 8 | take_byte(input);
	put = !ring_put_short(writer, RC_LAST, line, sizeof(line));
	CHECK(writer->tail == before + put);
}

static void put_short(struct ring_writer *writer, uint8_t len)
{
	uint8_t bytes[RING_SHORT];
	uint32_t before = writer->tail;
	bool put;

	memset(bytes, len, len);
	put = !ring_put_short(writer, 0, bytes, len);
	CHECK(writer->tail == before + put);
}

static void write_against(struct input *input)
{
	_Atomic uint32_t consumed = 0;
	struct ring_writer writer;

	ring_clear(cells);
	ring_writer_init(&writer, cells, &consumed);
	while (input->left) {
		uint8_t what = take_byte(input);
		struct rc_frame entry = {.kind = what % 2 ? RC_WRITE : RC_SEND,
					 .len = what * 40u % RING_MAX_PAYLOAD};
		uint32_t before = writer.tail;
		uint8_t *payload;

		if (what < 32) {
			consumed = what < 16 ? writer.tail - what
					     : (uint32_t)take_byte(input) << (what & 7) * 4;
			CHECK(ring_is_past(&writer, consumed));
			CHECK(ring_has_moved(&writer) == (writer.seen != consumed));
			continue;
		}
		if (what == LINE) {
			put_line(&writer, input);
			continue;
		}
		if (ring_is_short(entry.kind, entry.flags, entry.len)) {
			put_short(&writer, (uint8_t)entry.len);
			continue;
		}
		if (ring_reserve(&writer, &entry, &payload)) {
			CHECK(writer.tail == before);
			continue;
		}
		CHECK(payload >= cells + RING_HEADER);
		CHECK(payload + entry.len <= cells + RING_BYTES);
		memset(payload, what, entry.len);
		ring_commit(&writer, &entry);
		CHECK(writer.tail - before < 129);
	}
}

static void read_patched(struct input *input)
{
	_Atomic uint32_t consumed = 0;
	struct ring_reader reader;
	uint32_t last;

	ring_reader_init(&reader, cells, &consumed);
	last = (uint32_t)take_byte(input) << 8 | take_byte(input);
	last = last << 16 | last;
	atomic_store(&reader.head, last);
	reader.published = last;
	patch(input);
	for (unsigned i = 0; i < 2 * RING_CELLS; i++) {
		struct rc_frame entry;
		const uint8_t *payload;
		uint32_t head;

		if (ring_peek(&reader, &entry, &payload) <= 0)
			break;
		CHECK(!ring_is_empty(&reader));
		CHECK(entry.kind > RC_NONE && entry.kind < RC_KINDS);
		CHECK(payload >= cells);
		CHECK(payload + entry.len <= cells + RING_BYTES);
		ring_pop(&reader);
		head = atomic_load(&reader.head);
		CHECK(head - last > 0 && head - last < RING_CELLS + 65);
		CHECK(ring_is_unpublished(&reader, 1));
		ring_publish(&reader);
		CHECK(consumed == head);
		last = head;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint64_t nothing = ring_first_word(RING_NOTHING, 0, 0, 0);
	struct input input = {data, size};

	memset(cells, 0, sizeof(cells));
	for (size_t at = 0; at < RING_BYTES; at += RING_CELL)
		memcpy(cells + at, &nothing, sizeof(nothing));
	if (take_byte(&input) % 2)
		write_against(&input);
	else
		read_patched(&input);
	return 0;
}
