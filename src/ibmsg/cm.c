/* SPDX-License-Identifier: MIT */
/* Connections until they are established, and listeners: what the CM's events make of them. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/log.h"
#include "internal.h"

#define RESOLVE_MS        2000
#define RETRIES           6 /* 7 would be for ever on some devices */
#define RNR_FOREVER       7
#define REJECT_NO_SERVICE 8 /* InfiniBand's reason when nobody listens */

/* ---- names and addresses ---- */

int cm_resolve(const char *host, unsigned short port, struct addrinfo **out)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV | (host ? 0 : AI_PASSIVE),
	};
	char service[8];
	int error;

	snprintf(service, sizeof(service), "%hu", port);
	error = getaddrinfo(host, service, &hints, out);
	if (error)
		log_error("%s: %s", host ? host : "*", gai_strerror(error));
	return error ? IBMSG_GETADDRINFO_FAILED : IBMSG_OK;
}

static void name_conn(struct conn *conn)
{
	const struct sockaddr *peer = rdma_get_peer_addr(conn->id);
	char host[INET6_ADDRSTRLEN + 1] = "?", port[8] = "?";

	getnameinfo(peer,
		    peer->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						: sizeof(struct sockaddr_in),
		    host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(conn->name, sizeof(conn->name), peer->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
		 host, port);
}

static int error_of_errno(int error)
{
	switch (error < 0 ? -error : error) {
	case ECONNREFUSED:
		return IBMSG_REFUSED;
	case ECONNRESET:
		return IBMSG_REJECTED;
	case ETIMEDOUT:
		return IBMSG_TIMED_OUT;
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EADDRNOTAVAIL:
		return IBMSG_UNREACHABLE;
	case ENODEV:
		return IBMSG_NO_DEVICE;
	default:
		return IBMSG_CONNECTION_LOST;
	}
}

/* ---- the connector ---- */

static int begin_attempt(struct conn *conn)
{
	int error;

	if (rdma_create_id(conn->loop->channel, &conn->id, conn, RDMA_PS_TCP)) {
		conn->id = NULL;
		log_error("cannot create an id: %s", strerror(errno));
		return IBMSG_CREATE_ID_FAILED;
	}
	conn->socket->cmid = conn->id;
	if (rdma_resolve_addr(conn->id, NULL, conn->address->ai_addr, RESOLVE_MS)) {
		error = error_of_errno(errno);
		log_error("Could not resolve address: %s", strerror(errno));
		return error == IBMSG_UNREACHABLE || error == IBMSG_NO_DEVICE
			       ? error
			       : IBMSG_ADDRESS_RESOLUTION_FAILED;
	}
	return IBMSG_OK;
}

static void end_attempt(struct conn *conn)
{
	conn_unequip(conn);
	if (conn->id)
		rdma_destroy_id(conn->id);
	conn->id = NULL;
	conn->socket->cmid = NULL;
	if (conn->device)
		device_put(conn->device, conn->cq);
	conn->device = NULL;
}

/* A name may have several addresses. */
static bool next_address(struct conn *conn)
{
	if (!conn->connector || !conn->address->ai_next || conn->cancelled)
		return false;
	conn->address = conn->address->ai_next;
	return true;
}

int cm_connect(struct loop *loop, ibmsg_socket *socket, struct addrinfo *addresses,
	       const void *user_data, size_t len)
{
	struct conn *conn = loop->ended ? NULL : conn_new(loop, socket, true);
	int error;

	if (!conn) {
		freeaddrinfo(addresses);
		return loop->ended ? IBMSG_CLOSED : IBMSG_ALLOC_FAILED;
	}
	conn->addresses = conn->address = addresses;
	conn->ours.user_len = (uint8_t)len;
	if (len)
		memcpy(conn->ours.user, user_data, len);
	do {
		error = begin_attempt(conn);
		if (error)
			end_attempt(conn);
	} while (error && next_address(conn));
	if (error) {
		conn_free(conn);
		return error;
	}
	socket_private(socket)->conn = conn;
	conn_start_timer(conn);
	return IBMSG_OK;
}

/* On with the next address, if there is one. */
static void attempt_failed(struct conn *conn, int error)
{
	while (next_address(conn)) {
		end_attempt(conn);
		conn->state = CONN_RESOLVING;
		if (!begin_attempt(conn))
			return;
	}
	conn_close(conn, error);
}

static void address_resolved(struct conn *conn)
{
	int error = device_get(conn->loop, conn->id->verbs, &conn->device, &conn->cq);

	if (error) {
		conn->device = NULL;
		log_error("cannot use %s: %s", ibv_get_device_name(conn->id->verbs->device),
			  strerror(-error));
		attempt_failed(conn, error == -ENOMEM ? IBMSG_MEMORY_REGISTRATION_FAILED
						      : IBMSG_NO_DEVICE);
		return;
	}
	name_conn(conn);
	set_socket_status(conn->socket, IBMSG_ADDRESS_RESOLVED);
	if (rdma_resolve_route(conn->id, RESOLVE_MS)) {
		log_error("%s: Resolve route failed: %s", conn->name, strerror(errno));
		attempt_failed(conn, IBMSG_UNREACHABLE);
	}
}

static struct rdma_conn_param param_for(const struct conn *conn, const uint8_t *data, size_t len)
{
	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = (uint8_t)len,
		.responder_resources = conn->reads,
		.initiator_depth = conn->reads,
		.retry_count = RETRIES,
		.rnr_retry_count = RNR_FOREVER,
	};
}

