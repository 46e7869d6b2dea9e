/* SPDX-License-Identifier: MIT */
/*
 * Requests that are wrong, late, or in pieces: nobody hears of them but the log, and others still
 * get in.
 */
#include "house.h"

#include <poll.h>
#include <unistd.h>

#define REQUEST_MS 5000 /* a request has so long to come */

static const struct offer an_offer = {.addr = SINK_TO, .key = SINK_STAG, .len = 64};
static struct fpdu fpdu;

static struct mpa_frame a_request(void)
{
	return (struct mpa_frame){
		.kind = MPA_REQUEST,
		.revision = 1,
		.private_data = (const uint8_t *)&an_offer,
		.private_len = sizeof(an_offer),
	};
}

static struct mpa_frame an_enhanced_request(uint16_t ird, uint16_t ord)
{
	struct mpa_frame frame = a_request();

	frame.revision = 2;
	frame.enhanced = true;
	frame.ird = ird;
	frame.ord = ord;
	return frame;
}

/* The stranger is cut off without a word, and no event comes of it. */
static void expect_cut_off(const void *bytes, size_t len)
{
	struct stranger stranger;

	stranger_connect(&stranger, house_port());
	stranger_say(&stranger, bytes, len);
	stranger_expect_end_within(&stranger, REQUEST_MS / 2);
	stranger_close(&stranger);
	cm_expect_none(house_channel());
	house_check();
}

/* A good request with one byte changed. */
static void expect_spoiled_cut_off(size_t at, uint8_t value)
{
	uint8_t bytes[MPA_MAX_FRAME];
	struct mpa_frame frame = a_request();
	size_t len = mpa_bytes(&frame, bytes);

	bytes[at] = value;
	expect_cut_off(bytes, len);
}

/* ---- not a request ---- */

static void test_garbage_instead_of_a_request_is_cut_off(void **state)
{
	uint8_t bytes[4096];

	(void)state;
	fill(bytes, sizeof(bytes), 3);
	expect_cut_off(bytes, sizeof(bytes));
	memset(bytes, 0, sizeof(bytes));
	expect_cut_off(bytes, sizeof(bytes));
	expect_cut_off("GET / HTTP/1.0\r\n\r\n", 18);
	expect_cut_off("\xff", 1);
}

static void test_request_with_a_wrong_key_is_cut_off(void **state)
{
	(void)state;
	for (size_t at = 0; at < 16; at++)
		expect_spoiled_cut_off(at, 0x00);
}

static void test_reply_instead_of_a_request_is_cut_off(void **state)
{
	uint8_t bytes[MPA_MAX_FRAME];
	struct mpa_frame frame = a_request();

	(void)state;
	frame.kind = MPA_REPLY;
	expect_cut_off(bytes, mpa_bytes(&frame, bytes));
}

static void test_request_of_an_unknown_revision_is_cut_off(void **state)
{
	(void)state;
	expect_spoiled_cut_off(17, 3);
	expect_spoiled_cut_off(17, 0xff);
}

/* The length alone decides: the rest never comes. */
static void test_request_with_too_much_private_data_is_cut_off(void **state)
{
	(void)state;
	expect_spoiled_cut_off(18, 0xff);
	expect_spoiled_cut_off(18, 0x03);
	expect_spoiled_cut_off(18, 0x02); /* 512 + 16 */
}

static void test_request_with_private_data_of_65535_bytes_is_cut_off(void **state)
{
	uint8_t bytes[MPA_HEADER_LEN + UINT16_MAX];
	struct mpa_frame frame = a_request();

	(void)state;
	memset(bytes, 0x44, sizeof(bytes));
	mpa_bytes(&frame, bytes);
	put_be16(bytes + 18, UINT16_MAX);
	expect_cut_off(bytes, MPA_HEADER_LEN);
}

