/* SPDX-License-Identifier: MIT */
/* The ring in shared memory: what is put comes out, room, the end of the ring, and lies. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm/ring.h"

static _Alignas(128) uint8_t cells[RING_BYTES];
static _Atomic uint32_t consumed;
static struct ring_writer writer;
static struct ring_reader reader;

static int open_ring(void **state)
{
	(void)state;
	memset(cells, 0, sizeof(cells));
	ring_clear(cells);
	atomic_store(&consumed, 0);
	ring_writer_init(&writer, cells, &consumed);
	ring_reader_init(&reader, cells, &consumed);
	return 0;
}

static int put(uint32_t len, uint8_t value)
{
	const struct rc_frame entry = {.kind = RC_SEND, .flags = RC_LAST, .len = len};
	uint8_t bytes[RING_SHORT] = {0}, *payload;
	int error;

	if (len <= RING_SHORT) {
		memset(bytes, value, len);
		return ring_put_short(&writer, RC_LAST, bytes, len);
	}
	error = ring_reserve(&writer, &entry, &payload);
	if (error)
		return error;
	memset(payload, value, len);
	ring_commit(&writer, &entry);
	return 0;
}

static int put_line(uint64_t first, uint8_t value)
{
	uint64_t line[RING_LINE / sizeof(uint64_t)];

	memset(line, value, sizeof(line));
	line[0] = first;
	return ring_put_short(&writer, RC_LAST, line, sizeof(line));
}

static void expect(uint32_t len, uint8_t value)
{
	struct rc_frame entry;
	const uint8_t *payload;

	assert_false(ring_is_empty(&reader));
	assert_int_equal(ring_peek(&reader, &entry, &payload), 1);
	assert_int_equal(entry.kind, RC_SEND);
	assert_int_equal(entry.flags, RC_LAST);
	assert_int_equal(entry.len, len);
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(payload[i], value);
	ring_pop(&reader);
}

static void expect_none(void)
{
	struct rc_frame entry;
	const uint8_t *payload;

	assert_true(ring_is_empty(&reader));
	assert_int_equal(ring_peek(&reader, &entry, &payload), 0);
}

static void test_ring_fresh_is_empty(void **state)
{
	(void)state;
	expect_none();
}

static void test_ring_entries_come_out_in_order(void **state)
{
	(void)state;
	assert_int_equal(put(0, 1), 0);
	assert_int_equal(put(RING_MAX_PAYLOAD, 2), 0);
	assert_int_equal(put(64, 3), 0);
	expect(0, 1);
	expect(RING_MAX_PAYLOAD, 2);
	expect(64, 3);
	expect_none();
}

static void test_ring_header_comes_out_as_it_went_in(void **state)
{
	const struct rc_frame entries[] = {
		{.kind = RC_WRITE,
		 .flags = RC_LAST,
		 .len = 8,
		 .key = 1,
		 .imm = 2,
		 .addr = 3,
		 .arg = 4},
		{.kind = RC_SEND, .flags = RC_LAST | RC_IMMEDIATE, .len = 8, .imm = 0x12345678},
		{.kind = RC_SEND, .flags = RC_LAST | RC_INVALIDATE, .len = 8, .key = 0x87654321},
		{.kind = RC_RESULT, .arg = UINT64_MAX},
	};
	struct rc_frame entry;
	const uint8_t *payload;
	uint8_t *to;

	(void)state;
	for (unsigned i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
		assert_int_equal(ring_reserve(&writer, &entries[i], &to), 0);
		memset(to, 0x55, entries[i].len);
		ring_commit(&writer, &entries[i]);
		assert_int_equal(ring_peek(&reader, &entry, &payload), 1);
		assert_int_equal(entry.kind, entries[i].kind);
		assert_int_equal(entry.flags, entries[i].flags);
		assert_int_equal(entry.len, entries[i].len);
		assert_int_equal(entry.key, entries[i].key);
		assert_int_equal(entry.imm, entries[i].imm);
		assert_int_equal(entry.addr, entries[i].addr);
		assert_int_equal(entry.arg, entries[i].arg);
		assert_ptr_equal(payload, to);
		ring_pop(&reader);
		expect_none();
	}
}

/* ---- lines ---- */

