/* SPDX-License-Identifier: MIT */
/* Channels, ids and their events, and the model that they are checked against. */
#include "program.h"

#include <errno.h>
#include <poll.h>

#include "moment.h"
#include "pair.h"
#include "visitor.h"

#define DEVICES_MAX   4
#define HELD_MAX      4
#define AWAIT_ROUNDS  3000 /* of a millisecond or more */
#define FRIEND_ROUNDS 500  /* less than the deadline of a stranger in its way */
#define RETRY_MS      25   /* a refused connection is tried again after 20 ms */
#define FRIEND_LEN    16
#define FRIEND_ENDS   2

static struct {
	struct rdma_event_channel *channels[CHANNELS];
	struct end ends[ENDS_MAX];
	struct end *listener, *friend, *friends_child;
	struct rdma_cm_event *held[HELD_MAX];
	unsigned num_held;
} program;

static struct device {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
} devices[DEVICES_MAX];

static uint8_t received[64];
static const uint8_t friend_data[FRIEND_LEN] = "an honest peer";

/* ---- queue pairs ---- */

static struct device *device_of(struct ibv_context *verbs)
{
	struct device *device = devices;

	while (device->verbs && device->verbs != verbs)
		CHECK(++device < devices + DEVICES_MAX);
	if (device->verbs)
		return device;
	device->verbs = verbs;
	device->pd = ibv_alloc_pd(verbs);
	CHECK(device->pd);
	device->cq = ibv_create_cq(verbs, 1024, NULL, NULL, 0);
	CHECK(device->cq);
	device->mr = ibv_reg_mr(device->pd, received, sizeof(received), IBV_ACCESS_LOCAL_WRITE);
	CHECK(device->mr);
	return device;
}

struct ibv_qp_init_attr program_qp_attr(struct ibv_context *verbs, struct ibv_pd **pd)
{
	struct device *device = device_of(verbs);

	*pd = device->pd;
	return (struct ibv_qp_init_attr){
		.send_cq = device->cq,
		.recv_cq = device->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};
}

