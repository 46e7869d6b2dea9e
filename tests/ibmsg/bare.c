/* SPDX-License-Identifier: MIT */
/* A peer that uses verbs itself. */
#include "bare.h"

#include <arpa/inet.h>

static const struct pair_options options = {.bytes = BARE_SEND_AT + BARE_SEND, .depth = 128};

static void equip(struct side *side, unsigned receives)
{
	side_equip(side, &options);
	for (unsigned i = 0; i < receives; i++)
		bare_recv(side, i);
}

void bare_open(struct side *side, uint16_t port, unsigned receives)
{
	memset(side, 0, sizeof(*side));
	side_resolve(side, htons(port));
	equip(side, receives);
}

static struct rdma_conn_param conn_param(const void *private_data, size_t len)
{
	return (struct rdma_conn_param){
		.private_data = private_data,
		.private_data_len = (uint8_t)len,
		.responder_resources = 4,
		.initiator_depth = 4,
		.retry_count = 6,
		.rnr_retry_count = 7,
	};
}

void bare_connect(struct side *side, const void *private_data, size_t len)
{
	struct rdma_conn_param param = conn_param(private_data, len);

	/* A refusal may be told at once, or by an event. */
	if (rdma_connect(side->id, &param))
		assert_true(errno == ECONNREFUSED || errno == ECONNRESET);
}

void bare_accept(struct side *side, struct rdma_event_channel *channel, unsigned receives)
{
	struct rdma_cm_event *request = cm_take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param param = conn_param(NULL, 0);

	memset(side, 0, sizeof(*side));
	side->id = request->id;
	assert_int_equal(rdma_ack_cm_event(request), 0);
	side->channel = rdma_create_event_channel();
	assert_non_null(side->channel);
	assert_int_equal(rdma_migrate_id(side->id, side->channel), 0);
	equip(side, receives);
	assert_int_equal(rdma_accept(side->id, &param), 0);
}

void bare_recv(struct side *side, uint64_t slot)
{
	side_recv(side, slot, slot * BARE_SLOT, BARE_SLOT);
}

bool bare_send(struct side *side, const void *data, size_t len)
{
	assert_true(len <= BARE_SEND);
	if (len)
		memcpy(side->buf + BARE_SEND_AT, data, len);
	if (side_try(side, &(struct request){.opcode = IBV_WR_SEND,
					     .at = BARE_SEND_AT,
					     .len = (uint32_t)len,
					     .flags = IBV_SEND_SIGNALED}))
		return false;
	return cq_next(side->send_cq).status == IBV_WC_SUCCESS;
}

/* A device may end a connection by its event alone, or by what it flushes alone. */
bool bare_next(struct side *side, struct bare_arrival *out)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	struct ibv_wc wc;

	while (!cq_poll(side->recv_cq, &wc, 10)) {
		if (fd_is_readable(side->channel->fd, 0))
			return false;
		if (now_ms() > deadline)
			fail_msg("nothing came");
	}
	if (wc.status != IBV_WC_SUCCESS)
		return false;
	*out = (struct bare_arrival){wc.wr_id, side->buf + wc.wr_id * BARE_SLOT, wc.byte_len};
	return true;
}

void bare_await_disconnected(struct side *side)
{
	struct rdma_cm_event *event = cm_next(side->channel);
	enum rdma_cm_event_type type = event->event;

	rdma_ack_cm_event(event);
	/* On InfiniBand, if the acceptor is gone before the CM's last word has reached it. */
	if (type != RDMA_CM_EVENT_REJECTED ||
	    side->id->verbs->device->transport_type != IBV_TRANSPORT_IB)
		assert_int_equal(type, RDMA_CM_EVENT_DISCONNECTED);
}