static void route_resolved(struct conn *conn)
{
	uint8_t data[PROTO_PRIVATE_MAX];
	struct rdma_conn_param param;
	int error = conn_equip(conn);

	if (error) {
		attempt_failed(conn, error);
		return;
	}
	set_socket_status(conn->socket, IBMSG_ROUTE_RESOLVED);
	conn->reads = conn->device->max_reads;
	conn->state = CONN_CONNECTING;
	param = param_for(conn, data, proto_put_private(data, &conn->ours));
	if (rdma_connect(conn->id, &param)) {
		error = errno;
		log_warn("%s: RDMA connect failed: %s", conn->name, strerror(error));
		attempt_failed(conn, error_of_errno(error));
	}
}

static uint8_t least(uint8_t ours, uint8_t theirs)
{
	return theirs && theirs < ours ? theirs : ours;
}

static void established(struct conn *conn, const struct rdma_conn_param *param)
{
	if (conn->state != CONN_CONNECTING)
		return;
	if (conn->connector) {
		conn->peer = proto_get_private(param->private_data, param->private_data_len,
					       &conn->theirs);
		conn->reads = least(least(conn->reads, param->initiator_depth),
				    param->responder_resources);
	}
	if (conn->peer == PEER_UNKNOWN)
		conn_close(conn, IBMSG_PROTOCOL_ERROR);
	else
		conn_opened(conn);
}

/* ---- the listener ---- */

static void set_port(struct sockaddr *addr, uint16_t port)
{
	if (addr->sa_family == AF_INET6)
		((struct sockaddr_in6 *)addr)->sin6_port = port;
	else
		((struct sockaddr_in *)addr)->sin_port = port;
}

/* One more address of a listener, at the port of those before. */
static int add_address(struct listener *listener, struct sockaddr *addr, int backlog)
{
	struct rdma_cm_id *id;
	int only = 1, error = IBMSG_OK;

	if (rdma_create_id(listener->loop->channel, &id, listener, RDMA_PS_TCP)) {
		log_error("cannot create an id: %s", strerror(errno));
		return IBMSG_CREATE_ID_FAILED;
	}
	/* Devices differ in whether an IPv6 listener takes IPv4 too: so it never does. */
	if (addr->sa_family == AF_INET6)
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only));
	if (listener->num_ids)
		set_port(addr, rdma_get_src_port(listener->ids[0]));
	if (rdma_bind_addr(id, addr))
		error = IBMSG_BIND_FAILED;
	else if (rdma_listen(id, backlog))
		error = IBMSG_LISTEN_FAILED;
	if (error) {
		log_at(listener->num_ids ? LOG_INFO : LOG_ERROR, "cannot listen: %s",
		       strerror(errno));
		rdma_destroy_id(id);
		return error;
	}
	listener->ids[listener->num_ids++] = id;
	return IBMSG_OK;
}