static void expect_line(uint64_t first, uint8_t value)
{
	uint64_t line[RING_LINE / sizeof(uint64_t)];
	struct rc_frame entry;
	const uint8_t *payload;

	memset(line, value, sizeof(line));
	line[0] = first;
	assert_false(ring_is_empty(&reader));
	assert_int_equal(ring_peek(&reader, &entry, &payload), 1);
	assert_int_equal(entry.kind, RC_SEND);
	assert_int_equal(entry.flags, RC_LAST);
	assert_int_equal(entry.len, RING_LINE);
	assert_memory_equal(payload, line, sizeof(line));
	/* With a header only where it could be taken for one. */
	assert_int_equal((size_t)(payload - cells) % RING_CELL,
			 (uint32_t)first >> 22 == RING_MARK ? RING_WORD : 0);
	ring_pop(&reader);
}

static void test_ring_line_needs_no_header(void **state)
{
	static const uint64_t firsts[] = {0,
					  1,
					  UINT64_MAX,
					  (uint64_t)RING_MARK,
					  (uint64_t)RING_MARK << 54,
					  (uint64_t)(RING_MARK ^ 1) << 22};

	(void)state;
	for (unsigned i = 0; i < 3 * RING_CELLS; i++) {
		uint64_t first = firsts[i % (sizeof(firsts) / sizeof(*firsts))];

		assert_int_equal(put_line(first, (uint8_t)i), 0);
		assert_int_equal(put(100, 7), 0);
		expect_line(first, (uint8_t)i);
		expect(100, 7);
		expect_none();
		ring_publish(&reader);
	}
}

/* The writer is to know whether the reader has been told. */
static void test_ring_headers_tell_what_was_placed(void **state)
{
	static const uint32_t positions[] = {7, 0, UINT32_MAX};

	(void)state;
	for (unsigned i = 0; i < sizeof(positions) / sizeof(*positions); i++) {
		uint32_t before = reader.placed;

		writer.placed = positions[i];
		assert_int_equal(put_line(1, 1), 0);
		assert_int_equal(writer.told, before);
		expect_line(1, 1);
		assert_int_equal(reader.placed, before);
		assert_int_equal(put(i ? 500 : 100, 7), 0);
		assert_int_equal(writer.told, positions[i]);
		expect(i ? 500 : 100, 7);
		assert_int_equal(reader.placed, positions[i]);
		ring_publish(&reader);
	}
}

/* Whatever it says behind it. */
static void test_ring_line_with_the_mark_has_a_header(void **state)
{
	const uint64_t firsts[] = {ring_first_word(RING_NOTHING, 0, 0, 0),
				   ring_first_word(RING_PAD, 0, 0, 0),
				   ring_first_word(RC_SEND, RC_LAST, 64, 0),
				   ring_first_word(RC_SEND, RC_LAST, 64, UINT32_MAX)};

	(void)state;
	for (unsigned i = 0; i < sizeof(firsts) / sizeof(*firsts); i++) {
		assert_int_equal(put_line(firsts[i], 1), 0);
		expect_line(firsts[i], 1);
		expect_none();
	}
}

static void test_ring_line_of_which_more_is_to_be_said_has_a_header(void **state)
{
	const uint8_t line[RING_LINE] = {0};
	struct rc_frame entry;
	const uint8_t *payload;

	(void)state;
	assert_int_equal(ring_put_short(&writer, RC_LAST | RC_SOLICITED, line, sizeof(line)), 0);
	assert_int_equal(ring_peek(&reader, &entry, &payload), 1);
	assert_int_equal(entry.flags, RC_LAST | RC_SOLICITED);
	assert_int_equal(entry.len, RING_LINE);
	ring_pop(&reader);
	expect_none();
}

