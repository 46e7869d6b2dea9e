/* SPDX-License-Identifier: MIT */
/* A message beyond 4 GiB, with the limits raised. */
#include "side.h"

#include <stdio.h>

#define HUGE  (5ull * 1024 * MIB + 12345)
#define MARKS 4096 /* where the message is written and looked at: its memory is hardly touched */

static uint64_t seen_size;
static unsigned wrong_marks;

static uint64_t mark_at(unsigned i)
{
	return i < MARKS - 1 ? HUGE / MARKS * i : HUGE - 8;
}

static uint64_t mark_of(unsigned i)
{
	return (i + 1) * 0x9e3779b97f4a7c15;
}

static void look_at_huge(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	const char *bytes = msg->data;

	(void)socket;
	seen_size = msg->size;
	for (unsigned i = 0; msg->size == HUGE && i < MARKS; i++) {
		uint64_t mark;

		memcpy(&mark, bytes + mark_at(i), sizeof(mark));
		wrong_marks += mark != mark_of(i);
	}
	assert_int_equal(ibmsg_free_msg(msg), IBMSG_OK);
}

static uint64_t available_bytes(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, "MemAvailable:", 13))
			kib = strtoull(line + 13, NULL, 10);
	fclose(file);
	return kib * KIB;
}

static void test_message_of_5_gib_arrives(void **state)
{
	struct hub *server, *client;
	struct link link;
	ibmsg_buffer msg;

	(void)state;
	if (available_bytes() < 3 * HUGE)
		skip();
	server = hub_new_listening();
	client = hub_new();
	assert_int_equal(ibmsg_set_max_message(&server->loop, 2 * HUGE), IBMSG_OK);
	assert_int_equal(ibmsg_set_max_memory(&server->loop, 2 * HUGE), IBMSG_OK);
	server->loop.message_received = look_at_huge;
	client->loop.message_sent = NULL;
	link_join(&link, client, server);
	assert_int_equal(ibmsg_alloc_msg(&msg, &link.client->socket, HUGE), IBMSG_OK);
	for (unsigned i = 0; i < MARKS; i++) {
		uint64_t mark = mark_of(i);

		memcpy((char *)msg.data + mark_at(i), &mark, sizeof(mark));
	}
	assert_int_equal(ibmsg_post_send(&link.client->socket, &msg), IBMSG_OK);
	await_for(5 * WAIT_MS, msg.status != IBMSG_WAITING && seen_size);
	assert_int_equal(msg.status, IBMSG_SENT);
	assert_true(seen_size == HUGE);
	assert_int_equal(wrong_marks, 0);
	assert_int_equal(ibmsg_free_msg(&msg), IBMSG_OK);
	link_close(&link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		hub_test(test_message_of_5_gib_arrives),
	};

	return cmocka_run_group_tests_name("soft_huge", tests, NULL, NULL);
}
