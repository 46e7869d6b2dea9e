/* SPDX-License-Identifier: MIT */
/* Frames that others want too: the kernel, other queue pairs, other processes; and rules that
 * change. */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "house.h"

static int there;

static struct rule rule_for_port(uint16_t port)
{
	struct fields fields = frame_udp4;
	struct rule rule;

	fields.dst_port = port;
	rule_build(&rule, &fields, 1u << F_DST_PORT, MASK_ALL);
	return rule;
}

static struct fields to_port(uint16_t port, uint32_t sequence)
{
	struct fields fields = frame_udp4;

	fields.dst_port = port;
	fields.sequence = sequence;
	return fields;
}

/* ---- the kernel ---- */

/* The kernel here answers an echo request. */
static void check_ping(void)
{
	static const uint8_t request[] = {8, 0, 0xf7, 0xfc, 0, 1, 0, 2};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a4d0001)};
	int fd = there_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	uint8_t reply[128] = {0};

	assert_int_equal(
		sendto(fd, request, sizeof(request), 0, (struct sockaddr *)&to, sizeof(to)),
		sizeof(request));
	assert_int_equal(poll(&readable, 1, WAIT_MS), 1);
	assert_int_equal(recv(fd, reply, sizeof(reply), 0), 20 + sizeof(request));
	assert_int_equal(reply[20], 0); /* an echo reply, not something unreachable */
	close(fd);
}

static void check_udp_both_ways(void)
{
	int here = udp_open(false, 7001), far = udp_open(true, 7002);

	udp_send(far, ADDRESS_HERE, 7001, "to here");
	assert_true(udp_has(here, "to here", true));
	udp_send(here, ADDRESS_THERE, 7002, "to there");
	assert_true(udp_has(far, "to there", true));
	close(here);
	close(far);
}

static void test_the_kernel_goes_on_beside(void **state)
{
	struct fields fields = to_port(5000, 1);
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	end_open(&end, 8);
	check_ping();
	flow = flow_add_port(&end, 5000);
	for (unsigned i = 0; i < 3; i++) {
		check_ping();
		check_udp_both_ways();
		there_send(there, &fields);
		end_expect(&end, &fields);
	}
	flow_remove(flow);
	check_ping();
	end_close(&end);
}

/* Two datagrams there to here; the kernel's sockets have the second, and the first if it may. */
static void check_who_gets(struct end *end, bool queue_pair, bool kernel)
{
	int matched = udp_open(false, 5000), other = udp_open(false, 5001), far = udp_open(true, 0);

	udp_send(far, ADDRESS_HERE, 5000, "matched");
	udp_send(far, ADDRESS_HERE, 5001, "other");
	assert_true(udp_has(other, "other", true));
	assert_int_equal(udp_has(matched, "matched", false), kernel);
	if (queue_pair) {
		end_wait(end);
		assert_int_equal(end->length, 42 + 7);
		assert_memory_equal(end->arrived + 42, "matched", 7);
	}
	assert_true(end_is_empty(end));
	close(matched);
	close(other);
	close(far);
}

static void test_normal_rules_take_packets_away(void **state)
{
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	end_open(&end, 8);
	check_who_gets(&end, false, true);
	flow = flow_add_port(&end, 5000);
	check_who_gets(&end, true, false);
	flow_remove(flow);
	check_who_gets(&end, false, true);
	end_close(&end);
}

