/* SPDX-License-Identifier: MIT */
/* Queue pairs, completions and their ends: what holds whatever the rules are. */
#include <net/ethernet.h>
#include <poll.h>
#include <unistd.h>

#include "../../src/softrdma/interpose/counters.h"
#include "house.h"

static int there;

static void move_to(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1};

	assert_int_equal(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
}

static struct fields numbered(uint32_t sequence)
{
	struct fields fields = frame_udp4;

	fields.sequence = sequence;
	return fields;
}

/* ---- sending ---- */

static void test_frames_leave_as_they_are(void **state)
{
	static const size_t payloads[] = {0, 1, 100, 1458, 1459, 4000, 8000, 8958};
	uint8_t frame[FRAME_MAX], got[FRAME_MAX];
	struct end end;

	(void)state;
	end_open(&end, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(payloads); i++) {
		struct fields fields = numbered(i);
		size_t len;

		fields.payload = payloads[i];
		len = frame_build(&fields, frame);
		memcpy(end_send_buffer(&end, i), frame, len);
		end_send(&end, i, (uint32_t)len);
		assert_int_equal(there_receive(there, ETHERTYPE_IP, got), len);
		assert_memory_equal(got, frame, len);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(payloads); i++) {
		struct ibv_wc wc = end_take(end.send_cq);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_SEND);
		assert_int_equal(wc.wr_id, i);
	}
	end_close(&end);
}

static void test_pieces_and_inline_data_become_one_frame(void **state)
{
	struct fields fields = numbered(77);
	uint8_t frame[FRAME_MAX], got[FRAME_MAX];
	size_t len = frame_build(&fields, frame);
	struct ibv_send_wr *bad;
	struct end end;

	(void)state;
	end_open(&end, 0);
	memcpy(end_send_buffer(&end, 0), frame, 14);
	memcpy(end_send_buffer(&end, 1), frame + 14, 20);
	memcpy(end_send_buffer(&end, 2), frame + 34, len - 34);
	{
		struct ibv_sge sge[] = {
			{(uintptr_t)end_send_buffer(&end, 0), 14, end.mr->lkey},
			{(uintptr_t)end_send_buffer(&end, 1), 20, end.mr->lkey},
			{(uintptr_t)end_send_buffer(&end, 2), (uint32_t)len - 34, end.mr->lkey},
		};
		struct ibv_sge whole = {(uintptr_t)frame, (uint32_t)len, 0};
		struct ibv_send_wr second = {.wr_id = 2,
					     .sg_list = &whole,
					     .num_sge = 1,
					     .opcode = IBV_WR_SEND,
					     .send_flags = IBV_SEND_INLINE},
				   first = {.wr_id = 1,
					    .sg_list = sge,
					    .num_sge = 3,
					    .opcode = IBV_WR_SEND,
					    .next = &second};

		assert_int_equal(ibv_post_send(end.qp, &first, &bad), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(there_receive(there, ETHERTYPE_IP, got), len);
		assert_memory_equal(got, frame, len);
		assert_int_equal(end_take(end.send_cq).status, IBV_WC_SUCCESS);
	}
	end_close(&end);
}

/* What cannot be a frame ends with an error, and those behind it leave all the same. */
static void test_wrong_frames_fail_alone_and_in_order(void **state)
{
	static const enum ibv_wc_status outcomes[] = {IBV_WC_SUCCESS, IBV_WC_LOC_LEN_ERR,
						      IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR,
						      IBV_WC_SUCCESS};
	struct fields fields = numbered(5);
	uint8_t got[FRAME_MAX];
	struct ibv_send_wr wr[5], *bad;
	struct ibv_sge sge[5];
	struct end end;
	uint32_t len;

	(void)state;
	end_open(&end, 0);
	len = (uint32_t)frame_build(&fields, end_send_buffer(&end, 0));
	for (unsigned i = 0; i < 5; i++) {
		sge[i] = (struct ibv_sge){(uintptr_t)end_send_buffer(&end, 0), len, end.mr->lkey};
		wr[i] = (struct ibv_send_wr){.wr_id = i,
					     .sg_list = &sge[i],
					     .num_sge = 1,
					     .opcode = IBV_WR_SEND,
					     .next = i < 4 ? &wr[i + 1] : NULL};
	}
	sge[1].length = 9000 + 14 + 4 + 1; /* longer than a tagged frame */
	sge[2].length = 13;                /* no Ethernet header */
	sge[3].lkey++;
	assert_int_equal(ibv_post_send(end.qp, wr, &bad), 0);
	for (unsigned i = 0; i < 5; i++) {
		struct ibv_wc wc = end_take(end.send_cq);

		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, outcomes[i]);
	}
	assert_int_equal(there_receive(there, ETHERTYPE_IP, got), len);
	assert_int_equal(there_receive(there, ETHERTYPE_IP, got), len);
	wr[0].opcode = IBV_WR_RDMA_WRITE;
	wr[0].next = NULL;
	assert_int_equal(ibv_post_send(end.qp, wr, &bad), EOPNOTSUPP);
	assert_ptr_equal(bad, wr);
	end_close(&end);
}

