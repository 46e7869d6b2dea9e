/* SPDX-License-Identifier: MIT */
/* Items of one size, first in first out, as many as there is memory for. */
#ifndef IWARP_FIFO_H
#define IWARP_FIFO_H

#include <stddef.h>

struct fifo {
	char *items;
	size_t size;               /* of an item */
	size_t first, count, room; /* a power of two, or none */
};

void fifo_init(struct fifo *fifo, size_t item_size);
void fifo_fini(struct fifo *fifo);
int fifo_grow(struct fifo *fifo, size_t more);

/* Room for @more items: that many pushes cannot fail then. 0 or -ENOMEM. */
static inline int fifo_reserve(struct fifo *fifo, size_t more)
{
	return fifo->room - fifo->count >= more ? 0 : fifo_grow(fifo, more);
}

/* There must be room. */
void fifo_push(struct fifo *fifo, const void *item);
/* There must be one. */
void fifo_pop(struct fifo *fifo, void *out);
/* The @i-th of those that are there. */
void *fifo_at(const struct fifo *fifo, size_t i);

#endif
