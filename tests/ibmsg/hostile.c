/* SPDX-License-Identifier: MIT */
/*
 * Peers that speak the protocol by hand, and wrongly: each loses its own connection, or its
 * message, and nothing else.
 */
#include "byhand.h"

/* ---- requests that are not understood ---- */

/* Says no, or takes it for an original, whose private data is its own affair. */
static void run_foreign_private(uint16_t port)
{
	uint8_t garbage[PROTO_PRIVATE_LEN];
	struct rdma_cm_event *event;

	bare_open(&visitor, port, 4);
	fill(garbage, sizeof(garbage), 3);
	bare_connect(&visitor, garbage, sizeof(garbage));
	event = cm_next(visitor.channel);
	assert_true(event->event == RDMA_CM_EVENT_ESTABLISHED ||
		    event->event == RDMA_CM_EVENT_REJECTED);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	/* The end of this process is the end of the connection. */
}

static void be_rejected(uint16_t port, size_t at, uint8_t value)
{
	uint8_t ours[PROTO_PRIVATE_MAX];

	bare_open(&visitor, port, 4);
	put_private(ours);
	ours[at] = value;
	bare_connect(&visitor, ours, PROTO_PRIVATE_LEN);
	cm_expect(visitor.channel, RDMA_CM_EVENT_REJECTED);
}

static void run_unknown_version(uint16_t port)
{
	be_rejected(port, 4, PROTO_VERSION + 1);
}

static void run_long_user_data(uint16_t port)
{
	be_rejected(port, 5, 200);
}

/* Takes sends of 8 bytes at most. */
static void run_tiny_receives(uint16_t port)
{
	be_rejected(port, 10, 0);
}

/* ---- the first message ---- */

static void run_first_garbage(uint16_t port)
{
	uint8_t garbage[100];

	connect_without_hello(&visitor, port);
	memset(garbage, 0xee, sizeof(garbage));
	bare_send(&visitor, garbage, sizeof(garbage));
	bare_await_end(&visitor);
}

static void run_data_before_hello(uint16_t port)
{
	connect_without_hello(&visitor, port);
	say(&visitor, &(struct proto_message){.type = PROTO_DATA});
	bare_await_end(&visitor);
}

static void run_end_before_hello(uint16_t port)
{
	connect_without_hello(&visitor, port);
	say(&visitor, &(struct proto_message){.type = PROTO_END});
	bare_await_end(&visitor);
}

static void run_hello_twice(uint16_t port)
{
	connect_properly(&visitor, port);
	say_hello(&visitor);
	bare_await_end(&visitor);
}

/* ---- messages that cannot be parsed ---- */

static void send_raw(uint16_t port, uint8_t first, size_t len)
{
	uint8_t bytes[64] = {first};

	connect_properly(&visitor, port);
	bare_send(&visitor, bytes, len);
	bare_await_end(&visitor);
}

static void run_empty(uint16_t port)
{
	send_raw(port, 0, 0);
}

static void run_short_header(uint16_t port)
{
	send_raw(port, PROTO_DATA, PROTO_HEADER_LEN - 1);
}

static void run_type_zero(uint16_t port)
{
	send_raw(port, 0, PROTO_HEADER_LEN);
}

static void run_unknown_type(uint16_t port)
{
	send_raw(port, PROTO_MANY + 1, PROTO_HEADER_LEN);
}

static void run_short_offer(uint16_t port)
{
	send_raw(port, PROTO_OFFER, PROTO_HEADER_LEN);
}

static void run_long_credit(uint16_t port)
{
	send_raw(port, PROTO_CREDIT, PROTO_HEADER_LEN + 1);
}

/* More than a receive of the other side takes. */
static void run_long_send(uint16_t port)
{
	static uint8_t bytes[BARE_SEND] = {PROTO_DATA};

	connect_properly(&visitor, port);
	assert_true(granted.max_send < BARE_SEND);
	bare_send(&visitor, bytes, granted.max_send + 1);
	bare_await_end(&visitor);
}

/* ---- offers ---- */

