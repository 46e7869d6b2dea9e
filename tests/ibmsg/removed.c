/* SPDX-License-Identifier: MIT */
/* In a guest: the device is removed under traffic. Connections end, and the loop lives. */
#include "side.h"

#include <stdio.h>
#include <unistd.h>

/* "rdma link del NAME", which ends with this process: until then librdmacm keeps the device open.
 */
static pid_t remove_device(void)
{
	char name[32];
	pid_t pid;

	snprintf(name, sizeof(name), "%s", getenv("IBMSG_DEVICE_NAME") ?: "");
	if (!*name)
		snprintf(name, sizeof(name), "%s0", hub_device());
	pid = fork();
	if (!pid) {
		execlp("rdma", "rdma", "link", "del", name, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void test_removed_device_ends_its_connections_and_the_loop_lives(void **state)
{
	struct link link;
	pid_t pid;

	(void)state;
	link_open(&link, TWO_LOOPS);
	end_ping(link.client, link.server);
	for (unsigned i = 0; i < 50; i++)
		end_post(link.client, i % 5 == 0 ? 200 * KIB : i * 10);
	pid = remove_device();
	assert_true(pid > 0);
	await(link.client->closed && link.server->closed);
	assert_int_not_equal(link.client->error, IBMSG_OK);
	/* Every message has completed, which hub_destroy checks; and the loops still turn. */
	assert_int_equal(hub_dispatch(link.client_hub, 10), IBMSG_OK);
	assert_int_equal(hub_dispatch(link.server_hub, 10), IBMSG_OK);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		hub_test(test_removed_device_ends_its_connections_and_the_loop_lives),
	};

	return cmocka_run_group_tests_name("removed", tests, NULL, NULL);
}
