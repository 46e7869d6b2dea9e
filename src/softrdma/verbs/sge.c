/* SPDX-License-Identifier: MIT */
/* Walking scatter/gather lists. */
#include <string.h>

#include "../rc.h"

int rc_sge_slice(const struct ibv_sge *sge, unsigned num_sge, uint64_t offset, size_t len,
		 struct iovec *iov, int max, size_t *bytes)
{
	int count = 0;

	*bytes = 0;
	for (unsigned i = 0; i < num_sge && *bytes < len && count < max; i++) {
		size_t piece;

		if (offset >= sge[i].length) {
			offset -= sge[i].length;
			continue;
		}
		piece = sge[i].length - (size_t)offset;
		if (piece > len - *bytes)
			piece = len - *bytes;
		iov[count].iov_base = (char *)(uintptr_t)sge[i].addr + offset;
		iov[count].iov_len = piece;
		*bytes += piece;
		offset = 0;
		count++;
	}
	return count;
}

void rc_sge_scatter(const struct ibv_sge *sge, unsigned num_sge, uint64_t offset, const void *data,
		    size_t len)
{
	struct iovec iov[RC_MAX_SGE];
	const char *from = data;
	size_t bytes;
	int count;

	if (!len)
		return;     /* and there may be no data at all */
	if (num_sge == 1) { /* mostly */
		memcpy((char *)(uintptr_t)sge->addr + offset, data, len);
		return;
	}
	count = rc_sge_slice(sge, num_sge, offset, len, iov, RC_MAX_SGE, &bytes);

	for (int i = 0; i < count; i++) {
		memcpy(iov[i].iov_base, from, iov[i].iov_len);
		from += iov[i].iov_len;
	}
}

void rc_sge_gather(const struct ibv_sge *sge, unsigned num_sge, uint64_t offset, void *data,
		   size_t len)
{
	struct iovec iov[RC_MAX_SGE];
	char *to = data;
	size_t bytes;
	int count;

	if (!len)
		return;
	if (num_sge == 1) {
		memcpy(data, (const char *)(uintptr_t)sge->addr + offset, len);
		return;
	}
	count = rc_sge_slice(sge, num_sge, offset, len, iov, RC_MAX_SGE, &bytes);

	for (int i = 0; i < count; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
}
