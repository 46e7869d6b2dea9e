/* SPDX-License-Identifier: MIT */
/*
 * The stranger listens, and a program connects to it: replies that are wrong, in pieces, or never
 * come.
 */
#include "house.h"

#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

static const struct offer an_offer = {.addr = SINK_TO, .key = SINK_STAG, .len = 64};
static const struct pair_options options;
static struct fpdu fpdu;

/* A program's side that has connected, and the stranger it reached. */
struct visit {
	int listener;
	struct stranger stranger;
	struct side side;
	struct mpa_frame request;
	uint8_t request_bytes[MPA_MAX_FRAME];
};

static void visit_begin(struct visit *visit)
{
	side_equip(&visit->side, &options);
	side_recv(&visit->side, 1, 0, 64);
	side_connect(&visit->side, &options);
	stranger_accept(&visit->stranger, visit->listener);
	stranger_hear_frame(&visit->stranger, MPA_REQUEST, visit->request_bytes, &visit->request);
}

static void visit_open(struct visit *visit)
{
	uint16_t port;

	memset(visit, 0, sizeof(*visit));
	visit->listener = stranger_listen(&port);
	side_resolve(&visit->side, port);
	visit_begin(visit);
}

/* The same from a port that the program has bound, which this returns. */
static uint16_t visit_open_bound(struct visit *visit)
{
	struct sockaddr_storage own;
	uint16_t port;

	memset(visit, 0, sizeof(*visit));
	visit->listener = stranger_listen(&port);
	test_address(&own, 0);
	side_resolve_from(&visit->side, &own, port);
	visit_begin(visit);
	return rdma_get_src_port(visit->side.id);
}

static void visit_close(struct visit *visit)
{
	house_check();
	side_close(&visit->side);
	stranger_close(&visit->stranger);
	close(visit->listener);
}

