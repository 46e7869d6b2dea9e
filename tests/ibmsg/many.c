/* SPDX-License-Identifier: MIT */
/* Short messages that wait together and travel together, and peers that make such by hand. */
#include "byhand.h"

#define COUNT 200
#define PARTS 40 /* that fit one */

/* Of the i-th message: short and shorter. */
static size_t size_of(unsigned i)
{
	return i * 7 % 100;
}

static void post_short_ones(struct end *end)
{
	for (unsigned i = 0; i < COUNT; i++)
		end_post(end, size_of(i));
}

/* Fewer than the peer has receives for. */
static void post_few(struct end *end)
{
	for (unsigned i = 0; i < DATA_RECEIVES; i++)
		end_post(end, size_of(i));
}

/* ---- peers by hand ---- */

struct heard {
	unsigned messages;
	unsigned together; /* of them: in a MANY */
};

/* Whether it is all in order. */
static void note_data(const struct bare_arrival *arrival, const struct proto_message *message,
		      struct heard *heard)
{
	const uint8_t *at = arrival->data + PROTO_HEADER_LEN, *end = arrival->data + arrival->len;
	uint16_t len;

	if (message->type == PROTO_DATA)
		assert_int_equal(arrival->len - PROTO_HEADER_LEN, size_of(heard->messages++));
	if (message->type != PROTO_MANY)
		return;
	assert_true(message->length > 1);
	for (uint64_t i = 0; i < message->length; i++) {
		at += proto_get_part(at, (size_t)(end - at), &len);
		assert_int_equal(len, size_of(heard->messages++));
		heard->together++;
	}
}

static struct heard hear_messages(unsigned count)
{
	struct heard heard = {0};

	while (heard.messages < count) {
		struct proto_message message;
		struct bare_arrival arrival;

		assert_true(bare_next(&visitor, &arrival));
		assert_int_equal(proto_get_message(arrival.data, arrival.len, &message), 0);
		note_data(&arrival, &message, &heard);
		bare_recv(&visitor, arrival.slot);
	}
	return heard;
}

static void run_takes_many(uint16_t port)
{
	features = PROTO_TAKES_MANY;
	connect_properly(&visitor, port);
	assert_true(hear_messages(COUNT).together > COUNT / 2);
	close_properly(&visitor);
}

static void run_takes_one_by_one(uint16_t port)
{
	connect_properly(&visitor, port);
	assert_int_equal(hear_messages(DATA_RECEIVES).together, 0);
	close_properly(&visitor);
}

/* A MANY of messages 0 to @count, with a header that says @said; returns its length. */
static size_t put_many(uint8_t *out, unsigned count, uint64_t said)
{
	struct proto_message many = {.type = PROTO_MANY, .length = said};
	size_t len = proto_put_message(out, &many);
	uint8_t bytes[100];

	for (unsigned i = 0; i < count; i++) {
		fill(bytes, size_of(i), (uint8_t)i);
		len += proto_put_part(out + len, bytes, (uint16_t)size_of(i));
	}
	return len;
}

static void run_says_many(uint16_t port)
{
	uint8_t bytes[PROTO_MIN_SEND];

	connect_properly(&visitor, port);
	assert_true(granted.features & PROTO_TAKES_MANY);
	bare_send(&visitor, bytes, put_many(bytes, PARTS, PARTS));
	bare_send(&visitor, bytes, put_many(bytes, 1, 1));
	close_properly(&visitor);
}

static void run_loses_many(uint16_t port)
{
	uint8_t bytes[PROTO_MIN_SEND];

	connect_properly(&visitor, port);
	bare_send(&visitor, bytes, put_many(bytes, PARTS, PARTS));
	bare_await_end(&visitor);
}

/* @more bytes than it is long. */
static void say_wrongly(uint16_t port, unsigned count, uint64_t said, int more)
{
	uint8_t bytes[PROTO_MIN_SEND] = {0};
	size_t len = put_many(bytes, count, said);

	connect_properly(&visitor, port);
	bare_send(&visitor, bytes, len + (size_t)more);
	bare_await_end(&visitor);
}

static void run_none(uint16_t port)
{
	say_wrongly(port, 0, 0, 0);
}

static void run_one_missing(uint16_t port)
{
	say_wrongly(port, 5, 6, 0);
}

static void run_one_more(uint16_t port)
{
	say_wrongly(port, 5, 4, 0);
}

static void run_cut_off(uint16_t port)
{
	say_wrongly(port, 5, 5, -1);
}

