/* SPDX-License-Identifier: MIT */
/* Receiving: receives in stock, what the peer says, long messages read from it, delivery in order.
 */
#include <errno.h>
#include <string.h>

#include "../common/log.h"
#include "../libs/post.h"
#include "internal.h"

#define BATCH 32

/* ---- receives ---- */

/* What this device's share may be, beside what the loop's others have. */
static uint64_t most_arriving(const struct conn *conn)
{
	uint64_t others = device_arriving_elsewhere(conn->device);

	return conn->loop->max_memory > others ? conn->loop->max_memory - others : 0;
}

static unsigned data_wanted(const struct conn *conn)
{
	return conn->window > conn->posted_data ? conn->window - conn->posted_data : 0;
}

/* Up to @count of them. Returns how many, or -errno. */
static int post_receives(struct conn *conn, unsigned count, uint64_t most)
{
	struct block *blocks[BATCH];
	struct ibv_recv_wr wrs[BATCH], *bad;
	struct ibv_sge sges[BATCH];
	int error;

	count = pool_get_arriving(conn->device->pool, SLOT_BYTES, most, blocks,
				  count < BATCH ? count : BATCH);
	if (!count)
		return 0;
	for (unsigned i = 0; i < count; i++) {
		list_add_tail(&conn->receives, &blocks[i]->link);
		sges[i] = (struct ibv_sge){
			.addr = (uintptr_t)(block_bytes(blocks[i]) - PROTO_HEADER_LEN),
			.length = RECV_BYTES,
			.lkey = blocks[i]->mr->lkey,
		};
		wrs[i] = (struct ibv_recv_wr){
			.wr_id = wr_id(WR_RECV, blocks[i]),
			.next = i + 1 < count ? &wrs[i + 1] : NULL,
			.sg_list = &sges[i],
			.num_sge = 1,
		};
		log_debug("RECV: WRID 0x%llx", (unsigned long long)wrs[i].wr_id);
	}
	error = ibv_post_recv(conn->qp, wrs, &bad);
	log_debug("Message receive posted");
	return error ? -(error < 0 ? -error : error) : (int)count;
}

/*
 * A few at a time cost little more than one, so some may be missing for a while: not longer than
 * until the peer is to be told of them.
 */
static bool may_wait(const struct conn *conn)
{
	unsigned few = conn->window / 8 > 2 ? conn->window / 8 : 2, wanted = data_wanted(conn);

	return conn->state == CONN_OPEN && !conn->is_short && wanted < few &&
	       wanted + conn->owed_data <= conn->window / 2;
}

int recv_fill(struct conn *conn)
{
	bool waits = false;
	int count;

	while (conn->posted_control < CONTROL_RECEIVES) {
		count = post_receives(conn, CONTROL_RECEIVES - conn->posted_control, UINT64_MAX);
		if (count <= 0)
			return count ? count : -ENOMEM;
		conn->posted_control += (unsigned)count;
		conn->owed_control += (unsigned)count;
	}
	if (may_wait(conn))
		return 0;
	while (data_wanted(conn)) {
		count = post_receives(conn, data_wanted(conn),
				      /* The first are posted in any case. */
				      conn->state == CONN_OPEN ? most_arriving(conn) : UINT64_MAX);
		if (count < 0)
			return count;
		if (!count && waits)
			break;
		if (!count) {
			/* More when messages are freed, be it from here on. */
			device_starve_all(conn->loop);
			waits = true;
		}
		conn->posted_data += (unsigned)count;
		conn->owed_data += (unsigned)count;
	}
	conn->is_short = data_wanted(conn);
	return 0;
}

/* The peer waits for receives: it is given twice as many, up to a bound. */
static void widen_window(struct conn *conn)
{
	conn->window = 2 * conn->window < MAX_WINDOW ? 2 * conn->window : MAX_WINDOW;
}

/* ---- delivery ---- */

static void deliver(struct conn *conn, struct block *block)
{
	struct loop *loop = conn->loop;
	ibmsg_buffer *msg = &block->msg;

	conn->stats.messages_received++;
	conn->stats.bytes_received += msg->size;
	set_buffer_status(msg, IBMSG_RECEIVED);
	if (loop->event_loop->message_received)
		CALLBACK(loop, loop->event_loop->message_received(conn->socket, msg));
	else
		block_put(block);
}

/* The next message of a MANY, which is at the head of the arrivals. */
static bool deliver_part(struct conn *conn, struct block *carrier)
{
	struct block *part = many_take(carrier);

	if (!part) {
		log_error("%s: no memory for a message, or its neighbour was written over",
			  conn->name);
		conn_doom(conn, IBMSG_ALLOC_FAILED);
		return false;
	}
	if (!carrier->parts) {
		list_del(&carrier->link);
		block_put(carrier);
	}
	deliver(conn, part);
	return true;
}

