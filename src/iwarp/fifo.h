/* SPDX-License-Identifier: MIT */
/* Items of one size, first in first out, as many as there is memory for. */
#ifndef IWARP_FIFO_H
#define IWARP_FIFO_H

#include <assert.h>
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

/* The @i-th of those that are there. */
static inline void *fifo_at(const struct fifo *fifo, size_t i)
{
	return fifo->items + ((fifo->first + i) & (fifo->room - 1)) * fifo->size;
}

/* The place of one more, to be written; there must be room. */
static inline void *fifo_push(struct fifo *fifo)
{
	assert(fifo->count < fifo->room);
	return fifo_at(fifo, fifo->count++);
}

/* The first, which is there until the next push; there must be one. */
static inline void *fifo_pop(struct fifo *fifo)
{
	void *item = fifo_at(fifo, 0);

	assert(fifo->count);
	fifo->first = (fifo->first + 1) & (fifo->room - 1);
	fifo->count--;
	return item;
}

#endif
