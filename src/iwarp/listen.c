/* SPDX-License-Identifier: MIT */
/* The responder: listeners, requests, and accepting them. */
#include <stdlib.h>

#include "../common/log.h"
#include "internal.h"

#define LISTENER_IDS 2 /* one for each family */
#define ACCEPT_MS    30000

struct listener {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *ids[LISTENER_IDS];
	unsigned num_ids;
	int capacity;          /* of clients */
	struct domain *domain; /* likewise, or NULL */
};

/* ---- listeners ---- */

static void listener_free(struct listener *listener)
{
	for (unsigned i = 0; i < listener->num_ids; i++)
		rdma_destroy_id(listener->ids[i]);
	if (listener->channel)
		rdma_destroy_event_channel(listener->channel);
	if (listener->domain)
		domain_put(listener->domain);
	free(listener);
}

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
	int only = 1, error = 0;

	if (rdma_create_id(listener->channel, &id, NULL, RDMA_PS_TCP))
		return error_of(errno, "cannot create an id");
	/* Devices differ in whether an IPv6 listener takes IPv4 too: so it never does. */
	if (addr->sa_family == AF_INET6)
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only));
	if (listener->num_ids)
		set_port(addr, rdma_get_src_port(listener->ids[0]));
	if (rdma_bind_addr(id, addr))
		error = error_of(errno, "the address cannot be bound");
	else if (rdma_listen(id, backlog))
		error = error_of(errno, "cannot listen");
	if (error) {
		rdma_destroy_id(id);
		return error;
	}
	listener->ids[listener->num_ids++] = id;
	return 0;
}

static int add_addresses(struct listener *listener, const char *host, int port, int backlog)
{
	struct addrinfo *addresses;
	int error = cm_resolve(host, port, &addresses);

	if (error)
		return error;
	for (const struct addrinfo *at = addresses; at && listener->num_ids < LISTENER_IDS;
	     at = at->ai_next) {
		error = add_address(listener, at->ai_addr, backlog);
		if (host && !error)
			break;
	}
	freeaddrinfo(addresses);
	return listener->num_ids ? 0 : error;
}

int iw_open(const char *listen_addr, int listen_port, int backlog,
	    struct iw_ctx_conn *listen_iw_ctx)
{
	bool is_any = !listen_addr || !*listen_addr || !strcmp(listen_addr, "*");
	struct listener *listener;
	int error;

	if (!listen_iw_ctx)
		return error_return(error_say(EINVAL, "there is no context"));
	ctx_clear(listen_iw_ctx);
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return error_return(error_of(ENOMEM, "a listener"));
	error = cm_open_channel(&listener->channel);
	if (!error)
		error = add_addresses(listener, is_any ? NULL : listen_addr, listen_port, backlog);
	if (error) {
		listener_free(listener);
		return error_return(error);
	}
	listen_iw_ctx->cm_channel = listener->channel;
	listen_iw_ctx->cm_id = listener->ids[0];
	listen_iw_ctx->private_[1] = listener;
	return 0;
}

static int listener_of(const struct iw_ctx_conn *ctx, struct listener **out)
{
	*out = ctx ? ctx->private_[1] : NULL;
	return *out ? 0 : error_say(EINVAL, "the context does not listen");
}

int iw_close(struct iw_ctx_conn *listen_iw_ctx)
{
	struct listener *listener;
	int error = listener_of(listen_iw_ctx, &listener);

	if (error)
		return error_return(error);
	listener_free(listener);
	ctx_clear(listen_iw_ctx);
	return 0;
}

int iw_set_client_options(struct iw_ctx_conn *listen_iw_ctx, int qp_capacity,
			  struct ibv_pd *shared_pd)
{
	struct listener *listener;
	struct domain *domain = NULL;
	int error = listener_of(listen_iw_ctx, &listener);

	if (!error && (qp_capacity < 0 || qp_capacity > MAX_CAPACITY))
		error = error_say(EINVAL, "a capacity of %d is out of range", qp_capacity);
	if (!error && shared_pd)
		error = domain_get(shared_pd->context, shared_pd, &domain);
	if (error)
		return error_return(error);
	if (listener->domain)
		domain_put(listener->domain);
	listener->domain = domain;
	listener->capacity = qp_capacity;
	return 0;
}

/* ---- requests ---- */

/* What a request says, kept beyond its event. */
struct request {
	struct rdma_cm_id *id;
	struct rdma_conn_param param;
	uint8_t data[256];
};

/* The next request; other events of a listener are few. */
static int next_request(struct listener *listener, uint64_t deadline, struct request *request)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;

	for (;;) {
		int error = cm_next(listener->channel, deadline, &event);

		if (error)
			return error == -ETIMEDOUT ? error_say(ETIMEDOUT, "no request has come")
						   : error;
		type = event->event;
		request->id = event->id;
		request->param = event->param.conn;
		if (request->param.private_data)
			memcpy(request->data, request->param.private_data,
			       request->param.private_data_len);
		/* It must be acknowledged before its id can be destroyed. */
		rdma_ack_cm_event(event);
		if (request->param.private_data)
			request->param.private_data = request->data;
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			return 0;
		if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			return error_say(ENODEV, "the listener's device was removed");
	}
}