static struct proto_message offer_of(const struct side *side, uint64_t length)
{
	return (struct proto_message){.type = PROTO_OFFER,
				      .length = length,
				      .address = (uintptr_t)side->buf + BARE_SEND_AT,
				      .key = side->mr->rkey,
				      .number = 7};
}

/* As it should be: so the others fail for the reason that they are about. */
static void run_good_offer(uint16_t port)
{
	struct proto_message offer, done;

	connect_properly(&visitor, port);
	offer = offer_of(&visitor, 100000);
	/* The offer itself is sent from there. */
	offer.address += KIB;
	fill(visitor.buf + BARE_SEND_AT + KIB, 100000, 9);
	say(&visitor, &offer);
	assert_true(hear(&visitor, PROTO_DONE, &done));
	assert_int_equal(done.number, 7);
	assert_int_equal(done.status, PROTO_TAKEN);
	close_properly(&visitor);
}

static void run_huge_offer(uint16_t port)
{
	static const uint64_t lengths[] = {1ull << 63, UINT64_MAX, 1ull << 40, (1ull << 30) + 1};
	struct proto_message offer, done;

	connect_properly(&visitor, port);
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		offer = offer_of(&visitor, lengths[i]);
		offer.number = 100 + i;
		say(&visitor, &offer);
		assert_true(hear(&visitor, PROTO_DONE, &done));
		assert_int_equal(done.number, 100 + i);
		assert_int_equal(done.status, PROTO_TOO_LARGE);
	}
	/* What comes after it is taken. */
	say(&visitor, &(struct proto_message){.type = PROTO_DATA});
	close_properly(&visitor);
}

static void run_wrong_key(uint16_t port)
{
	struct proto_message offer;

	connect_properly(&visitor, port);
	offer = offer_of(&visitor, 100000);
	offer.key ^= 0x5a5a00;
	say(&visitor, &offer);
	bare_await_end(&visitor);
}

static void run_offer_out_of_bounds(uint16_t port)
{
	struct proto_message offer;

	connect_properly(&visitor, port);
	offer = offer_of(&visitor, BARE_SEND + 1);
	say(&visitor, &offer);
	bare_await_end(&visitor);
}

/* ---- answers to offers ---- */

static void say_done(struct side *side, uint32_t number)
{
	say(side,
	    &(struct proto_message){.type = PROTO_DONE, .number = number, .status = PROTO_TAKEN});
}

/* As it should be, with receives as short as they may be: see post_around_its_receives. */
static void run_short_receives(uint16_t port)
{
	struct proto_message offer;

	longest_send = PROTO_MIN_SEND;
	connect_properly(&visitor, port);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(hear(&visitor, PROTO_OFFER, &offer));
		assert_true(offer.length > PROTO_MIN_SEND - PROTO_HEADER_LEN);
		say_done(&visitor, offer.number);
	}
	close_properly(&visitor);
}

static void run_done_unknown(uint16_t port)
{
	connect_properly(&visitor, port);
	say_done(&visitor, 12345);
	bare_await_end(&visitor);
}

/* The other side has offered a message: see post_offer. */
static void run_done_twice(uint16_t port)
{
	struct proto_message offer;

	connect_properly(&visitor, port);
	assert_true(hear(&visitor, PROTO_OFFER, &offer));
	say_done(&visitor, offer.number);
	say_done(&visitor, offer.number);
	bare_await_end(&visitor);
}

/* As it may be: the later offer is answered first, the other one refused. */
static void run_done_crosswise(uint16_t port)
{
	struct proto_message first, second;

	connect_properly(&visitor, port);
	assert_true(hear(&visitor, PROTO_OFFER, &first));
	assert_true(hear(&visitor, PROTO_OFFER, &second));
	say_done(&visitor, second.number);
	say(&visitor, &(struct proto_message){.type = PROTO_DONE,
					      .number = first.number,
					      .status = PROTO_NO_MEMORY});
	close_properly(&visitor);
}

