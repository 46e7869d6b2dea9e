/* SPDX-License-Identifier: MIT */
/* The record that tells where a buffer is: written, read, doubted, shown. */
#include "buffer_attr.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LENGTH_AT 8
#define STAG_AT   12

void buffer_attr_put(uint8_t out[static BUFFER_ATTR_BYTES], const struct buffer_attr *attr)
{
	memcpy(out, &attr->address, sizeof(attr->address));
	memcpy(out + LENGTH_AT, &attr->length, sizeof(attr->length));
	memcpy(out + STAG_AT, &attr->stag, sizeof(attr->stag));
}

int buffer_attr_get(const void *bytes, size_t size, uint64_t max_length, struct buffer_attr *out)
{
	const uint8_t *at = bytes;
	struct buffer_attr attr;

	if (size != BUFFER_ATTR_BYTES)
		return -EBADMSG;
	memcpy(&attr.address, at, sizeof(attr.address));
	memcpy(&attr.length, at + LENGTH_AT, sizeof(attr.length));
	memcpy(&attr.stag, at + STAG_AT, sizeof(attr.stag));
	if (!attr.length)
		return -EINVAL;
	if (attr.length > max_length)
		return -EMSGSIZE;
	/* The last byte must have an address too. */
	if (attr.address > UINT64_MAX - (attr.length - 1))
		return -EOVERFLOW;
	*out = attr;
	return 0;
}

const char *buffer_attr_strerror(int error)
{
	switch (error) {
	case -EBADMSG:
		return "it is not a record of 16 bytes";
	case -EINVAL:
		return "it has a length of 0";
	case -EMSGSIZE:
		return "its length is beyond the limit";
	case -EOVERFLOW:
		return "its address and length reach beyond the end of memory";
	default:
		return strerror(-error);
	}
}

void buffer_attr_print(const struct buffer_attr *attr)
{
	static const char line[] = "---------------------------------------------------------";

	printf("%s\nbuffer attr, addr: 0x%" PRIx64 " , len: %" PRIu32 " , stag : 0x%" PRIx32
	       " \n%s\n",
	       line, attr->address, attr->length, attr->stag, line);
}