int cm_listen(struct loop *loop, ibmsg_socket *socket, struct addrinfo *addresses, bool all,
	      int backlog)
{
	struct listener *listener = loop->ended ? NULL : calloc(1, sizeof(*listener));
	int error = loop->ended ? IBMSG_CLOSED : IBMSG_ALLOC_FAILED;

	if (!listener)
		goto out;
	listener->loop = loop;
	listener->socket = socket;
	for (const struct addrinfo *at = addresses; at && listener->num_ids < LISTENER_IDS;
	     at = at->ai_next) {
		error = add_address(listener, at->ai_addr, backlog);
		if (!all)
			break;
	}
	if (!listener->num_ids) {
		free(listener);
		goto out;
	}
	error = IBMSG_OK;
	list_add_tail(&loop->listeners, &listener->link);
	socket_private(socket)->listener = listener;
	socket->cmid = listener->ids[0];
out:
	freeaddrinfo(addresses);
	return error;
}

void cm_close_listener(struct listener *listener)
{
	for (unsigned i = 0; i < listener->num_ids; i++)
		rdma_destroy_id(listener->ids[i]);
	list_del(&listener->link);
	socket_private(listener->socket)->listener = NULL;
	listener->socket->cmid = NULL;
	free(listener);
}

static struct listener *find_listener(struct loop *loop, const struct rdma_cm_id *id)
{
	struct list *pos;

	list_for_each (pos, &loop->listeners) {
		struct listener *listener = container_of(pos, struct listener, link);

		for (unsigned i = 0; i < listener->num_ids; i++)
			if (listener->ids[i] == id)
				return listener;
	}
	return NULL;
}

/* ---- requests ---- */

/* What the callback decides on: behind its ibmsg_connection_request. */
struct request {
	ibmsg_connection_request public;
	struct loop *loop;
	enum proto_peer peer;
	struct proto_private theirs;
	uint8_t reads;
	bool decided;
};

static struct request *request_of(ibmsg_connection_request *public)
{
	return public->private_[0];
}

static int try_accept(struct conn *conn, const struct request *request)
{
	uint8_t data[PROTO_PRIVATE_MAX];
	struct rdma_conn_param param;
	bool bare = conn->peer == PEER_ORIGINAL;
	int error = device_get(conn->loop, conn->id->verbs, &conn->device, &conn->cq);

	if (error) {
		conn->device = NULL;
		log_error("cannot use %s: %s", ibv_get_device_name(conn->id->verbs->device),
			  strerror(-error));
		return IBMSG_ACCEPT_FAILED;
	}
	error = conn_equip(conn);
	if (error)
		return error;
	conn->reads = least(conn->device->max_reads, request->reads);
	param = param_for(conn, data, bare ? 0 : proto_put_private(data, &conn->ours));
	if (bare)
		param.private_data = NULL;
	if (rdma_accept(conn->id, &param)) {
		log_error("%s: cannot accept: %s", conn->name, strerror(errno));
		return IBMSG_ACCEPT_FAILED;
	}
	return IBMSG_OK;
}

int cm_accept(ibmsg_connection_request *public, ibmsg_socket *socket, const void *user_data,
	      size_t len)
{
	struct request *request = request_of(public);
	struct conn *conn;
	int error;

	if (request->decided)
		return IBMSG_INVALID_ARGUMENT;
	conn = conn_new(request->loop, socket, false);
	if (!conn)
		return IBMSG_ALLOC_FAILED;
	conn->id = public->cmid;
	conn->state = CONN_CONNECTING;
	conn->peer = request->peer;
	conn->theirs = request->theirs;
	conn->ours.user_len = (uint8_t)len;
	if (len)
		memcpy(conn->ours.user, user_data, len);
	name_conn(conn);
	error = try_accept(conn, request);
	if (error) {
		conn_unequip(conn);
		if (conn->device)
			device_put(conn->device, conn->cq);
		conn_free(conn);
		return error;
	}
	request->decided = true;
	public->status = IBMSG_ACCEPTED;
	conn->id->context = conn;
	socket->cmid = conn->id;
	socket_private(socket)->conn = conn;
	conn_start_timer(conn);
	log_debug("connection request accepted");
	return IBMSG_OK;
}

int cm_reject(ibmsg_connection_request *public, const void *reason, size_t len)
{
	struct request *request = request_of(public);
	struct proto_private why = {
		.version = PROTO_VERSION, .max_send = RECV_BYTES, .user_len = (uint8_t)len};
	uint8_t data[PROTO_PRIVATE_MAX];

	if (request->decided)
		return IBMSG_INVALID_ARGUMENT;
	if (len)
		memcpy(why.user, reason, len);
	request->decided = true;
	log_debug("connection request rejected");
	if (rdma_reject(public->cmid, data, (uint8_t)proto_put_private(data, &why)))
		log_warn("cannot reject: %s", strerror(errno));
	return IBMSG_OK;
}

