/* SPDX-License-Identifier: MIT */
/* Receiving and releasing: time limits, order, a pool that runs dry, memory of the user's. */
#include "side.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static void open_listening(struct hashpipe_ibv_context *context, uint32_t receives)
{
	near_init(context, 1, receives, 2048, 4);
	near_listen(context);
}

/* ---- time limits ---- */

static uint64_t ms_since(uint64_t begin)
{
	return (now_ns(CLOCK_MONOTONIC) - begin) / 1000000;
}

static void test_timeouts_are_kept_and_leave_errno_alone(void **state)
{
	struct hashpipe_ibv_context context;
	uint64_t begin;

	(void)state;
	open_listening(&context, 4);
	errno = 1234;
	assert_null(hashpipe_ibv_recv_pkts(&context, 0));
	begin = now_ns(CLOCK_MONOTONIC);
	assert_null(hashpipe_ibv_recv_pkts(&context, 50));
	assert_true(ms_since(begin) >= 50);
	assert_null(hashpipe_ibv_poll_pkts(&context, 0));
	assert_int_equal(errno, 1234);
	near_shutdown(&context);
	assert_int_equal(errno, 1234);
}

static void *send_later(void *unused)
{
	const struct timespec pause = {.tv_nsec = 30000000};

	(void)unused;
	nanosleep(&pause, NULL);
	far_send_udp(77, 1);
	return NULL;
}

static void test_wait_without_limit_ends_with_the_packet(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_recv_pkt *pkt;
	pthread_t sender;

	(void)state;
	open_listening(&context, 4);
	for (int i = 0; i < 3; i++) { /* whatever state the events are in */
		assert_int_equal(pthread_create(&sender, NULL, send_later, NULL), 0);
		pkt = hashpipe_ibv_recv_pkts(&context, -1);
		pthread_join(sender, NULL);
		assert_non_null(pkt);
		assert_int_equal(mark_of(pkt), 77);
		assert_int_equal(hashpipe_ibv_release_pkts(&context, pkt), 0);
	}
	near_shutdown(&context);
}

static void ignore(int number)
{
	(void)number;
}

static void test_signal_ends_the_wait_with_eintr(void **state)
{
	struct sigaction action = {.sa_handler = ignore};
	const struct itimerspec soon = {.it_value = {.tv_nsec = 30000000},
					.it_interval = {.tv_nsec = 30000000}};
	struct hashpipe_ibv_context context;
	timer_t timer;

	(void)state;
	open_listening(&context, 4);
	sigaction(SIGALRM, &action, NULL);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, NULL, &timer), 0);
	assert_int_equal(timer_settime(timer, 0, &soon, NULL), 0);
	errno = 0;
	assert_null(hashpipe_ibv_recv_pkts(&context, PATIENCE_MS));
	timer_delete(timer);
	assert_int_equal(errno, EINTR);
	near_shutdown(&context);
}

static void test_descriptor_is_readable_when_something_has_come(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_recv_pkt *list;
	struct pollfd channel;

	(void)state;
	open_listening(&context, 16);
	channel = (struct pollfd){.fd = context.recv_cc->fd, .events = POLLIN};
	for (uint32_t round = 0; round < 5; round++) {
		unsigned count = 0;

		assert_int_equal(poll(&channel, 1, 0), 0);
		far_send_udp(round * 2, 2);
		while (count < 2) {
			assert_int_equal(poll(&channel, 1, PATIENCE_MS), 1);
			list = hashpipe_ibv_recv_pkts(&context, 0);
			count += length_of(list);
			assert_int_equal(hashpipe_ibv_release_pkts(&context, list), 0);
		}
		assert_null(hashpipe_ibv_recv_pkts(&context, 0));
	}
	near_shutdown(&context);
}

/* ---- lists ---- */

static void test_packets_come_in_order_and_whole(void **state)
{
	struct hashpipe_ibv_context context;
	struct frame sent = frame_udp(4711);
	uint8_t expected[2048];
	struct hashpipe_ibv_recv_pkt *pkt;

	(void)state;
	open_listening(&context, 64);
	far_send_udp(100, 300);
	near_expect(&context, 100, 300);
	for (uint32_t len = 60; len <= 1514; len += 727) {
		sent.len = len;
		far_send(&sent);
		pkt = near_take(&context);
		assert_int_equal(pkt->length, frame_write(&sent, expected));
		assert_memory_equal(bytes_of(pkt), expected, len);
		assert_int_equal(hashpipe_ibv_release_pkts(&context, pkt), 0);
	}
	near_shutdown(&context);
}