static void refuse(struct rdma_cm_id *id)
{
	rdma_reject(id, NULL, 0);
	rdma_destroy_id(id);
}

/* The id is the connection's from here on, or gone. */
static int take_request(const struct listener *listener, const struct request *request,
			struct conn **out)
{
	struct conn *conn;
	int error = conn_new(&conn);

	if (error) {
		refuse(request->id);
		return error;
	}
	if (rdma_migrate_id(request->id, conn->channel)) {
		error = error_of(errno, "cannot move a request");
		refuse(request->id);
		conn_free(conn);
		return error;
	}
	conn->id = request->id;
	error = conn_equip(conn, listener->capacity,
			   listener->domain ? listener->domain->pd : NULL);
	if (!error) {
		cm_keep_param(conn, &request->param);
		conn->state = CONN_REQUESTED;
		if (conn->is_iwarp && conn->peer == PEER_OURS)
			error = recvq_post_record(conn, true);
	}
	if (error) {
		rdma_reject(conn->id, NULL, 0);
		conn_free(conn);
		return error;
	}
	*out = conn;
	return 0;
}

static bool is_understood(const struct request *request)
{
	const uint8_t *user;
	size_t len;

	return record_get_private(request->param.private_data, request->param.private_data_len,
				  &user, &len) != PEER_UNKNOWN;
}

int iw_listen_timeout(struct iw_ctx_conn *listen_iw_ctx, struct iw_ctx_conn *cli_iw_ctx,
		      int timeout_ms)
{
	uint64_t deadline = deadline_in(timeout_ms);
	struct listener *listener;
	struct request request;
	struct conn *conn = NULL;
	int error = listener_of(listen_iw_ctx, &listener);

	if (!error && (!cli_iw_ctx || cli_iw_ctx == listen_iw_ctx))
		error = error_say(EINVAL, "a client needs a context of its own");
	if (error)
		return error_return(error);
	ctx_clear(cli_iw_ctx);
	while (!(error = next_request(listener, deadline, &request)) && !is_understood(&request)) {
		log_warn("a request of another version of libiwarp is rejected");
		refuse(request.id);
	}
	if (!error)
		error = take_request(listener, &request, &conn);
	if (!error)
		conn_show(conn, cli_iw_ctx);
	return error_return(error);
}

int iw_listen(struct iw_ctx_conn *listen_iw_ctx, struct iw_ctx_conn *cli_iw_ctx)
{
	return iw_listen_timeout(listen_iw_ctx, cli_iw_ctx, -1);
}

/* ---- the answer ---- */

static int request_of(const struct iw_ctx_conn *ctx, const void *priv, size_t len,
		      struct conn **conn, uint8_t *data, size_t *data_len)
{
	int error = conn_of(ctx, conn), made;

	if (error)
		return error;
	if ((*conn)->state != CONN_REQUESTED)
		return error_say(EINVAL, "the context has no request to answer");
	made = cm_make_private(priv, len, data);
	if (made < 0)
		return made;
	*data_len = (size_t)made;
	return 0;
}

static int accept_request(struct conn *conn, const uint8_t *data, size_t len)
{
	/* A peer that uses verbs itself gets what the user gave, as it is. */
	bool is_bare = conn->peer == PEER_BARE;
	struct rdma_conn_param param = cm_param(conn, is_bare ? data + RECORD_PRIVATE_LEN : data,
						is_bare ? len - RECORD_PRIVATE_LEN : len);
	int error;

	if (rdma_accept(conn->id, &param))
		return error_of(errno, "cannot accept");
	error = cm_expect(conn, RDMA_CM_EVENT_ESTABLISHED, deadline_in(ACCEPT_MS));
	if (error)
		return error;
	conn->state = CONN_OPEN;
	return cm_greet(conn, false);
}

int iw_accept(const void *priv_data, size_t priv_data_len, struct iw_ctx_conn *cli_iw_ctx)
{
	uint8_t data[RECORD_PRIVATE_MAX];
	struct conn *conn;
	size_t len = 0;
	int error = request_of(cli_iw_ctx, priv_data, priv_data_len, &conn, data, &len);

	if (error)
		return error_return(error);
	error = accept_request(conn, data, len);
	if (error)
		conn->state = CONN_FAILED;
	return error_return(error);
}

int iw_reject(const void *priv_data, size_t priv_data_len, struct iw_ctx_conn *cli_iw_ctx)
{
	uint8_t data[RECORD_PRIVATE_MAX];
	struct conn *conn;
	size_t len = 0;
	int error = request_of(cli_iw_ctx, priv_data, priv_data_len, &conn, data, &len);

	if (error)
		return error_return(error);
	if (rdma_reject(conn->id, data, (uint8_t)len))
		log_warn("cannot reject: %s", strerror(errno));
	conn_free(conn);
	ctx_clear(cli_iw_ctx);
	return 0;
}
