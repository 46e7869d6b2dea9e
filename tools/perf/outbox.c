/* SPDX-License-Identifier: MIT */
/* Messages of one size, sent again and again from a few buffers in turn. */
#include "outbox.h"

#include <stdlib.h>
#include <string.h>

int outbox_init(struct outbox *outbox, ibmsg_socket *socket, unsigned count, size_t size,
		uint8_t kind)
{
	*outbox = (struct outbox){.socket = socket,
				  .buffers = calloc(count, sizeof(*outbox->buffers)),
				  .ready = calloc(count, sizeof(ibmsg_buffer *))};
	if (!outbox->buffers || !outbox->ready)
		return IBMSG_ALLOC_FAILED;
	while (outbox->count < count) {
		ibmsg_buffer *buffer = &outbox->buffers[outbox->count];
		int error = ibmsg_alloc_msg(buffer, socket, size);

		if (error)
			return error;
		outbox->count++;
		memset(buffer->data, kind, size); /* pages that are there, too */
		outbox->ready[outbox->ready_count++] = buffer;
	}
	return IBMSG_OK;
}

static int send_owed(struct outbox *outbox)
{
	while (outbox->owed && outbox->ready_count) {
		int error = ibmsg_post_send(outbox->socket, outbox->ready[outbox->ready_count - 1]);

		if (error)
			return error;
		outbox->ready_count--;
		outbox->owed--;
	}
	return IBMSG_OK;
}

int outbox_send(struct outbox *outbox)
{
	outbox->owed++;
	return send_owed(outbox);
}

int outbox_put_back(struct outbox *outbox, ibmsg_buffer *msg)
{
	outbox->ready[outbox->ready_count++] = msg;
	return send_owed(outbox);
}

void outbox_fini(struct outbox *outbox)
{
	for (unsigned i = 0; i < outbox->count; i++)
		ibmsg_free_msg(&outbox->buffers[i]);
	free(outbox->buffers);
	free(outbox->ready);
	*outbox = (struct outbox){0};
}
