/* SPDX-License-Identifier: MIT */
/* Sending: posted messages, the credits they need, and the control messages between them. */
#include <errno.h>
#include <string.h>

#include "../common/log.h"
#include "../libs/post.h"
#include "internal.h"

#define BATCH 32

/* ---- completions, for the application ---- */

static void finish(struct conn *conn, ibmsg_buffer *msg, int outcome)
{
	struct buffer_private *private = buffer_private(msg);

	list_del(&private->link);
	private->outcome = outcome;
	list_add_tail(&conn->finished, &private->link);
	if (outcome == IBMSG_OK) {
		conn->stats.messages_sent++;
		conn->stats.bytes_sent += msg->size;
	} else {
		conn->stats.messages_failed++;
	}
	loop_due(conn);
}

void send_tell_finished(struct conn *conn)
{
	struct loop *loop = conn->loop;

	while (!list_is_empty(&conn->finished)) {
		ibmsg_buffer *msg = buffer_of(conn->finished.next);
		struct buffer_private *private = buffer_private(msg);
		void (*message_sent)(ibmsg_socket *, ibmsg_buffer *) =
			loop->event_loop->message_sent;

		list_del(&private->link);
		private->conn = NULL;
		msg->error = private->outcome;
		/* From here on the buffer is the application's: only the callback may still use it.
		 */
		set_buffer_status(msg, private->outcome == IBMSG_OK ? IBMSG_SENT : IBMSG_FAILED);
		if (message_sent)
			CALLBACK(loop, message_sent(conn->socket, msg));
	}
}

static void fail_list(struct conn *conn, struct list *list, int error)
{
	while (!list_is_empty(list)) {
		ibmsg_buffer *msg = buffer_of(list->next);

		block_deregister(buffer_private(msg)->block);
		finish(conn, msg, error);
	}
}

static void put_carrier(struct block *carrier)
{
	list_del(&carrier->link);
	block_put(carrier);
}

void send_fail_all(struct conn *conn, int error)
{
	while (!list_is_empty(&conn->carriers))
		put_carrier(list_first(&conn->carriers, struct block, link));
	fail_list(conn, &conn->in_flight, error);
	fail_list(conn, &conn->offered, error);
	fail_list(conn, &conn->queue, error);
	conn->num_offered = 0;
}

bool send_is_idle(const struct conn *conn)
{
	return list_is_empty(&conn->queue) && list_is_empty(&conn->in_flight) &&
	       list_is_empty(&conn->offered) && !conn->num_dones;
}

/* ---- credits ---- */

void send_credits(struct conn *conn, const struct proto_message *message)
{
	conn->data_credits += message->data_credits;
	conn->control_credits += message->control_credits;
	if (conn->data_credits > UINT16_MAX || conn->control_credits > UINT16_MAX)
		conn_doom(conn, IBMSG_PROTOCOL_ERROR);
}

/* What this message tells the peer of receives that were posted. */
static void take_owed(struct conn *conn, struct proto_message *message)
{
	message->data_credits = (uint16_t)conn->owed_data;
	message->control_credits = (uint16_t)conn->owed_control;
	conn->owed_data = 0;
	conn->owed_control = 0;
}

/* ---- control messages ---- */

/* The queue pair is lost: its completions, or the dispatcher, will say so. */
static void post_failed(struct conn *conn, int error)
{
	log_error("%s: cannot post: %s", conn->name, strerror(-error));
	conn_doom(conn, IBMSG_POST_SEND_FAILED);
}

static bool post_inline(struct conn *conn, const struct proto_message *message, enum wr_kind kind)
{
	uint8_t bytes[PROTO_HEADER_LEN + PROTO_REGION_LEN];
	struct ibv_sge sge = {.addr = (uintptr_t)bytes};
	struct ibv_send_wr wr = {
		.wr_id = wr_id(kind, NULL),
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		.sg_list = &sge,
		.num_sge = 1,
	};
	int error;

	sge.length = (uint32_t)proto_put_message(bytes, message);
	error = post_sends(conn->qp, &wr);
	if (error)
		post_failed(conn, error);
	return !error;
}

static bool post_control(struct conn *conn, struct proto_message *message)
{
	take_owed(conn, message);
	if (!post_inline(conn, message, WR_CONTROL))
		return false;
	conn->control_credits--;
	conn->controls++;
	return true;
}

/*
 * The last control credit is kept for returning control credits, or two peers that have none left
 * could not give each other new ones.
 */
