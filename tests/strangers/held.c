/* SPDX-License-Identifier: MIT */
/* Messages that find no receive, from a stranger; SOFTRDMA_RECV_TIMEOUT is short here. */
#include "house.h"

#include <poll.h>
#include <unistd.h>

static const struct scene_options no_recv = {.no_recv = 1};
static struct fpdu fpdu;

static unsigned timeout_ms(void)
{
	const char *text = getenv("SOFTRDMA_RECV_TIMEOUT");

	if (!text) {
		print_message("needs SOFTRDMA_RECV_TIMEOUT in the environment\n");
		exit(77);
	}
	return (unsigned)strtoul(text, NULL, 10);
}

static void say_send(struct scene *scene, size_t len)
{
	fpdu_send(&fpdu, &scene->stranger, len, 0x11);
	stranger_say_fpdu(&scene->stranger, &fpdu);
}

static void test_send_without_a_receive_is_held_for_it(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &no_recv);
	say_send(&scene, 24);
	stranger_expect_silence(&scene.stranger);
	side_recv(&scene.side, 0, 0, ROOM);
	scene.recvs.posted = 1;
	scene_expect_recv(&scene, 24, 0x11);
	/* And no timer is left from it. */
	assert_false(fd_is_readable(scene.stranger.fd, (int)timeout_ms() * 2));
	scene_close(&scene);
}

static void expect_given_up(size_t len, unsigned count)
{
	uint64_t begin = now_ms();
	struct scene scene;

	scene_open(&scene, &no_recv);
	for (unsigned i = 0; i < count; i++)
		say_send(&scene, len);
	stranger_expect_terminate(&scene.stranger, TERM_DDP_NO_BUFFER);
	assert_true(now_ms() - begin >= timeout_ms());
	scene_expect_disconnected(&scene);
	/* What was held is gone with the connection. */
	side_recv(&scene.side, 0, 0, ROOM);
	cq_expect(scene.side.recv_cq, 0, IBV_WC_WR_FLUSH_ERR);
	scene_close(&scene);
}

static void test_send_without_a_receive_for_too_long_is_refused(void **state)
{
	(void)state;
	expect_given_up(0, 1);
	expect_given_up(24, 1);
	expect_given_up(60000, 2);
}

/* More than is kept: the stream is not read then, but its time runs out all the same. */
static void test_sends_that_block_the_stream_for_too_long_are_refused(void **state)
{
	(void)state;
	expect_given_up(60000, 6);
}

/* A Send of which half has come does not wait for a receive in vain either. */
static void test_send_in_part_without_a_receive_for_too_long_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &no_recv);
	fpdu_send(&fpdu, &scene.stranger, 1000, 0x11);
	stranger_say(&scene.stranger, fpdu.bytes, 500);
	scene_expect_terminate(&scene, TERM_DDP_NO_BUFFER);
	scene_close(&scene);
}

static void test_send_held_that_does_not_fit_its_late_receive_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &no_recv);
	say_send(&scene, ROOM + 1);
	stranger_expect_silence(&scene.stranger);
	side_recv(&scene.side, 0, 0, ROOM);
	cq_expect(scene.side.recv_cq, 0, IBV_WC_LOC_LEN_ERR);
	scene_expect_terminate(&scene, TERM_DDP_TOO_LONG);
	scene_close(&scene);
}

/* While one is held, what is wrong behind it is still seen. */
static void test_fault_behind_a_held_send_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &no_recv);
	say_send(&scene, 24);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, scene.mr->rkey ^ 1, scene_to(&scene), 8, 0x99);
	scene_refuse(&scene, &fpdu, TERM_DDP_INVALID_STAG);
	scene_close(&scene);
}

static void test_end_behind_a_held_send_is_noticed(void **state)
{
	(void)state;
	for (unsigned reset = 0; reset < 2; reset++) {
		struct scene scene;

		scene_open(&scene, &no_recv);
		for (unsigned i = 0; i < 6; i++)
			say_send(&scene, 60000);
		if (reset)
			stranger_reset(&scene.stranger);
		else
			stranger_close(&scene.stranger);
		scene_expect_disconnected(&scene);
		scene_close(&scene);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_send_without_a_receive_is_held_for_it),
		cmocka_unit_test(test_send_without_a_receive_for_too_long_is_refused),
		cmocka_unit_test(test_sends_that_block_the_stream_for_too_long_are_refused),
		cmocka_unit_test(test_send_in_part_without_a_receive_for_too_long_is_refused),
		cmocka_unit_test(test_send_held_that_does_not_fit_its_late_receive_is_refused),
		cmocka_unit_test(test_fault_behind_a_held_send_is_refused),
		cmocka_unit_test(test_end_behind_a_held_send_is_noticed),
	};

	timeout_ms();
	return cmocka_run_group_tests_name("held", tests, house_open, house_close);
}
