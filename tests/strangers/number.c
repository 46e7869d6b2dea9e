/* SPDX-License-Identifier: MIT */
/*
 * Strangers at the port of queue pairs that are connected by number. Whatever they say, the honest
 * peer is met, and nobody else.
 */
#include "numbered.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include "stranger.h"
#include "wire/qp_hello.h"

#define CROWD 400 /* more than there are places for visitors */

static const uint32_t first_psn = 0x10, other_psn = 0x20;

/* The honest end expects its peer; strangers know all that a wire tap would tell them. */
struct scene {
	struct numbered *victim, *peer;
};

static struct scene scene_open(void)
{
	struct scene scene = {.victim = numbered_open(), .peer = numbered_open()};

	numbered_rtr(scene.victim, scene.peer, other_psn);
	return scene;
}

static void meet_and_close(struct scene *scene)
{
	numbered_rtr(scene->peer, scene->victim, first_psn);
	numbered_rts(scene->peer, other_psn, LONG_TRIES);
	numbered_rts(scene->victim, first_psn, LONG_TRIES);
	numbered_exchange(scene->peer, scene->victim);
	numbered_exchange(scene->victim, scene->peer);
	numbered_close(scene->victim);
	numbered_close(scene->peer);
}

/* What the peer would say. */
static struct qp_hello right_hello(const struct scene *scene)
{
	struct qp_hello hello = {
		.path_mtu = IBV_MTU_1024,
		.from = scene->peer->qp->qp_num,
		.to = scene->victim->qp->qp_num,
		.psn = other_psn,
		.expected = first_psn,
	};

	memcpy(hello.gid, &numbered_gid, sizeof(hello.gid));
	return hello;
}

static void visit(struct stranger *stranger, const struct scene *scene)
{
	stranger_connect(stranger, htons((uint16_t)(scene->victim->qp->qp_num >> 8)));
}

static void say_hello(struct stranger *stranger, const struct qp_hello *hello)
{
	uint8_t bytes[QP_HELLO_LEN];
	const struct mpa_frame request = {
		.kind = MPA_REQUEST,
		.revision = 2,
		.enhanced = true,
		.soft = true,
		.acks = true,
		.ird = 4,
		.ord = 4,
		.private_data = bytes,
		.private_len = sizeof(bytes),
	};

	qp_hello_build(hello, bytes);
	stranger_say_frame(stranger, &request);
}

/* The answer, after which the other side ends. */
static enum qp_hello_answer hear_refusal(struct stranger *stranger)
{
	uint8_t bytes[MPA_MAX_FRAME];
	struct qp_hello answer;
	struct mpa_frame reply;

	stranger_hear_frame(stranger, MPA_REPLY, bytes, &reply);
	assert_true(reply.reject);
	assert_int_equal(qp_hello_parse(reply.private_data, reply.private_len, &answer), 0);
	stranger_expect_end(stranger);
	stranger_close(stranger);
	return answer.answer;
}

static enum qp_hello_answer try_hello(const struct scene *scene, const struct qp_hello *hello)
{
	struct stranger stranger;

	visit(&stranger, scene);
	say_hello(&stranger, hello);
	return hear_refusal(&stranger);
}

static void test_hello_that_does_not_fit_is_refused(void **state)
{
	struct scene scene = scene_open();
	const struct qp_hello right = right_hello(&scene);
	struct qp_hello wrong;

	(void)state;
	wrong = right;
	wrong.from++;
	assert_int_equal(try_hello(&scene, &wrong), MEET_UNFITTING);
	wrong = right;
	wrong.psn++;
	assert_int_equal(try_hello(&scene, &wrong), MEET_UNFITTING);
	wrong = right;
	wrong.gid[15]++;
	assert_int_equal(try_hello(&scene, &wrong), MEET_UNFITTING);
	meet_and_close(&scene);
}

/* Numbers that exist and expect nobody, and numbers that do not exist, look alike. */
static void test_guessed_numbers_tell_nothing(void **state)
{
	struct scene scene = scene_open();
	struct qp_hello guess = right_hello(&scene);

	(void)state;
	guess.to = scene.peer->qp->qp_num;
	assert_int_equal(try_hello(&scene, &guess), MEET_NOT_YET);
	guess.to = (guess.to & ~0xffu) | 0xfe;
	assert_int_equal(try_hello(&scene, &guess), MEET_NOT_YET);
	guess.to = 0;
	assert_int_equal(try_hello(&scene, &guess), MEET_NOT_YET);
	meet_and_close(&scene);
}

