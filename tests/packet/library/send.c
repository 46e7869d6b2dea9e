/* SPDX-License-Identifier: MIT */
/* Sending: the frames at the other end, packets that are free, lost from the pool never. */
#include "side.h"

#include <poll.h>
#include <time.h>

static struct hashpipe_ibv_send_pkt *next_send(const struct hashpipe_ibv_send_pkt *pkt)
{
	return (struct hashpipe_ibv_send_pkt *)pkt->wr.next;
}

static unsigned count_sends(const struct hashpipe_ibv_send_pkt *list)
{
	unsigned count = 0;

	for (; list; list = next_send(list))
		count++;
	return count;
}

/* Exactly @count packets are free, soon. They are the caller's. */
static struct hashpipe_ibv_send_pkt *get_all(struct hashpipe_ibv_context *context, unsigned count)
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE_MS * 1000000ull;
	struct hashpipe_ibv_send_pkt *list = NULL, *last = NULL;
	unsigned have = 0;

	while (have < count && now_ns(CLOCK_MONOTONIC) < end) {
		struct hashpipe_ibv_send_pkt *more = hashpipe_ibv_get_pkts(context, count);

		if (!more)
			continue;
		have += count_sends(more);
		if (last)
			last->wr.next = &more->wr;
		else
			list = more;
		for (last = more; last->wr.next; last = next_send(last))
			;
	}
	assert_int_equal(have, count);
	assert_null(hashpipe_ibv_get_pkts(context, 1));
	return list;
}

/* The kernel has something to say, too: ARP and ICMP. */
static bool is_udp(const uint8_t *frame)
{
	return frame[12] == 0x08 && frame[13] == 0x00 && frame[23] == 17;
}

/* The next frame there has this length and mark, and the headers of near_fill. */
static void far_expect(uint32_t len, uint32_t mark)
{
	struct frame frame = frame_udp(mark);
	uint8_t got[16384], expected[16384];
	uint32_t got_len;

	memcpy(frame.dst_mac, far_mac, 6);
	memcpy(frame.src_mac, near_mac, 6);
	frame.len = len;
	frame_write(&frame, expected);
	do
		got_len = far_recv(got, sizeof(got), PATIENCE_MS);
	while (got_len && !is_udp(got));
	assert_int_equal(got_len, len);
	assert_memory_equal(got, expected, len);
}

static void test_frames_leave_in_order_and_whole(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_send_pkt *list;
	uint32_t mark = 0;

	(void)state;
	near_init(&context, 16, 1, 2048, 1);
	for (int round = 0; round < 5; round++) {
		uint32_t first = mark;

		list = get_all(&context, 16);
		for (struct hashpipe_ibv_send_pkt *pkt = list; pkt; pkt = next_send(pkt), mark++)
			near_fill(pkt, 60 + mark, mark);
		assert_int_equal(hashpipe_ibv_send_pkts(&context, list, 0), 0);
		for (; first < mark; first++)
			far_expect(60 + first, first);
	}
	near_shutdown(&context);
}

static void test_jumbo_frame_leaves(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_send_pkt *pkt;

	(void)state;
	near_init(&context, 1, 1, 9216, 1);
	pkt = hashpipe_ibv_get_pkts(&context, 1);
	assert_non_null(pkt);
	near_fill(pkt, 9014, 3);
	assert_int_equal(hashpipe_ibv_send_pkts(&context, pkt, 0), 0);
	far_expect(9014, 3);
	near_shutdown(&context);
}

static void test_get_gives_what_is_free_and_leaves_errno_alone(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_send_pkt *some, *rest;

	(void)state;
	near_init(&context, 4, 1, 2048, 1);
	errno = 0;
	assert_null(hashpipe_ibv_get_pkts(&context, 0));
	some = hashpipe_ibv_get_pkts(&context, 3);
	assert_int_equal(count_sends(some), 3);
	rest = hashpipe_ibv_get_pkts(&context, 100);
	assert_int_equal(count_sends(rest), 1);
	assert_null(hashpipe_ibv_get_pkts(&context, 1));
	assert_int_equal(errno, 0);
	assert_int_not_equal(rest->wr.wr_id, some->wr.wr_id);
	near_shutdown(&context); /* with packets that are the user's */
	assert_int_equal(errno, 0);
}

static void test_length_stays_until_it_is_set_anew(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_send_pkt *pkt;

	(void)state;
	near_init(&context, 1, 1, 2048, 1);
	pkt = get_all(&context, 1);
	near_fill(pkt, 111, 1);
	assert_int_equal(hashpipe_ibv_send_pkts(&context, pkt, 0), 0);
	far_expect(111, 1);
	pkt = get_all(&context, 1);
	assert_int_equal(pkt->wr.sg_list->length, 111);
	near_shutdown(&context);
}

