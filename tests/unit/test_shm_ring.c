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
	atomic_store(&consumed, 0);
	ring_writer_init(&writer, cells, &consumed);
	ring_reader_init(&reader, cells, &consumed);
	return 0;
}

static int put(uint32_t len, uint8_t value)
{
	const struct ring_entry entry = {.kind = RING_SEND, .len = len, .arg = value};
	uint8_t *payload;
	int error = ring_reserve(&writer, len, &payload);

	if (error)
		return error;
	memset(payload, value, len);
	ring_commit(&writer, &entry);
	return 0;
}

static void expect(uint32_t len, uint8_t value)
{
	struct ring_entry entry;
	const uint8_t *payload;

	assert_false(ring_is_empty(&reader));
	assert_int_equal(ring_peek(&reader, &entry, &payload), 1);
	assert_int_equal(entry.kind, RING_SEND);
	assert_int_equal(entry.len, len);
	assert_int_equal(entry.arg, value);
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(payload[i], value);
	ring_pop(&reader, &entry);
}

static void expect_none(void)
{
	struct ring_entry entry;
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

/* What was payload a lap before is not taken for an entry. */
static void test_ring_payload_of_the_last_lap_is_no_entry(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3 * RING_CELLS; i++) {
		assert_int_equal(put(i % 2 ? 1000 : 7, RING_SEND), 0);
		expect(i % 2 ? 1000 : 7, RING_SEND);
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

static void refuse(struct ring_entry entry)
{
	struct ring_entry out;
	const uint8_t *payload;

	memcpy(cells, &entry, sizeof(entry));
	assert_int_equal(ring_peek(&reader, &out, &payload), -EPROTO);
}

static void test_ring_entry_that_makes_no_sense_is_refused(void **state)
{
	(void)state;
	refuse((struct ring_entry){.kind = RING_KINDS});
	refuse((struct ring_entry){.kind = RING_PAD});
	refuse((struct ring_entry){.kind = RING_NOTHING, .len = 1});
	refuse((struct ring_entry){.kind = RING_SEND, .flags = RING_FLAGS + 1});
	refuse((struct ring_entry){.kind = RING_SEND, .zero = 1});
	refuse((struct ring_entry){.kind = RING_SEND, .len = RING_MAX_PAYLOAD + 1});
	refuse((struct ring_entry){.kind = RING_SEND, .len = UINT32_MAX});
}

static void test_ring_entry_over_the_end_is_refused(void **state)
{
	const struct ring_entry entry = {.kind = RING_SEND, .len = RING_CELL};
	struct ring_entry out;
	const uint8_t *payload;

	(void)state;
	atomic_store(&reader.head, RING_CELLS - 1);
	memcpy(cells + sizeof(cells) - RING_CELL, &entry, sizeof(entry));
	assert_int_equal(ring_peek(&reader, &out, &payload), -EPROTO);
}

static void test_ring_two_pads_in_a_row_are_refused(void **state)
{
	const struct ring_entry pad = {.kind = RING_PAD};
	struct ring_entry out;
	const uint8_t *payload;

	(void)state;
	atomic_store(&reader.head, RING_CELLS - 1);
	memcpy(cells, &pad, sizeof(pad));
	memcpy(cells + sizeof(cells) - RING_CELL, &pad, sizeof(pad));
	assert_int_equal(ring_peek(&reader, &out, &payload), -EPROTO);
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
	struct ring_entry entry;
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
		cmocka_unit_test_setup(test_ring_between_two_threads_loses_nothing, open_ring),
	};

	return cmocka_run_group_tests_name("shm_ring", tests, NULL, NULL);
}
