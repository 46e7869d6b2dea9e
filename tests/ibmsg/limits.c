/* SPDX-License-Identifier: MIT */
/* Bounds on what arrives: beyond them one message fails with a reason, and the connection lives. */
#include "side.h"

/* The limits are the reader's: those of the server. */
static void open_limited(struct link *link, uint64_t max_message, uint64_t max_memory)
{
	struct hub *server = hub_new_listening(), *client = hub_new();

	if (max_message)
		assert_int_equal(ibmsg_set_max_message(&server->loop, max_message), IBMSG_OK);
	if (max_memory)
		assert_int_equal(ibmsg_set_max_memory(&server->loop, max_memory), IBMSG_OK);
	link_join(link, client, server);
}

static void await_failed(struct link *link, struct parcel *parcel, int error)
{
	unsigned received = link->server->received;

	await(parcel->done);
	assert_int_equal(parcel->status, IBMSG_FAILED);
	assert_int_equal(parcel->error, error);
	hubs_linger();
	assert_int_equal(link->server->received, received);
	assert_int_equal(link->client->closed, 0);
	assert_int_equal(link->server->closed, 0);
}

static void test_message_beyond_max_message_fails_and_the_connection_lives(void **state)
{
	struct link link;

	(void)state;
	open_limited(&link, 100 * KIB, 0);
	end_post(link.client, 100 * KIB);
	await(end_has_delivered(link.client, link.server));
	await_failed(&link, end_post(link.client, 100 * KIB + 1), IBMSG_MESSAGE_TOO_LARGE);
	await_failed(&link, end_post(link.client, 64 * MIB), IBMSG_MESSAGE_TOO_LARGE);
	end_ping(link.client, link.server);
	end_post(link.client, 100 * KIB);
	await(link.server->received == 3);
	/* The other direction has the default. */
	end_post(link.server, 300 * KIB);
	await(link.client->received == 1);
	link_close(&link);
}

static void test_messages_around_one_that_is_too_large_arrive_in_order(void **state)
{
	struct link link;

	(void)state;
	open_limited(&link, 100 * KIB, 0);
	for (unsigned i = 0; i < 90; i++)
		end_post(link.client, i % 3 == 1 ? MIB : i * KIB);
	await(link.client->sent + link.client->failed == 90 && link.server->received == 60);
	for (unsigned i = 0, at = 0; i < 90; i++) {
		const struct parcel *parcel = link.client->parcels[i];

		if (i % 3 == 1) {
			assert_int_equal(parcel->status, IBMSG_FAILED);
			assert_int_equal(parcel->error, IBMSG_MESSAGE_TOO_LARGE);
			continue;
		}
		assert_int_equal(parcel->status, IBMSG_SENT);
		assert_int_equal(link.server->letters[at].size, parcel->size);
		assert_true(link.server->letters[at++].sum == parcel->sum);
	}
	link_close(&link);
}

static void test_statistics_count_what_was_too_large_as_failed(void **state)
{
	ibmsg_stats stats;
	struct link link;

	(void)state;
	open_limited(&link, 100 * KIB, 0);
	await_failed(&link, end_post(link.client, MIB), IBMSG_MESSAGE_TOO_LARGE);
	end_ping(link.client, link.server);
	assert_int_equal(ibmsg_get_stats(&link.client_hub->loop, &link.client->socket, &stats),
			 IBMSG_OK);
	assert_int_equal(stats.messages_sent, 1);
	assert_int_equal(stats.messages_failed, 1);
	assert_int_equal(stats.bytes_sent, 100);
	link_close(&link);
}

static void test_message_beyond_max_memory_fails_until_others_are_freed(void **state)
{
	struct link link;

	(void)state;
	open_limited(&link, 0, 8 * MIB);
	link.server_hub->keep = KEEP_POINTERS;
	end_post(link.client, 6 * MIB);
	await(link.server->received == 1);
	await_failed(&link, end_post(link.client, 6 * MIB), IBMSG_PEER_OUT_OF_MEMORY);
	end_ping(link.client, link.server);
	end_free_letters(link.server);
	end_post(link.client, 6 * MIB);
	await(link.server->received == 3);
	end_free_letters(link.server);
	link_close(&link);
}

/* The bound is the loop's, not a connection's. */
static void test_max_memory_is_shared_by_the_connections_of_a_loop(void **state)
{
	struct link first, second;

	(void)state;
	open_limited(&first, 0, 8 * MIB);
	link_join(&second, first.client_hub, first.server_hub);
	first.server_hub->keep = KEEP_POINTERS;
	end_post(first.client, 6 * MIB);
	await(first.server->received == 1);
	await_failed(&second, end_post(second.client, 6 * MIB), IBMSG_PEER_OUT_OF_MEMORY);
	end_free_letters(first.server);
	end_post(second.client, 6 * MIB);
	await(second.server->received == 1);
	end_free_letters(second.server);
	link_close(&first);
}

static void test_message_larger_than_all_memory_fails(void **state)
{
	struct link link;

	(void)state;
	open_limited(&link, 0, 8 * MIB);
	await_failed(&link, end_post(link.client, 9 * MIB), IBMSG_PEER_OUT_OF_MEMORY);
	end_ping(link.client, link.server);
	link_close(&link);
}

/* The goodbye proves delivery: of what did not fail. */
static void test_close_after_a_message_that_failed_is_in_order(void **state)
{
	struct parcel *parcel;
	struct link link;

	(void)state;
	open_limited(&link, 100 * KIB, 0);
	parcel = end_post(link.client, MIB);
	end_post(link.client, 50);
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	await(link.client->closed && link.server->closed);
	assert_int_equal(parcel->error, IBMSG_MESSAGE_TOO_LARGE);
	assert_int_equal(link.server->received, 1);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		hub_test(test_message_beyond_max_message_fails_and_the_connection_lives),
		hub_test(test_messages_around_one_that_is_too_large_arrive_in_order),
		hub_test(test_statistics_count_what_was_too_large_as_failed),
		hub_test(test_message_beyond_max_memory_fails_until_others_are_freed),
		hub_test(test_max_memory_is_shared_by_the_connections_of_a_loop),
		hub_test(test_message_larger_than_all_memory_fails),
		hub_test(test_close_after_a_message_that_failed_is_in_order),
	};

	return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