/* ---- receiving ---- */

static void test_jumbo_frames_arrive_whole(void **state)
{
	static const size_t payloads[] = {0, 22, 1458, 3500, 3786, 3787, 4054, 7000, 8958};
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	end_open(&end, 64);
	flow = flow_add_port(&end, 5000);
	for (unsigned i = 0; i < ARRAY_SIZE(payloads); i++) {
		struct fields fields = numbered(i);

		fields.payload = payloads[i];
		there_send(there, &fields);
		end_expect(&end, &fields);
	}
	flow_remove(flow);
	end_close(&end);
}

static void post_pieces(struct end *end, unsigned id, const uint32_t *lengths, int num)
{
	uint64_t at = (uintptr_t)end->memory + (uint64_t)id * END_ROOM;
	struct ibv_sge sge[4];
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = sge, .num_sge = num}, *bad;

	for (int i = 0; i < num; i++) {
		sge[i] = (struct ibv_sge){at, lengths[i], end->mr->lkey};
		at += lengths[i] + 64; /* a gap */
	}
	assert_int_equal(ibv_post_recv(end->qp, &wr, &bad), 0);
}

static void test_a_frame_is_scattered(void **state)
{
	static const uint32_t lengths[] = {42, 100, 0, 8000};
	struct fields fields = numbered(9);
	struct ibv_flow *flow;
	uint8_t frame[FRAME_MAX], *at;
	struct ibv_wc wc;
	struct end end;

	(void)state;
	fields.payload = 6000;
	fields.is_tagged = true;
	fields.tci = 0x123;
	frame_build(&fields, frame);
	end_open(&end, 0);
	flow = flow_add_port(&end, 5000);
	memset(end.memory, 0xee, END_ROOM);
	post_pieces(&end, 0, lengths, 4);
	there_send(there, &fields);
	wc = end_take(end.recv_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 6000 + 46);
	at = end.memory;
	assert_memory_equal(at, frame, 42);
	assert_int_equal(at[42], 0xee);
	assert_memory_equal(at + 42 + 64, frame + 42, 100);
	assert_int_equal(at[42 + 64 + 100], 0xee);
	assert_memory_equal(at + 42 + 64 + 100 + 64 + 64, frame + 142, 6046 - 142);
	flow_remove(flow);
	end_close(&end);
}

/* Too small a receive, one that names foreign memory, and a right one behind them. */
static void test_wrong_receives_fail_alone(void **state)
{
	static const uint32_t small = 50;
	struct fields first = numbered(1), second = numbered(2);
	struct ibv_flow *flow;
	struct ibv_wc wc;
	struct end end;

	(void)state;
	end_open(&end, 0);
	flow = flow_add_port(&end, 5000);
	memset(end.memory, 0xee, END_ROOM);
	post_pieces(&end, 0, &small, 1);
	end.mr->lkey++;
	end_post(&end, 1);
	end.mr->lkey--;
	end_post(&end, 2);
	there_send(there, &first);
	there_send(there, &second);
	wc = end_take(end.recv_cq);
	assert_int_equal(wc.wr_id, 0);
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(end.memory[50], 0xee);
	wc = end_take(end.recv_cq);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	end_expect(&end, &second);
	flow_remove(flow);
	end_close(&end);
}