/* A Send that comes early finds its receive. */
static void post_receive(struct ibv_qp *qp)
{
	struct ibv_mr *mr = device_of(qp->context)->mr;
	struct ibv_sge sge = {
		.addr = (uintptr_t)received, .length = sizeof(received), .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

/* False: it failed, as it may when there are no descriptors. */
static bool equip(struct end *end, bool is_bare)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_init_attr attr;
	struct ibv_pd *pd;

	if (!end->id->verbs || end->id->qp || end->bare_qp)
		return false;
	attr = program_qp_attr(end->id->verbs, &pd);
	if (!is_bare) {
		if (rdma_create_qp(end->id, pd, &attr))
			return false;
		post_receive(end->id->qp);
		return true;
	}
	end->bare_qp = ibv_create_qp(pd, &attr);
	if (!end->bare_qp)
		return false;
	CHECK(!ibv_modify_qp(end->bare_qp, &init,
			     IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
	post_receive(end->bare_qp);
	return true;
}

static void drain_completions(void)
{
	struct ibv_wc wc[16];

	for (struct device *device = devices; device < devices + DEVICES_MAX; device++)
		while (device->cq && ibv_poll_cq(device->cq, 16, wc) > 0)
			continue;
}

/* ---- ids ---- */

/* The last places are for the honest connection. */
static struct end *end_new(unsigned channel)
{
	struct end *last = program.ends + ENDS_MAX - (program.friend ? 0 : FRIEND_ENDS);

	for (struct end *end = program.ends; end < last; end++) {
		if (end->id)
			continue;
		memset(end, 0, sizeof(*end));
		end->channel = channel % CHANNELS;
		return end;
	}
	return NULL;
}

struct end *program_choose(unsigned index)
{
	unsigned count = 0;

	for (unsigned i = 0; i < ENDS_MAX; i++)
		count += program.ends[i].id != NULL;
	if (!count)
		return NULL;
	index %= count;
	for (struct end *end = program.ends;; end++)
		if (end->id && index-- == 0)
			return end;
}

void end_destroy_qp(struct end *end)
{
	if (end->id->qp)
		rdma_destroy_qp(end->id);
	if (end->bare_qp)
		CHECK(!ibv_destroy_qp(end->bare_qp));
	end->bare_qp = NULL;
}

void end_destroy(struct end *end, bool qp_first)
{
	struct ibv_qp *qp = NULL;

	program_release_events(); /* destroying waits for them */
	if (qp_first)
		end_destroy_qp(end);
	else
		qp = end->id->qp ? end->id->qp : end->bare_qp;
	CHECK(!rdma_destroy_id(end->id));
	if (qp)
		CHECK(!ibv_destroy_qp(qp));
	if (program.listener == end)
		program.listener = NULL;
	memset(end, 0, sizeof(*end));
}

/* ---- events ---- */

static void check_private_data(const struct rdma_cm_event *event, const struct mpa_frame *frame)
{
	const struct rdma_conn_param *param = &event->param.conn;

	CHECK(param->private_data_len == frame->private_len);
	CHECK(!frame->private_len ||
	      !memcmp(param->private_data, frame->private_data, frame->private_len));
}

static bool is_friendly(const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;

	return program.friend && param->private_data_len == FRIEND_LEN &&
	       !memcmp(param->private_data, friend_data, FRIEND_LEN);
}

static void accept_friend(struct end *end)
{
	struct rdma_conn_param param = {
		.private_data = friend_data,
		.private_data_len = FRIEND_LEN,
		.responder_resources = 1,
		.initiator_depth = 1,
	};

	CHECK(equip(end, false));
	CHECK(!rdma_accept(end->id, &param));
	end->is_requested = false;
	end->is_accepted = true;
	program.friends_child = end;
}

/* The child has the listener's context until now. */
static void on_request(const struct rdma_cm_event *event)
{
	struct visitor *visitor = visitors_find(MPA_REQUEST, rdma_get_dst_port(event->id));
	bool friendly = is_friendly(event);
	struct mpa_frame request;
	struct end *end;

	CHECK(program.listener && event->listen_id == program.listener->id);
	CHECK(!event->status);
	if (visitor && !friendly) {
		CHECK(visitor_has_said(visitor, &request));
		CHECK(!request.markers && !visitor->is_shown);
		visitor->is_shown = true;
		check_private_data(event, &request);
	}
	if (program.friend && !friendly)
		return; /* no place for it */
	end = end_new(program.listener->channel);
	if (!end)
		return;
	end->id = event->id;
	end->id->context = end;
	end->is_requested = true;
	if (friendly)
		accept_friend(end);
}

/* The stranger that an id reached: NULL if it has none, or called another one. */
static const struct visitor *visitor_of(struct rdma_cm_id *id)
{
	if (rdma_get_dst_port(id) != visitors_port())
		return NULL;
	return visitors_find(MPA_REPLY, rdma_get_src_port(id));
}

static void on_established(struct end *end, const struct rdma_cm_event *event)
{
	const struct visitor *visitor = visitor_of(event->id);
	struct mpa_frame reply;

	CHECK(end->is_connecting || end->is_accepted);
	CHECK(!end->is_established && !end->has_failed && !end->has_ended);
	CHECK(!event->status);
	end->is_established = true;
	if (!end->is_connecting || !visitor)
		return;
	CHECK(visitor_has_said(visitor, &reply));
	CHECK(!reply.reject && !reply.markers);
	check_private_data(event, &reply);
}

static void on_failed(struct end *end, const struct rdma_cm_event *event)
{
	const struct visitor *visitor = visitor_of(event->id);
	struct mpa_frame reply;

	CHECK(end->is_connecting || end->is_accepted);
	CHECK(end->is_connecting || event->event == RDMA_CM_EVENT_CONNECT_ERROR);
	CHECK(!end->is_established && !end->has_failed && !end->has_ended);
	CHECK(event->status);
	end->has_failed = true;
	if (!event->param.conn.private_data_len || !visitor)
		return;
	CHECK(event->event == RDMA_CM_EVENT_REJECTED);
	CHECK(visitor_has_said(visitor, &reply) && reply.reject);
	check_private_data(event, &reply);
}

static void on_disconnected(struct end *end, const struct rdma_cm_event *event)
{
	CHECK(end->is_established || end->has_asked || end->has_missed);
	CHECK(!end->has_failed && !end->has_ended);
	CHECK(!event->status);
	end->has_ended = true;
}

static void on_event(const struct rdma_cm_event *event)
{
	struct end *end = event->id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		CHECK(!event->status && !end->is_listener);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		on_request(event);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		on_established(end, event);
		break;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		on_failed(end, event);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		on_disconnected(end, event);
		break;
	default:
		fprintf(stderr, "event %s\n", rdma_event_str(event->event));
		abort();
	}
}

/* There is no place for another id: it goes, and its peer hears a reject. */
static void turn_away(const struct rdma_cm_event *event)
{
	struct end *end = event->id->context;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && end->id != event->id)
		CHECK(!rdma_destroy_id(event->id));
}

static struct rdma_cm_event *fetch(unsigned channel)
{
	struct rdma_event_channel *from = program.channels[channel % CHANNELS];
	struct rdma_cm_event *event;

	if (!fd_is_readable(from->fd, 0) || rdma_get_cm_event(from, &event))
		return NULL; /* a request for a synchronous id may lack descriptors */
	on_event(event);
	return event;
}

void program_serve(void)
{
	struct rdma_cm_event *event;

	for (unsigned i = 0; i < CHANNELS; i++) {
		while ((event = fetch(i)) != NULL) {
			turn_away(event);
			CHECK(!rdma_ack_cm_event(event));
		}
	}
}

void program_hold_event(unsigned channel)
{
	struct rdma_cm_event *event = program.num_held < HELD_MAX ? fetch(channel) : NULL;

	if (!event)
		return;
	turn_away(event);
	program.held[program.num_held++] = event;
}

void program_release_events(void)
{
	while (program.num_held)
		CHECK(!rdma_ack_cm_event(program.held[--program.num_held]));
}

void program_renew_channel(unsigned channel)
{
	channel %= CHANNELS;
	rdma_destroy_event_channel(program.channels[channel]);
	program.channels[channel] = rdma_create_event_channel();
	CHECK(program.channels[channel]);
	for (struct end *end = program.ends; end < program.ends + ENDS_MAX; end++)
		if (end->id && end->channel == channel)
			end->is_deaf = end->has_missed = true;
}

/* ---- listening ---- */

/* The port is known once it is bound, and another id may be bound to it until one listens. */
static struct rdma_cm_id *bind_rival(struct sockaddr_storage *at)
{
	struct rdma_cm_id *rival;

	CHECK(!rdma_create_id(program.channels[0], &rival, NULL, RDMA_PS_TCP));
	if (rdma_bind_addr(rival, (struct sockaddr *)at)) {
		CHECK(!rdma_destroy_id(rival));
		return NULL;
	}
	memcpy(at, rdma_get_local_addr(rival), sizeof(struct sockaddr_in6));
	return rival;
}

static void refuse_rival(struct rdma_cm_id *rival)
{
	if (!rival)
		return;
	CHECK(rdma_listen(rival, 1) && errno == EADDRINUSE);
	CHECK(!rdma_destroy_id(rival));
}

static bool listen_with(struct end *end, const struct sockaddr_storage *at, int backlog,
			bool has_rival)
{
	struct rdma_cm_id *rival = NULL;
	struct sockaddr_storage copy;
	bool listens = true;

	if (at) {
		copy = *at;
		if (has_rival)
			rival = bind_rival(&copy);
		listens = !rdma_bind_addr(end->id, (struct sockaddr *)&copy);
	}
	listens = listens && !rdma_listen(end->id, backlog);
	if (listens)
		refuse_rival(rival);
	else if (rival)
		CHECK(!rdma_destroy_id(rival));
	return listens;
}

void program_listen(const struct sockaddr_storage *at, unsigned channel, int backlog,
		    bool has_rival)
{
	struct end *end = program.listener ? NULL : end_new(channel);

	if (!end || rdma_create_id(program.channels[end->channel], &end->id, end, RDMA_PS_TCP))
		return;
	end->is_listener = true;
	if (!listen_with(end, at, backlog, has_rival)) {
		end_destroy(end, true);
		return;
	}
	CHECK(rdma_listen(end->id, backlog) && errno == EINVAL);
	program.listener = end;
}

uint16_t program_port(void)
{
	return program.listener ? rdma_get_src_port(program.listener->id) : 0;
}

/* ---- calls ---- */

static bool resolve(struct rdma_cm_id *id, const struct call *call)
{
	struct sockaddr_storage to = *call->to, from;
	struct sockaddr *source = NULL;
	uint8_t tos = 8;

	if (call->sets_tos)
		CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	if (call->from) {
		from = *call->from;
		if (call->resolves)
			source = (struct sockaddr *)&from;
		else if (rdma_bind_addr(id, (struct sockaddr *)&from))
			return false;
	}
	return !rdma_resolve_addr(id, source, (struct sockaddr *)&to, 1000) &&
	       !rdma_resolve_route(id, 1000);
}

static uint32_t qp_number(const struct end *end)
{
	return end->bare_qp ? end->bare_qp->qp_num : 0;
}

static bool start_call(struct end *end, const struct call *call)
{
	uint8_t data[UINT8_MAX];
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = call->private_len,
		.responder_resources = call->ird,
		.initiator_depth = call->ord,
		.qp_num = qp_number(end),
	};

	memset(data, 0x5a, sizeof(data));
	if (call->private_len == FRIEND_LEN && program.friend)
		memcpy(data, friend_data, FRIEND_LEN);
	if (call->no_param)
		return !rdma_connect(end->id, NULL);
	if (call->private_len > MPA_USER_PRIVATE) {
		CHECK(rdma_connect(end->id, &param) && errno == EINVAL);
		param.private_data_len = MPA_USER_PRIVATE;
		param.private_data = NULL;
		CHECK(rdma_connect(end->id, &param) && errno == EINVAL);
		param.private_data = data;
	}
	return !rdma_connect(end->id, &param);
}