/* As long as MPA allows, but no event can carry it. */
static void test_request_with_private_data_of_512_bytes_is_cut_off(void **state)
{
	uint8_t bytes[MPA_MAX_FRAME], data[MPA_MAX_PRIVATE] = {1};
	struct mpa_frame frame = a_request();

	(void)state;
	frame.private_data = data;
	frame.private_len = sizeof(data);
	expect_cut_off(bytes, mpa_bytes(&frame, bytes));
}

static void test_enhanced_request_without_its_header_is_cut_off(void **state)
{
	uint8_t bytes[MPA_MAX_FRAME];
	struct mpa_frame frame = an_enhanced_request(1, 1);

	(void)state;
	mpa_bytes(&frame, bytes);
	for (uint16_t len = 0; len < MPA_ENHANCED_LEN; len++) {
		put_be16(bytes + 18, len);
		expect_cut_off(bytes, MPA_HEADER_LEN + len);
	}
}

/* ---- requests that are refused in so many words ---- */

static void expect_rejected(const struct mpa_frame *request, const uint8_t answer[4])
{
	uint8_t bytes[MPA_HEADER_LEN];
	struct stranger stranger;

	stranger_connect(&stranger, house_port());
	stranger_say_frame(&stranger, request);
	stranger_hear(&stranger, bytes, sizeof(bytes));
	assert_memory_equal(bytes, "MPA ID Rep Frame", 16);
	assert_memory_equal(bytes + 16, answer, 4);
	stranger_expect_end(&stranger);
	stranger_close(&stranger);
	cm_expect_none(house_channel());
	house_check();
}

static void test_request_for_markers_is_rejected(void **state)
{
	static const uint8_t as_siw[] = {0x20, 0x01, 0x00, 0x00};
	struct mpa_frame frame = a_request();

	(void)state;
	frame.markers = true;
	expect_rejected(&frame, as_siw);
}

static void test_request_for_peer_to_peer_with_no_way_to_open_is_rejected(void **state)
{
	static const uint8_t answer[] = {0x20, 0x02, 0x00, 0x00};
	struct mpa_frame frame = an_enhanced_request(4, 4);

	(void)state;
	frame.peer_to_peer = true;
	expect_rejected(&frame, answer);
}

/* ---- odd, but allowed ---- */

static void expect_depths(uint16_t ird, uint16_t ord, uint16_t answered_ird, uint16_t answered_ord)
{
	struct scene_options options = {.enhanced = true, .ird = ird, .ord = ord};
	struct scene scene;

	scene_open(&scene, &options);
	assert_true(scene.reply.enhanced);
	assert_int_equal(scene.reply.ird, answered_ird);
	assert_int_equal(scene.reply.ord, answered_ord);
	scene_expect_alive(&scene);
	scene_close(&scene);
}

static void test_enhanced_request_with_odd_depths_is_answered_within_ours(void **state)
{
	(void)state;
	expect_depths(0, 0, 0, 0);
	expect_depths(1, 2, 2, 1);
	expect_depths(0x3ffe, 0x3ffe, 16, 16);
	expect_depths(MPA_NOT_NEGOTIATED, MPA_NOT_NEGOTIATED, MPA_NOT_NEGOTIATED,
		      MPA_NOT_NEGOTIATED);
	expect_depths(MPA_NOT_NEGOTIATED, 0, 0, MPA_NOT_NEGOTIATED);
}