/* The slots of a ring are as long as frames were when it was made. */
static void test_a_larger_mtu_is_no_limit(void **state)
{
	struct fields large = numbered(1), small = numbered(2);
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	if (back_end_is("xdp"))
		skip();
	large.payload = 4000;
	here_run("ip link set " HERE " mtu 1500");
	end_open(&end, 2);
	flow = flow_add_port(&end, 5000);
	here_run("ip link set " HERE " mtu 9000");
	for (unsigned i = 0; i < 10; i++) {
		there_send(there, &large);
		there_send(there, &small);
		end_expect(&end, &large);
		end_expect(&end, &small);
	}
	flow_remove(flow);
	end_close(&end);
}

/* And as receives: those that come later may be longer, and lose and mix nothing. */
static void test_receives_may_become_longer(void **state)
{
	static const size_t payloads[] = {60, 100, 86, 87, 1458, 0, 8958, 50, 4000};
	static const uint32_t room = 128;
	struct softrdma_raw_counters counters;
	struct fields fields[ARRAY_SIZE(payloads)];
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	end_open(&end, 0);
	post_pieces(&end, 0, &room, 1);
	post_pieces(&end, 1, &room, 1);
	flow = flow_add_port(&end, 5000);
	for (unsigned i = 0; i < ARRAY_SIZE(payloads); i++) {
		fields[i] = numbered(i);
		fields[i].payload = payloads[i];
		fields[i].is_tagged = i % 3 == 1;
		fields[i].tci = 0x123;
		there_send(there, &fields[i]);
	}
	assert_int_equal(end_take(end.recv_cq).status, IBV_WC_SUCCESS);
	assert_int_equal(end_take(end.recv_cq).status, IBV_WC_LOC_LEN_ERR);
	/* One of them has been looked at in vain. */
	assert_true(end_is_empty(&end));
	for (unsigned i = 0; i < 2; i++)
		end_post(&end, i);
	for (unsigned i = 2; i < ARRAY_SIZE(payloads); i++)
		end_expect(&end, &fields[i]);
	assert_int_equal(softrdma_raw_counters(end.qp, &counters), 0);
	assert_int_equal(counters.received, ARRAY_SIZE(payloads));
	assert_int_equal(counters.dropped + counters.no_buffer, 0);
	flow_remove(flow);
	end_close(&end);
}