static bool may_control(const struct conn *conn)
{
	return conn->control_credits > 1 && conn->controls < CONTROL_SENDS / 2;
}

/* Of the protocol: an original is told nothing, and a hello comes first. */
static bool may_speak(const struct conn *conn)
{
	return conn->state == CONN_OPEN && conn->may_send && !conn->doom && !conn->hello_due &&
	       !conn->parting && conn->peer == PEER_IBMSG;
}

static void send_hello(struct conn *conn)
{
	struct proto_message hello = {
		.type = PROTO_HELLO,
		.address = (uintptr_t)&conn->device->word,
		.key = conn->device->word_mr->rkey,
	};

	if (may_control(conn) && post_control(conn, &hello))
		conn->hello_due = false;
}

static void send_dones(struct conn *conn)
{
	while (conn->num_dones && may_control(conn)) {
		struct proto_message done = {
			.type = PROTO_DONE,
			.number = conn->dones[conn->first_done].number,
			.status = conn->dones[conn->first_done].status,
		};

		if (!post_control(conn, &done))
			return;
		conn->first_done = (conn->first_done + 1) % MAX_OFFERS;
		conn->num_dones--;
		conn->num_arriving_offers--;
	}
}

void send_owed(struct conn *conn)
{
	struct proto_message credit = {.type = PROTO_CREDIT};
	unsigned stock = conn->is_short ? conn->posted_data : conn->window;
	bool control = conn->owed_control >= CONTROL_RECEIVES / 2;
	bool data = conn->owed_data > stock / 2;

	if (!control && !data)
		return; /* mostly: a message takes them along */
	control = control && conn->control_credits && conn->controls < CONTROL_SENDS;
	data = data && may_control(conn);
	if ((control || data) && may_speak(conn))
		post_control(conn, &credit);
}

void send_nudge(struct conn *conn)
{
	struct proto_message credit = {.type = PROTO_CREDIT};

	if (may_speak(conn) && may_control(conn))
		post_control(conn, &credit);
}

/* ---- the end ---- */

/* Say that all has been sent and received; say it again when the peer has said so too. */
static void send_end(struct conn *conn)
{
	struct proto_message end = {
		.type = PROTO_END,
		.flags = conn->end_received ? PROTO_SEEN : 0,
	};

	if (!send_is_idle(conn) || conn->seen_sent)
		return;
	if (conn->end_sent && !conn->end_received)
		return;
	if (!may_control(conn) || !post_control(conn, &end))
		return;
	conn->end_sent = true;
	conn->seen_sent = conn->end_received;
}

/* ---- messages ---- */

/* A Send of @len bytes in @block: a message, or the carrier of a MANY. */
static void make_wr(const struct conn *conn, struct ibv_send_wr *wr, struct ibv_sge *sge,
		    enum wr_kind kind, const struct block *block, void *from, size_t len)
{
	*sge = (struct ibv_sge){
		.addr = (uintptr_t)from, .length = (uint32_t)len, .lkey = block->mr->lkey};
	*wr = (struct ibv_send_wr){
		.wr_id = wr_id(kind, NULL),
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED |
			      (len <= conn->inline_bytes ? (unsigned)IBV_SEND_INLINE : 0),
		.sg_list = sge,
		.num_sge = 1,
	};
}

static void post_wrs(struct conn *conn, struct ibv_send_wr *wrs)
{
	int error = post_sends(conn->qp, wrs);

	if (error)
		post_failed(conn, error);
}

struct batch {
	struct ibv_send_wr wrs[BATCH];
	struct ibv_sge sges[BATCH];
	unsigned count;
};

static void post_batch(struct conn *conn, struct batch *batch)
{
	if (!batch->count)
		return;
	batch->count = 0;
	post_wrs(conn, batch->wrs);
}

static void add_to_batch(struct conn *conn, struct batch *batch, enum wr_kind kind,
			 const struct block *block, void *from, size_t len)
{
	struct ibv_send_wr *wr = &batch->wrs[batch->count];

	conn->sends++;
	make_wr(conn, wr, &batch->sges[batch->count], kind, block, from, len);
	if (batch->count)
		wr[-1].next = wr;
	if (++batch->count == BATCH)
		post_batch(conn, batch);
}

static void spend_credit(struct conn *conn, struct proto_message *message)
{
	conn->data_credits--;
	take_owed(conn, message);
	if (!conn->data_credits && !list_is_empty(&conn->queue))
		message->flags = PROTO_WANT_CREDIT;
}