static void test_wrong_arguments_are_refused(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_send_pkt *pkt, foreign = {0};

	(void)state;
	near_init(&context, 2, 1, 2048, 1);
	pkt = hashpipe_ibv_get_pkts(&context, 1);
	near_fill(pkt, 100, 1);
	errno = 0;
	assert_int_equal(hashpipe_ibv_send_pkts(&context, NULL, 0), -1);
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_int_equal(hashpipe_ibv_send_pkts(&context, pkt, 1), -1); /* no such queue pair */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(hashpipe_ibv_send_pkts(&context, &foreign, 0), EINVAL);
	assert_int_equal(hashpipe_ibv_send_pkts(&context, pkt, 0), 0);
	assert_int_equal(hashpipe_ibv_send_pkts(&context, pkt, 0), EINVAL); /* not any more */
	far_expect(100, 1);
	get_all(&context, 2);
	near_shutdown(&context);
}

static void test_packets_that_were_not_taken_are_free_again(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_stats stats;
	struct hashpipe_ibv_send_pkt *list, *second;

	(void)state;
	near_init(&context, 4, 1, 2048, 1);
	list = get_all(&context, 4);
	second = next_send(list);
	for (struct hashpipe_ibv_send_pkt *pkt = list; pkt; pkt = next_send(pkt))
		near_fill(pkt, 100, 1);
	second->wr.num_sge = 1000;
	errno = 0;
	assert_true(hashpipe_ibv_send_pkts(&context, list, 0) > 0);
	assert_true(errno > 0);
	second->wr.num_sge = 1;
	far_expect(100, 1); /* the first */
	assert_int_equal(hashpipe_ibv_get_stats(&context, &stats, sizeof(stats)), 0);
	assert_int_equal(stats.send_pkts, 1);
	assert_int_equal(stats.send_bytes, 100);
	assert_int_equal(stats.send_errors, 3);
	get_all(&context, 4);
	near_shutdown(&context);
}

static void test_frame_that_the_interface_does_not_take_is_counted(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_stats stats;
	struct hashpipe_ibv_send_pkt *pkt;

	(void)state;
	near_init(&context, 2, 1, 16384, 1);
	pkt = hashpipe_ibv_get_pkts(&context, 1);
	near_fill(pkt, 12000, 1); /* the MTU is 9000 */
	hashpipe_ibv_send_pkts(&context, pkt, 0);
	pkt = get_all(&context, 2);
	assert_int_equal(hashpipe_ibv_get_stats(&context, &stats, sizeof(stats)), 0);
	assert_int_equal(stats.send_errors, 1);
	for (struct hashpipe_ibv_send_pkt *each = pkt; each; each = next_send(each))
		near_fill(each, 100, 5);
	assert_int_equal(hashpipe_ibv_send_pkts(&context, pkt, 0), 0);
	far_expect(100, 5);
	far_expect(100, 5);
	near_shutdown(&context);
}

static void test_shutdown_lets_packets_leave(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_send_pkt *list;
	uint32_t mark = 0;

	(void)state;
	near_init(&context, 256, 1, 2048, 1);
	list = hashpipe_ibv_get_pkts(&context, 256);
	for (struct hashpipe_ibv_send_pkt *pkt = list; pkt; pkt = next_send(pkt))
		near_fill(pkt, 200, mark++);
	assert_int_equal(mark, 256);
	assert_int_equal(hashpipe_ibv_send_pkts(&context, list, 0), 0);
	near_shutdown(&context);
	for (mark = 0; mark < 256; mark++)
		far_expect(200, mark);
}

static void test_one_queue_pair_takes_the_packets_of_all(void **state)
{
	struct hashpipe_ibv_context context = {.interface_name = NEAR,
					       .nqp = 3,
					       .send_pkt_num = 4,
					       .recv_pkt_num = 1,
					       .pkt_size_max = 2048,
					       .max_flows = 1};
	uint32_t mark = 0;

	(void)state;
	assert_int_equal(hashpipe_ibv_init(&context), 0);
	for (unsigned i = 0; i < 3; i++) {
		struct hashpipe_ibv_send_pkt *list = hashpipe_ibv_get_pkts(&context, 4);

		assert_int_equal(count_sends(list), 4);
		for (struct hashpipe_ibv_send_pkt *pkt = list; pkt; pkt = next_send(pkt))
			near_fill(pkt, 100, mark++);
		assert_int_equal(hashpipe_ibv_send_pkts(&context, list, 1), 0);
	}
	for (uint32_t i = 0; i < mark; i++)
		far_expect(100, i);
	get_all(&context, 12);
	near_shutdown(&context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_leave_in_order_and_whole),
		cmocka_unit_test(test_jumbo_frame_leaves),
		cmocka_unit_test(test_get_gives_what_is_free_and_leaves_errno_alone),
		cmocka_unit_test(test_length_stays_until_it_is_set_anew),
		cmocka_unit_test(test_wrong_arguments_are_refused),
		cmocka_unit_test(test_packets_that_were_not_taken_are_free_again),
		cmocka_unit_test(test_frame_that_the_interface_does_not_take_is_counted),
		cmocka_unit_test(test_shutdown_lets_packets_leave),
		cmocka_unit_test(test_one_queue_pair_takes_the_packets_of_all),
	};

	return RUN("send", tests);
}
