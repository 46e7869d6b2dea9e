/* SPDX-License-Identifier: MIT */
/* One side of a pair: connecting, posting and waiting, by <rdma/rdma_cma.h> alone. */
#include "verbs_side.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RESOLVE_MS 2000
#define BACKLOG    128

/* ---- events of connections ---- */

/* To be acknowledged. InfiniBand also tells when a connection that has ended is forgotten. */
static struct rdma_cm_event *next_event(struct side *side)
{
	struct rdma_cm_event *event;

	for (;;) {
		if (rdma_get_cm_event(side->events, &event))
			die("rdma_get_cm_event");
		if (event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
			return event;
		rdma_ack_cm_event(event);
	}
}

/* The next event must be this one. */
static struct rdma_cm_event *expect(struct side *side, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event(side);

	if (event->event != type) {
		errno = -event->status;
		fprintf(stderr, "%s instead of ", rdma_event_str(event->event));
		die(rdma_event_str(type));
	}
	return event;
}

static void expect_and_ack(struct side *side, enum rdma_cm_event_type type)
{
	rdma_ack_cm_event(expect(side, type));
}

/* ---- what connections share ---- */

static void make_memory(struct side *side)
{
	/* Large pages where there are any, as UCX takes them: single copies go page by page. */
	size_t page = 2u << 20, size = side->options->buffers * side->options->size;
	size_t room = (size + page - 1) & ~(page - 1);

	if (posix_memalign((void **)&side->data, page, room))
		die("memory");
	if (size >= page)
		madvise(side->data, room, MADV_HUGEPAGE);
	memset(side->data, 1, size);
	side->mr = ibv_reg_mr(side->pd, side->data, size,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ);
	if (!side->mr)
		die("ibv_reg_mr");
}

static void make_shared(struct side *side, struct ibv_context *context, bool sleeps)
{
	int depth = SEND_DEPTH + RECV_DEPTH + 2 * (int)side->options->idle;

	side->pd = ibv_alloc_pd(context);
	if (sleeps)
		side->channel = ibv_create_comp_channel(context);
	if (!side->pd || (sleeps && !side->channel))
		die("protection domain or completion channel");
	side->recv_cq = ibv_create_cq(context, depth, NULL, side->channel, 0);
	side->send_cq = side->options->one_cq ? side->recv_cq
					      : ibv_create_cq(context, depth, NULL, NULL, 0);
	if (!side->send_cq || !side->recv_cq)
		die("ibv_create_cq");
	make_memory(side);
}

static void make_queue_pair(struct side *side, struct rdma_cm_id *id, unsigned sends,
			    unsigned receives)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = side->send_cq,
		.recv_cq = side->recv_cq,
		.cap = {.max_send_wr = sends,
			.max_recv_wr = receives,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_MAX},
		.qp_type = IBV_QPT_RC,
	};

	if (rdma_create_qp(id, side->pd, &attr))
		die("rdma_create_qp");
}

/* ---- the server ---- */