void recv_deliver(struct conn *conn)
{
	while (!list_is_empty(&conn->arrivals)) {
		struct block *block = list_first(&conn->arrivals, struct block, link);

		if (!block->ready)
			return;
		if (block->parts) {
			if (!deliver_part(conn, block))
				return;
		} else {
			list_del(&block->link);
			deliver(conn, block);
		}
	}
}

static void add_arrival(struct conn *conn, struct block *block)
{
	if (list_is_empty(&conn->arrivals) && !block->parts) {
		deliver(conn, block);
		return;
	}
	block->ready = true;
	list_add_tail(&conn->arrivals, &block->link);
	recv_deliver(conn);
}

/* ---- long messages ---- */

static void answer_offer(struct conn *conn, uint32_t number, enum proto_status status)
{
	unsigned last = (conn->first_done + conn->num_dones++) % MAX_OFFERS;

	conn->dones[last].number = number;
	conn->dones[last].status = status;
}

static bool ask_for(struct conn *conn, struct block *block)
{
	uint64_t left = block->msg.size - block->asked;
	uint32_t bytes = left < READ_BYTES ? (uint32_t)left : READ_BYTES;
	unsigned last = (conn->first_read + conn->num_reads) % MAX_READS;
	struct ibv_sge sge = {
		.addr = (uintptr_t)(block->base + block->asked),
		.length = bytes,
		.lkey = block->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id(WR_READ, NULL),
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = {.remote_addr = block->peer_address + block->asked,
			    .rkey = block->peer_key},
	};

	if (post_sends(conn->qp, &wr)) {
		conn_doom(conn, IBMSG_POST_SEND_FAILED);
		return false;
	}
	conn->read_ring[last].block = block;
	conn->read_ring[last].bytes = bytes;
	conn->num_reads++;
	block->asked += bytes;
	return true;
}

static void ask_for_more(struct conn *conn)
{
	struct list *pos;

	list_for_each (pos, &conn->reading) {
		struct block *block = container_of(pos, struct block, read_link);

		while (block->asked < block->msg.size)
			if (conn->num_reads == conn->reads || !ask_for(conn, block))
				return;
	}
}

static void is_read(struct conn *conn, struct block *block)
{
	list_del(&block->read_link);
	block_deregister(block);
	answer_offer(conn, block->number, PROTO_TAKEN);
	block->ready = true;
	recv_deliver(conn);
}

void recv_read_done(struct conn *conn)
{
	struct block *block = conn->read_ring[conn->first_read].block;

	conn->heard = true;
	block->read += conn->read_ring[conn->first_read].bytes;
	conn->first_read = (conn->first_read + 1) % MAX_READS;
	conn->num_reads--;
	if (block->read == block->msg.size)
		is_read(conn, block);
	ask_for_more(conn);
	loop_due(conn);
}

/* Nothing is allocated before the announced length has been found to be in bounds. */
static struct block *room_for_offer(struct conn *conn, const struct proto_message *offer,
				    enum proto_status *why)
{
	/* iWARP places what was read by means of the sink's key. */
	int access = IBV_ACCESS_LOCAL_WRITE | (conn->device->iwarp ? IBV_ACCESS_REMOTE_WRITE : 0);
	size_t size = (size_t)offer->length;
	struct block *block;

	*why = PROTO_TOO_LARGE;
	if (offer->length > conn->loop->max_message || offer->length > SIZE_MAX)
		return NULL;
	*why = PROTO_NO_MEMORY;
	/* What a slot could take comes in one all the same if it is short. */
	if (!pool_get_arriving(conn->device->pool, size > SLOT_BYTES ? size : SLOT_BYTES + 1,
			       most_arriving(conn), &block, 1))
		return NULL;
	block->msg.size = size;
	if (!conn->reads || block_register(block, block->room, access)) {
		block_put(block);
		return NULL;
	}
	return block;
}

static int take_offer(struct conn *conn, const struct proto_message *offer)
{
	enum proto_status why;
	struct block *block;

	if (++conn->num_arriving_offers > MAX_OFFERS)
		return -EPROTO;
	block = room_for_offer(conn, offer, &why);
	if (!block) {
		log_warn("%s: a message of %llu bytes is refused: %s", conn->name,
			 (unsigned long long)offer->length,
			 why == PROTO_TOO_LARGE ? "too large" : "no memory for it");
		answer_offer(conn, offer->number, why);
		return 0;
	}
	block->number = offer->number;
	block->peer_address = offer->address;
	block->peer_key = offer->key;
	block->asked = 0;
	block->read = 0;
	conn->stats.rendezvous_received++;
	list_add_tail(&conn->reading, &block->read_link);
	list_add_tail(&conn->arrivals, &block->link);
	if (offer->length)
		ask_for_more(conn);
	else
		is_read(conn, block);
	return 0;
}