static void test_request_of_revision_zero_is_answered_as_revision_one(void **state)
{
	struct mpa_frame frame = a_request(), reply;
	uint8_t bytes[MPA_MAX_FRAME];
	struct stranger stranger;
	struct side side = {0};
	static const struct pair_options options;
	size_t len = mpa_bytes(&frame, bytes);

	(void)state;
	bytes[17] = 0;
	stranger_connect(&stranger, house_port());
	stranger_say(&stranger, bytes, len);
	side_accept(&side, house_channel(), &options);
	stranger_hear_frame(&stranger, MPA_REPLY, bytes, &reply);
	assert_int_equal(reply.revision, 1);
	assert_int_equal(cm_expect(side.channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	stranger_close(&stranger);
	cm_expect(side.channel, RDMA_CM_EVENT_DISCONNECTED);
	side_close(&side);
}

/* siw refuses that; nothing is lost by taking it. */
static void test_fpdu_right_behind_the_request_is_received(void **state)
{
	static const struct pair_options options;
	struct mpa_frame frame = a_request(), reply;
	uint8_t bytes[2 * MPA_MAX_FRAME];
	struct stranger stranger;
	struct side side = {0};
	size_t len = mpa_bytes(&frame, bytes), more;

	(void)state;
	stranger_connect(&stranger, house_port());
	fpdu_send(&fpdu, &stranger, 24, 0x11);
	more = fpdu_end(&fpdu, &stranger);
	memcpy(bytes + len, fpdu.bytes, more);
	stranger_say(&stranger, bytes, len + more);
	side_accept(&side, house_channel(), &options);
	side_recv(&side, 1, 0, 64);
	assert_int_equal(cq_expect(side.recv_cq, 1, IBV_WC_SUCCESS).byte_len, 24);
	stranger_hear_frame(&stranger, MPA_REPLY, bytes, &reply);
	stranger_close(&stranger);
	cm_expect(side.channel, RDMA_CM_EVENT_ESTABLISHED);
	cm_expect(side.channel, RDMA_CM_EVENT_DISCONNECTED);
	side_close(&side);
}

static void test_request_and_fpdu_byte_by_byte_are_received(void **state)
{
	static const struct pair_options options;
	struct mpa_frame frame = an_enhanced_request(3, 3), reply;
	uint8_t bytes[MPA_MAX_FRAME];
	struct stranger stranger;
	struct side side = {0};
	size_t len = mpa_bytes(&frame, bytes);

	(void)state;
	stranger_connect(&stranger, house_port());
	for (size_t i = 0; i < len; i++) {
		assert_false(fd_is_readable(house_channel()->fd, 0));
		stranger_say(&stranger, bytes + i, 1);
		poll(NULL, 0, 1);
	}
	side_accept(&side, house_channel(), &options);
	side_recv(&side, 1, 0, 64);
	stranger_hear_frame(&stranger, MPA_REPLY, bytes, &reply);
	fpdu_send(&fpdu, &stranger, 24, 0x11);
	len = fpdu_end(&fpdu, &stranger);
	for (size_t i = 0; i < len; i++) {
		stranger_say(&stranger, fpdu.bytes + i, 1);
		poll(NULL, 0, 1);
	}
	assert_int_equal(cq_expect(side.recv_cq, 1, IBV_WC_SUCCESS).byte_len, 24);
	stranger_close(&stranger);
	cm_expect(side.channel, RDMA_CM_EVENT_ESTABLISHED);
	cm_expect(side.channel, RDMA_CM_EVENT_DISCONNECTED);
	side_close(&side);
}

/* ---- opening, peer-to-peer ---- */

static const struct scene_options p2p_write = {.enhanced = true,
					       .peer_to_peer = true,
					       .rtr = MPA_RTR_WRITE,
					       .ird = 4,
					       .ord = 4,
					       .unopened = true};

static void test_opening_that_was_agreed_establishes(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &p2p_write);
	assert_true(scene.reply.peer_to_peer);
	assert_int_equal(scene.reply.rtr, MPA_RTR_WRITE);
	cm_expect_none(scene.side.channel);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, 1, 0, 0, 0);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	assert_int_equal(cm_expect(scene.side.channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	scene_expect_alive(&scene);
	scene_close(&scene);
}

static void expect_not_opened(struct scene *scene)
{
	tally_drain(&scene->recvs, scene->side.recv_cq);
	assert_int_not_equal(cm_expect(scene->side.channel, RDMA_CM_EVENT_CONNECT_ERROR), 0);
	assert_false(fd_is_readable(scene->side.channel->fd, 0));
	scene_close(scene);
}

/* An empty FPDU, where an empty Write was agreed on. */
static void test_opening_that_was_not_agreed_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &p2p_write);
	fpdu.len = FPDU_LENGTH_LEN;
	put_be16(fpdu.bytes, 0);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	stranger_expect_terminate(&scene.stranger, TERM_RDMAP_STREAM);
	expect_not_opened(&scene);
}