struct end *program_call(const struct call *call)
{
	struct end *end = end_new(call->channel);

	if (!end || rdma_create_id(program.channels[end->channel], &end->id, end, RDMA_PS_TCP))
		return NULL;
	if (!resolve(end->id, call) || !equip(end, call->is_bare)) {
		end_destroy(end, true);
		return NULL;
	}
	end->is_connecting = start_call(end, call);
	return end;
}

void end_connect_again(struct end *end)
{
	struct rdma_conn_param param = {.qp_num = qp_number(end)};

	/* One whose first try failed at once, for want of a descriptor, may. */
	if (!rdma_connect(end->id, &param)) {
		CHECK(!end->is_connecting && !end->is_listener);
		end->is_connecting = true;
	}
}

/* ---- answers ---- */

void end_accept(struct end *end, struct input *input)
{
	uint8_t data[UINT8_MAX] = {1}, how = take_byte(input);
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = take_byte(input),
		.responder_resources = how >> 4,
		.initiator_depth = how & 0xf,
	};
	bool was_requested = end->is_requested, is_bare = how & 1;
	int error;

	if (was_requested && (how & 6) != 6) /* at times it is forgotten */
		equip(end, is_bare);
	param.qp_num = qp_number(end);
	error = rdma_accept(end->id, end->id->qp && how & 8 ? NULL : &param);
	CHECK(was_requested || error);
	if (error && errno == EINVAL)
		return; /* nothing has changed */
	end->is_requested = false;
	end->is_accepted = !error;
}

