/* SPDX-License-Identifier: MIT */
/* The public calls: arguments are checked, the loop is locked, the work is done elsewhere. */
#include <string.h>

#include "internal.h"

/* ---- loops ---- */

int ibmsg_init_event_loop(ibmsg_event_loop *event_loop)
{
	if (!event_loop)
		return IBMSG_INVALID_ARGUMENT;
	memset(event_loop, 0, sizeof(*event_loop));
	event_loop->epollfd = -1;
	return loop_open(event_loop);
}

int ibmsg_destroy_event_loop(ibmsg_event_loop *event_loop)
{
	struct loop *loop = event_loop ? loop_of(event_loop) : NULL;

	if (!loop)
		return IBMSG_INVALID_ARGUMENT;
	loop_lock(loop);
	if (loop->dispatching) {
		loop_unlock(loop);
		return IBMSG_BUSY;
	}
	loop_close(loop);
	event_loop->private_[0] = NULL;
	event_loop->event_channel = NULL;
	event_loop->epollfd = -1;
	return IBMSG_OK;
}

int ibmsg_dispatch_event_loop_timeout(ibmsg_event_loop *event_loop, int timeout_ms)
{
	struct loop *loop = event_loop ? loop_of(event_loop) : NULL;
	int error;

	if (!loop)
		return IBMSG_INVALID_ARGUMENT;
	loop_lock(loop);
	error = loop_dispatch(loop, timeout_ms < 0 ? -1 : timeout_ms);
	loop_unlock(loop);
	return error;
}

int ibmsg_dispatch_event_loop(ibmsg_event_loop *event_loop)
{
	return ibmsg_dispatch_event_loop_timeout(event_loop, -1);
}

int ibmsg_event_loop_fd(const ibmsg_event_loop *event_loop)
{
	struct loop *loop = event_loop ? loop_of(event_loop) : NULL;

	if (!loop)
		return -1;
	loop_lock(loop);
	if (!loop->fd_is_shared) {
		/* Completions are not waited for yet: the first dispatch sees to it. */
		loop->fd_is_shared = true;
		loop_wake(loop);
	}
	loop_unlock(loop);
	return loop->epoll_fd;
}

/* No lock: a signal handler may have interrupted whoever holds it. */
int ibmsg_wake_event_loop(ibmsg_event_loop *event_loop)
{
	struct loop *loop = event_loop ? loop_of(event_loop) : NULL;

	if (!loop)
		return IBMSG_INVALID_ARGUMENT;
	loop_wake(loop);
	return IBMSG_OK;
}

/* ---- settings ---- */

#define SETTER(name, type, field)                                                                  \
	int name(ibmsg_event_loop *event_loop, type value)                                         \
	{                                                                                          \
		struct loop *loop = event_loop ? loop_of(event_loop) : NULL;                       \
                                                                                                   \
		if (!loop)                                                                         \
			return IBMSG_INVALID_ARGUMENT;                                             \
		loop_lock(loop);                                                                   \
		loop->field = value;                                                               \
		loop_unlock(loop);                                                                 \
		return IBMSG_OK;                                                                   \
	}

SETTER(ibmsg_set_busy_poll, unsigned, busy_poll_us)
SETTER(ibmsg_set_connect_timeout, unsigned, connect_ms)
SETTER(ibmsg_set_keepalive, unsigned, keepalive_ms)
SETTER(ibmsg_set_max_message, uint64_t, max_message)

/* Who waits for memory may find some. */
int ibmsg_set_max_memory(ibmsg_event_loop *event_loop, uint64_t bytes)
{
	struct loop *loop = event_loop ? loop_of(event_loop) : NULL;

	if (!loop)
		return IBMSG_INVALID_ARGUMENT;
	loop_lock(loop);
	loop->max_memory = bytes;
	loop_unlock(loop);
	loop_wake(loop);
	return IBMSG_OK;
}

/* ---- connections ---- */

static void init_socket(ibmsg_socket *socket, struct loop *loop, enum ibmsg_socket_type type)
{
	socket->cmid = NULL;
	socket->socket_type = type;
	socket->error = IBMSG_OK;
	memset(&socket->recv_buffer, 0, sizeof(socket->recv_buffer));
	socket->send_event_description =
		(struct _ibmsg_event_description){IBMSG_SEND_COMPLETION, socket};
	socket->recv_event_description =
		(struct _ibmsg_event_description){IBMSG_RECV_COMPLETION, socket};
	memset(socket->private_, 0, sizeof(socket->private_));
	socket_private(socket)->loop = loop;
	set_socket_status(socket, IBMSG_UNCONNECTED);
}