/* The message is in a slot, and in no list: its header goes in front of it. Returns the header. */
static uint8_t *begin_data(struct conn *conn, ibmsg_buffer *msg)
{
	struct proto_message data = {.type = PROTO_DATA};
	uint8_t *header = (uint8_t *)msg->data - PROTO_HEADER_LEN;

	list_add_tail(&conn->in_flight, &buffer_private(msg)->link);
	spend_credit(conn, &data);
	proto_put_message(header, &data);
	return header;
}

static void send_data(struct conn *conn, struct batch *batch, ibmsg_buffer *msg)
{
	list_del(&buffer_private(msg)->link);
	add_to_batch(conn, batch, WR_DATA, buffer_private(msg)->block, begin_data(conn, msg),
		     PROTO_HEADER_LEN + msg->size);
}

/* False: there is no memory for a carrier. */
static bool send_many(struct conn *conn, struct batch *batch)
{
	struct proto_message many = {.type = PROTO_MANY};
	struct block *carrier = pool_get(conn->device->pool, SLOT_BYTES);
	uint8_t *header;
	size_t len;

	if (!carrier)
		return false;
	len = many_fill(conn, carrier);
	many.length = carrier->parts;
	spend_credit(conn, &many);
	header = block_bytes(carrier) - PROTO_HEADER_LEN;
	proto_put_message(header, &many);
	list_add_tail(&conn->carriers, &carrier->link);
	add_to_batch(conn, batch, WR_MANY, carrier, header, PROTO_HEADER_LEN + len);
	return true;
}

/* The peer is to read it. */
static void send_offer(struct conn *conn, struct batch *batch, ibmsg_buffer *msg)
{
	struct buffer_private *private = buffer_private(msg);
	struct proto_message offer = {.type = PROTO_OFFER, .length = msg->size};
	/* One that was made shorter afterwards may have nothing to be read. */
	int error =
		msg->size ? block_register(private->block, msg->size, IBV_ACCESS_REMOTE_READ) : 0;

	if (error) {
		log_error("%s: cannot register %zu bytes: %s", conn->name, msg->size,
			  strerror(-error));
		finish(conn, msg, IBMSG_MEMORY_REGISTRATION_FAILED);
		return;
	}
	post_batch(conn, batch); /* order */
	list_del(&private->link);
	list_add_tail(&conn->offered, &private->link);
	conn->num_offered++;
	private->number = conn->next_number++;
	offer.address = (uintptr_t)msg->data;
	offer.key = msg->size ? private->block->mr->rkey : 0;
	offer.number = private->number;
	spend_credit(conn, &offer);
	if (post_inline(conn, &offer, WR_OFFER)) {
		conn->sends++;
		conn->stats.rendezvous_sent++;
	}
}

/* To an original: the bare bytes, one message at a time. */
static void send_bare(struct conn *conn, struct batch *batch, ibmsg_buffer *msg)
{
	struct block *block = buffer_private(msg)->block;

	if (msg->size > IBMSG_MAX_MSGSIZE) {
		finish(conn, msg, IBMSG_MESSAGE_TOO_LARGE);
		return;
	}
	/* One that was made shorter afterwards is in a large block, which is not registered yet. */
	if (!block->slot && block_register(block, block->room, 0)) {
		finish(conn, msg, IBMSG_MEMORY_REGISTRATION_FAILED);
		return;
	}
	list_del(&buffer_private(msg)->link);
	list_add_tail(&conn->in_flight, &buffer_private(msg)->link);
	add_to_batch(conn, batch, WR_DATA, block, msg->data, msg->size);
}

static void send_next(struct conn *conn, struct batch *batch)
{
	ibmsg_buffer *msg = buffer_of(conn->queue.next);

	if (buffer_private(msg)->block->pool != conn->device->pool) {
		/* It was posted while another address of the peer was tried, by another device. */
		finish(conn, msg, IBMSG_MEMORY_REGISTRATION_FAILED);
	} else if (conn->peer == PEER_ORIGINAL) {
		send_bare(conn, batch, msg);
	} else if (!buffer_private(msg)->block->slot) {
		send_offer(conn, batch, msg);
	} else if (!many_wait(conn) || !send_many(conn, batch)) {
		send_data(conn, batch, msg);
	}
}

static bool has_room(const struct conn *conn)
{
	return conn->data_credits && conn->sends < MAX_WINDOW && conn->num_offered < MAX_OFFERS;
}

static bool may_send_next(const struct conn *conn)
{
	if (list_is_empty(&conn->queue) || conn->doom)
		return false;
	return conn->peer == PEER_ORIGINAL ? !conn->sends : has_room(conn);
}

