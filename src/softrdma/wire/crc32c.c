/* SPDX-License-Identifier: MIT */
/* CRC32C by isa-l, in the form that can be continued. */
#include <isa-l/crc.h>

#include "wire/crc32c.h"

/* isa-l counts in int; a multiple of a page keeps the chunks aligned as the buffer is. */
#define CHUNK ((size_t)1 << 30)

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	/* isa-l only reads, though its prototype does not say so. */
	unsigned char *at = (unsigned char *)data;

	/* isa-l works on the bare register, which both its start and its end invert. */
	crc = ~crc;
	while (len) {
		size_t part = len < CHUNK ? len : CHUNK;

		crc = crc32_iscsi(at, (int)part, crc);
		at += part;
		len -= part;
	}
	return ~crc;
}