int ibmsg_connect_with(ibmsg_event_loop *event_loop, ibmsg_socket *connection, const char *host,
		       unsigned short port, const void *user_data, size_t len)
{
	struct loop *loop = event_loop ? loop_of(event_loop) : NULL;
	struct addrinfo *addresses;
	int error;

	if (!loop || !connection || !host || len > IBMSG_MAX_USER_DATA || (len && !user_data))
		return IBMSG_INVALID_ARGUMENT;
	init_socket(connection, loop, IBMSG_SEND_SOCKET);
	error = cm_resolve(host, port, &addresses);
	if (error)
		return error;
	loop_lock(loop);
	error = cm_connect(loop, connection, addresses, user_data, len);
	loop_unlock(loop);
	return error;
}

int ibmsg_connect(ibmsg_event_loop *event_loop, ibmsg_socket *connection, char *ip,
		  unsigned short port)
{
	return ibmsg_connect_with(event_loop, connection, ip, port, NULL, 0);
}

int ibmsg_listen(ibmsg_event_loop *event_loop, ibmsg_socket *socket, char *ip, short port,
		 int max_connections)
{
	struct loop *loop = event_loop ? loop_of(event_loop) : NULL;
	bool any = !ip || !*ip || !strcmp(ip, "*");
	struct addrinfo *addresses;
	int error;

	if (!loop || !socket || max_connections < 0)
		return IBMSG_INVALID_ARGUMENT;
	init_socket(socket, loop, IBMSG_LISTEN_SOCKET);
	error = cm_resolve(any ? NULL : ip, (unsigned short)port, &addresses);
	if (error)
		return error;
	loop_lock(loop);
	error = cm_listen(loop, socket, addresses, any, max_connections);
	loop_unlock(loop);
	return error;
}

/* The request's loop, which is in its callback. */
static struct loop *loop_of_request(const ibmsg_connection_request *request)
{
	return request->private_[1];
}

int ibmsg_accept_with(ibmsg_connection_request *request, ibmsg_socket *connection,
		      const void *user_data, size_t len)
{
	struct loop *loop;
	int error;

	if (!request || !connection || len > IBMSG_MAX_USER_DATA || (len && !user_data))
		return IBMSG_INVALID_ARGUMENT;
	loop = loop_of_request(request);
	loop_lock(loop);
	init_socket(connection, loop, IBMSG_RECV_SOCKET);
	error = cm_accept(request, connection, user_data, len);
	loop_unlock(loop);
	return error;
}

int ibmsg_accept(ibmsg_connection_request *request, ibmsg_socket *connection)
{
	return ibmsg_accept_with(request, connection, NULL, 0);
}

int ibmsg_reject(ibmsg_connection_request *request, const void *reason, size_t len)
{
	struct loop *loop;
	int error;

	if (!request || len > IBMSG_MAX_USER_DATA || (len && !reason))
		return IBMSG_INVALID_ARGUMENT;
	loop = loop_of_request(request);
	loop_lock(loop);
	error = cm_reject(request, reason, len);
	loop_unlock(loop);
	return error;
}

int ibmsg_disconnect(ibmsg_socket *socket)
{
	struct loop *loop;

	if (!socket || !socket_private(socket)->loop)
		return IBMSG_INVALID_ARGUMENT;
	loop = socket_private(socket)->loop;
	loop_lock(loop);
	if (socket_private(socket)->listener)
		cm_close_listener(socket_private(socket)->listener);
	else if (socket_private(socket)->conn)
		conn_disconnect(socket_private(socket)->conn);
	loop_unlock(loop);
	return IBMSG_OK;
}

/* ---- messages ---- */

int ibmsg_alloc_msg(ibmsg_buffer *msg, ibmsg_socket *connection, size_t size)
{
	struct block *block = NULL;
	struct loop *loop;
	struct conn *conn;
	bool possible;

	if (!msg || !connection || !socket_private(connection)->loop)
		return IBMSG_INVALID_ARGUMENT;
	loop = socket_private(connection)->loop;
	loop_lock(loop);
	conn = socket_private(connection)->conn;
	possible = conn && conn->device;
	if (possible)
		block = pool_get(conn->device->pool, size);
	loop_unlock(loop);
	if (!possible)
		return IBMSG_NOT_CONNECTED;
	if (!block)
		return IBMSG_ALLOC_FAILED;
	*msg = block->msg;
	return IBMSG_OK;
}

int ibmsg_free_msg(ibmsg_buffer *msg)
{
	struct buffer_private *private;
	struct block *block;

	if (!msg)
		return IBMSG_INVALID_ARGUMENT;
	private = buffer_private(msg);
	if (!private->block)
		return IBMSG_FREE_BUFFER_FAILED;
	if (private->conn)
		return IBMSG_BUSY;
	block = private->block;
	/* The message may live in the block. */
	private->block = NULL;
	msg->data = NULL;
	msg->mr = NULL;
	block_put(block);
	return IBMSG_OK;
}

