/* SPDX-License-Identifier: MIT */
/* What a connection consists of, how the application sees it, and giving it back. */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../common/log.h"
#include "internal.h"

#define INLINE_BYTES  64         /* as much as every device takes that takes any */
#define MAX_READS     16         /* outstanding */
#define MAX_REQUEST   (1u << 30) /* bytes: well within what an SGE can say */
#define DRAIN_MS      5000       /* for what was posted, before a disconnect */
#define LAST_EVENT_MS 200        /* for the CM's answer to a disconnect */

/* ---- making one ---- */

int conn_new(struct conn **out)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	int error;

	if (!conn)
		return error_of(ENOMEM, "a connection");
	conn->busy_us = DEFAULT_BUSY;
	fifo_init(&conn->arrivals, sizeof(struct arrival));
	fifo_init(&conn->recvq.early, sizeof(struct early));
	conn->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (conn->end_fd < 0) {
		error = error_of(errno, "cannot create an eventfd");
		conn_free(conn);
		return error;
	}
	error = cm_open_channel(&conn->channel);
	if (error) {
		conn_free(conn);
		return error;
	}
	*out = conn;
	return 0;
}

static unsigned smaller(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

static int find_limits(struct conn *conn, unsigned capacity)
{
	struct ibv_context *verbs = conn->id->verbs;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	int error = ibv_query_device(verbs, &device);

	if (!error)
		error = ibv_query_port(verbs, conn->id->port_num, &port);
	if (error)
		return error_of(error, "cannot query the device");
	if (capacity >= (unsigned)device.max_qp_wr || capacity >= (unsigned)device.max_cqe)
		return error_say(EINVAL, "%s takes fewer than %u requests at a time",
				 ibv_get_device_name(verbs->device),
				 smaller((unsigned)device.max_qp_wr, (unsigned)device.max_cqe));
	conn->capacity = capacity;
	conn->is_iwarp = verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	conn->max_sge = smaller((unsigned)device.max_sge, IW_MAX_SGE);
	conn->max_read_sge = smaller((unsigned)device.max_sge_rd, conn->max_sge);
	if (!conn->max_read_sge)
		conn->max_read_sge = 1;
	conn->max_message = port.max_msg_sz;
	conn->max_request = smaller(port.max_msg_sz, MAX_REQUEST);
	conn->reads = (uint8_t)smaller(MAX_READS, smaller((unsigned)device.max_qp_init_rd_atom,
							  (unsigned)device.max_qp_rd_atom));
	return 0;
}

static int make_records(struct conn *conn)
{
	size_t bytes = ((size_t)conn->sendq.depth + conn->recvq.depth) * RECORD_LEN;

	conn->records = calloc(1, bytes);
	if (!conn->records)
		return error_of(ENOMEM, "advertisements");
	conn->records_mr =
		ibv_reg_mr(conn->domain->pd, conn->records, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!conn->records_mr)
		return error_of(errno, "cannot register memory for advertisements");
	return 0;
}

int conn_make_qp(struct conn *conn)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = conn->queues[IW_SCQ].cq,
		.recv_cq = conn->queues[IW_RCQ].cq,
		.cap = {.max_send_wr = conn->sendq.depth,
			.max_recv_wr = conn->recvq.depth,
			.max_send_sge = conn->max_sge,
			.max_recv_sge = conn->max_sge,
			.max_inline_data = INLINE_BYTES},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_init_attr plain = attr;

	plain.cap.max_inline_data = 0;
	if (rdma_create_qp(conn->id, conn->domain->pd, &attr)) {
		attr = plain;
		if (rdma_create_qp(conn->id, conn->domain->pd, &attr))
			return error_of(errno, "cannot create a queue pair");
	}
	conn->max_inline = attr.cap.max_inline_data;
	return 0;
}

