/* SPDX-License-Identifier: MIT */
/* An interface with several queues: what is steered to any of them arrives. */
#include <unistd.h>

#include "house.h"

#define QUEUES 3
#define FLOWS  64

static void test_frames_of_all_queues_arrive(void **state)
{
	int there = there_open();
	bool seen[FLOWS] = {false};
	struct ibv_flow *flow;
	struct end end;

	(void)state;
	end_open(&end, END_FRAMES);
	flow = flow_add_port(&end, 5000);
	/* Which queue a frame goes to follows from its addresses and ports. */
	for (uint32_t i = 0; i < FLOWS; i++) {
		struct fields fields = frame_udp4;

		fields.src_port = (uint16_t)(4000 + i);
		fields.sequence = i;
		there_send(there, &fields);
	}
	for (unsigned i = 0; i < FLOWS; i++) {
		uint32_t sequence;

		end_wait(&end);
		sequence = frame_sequence(end.arrived);
		assert_true(sequence < FLOWS);
		assert_false(seen[sequence]);
		seen[sequence] = true;
	}
	flow_remove(flow);
	end_close(&end);
	close(there);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_of_all_queues_arrive),
	};

	house_build_queues(QUEUES);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
