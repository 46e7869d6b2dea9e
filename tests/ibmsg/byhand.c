/* SPDX-License-Identifier: MIT */
#include "byhand.h"

struct side visitor;
struct proto_private granted;
uint32_t longest_send = BARE_SLOT;
uint16_t features;

void put_private(uint8_t out[PROTO_PRIVATE_MAX])
{
	const struct proto_private ours = {
		.version = PROTO_VERSION,
		.features = features,
		.max_send = longest_send,
		.data_credits = DATA_RECEIVES,
		.control_credits = CONTROL_RECEIVES,
	};

	memset(out, 0, PROTO_PRIVATE_MAX);
	assert_int_equal(proto_put_private(out, &ours), PROTO_PRIVATE_LEN);
}

void say(struct side *side, const struct proto_message *message)
{
	uint8_t bytes[PROTO_HEADER_LEN + PROTO_REGION_LEN];

	bare_send(side, bytes, proto_put_message(bytes, message));
}

struct proto_message hello_of(const struct side *side)
{
	return (struct proto_message){
		.type = PROTO_HELLO, .address = (uintptr_t)side->buf, .key = side->mr->rkey};
}

void say_hello(struct side *side)
{
	struct proto_message hello = hello_of(side);

	say(side, &hello);
}

void connect_without_hello(struct side *side, uint16_t port)
{
	uint8_t ours[PROTO_PRIVATE_MAX];
	struct rdma_cm_event *event;

	bare_open(side, port, DATA_RECEIVES + CONTROL_RECEIVES);
	put_private(ours);
	bare_connect(side, ours, PROTO_PRIVATE_LEN);
	event = cm_take(side->channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(proto_get_private(event->param.conn.private_data,
					   event->param.conn.private_data_len, &granted),
			 PEER_IBMSG);
	assert_int_equal(rdma_ack_cm_event(event), 0);
}

bool hear(struct side *side, enum proto_type type, struct proto_message *out)
{
	struct bare_arrival arrival;

	do {
		if (!bare_next(side, &arrival))
			return false;
		assert_true(arrival.len <= longest_send);
		assert_int_equal(proto_get_message(arrival.data, arrival.len, out), 0);
		granted.control_credits =
			(uint16_t)(granted.control_credits + out->control_credits);
		bare_recv(side, arrival.slot);
	} while (out->type != type);
	return true;
}

void connect_properly(struct side *side, uint16_t port)
{
	struct proto_message hello;

	connect_without_hello(side, port);
	say_hello(side);
	assert_true(hear(side, PROTO_HELLO, &hello));
}

void say_end(struct side *side, uint8_t flags)
{
	say(side, &(struct proto_message){.type = PROTO_END, .flags = flags});
}

void close_properly(struct side *side)
{
	struct proto_message end;

	say_end(side, 0);
	assert_true(hear(side, PROTO_END, &end));
	say_end(side, PROTO_SEEN);
	bare_await_end(side);
}

/* ---- the side that is visited ---- */

void visit_open(struct visit *visit, void (*established)(struct end *))
{
	struct hub *hub = hub_new_listening();

	link_join(&visit->link, hub, hub);
	end_ping(visit->link.client, visit->link.server);
	hub->on.established = established;
	for (unsigned i = 0; i < 200; i++)
		end_post(visit->link.client, i * 300);
}

void visit_close(struct visit *visit)
{
	struct hub *hub = visit->link.server_hub;

	hub->on.established = NULL;
	await(end_has_delivered(visit->link.client, visit->link.server));
	end_assert_delivered(visit->link.client, visit->link.server);
	end_ping(visit->link.server, visit->link.client);
	/* And others still come in. */
	link_join(&visit->link, hub, hub);
	end_ping(visit->link.client, visit->link.server);
	link_close(&visit->link);
}

void visit_await_end(struct visit *visit, const char *role)
{
	struct hub *hub = visit->link.server_hub;
	pid_t pid = peer_start(role, hub->port);

	await(hub->accepted != visit->link.server && hub->accepted->closed);
	visit->guest = hub->accepted;
	assert_int_equal(hubs_await_peer(pid), 0);
}

void run_protocol_error(const char *role)
{
	struct visit visit;

	visit_open(&visit, NULL);
	visit_await_end(&visit, role);
	if (visit.guest->error != IBMSG_PROTOCOL_ERROR)
		fail_msg("%s: %s", role, ibmsg_strerror(visit.guest->error));
	assert_int_equal(visit.guest->received, 0);
	visit_close(&visit);
}
