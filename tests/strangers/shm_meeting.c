/* SPDX-License-Identifier: MIT */
/*
 * How two ends come to share memory, when one of them is a stranger: what is wrong leaves both on
 * TCP, where they were, and nothing is mapped that could be taken away.
 */
#include "lodger.h"
#include "visit.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* ---- the stranger connects ---- */

/* On TCP the side was all the time. */
static void expect_tcp(struct lodger *lodger)
{
	scene_expect_alive(&lodger->scene);
	lodger_close(lodger);
}

static void test_memory_that_a_side_shares_cannot_change_its_size(void **state)
{
	struct lodger lodger;

	(void)state;
	lodger_open(&lodger);
	assert_int_equal(fcntl(lodger.area_fd, F_GET_SEALS), SEALS);
	assert_int_not_equal(ftruncate(lodger.area_fd, 0), 0);
	assert_int_not_equal(ftruncate(lodger.area_fd, 2 * sizeof(struct area)), 0);
	lodger_expect_alive(&lodger);
	lodger_close(&lodger);
}

static void test_side_waits_for_the_hello_before_it_speaks(void **state)
{
	struct lodger lodger;
	struct rc_frame entry;
	const uint8_t *payload;

	(void)state;
	lodger_meet(&lodger, NULL);
	side_send(&lodger.scene.side, 7, 32 * KIB, 40);
	cq_expect_none(lodger.scene.side.send_cq);
	assert_true(ring_is_empty(&lodger.in));
	lodger_say_hello(&lodger);
	entry = lodger_take(&lodger, &payload);
	assert_int_equal(entry.len, 40);
	cq_expect(lodger.scene.side.send_cq, 7, IBV_WC_SUCCESS);
	lodger_close(&lodger);
}

static void test_lodger_that_hangs_up_is_served_over_tcp(void **state)
{
	struct lodger lodger;

	(void)state;
	lodger_meet(&lodger, NULL);
	shutdown(lodger.fd, SHUT_RDWR);
	expect_tcp(&lodger);
}

static void test_lodger_that_speaks_tcp_first_and_then_hangs_up_is_heard(void **state)
{
	static struct fpdu fpdu;
	struct lodger lodger;

	(void)state;
	lodger_meet(&lodger, NULL);
	fpdu_send(&fpdu, &lodger.scene.stranger, 30, 0x21);
	stranger_say_fpdu(&lodger.scene.stranger, &fpdu);
	shutdown(lodger.fd, SHUT_RDWR);
	scene_expect_recv(&lodger.scene, 30, 0x21);
	expect_tcp(&lodger);
}

static void test_lodger_that_vanishes_before_its_hello_is_noticed(void **state)
{
	struct lodger lodger;

	(void)state;
	lodger_meet(&lodger, NULL);
	shutdown(lodger.fd, SHUT_RDWR);
	stranger_finish(&lodger.scene.stranger);
	scene_expect_disconnected(&lodger.scene);
	lodger_close(&lodger);
}

static void say_wrong(const struct hello *hello, size_t len, const int *fds, unsigned num_fds)
{
	struct lodger lodger;

	lodger_meet(&lodger, NULL);
	unix_say(lodger.fd, hello, len, fds, num_fds);
	expect_tcp(&lodger);
}

static void test_hello_that_is_wrong_leads_to_tcp(void **state)
{
	const int fds[] = {0, 1, 2};
	uint64_t probe = 1;
	struct hello good, bad;

	(void)state;
	hello_make(&good, false, &probe);
	bad = good;
	bad.magic[3]++;
	say_wrong(&bad, sizeof(bad), NULL, 0);
	bad = good;
	bad.version++;
	say_wrong(&bad, sizeof(bad), NULL, 0);
	bad = good;
	bad.has_table = 1; /* which there is not */
	say_wrong(&bad, sizeof(bad), NULL, 0);
	bad.has_table = 2;
	say_wrong(&bad, sizeof(bad), fds, 2);
	say_wrong(&good, sizeof(good) - 1, NULL, 0);
	say_wrong(&good, sizeof(good), fds, 1);
	say_wrong(&good, sizeof(good), fds, 3);
}

/* A table that is none is as good as no table. */
static void test_table_that_is_none_is_not_mapped(void **state)
{
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct lodger lodger;
	struct hello hello;

	(void)state;
	lodger_meet(&lodger, NULL);
	hello_make(&hello, true, &lodger.probe);
	unix_say(lodger.fd, &hello, sizeof(hello), &null, 1);
	lodger_expect_alive(&lodger);
	lodger_close(&lodger);
	close(null);
}

static void test_bells_without_end_are_borne(void **state)
{
	struct lodger lodger;

	(void)state;
	lodger_open(&lodger);
	for (unsigned i = 0; i < 20000; i++)
		lodger_ring(&lodger);
	lodger_expect_alive(&lodger);
	lodger_close(&lodger);
}