/* ---- what the peer says ---- */

static int take_hello(struct conn *conn, const struct proto_message *hello)
{
	if (conn->has_word)
		return -EPROTO;
	conn->has_word = true;
	conn->word_address = hello->address;
	conn->word_key = hello->key;
	conn->may_send = true;
	conn_start_timer(conn);
	return 0;
}

static int take_end(struct conn *conn, const struct proto_message *end)
{
	bool seen = end->flags & PROTO_SEEN;

	if ((conn->end_received && !seen) || conn->seen_received || (seen && !conn->end_sent))
		return -EPROTO;
	conn->end_received = true;
	conn->seen_received = seen;
	if (!conn->closing)
		conn_disconnect(conn);
	return 0;
}

/* Takes the block if it is a message; else it is put back here. */
static int take_message(struct conn *conn, struct block *block, size_t len)
{
	struct proto_message message;
	int error = proto_get_message(block_bytes(block) - PROTO_HEADER_LEN, len, &message);

	/* Each side says hello first. */
	if (!error && message.type != PROTO_HELLO && !conn->has_word)
		error = -EPROTO;
	if (!error && !proto_is_control(message.type) && conn->end_received)
		error = -EPROTO;
	if (!error &&
	    !*(proto_is_control(message.type) ? &conn->posted_control : &conn->posted_data))
		error = -EPROTO;
	if (error) {
		block_put(block);
		return error;
	}
	send_credits(conn, &message);
	if (proto_is_control(message.type))
		conn->posted_control--;
	else
		conn->posted_data--;
	if (message.flags & PROTO_WANT_CREDIT)
		widen_window(conn);
	if (message.type == PROTO_DATA) {
		block->msg.size = len - PROTO_HEADER_LEN;
		add_arrival(conn, block);
		return 0;
	}
	if (message.type == PROTO_MANY) {
		many_arrived(block, message.length, len - PROTO_HEADER_LEN);
		add_arrival(conn, block);
		return 0;
	}
	block_put(block);
	switch (message.type) {
	case PROTO_HELLO:
		return take_hello(conn, &message);
	case PROTO_OFFER:
		return take_offer(conn, &message);
	case PROTO_DONE:
		return send_offer_done(conn, message.number, message.status) ? 0 : -EPROTO;
	case PROTO_END:
		return take_end(conn, &message);
	default:
		return 0;
	}
}

/* An original's message is the bare bytes, where the header would be. */
static void take_bare(struct conn *conn, struct block *block, size_t len)
{
	if (conn->posted_data)
		conn->posted_data--;
	else
		conn->posted_control--;
	block->msg.data = block_bytes(block) - PROTO_HEADER_LEN;
	block->msg.size = len;
	add_arrival(conn, block);
}

void recv_arrived(struct conn *conn, struct block *block, size_t len)
{
	conn->heard = true;
	list_del(&block->link);
	if (conn->doom == IBMSG_PROTOCOL_ERROR) {
		/* What the peer said was not taken: to deliver what follows would leave a gap. */
		block_put(block);
		return;
	}
	if (conn->state == CONN_CONNECTING) {
		/* It is established with the CM's event, which also says who the peer is. */
		block->msg.size = len;
		list_add_tail(&conn->early, &block->link);
		return;
	}
	if (conn->peer == PEER_ORIGINAL) {
		take_bare(conn, block, len);
	} else if (take_message(conn, block, len)) {
		log_error("%s: the peer does not keep to the protocol", conn->name);
		conn_doom(conn, IBMSG_PROTOCOL_ERROR);
	}
	loop_due(conn);
}

void recv_early(struct conn *conn)
{
	while (!list_is_empty(&conn->early)) {
		struct block *block = list_first(&conn->early, struct block, link);

		recv_arrived(conn, block, block->msg.size);
	}
}

static void drop_list(struct list *list)
{
	while (!list_is_empty(list)) {
		struct block *block = list_first(list, struct block, link);

		list_del(&block->link);
		block_put(block);
	}
}

void recv_drop_all(struct conn *conn)
{
	list_init(&conn->reading);
	drop_list(&conn->receives);
	drop_list(&conn->early);
	drop_list(&conn->arrivals);
	conn->num_reads = 0;
}
