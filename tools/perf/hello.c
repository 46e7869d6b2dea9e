/* SPDX-License-Identifier: MIT */
/* What both sides say when they connect, as bytes: a name with a version, then numbers. */
#include "hello.h"

#include <endian.h>
#include <string.h>

#include "options.h"

static const char name[7] = {'i', 'b', 'p', 'e', 'r', 'f', '1'};

static bool has_name(const void *data, size_t length, size_t wanted)
{
	return length >= wanted && !memcmp(data, name, sizeof(name));
}

void hello_put(uint8_t out[static HELLO_BYTES], const struct hello *hello)
{
	uint64_t size = htobe64(hello->size);

	memcpy(out, name, sizeof(name));
	out[7] = (uint8_t)hello->mode;
	memcpy(out + 8, &size, sizeof(size));
}

bool hello_get(struct hello *hello, const void *data, size_t length)
{
	const uint8_t *bytes = data;
	uint64_t size;

	if (!has_name(data, length, HELLO_BYTES) || bytes[7] > MODE_STREAM)
		return false;
	memcpy(&size, bytes + 8, sizeof(size));
	size = be64toh(size);
	if (!size || size > MAX_SIZE)
		return false;
	*hello = (struct hello){.mode = bytes[7], .size = size};
	return true;
}

void answer_put(uint8_t out[static ANSWER_BYTES], const struct answer *answer)
{
	memcpy(out, name, sizeof(name));
	out[7] = 0;
	out[8] = (uint8_t)(answer->threads >> 8);
	out[9] = (uint8_t)answer->threads;
}

bool answer_get(struct answer *answer, const void *data, size_t length)
{
	const uint8_t *bytes = data;

	if (!has_name(data, length, ANSWER_BYTES))
		return false;
	answer->threads = (uint16_t)(bytes[8] << 8 | bytes[9]);
	return answer->threads != 0;
}