void end_reject(struct end *end, struct input *input)
{
	uint8_t data[UINT8_MAX] = {2}, len = take_byte(input);
	int error = rdma_reject(end->id, len & 1 ? data : NULL, len);

	CHECK(end->is_requested || error);
	if (error && errno == EINVAL)
		return;
	end->is_requested = false;
}

void end_disconnect(struct end *end)
{
	bool is_connected = end->is_accepted || end->is_established;
	int error = rdma_disconnect(end->id);

	CHECK(!is_connected || !error);
	end->has_asked |= !error;
}

void end_migrate(struct end *end, unsigned channel, bool by_way_of_none)
{
	program_release_events();
	if (by_way_of_none && rdma_migrate_id(end->id, NULL))
		return;
	end->channel = channel % CHANNELS;
	CHECK(!rdma_migrate_id(end->id, program.channels[end->channel]));
	end->is_deaf = false;
}

void end_ask(struct end *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask;

	if (!rdma_establish(end->id))
		CHECK(!end->id->qp && (end->is_accepted || end->is_connecting));
	CHECK(!rdma_notify(end->id, IBV_EVENT_COMM_EST));
	CHECK(!rdma_init_qp_attr(end->id, &attr, &mask));
	CHECK(rdma_listen(NULL, 1) && errno == EINVAL);
	CHECK(rdma_connect(NULL, NULL) && errno == EINVAL);
	CHECK(rdma_accept(NULL, NULL) && errno == EINVAL);
	CHECK(rdma_reject(NULL, NULL, 0) && errno == EINVAL);
	CHECK(rdma_disconnect(NULL) && errno == EINVAL);
	CHECK(rdma_notify(NULL, IBV_EVENT_COMM_EST) && errno == EINVAL);
}

