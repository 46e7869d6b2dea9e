/* SPDX-License-Identifier: MIT */
/*
 * What a peer of rdma_server or rdma_client leaves in memory: the record of a buffer, with a limit
 * from the input ahead of it, and a file with its proof. What is taken is within its bounds.
 */
#include "fuzz.h"

#include <errno.h>

#include "buffer_attr.h"
#include "file.h"

static void check_record(const uint8_t *bytes, size_t size, uint64_t most)
{
	uint8_t again[BUFFER_ATTR_BYTES];
	struct buffer_attr attr;
	int error = buffer_attr_get(bytes, size, most, &attr);

	CHECK(buffer_attr_strerror(error));
	if (error)
		return;
	CHECK(size == BUFFER_ATTR_BYTES && attr.length && attr.length <= most);
	CHECK(attr.address + (attr.length - 1) >= attr.address);
	buffer_attr_put(again, &attr);
	CHECK(!memcmp(again, bytes, size));
	buffer_attr_print(&attr);
}

static void check_file(uint8_t *bytes, size_t size)
{
	uint32_t checksum;
	int64_t length = file_check_proof(bytes, size, &checksum);
	uint8_t proof[FILE_PROOF_BYTES];

	CHECK(length == -EBADMSG || length == -EILSEQ ||
	      length == (int64_t)size - FILE_PROOF_BYTES);
	if (length < 0)
		return;
	CHECK(checksum == file_checksum(bytes, (size_t)length));
	memcpy(proof, bytes + length, sizeof(proof));
	file_put_proof(bytes, (size_t)length);
	CHECK(!memcmp(bytes + length, proof, sizeof(proof)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *nowhere;
	struct input input = {data, size};
	uint64_t most = (uint64_t)1 << take_byte(&input) % 64;
	uint8_t *copy = exact_copy(input.at, input.left);

	/* What is printed is not to be seen. */
	if (!nowhere)
		nowhere = freopen("/dev/null", "w", stdout);
	check_record(copy, input.left, most);
	check_file(copy, input.left);
	free(copy);
	return 0;
}
