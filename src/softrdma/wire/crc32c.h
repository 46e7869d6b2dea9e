/* SPDX-License-Identifier: MIT */
/* CRC32C (Castagnoli), as MPA uses it. */
#ifndef SOFTRDMA_WIRE_CRC32C_H
#define SOFTRDMA_WIRE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/*
 * Continue @crc over @len bytes. Start with 0; the value returned is the finished CRC and also what
 * to continue with: crc32c(crc32c(0, a), b) is the CRC of a followed by b.
 */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

#endif