static struct rdma_cm_id *take_request(struct side *side)
{
	struct rdma_cm_event *event = expect(side, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;

	rdma_ack_cm_event(event);
	return id;
}

static void accept_request(struct side *side, struct rdma_cm_id *id)
{
	const struct remote_memory memory = {
		.address = (uintptr_t)side->data,
		.key = side->mr->rkey,
	};
	struct rdma_conn_param param = {
		.private_data = &memory,
		.private_data_len = sizeof(memory),
		.responder_resources = READ_DEPTH,
		.initiator_depth = READ_DEPTH,
		.rnr_retry_count = 7,
	};

	if (rdma_accept(id, &param))
		die("rdma_accept");
}

static void post_all_receives(struct side *side)
{
	for (unsigned i = 0; i < RECV_DEPTH; i++)
		side_post_recv(side);
}

void side_listen(struct side *side, const struct options *options, bool sleeps)
{
	struct sockaddr_storage address;

	options_address(options, &address);
	*side = (struct side){.options = options, .events = rdma_create_event_channel()};
	if (!side->events || rdma_create_id(side->events, &side->listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(side->listener, (struct sockaddr *)&address) ||
	    rdma_listen(side->listener, BACKLOG))
		die("rdma_listen");
	say_listening(rdma_get_local_addr(side->listener));
	side->id = take_request(side);
	make_shared(side, side->id->verbs, sleeps);
	make_queue_pair(side, side->id, SEND_DEPTH, RECV_DEPTH);
	side->to = side->id;
	post_all_receives(side);
	accept_request(side, side->id);
	expect_and_ack(side, RDMA_CM_EVENT_ESTABLISHED);
}

static void make_idle_queue_pair(struct side *side, struct rdma_cm_id *id)
{
	make_queue_pair(side, id, 1, 1);
	side->to = id;
	side_post_recv(side);
	side->to = side->id;
}

static void make_idle_array(struct side *side)
{
	side->idle = calloc(side->options->idle, sizeof(struct rdma_cm_id *));
	if (!side->idle)
		die("memory");
}

/* A request may come before the connection of the one before it is reported. */
void side_accept_idle(struct side *side)
{
	unsigned requests = 0, established = 0;

	make_idle_array(side);
	while (established < side->options->idle) {
		struct rdma_cm_event *event = next_event(side);
		struct rdma_cm_id *id = event->id;
		enum rdma_cm_event_type type = event->event;

		rdma_ack_cm_event(event);
		if (type == RDMA_CM_EVENT_ESTABLISHED) {
			established++;
		} else if (type == RDMA_CM_EVENT_CONNECT_REQUEST &&
			   requests < side->options->idle) {
			side->idle[requests++] = id;
			make_idle_queue_pair(side, id);
			accept_request(side, id);
		} else {
			die(rdma_event_str(type));
		}
	}
}

/* ---- the client ---- */

static struct rdma_cm_id *resolve(struct side *side)
{
	struct sockaddr_storage address;
	struct rdma_cm_id *id;

	options_address(side->options, &address);
	if (rdma_create_id(side->events, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS))
		die("rdma_resolve_addr");
	expect_and_ack(side, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, RESOLVE_MS))
		die("rdma_resolve_route");
	expect_and_ack(side, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static void request(struct side *side, struct rdma_cm_id *id)
{
	struct rdma_conn_param param = {
		.responder_resources = READ_DEPTH,
		.initiator_depth = READ_DEPTH,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	struct rdma_cm_event *event;

	if (rdma_connect(id, &param))
		die("rdma_connect");
	event = expect(side, RDMA_CM_EVENT_ESTABLISHED);
	if (event->param.conn.private_data_len >= sizeof(side->remote))
		memcpy(&side->remote, event->param.conn.private_data, sizeof(side->remote));
	rdma_ack_cm_event(event);
}

void side_connect(struct side *side, const struct options *options, bool sleeps)
{
	*side = (struct side){.options = options, .events = rdma_create_event_channel()};
	if (!side->events)
		die("rdma_create_event_channel");
	side->id = resolve(side);
	make_shared(side, side->id->verbs, sleeps);
	make_queue_pair(side, side->id, SEND_DEPTH, RECV_DEPTH);
	side->to = side->id;
	post_all_receives(side);
	request(side, side->id);
}

void side_connect_idle(struct side *side)
{
	make_idle_array(side);
	for (unsigned i = 0; i < side->options->idle; i++) {
		side->idle[i] = resolve(side);
		make_idle_queue_pair(side, side->idle[i]);
		request(side, side->idle[i]);
	}
}

/* ---- the end ---- */

static void destroy_connection(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

/* Destroying an id takes its events along, so first all of them are awaited. */
static void end_connections(struct side *side)
{
	unsigned idle = side->idle ? side->options->idle : 0;

	for (unsigned i = 0; !side->listener && i < idle; i++)
		rdma_disconnect(side->idle[i]);
	if (!side->listener)
		rdma_disconnect(side->id);
	for (unsigned i = 0; i < idle + 1; i++)
		expect_and_ack(side, RDMA_CM_EVENT_DISCONNECTED);
	for (unsigned i = 0; i < idle; i++)
		destroy_connection(side->idle[i]);
	destroy_connection(side->id);
}

void side_close(struct side *side)
{
	end_connections(side);
	ibv_dereg_mr(side->mr);
	ibv_destroy_cq(side->recv_cq);
	if (side->send_cq != side->recv_cq)
		ibv_destroy_cq(side->send_cq);
	if (side->channel)
		ibv_destroy_comp_channel(side->channel);
	ibv_dealloc_pd(side->pd);
	if (side->listener)
		rdma_destroy_id(side->listener);
	rdma_destroy_event_channel(side->events);
	free(side->idle);
	free(side->data);
}

/* ---- posting and waiting ---- */

/* The offset of the next buffer of @turn. */
static size_t next_buffer(const struct side *side, unsigned *turn)
{
	size_t offset = *turn * side->options->size;

	if (++*turn == side->options->buffers)
		*turn = 0;
	return offset;
}

void side_post_recv(struct side *side)
{
	struct ibv_sge sge = {.addr = (uintptr_t)side->data + next_buffer(side, &side->receives),
			      .length = (uint32_t)side->options->size,
			      .lkey = side->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = (uintptr_t)side->to, .sg_list = &sge, .num_sge = 1}, *bad;

	errno = ibv_post_recv(side->to->qp, &wr, &bad);
	if (errno)
		die("ibv_post_recv");
}

void side_post_send(struct side *side, enum ibv_wr_opcode opcode, size_t length, unsigned flags)
{
	size_t offset = next_buffer(side, &side->sends);
	struct ibv_sge sge = {.addr = (uintptr_t)side->data + offset,
			      .length = (uint32_t)length,
			      .lkey = side->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = flags,
		.wr.rdma = {.remote_addr = side->remote.address + offset, .rkey = side->remote.key},
	};
	struct ibv_send_wr *bad;

	errno = ibv_post_send(side->to->qp, &wr, &bad);
	if (errno)
		die("ibv_post_send");
}

static void check(const struct ibv_wc *wc, int count)
{
	errno = 0;
	if (count < 0)
		die("ibv_poll_cq");
	for (int i = 0; i < count; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			die(ibv_wc_status_str(wc[i].status));
}

int side_poll(struct ibv_cq *cq, struct ibv_wc *wc, int most)
{
	int count;

	do
		count = ibv_poll_cq(cq, most, wc);
	while (!count);
	check(wc, count);
	return count;
}

static void await_event(struct side *side)
{
	struct pollfd fd = {.fd = side->channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	if (side->options->waits_in_poll && poll(&fd, 1, -1) < 0)
		die("poll");
	if (ibv_get_cq_event(side->channel, &cq, &context))
		die("ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	if (ibv_req_notify_cq(cq, 0))
		die("ibv_req_notify_cq");
}

static int wait_asleep(struct side *side, struct ibv_wc *wc, int most)
{
	int count;

	while (!(count = ibv_poll_cq(side->recv_cq, most, wc)))
		await_event(side);
	check(wc, count);
	return count;
}

int side_wait_recv(struct side *side, struct ibv_wc *wc, int most)
{
	return side->channel ? wait_asleep(side, wc, most) : side_poll(side->recv_cq, wc, most);
}