/* All is right but where it comes from. */
static void test_hello_from_another_address_is_refused(void **state)
{
	struct scene scene = scene_open();
	const struct qp_hello right = right_hello(&scene);
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002)};
	struct sockaddr_storage to;
	struct stranger stranger = {0};

	(void)state;
	stranger_open(&stranger, AF_INET);
	assert_int_equal(bind(stranger.fd, (struct sockaddr *)&from, sizeof(from)), 0);
	test_address(&to, htons((uint16_t)(scene.victim->qp->qp_num >> 8)));
	stranger_reach(&stranger, &to);
	say_hello(&stranger, &right);
	assert_int_equal(hear_refusal(&stranger), MEET_UNFITTING);
	meet_and_close(&scene);
}

static void test_second_hello_for_a_connected_queue_pair_is_refused(void **state)
{
	struct scene scene = scene_open();
	const struct qp_hello right = right_hello(&scene);

	(void)state;
	numbered_rtr(scene.peer, scene.victim, first_psn);
	numbered_rts(scene.peer, other_psn, LONG_TRIES);
	numbered_exchange(scene.peer, scene.victim);
	assert_int_equal(try_hello(&scene, &right), MEET_UNFITTING);
	numbered_exchange(scene.peer, scene.victim);
	numbered_close(scene.victim);
	numbered_close(scene.peer);
}

static void test_what_is_no_hello_ends_at_once(void **state)
{
	struct scene scene = scene_open();
	const struct mpa_frame plain = {.kind = MPA_REQUEST, .revision = 1};
	const struct mpa_frame odd = {.kind = MPA_REQUEST,
				      .revision = 2,
				      .enhanced = true,
				      .soft = true,
				      .acks = true,
				      .private_data = (const uint8_t *)"sQPn\2",
				      .private_len = 5};
	struct stranger stranger;

	(void)state;
	visit(&stranger, &scene);
	stranger_say(&stranger, "GET / HTTP/1.1\r\n\r\n", 18);
	stranger_expect_end_after_all(&stranger);
	stranger_close(&stranger);
	visit(&stranger, &scene);
	stranger_say_frame(&stranger, &plain);
	stranger_expect_end_after_all(&stranger);
	stranger_close(&stranger);
	visit(&stranger, &scene);
	stranger_say_frame(&stranger, &odd);
	stranger_expect_end_after_all(&stranger);
	stranger_close(&stranger);
	meet_and_close(&scene);
}

static void test_silent_crowd_keeps_nobody_out(void **state)
{
	static struct stranger crowd[CROWD];
	struct scene scene = scene_open();

	(void)state;
	for (unsigned i = 0; i < CROWD; i++)
		visit(&crowd[i], &scene);
	meet_and_close(&scene);
	for (unsigned i = 0; i < CROWD; i++)
		stranger_expect_end_after_all(&crowd[i]);
	for (unsigned i = 0; i < CROWD; i++)
		stranger_close(&crowd[i]);
}

/* A process that has no descriptor left takes its visitors when it has. */
static void test_visitor_waits_for_a_descriptor(void **state)
{
	static int spare[4096];
	struct scene scene = scene_open();
	struct qp_hello wrong = right_hello(&scene);
	struct stranger stranger = {0};
	struct sockaddr_storage to;
	unsigned count = 0;

	(void)state;
	wrong.psn++;
	test_address(&to, htons((uint16_t)(scene.victim->qp->qp_num >> 8)));
	stranger_open(&stranger, AF_INET);
	while (count < ARRAY_SIZE(spare) && (spare[count] = dup(stranger.fd)) >= 0)
		count++;
	assert_int_equal(errno, EMFILE);
	stranger_reach(&stranger, &to);
	say_hello(&stranger, &wrong);
	stranger_expect_silence(&stranger);
	while (count)
		close(spare[--count]);
	assert_int_equal(hear_refusal(&stranger), MEET_UNFITTING);
	meet_and_close(&scene);
}

/* Descriptors to be used up must not be too many. */
static int setup(void **state)
{
	struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur > 4096)
		limit.rlim_cur = 4096;
	return setrlimit(RLIMIT_NOFILE, &limit) || numbered_setup(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello_that_does_not_fit_is_refused),
		cmocka_unit_test(test_guessed_numbers_tell_nothing),
		cmocka_unit_test(test_hello_from_another_address_is_refused),
		cmocka_unit_test(test_second_hello_for_a_connected_queue_pair_is_refused),
		cmocka_unit_test(test_what_is_no_hello_ends_at_once),
		cmocka_unit_test(test_silent_crowd_keeps_nobody_out),
		cmocka_unit_test(test_visitor_waits_for_a_descriptor),
	};

	return cmocka_run_group_tests_name("number", tests, setup, numbered_teardown);
}