static void run_done_strange(uint16_t port)
{
	struct proto_message offer;

	connect_properly(&visitor, port);
	assert_true(hear(&visitor, PROTO_OFFER, &offer));
	say(&visitor, &(struct proto_message){.type = PROTO_DONE,
					      .number = offer.number,
					      .status = (enum proto_status)77});
	bare_await_end(&visitor);
}

/* ---- credits ---- */

static void run_credit_overflow(uint16_t port)
{
	struct proto_message credit = {
		.type = PROTO_CREDIT, .data_credits = UINT16_MAX, .control_credits = UINT16_MAX};
	struct proto_message heard;

	connect_properly(&visitor, port);
	for (unsigned i = 0; i < 1000; i++) {
		/* The hello and these cost one each; more are granted when they are used up. */
		if (granted.control_credits <= 1 && !hear(&visitor, PROTO_CREDIT, &heard))
			break;
		granted.control_credits--;
		say(&visitor, &credit);
		if (fd_is_readable(visitor.channel->fd, 0))
			break;
	}
	bare_await_end(&visitor);
}

/* ---- ends ---- */

static void run_end_twice(uint16_t port)
{
	connect_properly(&visitor, port);
	say_end(&visitor, 0);
	say_end(&visitor, 0);
	bare_await_end(&visitor);
}

static void run_seen_without_end(uint16_t port)
{
	connect_properly(&visitor, port);
	say_end(&visitor, PROTO_SEEN);
	bare_await_end(&visitor);
}

static void run_data_after_end(uint16_t port)
{
	connect_properly(&visitor, port);
	say_end(&visitor, 0);
	say(&visitor, &(struct proto_message){.type = PROTO_DATA});
	bare_await_end(&visitor);
}

/* Says that it has seen all, and has not read what it was offered. */
static void run_end_with_offer_unread(uint16_t port)
{
	struct proto_message offer;

	connect_properly(&visitor, port);
	assert_true(hear(&visitor, PROTO_OFFER, &offer));
	say_end(&visitor, 0);
	say_end(&visitor, PROTO_SEEN);
	rdma_disconnect(visitor.id);
}

/* ---- the sign of life ---- */

static void run_dead_word(uint16_t port)
{
	struct proto_message hello;

	connect_without_hello(&visitor, port);
	hello = hello_of(&visitor);
	hello.key ^= 0x5a5a00;
	say(&visitor, &hello);
	bare_await_end(&visitor);
}

static const struct peer_role roles[] = {
	{"foreign_private", run_foreign_private},
	{"unknown_version", run_unknown_version},
	{"long_user_data", run_long_user_data},
	{"tiny_receives", run_tiny_receives},
	{"first_garbage", run_first_garbage},
	{"data_before_hello", run_data_before_hello},
	{"end_before_hello", run_end_before_hello},
	{"hello_twice", run_hello_twice},
	{"empty", run_empty},
	{"short_header", run_short_header},
	{"type_zero", run_type_zero},
	{"unknown_type", run_unknown_type},
	{"short_offer", run_short_offer},
	{"long_credit", run_long_credit},
	{"long_send", run_long_send},
	{"good_offer", run_good_offer},
	{"huge_offer", run_huge_offer},
	{"wrong_key", run_wrong_key},
	{"offer_out_of_bounds", run_offer_out_of_bounds},
	{"short_receives", run_short_receives},
	{"done_unknown", run_done_unknown},
	{"done_twice", run_done_twice},
	{"done_crosswise", run_done_crosswise},
	{"done_strange", run_done_strange},
	{"credit_overflow", run_credit_overflow},
	{"end_twice", run_end_twice},
	{"seen_without_end", run_seen_without_end},
	{"data_after_end", run_data_after_end},
	{"end_with_offer_unread", run_end_with_offer_unread},
	{"dead_word", run_dead_word},
};

/* ---- the side that is visited ---- */

static void run_rejected(const char *role)
{
	struct visit visit;

	visit_open(&visit, NULL);
	assert_int_equal(hubs_await_peer(peer_start(role, visit.link.server_hub->port)), 0);
	assert_ptr_equal(visit.link.server_hub->accepted, visit.link.server);
	visit_close(&visit);
}