/* ---- the end ---- */

static bool is_waiting(const struct end *end)
{
	return end->id && !end->has_missed && !end->has_asked &&
	       (end->is_connecting || end->is_accepted) && !end->is_established && !end->has_failed;
}

static bool is_open(const struct end *end)
{
	return end->id && !end->has_missed && end->is_established && !end->has_ended;
}

static bool is_any(bool (*is)(const struct end *end))
{
	for (const struct end *end = program.ends; end < program.ends + ENDS_MAX; end++)
		if (is(end))
			return true;
	return false;
}

bool program_is_waiting(void)
{
	return is_any(is_waiting);
}

static bool is_overlooked(const struct end *end)
{
	const struct visitor *visitor;

	if (!is_waiting(end) || !end->is_connecting)
		return false;
	visitor = visitor_of(end->id);
	return visitor && visitor_is_decided(visitor);
}

void program_check_replies(void)
{
	CHECK(!is_any(is_overlooked));
}

void program_await_outcomes(void)
{
	moment_settle();
	program_serve();
	for (unsigned i = 0; is_any(is_waiting); i++) {
		CHECK(i < AWAIT_ROUNDS);
		if (i > 3)
			moment_pass();
		moment_advance(RETRY_MS);
		moment_settle();
		program_serve();
	}
}

void program_disconnect(void)
{
	for (struct end *end = program.ends; end < program.ends + ENDS_MAX; end++)
		if (is_open(end))
			end_disconnect(end);
	program_serve();
	for (unsigned i = 0; is_any(is_open); i++) {
		CHECK(i < AWAIT_ROUNDS);
		if (i)
			moment_pass();
		moment_settle();
		program_serve();
	}
}

static bool has_met(bool serves)
{
	return program.friend->is_established &&
	       (!serves || (program.friends_child && program.friends_child->is_established));
}

static bool has_parted(bool serves)
{
	return program.friend->has_ended && (!serves || program.friends_child->has_ended);
}

static void await_friend(bool (*is_there)(bool serves), bool serves)
{
	for (unsigned i = 0; !is_there(serves); i++) {
		CHECK(i < FRIEND_ROUNDS && !program.friend->has_failed);
		if (i)
			moment_pass();
		moment_settle();
		program_serve();
	}
}

void program_check_listener(const struct sockaddr_storage *at, bool serves)
{
	const struct call call = {.to = at, .private_len = FRIEND_LEN, .ird = 1, .ord = 1};
	static struct end any;

	if (serves && program.listener && program.listener->is_deaf)
		end_migrate(program.listener, 0, false);
	program.friend = &any; /* its private data is the friend's */
	program.friend = program_call(&call);
	CHECK(program.friend && program.friend->is_connecting);
	await_friend(has_met, serves);
	if (serves)
		end_disconnect(program.friends_child);
	end_disconnect(program.friend);
	await_friend(has_parted, serves);
	end_destroy(program.friend, true);
	if (serves)
		end_destroy(program.friends_child, true);
	program.friend = program.friends_child = NULL;
}

/* ---- an input ---- */

void program_open(void)
{
	for (unsigned i = 0; i < CHANNELS; i++) {
		program.channels[i] = rdma_create_event_channel();
		CHECK(program.channels[i]);
	}
}

void program_close(bool reverse)
{
	program_release_events();
	for (unsigned i = 0; i < ENDS_MAX; i++) {
		struct end *end = &program.ends[reverse ? ENDS_MAX - 1 - i : i];

		if (end->id)
			end_destroy(end, !reverse);
	}
	for (unsigned i = 0; i < CHANNELS; i++)
		rdma_destroy_event_channel(program.channels[i]);
	drain_completions();
}