/* The bytes are in the block that the message was given, behind room for a header. */
static bool is_whole(ibmsg_buffer *msg)
{
	const struct block *block = buffer_private(msg)->block;
	const uint8_t *data = msg->data, *first, *end;

	if (!block)
		return false;
	first = block->slot ? block->base + PROTO_HEADER_LEN : block->base;
	if (block->carrier)
		first = block_bytes(block);
	end = block_bytes(block) + block->room;
	if (data < first || data > end || (!block->slot && data != first))
		return false;
	return msg->size <= (size_t)(end - data);
}

int ibmsg_post_send(ibmsg_socket *connection, ibmsg_buffer *msg)
{
	struct loop *loop;
	struct conn *conn;
	int error;

	if (!connection || !msg || !socket_private(connection)->loop || !is_whole(msg))
		return IBMSG_INVALID_ARGUMENT;
	loop = socket_private(connection)->loop;
	loop_lock(loop);
	conn = socket_private(connection)->conn;
	if (!conn || conn->closing || conn->doom || conn->state == CONN_CLOSED)
		error = IBMSG_NOT_CONNECTED;
	else if (buffer_private(msg)->conn)
		error = IBMSG_BUSY;
	else if (!conn->device || conn->device->pool != buffer_private(msg)->block->pool)
		error = IBMSG_INVALID_ARGUMENT;
	else
		error = send_post(conn, msg);
	loop_unlock(loop);
	return error;
}

/* ---- questions ---- */

/* Also while its connection_closed is running. */
static struct conn *conn_of(const ibmsg_socket *socket)
{
	struct socket_private *private = socket_private(socket);

	if (private->conn)
		return private->conn;
	return private->loop->ending_socket == socket ? private->loop->ending : NULL;
}

size_t ibmsg_peer_data(const ibmsg_socket *connection, void *out, size_t size)
{
	const struct conn *conn;
	struct loop *loop;
	size_t len = 0;

	if (!connection || !socket_private(connection)->loop)
		return 0;
	loop = socket_private(connection)->loop;
	loop_lock(loop);
	conn = conn_of(connection);
	if (conn) {
		len = conn->theirs.user_len;
		if (out)
			memcpy(out, conn->theirs.user, len < size ? len : size);
	}
	loop_unlock(loop);
	return len;
}

static int get_address(const ibmsg_socket *socket, bool local, struct sockaddr_storage *out)
{
	const struct sockaddr *addr;
	struct rdma_cm_id *id = NULL;
	struct loop *loop;

	if (!socket || !out || !socket_private(socket)->loop)
		return IBMSG_INVALID_ARGUMENT;
	loop = socket_private(socket)->loop;
	loop_lock(loop);
	if (socket_private(socket)->listener)
		id = socket_private(socket)->listener->ids[0];
	else if (conn_of(socket))
		id = conn_of(socket)->id;
	if (id) {
		addr = local ? rdma_get_local_addr(id) : rdma_get_peer_addr(id);
		memset(out, 0, sizeof(*out));
		memcpy(out, addr,
		       addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						   : sizeof(struct sockaddr_in));
	}
	loop_unlock(loop);
	return id ? IBMSG_OK : IBMSG_NOT_CONNECTED;
}

int ibmsg_local_address(const ibmsg_socket *socket, struct sockaddr_storage *out)
{
	return get_address(socket, true, out);
}

int ibmsg_peer_address(const ibmsg_socket *socket, struct sockaddr_storage *out)
{
	return get_address(socket, false, out);
}

enum ibmsg_socket_status ibmsg_socket_status(const ibmsg_socket *socket)
{
	return __atomic_load_n(&socket->status, __ATOMIC_ACQUIRE);
}

enum ibmsg_buffer_status ibmsg_buffer_status(const ibmsg_buffer *msg)
{
	return __atomic_load_n(&msg->status, __ATOMIC_ACQUIRE);
}

static void add_pools(struct loop *loop, ibmsg_stats *out)
{
	struct list *pos;

	list_for_each (pos, &loop->devices) {
		struct pool *pool = container_of(pos, struct device, link)->pool;

		lock_take(&pool->lock);
		out->registered_bytes += pool->registered;
		out->arriving_bytes += pool->arriving;
		lock_give(&pool->lock);
	}
	out->connections = loop->num_conns;
}

int ibmsg_get_stats(const ibmsg_event_loop *event_loop, const ibmsg_socket *socket,
		    ibmsg_stats *out)
{
	struct loop *loop = event_loop ? loop_of(event_loop) : NULL;
	const struct conn *conn;
	struct list *pos;
	int error = IBMSG_OK;

	if (!loop || !out)
		return IBMSG_INVALID_ARGUMENT;
	memset(out, 0, sizeof(*out));
	loop_lock(loop);
	add_pools(loop, out);
	if (socket) {
		conn = conn_of(socket);
		if (conn)
			stats_add(out, &conn->stats);
		else
			error = IBMSG_NOT_CONNECTED;
	} else {
		stats_add(out, &loop->stats);
		list_for_each (pos, &loop->conns)
			stats_add(out, &container_of(pos, struct conn, link)->stats);
	}
	loop_unlock(loop);
	return error;
}