static void send_messages(struct conn *conn)
{
	struct batch batch;
	bool stalled;

	batch.count = 0;
	while (may_send_next(conn))
		send_next(conn, &batch);
	post_batch(conn, &batch);
	stalled = !list_is_empty(&conn->queue);
	if (stalled && !conn->stalled)
		conn->stats.stalls++;
	conn->stalled = stalled;
}

void send_pump(struct conn *conn)
{
	if (conn->state != CONN_OPEN || !conn->may_send || conn->doom)
		return;
	if (conn->hello_due)
		send_hello(conn);
	if (conn->num_dones && may_speak(conn))
		send_dones(conn);
	if (!list_is_empty(&conn->queue) && !conn->hello_due)
		send_messages(conn);
	if (conn->closing && may_speak(conn))
		send_end(conn);
}

/* The only one, if it is short and nothing stands in its way: as if it had been in the queue. */
static bool send_alone(struct conn *conn, ibmsg_buffer *msg)
{
	const struct block *block = buffer_private(msg)->block;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	if (!may_speak(conn) || !has_room(conn) || !block->slot)
		return false;
	conn->sends++;
	make_wr(conn, &wr, &sge, WR_DATA, block, begin_data(conn, msg),
		PROTO_HEADER_LEN + msg->size);
	post_wrs(conn, &wr);
	return true;
}

int send_post(struct conn *conn, ibmsg_buffer *msg)
{
	struct buffer_private *private = buffer_private(msg);
	bool is_first = list_is_empty(&conn->queue) && list_is_empty(&conn->in_flight);

	private->conn = conn;
	msg->error = IBMSG_OK;
	set_buffer_status(msg, IBMSG_WAITING);
	if (is_first && send_alone(conn, msg))
		return IBMSG_OK;
	list_add_tail(&conn->queue, &private->link);
	/* A lone message leaves at once; what a callback posts behind it leaves together, when the
	 * callback has returned. */
	if (!is_first && loop_is_dispatcher(conn->loop))
		loop_due(conn);
	else
		send_pump(conn);
	return IBMSG_OK;
}

/* ---- completions, from the device ---- */

/* Requests complete in order. */
static void data_completed(struct conn *conn)
{
	ibmsg_buffer *msg = buffer_of(conn->in_flight.next);

	block_deregister(buffer_private(msg)->block);
	finish(conn, msg, IBMSG_OK);
}

static void many_completed(struct conn *conn)
{
	struct block *carrier = list_first(&conn->carriers, struct block, link);

	for (unsigned i = 0; i < carrier->parts; i++)
		finish(conn, buffer_of(conn->in_flight.next), IBMSG_OK);
	put_carrier(carrier);
}

void send_completed(struct conn *conn, enum wr_kind kind)
{
	switch (kind) {
	case WR_DATA:
		conn->sends--;
		data_completed(conn);
		/* Now, so that a reply to what comes behind it finds the buffer free. */
		send_tell_finished(conn);
		break;
	case WR_MANY:
		conn->sends--;
		many_completed(conn);
		break;
	case WR_OFFER:
		conn->sends--;
		break;
	case WR_CONTROL:
		conn->controls--;
		break;
	default:
		conn->beating = false;
		conn->heard = true;
		break;
	}
	loop_due(conn);
}

bool send_offer_done(struct conn *conn, uint32_t number, enum proto_status status)
{
	static const int outcomes[] = {
		[PROTO_TAKEN] = IBMSG_OK,
		[PROTO_TOO_LARGE] = IBMSG_MESSAGE_TOO_LARGE,
		[PROTO_NO_MEMORY] = IBMSG_PEER_OUT_OF_MEMORY,
	};
	struct list *pos;

	list_for_each (pos, &conn->offered) {
		ibmsg_buffer *msg = buffer_of(pos);

		if (buffer_private(msg)->number != number)
			continue;
		block_deregister(buffer_private(msg)->block);
		conn->num_offered--;
		finish(conn, msg, outcomes[status]);
		return true;
	}
	return false;
}

void send_beat(struct conn *conn)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&conn->device->sink,
		.length = sizeof(conn->device->sink),
		.lkey = conn->device->sink_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id(WR_BEAT, NULL),
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = {.remote_addr = conn->word_address, .rkey = conn->word_key},
	};
	int error = post_sends(conn->qp, &wr);

	if (error)
		post_failed(conn, error);
	else
		conn->beating = true;
}
