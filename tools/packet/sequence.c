/* SPDX-License-Identifier: MIT */
/* Numbers in packets: which came, which did not, which came late or twice. */
#include "sequence.h"

#include <string.h>

#include "frame.h"

static const char magic[8] = "hpibvgen";

void sequence_put(uint8_t *payload, const struct sequence_mark *mark)
{
	memcpy(payload, magic, sizeof(magic));
	frame_put64(payload + 8, mark->stream);
	frame_put64(payload + 16, mark->number);
	frame_put64(payload + 24, mark->total);
}

bool sequence_get(const uint8_t *payload, size_t len, struct sequence_mark *mark)
{
	if (len < SEQUENCE_BYTES || memcmp(payload, magic, sizeof(magic)) != 0)
		return false;
	mark->stream = frame_get64(payload + 8);
	mark->number = frame_get64(payload + 16);
	mark->total = frame_get64(payload + 24);
	return mark->number != UINT64_MAX; /* there is always a next one */
}

void sequence_init(struct sequence *sequence, const struct sequence_mark *first)
{
	memset(sequence, 0, sizeof(*sequence));
	sequence->stream = first->stream;
	sequence->total = first->total;
}

static uint64_t *word_of(struct sequence *sequence, uint64_t number)
{
	return &sequence->seen[number % SEQUENCE_WINDOW / 64];
}

static uint64_t bit_of(uint64_t number)
{
	return 1ull << number % 64;
}

/* Numbers up to @number are of the window now: none of the new ones was seen. */
static void move_window(struct sequence *sequence, uint64_t number)
{
	if (number - sequence->expected >= SEQUENCE_WINDOW)
		memset(sequence->seen, 0, sizeof(sequence->seen));
	else
		for (uint64_t i = sequence->expected; i <= number; i++)
			*word_of(sequence, i) &= ~bit_of(i);
	sequence->expected = number + 1;
}

void sequence_add(struct sequence *sequence, const struct sequence_mark *mark)
{
	uint64_t number = mark->number;

	if (number >= sequence->expected) {
		move_window(sequence, number);
	} else if (sequence->expected - number > SEQUENCE_WINDOW ||
		   *word_of(sequence, number) & bit_of(number)) {
		sequence->twice++;
		return;
	} else {
		sequence->out_of_order++;
	}
	*word_of(sequence, number) |= bit_of(number);
	sequence->received++;
}

uint64_t sequence_lost(const struct sequence *sequence)
{
	uint64_t sent = sequence->total > sequence->expected ? sequence->total : sequence->expected;

	return sent - sequence->received;
}