/* Frames wait for receives, as far as there is room. */
static void test_frames_wait_for_receives(void **state)
{
	struct softrdma_raw_counters counters;
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	end_open(&end, 4);
	flow = flow_add_port(&end, 5000);
	for (uint32_t i = 0; i < 40; i++) {
		struct fields fields = numbered(i);

		there_send(there, &fields);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(end_take(end.recv_cq).wr_id, i);
	for (unsigned i = 0; i < 10; i++)
		assert_true(end_is_empty(&end));
	for (unsigned i = 0; i < 16; i++)
		end_post(&end, i);
	for (uint32_t i = 4; i < 40; i++) {
		struct fields fields = numbered(i);

		end_expect(&end, &fields);
	}
	assert_int_equal(softrdma_raw_counters(end.qp, &counters), 0);
	assert_int_equal(counters.received, 40);
	assert_int_equal(counters.dropped + counters.no_buffer, 0);
	flow_remove(flow);
	end_close(&end);
}

/* The first receive has @room. */
static void flood(uint32_t room, enum ibv_wc_status first)
{
	struct softrdma_raw_counters counters;
	struct fields fields = numbered(0);
	uint64_t arrived = 1, until = now_ms() + 2 * WAIT_MS;
	bool last = false;
	uint8_t frame[FRAME_MAX];
	struct ibv_flow *flow;
	struct ibv_wc wc;
	struct end end;
	size_t len;

	fields.payload = 8000;
	len = frame_build(&fields, frame);
	end_open(&end, 0);
	post_pieces(&end, 0, &room, 1);
	flow = flow_add_port(&end, 5000);
	for (unsigned i = 0; i < 10000; i++)
		there_send_bytes(there, frame, len);
	assert_int_equal(end_take(end.recv_cq).status, first);
	assert_true(end_is_empty(&end));
	for (unsigned i = 0; i < END_FRAMES; i++)
		end_post(&end, i);
	/* The last one comes when there is room for it again. */
	fields.sequence = 12345;
	while (!last) {
		assert_true(now_ms() < until);
		if (!ibv_poll_cq(end.recv_cq, 1, &wc)) {
			there_send(there, &fields);
			wc = end_take(end.recv_cq);
		}
		arrived++;
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.byte_len, len);
		last = frame_sequence(end.memory + wc.wr_id * END_ROOM) == 12345;
		end_post(&end, (unsigned)wc.wr_id);
	}
	assert_int_equal(softrdma_raw_counters(end.qp, &counters), 0);
	assert_true(counters.no_buffer > 0);
	assert_int_equal(counters.received, arrived);
	assert_true(counters.received + counters.dropped + counters.no_buffer >= 10000);
	flow_remove(flow);
	end_close(&end);
}

/* What is more than there is room for is dropped and counted; afterwards all is as before. */
static void test_what_finds_no_room_is_counted(void **state)
{
	(void)state;
	flood(END_ROOM, IBV_WC_SUCCESS);
	flood(128, IBV_WC_LOC_LEN_ERR);
}

static void test_no_rule_no_frames(void **state)
{
	struct fields miss = numbered(1), hit = numbered(2);
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	end_open(&end, 8);
	there_send(there, &miss);
	for (unsigned i = 0; i < 100; i++)
		assert_true(end_is_empty(&end));
	flow = flow_add_port(&end, 5000);
	there_send(there, &hit);
	end_expect(&end, &hit);
	flow_remove(flow);
	/* The kernel has them again: nothing comes here. */
	there_send(there, &miss);
	flow = flow_add_port(&end, 5000);
	there_send(there, &hit);
	end_expect(&end, &hit);
	flow_remove(flow);
	end_close(&end);
}

/* ---- completions ---- */

static void test_a_channel_tells_of_frames(void **state)
{
	struct fields fields = numbered(3);
	struct pollfd readable;
	struct ibv_flow *flow;
	struct ibv_cq *cq;
	void *context;
	struct end end;

	(void)state;
	end_open(&end, 8);
	flow = flow_add_port(&end, 5000);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(ibv_req_notify_cq(end.recv_cq, 0), 0);
		readable = (struct pollfd){.fd = end.channel->fd, .events = POLLIN};
		assert_int_equal(poll(&readable, 1, 0), 0);
		there_send(there, &fields);
		/* Half of the time a program polls the descriptor, half it waits in verbs. */
		if (i % 2)
			assert_int_equal(poll(&readable, 1, WAIT_MS), 1);
		assert_int_equal(ibv_get_cq_event(end.channel, &cq, &context), 0);
		assert_ptr_equal(cq, end.recv_cq);
		ibv_ack_cq_events(cq, 1);
		end_expect(&end, &fields);
	}
	flow_remove(flow);
	end_close(&end);
}

