/* SPDX-License-Identifier: MIT */
/* MPA's start-up frames on a socket that does not block. */
#ifndef SOFTRDMA_MPA_IO_H
#define SOFTRDMA_MPA_IO_H

#include "wire/mpa.h"

/*
 * Read on into @frame (MPA_MAX_FRAME bytes), of which *@len are there, and not a byte beyond its
 * end. 1: complete; 0: there is more to come; -EPIPE: the peer closed; another -errno.
 */
int mpa_read(int fd, enum mpa_kind kind, uint8_t *frame, size_t *len);

/* 0 or -errno. -ENOBUFS: the socket did not take all of it, as a new one always does. */
int mpa_send(int fd, const struct mpa_frame *frame);
int mpa_send_bytes(int fd, const void *bytes, size_t len);

#endif