/* A message that only large ones can be: it is offered to the visitor. */
static void post_offer(struct end *end)
{
	end_post(end, MIB);
}

static void post_two_offers(struct end *end)
{
	post_offer(end);
	post_offer(end);
}

static void post_around_its_receives(struct end *end)
{
	end_post(end, PROTO_MIN_SEND - PROTO_HEADER_LEN);
	end_post(end, PROTO_MIN_SEND - PROTO_HEADER_LEN + 1);
	end_post(end, 20 * PROTO_MIN_SEND);
}

/* ---- requests ---- */

static void test_request_with_foreign_private_data_harms_nobody(void **state)
{
	struct visit visit;
	struct hub *hub;

	(void)state;
	visit_open(&visit, NULL);
	hub = visit.link.server_hub;
	assert_int_equal(hubs_await_peer(peer_start("foreign_private", hub->port)), 0);
	await(hub->accepted == visit.link.server || hub->accepted->closed);
	visit_close(&visit);
}

static void test_request_that_is_not_understood_is_rejected(void **state)
{
	(void)state;
	run_rejected("unknown_version");
	run_rejected("long_user_data");
	run_rejected("tiny_receives");
}

/* ---- messages ---- */

static void test_first_message_other_than_hello_is_a_protocol_error(void **state)
{
	(void)state;
	run_protocol_error("first_garbage");
	run_protocol_error("data_before_hello");
	run_protocol_error("end_before_hello");
}

static void test_second_hello_is_a_protocol_error(void **state)
{
	(void)state;
	run_protocol_error("hello_twice");
}

static void test_message_that_cannot_be_parsed_is_a_protocol_error(void **state)
{
	(void)state;
	run_protocol_error("empty");
	run_protocol_error("short_header");
	run_protocol_error("type_zero");
	run_protocol_error("unknown_type");
	run_protocol_error("short_offer");
	run_protocol_error("long_credit");
}

/* The device ends it, each in its own way. */
static void run_lost(const char *role, unsigned keepalive)
{
	struct visit visit;

	visit_open(&visit, NULL);
	if (keepalive)
		assert_int_equal(ibmsg_set_keepalive(&visit.link.server_hub->loop, keepalive),
				 IBMSG_OK);
	visit_await_end(&visit, role);
	assert_int_not_equal(visit.guest->error, IBMSG_OK);
	assert_int_equal(visit.guest->received, 0);
	visit_close(&visit);
}

static void test_send_longer_than_a_receive_ends_its_connection(void **state)
{
	(void)state;
	run_lost("long_send", 0);
}

/* ---- offers ---- */

static void test_offer_by_hand_is_read(void **state)
{
	static uint8_t expected[100000];
	struct visit visit;

	(void)state;
	visit_open(&visit, NULL);
	visit_await_end(&visit, "good_offer");
	assert_int_equal(visit.guest->error, IBMSG_OK);
	assert_int_equal(visit.guest->received, 1);
	fill(expected, sizeof(expected), 9);
	assert_int_equal(visit.guest->letters[0].size, sizeof(expected));
	assert_true(visit.guest->letters[0].sum == checksum(expected, sizeof(expected)));
	visit_close(&visit);
}

static void test_offer_beyond_all_bounds_is_refused_and_the_connection_lives(void **state)
{
	struct visit visit;

	(void)state;
	visit_open(&visit, NULL);
	visit_await_end(&visit, "huge_offer");
	assert_int_equal(visit.guest->error, IBMSG_OK);
	assert_int_equal(visit.guest->received, 1);
	assert_int_equal(visit.guest->letters[0].size, 0);
	visit_close(&visit);
}

static void test_offer_of_memory_that_cannot_be_read_ends_its_connection(void **state)
{
	(void)state;
	run_lost("wrong_key", 0);
	run_lost("offer_out_of_bounds", 0);
}

/* What does not fit a receive of the peer is offered to it. */
static void test_peer_with_short_receives_is_sent_nothing_longer(void **state)
{
	struct visit visit;

	(void)state;
	visit_open(&visit, post_around_its_receives);
	visit_await_end(&visit, "short_receives");
	assert_int_equal(visit.guest->error, IBMSG_OK);
	assert_int_equal(visit.guest->sent, 3);
	visit_close(&visit);
}

