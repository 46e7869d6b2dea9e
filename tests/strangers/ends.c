/* SPDX-License-Identifier: MIT */
/*
 * The stream ends at any byte: in order or by a reset, in a handshake, in an FPDU, or behind what
 * nobody reads.
 */
#include "house.h"

#include <poll.h>
#include <unistd.h>

static const struct offer an_offer = {.addr = SINK_TO, .key = SINK_STAG, .len = 64};
static struct fpdu fpdu;

static void end(struct stranger *stranger, bool reset)
{
	if (reset) {
		stranger_reset(stranger);
		return;
	}
	stranger_finish(stranger);
	stranger_expect_end_after_all(stranger);
	stranger_close(stranger);
}

/* ---- handshakes ---- */

static void cut_request(size_t at, bool reset)
{
	struct mpa_frame frame = {.kind = MPA_REQUEST,
				  .revision = 2,
				  .enhanced = true,
				  .private_data = (const uint8_t *)&an_offer,
				  .private_len = sizeof(an_offer)};
	uint8_t bytes[MPA_MAX_FRAME];
	size_t len = mpa_bytes(&frame, bytes);
	struct stranger stranger;

	assert_true(at < len);
	stranger_connect(&stranger, house_port());
	stranger_say(&stranger, bytes, at);
	end(&stranger, reset);
	assert_false(fd_is_readable(house_channel()->fd, 0));
}

static void test_request_that_ends_at_any_byte_is_forgotten(void **state)
{
	(void)state;
	for (size_t at = 0; at < MPA_HEADER_LEN + MPA_ENHANCED_LEN + sizeof(an_offer); at++) {
		cut_request(at, false);
		cut_request(at, true);
	}
	cm_expect_none(house_channel());
	house_check();
	house_check_newcomer();
}

/* The request is whole, and then the stranger is gone before it is answered. */
static void test_request_whose_sender_left_may_be_accepted_or_refused(void **state)
{
	struct mpa_frame frame = {.kind = MPA_REQUEST,
				  .revision = 1,
				  .private_data = (const uint8_t *)&an_offer,
				  .private_len = sizeof(an_offer)};

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct rdma_cm_event *event;
		struct stranger stranger;
		struct rdma_cm_id *id;

		stranger_connect(&stranger, house_port());
		stranger_say_frame(&stranger, &frame);
		event = cm_take(house_channel(), RDMA_CM_EVENT_CONNECT_REQUEST);
		id = event->id;
		rdma_ack_cm_event(event);
		if (i % 2)
			stranger_reset(&stranger);
		else
			stranger_close(&stranger);
		if (i < 2)
			rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
	}
	house_check();
}

static void test_accept_of_a_sender_that_left_ends(void **state)
{
	(void)state;
	for (unsigned reset = 0; reset < 2; reset++) {
		struct mpa_frame frame = {.kind = MPA_REQUEST,
					  .revision = 1,
					  .private_data = (const uint8_t *)&an_offer,
					  .private_len = sizeof(an_offer)};
		struct rdma_conn_param param = {0};
		struct rdma_cm_event *event;
		struct stranger stranger;
		struct side side = {0};

		stranger_connect(&stranger, house_port());
		stranger_say_frame(&stranger, &frame);
		event = cm_take(house_channel(), RDMA_CM_EVENT_CONNECT_REQUEST);
		side.id = event->id;
		rdma_ack_cm_event(event);
		side.channel = rdma_create_event_channel();
		assert_int_equal(rdma_migrate_id(side.id, side.channel), 0);
		side_equip(&side, &(struct pair_options){0});
		side_recv(&side, 3, 0, 64);
		if (reset)
			stranger_reset(&stranger);
		else
			stranger_close(&stranger);
		if (!rdma_accept(side.id, &param)) {
			cm_expect(side.channel, RDMA_CM_EVENT_ESTABLISHED);
			cm_expect(side.channel, RDMA_CM_EVENT_DISCONNECTED);
			cq_expect(side.recv_cq, 3, IBV_WC_WR_FLUSH_ERR);
		}
		side_close(&side);
		house_check();
	}
}

/* ---- FPDUs ---- */

static void cut_fpdu(size_t at, bool reset)
{
	struct scene scene;

	scene_open(&scene, NULL);
	fpdu_send(&fpdu, &scene.stranger, 21, 0x11);
	assert_true(at <= fpdu_end(&fpdu, &scene.stranger));
	stranger_say(&scene.stranger, fpdu.bytes, at);
	end(&scene.stranger, reset);
	scene_expect_disconnected(&scene);
	/* A reset may overtake what was said before it. */
	if (at < fpdu_len(DDP_UNTAGGED_LEN + 21))
		assert_int_equal(scene.recvs.flushed, RECVS);
	else if (!reset)
		assert_int_equal(scene.recvs.flushed, RECVS - 1);
	scene_close(&scene);
}