static void test_batch_is_limited(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_recv_pkt *list;
	unsigned seen = 0;

	(void)state;
	open_listening(&context, 64);
	far_send_udp(0, 40);
	assert_int_equal(hashpipe_ibv_set_max_batch(&context, 7), 0);
	while (seen < 40) {
		list = hashpipe_ibv_recv_pkts(&context, PATIENCE_MS);
		assert_non_null(list);
		assert_true(length_of(list) <= 7);
		for (struct hashpipe_ibv_recv_pkt *pkt = list; pkt; pkt = next_of(pkt))
			assert_int_equal(mark_of(pkt), seen++);
		hashpipe_ibv_release_pkts(&context, list);
	}
	near_shutdown(&context);
}

static void test_poll_receives_without_waiting(void **state)
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE_MS * 1000000ull;
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_recv_pkt *list;
	unsigned seen = 0;

	(void)state;
	open_listening(&context, 64);
	far_send_udp(0, 50);
	while (seen < 50 && now_ns(CLOCK_MONOTONIC) < end) {
		list = hashpipe_ibv_poll_pkts(&context, 3);
		assert_true(length_of(list) <= 3);
		for (struct hashpipe_ibv_recv_pkt *pkt = list; pkt; pkt = next_of(pkt))
			assert_int_equal(mark_of(pkt), seen++);
		hashpipe_ibv_release_pkts(&context, list);
	}
	assert_int_equal(seen, 50);
	near_shutdown(&context);
}

/* ---- releasing ---- */

static void test_pool_that_ran_dry_is_refilled_in_any_order(void **state)
{
	static const unsigned order[] = {5, 0, 7, 2, 6, 1, 4, 3};
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_recv_pkt *kept[8];
	bool used[8] = {false};

	(void)state;
	open_listening(&context, 8);
	far_send_udp(0, 8);
	for (unsigned i = 0; i < 8; i++) {
		kept[i] = near_take(&context);
		assert_int_equal(mark_of(kept[i]), i);
		assert_false(used[kept[i]->wr.wr_id]);
		used[kept[i]->wr.wr_id] = true;
	}
	near_expect_nothing(&context);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(mark_of(kept[order[i]]), order[i]); /* not written to */
		assert_int_equal(hashpipe_ibv_release_pkts(&context, kept[order[i]]), 0);
	}
	far_send_udp(50, 8);
	near_expect(&context, 50, 8);
	near_shutdown(&context);
}

static void test_list_may_be_relinked_and_released_in_parts(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_recv_pkt *kept[6];

	(void)state;
	open_listening(&context, 6);
	far_send_udp(0, 6);
	for (unsigned i = 0; i < 6; i++)
		kept[i] = near_take(&context);
	kept[4]->wr.next = &kept[1]->wr;
	kept[1]->wr.next = &kept[5]->wr;
	assert_int_equal(hashpipe_ibv_release_pkts(&context, kept[4]), 0);
	kept[3]->wr.next = &kept[0]->wr;
	kept[0]->wr.next = &kept[2]->wr;
	assert_int_equal(hashpipe_ibv_release_pkts(&context, kept[3]), 0);
	far_send_udp(10, 30);
	near_expect(&context, 10, 30);
	near_shutdown(&context);
}

static void test_packet_released_twice_is_refused(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_recv_pkt *pkt, *other, foreign = {0};

	(void)state;
	open_listening(&context, 4);
	assert_int_equal(hashpipe_ibv_release_pkts(&context, NULL), 0);
	far_send_udp(0, 2);
	pkt = near_take(&context);
	other = near_take(&context);
	assert_int_equal(hashpipe_ibv_release_pkts(&context, pkt), 0);
	errno = 0;
	assert_int_equal(hashpipe_ibv_release_pkts(&context, pkt), EINVAL);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(hashpipe_ibv_release_pkts(&context, &foreign), EINVAL);
	assert_int_equal(hashpipe_ibv_release_pkts(
				 &context, (struct hashpipe_ibv_recv_pkt *)((char *)other + 8)),
			 EINVAL);
	other->wr.next = &other->wr; /* a ring */
	assert_int_equal(hashpipe_ibv_release_pkts(&context, other), EINVAL);
	far_send_udp(10, 30);
	near_expect(&context, 10, 30);
	near_shutdown(&context);
}

