/* SPDX-License-Identifier: MIT */
/*
 * A file in a buffer: its bytes, then 16 that prove it whole. The server's CPU sees nothing of an
 * RDMA write, and a client that has gone looks the same whether it had finished or not. So the
 * proof travels with the data: "RDMAFILE", the length (4) and the CRC32C (4) of the bytes ahead
 * of it, both in network byte order.
 */
#ifndef RDMA_EXAMPLE_FILE_H
#define RDMA_EXAMPLE_FILE_H

#include <stddef.h>
#include <stdint.h>

#define FILE_PROOF_BYTES 16

uint32_t file_checksum(const void *bytes, size_t length);

/* Write the proof behind @length bytes of a file. */
void file_put_proof(uint8_t *buffer, size_t length);
/*
 * The length of the file in a buffer of @size bytes, and its checksum. -EBADMSG if there is no
 * proof, as when a client has gone too early; -EILSEQ if the checksum is another.
 */
int64_t file_check_proof(const uint8_t *buffer, size_t size, uint32_t *checksum);

/* A file with its proof behind it, of up to @most bytes in all; to be freed. 0 or -errno, reported.
 */
int file_load(const char *path, uint64_t most, uint8_t **out, size_t *out_size);

/* Whether a file could be stored there; so that nobody sends one in vain. 0 or -errno, reported. */
int file_try_place(const char *path);
/* @path has all of these bytes, or what it had before. 0 or -errno, reported. */
int file_store(const char *path, const uint8_t *bytes, size_t length);

#endif