static void test_fpdu_that_ends_at_any_byte_delivers_nothing(void **state)
{
	(void)state;
	for (size_t at = 0; at < fpdu_len(DDP_UNTAGGED_LEN + 21); at++) {
		cut_fpdu(at, false);
		cut_fpdu(at, true);
	}
}

static void test_fpdu_that_is_whole_is_delivered_before_the_end(void **state)
{
	(void)state;
	cut_fpdu(fpdu_len(DDP_UNTAGGED_LEN + 21), false);
	cut_fpdu(fpdu_len(DDP_UNTAGGED_LEN + 21), true);
}

/* ---- a stranger that does not read ---- */

#define WRITES 16u

static void post_writes(struct scene *scene)
{
	for (unsigned i = 0; i < WRITES; i++)
		side_post(&scene->side, &(struct request){.opcode = IBV_WR_RDMA_WRITE,
							  .id = i,
							  .len = 4 * MIB,
							  .flags = IBV_SEND_SIGNALED});
}

static void open_deaf(struct scene *scene, struct tally *writes)
{
	static const struct scene_options options = {.side = {.bytes = 4 * MIB}};

	scene_open(scene, &options);
	scene_expect_alive(scene);
	post_writes(scene);
	*writes = (struct tally){.posted = WRITES};
	house_check();
}

static void test_disconnect_from_a_peer_that_does_not_read_ends(void **state)
{
	struct tally writes;
	struct scene scene;

	(void)state;
	open_deaf(&scene, &writes);
	assert_int_equal(rdma_disconnect(scene.side.id), 0);
	scene_expect_disconnected(&scene);
	tally_drain(&writes, scene.side.send_cq);
	assert_int_not_equal(writes.flushed, 0);
	scene_close(&scene);
}

static void test_destroy_with_a_peer_that_does_not_read_ends(void **state)
{
	struct tally writes;
	struct scene scene;

	(void)state;
	open_deaf(&scene, &writes);
	scene_close(&scene);
}

/* It asks for much and takes none of it: what is asked next waits, and others are served. */
static void test_reads_of_a_peer_that_does_not_read_are_bounded(void **state)
{
	static const struct scene_options options = {.side = {.bytes = 16 * MIB}};
	struct scene scene;
	size_t before;

	(void)state;
	scene_open(&scene, &options);
	before = resident_bytes();
	for (unsigned i = 0; i < 16; i++) {
		fpdu_read(&fpdu, &scene.stranger, scene.side.mr->rkey, (uintptr_t)scene.side.buf,
			  16 * MIB);
		stranger_say_fpdu(&scene.stranger, &fpdu);
	}
	house_check();
	assert_true(fd_is_readable(scene.stranger.fd, WAIT_MS));
	expect_growth_below(before, 8 * MIB);
	stranger_reset(&scene.stranger);
	scene_expect_disconnected(&scene);
	scene_close(&scene);
}

/* ---- memory that goes while a stranger is at it ---- */

#define DEREG_ROUNDS 100

static void take_memory_away(struct scene *scene)
{
	assert_int_equal(ibv_dereg_mr(scene->mr), 0);
	scene->mr = NULL;
	/* Whatever is written here from now on is nobody's business but ours. */
	memset(scene->region, FRESH, REGION);
}

#define WINDOW 60000u

/* The peer fills the same memory again and again; at some moment it is taken away and reused. */
static void dereg_while_written(unsigned round)
{
	uint8_t *window = malloc(WINDOW);
	struct ibv_mr *mr;
	struct scene scene;

	assert_non_null(window);
	scene_open(&scene, NULL);
	mr = ibv_reg_mr(scene.side.pd, window, WINDOW, ALL_ACCESS);
	assert_non_null(mr);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, mr->rkey, (uintptr_t)window, WINDOW, 0x42);
	for (unsigned i = 0; i <= round % 20; i++)
		stranger_say_fpdu(&scene.stranger, &fpdu);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	memset(window, FRESH, WINDOW);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	scene_expect_terminate(&scene, TERM_DDP_INVALID_STAG);
	assert_true(is_all(window, WINDOW, FRESH));
	scene_close(&scene);
	free(window);
}

static void test_dereg_while_a_peer_writes_ends_that_connection_alone(void **state)
{
	(void)state;
	for (unsigned i = 0; i < DEREG_ROUNDS; i++)
		dereg_while_written(i);
}

static void await_byte(const uint8_t *at, uint8_t value)
{
	uint64_t end_at = now_ms() + WAIT_MS;

	while (peek(at) != value) {
		assert_true(now_ms() < end_at);
		poll(NULL, 0, 1);
	}
}