static void test_packet_that_cannot_be_posted_is_not_lost(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_stats stats;
	struct hashpipe_ibv_recv_pkt *bad, *good;

	(void)state;
	open_listening(&context, 4);
	far_send_udp(0, 2);
	bad = near_take(&context);
	good = near_take(&context);
	bad->wr.num_sge = 1000;
	bad->wr.next = &good->wr;
	errno = 0;
	assert_true(hashpipe_ibv_release_pkts(&context, bad) > 0);
	assert_true(errno > 0);
	assert_int_equal(hashpipe_ibv_get_stats(&context, &stats, sizeof(stats)), 0);
	assert_int_equal(stats.pkts_held, 1);
	assert_int_equal(stats.pkts_out, 0);
	/* The others are there. */
	far_send_udp(10, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(mark_of(near_take(&context)), 10 + i);
	near_expect_nothing(&context);
	bad->wr.num_sge = 1;
	assert_int_equal(hashpipe_ibv_release_pkts(&context, bad), 0);
	assert_int_equal(hashpipe_ibv_get_stats(&context, &stats, sizeof(stats)), 0);
	assert_int_equal(stats.pkts_held, 0);
	assert_int_equal(stats.pkts_out, 3);
	far_send_udp(20, 10);
	near_expect(&context, 20, 10);
	near_shutdown(&context);
}

/* ---- sizes ---- */

static void test_jumbo_and_short_frames_arrive(void **state)
{
	struct hashpipe_ibv_context context;
	struct frame frame = frame_udp(5);

	(void)state;
	near_init(&context, 1, 8, 9216, 4);
	near_listen(&context);
	frame.len = 9014;
	far_send(&frame);
	near_expect(&context, 5, 1);
	frame.len = 46; /* less than Ethernet has on a wire */
	far_send(&frame);
	near_expect(&context, 5, 1);
	near_shutdown(&context);
}

static void test_frame_longer_than_the_buffer_fails_alone(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_stats stats;
	struct hashpipe_ibv_recv_pkt *pkt;
	struct frame frame = frame_udp(5);
	uint8_t *guard;

	(void)state;
	near_init(&context, 1, 4, 200, 4);
	near_listen(&context);
	guard = context.recv_mr_buf + 200;
	memset(context.recv_mr_buf, 0xee, 800);
	frame.len = 1000;
	far_send(&frame);
	pkt = near_take(&context);
	assert_int_equal(pkt->length, 0);
	assert_int_equal(pkt->wr.wr_id, 0);
	for (unsigned i = 0; i < 600; i++)
		assert_int_equal(guard[i], 0xee);
	assert_int_equal(hashpipe_ibv_get_stats(&context, &stats, sizeof(stats)), 0);
	assert_int_equal(stats.recv_errors, 1);
	assert_int_equal(hashpipe_ibv_release_pkts(&context, pkt), 0);
	far_send_udp(10, 10);
	near_expect(&context, 10, 10);
	near_shutdown(&context);
}

/* ---- memory of the user's ---- */

struct ring {
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_send_pkt send_pkts[1];
	struct hashpipe_ibv_recv_pkt recv_pkts[8];
	struct ibv_sge send_sge[1], recv_sge[16];
	uint8_t send_memory[2048], memory[64][2048];
};

static struct ring *ring_new(unsigned pieces)
{
	struct ring *ring = calloc(1, sizeof(*ring));

	assert_non_null(ring);
	ring->context = (struct hashpipe_ibv_context){
		.interface_name = NEAR,
		.user_managed_flag = 1,
		.send_pkt_num = 1,
		.recv_pkt_num = 8,
		.max_flows = 2,
		.send_pkt_buf = ring->send_pkts,
		.recv_pkt_buf = ring->recv_pkts,
		.send_sge_buf = ring->send_sge,
		.recv_sge_buf = ring->recv_sge,
		.send_mr_buf = ring->send_memory,
		.recv_mr_buf = ring->memory[0],
		.send_mr_size = sizeof(ring->send_memory),
		.recv_mr_size = sizeof(ring->memory),
	};
	ring->send_pkts[0].wr.num_sge = 1;
	ring->send_sge[0] = (struct ibv_sge){.addr = (uintptr_t)ring->send_memory, .length = 2048};
	for (unsigned i = 0; i < 8; i++) {
		ring->recv_pkts[i].wr.num_sge = (int)pieces;
		for (unsigned k = 0; k < pieces; k++)
			ring->recv_sge[i * pieces + k] =
				(struct ibv_sge){.addr = (uintptr_t)ring->memory[i] + k * 50,
						 .length = k + 1 < pieces ? 50 : 2048 - k * 50};
	}
	return ring;
}

static void test_places_written_before_release_are_used(void **state)
{
	struct ring *ring = ring_new(1);
	unsigned slot = 8;

	(void)state;
	assert_int_equal(hashpipe_ibv_init(&ring->context), 0);
	near_listen(&ring->context);
	for (uint32_t i = 0; i < 200; i++) {
		struct hashpipe_ibv_recv_pkt *pkt;

		far_send_udp(i, 1);
		pkt = near_take(&ring->context);
		assert_int_equal(mark_of(pkt), i);
		assert_ptr_equal(bytes_of(pkt), ring->memory[i % 64]);
		pkt->wr.sg_list->addr = (uintptr_t)ring->memory[slot++ % 64];
		assert_int_equal(hashpipe_ibv_release_pkts(&ring->context, pkt), 0);
	}
	near_shutdown(&ring->context);
	assert_ptr_equal(ring->context.recv_pkt_buf, ring->recv_pkts); /* still the user's */
	free(ring);
}

static void test_frame_is_scattered_over_pieces(void **state)
{
	struct ring *ring = ring_new(2);
	struct hashpipe_ibv_recv_pkt *pkt;
	struct frame sent = frame_udp(9);
	uint8_t expected[2048];
	uint32_t len = frame_write(&sent, expected);

	(void)state;
	assert_int_equal(hashpipe_ibv_init(&ring->context), 0);
	near_listen(&ring->context);
	/* The second piece of the first packet moves far away. */
	far_send(&sent);
	pkt = near_take(&ring->context);
	assert_int_equal(pkt->wr.num_sge, 2);
	pkt->wr.sg_list[1].addr = (uintptr_t)ring->memory[40];
	assert_int_equal(hashpipe_ibv_release_pkts(&ring->context, pkt), 0);
	for (unsigned i = 0; i < 8; i++) {
		far_send(&sent);
		pkt = near_take(&ring->context);
		assert_int_equal(pkt->length, len);
		assert_memory_equal(bytes_of(pkt), expected, 50);
		assert_memory_equal((void *)(uintptr_t)pkt->wr.sg_list[1].addr, expected + 50,
				    len - 50);
		assert_int_equal(hashpipe_ibv_release_pkts(&ring->context, pkt), 0);
	}
	assert_memory_equal(ring->memory[40], expected + 50, len - 50);
	near_shutdown(&ring->context);
	free(ring);
}

static void test_several_regions_have_their_keys(void **state)
{
	static uint8_t other[4][2048];
	const struct hashpipe_ibv_region region = {.addr = other, .length = sizeof(other)};
	const struct hashpipe_ibv_options options = {
		.size = sizeof(options), .regions = &region, .num_regions = 1};
	struct ring *ring = ring_new(1);
	struct hashpipe_ibv_recv_pkt *pkt;
	uint32_t key;

	(void)state;
	ring->recv_sge[0].addr = (uintptr_t)other[0]; /* from the beginning */
	assert_int_equal(hashpipe_ibv_init_with(&ring->context, &options), 0);
	near_listen(&ring->context);
	far_send_udp(1, 2);
	pkt = near_take(&ring->context);
	assert_ptr_equal(bytes_of(pkt), other[0]);
	assert_int_equal(mark_of(pkt), 1);
	assert_int_equal(hashpipe_ibv_get_lkey(&ring->context, other[1], 2048, &key), 0);
	pkt = near_take(&ring->context);
	assert_int_not_equal(key, pkt->wr.sg_list->lkey);
	pkt->wr.sg_list->addr = (uintptr_t)other[1];
	pkt->wr.sg_list->lkey = key;
	assert_int_equal(hashpipe_ibv_release_pkts(&ring->context, pkt), 0);
	far_send_udp(10, 7);
	for (uint32_t i = 0; i < 7; i++)
		pkt = near_take(&ring->context);
	assert_ptr_equal(bytes_of(pkt), other[1]);
	assert_int_equal(mark_of(pkt), 16);
	errno = 0;
	assert_int_equal(hashpipe_ibv_get_lkey(&ring->context, other[3], 2049, &key), 1);
	assert_int_equal(errno, EFAULT);
	near_shutdown(&ring->context);
	free(ring);
}

static void test_user_memory_is_checked(void **state)
{
	struct ring *ring = ring_new(1);

	(void)state;
	ring->recv_sge[3].length = 1 << 20; /* beyond its end */
	errno = 0;
	assert_int_equal(hashpipe_ibv_init(&ring->context), 1);
	assert_int_equal(errno, EFAULT);
	ring->recv_sge[3].length = 2048;
	ring->recv_pkts[5].wr.num_sge = 0;
	assert_int_equal(hashpipe_ibv_init(&ring->context), 1);
	assert_int_equal(errno, EINVAL);
	ring->recv_pkts[5].wr.num_sge = 1;
	assert_int_equal(hashpipe_ibv_init(&ring->context), 0);
	near_shutdown(&ring->context);
	free(ring);
}

static void test_memory_handed_over_is_freed(void **state)
{
	struct ring *ring = ring_new(1);
	struct hashpipe_ibv_context *context = &ring->context;

	(void)state;
#define ON_THE_HEAP(member, size)                                                                  \
	do {                                                                                       \
		void *copy = malloc(size);                                                         \
		memcpy(copy, context->member, size);                                               \
		context->member = copy;                                                            \
	} while (0)
	ON_THE_HEAP(send_pkt_buf, sizeof(ring->send_pkts));
	ON_THE_HEAP(recv_pkt_buf, sizeof(ring->recv_pkts));
	ON_THE_HEAP(send_sge_buf, sizeof(ring->send_sge));
	ON_THE_HEAP(recv_sge_buf, sizeof(ring->recv_sge));
	ON_THE_HEAP(send_mr_buf, sizeof(ring->send_memory));
	ON_THE_HEAP(recv_mr_buf, sizeof(ring->memory));
	for (unsigned i = 0; i < 8; i++)
		context->recv_sge_buf[i].addr = (uintptr_t)context->recv_mr_buf + i * 2048;
	assert_int_equal(hashpipe_ibv_init(context), 0);
	context->user_managed_flag = 0;
	near_shutdown(context); /* the address sanitizer finds what is left or freed wrongly */
	assert_null(context->recv_mr_buf);
	free(ring);
}

/* ---- several queue pairs ---- */

static void test_each_queue_pair_has_its_packets(void **state)
{
	struct hashpipe_ibv_context context = {.interface_name = NEAR,
					       .nqp = 2,
					       .send_pkt_num = 2,
					       .recv_pkt_num = 4,
					       .pkt_size_max = 2048,
					       .max_flows = 1};
	struct hashpipe_ibv_recv_pkt *kept = NULL, *list, *last;
	unsigned seen[2] = {0};

	(void)state;
	assert_int_equal(hashpipe_ibv_init(&context), 0);
	near_listen(&context);
	for (int round = 0; round < 5; round++) {
		far_send_udp(0, 3);
		seen[0] = seen[1] = 0;
		while (seen[0] + seen[1] < 6) {
			list = hashpipe_ibv_recv_pkts(&context, PATIENCE_MS);
			assert_non_null(list);
			for (last = list;; last = next_of(last)) {
				unsigned qp = last->wr.wr_id / 4;

				assert_int_equal(qp, list->wr.wr_id / 4); /* a list is of one */
				assert_int_equal(mark_of(last), seen[qp]++);
				if (!last->wr.next)
					break;
			}
			last->wr.next = kept ? &kept->wr : NULL;
			kept = list;
		}
		/* One list of both. */
		assert_int_equal(hashpipe_ibv_release_pkts(&context, kept), 0);
		kept = NULL;
	}
	near_expect_nothing(&context);
	near_shutdown(&context);
}

/* ---- what is counted ---- */

static void test_statistics_count(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_stats stats;
	uint64_t short_stats[2] = {0, 0x77};

	(void)state;
	open_listening(&context, 64);
	far_send_udp(0, 20);
	near_expect(&context, 0, 20);
	assert_int_equal(hashpipe_ibv_get_stats(&context, &stats, sizeof(stats)), 0);
	assert_int_equal(stats.recv_pkts, 20);
	assert_int_equal(stats.recv_bytes, 2000);
	assert_int_equal(stats.recv_errors, 0);
	assert_true(stats.recv_lists >= 1 && stats.recv_lists <= 20);
	assert_true(stats.recv_sleeps >= 1);
	assert_int_equal(stats.pkts_out, 0);
	/* Of a program that knows only one. */
	assert_int_equal(
		hashpipe_ibv_get_stats(&context, (struct hashpipe_ibv_stats *)short_stats, 8), 0);
	assert_int_equal(short_stats[0], 20);
	assert_int_equal(short_stats[1], 0x77);
	near_shutdown(&context);
}

static void test_packets_beyond_all_buffers_are_counted(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_stats stats;
	struct frame frame = frame_udp(1);
	unsigned arrived = 0, sent = 60000;
	struct hashpipe_ibv_recv_pkt *list;

	(void)state;
	open_listening(&context, 8);
	frame.len = 1500;
	for (unsigned i = 0; i < sent;
	     i++) /* nobody looks: more than the device's own buffers hold */
		far_send(&frame);
	while ((list = hashpipe_ibv_recv_pkts(&context, QUIET_MS))) {
		arrived += length_of(list);
		assert_int_equal(hashpipe_ibv_release_pkts(&context, list), 0);
	}
	assert_int_equal(hashpipe_ibv_get_stats(&context, &stats, sizeof(stats)), 0);
	assert_true(arrived >= 8 && arrived < sent);
	assert_int_equal(stats.recv_pkts, arrived);
	assert_int_equal(stats.recv_dropped + stats.recv_no_buffer, sent - arrived);
	near_shutdown(&context);
}

static void test_time_stamps_are_of_the_arrival(void **state)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_recv_pkt *pkt;
	uint64_t before, after, stamp, last = 0;

	(void)state;
	open_listening(&context, 16);
	for (int i = 0; i < 10; i++) {
		before = now_ns(CLOCK_REALTIME);
		far_send_udp(0, 1);
		pkt = near_take(&context);
		after = now_ns(CLOCK_REALTIME);
		assert_true(pkt->timestamp > last);
		last = pkt->timestamp;
		stamp = hashpipe_ibv_timestamp_ns(&context, pkt->timestamp);
		/* The clocks are compared now and then: a millisecond apart is well. */
		assert_in_range(stamp, before - 1000000, after + 1000000);
		assert_int_equal(hashpipe_ibv_release_pkts(&context, pkt), 0);
	}
	near_shutdown(&context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_timeouts_are_kept_and_leave_errno_alone),
		cmocka_unit_test(test_wait_without_limit_ends_with_the_packet),
		cmocka_unit_test(test_signal_ends_the_wait_with_eintr),
		cmocka_unit_test(test_descriptor_is_readable_when_something_has_come),
		cmocka_unit_test(test_packets_come_in_order_and_whole),
		cmocka_unit_test(test_batch_is_limited),
		cmocka_unit_test(test_poll_receives_without_waiting),
		cmocka_unit_test(test_pool_that_ran_dry_is_refilled_in_any_order),
		cmocka_unit_test(test_list_may_be_relinked_and_released_in_parts),
		cmocka_unit_test(test_packet_released_twice_is_refused),
		cmocka_unit_test(test_packet_that_cannot_be_posted_is_not_lost),
		cmocka_unit_test(test_jumbo_and_short_frames_arrive),
		cmocka_unit_test(test_frame_longer_than_the_buffer_fails_alone),
		cmocka_unit_test(test_places_written_before_release_are_used),
		cmocka_unit_test(test_frame_is_scattered_over_pieces),
		cmocka_unit_test(test_several_regions_have_their_keys),
		cmocka_unit_test(test_user_memory_is_checked),
		cmocka_unit_test(test_memory_handed_over_is_freed),
		cmocka_unit_test(test_each_queue_pair_has_its_packets),
		cmocka_unit_test(test_statistics_count),
		cmocka_unit_test(test_packets_beyond_all_buffers_are_counted),
		cmocka_unit_test(test_time_stamps_are_of_the_arrival),
	};

	return RUN("receive", tests);
}