/* Every length, with bytes that differ, and nothing behind them. */
static void test_ring_short_one_is_copied_whole(void **state)
{
	uint8_t bytes[RING_SHORT + 1];
	struct rc_frame entry;
	const uint8_t *payload;

	(void)state;
	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i + 1);
	for (uint32_t len = 0; len <= RING_SHORT; len++) {
		memset(cells + (size_t)writer.tail * RING_CELL, 0xee, RING_CELL);
		ring_clear(cells + (size_t)writer.tail * RING_CELL);
		assert_int_equal(ring_put_short(&writer, RC_LAST, bytes, len), 0);
		assert_int_equal(ring_peek(&reader, &entry, &payload), 1);
		assert_int_equal(entry.len, len);
		assert_memory_equal(payload, bytes, len);
		for (const uint8_t *at = payload + len; (size_t)(at - cells) % RING_CELL; at++)
			assert_int_equal(*at, 0xee);
		ring_pop(&reader);
		expect_none();
	}
	assert_int_equal(ring_put_short(&writer, RC_LAST, NULL, 0), 0);
	expect(0, 0);
}

static void test_ring_full_has_no_room_for_a_line(void **state)
{
	(void)state;
	while (!put(RING_LINE, 0))
		continue;
	assert_int_equal(put_line(1, 1), -EAGAIN);
	expect(RING_LINE, 0);
	ring_publish(&reader);
	assert_int_equal(put_line(1, 1), 0);
	assert_int_equal(put_line(1, 1), -EAGAIN);
}

/* ---- room, laps and lies ---- */

static void test_ring_header_of_the_last_lap_is_no_entry(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 5 * RING_CELLS; i++) {
		expect_none();
		assert_int_equal(put(i % 50, (uint8_t)i), 0);
		expect(i % 50, (uint8_t)i);
		ring_publish(&reader);
	}
}

/* What looks like a header where payload was. */
static void test_ring_payload_that_looks_like_a_header_is_no_entry(void **state)
{
	const struct rc_frame entry = {.kind = RC_SEND, .flags = RC_LAST, .len = 450};
	struct rc_frame out;
	const uint8_t *payload;
	uint8_t *to;

	(void)state;
	for (unsigned i = 0; i < 6 * RING_CELLS; i++) {
		/* Steps of 4 and of 3 cells: what was inside of one begins another a lap later. */
		if (i % 128 < 100) {
			assert_int_equal(ring_reserve(&writer, &entry, &to), 0);
			for (size_t at = 0; at < entry.len; at++)
				to[at] = (uint8_t)(at % 8 ? 0x55 : i);
			for (uint32_t cell = 1; cell < 4; cell++) {
				uint64_t word = ring_first_word(RC_SEND, RC_LAST, 9, 0);

				memcpy(to - RING_HEADER + (size_t)cell * RING_CELL, &word,
				       sizeof(word));
			}
			ring_commit(&writer, &entry);
			assert_int_equal(ring_peek(&reader, &out, &payload), 1);
			assert_int_equal(out.len, entry.len);
			ring_pop(&reader);
		} else {
			assert_int_equal(put(300, 1), 0);
			expect(300, 1);
		}
		expect_none();
		ring_publish(&reader);
	}
}

/* What was payload a lap before is not taken for an entry. */
static void test_ring_payload_of_the_last_lap_is_no_entry(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3 * RING_CELLS; i++) {
		assert_int_equal(put(i % 2 ? 1000 : 7, RC_SEND), 0);
		expect(i % 2 ? 1000 : 7, RC_SEND);
		expect_none();
		ring_publish(&reader);
	}
}

static void test_ring_full_has_no_room_until_the_reader_tells(void **state)
{
	unsigned count = 0;

	(void)state;
	while (!put(64, (uint8_t)count))
		count++;
	assert_int_equal(count, RING_CELLS - 1); /* one cell says that nothing follows */
	expect(64, 0);
	assert_int_equal(put(64, 0), -EAGAIN);
	assert_false(ring_has_moved(&writer));
	ring_publish(&reader);
	assert_true(ring_has_moved(&writer));
	assert_int_equal(put(64, (uint8_t)count), 0);
	assert_int_equal(put(64, 0), -EAGAIN);
	for (unsigned i = 1; i <= count; i++)
		expect(64, (uint8_t)i);
	expect_none();
}

static void test_ring_long_entry_behind_the_end_begins_at_the_start(void **state)
{
	(void)state;
	for (unsigned i = 0; i < RING_CELLS - 2; i++) {
		assert_int_equal(put(64, 1), 0);
		expect(64, 1);
		ring_publish(&reader);
	}
	assert_int_equal(put(RING_MAX_PAYLOAD, 9), 0);
	expect(RING_MAX_PAYLOAD, 9);
	assert_int_equal(writer.tail, RING_CELLS + 64);
	expect_none();
}