static void test_an_extended_queue_has_time_stamps(void **state)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 16,
					   .wc_flags = IBV_WC_EX_WITH_BYTE_LEN |
						       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_poll_cq_attr poll_attr = {0};
	struct fields fields = numbered(1);
	struct end end;
	struct ibv_qp *before;
	struct ibv_flow *flow;
	struct ibv_cq_ex *cq;
	uint64_t until = now_ms() + WAIT_MS, last = 0;

	(void)state;
	end_open(&end, 0);
	cq = ibv_create_cq_ex(end.context, &attr);
	assert_non_null(cq);
	before = end.qp;
	end.qp = end_create_qp(&end, ibv_cq_ex_to_cq(cq));
	assert_non_null(end.qp);
	move_to(&end, IBV_QPS_INIT);
	end_post(&end, 0);
	end_post(&end, 1);
	move_to(&end, IBV_QPS_RTR);
	flow = flow_add_port(&end, 5000);
	there_send(there, &fields);
	there_send(there, &fields);
	for (unsigned i = 0; i < 2; i++) {
		while (ibv_start_poll(cq, &poll_attr))
			assert_true(now_ms() < until);
		assert_int_equal(cq->status, IBV_WC_SUCCESS);
		assert_int_equal(cq->wr_id, i);
		assert_int_equal(ibv_wc_read_byte_len(cq), 14 + 20 + 8 + 64);
		assert_true(ibv_wc_read_completion_ts(cq) >= last);
		last = ibv_wc_read_completion_ts(cq);
		ibv_end_poll(cq);
	}
	assert_true(last > 0);
	flow_remove(flow);
	assert_int_equal(ibv_destroy_qp(end.qp), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	end.qp = before;
	end_close(&end);
}

/* ---- states ---- */

static void test_the_error_state_flushes_and_a_new_start_works(void **state)
{
	struct fields miss = numbered(1), hit = numbered(2);
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	end_open(&end, 3);
	flow = flow_add_port(&end, 5000);
	move_to(&end, IBV_QPS_ERR);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(end_take(end.recv_cq).status, IBV_WC_WR_FLUSH_ERR);
	end_send(&end, 0, 60);
	assert_int_equal(end_take(end.send_cq).status, IBV_WC_WR_FLUSH_ERR);
	there_send(there, &miss);
	move_to(&end, IBV_QPS_RESET);
	move_to(&end, IBV_QPS_INIT);
	end_post(&end, 0);
	end_post(&end, 1);
	there_send(there, &miss);
	move_to(&end, IBV_QPS_RTR);
	there_send(there, &hit);
	end_expect(&end, &hit);
	flow_remove(flow);
	end_close(&end);
}

static void test_a_queue_pair_with_rules_is_busy(void **state)
{
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	end_open(&end, 1);
	flow = flow_add_port(&end, 5000);
	assert_int_equal(ibv_destroy_qp(end.qp), EBUSY);
	flow_remove(flow);
	end_close(&end);
}

static void test_the_device_says_what_it_offers(void **state)
{
	struct ibv_device_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr qp_attr;
	struct end end;

	(void)state;
	end_open(&end, 1);
	assert_int_equal(ibv_query_device(end.context, &attr), 0);
	assert_true(attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING);
	assert_int_equal(ibv_query_qp(end.qp, &qp_attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(init.qp_type, IBV_QPT_RAW_PACKET);
	assert_int_equal(qp_attr.qp_state, IBV_QPS_RTS);
	end_close(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_leave_as_they_are),
		cmocka_unit_test(test_pieces_and_inline_data_become_one_frame),
		cmocka_unit_test(test_wrong_frames_fail_alone_and_in_order),
		cmocka_unit_test(test_jumbo_frames_arrive_whole),
		cmocka_unit_test(test_a_frame_is_scattered),
		cmocka_unit_test(test_wrong_receives_fail_alone),
		cmocka_unit_test(test_a_larger_mtu_is_no_limit),
		cmocka_unit_test(test_receives_may_become_longer),
		cmocka_unit_test(test_frames_wait_for_receives),
		cmocka_unit_test(test_what_finds_no_room_is_counted),
		cmocka_unit_test(test_no_rule_no_frames),
		cmocka_unit_test(test_a_channel_tells_of_frames),
		cmocka_unit_test(test_an_extended_queue_has_time_stamps),
		cmocka_unit_test(test_the_error_state_flushes_and_a_new_start_works),
		cmocka_unit_test(test_a_queue_pair_with_rules_is_busy),
		cmocka_unit_test(test_the_device_says_what_it_offers),
	};

	house_build();
	there = there_open();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