static void requested(struct loop *loop, struct rdma_cm_id *id, struct request *request)
{
	void (*callback)(ibmsg_connection_request *) = loop->event_loop->connection_request;

	request->loop = loop;
	request->public = (ibmsg_connection_request){
		.cmid = id,
		.status = IBMSG_UNDECIDED,
		.user_data = request->theirs.user,
		.user_data_len = request->theirs.user_len,
	};
	request->public.private_[0] = request;
	request->public.private_[1] = loop;
	if (request->peer == PEER_UNKNOWN)
		log_warn("a connection request of another version is rejected");
	else if (callback)
		CALLBACK(loop, callback(&request->public));
	if (request->public.status == IBMSG_ACCEPTED)
		return;
	if (!request->decided)
		cm_reject(&request->public, NULL, 0);
	rdma_destroy_id(id);
}

/* ---- events ---- */

static int rejected_error(struct conn *conn, int status, const struct rdma_conn_param *param)
{
	/* A reason of ours says that somebody is there. */
	if (proto_get_private(param->private_data, param->private_data_len, &conn->theirs) ==
	    PEER_IBMSG)
		return IBMSG_REJECTED;
	if (status == REJECT_NO_SERVICE)
		return IBMSG_REFUSED;
	return status < 0 ? error_of_errno(status) : IBMSG_REJECTED;
}

/* What is in the CQ came before the end. */
static void disconnected(struct conn *conn)
{
	while (conn->cq && loop_poll_cq(conn->cq))
		continue;
	if (conn->peer == PEER_ORIGINAL && !conn->doom && send_is_idle(conn))
		conn_close(conn, IBMSG_OK); /* it has no other way to say so */
	else
		conn_end(conn, conn->doom ? conn->doom : IBMSG_CONNECTION_LOST);
}

static void conn_event(struct conn *conn, enum rdma_cm_event_type type, int status,
		       const struct rdma_conn_param *param)
{
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		address_resolved(conn);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		route_resolved(conn);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(conn, param);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		log_warn("%s: Could not route: %s", conn->name, strerror(abs(status)));
		attempt_failed(conn, status == -ENODEV ? IBMSG_NO_DEVICE : IBMSG_UNREACHABLE);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		attempt_failed(conn, error_of_errno(status));
		break;
	case RDMA_CM_EVENT_REJECTED:
		attempt_failed(conn, rejected_error(conn, status, param));
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		disconnected(conn);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		device_removed(conn->loop, conn->id->verbs);
		conn_close(conn, IBMSG_DEVICE_REMOVED);
		break;
	default:
		break; /* TIMEWAIT_EXIT, ADDR_CHANGE: nothing to do */
	}
}

static void listener_event(struct listener *listener, const struct rdma_cm_id *id,
			   enum rdma_cm_event_type type)
{
	ibmsg_socket *socket = listener->socket;

	if (type != RDMA_CM_EVENT_DEVICE_REMOVAL)
		return;
	log_error("a listener ends: its device was removed");
	device_removed(listener->loop, id->verbs);
	cm_close_listener(listener);
	socket->error = IBMSG_DEVICE_REMOVED;
	set_socket_status(socket, IBMSG_ERROR);
}

bool cm_dispatch(struct loop *loop)
{
	struct rdma_cm_event *event;
	struct rdma_conn_param param;
	struct request request = {.peer = PEER_ORIGINAL};
	uint8_t data[256];
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	struct listener *listener;
	int status;

	if (rdma_get_cm_event(loop->channel, &event))
		return false;
	log_debug("EVENT: %s", rdma_event_str(event->event));
	if (event->status)
		log_info("%s, status %d", rdma_event_str(event->event), event->status);
	type = event->event;
	id = event->id;
	status = event->status;
	/* The event must be acknowledged before its id can be destroyed. */
	param = event->param.conn;
	if (param.private_data)
		memcpy(data, param.private_data, param.private_data_len);
	param.private_data = param.private_data ? data : NULL;
	rdma_ack_cm_event(event);

	listener = find_listener(loop, id);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		request.peer = proto_get_private(param.private_data, param.private_data_len,
						 &request.theirs);
		request.reads =
			least(least(MAX_READS, param.initiator_depth), param.responder_resources);
		requested(loop, id, &request);
	} else if (listener) {
		listener_event(listener, id, type);
	} else {
		conn_event(id->context, type, status, &param);
	}
	return true;
}