static void test_ring_past_tells_what_was_read(void **state)
{
	uint32_t tail;

	(void)state;
	assert_int_equal(put(64, 1), 0);
	tail = writer.tail;
	assert_int_equal(put(64, 2), 0);
	assert_false(ring_is_past(&writer, tail));
	expect(64, 1);
	assert_false(ring_is_past(&writer, tail));
	assert_true(ring_is_unpublished(&reader, 1));
	assert_false(ring_is_unpublished(&reader, 2));
	ring_publish(&reader);
	assert_true(ring_is_past(&writer, tail));
	assert_false(ring_is_past(&writer, writer.tail));
}

static void test_ring_reader_that_lies_is_found_out(void **state)
{
	(void)state;
	while (!put(64, 0))
		continue;
	atomic_store(&consumed, writer.tail + 1);
	assert_int_equal(put(64, 0), -EPROTO);
	atomic_store(&consumed, writer.tail - RING_CELLS - 1);
	assert_int_equal(put(64, 0), -EPROTO);
}

static void refuse(struct rc_frame entry)
{
	uint64_t word = ring_first_word(entry.kind, entry.flags, entry.len, 0);
	struct rc_frame out;
	const uint8_t *payload;

	memcpy(cells, &word, sizeof(word));
	assert_int_equal(ring_peek(&reader, &out, &payload), -EPROTO);
}

static void test_ring_entry_that_makes_no_sense_is_refused(void **state)
{
	(void)state;
	refuse((struct rc_frame){.kind = RC_KINDS});
	refuse((struct rc_frame){.kind = RING_PAD});
	refuse((struct rc_frame){.kind = 15});
	refuse((struct rc_frame){.kind = RING_NOTHING, .len = 1});
	refuse((struct rc_frame){.kind = RING_PAD, .flags = RC_LAST});
	refuse((struct rc_frame){.kind = RC_SEND, .len = RING_MAX_PAYLOAD + 1});
	refuse((struct rc_frame){.kind = RC_SEND, .len = 8191});
}

static void test_ring_entry_over_the_end_is_refused(void **state)
{
	const uint64_t word = ring_first_word(RC_SEND, 0, RING_CELL, 0);
	struct rc_frame out;
	const uint8_t *payload;

	(void)state;
	atomic_store(&reader.head, RING_CELLS - 1);
	memcpy(cells + sizeof(cells) - RING_CELL, &word, sizeof(word));
	assert_int_equal(ring_peek(&reader, &out, &payload), -EPROTO);
}

static void test_ring_two_pads_in_a_row_are_refused(void **state)
{
	const uint64_t pad = ring_first_word(RING_PAD, 0, 0, 0);
	struct rc_frame out;
	const uint8_t *payload;

	(void)state;
	atomic_store(&reader.head, RING_CELLS - 1);
	memcpy(cells, &pad, sizeof(pad));
	memcpy(cells + sizeof(cells) - RING_CELL, &pad, sizeof(pad));
	assert_int_equal(ring_peek(&reader, &out, &payload), -EPROTO);
}

/* ---- all together ---- */

static uint32_t random_number(void)
{
	static uint32_t seed = 1;

	seed = seed * 1664525 + 1013904223;
	return seed >> 8;
}

/* Of a few cells mostly, as only short ones have what they need prepared. */
static uint32_t random_length(void)
{
	uint32_t number = random_number();

	return number % 16 ? number / 16 % 200 : number / 16 % (RING_MAX_PAYLOAD + 1);
}

