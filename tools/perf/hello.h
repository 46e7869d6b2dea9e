/* SPDX-License-Identifier: MIT */
/*
 * What both sides say when they connect, and how they talk then.
 *
 * A connection serves one test at one size. MODE_ECHO: each message is answered by one of the same
 * size. MODE_STREAM: messages are only received; one whose first byte is MARK is answered by a
 * byte, which proves that all before it have arrived. MODE_PROBE: none.
 */
#ifndef PERF_HELLO_H
#define PERF_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HELLO_BYTES  16
#define ANSWER_BYTES 10

enum { DATA = 0, MARK = 1 };
enum mode { MODE_PROBE, MODE_ECHO, MODE_STREAM };

/* From the client. */
struct hello {
	enum mode mode;
	uint64_t size; /* of each message */
};

/* From the server: it has so many loops, at the ports that follow each other. */
struct answer {
	uint16_t threads;
};

void hello_put(uint8_t out[static HELLO_BYTES], const struct hello *hello);
bool hello_get(struct hello *hello, const void *data, size_t length);
void answer_put(uint8_t out[static ANSWER_BYTES], const struct answer *answer);
bool answer_get(struct answer *answer, const void *data, size_t length);

#endif