int conn_equip(struct conn *conn, int capacity, struct ibv_pd *shared)
{
	unsigned entries = capacity > 0 ? (unsigned)capacity : IW_DEFAULT_CAPACITY;
	int error;

	if (capacity > MAX_CAPACITY)
		return error_say(EINVAL, "a capacity of %d is too large", capacity);
	error = find_limits(conn, entries);
	if (!error)
		error = domain_get(conn->id->verbs, shared, &conn->domain);
	if (!error)
		error = queue_open(&conn->queues[IW_SCQ], conn->id->verbs, entries);
	/* One more, for the hello. */
	if (!error)
		error = queue_open(&conn->queues[IW_RCQ], conn->id->verbs, entries + 1);
	if (!error)
		error = sendq_init(&conn->sendq, entries);
	conn->recvq.depth = entries + 1;
	if (!error)
		error = make_records(conn);
	if (!error)
		error = conn_make_qp(conn);
	if (!error)
		log_info("using %s", ibv_get_device_name(conn->id->verbs->device));
	return error;
}

void conn_free(struct conn *conn)
{
	if (conn->id && conn->id->qp)
		rdma_destroy_qp(conn->id);
	queue_close(&conn->queues[IW_SCQ]);
	queue_close(&conn->queues[IW_RCQ]);
	if (conn->records_mr)
		ibv_dereg_mr(conn->records_mr);
	free(conn->records);
	free(conn->sendq.ring);
	fifo_fini(&conn->recvq.early);
	fifo_fini(&conn->arrivals);
	if (conn->id)
		rdma_destroy_id(conn->id);
	if (conn->channel)
		rdma_destroy_event_channel(conn->channel);
	if (conn->domain)
		domain_put(conn->domain);
	if (conn->addresses)
		freeaddrinfo(conn->addresses);
	if (conn->end_fd >= 0)
		close(conn->end_fd);
	free(conn);
}

/* ---- how the application sees it ---- */

void ctx_clear(struct iw_ctx_conn *ctx)
{
	memset(ctx, 0, sizeof(*ctx));
}

void conn_show(const struct conn *conn, struct iw_ctx_conn *ctx)
{
	ctx->cm_channel = conn->channel;
	ctx->cm_id = conn->id;
	ctx->pd = conn->domain->pd;
	ctx->qp = conn->id ? conn->id->qp : NULL;
	ctx->scq = conn->queues[IW_SCQ].cq;
	ctx->rcq = conn->queues[IW_RCQ].cq;
	ctx->scq_channel = conn->queues[IW_SCQ].channel;
	ctx->rcq_channel = conn->queues[IW_RCQ].channel;
	ctx->private_[0] = (void *)(uintptr_t)conn;
}

int conn_of(const struct iw_ctx_conn *ctx, struct conn **out)
{
	*out = ctx ? ctx->private_[0] : NULL;
	if (!ctx)
		return error_say(EINVAL, "there is no context");
	if (!*out)
		return error_say(ENOTCONN, "the context has no connection");
	return 0;
}

int conn_of_open(const struct iw_ctx_conn *ctx, struct conn **out)
{
	int error = conn_of(ctx, out);

	if (!error && (*out)->state != CONN_OPEN)
		error = error_say(ENOTCONN, "the context is not connected");
	return error;
}

size_t iw_peer_data(const struct iw_ctx_conn *iw_ctx, void *out, size_t size)
{
	struct conn *conn;

	if (conn_of(iw_ctx, &conn))
		return 0;
	if (out)
		memcpy(out, conn->peer_data, conn->peer_len < size ? conn->peer_len : size);
	return conn->peer_len;
}

static int copy_address(const struct sockaddr *from, struct sockaddr_storage *out)
{
	if (!out)
		return error_say(EINVAL, "there is no place for the address");
	memset(out, 0, sizeof(*out));
	memcpy(out, from,
	       from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					   : sizeof(struct sockaddr_in));
	return 0;
}

/* A listener has an id too. */
static int id_of(const struct iw_ctx_conn *ctx, struct rdma_cm_id **out)
{
	*out = ctx ? ctx->cm_id : NULL;
	return *out ? 0 : error_say(ENOTCONN, "the context has no connection");
}

