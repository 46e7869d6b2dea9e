/* SPDX-License-Identifier: MIT */
/* Connected sides, their requests and completions. */
#include "pair.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#define SLICE_MS 100 /* of a wait: a pause of the whole machine counts as one */

/* ---- time and memory ---- */

uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/*
 * Large, and ordered by the socket where a thread sanitizer sees no order: it would be slow and
 * wrong.
 */
#define UNWATCHED __attribute__((no_sanitize_thread))

UNWATCHED static uint8_t pattern(size_t at, unsigned seed)
{
	return (uint8_t)((at >> 8) * 37 + at + seed * 11 + 1);
}

UNWATCHED void fill(void *to, size_t len, unsigned seed)
{
	uint8_t *bytes = to;

	for (size_t i = 0; i < len; i++)
		bytes[i] = pattern(i, seed);
}

UNWATCHED bool is_filled(const void *at, size_t len, unsigned seed)
{
	const uint8_t *bytes = at;

	for (size_t i = 0; i < len; i++)
		if (bytes[i] != pattern(i, seed))
			return false;
	return true;
}

UNWATCHED bool is_all(const void *at, size_t len, uint8_t value)
{
	const uint8_t *bytes = at;

	for (size_t i = 0; i < len; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

UNWATCHED uint8_t peek(const uint8_t *at)
{
	return *(const volatile uint8_t *)at;
}

UNWATCHED void poke(uint8_t *at, uint8_t value)
{
	*(volatile uint8_t *)at = value;
}

bool fd_is_readable(int fd, int ms)
{
	struct pollfd one = {.fd = fd, .events = POLLIN};
	int count;

	do {
		count = poll(&one, 1, ms < SLICE_MS ? ms : SLICE_MS);
		ms -= SLICE_MS;
	} while ((!count || (count < 0 && errno == EINTR)) && ms > 0);
	return count == 1;
}

/* ---- addresses ---- */

static void set_port(struct sockaddr_storage *addr, uint16_t port)
{
	if (addr->ss_family == AF_INET6)
		((struct sockaddr_in6 *)addr)->sin6_port = port;
	else
		((struct sockaddr_in *)addr)->sin_port = port;
}

void test_address(struct sockaddr_storage *out, uint16_t port)
{
	const char *text = getenv("IBMSG_ADDR");
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *found;

	assert_int_equal(getaddrinfo(text ? text : "127.0.0.1", NULL, &hints, &found), 0);
	memset(out, 0, sizeof(*out));
	memcpy(out, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	set_port(out, port);
}

void any_address(struct sockaddr_storage *out, int family)
{
	memset(out, 0, sizeof(*out));
	out->ss_family = (sa_family_t)family;
}

uint16_t unused_port(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage at;
	struct rdma_cm_id *id;
	uint16_t port;

	assert_non_null(channel);
	test_address(&at, 0);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&at), 0);
	port = rdma_get_src_port(id);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
	return port;
}

/* ---- CM events ---- */

struct rdma_cm_event *cm_next(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;

	if (!fd_is_readable(channel->fd, WAIT_MS))
		fail_msg("no CM event came");
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	return event;
}

struct rdma_cm_event *cm_take(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = cm_next(channel);

	if (event->event != type)
		fail_msg("%s (status %d) instead of %s", rdma_event_str(event->event),
			 event->status, rdma_event_str(type));
	return event;
}

int cm_expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = cm_take(channel, type);
	int status = event->status;

	assert_int_equal(rdma_ack_cm_event(event), 0);
	return status;
}

void cm_expect_none(struct rdma_event_channel *channel)
{
	assert_false(fd_is_readable(channel->fd, QUIET_MS));
}

/* ---- sides ---- */

struct rdma_cm_id *listen_at(struct rdma_event_channel *channel, const struct sockaddr_storage *at,
			     int backlog)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)(uintptr_t)at), 0);
	assert_int_equal(rdma_listen(id, backlog), 0);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	return id;
}