/* Long ones over what was prepared for short ones, a full ring, and the end of it, in any order. */
static void test_ring_has_what_was_put_and_then_nothing(void **state)
{
	static struct {
		uint32_t len;
		uint8_t value;
		bool line;
	} put_ones[RING_CELLS];
	unsigned first = 0, last = 0, full = 0;

	(void)state;
	for (unsigned i = 0; i < 200000; i++) {
		bool reads = random_number() % 64 < (i / 512 % 2 ? 40 : 24);

		if (reads && first != last) {
			unsigned at = first++ % RING_CELLS;

			if (put_ones[at].line)
				expect_line(at, put_ones[at].value);
			else
				expect(put_ones[at].len, put_ones[at].value);
			if (random_number() % 8 == 0)
				ring_publish(&reader);
		} else if (reads) {
			expect_none();
			ring_publish(&reader);
		} else if (last - first < RING_CELLS) {
			unsigned at = last % RING_CELLS;

			put_ones[at].len = random_length();
			put_ones[at].value = (uint8_t)i;
			put_ones[at].line = random_number() % 4 == 0;
			if (put_ones[at].line ? !put_line(at, (uint8_t)i)
					      : !put(put_ones[at].len, (uint8_t)i))
				last++;
			else
				full++;
		}
	}
	assert_true(full > 100);
	assert_true(last > 10 * RING_CELLS);
}

/* ---- two threads on one mapping ---- */

#define ENTRIES 100000u

static uint32_t length_of(uint32_t number)
{
	return number * 2654435761u >> 8 & (number % 64 ? 0xff : 0x1fff & ~63u) % RING_MAX_PAYLOAD;
}

static void *write_all(void *unused)
{
	(void)unused;
	for (uint32_t i = 0; i < ENTRIES; i++)
		while (put(length_of(i), (uint8_t)i) == -EAGAIN)
			sched_yield();
	return NULL;
}

static void test_ring_between_two_threads_loses_nothing(void **state)
{
	struct rc_frame entry;
	const uint8_t *payload;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, write_all, NULL), 0);
	for (uint32_t i = 0; i < ENTRIES; i++) {
		/* A pad may be there before what follows it. */
		while (!ring_peek(&reader, &entry, &payload))
			sched_yield();
		expect(length_of(i), (uint8_t)i);
		if (ring_is_unpublished(&reader, RING_CELLS / 4))
			ring_publish(&reader);
	}
	pthread_join(thread, NULL);
	expect_none();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_ring_fresh_is_empty, open_ring),
		cmocka_unit_test_setup(test_ring_entries_come_out_in_order, open_ring),
		cmocka_unit_test_setup(test_ring_header_comes_out_as_it_went_in, open_ring),
		cmocka_unit_test_setup(test_ring_line_needs_no_header, open_ring),
		cmocka_unit_test_setup(test_ring_headers_tell_what_was_placed, open_ring),
		cmocka_unit_test_setup(test_ring_line_with_the_mark_has_a_header, open_ring),
		cmocka_unit_test_setup(test_ring_line_of_which_more_is_to_be_said_has_a_header,
				       open_ring),
		cmocka_unit_test_setup(test_ring_short_one_is_copied_whole, open_ring),
		cmocka_unit_test_setup(test_ring_full_has_no_room_for_a_line, open_ring),
		cmocka_unit_test_setup(test_ring_header_of_the_last_lap_is_no_entry, open_ring),
		cmocka_unit_test_setup(test_ring_payload_that_looks_like_a_header_is_no_entry,
				       open_ring),
		cmocka_unit_test_setup(test_ring_payload_of_the_last_lap_is_no_entry, open_ring),
		cmocka_unit_test_setup(test_ring_full_has_no_room_until_the_reader_tells,
				       open_ring),
		cmocka_unit_test_setup(test_ring_long_entry_behind_the_end_begins_at_the_start,
				       open_ring),
		cmocka_unit_test_setup(test_ring_past_tells_what_was_read, open_ring),
		cmocka_unit_test_setup(test_ring_reader_that_lies_is_found_out, open_ring),
		cmocka_unit_test_setup(test_ring_entry_that_makes_no_sense_is_refused, open_ring),
		cmocka_unit_test_setup(test_ring_entry_over_the_end_is_refused, open_ring),
		cmocka_unit_test_setup(test_ring_two_pads_in_a_row_are_refused, open_ring),
		cmocka_unit_test_setup(test_ring_has_what_was_put_and_then_nothing, open_ring),
		cmocka_unit_test_setup(test_ring_between_two_threads_loses_nothing, open_ring),
	};

	return cmocka_run_group_tests_name("shm_ring", tests, NULL, NULL);
}
