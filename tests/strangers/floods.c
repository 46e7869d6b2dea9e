/* SPDX-License-Identifier: MIT */
/*
 * Strangers in numbers, and one that never stops talking: what they cost is bounded, and others do
 * not wait for them.
 */
#include "house.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define CROWD   1000u
#define TALKERS 8u

static struct fpdu fpdu;

/* ---- connections that say nothing ---- */

static void test_crowd_that_says_nothing_does_not_keep_others_out(void **state)
{
	static struct stranger crowd[CROWD];
	size_t before = resident_bytes();

	(void)state;
	for (unsigned i = 0; i < CROWD; i++)
		stranger_connect(&crowd[i], house_port());
	house_check();
	house_check_newcomer();
	expect_growth_below(before, 16 * MIB);
	for (unsigned i = 0; i < CROWD; i++)
		stranger_close(&crowd[i]);
	cm_expect_none(house_channel());
	house_check();
	house_check_newcomer();
}

/* ---- strangers that were refused, and talk on ---- */

static void *talk(void *arg)
{
	static const uint8_t words[64 << 10];
	struct stranger *stranger = arg;

	while (stranger_push(stranger, words, sizeof(words), WAIT_MS) == sizeof(words))
		continue;
	return NULL;
}

static bool ends_within(pthread_t thread, unsigned ms)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	return !pthread_timedjoin_np(thread, NULL, &until);
}

/*
 * What they are told of their refusal lingers for two seconds; that is no reason to listen to
 * nothing else.
 */
static void test_talkers_that_were_refused_do_not_stall_others(void **state)
{
	struct mpa_frame request = {.kind = MPA_REQUEST, .revision = 1, .markers = true};
	struct stranger talkers[TALKERS];
	pthread_t threads[TALKERS];
	uint64_t begin;

	(void)state;
	for (unsigned i = 0; i < TALKERS; i++) {
		stranger_connect(&talkers[i], house_port());
		stranger_say_frame(&talkers[i], &request);
	}
	for (unsigned i = 0; i < TALKERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, talk, &talkers[i]), 0);
	begin = now_ms();
	while (now_ms() - begin < 1000)
		house_check();
	house_check_newcomer();
	/* The time for their goodbye runs out, however much they say. */
	for (unsigned i = 0; i < TALKERS; i++)
		assert_true(ends_within(threads[i], WAIT_MS));
	for (unsigned i = 0; i < TALKERS; i++)
		stranger_close(&talkers[i]);
	house_check();
}

/* ---- messages without end ---- */

/* As many as the side takes while nobody posts a receive; bytes that went. */
static size_t push_sends(struct scene *scene, size_t payload, size_t most)
{
	size_t total = 0;

	while (total < most) {
		size_t len, went;

		fpdu_send(&fpdu, &scene->stranger, payload, 0x11);
		len = fpdu_end(&fpdu, &scene->stranger);
		went = stranger_push(&scene->stranger, fpdu.bytes, len, 500);
		total += went;
		if (went < len)
			break;
	}
	return total;
}

static void expect_bounded(size_t payload)
{
	static const struct scene_options options = {.no_recv = 1};
	const size_t most = 256 * MIB;
	struct scene scene;
	size_t before, went;

	scene_open(&scene, &options);
	before = resident_bytes();
	went = push_sends(&scene, payload, most);
	assert_true(went < most);
	expect_growth_below(before, 4 * MIB);
	house_check();
	stranger_reset(&scene.stranger);
	scene_expect_disconnected(&scene);
	scene_close(&scene);
}

static void test_sends_without_end_or_receive_are_bounded(void **state)
{
	(void)state;
	expect_bounded(0);
	expect_bounded(1);
	expect_bounded(60000);
}

/* One message without end, in segments. */
static void test_message_without_end_or_receive_is_bounded(void **state)
{
	static const struct scene_options options = {.no_recv = 1};
	struct scene scene;
	uint32_t mo = 0;
	size_t before;

	(void)state;
	scene_open(&scene, &options);
	before = resident_bytes();
	for (; mo < 256 * MIB; mo += 8192) {
		size_t len;

		fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, false, mo, 8192, 0x11);
		len = fpdu_end(&fpdu, &scene.stranger);
		if (stranger_push(&scene.stranger, fpdu.bytes, len, 500) < len)
			break;
	}
	assert_true(mo < 256 * MIB);
	expect_growth_below(before, 4 * MIB);
	house_check();
	/* The end is noticed, though the stream is not read. */
	stranger_reset(&scene.stranger);
	scene_expect_disconnected(&scene);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_talkers_that_were_refused_do_not_stall_others),
		cmocka_unit_test(test_sends_without_end_or_receive_are_bounded),
		cmocka_unit_test(test_message_without_end_or_receive_is_bounded),
		cmocka_unit_test(test_crowd_that_says_nothing_does_not_keep_others_out),
	};

	return cmocka_run_group_tests_name("floods", tests, house_open, house_close);
}
