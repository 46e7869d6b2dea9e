/* SPDX-License-Identifier: MIT */
/*
 * Original ibmsg peers, at either end: no private data, a message is a bare SEND of at most 4096
 * bytes, and one receive is posted at a time, when the connection is established.
 */
#include "bare.h"
#include "side.h"

#include <arpa/inet.h>

#define ROUNDS 20
#define BURST  5

/* ---- the originals ---- */

/* That this process is, if it plays a role. */
static struct side visitor;
static struct rdma_cm_id *listener;

/*
 * The original posts its receive when it hears that the connection is established, which may be
 * after the peer's first message has come. iWARP does not forgive that: there it is posted before.
 */
static unsigned early_receives(void)
{
	return strcmp(hub_device(), "siw") ? 0 : 1;
}

static void await_established(struct side *side)
{
	assert_int_equal(cm_expect(side->channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	if (!early_receives())
		bare_recv(side, 0);
}

static void connect_as_original(struct side *side, uint16_t port)
{
	bare_open(side, port, early_receives());
	bare_connect(side, NULL, 0);
	await_established(side);
}

static void accept_as_original(struct side *side, uint16_t port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage at;

	assert_non_null(channel);
	test_address(&at, htons(port));
	listener = listen_at(channel, &at, 64);
	bare_accept(side, channel, early_receives());
	await_established(side);
}

/* Sends back each message; a receive is posted again before. */
static void answer_each(struct side *side)
{
	uint8_t copy[IBMSG_MAX_MSGSIZE];
	struct bare_arrival arrival;

	while (bare_next(side, &arrival)) {
		assert_true(arrival.len <= sizeof(copy));
		memcpy(copy, arrival.data, arrival.len);
		bare_recv(side, 0);
		bare_send(side, copy, arrival.len);
	}
	bare_await_end(side);
}

#define GREETING 77 /* bytes */

static void run_client_answering(uint16_t port)
{
	uint8_t greeting[GREETING] = {0};

	connect_as_original(&visitor, port);
	assert_true(bare_send(&visitor, greeting, sizeof(greeting)));
	answer_each(&visitor);
}

/* Does not speak first, as iWARP wants it. */
static void run_client_listening(uint16_t port)
{
	connect_as_original(&visitor, port);
	answer_each(&visitor);
}

static void run_server_answering(uint16_t port)
{
	accept_as_original(&visitor, port);
	answer_each(&visitor);
}

/* What the original's own program does: one message, then it disconnects. */
static void run_client_sending(uint16_t port)
{
	uint8_t bytes[IBMSG_MAX_MSGSIZE];

	connect_as_original(&visitor, port);
	fill(bytes, sizeof(bytes), 4);
	assert_true(bare_send(&visitor, bytes, sizeof(bytes)));
	assert_int_equal(rdma_disconnect(visitor.id), 0);
	bare_await_end(&visitor);
}

/* More than the original ever managed. */
static void run_client_sending_many(uint16_t port)
{
	uint8_t bytes[IBMSG_MAX_MSGSIZE];

	connect_as_original(&visitor, port);
	for (unsigned i = 0; i < 300; i++) {
		fill(bytes, sizeof(bytes), i);
		assert_true(bare_send(&visitor, bytes, i * 13 % (sizeof(bytes) + 1)));
	}
	bare_await_end(&visitor);
}

static const struct peer_role roles[] = {
	{"client_answering", run_client_answering},
	{"client_listening", run_client_listening},
	{"server_answering", run_server_answering},
	{"client_sending", run_client_sending},
	{"client_sending_many", run_client_sending_many},
};

/* ---- ibmsg ---- */

static struct end *await_original(struct hub *hub)
{
	await(hub->accepted && hub->accepted->established);
	return hub->accepted;
}

/* One that speaks first; what it said does not count afterwards. */
static struct end *await_greeting(struct hub *hub)
{
	struct end *end = await_original(hub);

	await(end->received == 1);
	assert_int_equal(end->letters[0].size, GREETING);
	end->received = 0;
	return end;
}

/* It may not listen yet. */
static struct end *connect_to_original(struct hub *hub, uint16_t port)
{
	uint64_t limit = now_ms() + WAIT_MS;
	struct end *end;

	do {
		end = end_connect(hub, port);
		await(end->established || end->closed);
	} while (end->closed && now_ms() < limit);
	assert_int_equal(end->closed, 0);
	return end;
}

static size_t round_size(unsigned i)
{
	static const size_t sizes[] = {1, 4096, 4095, 100, 0, 4080, 4081};

	return sizes[i % ARRAY_SIZE(sizes)];
}

static void await_answers(struct end *end, unsigned count)
{
	await(end->received == count || end->closed);
	assert_int_equal(end->closed, 0);
	await(end->sent == end->posted);
	end_assert_delivered(end, end);
}

static void converse(struct end *end)
{
	for (unsigned i = 1; i <= ROUNDS; i++) {
		end_post(end, round_size(i));
		await_answers(end, i);
	}
}

/* Several at once: they leave one by one. iWARP has no way to say that a receive is missing. */
static void converse_in_bursts(struct end *end)
{
	if (!strcmp(hub_device(), "siw"))
		return;
	for (unsigned i = 0; i < BURST; i++)
		end_post(end, round_size(i));
	await_answers(end, ROUNDS + BURST);
}

static void expect_too_large(struct end *end, size_t size)
{
	struct parcel *parcel = end_post(end, size);

	await(parcel->done);
	assert_int_equal(parcel->status, IBMSG_FAILED);
	assert_int_equal(parcel->error, IBMSG_MESSAGE_TOO_LARGE);
	assert_int_equal(end->closed, 0);
}

static void disconnect_from_original(struct end *end, pid_t pid)
{
	assert_int_equal(ibmsg_disconnect(&end->socket), IBMSG_OK);
	await(end->closed);
	assert_int_equal(hubs_await_peer(pid), 0);
}

static void test_original_client_answers_messages(void **state)
{
	struct hub *hub = hub_new_listening();
	pid_t pid = peer_start("client_answering", hub->port);
	struct end *end = await_greeting(hub);

	(void)state;
	converse(end);
	converse_in_bursts(end);
	disconnect_from_original(end, pid);
	hub_free(hub);
}

static void test_original_client_that_says_nothing_gets_messages(void **state)
{
	struct hub *hub;
	struct end *end;
	pid_t pid;

	(void)state;
	if (!strcmp(hub_device(), "siw"))
		skip();
	hub = hub_new_listening();
	pid = peer_start("client_listening", hub->port);
	end = await_original(hub);
	converse(end);
	disconnect_from_original(end, pid);
	hub_free(hub);
}

static void test_original_server_answers_messages(void **state)
{
	uint16_t port = hub_unused_port();
	struct hub *hub = hub_new();
	pid_t pid = peer_start("server_answering", port);
	struct end *end = connect_to_original(hub, port);

	(void)state;
	converse(end);
	converse_in_bursts(end);
	disconnect_from_original(end, pid);
	hub_free(hub);
}

static void test_original_client_sends_one_message_and_disconnects(void **state)
{
	static uint8_t expected[IBMSG_MAX_MSGSIZE];
	struct hub *hub = hub_new_listening();
	pid_t pid = peer_start("client_sending", hub->port);
	struct end *end = await_original(hub);

	(void)state;
	await(end->closed);
	assert_int_equal(end->received, 1);
	fill(expected, sizeof(expected), 4);
	assert_int_equal(end->letters[0].size, sizeof(expected));
	assert_true(end->letters[0].sum == checksum(expected, sizeof(expected)));
	assert_int_equal(hubs_await_peer(pid), 0);
	hub_free(hub);
}

static void test_original_client_sends_many_messages(void **state)
{
	static uint8_t expected[IBMSG_MAX_MSGSIZE];
	struct hub *hub;
	struct end *end;
	pid_t pid;

	(void)state;
	/* It knows no credits: iWARP would end it if it were faster than the loop. */
	if (!strcmp(hub_device(), "siw"))
		skip();
	hub = hub_new_listening();
	pid = peer_start("client_sending_many", hub->port);
	end = await_original(hub);
	await(end->received == 300);
	for (unsigned i = 0; i < 300; i++) {
		size_t size = i * 13 % (sizeof(expected) + 1);

		fill(expected, sizeof(expected), i);
		assert_int_equal(end->letters[i].size, size);
		assert_true(end->letters[i].sum == checksum(expected, size));
	}
	disconnect_from_original(end, pid);
	hub_free(hub);
}

static void test_message_too_large_for_an_original_fails_and_the_connection_lives(void **state)
{
	struct hub *hub = hub_new_listening();
	pid_t pid = peer_start("client_answering", hub->port);
	struct end *end = await_greeting(hub);
	struct parcel *parcel;

	(void)state;
	expect_too_large(end, IBMSG_MAX_MSGSIZE + 1);
	expect_too_large(end, MIB);
	expect_too_large(end, 4112);
	expect_too_large(end, 64 * MIB);
	assert_int_equal(end->received, 0);
	parcel = end_post(end, IBMSG_MAX_MSGSIZE);
	await(end->received == 1 && parcel->done);
	assert_int_equal(parcel->status, IBMSG_SENT);
	assert_true(end->letters[0].sum == parcel->sum);
	disconnect_from_original(end, pid);
	hub_free(hub);
}

/* Less than was allocated may be sent, also of what was allocated for a long message. */
static void test_shortened_message_reaches_an_original(void **state)
{
	static const size_t sizes[] = {10, 0, IBMSG_MAX_MSGSIZE};
	struct hub *hub = hub_new_listening();
	pid_t pid = peer_start("client_answering", hub->port);
	struct end *end = await_greeting(hub);

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct parcel *parcel = end_alloc(end, 300 * KIB);

		parcel->msg.size = parcel->size = sizes[i];
		parcel->sum = checksum(parcel->msg.data, sizes[i]);
		end_post_parcel(end, parcel);
		await_answers(end, i + 1);
	}
	disconnect_from_original(end, pid);
	hub_free(hub);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		hub_test(test_original_client_answers_messages),
		hub_test(test_original_client_that_says_nothing_gets_messages),
		hub_test(test_original_server_answers_messages),
		hub_test(test_original_client_sends_one_message_and_disconnects),
		hub_test(test_original_client_sends_many_messages),
		hub_test(test_message_too_large_for_an_original_fails_and_the_connection_lives),
		hub_test(test_shortened_message_reaches_an_original),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	return cmocka_run_group_tests_name("original", tests, NULL, NULL);
}