static void test_end_before_the_opening_is_an_error(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &p2p_write);
	stranger_finish(&scene.stranger);
	stranger_expect_end(&scene.stranger);
	expect_not_opened(&scene);
}

/* ---- time ---- */

/* One byte now and then does not buy more time. */
static void test_request_that_does_not_come_in_time_is_cut_off(void **state)
{
	enum { SILENT, HALF, SLOW, STRANGERS };
	struct mpa_frame frame = a_request();
	struct stranger strangers[STRANGERS];
	uint8_t bytes[MPA_MAX_FRAME];
	size_t len = mpa_bytes(&frame, bytes), said = 0;
	uint64_t begin = now_ms(), end;

	(void)state;
	for (unsigned i = 0; i < STRANGERS; i++)
		stranger_connect(&strangers[i], house_port());
	stranger_say(&strangers[HALF], bytes, len / 2);
	while (!fd_is_readable(strangers[SLOW].fd, REQUEST_MS / 20)) {
		assert_true(now_ms() - begin < 3 * REQUEST_MS);
		assert_true(said + 1 < len);
		stranger_say(&strangers[SLOW], bytes + said++, 1);
	}
	end = now_ms();
	for (unsigned i = 0; i < STRANGERS; i++) {
		stranger_expect_end_within(&strangers[i], REQUEST_MS);
		stranger_close(&strangers[i]);
	}
	assert_true(end - begin > REQUEST_MS / 2);
	cm_expect_none(house_channel());
	house_check();
}

/* ---- afterwards ---- */

/* Unless the kernel does not allow as much. */
static void test_connection_within_the_host_has_a_short_queue(void **state)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), half = MIB / 2, allowed = 0;
	socklen_t len = sizeof(allowed);
	struct scene scene;

	(void)state;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &half, sizeof(half)), 0);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &allowed, &len), 0);
	close(fd);
	scene_open(&scene, NULL);
	if (allowed == MIB)
		assert_int_equal(scene_send_queue(&scene), MIB);
	else
		assert_int_not_equal(scene_send_queue(&scene), allowed);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_garbage_instead_of_a_request_is_cut_off),
		cmocka_unit_test(test_request_with_a_wrong_key_is_cut_off),
		cmocka_unit_test(test_reply_instead_of_a_request_is_cut_off),
		cmocka_unit_test(test_request_of_an_unknown_revision_is_cut_off),
		cmocka_unit_test(test_request_with_too_much_private_data_is_cut_off),
		cmocka_unit_test(test_request_with_private_data_of_65535_bytes_is_cut_off),
		cmocka_unit_test(test_request_with_private_data_of_512_bytes_is_cut_off),
		cmocka_unit_test(test_enhanced_request_without_its_header_is_cut_off),
		cmocka_unit_test(test_request_for_markers_is_rejected),
		cmocka_unit_test(test_request_for_peer_to_peer_with_no_way_to_open_is_rejected),
		cmocka_unit_test(test_enhanced_request_with_odd_depths_is_answered_within_ours),
		cmocka_unit_test(test_request_of_revision_zero_is_answered_as_revision_one),
		cmocka_unit_test(test_fpdu_right_behind_the_request_is_received),
		cmocka_unit_test(test_request_and_fpdu_byte_by_byte_are_received),
		cmocka_unit_test(test_opening_that_was_agreed_establishes),
		cmocka_unit_test(test_opening_that_was_not_agreed_is_refused),
		cmocka_unit_test(test_end_before_the_opening_is_an_error),
		cmocka_unit_test(test_request_that_does_not_come_in_time_is_cut_off),
		cmocka_unit_test(test_connection_within_the_host_has_a_short_queue),
	};

	return cmocka_run_group_tests_name("handshake", tests, house_open, house_close);
}
