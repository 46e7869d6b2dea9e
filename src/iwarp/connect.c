/* SPDX-License-Identifier: MIT */
/* The initiator: from a name to an open connection. */
#include "internal.h"

#define RESOLVE_MS 2000
#define CONNECT_MS 30000

/* ---- the way ---- */

/* An id with a device and a route to conn->address. */
static int find_route(struct conn *conn)
{
	int error;

	if (rdma_create_id(conn->channel, &conn->id, NULL, RDMA_PS_TCP)) {
		conn->id = NULL;
		return error_of(errno, "cannot create an id");
	}
	if (rdma_resolve_addr(conn->id, NULL, conn->address->ai_addr, RESOLVE_MS))
		return error_of(errno, "cannot resolve the address");
	error = cm_expect(conn, RDMA_CM_EVENT_ADDR_RESOLVED, deadline_in(2 * RESOLVE_MS));
	if (error)
		return error;
	if (rdma_resolve_route(conn->id, RESOLVE_MS))
		return error_of(errno, "cannot resolve the route");
	return cm_expect(conn, RDMA_CM_EVENT_ROUTE_RESOLVED, deadline_in(2 * RESOLVE_MS));
}

static void drop_id(struct conn *conn)
{
	if (conn->id && conn->id->qp)
		rdma_destroy_qp(conn->id);
	if (conn->id)
		rdma_destroy_id(conn->id);
	conn->id = NULL;
}

/* A name may have several addresses: the first from conn->address on that there is a way to. */
static int find_first_route(struct conn *conn)
{
	int error;

	for (;;) {
		error = find_route(conn);
		if (!error || !conn->address->ai_next)
			return error;
		drop_id(conn);
		conn->address = conn->address->ai_next;
	}
}

static int prepare(struct conn *conn, const char *host, int port, int capacity,
		   struct ibv_pd *shared)
{
	int error = cm_resolve(host, port, &conn->addresses);

	if (error)
		return error;
	conn->address = conn->addresses;
	error = find_first_route(conn);
	if (!error)
		error = conn_equip(conn, capacity, shared);
	conn->is_early = true;
	return error;
}

int iw_ctx_alloc(const char *remote_addr, int remote_port, int qp_capacity,
		 struct ibv_pd *shared_pd, struct iw_ctx_conn *iw_ctx)
{
	struct conn *conn;
	int error;

	if (!iw_ctx)
		return error_return(error_say(EINVAL, "there is no context"));
	ctx_clear(iw_ctx);
	if (!remote_addr)
		return error_return(error_say(EINVAL, "there is no address"));
	error = conn_new(&conn);
	if (error)
		return error_return(error);
	error = prepare(conn, remote_addr, remote_port, qp_capacity, shared_pd);
	if (error)
		conn_free(conn);
	else
		conn_show(conn, iw_ctx);
	return error_return(error);
}

/* ---- the connection ---- */

static int error_of_connect(int error)
{
	if (error == ECONNREFUSED)
		return error_say(error, "nobody listens at that address and port");
	if (error == ECONNRESET)
		return error_say(EACCES, "the peer rejected the connection");
	return error_of(error, "cannot connect");
}

static int connect_once(struct conn *conn, const uint8_t *data, size_t len)
{
	struct rdma_conn_param param = cm_param(conn, data, len);
	int error;

	/* An iWARP acceptor cannot speak before it is spoken to; others can at once. */
	if (!conn->is_iwarp) {
		error = recvq_post_early(conn);
		if (error)
			return error;
	}
	if (rdma_connect(conn->id, &param))
		return error_of_connect(errno);
	return cm_expect(conn, RDMA_CM_EVENT_ESTABLISHED, deadline_in(CONNECT_MS));
}

/* On the same device, where the regions are. */
static bool next_address(struct conn *conn)
{
	const struct ibv_context *verbs = conn->id->verbs;

	while (conn->address->ai_next) {
		conn->address = conn->address->ai_next;
		drop_id(conn);
		if (!find_route(conn) && conn->id->verbs == verbs && !conn_make_qp(conn))
			return true;
	}
	return false;
}

static bool is_nobody_there(int error)
{
	return error == -ECONNREFUSED || error == -EHOSTUNREACH || error == -ENETUNREACH;
}

static int connect_any(struct conn *conn, const uint8_t *data, size_t len)
{
	int error;

	do
		error = connect_once(conn, data, len);
	while (is_nobody_there(error) && next_address(conn));
	return error;
}

/* The hello's receive comes first: its message does. */
static int open_connection(struct conn *conn)
{
	int error = 0;

	if (conn->peer == PEER_UNKNOWN)
		return error_say(EPROTO, "the peer has a libiwarp of another version");
	conn->is_early = false;
	conn->state = CONN_OPEN;
	if (conn->is_iwarp) {
		if (conn->peer == PEER_OURS)
			error = recvq_post_record(conn, true);
		if (!error)
			error = recvq_post_early(conn);
	}
	fifo_fini(&conn->recvq.early);
	return error ? error : cm_greet(conn, true);
}

int iw_connect(const void *priv_data, size_t priv_data_len, struct iw_ctx_conn *iw_ctx)
{
	uint8_t data[RECORD_PRIVATE_MAX];
	struct conn *conn;
	int error = conn_of(iw_ctx, &conn), len = 0;

	if (!error && conn->state != CONN_PREPARED)
		error = error_say(EISCONN, "the context cannot be connected, or once more");
	if (!error) {
		len = cm_make_private(priv_data, priv_data_len, data);
		error = len < 0 ? len : 0;
	}
	if (error)
		return error_return(error);
	error = connect_any(conn, data, (size_t)len);
	if (!error)
		error = open_connection(conn);
	conn_show(conn, iw_ctx);
	if (error)
		conn->state = CONN_FAILED;
	return error_return(error);
}