/* Nobody listens at the port, and still nothing comes back: the kernel has not seen the packet. */
static void test_the_kernel_does_not_answer_what_was_taken(void **state)
{
	int far = udp_open(true, 0);
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(5000),
				 .sin_addr.s_addr = htonl(0x0a4d0001)};
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	end_open(&end, 8);
	flow = flow_add_port(&end, 5000);
	assert_int_equal(connect(far, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(send(far, "x", 1, 0), 1);
	end_wait(&end);
	check_ping();
	assert_int_equal(send(far, "y", 1, 0), 1); /* else ECONNREFUSED */
	end_wait(&end);
	flow_remove(flow);
	end_close(&end);
	close(far);
}

static void check_copies(enum ibv_flow_attr_type type, uint32_t flags)
{
	struct rule rule = rule_for_port(5000);
	struct ibv_flow *flow;
	struct end end;

	rule.attr.type = type;
	rule.attr.flags = flags;
	end_open(&end, 8);
	flow = flow_add(&end, &rule);
	check_who_gets(&end, true, true);
	flow_remove(flow);
	end_close(&end);
}

static void test_sniffers_get_copies(void **state)
{
	(void)state;
	check_copies(IBV_FLOW_ATTR_SNIFFER, 0);
	check_copies(IBV_FLOW_ATTR_NORMAL, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);
}

static void test_a_sniffer_without_specifications_sees_all(void **state)
{
	struct rule rule = {
		.attr = {.type = IBV_FLOW_ATTR_SNIFFER, .size = sizeof(rule.attr), .port = 1}};
	struct fields frames[] = {to_port(1, 1), frame_udp6, to_port(65535, 2)};
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	end_open(&end, 8);
	flow = flow_add(&end, &rule);
	for (unsigned i = 0; i < ARRAY_SIZE(frames); i++) {
		frames[i].src_mac[5] = 0x99; /* not the kernel's own */
		there_send(there, &frames[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(frames);) {
		end_wait(&end);
		if (end.arrived[11] != 0x99)
			continue;
		assert_int_equal(end.length, i == 1 ? 62 + 64 : 42 + 64);
		i++;
	}
	flow_remove(flow);
	end_close(&end);
}

/* ---- several queue pairs ---- */

static void test_the_same_rule_gives_each_a_copy(void **state)
{
	struct fields both = to_port(5000, 1), second_only = to_port(5001, 2);
	struct ibv_flow *flows[4];
	struct end ends[2];

	(void)state;
	end_open(&ends[0], 8);
	end_open(&ends[1], 8);
	flows[0] = flow_add_port(&ends[0], 5000);
	there_send(there, &both);
	end_expect(&ends[0], &both);
	flows[1] = flow_add_port(&ends[1], 5001);
	flows[2] = flow_add_port(&ends[1], 5000);
	for (unsigned i = 0; i < 5; i++) {
		both.sequence = second_only.sequence = 10 + i;
		there_send(there, &second_only);
		there_send(there, &both);
		end_expect(&ends[0], &both);
		end_expect(&ends[1], &second_only);
		end_expect(&ends[1], &both);
	}
	check_ping();
	flow_remove(flows[2]);
	there_send(there, &both);
	there_send(there, &second_only);
	end_expect(&ends[0], &both);
	end_expect(&ends[1], &second_only);
	flow_remove(flows[0]);
	flow_remove(flows[1]);
	end_close(&ends[0]);
	end_close(&ends[1]);
}

/* A rule that cannot go by XDP joins one that does: nothing of the other's is lost. */
static void test_a_sniffer_joins_under_traffic(void **state)
{
	struct rule sniffer = rule_for_port(5001);
	struct ibv_flow *flows[2];
	uint32_t sent = 0, seen = 0;
	struct end end;

	(void)state;
	sniffer.attr.type = IBV_FLOW_ATTR_SNIFFER;
	end_open(&end, 1); /* so that frames wait where they are */
	flows[0] = flow_add_port(&end, 5000);
	for (; sent < 100; sent++) {
		struct fields fields = to_port(5000, sent);

		there_send(there, &fields);
	}
	flows[1] = flow_add(&end, &sniffer);
	for (; sent < 200; sent++) {
		struct fields fields = to_port(5000, sent);

		there_send(there, &fields);
	}
	for (unsigned i = 1; i < 16; i++)
		end_post(&end, i);
	for (; seen < sent; seen++) {
		end_wait(&end);
		assert_int_equal(frame_sequence(end.arrived), seen);
	}
	flow_remove(flows[1]);
	flow_remove(flows[0]);
	end_close(&end);
}

/* ---- rules that change under traffic ---- */

struct stream {
	pthread_t thread;
	_Atomic(bool) stop;
	_Atomic(uint32_t) sent;
};

/* Frames to two ports in turn, slow enough for all to arrive. */
static void *send_stream(void *argument)
{
	struct stream *stream = argument;
	uint8_t frame[FRAME_MAX];

	while (!stream->stop) {
		struct fields fields = to_port(5000, stream->sent);
		size_t len = frame_build(&fields, frame);

		if (send(there, frame, len, 0) != (ssize_t)len)
			break;
		fields.dst_port = 5001;
		len = frame_build(&fields, frame);
		if (send(there, frame, len, 0) != (ssize_t)len)
			break;
		stream->sent++;
		usleep(500);
	}
	return NULL;
}

/* Take what has arrived: port 5000 without a gap, port 5001 in order. */
static void take_stream(struct end *end, uint32_t *next, uint32_t *last_other)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(end->recv_cq, 1, &wc)) {
		const uint8_t *frame = end->memory + wc.wr_id * END_ROOM;
		uint32_t sequence = frame_sequence(frame);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (frame[37] == (5000 & 0xff)) {
			assert_int_equal(sequence, *next);
			++*next;
		} else {
			assert_true(sequence > *last_other || !*last_other);
			*last_other = sequence;
		}
		end_post(end, (unsigned)wc.wr_id);
	}
}

/* Until ten more have come to the port whose rule stays. */
static void take_some(struct end *end, uint32_t *next, uint32_t *last_other)
{
	uint64_t until = now_ms() + WAIT_MS;
	uint32_t enough = *next + 10;

	while (*next < enough) {
		assert_true(now_ms() < until);
		take_stream(end, next, last_other);
	}
}

static void test_rules_change_without_loss_for_others(void **state)
{
	uint32_t next = 0, last_other = 0;
	struct stream stream = {0};
	struct ibv_flow *flow;
	struct end end;
	uint64_t until;

	(void)state;
	end_open(&end, END_FRAMES);
	flow = flow_add_port(&end, 5000);
	assert_int_equal(pthread_create(&stream.thread, NULL, send_stream, &stream), 0);
	for (unsigned i = 0; i < 15; i++) {
		struct ibv_flow *other = flow_add_port(&end, 5001), *third;

		take_some(&end, &next, &last_other);
		third = flow_add_port(&end, (uint16_t)(6000 + i));
		take_some(&end, &next, &last_other);
		flow_remove(other);
		take_some(&end, &next, &last_other);
		flow_remove(third);
		take_some(&end, &next, &last_other);
	}
	stream.stop = true;
	pthread_join(stream.thread, NULL);
	for (until = now_ms() + WAIT_MS; next < stream.sent && now_ms() < until;)
		take_stream(&end, &next, &last_other);
	assert_int_equal(next, stream.sent);
	assert_true(last_other > 0);
	flow_remove(flow);
	end_close(&end);
}

/* ---- several processes ---- */

static struct {
	pid_t pid;
	int to, from;
} guest;

/* Start this program again, in its role as a guest. */
static void start_guest(const char *role)
{
	const char *place = house_path();
	int down[2], up[2];

	assert_int_equal(pipe2(down, O_CLOEXEC), 0);
	assert_int_equal(pipe2(up, O_CLOEXEC), 0);
	guest.pid = fork();
	if (!guest.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
		dup2(down[0], STDIN_FILENO);
		dup2(up[1], STDOUT_FILENO);
		execl("/proc/self/exe", "packet_sharing", role, place, (char *)NULL);
		_exit(127);
	}
	close(down[0]);
	close(up[1]);
	guest.to = down[1];
	guest.from = up[0];
}

static char hear_guest(void)
{
	struct pollfd readable = {.fd = guest.from, .events = POLLIN};
	char what = 0;

	assert_int_equal(poll(&readable, 1, 2 * WAIT_MS), 1);
	assert_int_equal(read(guest.from, &what, 1), 1);
	return what;
}

static void tell_guest(char what)
{
	assert_int_equal(write(guest.to, &what, 1), 1);
}

static void end_guest(void)
{
	int status;

	close(guest.to);
	assert_int_equal(waitpid(guest.pid, &status, 0), guest.pid);
	assert_int_equal(status, 0);
	close(guest.from);
}

static void say(char what)
{
	if (write(STDOUT_FILENO, &what, 1) != 1)
		_exit(3);
}

/* Has the rule for port 5000, and says 'f' for each frame that it is asked for. */
static int receive_as_guest(void)
{
	struct ibv_flow *flow;
	struct end end;
	char what;

	end_open(&end, 64);
	flow = flow_add_port(&end, 5000);
	say('r');
	while (read(STDIN_FILENO, &what, 1) == 1) {
		end_wait(&end);
		say('f');
	}
	flow_remove(flow);
	end_close(&end);
	return 0;
}

static void test_another_process_gets_its_own_copy(void **state)
{
	struct ibv_flow *flow;
	struct end end;
	struct fields fields = to_port(5000, 0);

	(void)state;
	end_open(&end, 64);
	flow = flow_add_port(&end, 5000);
	there_send(there, &fields);
	end_expect(&end, &fields);
	start_guest("receive");
	assert_int_equal(hear_guest(), 'r');
	for (uint32_t i = 1; i < 20; i++) {
		fields.sequence = i;
		there_send(there, &fields);
		end_expect(&end, &fields);
		tell_guest('?');
		assert_int_equal(hear_guest(), 'f');
	}
	end_guest();
	there_send(there, &fields);
	end_expect(&end, &fields);
	flow_remove(flow);
	end_close(&end);
}

/* Has the rule, forks a child that stays, and waits to be killed. */
static int fork_as_guest(void)
{
	struct end end;
	pid_t child;

	end_open(&end, 64);
	flow_add_port(&end, 5000);
	child = fork();
	if (!child) {
		char what;

		/* Until the test closes its end: both are gone then. */
		while (read(STDIN_FILENO, &what, 1) == 1)
			;
		_exit(0);
	}
	say('r');
	for (;;)
		pause();
}

/* What a process took ends with it, though a child of it lives on. */
static void test_rules_end_with_their_process(void **state)
{
	uint64_t until = now_ms() + WAIT_MS;
	int matched = udp_open(false, 5000), far = udp_open(true, 0);
	bool had = false;
	int status;

	(void)state;
	start_guest("fork");
	assert_int_equal(hear_guest(), 'r');
	udp_send(far, ADDRESS_HERE, 5000, "taken");
	check_ping();
	assert_false(udp_has(matched, "taken", false));
	kill(guest.pid, SIGKILL);
	assert_int_equal(waitpid(guest.pid, &status, 0), guest.pid);
	/* The kernel lets go of a dead process's programs in its own time. */
	while (!had && now_ms() < until) {
		udp_send(far, ADDRESS_HERE, 5000, "free");
		check_ping();
		had = udp_has(matched, "free", false);
	}
	assert_true(had);
	close(guest.to);
	close(guest.from);
	close(matched);
	close(far);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_kernel_goes_on_beside),
		cmocka_unit_test(test_normal_rules_take_packets_away),
		cmocka_unit_test(test_the_kernel_does_not_answer_what_was_taken),
		cmocka_unit_test(test_sniffers_get_copies),
		cmocka_unit_test(test_a_sniffer_without_specifications_sees_all),
		cmocka_unit_test(test_the_same_rule_gives_each_a_copy),
		cmocka_unit_test(test_a_sniffer_joins_under_traffic),
		cmocka_unit_test(test_rules_change_without_loss_for_others),
		cmocka_unit_test(test_another_process_gets_its_own_copy),
		cmocka_unit_test(test_rules_end_with_their_process),
	};

	if (argc == 3) {
		house_enter(argv[2]);
		return strcmp(argv[1], "fork") ? receive_as_guest() : fork_as_guest();
	}
	house_build();
	there = there_open();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
