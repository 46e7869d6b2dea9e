/* SPDX-License-Identifier: MIT */
/* Files of packets. */
#include "pcap.h"

#include <errno.h>

#define MAGIC_NANOSECONDS 0xa1b23c4du /* in the byte order of who writes */
#define LINK_ETHERNET     1

static int put(FILE *file, const void *data, size_t len)
{
	errno = 0;
	if (fwrite(data, len, 1, file) == 1)
		return 0;
	return errno ? -errno : -EIO;
}

int pcap_begin(FILE *file, uint32_t max_len)
{
	const struct {
		uint32_t magic;
		uint16_t major, minor;
		int32_t zone;
		uint32_t accuracy, max_len, link;
	} header = {MAGIC_NANOSECONDS, 2, 4, 0, 0, max_len, LINK_ETHERNET};

	_Static_assert(sizeof(header) == 24, "as in the file");
	return put(file, &header, sizeof(header));
}

int pcap_add(FILE *file, uint64_t time_ns, const void *frame, uint32_t len)
{
	const uint32_t header[4] = {(uint32_t)(time_ns / 1000000000u),
				    (uint32_t)(time_ns % 1000000000u), len, len};
	int result = put(file, header, sizeof(header));

	return result || !len ? result : put(file, frame, len);
}