static void test_last_word_of_the_lodger_is_heard_in_its_turn(void **state)
{
	struct rc_frame send = {.kind = RC_SEND, .flags = RC_LAST, .len = 24};
	const uint8_t word[] = {1, TERM_DDP_BOUNDS >> 8, TERM_DDP_BOUNDS & 0xff};
	struct lodger lodger;
	uint8_t payload[24];

	(void)state;
	lodger_open(&lodger);
	memset(payload, 0x55, sizeof(payload));
	lodger_put_quietly(&lodger, &send, payload);
	/* In two pieces, and no bell. */
	unix_say(lodger.fd, word, 2, NULL, 0);
	unix_say(lodger.fd, word + 2, 1, NULL, 0);
	scene_expect_recv(&lodger.scene, 24, 0x55);
	scene_expect_disconnected(&lodger.scene);
	lodger_close(&lodger);
}

/* ---- the side connects ---- */

/* Over TCP both go on. */
static void visit_expect_tcp(struct visit *visit)
{
	static struct fpdu fpdu;

	memset(visit->side.buf + KIB, 0x66, 40);
	side_send(&visit->side, 3, KIB, 40);
	cq_expect(visit->side.send_cq, 3, IBV_WC_SUCCESS);
	stranger_expect_send(&visit->stranger, 40, 0x66);
	fpdu_send(&fpdu, &visit->stranger, 16, 0x12);
	stranger_say_fpdu(&visit->stranger, &fpdu);
	cq_expect(visit->side.recv_cq, 1, IBV_WC_SUCCESS);
	assert_true(is_all(visit->side.buf, 16, 0x12));
}

static void test_responder_that_stays_away_is_served_over_tcp(void **state)
{
	(void)state;
	/* Truly, and when it says that it was there. */
	for (int says = 0; says < 2; says++) {
		struct visit visit;

		visit_open(&visit);
		visit_reply(&visit, says);
		visit_expect_tcp(&visit);
		visit_close(&visit);
	}
}

static int make_area(int seals, size_t size)
{
	int fd = memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* Takes @area over. */
static void offer_area(int area, bool good)
{
	uint64_t probe = 7;
	struct hello hello, heard;
	struct visit visit;
	int fd, fds[4];
	unsigned count;
	ssize_t got;

	visit_open(&visit);
	fd = unix_connect(visit.stranger.fd);
	hello_make(&hello, false, &probe);
	unix_say(fd, &hello, sizeof(hello), &area, 1);
	visit_reply(&visit, true);
	got = unix_hear(fd, &heard, sizeof(heard), fds, &count);
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
	if (good) {
		assert_int_equal(got, sizeof(heard));
		close(fd);
		cm_expect(visit.side.channel, RDMA_CM_EVENT_DISCONNECTED);
	} else {
		assert_true(got <= 0); /* hung up */
		close(fd);
		visit_expect_tcp(&visit);
	}
	visit_close(&visit);
	close(area);
}

static void test_memory_that_could_vanish_is_not_mapped(void **state)
{
	(void)state;
	offer_area(make_area(0, sizeof(struct area)), false);
	offer_area(make_area(F_SEAL_GROW | F_SEAL_SEAL, sizeof(struct area)), false);
	offer_area(make_area(F_SEAL_SHRINK | F_SEAL_GROW, sizeof(struct area)), false);
	offer_area(make_area(SEALS, sizeof(struct area) - 4096), false);
	offer_area(make_area(SEALS, sizeof(struct area) + 4096), false);
	offer_area(open("/dev/zero", O_RDWR | O_CLOEXEC), false);
	offer_area(make_area(SEALS, sizeof(struct area)), true);
}

/* Another user knocks first, and is left outside; the responder comes and is let in. */
static void test_other_users_are_not_met(void **state)
{
	struct visit visit;
	int status;
	pid_t pid;

	(void)state;
	if (geteuid())
		skip();
	visit_open(&visit);
	pid = fork();
	if (!pid) {
		uint64_t probe = 7;
		struct hello hello;
		int fd, area;

		if (setresuid(65534, 65534, 65534))
			_exit(1);
		fd = unix_connect(visit.stranger.fd);
		area = make_area(SEALS, sizeof(struct area));
		hello_make(&hello, false, &probe);
		unix_say(fd, &hello, sizeof(hello), &area, 1);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	visit_reply(&visit, true);
	visit_expect_tcp(&visit);
	visit_close(&visit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_that_a_side_shares_cannot_change_its_size),
		cmocka_unit_test(test_side_waits_for_the_hello_before_it_speaks),
		cmocka_unit_test(test_lodger_that_hangs_up_is_served_over_tcp),
		cmocka_unit_test(test_lodger_that_speaks_tcp_first_and_then_hangs_up_is_heard),
		cmocka_unit_test(test_lodger_that_vanishes_before_its_hello_is_noticed),
		cmocka_unit_test(test_hello_that_is_wrong_leads_to_tcp),
		cmocka_unit_test(test_table_that_is_none_is_not_mapped),
		cmocka_unit_test(test_bells_without_end_are_borne),
		cmocka_unit_test(test_last_word_of_the_lodger_is_heard_in_its_turn),
		cmocka_unit_test(test_responder_that_stays_away_is_served_over_tcp),
		cmocka_unit_test(test_memory_that_could_vanish_is_not_mapped),
		cmocka_unit_test(test_other_users_are_not_met),
	};

	return cmocka_run_group_tests_name("shm_meeting", tests, house_open, house_close);
}