void side_resolve_from(struct side *side, struct sockaddr_storage *from, uint16_t port)
{
	struct sockaddr_storage to;

	test_address(&to, port);
	side->channel = rdma_create_event_channel();
	assert_non_null(side->channel);
	assert_int_equal(rdma_create_id(side->channel, &side->id, side, RDMA_PS_TCP), 0);
	if (from)
		assert_int_equal(rdma_bind_addr(side->id, (struct sockaddr *)from), 0);
	assert_int_equal(rdma_resolve_addr(side->id, NULL, (struct sockaddr *)&to, WAIT_MS), 0);
	assert_int_equal(cm_expect(side->channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	assert_int_equal(rdma_resolve_route(side->id, WAIT_MS), 0);
	assert_int_equal(cm_expect(side->channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
}

void side_resolve(struct side *side, uint16_t port)
{
	side_resolve_from(side, NULL, port);
}

static uint32_t or_else(uint32_t value, uint32_t otherwise)
{
	return value ? value : otherwise;
}

static void make_cqs(struct side *side, const struct pair_options *options)
{
	struct ibv_context *verbs = side->id->verbs;
	int depth = (int)or_else(options->depth, 64);

	if (options->cqs) {
		side->send_cq = options->cqs->send_cq;
		side->recv_cq = options->cqs->recv_cq;
		return;
	}
	side->comp = ibv_create_comp_channel(verbs);
	assert_non_null(side->comp);
	side->send_cq = ibv_create_cq(verbs, 2 * depth, side, side->comp, 0);
	assert_non_null(side->send_cq);
	side->recv_cq = side->send_cq;
	if (!options->one_cq)
		side->recv_cq = ibv_create_cq(verbs, depth, side, side->comp, 0);
	assert_non_null(side->recv_cq);
}

static void make_srq(struct side *side, const struct pair_options *options)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = or_else(options->depth, 64),
						  .max_sge = or_else(options->sge, 1)}};

	side->srq = ibv_create_srq(side->pd, &attr);
	assert_non_null(side->srq);
}

static void make_qp(struct side *side, const struct pair_options *options)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = side->send_cq,
		.recv_cq = side->recv_cq,
		.srq = side->srq,
		.cap = {.max_send_wr = or_else(options->depth, 64),
			.max_recv_wr = or_else(options->depth, 64),
			.max_send_sge = or_else(options->sge, 1),
			.max_recv_sge = or_else(options->sge, 1),
			.max_inline_data = options->inline_bytes},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = options->signal_all,
	};

	assert_int_equal(rdma_create_qp(side->id, side->pd, &attr), 0);
	side->qp = side->id->qp;
}

void side_equip(struct side *side, const struct pair_options *options)
{
	side->pd = ibv_alloc_pd(side->id->verbs);
	assert_non_null(side->pd);
	make_cqs(side, options);
	if (options->shared_receives)
		make_srq(side, options);
	make_qp(side, options);
	side->size = options->bytes ? options->bytes : 64 * KIB;
	side->buf = calloc(1, side->size);
	assert_non_null(side->buf);
	side->mr = ibv_reg_mr(side->pd, side->buf, side->size,
			      (int)or_else(options->access, ALL_ACCESS));
	assert_non_null(side->mr);
}

static struct offer offer_of(const struct side *side)
{
	return (struct offer){
		.addr = (uintptr_t)side->buf, .key = side->mr->rkey, .len = (uint32_t)side->size};
}

static struct rdma_conn_param conn_param(const struct offer *offer,
					 const struct pair_options *options)
{
	return (struct rdma_conn_param){
		.private_data = offer,
		.private_data_len = sizeof(*offer),
		.responder_resources = (uint8_t)or_else(options->reads, 16),
		.initiator_depth = (uint8_t)or_else(options->reads, 16),
		.retry_count = 6,
		.rnr_retry_count = 7,
	};
}

static void note_offer(struct side *side, const struct rdma_cm_event *event)
{
	assert_true(event->param.conn.private_data_len >= sizeof(side->remote));
	memcpy(&side->remote, event->param.conn.private_data, sizeof(side->remote));
}

void side_connect(struct side *side, const struct pair_options *options)
{
	struct offer mine = offer_of(side);
	struct rdma_conn_param param = conn_param(&mine, options);

	assert_int_equal(rdma_connect(side->id, &param), 0);
}

void side_accept(struct side *side, struct rdma_event_channel *channel,
		 const struct pair_options *options)
{
	struct rdma_cm_event *request = cm_take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param param;
	struct offer mine;

	side->id = request->id;
	note_offer(side, request);
	assert_int_equal(rdma_ack_cm_event(request), 0);
	side->channel = rdma_create_event_channel();
	assert_non_null(side->channel);
	assert_int_equal(rdma_migrate_id(side->id, side->channel), 0);
	side_equip(side, options);
	mine = offer_of(side);
	param = conn_param(&mine, options);
	assert_int_equal(rdma_accept(side->id, &param), 0);
}

void side_await_established(struct side *side)
{
	struct rdma_cm_event *event = cm_take(side->channel, RDMA_CM_EVENT_ESTABLISHED);

	assert_int_equal(event->status, 0);
	note_offer(side, event);
	rdma_ack_cm_event(event);
}

