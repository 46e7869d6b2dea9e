/* SPDX-License-Identifier: MIT */
/*
 * Short messages that wait together leave together: they are copied into a carrier, a slot that is
 * sent as one MANY. At the other side they are delivered where they lie.
 */
#include "internal.h"

/* Longer ones are worth a SEND of their own, which copies less. */
#define LONGEST 1024

/* ---- sending ---- */

static bool is_short(const struct conn *conn, struct list *link)
{
	ibmsg_buffer *msg = buffer_of(link);
	const struct block *block = buffer_private(msg)->block;

	return block->slot && block->pool == conn->device->pool && msg->size <= LONGEST;
}

bool many_wait(const struct conn *conn)
{
	struct list *first = conn->queue.next;

	return conn->theirs.features & PROTO_TAKES_MANY && is_short(conn, first) &&
	       first->next != &conn->queue && is_short(conn, first->next);
}

size_t many_fill(struct conn *conn, struct block *carrier)
{
	uint8_t *at = block_bytes(carrier), *end = at + SLOT_BYTES;

	carrier->parts = 0;
	while (!list_is_empty(&conn->queue) && is_short(conn, conn->queue.next)) {
		ibmsg_buffer *msg = buffer_of(conn->queue.next);

		if (proto_part_len(msg->size) > (size_t)(end - at))
			break;
		at += proto_put_part(at, msg->data, (uint16_t)msg->size);
		carrier->parts++;
		list_del(&buffer_private(msg)->link);
		list_add_tail(&conn->in_flight, &buffer_private(msg)->link);
	}
	return (size_t)(at - block_bytes(carrier));
}

/* ---- receiving ---- */

void many_arrived(struct block *carrier, uint64_t count, size_t len)
{
	carrier->parts = (unsigned)count;
	carrier->next_part = block_bytes(carrier);
	carrier->part_bytes = len;
}

/* What was delivered before is the application's: it may have written where it must not. */
struct block *many_take(struct block *carrier)
{
	uint16_t len;
	size_t taken = proto_get_part(carrier->next_part, carrier->part_bytes, &len);
	struct block *part = NULL;

	if (taken)
		part = block_part(carrier, carrier->next_part + PROTO_HEADER_LEN, len);
	if (!part)
		return NULL;
	carrier->next_part += taken;
	carrier->part_bytes -= taken;
	carrier->parts--;
	return part;
}