static void run_byte_behind(uint16_t port)
{
	say_wrongly(port, 5, 5, 1);
}

static void run_endless(uint16_t port)
{
	say_wrongly(port, 5, UINT64_MAX, 0);
}

static const struct peer_role roles[] = {
	{"takes_many", run_takes_many},
	{"takes_one_by_one", run_takes_one_by_one},
	{"says_many", run_says_many},
	{"loses_many", run_loses_many},
	{"none", run_none},
	{"one_missing", run_one_missing},
	{"one_more", run_one_more},
	{"cut_off", run_cut_off},
	{"byte_behind", run_byte_behind},
	{"endless", run_endless},
};

/* ---- between two of ours ---- */

static void test_short_and_long_messages_in_turns_arrive_in_order(void **state)
{
	static const size_t sizes[] = {0,    1,    64,   64, 64,   1023, 1024, 1025, 64,
				       4096, 4097, 1024, 8,  MIB,  8,    8,    8,    1024,
				       1024, 1024, 1024, 1,  4000, 0,    0,    0};
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	for (unsigned i = 0; i < 40 * ARRAY_SIZE(sizes); i++)
		end_post(link.client, sizes[i % ARRAY_SIZE(sizes)]);
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	link_close(&link);
}

static uint64_t arriving_bytes(const struct hub *hub)
{
	ibmsg_stats stats;

	assert_int_equal(ibmsg_get_stats(&hub->loop, NULL, &stats), IBMSG_OK);
	return stats.arriving_bytes;
}

/* Whatever is freed is received anew, however often. */
static void test_short_messages_come_in_little_memory(void **state)
{
	struct link link;
	uint64_t receives;

	(void)state;
	link_open(&link, TWO_LOOPS);
	receives = arriving_bytes(link.server_hub);
	assert_int_equal(ibmsg_set_max_memory(&link.server_hub->loop, receives), IBMSG_OK);
	link.server_hub->keep = KEEP_POINTERS;
	for (unsigned i = 0; i < 10; i++)
		post_short_ones(link.client);
	for (unsigned before = 0; before < 10 * COUNT; before = link.server->received) {
		await(link.server->received > before);
		end_free_letters(link.server);
	}
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	await(arriving_bytes(link.server_hub) == receives);
	link_close(&link);
}

/* The memory that they came in is there until the last of them is freed, whichever that is. */
static void test_messages_that_came_together_are_freed_in_any_order(void **state)
{
	struct end *server;
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	server = link.server;
	link.server_hub->keep = KEEP_POINTERS;
	post_short_ones(link.client);
	await(server->received == COUNT);
	for (unsigned i = 0; i < COUNT; i++) {
		/* 0, 37, 74, ... */
		struct letter *letter = &server->letters[i * 37 % COUNT];

		assert_true(checksum(letter->msg->data, letter->msg->size) == letter->sum);
		assert_int_equal(ibmsg_free_msg(letter->msg), IBMSG_OK);
		letter->msg = NULL;
	}
	await(end_has_delivered(link.client, server));
	end_assert_delivered(link.client, server);
	link_close(&link);
}

static void post_back(struct end *end, ibmsg_buffer *msg)
{
	assert_int_equal(ibmsg_post_send(&end->socket, msg), IBMSG_OK);
}

static void free_returned(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	(void)socket;
	assert_int_equal(msg->status, IBMSG_SENT);
	assert_int_equal(ibmsg_free_msg(msg), IBMSG_OK);
}

/* Each is posted where it lies, while its neighbours still are there. */
static void test_messages_that_came_together_are_posted_anew(void **state)
{
	struct end *client;
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	client = link.client;
	link.server_hub->on.received = post_back;
	link.server_hub->loop.message_sent = free_returned;
	post_short_ones(client);
	await(client->received == COUNT);
	for (unsigned i = 0; i < COUNT; i++) {
		assert_int_equal(client->letters[i].size, client->parcels[i]->size);
		assert_true(client->letters[i].sum == client->parcels[i]->sum);
	}
	link_close(&link);
}

/* But not with more bytes than it came with, which are another's. */
static void grow_and_post(struct end *end, ibmsg_buffer *msg)
{
	size_t size = msg->size;

	msg->size++;
	if (end->received > COUNT / 2)
		assert_int_equal(ibmsg_post_send(&end->socket, msg), IBMSG_INVALID_ARGUMENT);
	msg->size = size;
	msg->data = (char *)msg->data - 1;
	if (end->received > COUNT / 2)
		assert_int_equal(ibmsg_post_send(&end->socket, msg), IBMSG_INVALID_ARGUMENT);
	msg->data = (char *)msg->data + 1;
	assert_int_equal(ibmsg_free_msg(msg), IBMSG_OK);
}