/* No connection comes of it: one event says so, and the receive is flushed. */
static void expect_failed(struct visit *visit, enum rdma_cm_event_type type)
{
	assert_int_not_equal(cm_expect(visit->side.channel, type), 0);
	assert_false(fd_is_readable(visit->side.channel->fd, 0));
	cq_expect(visit->side.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
	visit_close(visit);
}

static struct mpa_frame reply_to(const struct visit *visit)
{
	return (struct mpa_frame){
		.kind = MPA_REPLY,
		.revision = visit->request.revision,
		.enhanced = visit->request.enhanced,
		.ird = visit->request.ord,
		.ord = visit->request.ird,
		.private_data = (const uint8_t *)&an_offer,
		.private_len = sizeof(an_offer),
	};
}

static void expect_talk(struct visit *visit)
{
	side_await_established(&visit->side);
	fpdu_send(&fpdu, &visit->stranger, 24, 0x11);
	stranger_say_fpdu(&visit->stranger, &fpdu);
	cq_expect(visit->side.recv_cq, 1, IBV_WC_SUCCESS);
	memset(visit->side.buf + 1024, 0x22, 40);
	side_send(&visit->side, 2, 1024, 40);
	cq_expect(visit->side.send_cq, 2, IBV_WC_SUCCESS);
	stranger_expect_send(&visit->stranger, 40, 0x22);
	visit_close(visit);
}

/* ---- replies ---- */

static void test_reply_byte_by_byte_is_taken(void **state)
{
	uint8_t bytes[MPA_MAX_FRAME];
	struct mpa_frame reply;
	struct visit visit;
	size_t len;

	(void)state;
	visit_open(&visit);
	reply = reply_to(&visit);
	len = mpa_bytes(&reply, bytes);
	for (size_t i = 0; i < len; i++) {
		assert_false(fd_is_readable(visit.side.channel->fd, 0));
		stranger_say(&visit.stranger, bytes + i, 1);
		poll(NULL, 0, 1);
	}
	expect_talk(&visit);
}

/* A good reply with one byte changed. */
static void refuse_spoiled(size_t at, uint8_t value)
{
	uint8_t bytes[MPA_MAX_FRAME];
	struct mpa_frame reply;
	struct visit visit;
	size_t len;

	visit_open(&visit);
	reply = reply_to(&visit);
	len = mpa_bytes(&reply, bytes);
	bytes[at] = value;
	stranger_say(&visit.stranger, bytes, len);
	expect_failed(&visit, RDMA_CM_EVENT_CONNECT_ERROR);
}

static void test_reply_that_is_garbage_is_an_error(void **state)
{
	(void)state;
	refuse_spoiled(0, 'X');
	refuse_spoiled(9, 'q'); /* a request's */
	refuse_spoiled(15, 0);
}

static void test_reply_of_another_revision_is_an_error(void **state)
{
	(void)state;
	refuse_spoiled(17, 3);
	refuse_spoiled(17, 1);
	refuse_spoiled(17, 0xff);
}

static void test_reply_that_demands_markers_is_an_error(void **state)
{
	(void)state;
	refuse_spoiled(16, 0x80 | 0x10);
}

static void test_reply_with_too_much_private_data_is_an_error(void **state)
{
	(void)state;
	refuse_spoiled(18, 0xff);
	refuse_spoiled(18, 0x03);
}

static void test_reply_that_is_not_enhanced_is_an_error(void **state)
{
	(void)state;
	refuse_spoiled(16, 0x00);
}

static void test_reply_that_rejects_brings_its_private_data(void **state)
{
	struct rdma_cm_event *event;
	struct mpa_frame reply;
	struct visit visit;

	(void)state;
	visit_open(&visit);
	reply = reply_to(&visit);
	reply.reject = true;
	stranger_say_frame(&visit.stranger, &reply);
	event = cm_take(visit.side.channel, RDMA_CM_EVENT_REJECTED);
	assert_int_not_equal(event->status, 0);
	assert_int_equal(event->param.conn.private_data_len, sizeof(an_offer));
	assert_memory_equal(event->param.conn.private_data, &an_offer, sizeof(an_offer));
	rdma_ack_cm_event(event);
	cq_expect(visit.side.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
	visit_close(&visit);
}

static void test_reply_with_more_reads_than_ours_is_told_so(void **state)
{
	struct mpa_frame reply;
	struct visit visit;

	(void)state;
	visit_open(&visit);
	reply = reply_to(&visit);
	reply.ord = 0x3ffe;
	stranger_say_frame(&visit.stranger, &reply);
	stranger_expect_terminate(&visit.stranger, TERM_MPA_IRD);
	expect_failed(&visit, RDMA_CM_EVENT_CONNECT_ERROR);
}

static void test_reply_with_an_opening_that_was_not_offered_is_told_so(void **state)
{
	struct mpa_frame reply;
	struct visit visit;

	(void)state;
	visit_open(&visit);
	assert_false(visit.request.peer_to_peer);
	reply = reply_to(&visit);
	reply.peer_to_peer = true;
	reply.rtr = MPA_RTR_READ;
	stranger_say_frame(&visit.stranger, &reply);
	stranger_expect_terminate(&visit.stranger, TERM_MPA_RTR);
	expect_failed(&visit, RDMA_CM_EVENT_CONNECT_ERROR);
}

/* The stranger speaks at once, before the initiator did. */
static void test_fpdu_right_behind_the_reply_is_received(void **state)
{
	uint8_t bytes[2 * MPA_MAX_FRAME];
	struct mpa_frame reply;
	struct visit visit;
	size_t len, more;

	(void)state;
	visit_open(&visit);
	reply = reply_to(&visit);
	len = mpa_bytes(&reply, bytes);
	fpdu_send(&fpdu, &visit.stranger, 24, 0x11);
	more = fpdu_end(&fpdu, &visit.stranger);
	memcpy(bytes + len, fpdu.bytes, more);
	stranger_say(&visit.stranger, bytes, len + more);
	side_await_established(&visit.side);
	cq_expect(visit.side.recv_cq, 1, IBV_WC_SUCCESS);
	visit_close(&visit);
}

/* ---- one who overlooks what comes right behind its reply, as siw can ---- */

static void visit_talk_open(struct visit *visit)
{
	struct mpa_frame reply;

	visit_open(visit);
	reply = reply_to(visit);
	stranger_say_frame(&visit->stranger, &reply);
	side_await_established(&visit->side);
}

static void expect_empty_write(struct stranger *stranger)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	size_t len = ddp_put_tagged(header, RDMAP_WRITE, true, 1, 0, 0);

	stranger_hear_fpdu(stranger, &fpdu);
	assert_int_equal(fpdu.len, len);
	assert_memory_equal(fpdu.bytes, header, len);
}

static void test_silent_peer_hears_empty_writes_until_it_speaks(void **state)
{
	struct visit visit;

	(void)state;
	visit_talk_open(&visit);
	memset(visit.side.buf + 1024, 0x22, 40);
	side_send(&visit.side, 2, 1024, 40);
	cq_expect(visit.side.send_cq, 2, IBV_WC_SUCCESS);
	stranger_expect_send(&visit.stranger, 40, 0x22);
	expect_empty_write(&visit.stranger);
	expect_empty_write(&visit.stranger);
	fpdu_send(&fpdu, &visit.stranger, 24, 0x11);
	stranger_say_fpdu(&visit.stranger, &fpdu);
	cq_expect(visit.side.recv_cq, 1, IBV_WC_SUCCESS);
	while (fd_is_readable(visit.stranger.fd, 0))
		expect_empty_write(&visit.stranger); /* under way before it spoke */
	assert_false(fd_is_readable(visit.stranger.fd, 900));
	visit_close(&visit);
}

static void test_silent_peer_of_a_silent_program_hears_nothing(void **state)
{
	struct visit visit;

	(void)state;
	visit_talk_open(&visit);
	assert_false(fd_is_readable(visit.stranger.fd, 400));
	visit_close(&visit);
}

/* ---- ends ---- */

/* Without a word: once more with revision 1, as one that knows no other may be there. */
static void test_end_without_a_reply_is_tried_once_more(void **state)
{
	struct mpa_frame reply;
	struct visit visit;

	(void)state;
	visit_open(&visit);
	assert_int_equal(visit.request.revision, 2);
	stranger_close(&visit.stranger);
	stranger_accept(&visit.stranger, visit.listener);
	stranger_hear_frame(&visit.stranger, MPA_REQUEST, visit.request_bytes, &visit.request);
	assert_int_equal(visit.request.revision, 1);
	assert_false(visit.request.enhanced);
	reply = reply_to(&visit);
	stranger_say_frame(&visit.stranger, &reply);
	expect_talk(&visit);
}

static uint16_t port_of_peer(const struct stranger *stranger)
{
	struct sockaddr_in6 peer = {0};
	socklen_t len = sizeof(peer);

	assert_int_equal(getpeername(stranger->fd, (struct sockaddr *)&peer, &len), 0);
	return peer.sin6_port; /* where IPv4 has it, too */
}

/* A peer may know the program by the port that it has bound. */
static void try_again_from_the_bound_port(void (*end)(struct stranger *stranger))
{
	struct mpa_frame reply;
	struct visit visit;
	uint16_t port;

	port = visit_open_bound(&visit);
	assert_int_equal(port_of_peer(&visit.stranger), port);
	end(&visit.stranger);
	stranger_accept(&visit.stranger, visit.listener);
	assert_int_equal(port_of_peer(&visit.stranger), port);
	stranger_hear_frame(&visit.stranger, MPA_REQUEST, visit.request_bytes, &visit.request);
	reply = reply_to(&visit);
	stranger_say_frame(&visit.stranger, &reply);
	expect_talk(&visit);
}

static void test_another_try_keeps_the_bound_port(void **state)
{
	(void)state;
	try_again_from_the_bound_port(stranger_reset);
	try_again_from_the_bound_port(stranger_close);
}

/* A reset without a word is tried again for a moment; nobody is to answer then. */
static void stop_listening(const struct visit *visit)
{
	assert_int_equal(shutdown(visit->listener, SHUT_RDWR), 0);
}

static void test_end_without_a_reply_twice_is_a_reject(void **state)
{
	struct visit visit;

	(void)state;
	visit_open(&visit);
	stranger_close(&visit.stranger);
	stranger_accept(&visit.stranger, visit.listener);
	stop_listening(&visit);
	stranger_close(&visit.stranger);
	expect_failed(&visit, RDMA_CM_EVENT_REJECTED);
}

static void test_end_at_any_byte_of_the_reply_is_a_reject(void **state)
{
	(void)state;
	for (unsigned i = 2; i < 2 * (MPA_HEADER_LEN + MPA_ENHANCED_LEN + sizeof(an_offer)); i++) {
		uint8_t bytes[MPA_MAX_FRAME];
		struct mpa_frame reply;
		struct visit visit;

		visit_open(&visit);
		reply = reply_to(&visit);
		mpa_bytes(&reply, bytes);
		stranger_say(&visit.stranger, bytes, i / 2);
		if (i % 2)
			stranger_reset(&visit.stranger);
		else
			stranger_close(&visit.stranger);
		expect_failed(&visit, RDMA_CM_EVENT_REJECTED);
	}
}

static void test_reset_without_a_reply_is_a_reject(void **state)
{
	struct visit visit;

	(void)state;
	visit_open(&visit);
	stop_listening(&visit);
	stranger_reset(&visit.stranger);
	expect_failed(&visit, RDMA_CM_EVENT_REJECTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reply_byte_by_byte_is_taken),
		cmocka_unit_test(test_reply_that_is_garbage_is_an_error),
		cmocka_unit_test(test_reply_of_another_revision_is_an_error),
		cmocka_unit_test(test_reply_that_demands_markers_is_an_error),
		cmocka_unit_test(test_reply_with_too_much_private_data_is_an_error),
		cmocka_unit_test(test_reply_that_is_not_enhanced_is_an_error),
		cmocka_unit_test(test_reply_that_rejects_brings_its_private_data),
		cmocka_unit_test(test_reply_with_more_reads_than_ours_is_told_so),
		cmocka_unit_test(test_reply_with_an_opening_that_was_not_offered_is_told_so),
		cmocka_unit_test(test_fpdu_right_behind_the_reply_is_received),
		cmocka_unit_test(test_silent_peer_hears_empty_writes_until_it_speaks),
		cmocka_unit_test(test_silent_peer_of_a_silent_program_hears_nothing),
		cmocka_unit_test(test_end_without_a_reply_is_tried_once_more),
		cmocka_unit_test(test_another_try_keeps_the_bound_port),
		cmocka_unit_test(test_end_without_a_reply_twice_is_a_reject),
		cmocka_unit_test(test_end_at_any_byte_of_the_reply_is_a_reject),
		cmocka_unit_test(test_reset_without_a_reply_is_a_reject),
	};

	return cmocka_run_group_tests_name("initiator", tests, house_open, house_close);
}
