/* SPDX-License-Identifier: MIT */
#include "mpa_io.h"

#include <errno.h>
#include <sys/socket.h>

int mpa_read(int fd, enum mpa_kind kind, uint8_t *frame, size_t *len)
{
	for (;;) {
		ssize_t whole = mpa_frame_len(kind, frame, *len);
		ssize_t n;

		if (whole < 0)
			return (int)whole;
		if ((size_t)whole == *len)
			return 1;
		n = recv(fd, frame + *len, (size_t)whole - *len, MSG_DONTWAIT);
		if (n == 0)
			return -EPIPE;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			*len += (size_t)n;
	}
}

int mpa_send(int fd, const struct mpa_frame *frame)
{
	uint8_t bytes[MPA_MAX_FRAME];
	ssize_t len = mpa_build(frame, bytes);

	return len < 0 ? (int)len : mpa_send_bytes(fd, bytes, (size_t)len);
}

int mpa_send_bytes(int fd, const void *bytes, size_t len)
{
	ssize_t n;

	do
		n = send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -ENOBUFS : -errno;
	return (size_t)n == len ? 0 : -ENOBUFS;
}