int iw_peer_address(const struct iw_ctx_conn *iw_ctx, struct sockaddr_storage *out)
{
	struct rdma_cm_id *id;
	int error = id_of(iw_ctx, &id);

	if (!error && !iw_ctx->private_[0])
		error = error_say(ENOTCONN, "a listener has no peer");
	return error_return(error ? error : copy_address(rdma_get_peer_addr(id), out));
}

int iw_local_address(const struct iw_ctx_conn *iw_ctx, struct sockaddr_storage *out)
{
	struct rdma_cm_id *id;
	int error = id_of(iw_ctx, &id);

	return error_return(error ? error : copy_address(rdma_get_local_addr(id), out));
}

/* ---- the end ---- */

void conn_end(struct conn *conn, int error)
{
	static const uint64_t one = 1;

	if (conn->ended)
		return;
	conn->ended = error;
	if (write(conn->end_fd, &one, sizeof(one)) < 0)
		log_error("cannot wake who waits for a connection: %s", strerror(errno));
	news_tell(&conn->news);
}

/* Not every device tells the peer of a failure. */
void conn_fail(struct conn *conn, enum ibv_wc_status status)
{
	bool is_first = !conn->ended;

	conn_end(conn, status == IBV_WC_WR_FLUSH_ERR ? ECONNRESET : EIO);
	if (is_first && !conn->is_iwarp)
		rdma_disconnect(conn->id);
}

int conn_say_ended(const struct conn *conn)
{
	int error = conn->ended;

	switch (error) {
	case ECONNRESET:
		return error_say(error, "the connection was ended by the peer");
	case ENODEV:
		return error_say(error, "the connection has ended: its device was removed");
	case EPROTO:
		return error_say(error, "the connection has ended: the peer said no hello");
	default:
		return error_say(error, "the connection has ended: a request failed");
	}
}

static void give_back(struct conn *conn, struct iw_ctx_conn *ctx)
{
	conn_free(conn);
	ctx_clear(ctx);
}

/* What was posted leaves first; what cannot does not keep us. */
static void leave_politely(struct conn *conn)
{
	conn_lock(conn);
	sendq_drain(conn, deadline_in(DRAIN_MS));
	if (conn->sendq.count && !conn->ended)
		log_warn("disconnected with %u requests outstanding", conn->sendq.count);
	conn_unlock(conn);
	rdma_disconnect(conn->id);
	/* The CM asks again if its question was lost, as long as the id is there. */
	cm_await_end(conn, deadline_in(LAST_EVENT_MS));
}

int iw_disconnect(struct iw_ctx_conn *iw_ctx)
{
	struct conn *conn;
	int error = conn_of(iw_ctx, &conn);

	if (error)
		return error_return(error);
	if (conn->state == CONN_OPEN && !conn->ended)
		leave_politely(conn);
	return iw_ctx_free(iw_ctx);
}

int iw_await_disconnect(struct iw_ctx_conn *iw_ctx)
{
	struct conn *conn;
	int error = conn_of_open(iw_ctx, &conn);

	if (!error)
		error = cm_await_end(conn, NEVER);
	if (error)
		return error_return(error);
	give_back(conn, iw_ctx);
	return 0;
}

int iw_ctx_free(struct iw_ctx_conn *iw_ctx)
{
	struct conn *conn;

	if (!iw_ctx)
		return error_return(error_say(EINVAL, "there is no context"));
	if (iw_ctx->private_[1])
		return iw_close(iw_ctx);
	conn = iw_ctx->private_[0];
	if (!conn)
		return 0;
	if (conn->state == CONN_REQUESTED)
		rdma_reject(conn->id, NULL, 0);
	else if (conn->state == CONN_OPEN && !conn->ended)
		rdma_disconnect(conn->id);
	give_back(conn, iw_ctx);
	return 0;
}
