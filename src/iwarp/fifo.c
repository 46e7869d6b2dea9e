/* SPDX-License-Identifier: MIT */
#include "fifo.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void fifo_init(struct fifo *fifo, size_t item_size)
{
	*fifo = (struct fifo){.size = item_size};
}

void fifo_fini(struct fifo *fifo)
{
	free(fifo->items);
	fifo_init(fifo, fifo->size);
}

void *fifo_at(const struct fifo *fifo, size_t i)
{
	return fifo->items + ((fifo->first + i) & (fifo->room - 1)) * fifo->size;
}

int fifo_grow(struct fifo *fifo, size_t more)
{
	size_t room = fifo->room ? fifo->room : 32;
	char *items;

	while (room - fifo->count < more)
		room *= 2;
	items = calloc(room, fifo->size);
	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < fifo->count; i++)
		memcpy(items + i * fifo->size, fifo_at(fifo, i), fifo->size);
	free(fifo->items);
	fifo->items = items;
	fifo->room = room;
	fifo->first = 0;
	return 0;
}

void fifo_push(struct fifo *fifo, const void *item)
{
	assert(fifo->count < fifo->room);
	memcpy(fifo_at(fifo, fifo->count), item, fifo->size);
	fifo->count++;
}

void fifo_pop(struct fifo *fifo, void *out)
{
	assert(fifo->count);
	memcpy(out, fifo_at(fifo, 0), fifo->size);
	fifo->first = (fifo->first + 1) & (fifo->room - 1);
	fifo->count--;
}
