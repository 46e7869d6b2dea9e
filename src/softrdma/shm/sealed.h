/* SPDX-License-Identifier: MIT */
/* Memory that is shared by a descriptor and whose size nobody can change any more. */
#ifndef SOFTRDMA_SHM_SEALED_H
#define SOFTRDMA_SHM_SEALED_H

#include <stdbool.h>
#include <stddef.h>

/* Who else may write it. */
enum sealed_use { SEALED_SHARED, SEALED_READ_BY_OTHERS };

/* New memory of @size zeros, mapped at *@map. The descriptor, or -errno. */
int sealed_new(size_t size, enum sealed_use use, void **map);

/*
 * Map what a peer sent: only if it is such memory of exactly @size bytes. A file that could shrink
 * would kill whoever reads behind its end. 0 or -errno.
 */
int sealed_map(int fd, size_t size, enum sealed_use use, void **map);

#endif