static void test_answer_to_no_offer_is_a_protocol_error(void **state)
{
	(void)state;
	run_protocol_error("done_unknown");
}

static void run_answered(const char *role, enum ibmsg_buffer_status status)
{
	struct visit visit;

	visit_open(&visit, post_offer);
	visit_await_end(&visit, role);
	assert_int_equal(visit.guest->error, IBMSG_PROTOCOL_ERROR);
	assert_int_equal(visit.guest->parcels[0]->done, 1);
	assert_int_equal(visit.guest->parcels[0]->status, status);
	visit_close(&visit);
}

static void test_second_answer_to_an_offer_is_a_protocol_error(void **state)
{
	(void)state;
	run_answered("done_twice", IBMSG_SENT);
}

static void test_answer_with_an_unknown_status_is_a_protocol_error(void **state)
{
	(void)state;
	run_answered("done_strange", IBMSG_FAILED);
}

static void test_answers_in_another_order_are_for_the_offers_they_name(void **state)
{
	struct visit visit;

	(void)state;
	visit_open(&visit, post_two_offers);
	visit_await_end(&visit, "done_crosswise");
	assert_int_equal(visit.guest->error, IBMSG_OK);
	assert_int_equal(visit.guest->parcels[0]->status, IBMSG_FAILED);
	assert_int_equal(visit.guest->parcels[0]->error, IBMSG_PEER_OUT_OF_MEMORY);
	assert_int_equal(visit.guest->parcels[1]->status, IBMSG_SENT);
	visit_close(&visit);
}

/* ---- credits and ends ---- */

static void test_credits_that_overflow_are_a_protocol_error(void **state)
{
	(void)state;
	run_protocol_error("credit_overflow");
}

static void test_end_out_of_turn_is_a_protocol_error(void **state)
{
	(void)state;
	run_protocol_error("end_twice");
	run_protocol_error("seen_without_end");
	run_protocol_error("data_after_end");
}

static void test_end_with_an_offer_unread_proves_nothing(void **state)
{
	struct visit visit;

	(void)state;
	visit_open(&visit, post_offer);
	visit_await_end(&visit, "end_with_offer_unread");
	assert_int_not_equal(visit.guest->error, IBMSG_OK);
	assert_int_equal(visit.guest->parcels[0]->status, IBMSG_FAILED);
	visit_close(&visit);
}

static void test_sign_of_life_that_cannot_be_read_ends_its_connection(void **state)
{
	(void)state;
	run_lost("dead_word", 200);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		hub_test(test_request_with_foreign_private_data_harms_nobody),
		hub_test(test_request_that_is_not_understood_is_rejected),
		hub_test(test_first_message_other_than_hello_is_a_protocol_error),
		hub_test(test_second_hello_is_a_protocol_error),
		hub_test(test_message_that_cannot_be_parsed_is_a_protocol_error),
		hub_test(test_send_longer_than_a_receive_ends_its_connection),
		hub_test(test_offer_by_hand_is_read),
		hub_test(test_offer_beyond_all_bounds_is_refused_and_the_connection_lives),
		hub_test(test_offer_of_memory_that_cannot_be_read_ends_its_connection),
		hub_test(test_peer_with_short_receives_is_sent_nothing_longer),
		hub_test(test_answer_to_no_offer_is_a_protocol_error),
		hub_test(test_second_answer_to_an_offer_is_a_protocol_error),
		hub_test(test_answer_with_an_unknown_status_is_a_protocol_error),
		hub_test(test_answers_in_another_order_are_for_the_offers_they_name),
		hub_test(test_credits_that_overflow_are_a_protocol_error),
		hub_test(test_end_out_of_turn_is_a_protocol_error),
		hub_test(test_end_with_an_offer_unread_proves_nothing),
		hub_test(test_sign_of_life_that_cannot_be_read_ends_its_connection),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}