/* In the middle of one long segment. */
static void test_dereg_in_the_middle_of_a_segment_ends_that_connection_alone(void **state)
{
	(void)state;
	for (size_t half = 100; half < REGION; half += 1111) {
		struct scene scene;
		size_t len;

		scene_open(&scene, NULL);
		fpdu_tagged(&fpdu, RDMAP_WRITE, true, scene.mr->rkey, scene_to(&scene), REGION,
			    0x42);
		len = fpdu_end(&fpdu, &scene.stranger);
		stranger_say(&scene.stranger, fpdu.bytes, half);
		await_byte(scene.region, 0x42);
		take_memory_away(&scene);
		stranger_say(&scene.stranger, fpdu.bytes + half, len - half);
		scene_expect_terminate(&scene, TERM_DDP_INVALID_STAG);
		assert_true(is_all(scene.region, REGION, FRESH));
		scene_close(&scene);
	}
}

static void test_dereg_while_a_peer_reads_ends_that_connection_alone(void **state)
{
	static const struct scene_options options = {.side = {.bytes = 4 * MIB}};

	(void)state;
	for (unsigned i = 0; i < DEREG_ROUNDS / 10; i++) {
		struct ibv_mr *mr;
		struct scene scene;
		uint8_t *buf;

		scene_open(&scene, &options);
		buf = malloc(4 * MIB);
		assert_non_null(buf);
		memset(buf, FRESH, 4 * MIB);
		mr = ibv_reg_mr(scene.side.pd, buf, 4 * MIB, IBV_ACCESS_REMOTE_READ);
		assert_non_null(mr);
		for (unsigned n = 0; n < 8; n++) {
			fpdu_read(&fpdu, &scene.stranger, mr->rkey, (uintptr_t)buf, 4 * MIB);
			stranger_say_fpdu(&scene.stranger, &fpdu);
		}
		for (unsigned n = 0; n <= i; n++)
			stranger_hear_fpdu(&scene.stranger, &fpdu);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		free(buf);
		stranger_expect_end_after_all(&scene.stranger);
		scene_expect_disconnected(&scene);
		scene_close(&scene);
	}
}

/* ---- an end that is found by sending ---- */

#define TALKS 128 /* messages after which a poller looks at the socket by itself */

/* The side polls so much that nobody but its own calls touches the socket for a moment. */
static void make_poller(struct scene *scene)
{
	for (unsigned i = 0; i < TALKS; i++) {
		fpdu_send(&fpdu, &scene->stranger, 8, 0x11);
		stranger_say_fpdu(&scene->stranger, &fpdu);
		cq_expect(scene->side.recv_cq, i % RECVS, IBV_WC_SUCCESS);
		side_recv(&scene->side, i % RECVS, 0, ROOM);
	}
}

/*
 * The stranger refuses a read, and is gone when the side sends. The side learns of the end by the
 * error of its send; what the stranger has said is in the socket.
 */
static void refuse_and_reset(void)
{
	struct scene scene;

	scene_open(&scene, &(struct scene_options){.enhanced = true, .ird = 4, .ord = 4});
	make_poller(&scene);
	side_post(&scene.side, &(struct request){.opcode = IBV_WR_RDMA_READ,
						 .id = 7,
						 .at = 32 * KIB,
						 .len = 8,
						 .flags = IBV_SEND_SIGNALED});
	stranger_hear_fpdu(&scene.stranger, &fpdu);
	fpdu_terminate(&fpdu, TERM_RDMAP_INVALID_STAG >> 8, TERM_RDMAP_INVALID_STAG & 0xff, 0);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	stranger_reset(&scene.stranger);
	side_send(&scene.side, 8, 32 * KIB, 8);
	cq_expect(scene.side.send_cq, 7, IBV_WC_REM_ACCESS_ERR);
	cq_expect(scene.side.send_cq, 8, IBV_WC_WR_FLUSH_ERR);
	scene_expect_disconnected(&scene);
	scene_close(&scene);
}

static void test_terminate_is_read_when_a_send_finds_the_end(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 20; i++)
		refuse_and_reset();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_request_that_ends_at_any_byte_is_forgotten),
		cmocka_unit_test(test_request_whose_sender_left_may_be_accepted_or_refused),
		cmocka_unit_test(test_accept_of_a_sender_that_left_ends),
		cmocka_unit_test(test_fpdu_that_ends_at_any_byte_delivers_nothing),
		cmocka_unit_test(test_fpdu_that_is_whole_is_delivered_before_the_end),
		cmocka_unit_test(test_disconnect_from_a_peer_that_does_not_read_ends),
		cmocka_unit_test(test_destroy_with_a_peer_that_does_not_read_ends),
		cmocka_unit_test(test_reads_of_a_peer_that_does_not_read_are_bounded),
		cmocka_unit_test(test_dereg_while_a_peer_writes_ends_that_connection_alone),
		cmocka_unit_test(test_dereg_in_the_middle_of_a_segment_ends_that_connection_alone),
		cmocka_unit_test(test_dereg_while_a_peer_reads_ends_that_connection_alone),
		cmocka_unit_test(test_terminate_is_read_when_a_send_finds_the_end),
	};

	return cmocka_run_group_tests_name("ends", tests, house_open, house_close);
}