static void destroy_cqs(struct side *side)
{
	assert_int_equal(ibv_destroy_cq(side->send_cq), 0);
	if (side->recv_cq != side->send_cq)
		assert_int_equal(ibv_destroy_cq(side->recv_cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(side->comp), 0);
}

void side_close(struct side *side)
{
	if (side->id->qp)
		rdma_destroy_qp(side->id);
	if (side->comp)
		destroy_cqs(side);
	if (side->srq)
		assert_int_equal(ibv_destroy_srq(side->srq), 0);
	assert_int_equal(ibv_dereg_mr(side->mr), 0);
	assert_int_equal(ibv_dealloc_pd(side->pd), 0);
	assert_int_equal(rdma_destroy_id(side->id), 0);
	rdma_destroy_event_channel(side->channel);
	free(side->buf);
}

void pair_open(struct pair *pair, const struct pair_options *options)
{
	struct sockaddr_storage at;

	memset(pair, 0, sizeof(*pair));
	test_address(&at, 0);
	pair->channel = rdma_create_event_channel();
	assert_non_null(pair->channel);
	pair->listener = listen_at(pair->channel, &at, 8);
	side_resolve(&pair->client, rdma_get_src_port(pair->listener));
	side_equip(&pair->client, options);
	side_connect(&pair->client, options);
	side_accept(&pair->server, pair->channel, options);
	side_await_established(&pair->client);
	assert_int_equal(cm_expect(pair->server.channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

void pair_close(struct pair *pair)
{
	side_close(&pair->client);
	side_close(&pair->server);
	assert_int_equal(rdma_destroy_id(pair->listener), 0);
	rdma_destroy_event_channel(pair->channel);
}

void side_settle(struct side *side)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(side->qp, &attr, IBV_QP_STATE, &init), 0);
}

void pair_disconnect(struct pair *pair)
{
	assert_int_equal(rdma_disconnect(pair->client.id), 0);
	cm_expect(pair->client.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair->server.channel, RDMA_CM_EVENT_DISCONNECTED);
}

/* ---- requests ---- */

int side_try(struct side *side, const struct request *request)
{
	struct ibv_sge piece = {.addr = (uintptr_t)side->buf + request->at,
				.length = request->len,
				.lkey = side->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = request->id,
				 .sg_list = &piece,
				 .num_sge = request->len ? 1 : 0,
				 .opcode = request->opcode,
				 .send_flags = request->flags};
	struct ibv_send_wr *bad = NULL;
	int error;

	if (request->opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = request->key;
	wr.wr.rdma.remote_addr = side->remote.addr + request->remote_at;
	wr.wr.rdma.rkey = request->key ? request->key : side->remote.key;
	error = ibv_post_send(side->qp, &wr, &bad);
	/* When the connection is at its end, siw fails with -1 and names none. */
	if (error >= 0 || bad)
		assert_ptr_equal(bad, error ? &wr : NULL);
	return error;
}

void side_post(struct side *side, const struct request *request)
{
	assert_int_equal(side_try(side, request), 0);
}

void side_send(struct side *side, uint64_t id, size_t at, uint32_t len)
{
	side_post(side, &(struct request){.opcode = IBV_WR_SEND,
					  .id = id,
					  .at = at,
					  .len = len,
					  .flags = IBV_SEND_SIGNALED});
}

void side_recv(struct side *side, uint64_t id, size_t at, uint32_t len)
{
	struct ibv_sge piece = {
		.addr = (uintptr_t)side->buf + at, .length = len, .lkey = side->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &piece, .num_sge = len ? 1 : 0}, *bad;

	if (side->srq)
		assert_int_equal(ibv_post_srq_recv(side->srq, &wr, &bad), 0);
	else
		assert_int_equal(ibv_post_recv(side->qp, &wr, &bad), 0);
}

/* ---- completions ---- */

bool cq_poll(struct ibv_cq *cq, struct ibv_wc *wc, unsigned ms)
{
	uint64_t last = now_ms();

	for (;;) {
		uint64_t now, took;

		for (int i = 0; i < 100; i++)
			if (ibv_poll_cq(cq, 1, wc) == 1)
				return true;
		sched_yield();
		now = now_ms();
		took = now - last < SLICE_MS ? now - last : SLICE_MS;
		if (ms <= took)
			return false;
		ms -= (unsigned)took;
		last = now;
	}
}

struct ibv_wc cq_next(struct ibv_cq *cq)
{
	struct ibv_wc wc = {0};

	if (!cq_poll(cq, &wc, WAIT_MS))
		fail_msg("no completion came");
	return wc;
}

struct ibv_wc cq_expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = cq_next(cq);

	if (wc.wr_id != id || wc.status != status)
		fail_msg("completion of %lu: %s; expected %lu: %s", (unsigned long)wc.wr_id,
			 ibv_wc_status_str(wc.status), (unsigned long)id,
			 ibv_wc_status_str(status));
	return wc;
}

void cq_expect_none(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	assert_false(cq_poll(cq, &wc, QUIET_MS));
}

void tally_count(struct tally *tally, const struct ibv_wc *wc)
{
	if (wc->wr_id >= tally->posted)
		fail_msg("completion of %lu, which was never posted", (unsigned long)wc->wr_id);
	if (tally->seen[wc->wr_id])
		fail_msg("second completion of %lu", (unsigned long)wc->wr_id);
	tally->seen[wc->wr_id] = 1;
	tally->done++;
	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		tally->flushed++;
	else if (wc->status != IBV_WC_SUCCESS)
		tally->failed++;
}

void tally_drain(struct tally *tally, struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (tally->done < tally->posted) {
		if (!cq_poll(cq, &wc, WAIT_MS))
			fail_msg("%u of %u requests completed", tally->done, tally->posted);
		tally_count(tally, &wc);
	}
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		tally_count(tally, &wc);
}
