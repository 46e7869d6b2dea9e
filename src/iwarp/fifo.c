/* SPDX-License-Identifier: MIT */
#include "fifo.h"

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