static void test_message_that_came_with_others_cannot_be_made_longer(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.server_hub->on.received = grow_and_post;
	post_short_ones(link.client);
	await(link.server->received == COUNT);
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	link_close(&link);
}

/* A string is ended where it lies; programs do. */
static void end_string(struct end *end, ibmsg_buffer *msg)
{
	(void)end;
	((char *)msg->data)[msg->size] = 0xff;
	assert_int_equal(ibmsg_free_msg(msg), IBMSG_OK);
}

static void test_byte_behind_a_message_may_be_written(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.server_hub->on.received = end_string;
	for (unsigned i = 0; i < COUNT; i++)
		end_post(link.client, 16 * (i % 5));
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	link_close(&link);
}

/* ---- with peers by hand ---- */

static void run_well(const char *role, void (*established)(struct end *), unsigned sent)
{
	struct visit visit;

	visit_open(&visit, established);
	visit_await_end(&visit, role);
	assert_int_equal(visit.guest->error, IBMSG_OK);
	assert_int_equal(visit.guest->sent, sent);
	visit_close(&visit);
}

static void test_peer_that_takes_many_gets_many(void **state)
{
	(void)state;
	run_well("takes_many", post_short_ones, COUNT);
}

static void test_peer_that_does_not_gets_one_by_one(void **state)
{
	(void)state;
	run_well("takes_one_by_one", post_few, DATA_RECEIVES);
}

static void test_many_by_hand_are_delivered(void **state)
{
	uint8_t expected[100];
	struct visit visit;

	(void)state;
	visit_open(&visit, NULL);
	visit_await_end(&visit, "says_many");
	assert_int_equal(visit.guest->error, IBMSG_OK);
	assert_int_equal(visit.guest->received, PARTS + 1);
	for (unsigned i = 0; i <= PARTS; i++) {
		const struct letter *letter = &visit.guest->letters[i];

		fill(expected, size_of(i % PARTS), (uint8_t)(i % PARTS));
		assert_int_equal(letter->size, size_of(i % PARTS));
		assert_true(letter->sum == checksum(expected, size_of(i % PARTS)));
	}
	visit_close(&visit);
}

static struct end *spared; /* by spoil_neighbour */

/* The message is empty; the length of the next one is behind its room. */
static void spoil_neighbour(struct end *end, ibmsg_buffer *msg)
{
	if (end->is_server && end != spared)
		memset(msg->data, 0xff, 2 * PROTO_HEADER_LEN);
	assert_int_equal(ibmsg_free_msg(msg), IBMSG_OK);
}

/* An application that does so loses that connection, and nothing is read or written elsewhere. */
static void test_neighbour_that_was_written_over_is_not_delivered(void **state)
{
	struct visit visit;

	(void)state;
	visit_open(&visit, NULL);
	spared = visit.link.server;
	visit.link.server_hub->on.received = spoil_neighbour;
	visit_await_end(&visit, "loses_many");
	assert_int_equal(visit.guest->error, IBMSG_ALLOC_FAILED);
	assert_int_equal(visit.guest->received, 1);
	visit.link.server_hub->on.received = NULL;
	visit_close(&visit);
}

static void test_many_that_cannot_be_parsed_are_a_protocol_error(void **state)
{
	(void)state;
	run_protocol_error("none");
	run_protocol_error("one_missing");
	run_protocol_error("one_more");
	run_protocol_error("cut_off");
	run_protocol_error("byte_behind");
	run_protocol_error("endless");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		hub_test(test_short_and_long_messages_in_turns_arrive_in_order),
		hub_test(test_short_messages_come_in_little_memory),
		hub_test(test_messages_that_came_together_are_freed_in_any_order),
		hub_test(test_messages_that_came_together_are_posted_anew),
		hub_test(test_message_that_came_with_others_cannot_be_made_longer),
		hub_test(test_byte_behind_a_message_may_be_written),
		hub_test(test_peer_that_takes_many_gets_many),
		hub_test(test_peer_that_does_not_gets_one_by_one),
		hub_test(test_many_by_hand_are_delivered),
		hub_test(test_neighbour_that_was_written_over_is_not_delivered),
		hub_test(test_many_that_cannot_be_parsed_are_a_protocol_error),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	return cmocka_run_group_tests_name("many", tests, NULL, NULL);
}
