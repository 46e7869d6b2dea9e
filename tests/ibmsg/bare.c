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

/*
 * siw's acceptor answers a request before it is ready to receive: what comes in between lies in its
 * socket until something else comes. It has been seen to take 88 ms.
 */
static void nudge_siw(struct side *side)
{
	static const int waits_ms[] = {20, 100, 300};
	const char *device = getenv("IBMSG_DEVICE");

	if (!device || strcmp(device, "siw") != 0)
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(waits_ms); i++) {
		/* It ends sooner if the connection does. */
		if (fd_is_readable(side->channel->fd, waits_ms[i]))
			return;
		side_try(side, &(struct request){.opcode = IBV_WR_RDMA_WRITE});
	}
}

/* A device may end a connection by its event alone, or by what it flushes alone. */
static bool complete(struct side *side, struct ibv_cq *cq, struct ibv_wc *wc)
{
	uint64_t deadline = now_ms() + WAIT_MS;

	while (!cq_poll(cq, wc, 10)) {
		if (fd_is_readable(side->channel->fd, 0))
			return false;
		if (now_ms() > deadline)
			fail_msg("nothing came");
	}
	return wc->status == IBV_WC_SUCCESS;
}

static bool send_once(struct side *side, const void *data, size_t len)
{
	struct ibv_wc wc;

	if (len)
		memcpy(side->buf + BARE_SEND_AT, data, len);
	if (side_try(side, &(struct request){.opcode = IBV_WR_SEND,
					     .at = BARE_SEND_AT,
					     .len = (uint32_t)len,
					     .flags = IBV_SEND_SIGNALED}))
		return false;
	return complete(side, side->send_cq, &wc);
}

bool bare_send(struct side *side, const void *data, size_t len)
{
	static bool is_later;
	bool has_left;

	assert_true(len <= BARE_SEND);
	has_left = send_once(side, data, len);
	if (!is_later)
		nudge_siw(side);
	is_later = true;
	return has_left;
}

bool bare_next(struct side *side, struct bare_arrival *out)
{
	struct ibv_wc wc;

	if (!complete(side, side->recv_cq, &wc))
		return false;
	*out = (struct bare_arrival){wc.wr_id, side->buf + wc.wr_id * BARE_SLOT, wc.byte_len};
	return true;
}

/* A peer that ends before it has heard that the connection is established may reject it, on rxe. */
void bare_await_end(struct side *side)
{
	struct rdma_cm_event *event = cm_next(side->channel);

	if (event->event != RDMA_CM_EVENT_DISCONNECTED && event->event != RDMA_CM_EVENT_REJECTED)
		fail_msg("%s instead of an end", rdma_event_str(event->event));
	assert_int_equal(rdma_ack_cm_event(event), 0);
}
