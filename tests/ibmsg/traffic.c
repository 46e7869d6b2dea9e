/* SPDX-License-Identifier: MIT */
/* Messages of all sizes in both directions: in order, exactly once, whoever is slow. */
#include "side.h"

/* ---- sizes ---- */

/* Sizes at which a library may do something else than for the next one. */
static size_t edge_size(unsigned i)
{
	static const size_t some[] = {
		0,       1,           2,         8,        63,     64 * KIB,  0,         MIB,
		MIB + 1, 8 * MIB + 1, 1024 - 16, 1024 - 1, 1024,   1025,      2048 - 16, 2048,
		8176,    8177,        8191,      8192,     8193,   16368,     16369,     16383,
		16384,   16385,       32752,     32753,    32768,  32769,     65519,     65520,
		65521,   65535,       65537,     131072,   131073, 256 * KIB, 1,         0};

	/* Around the largest message of an original peer, every one. */
	if (i < 18)
		return 4096 - 16 + i;
	return i - 18 < ARRAY_SIZE(some) ? some[i - 18] : SIZE_MAX;
}

/* As many small ones as large ones. */
static size_t random_size(unsigned *seed, unsigned max_bits)
{
	unsigned bits = (unsigned)rand_r(seed) % (max_bits + 1);

	return (size_t)rand_r(seed) & ((1u << bits) - 1);
}

/* Mostly small; some of a page or more, few that are large. */
static size_t mixed_size(unsigned i)
{
	if (i % 200 == 77)
		return 256 * KIB + i;
	if (i % 20 == 7)
		return 20 * KIB + i;
	return i * 37 % 4500;
}

/* ---- traffic ---- */

static void await_both(struct link *link)
{
	await(end_has_delivered(link->client, link->server) &&
	      end_has_delivered(link->server, link->client));
	end_assert_delivered(link->client, link->server);
	end_assert_delivered(link->server, link->client);
}

static void run_edges_one_by_one(enum link_loops loops)
{
	struct link link;

	link_open(&link, loops);
	for (unsigned i = 0; edge_size(i) != SIZE_MAX; i++) {
		end_post(link.client, edge_size(i));
		end_post(link.server, edge_size(i));
		await_both(&link);
	}
	link_close(&link);
}

static void test_message_of_each_edge_size_in_one_loop_arrives(void **state)
{
	(void)state;
	run_edges_one_by_one(ONE_LOOP);
}

static void test_message_of_each_edge_size_in_two_loops_arrives(void **state)
{
	(void)state;
	run_edges_one_by_one(TWO_LOOPS);
}

static void test_messages_of_all_edge_sizes_at_once_arrive_in_order(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	for (unsigned i = 0; edge_size(i) != SIZE_MAX; i++) {
		end_post(link.client, edge_size(i));
		end_post(link.server, edge_size(i));
	}
	await_both(&link);
	link_close(&link);
}

static void run_random(enum link_loops loops, unsigned seed)
{
	struct link link;

	link_open(&link, loops);
	for (unsigned round = 0; round < 40; round++) {
		for (unsigned i = (unsigned)rand_r(&seed) % 16; i; i--)
			end_post(link.client, random_size(&seed, 18));
		for (unsigned i = (unsigned)rand_r(&seed) % 16; i; i--)
			end_post(link.server, random_size(&seed, 18));
		/* Some go while others are still on their way. */
		hubs_step();
	}
	await_both(&link);
	link_close(&link);
}

static void test_messages_of_random_sizes_in_one_loop_arrive_in_order(void **state)
{
	(void)state;
	run_random(ONE_LOOP, 0x5eed1);
}

static void test_messages_of_random_sizes_in_two_loops_arrive_in_order(void **state)
{
	(void)state;
	run_random(TWO_LOOPS, 0x5eed2);
}

static void run_flood(enum link_loops loops)
{
	struct link link;

	link_open(&link, loops);
	for (unsigned i = 0; i < 2000; i++)
		end_post(link.client, mixed_size(i));
	for (unsigned i = 0; i < 2000; i++)
		end_post(link.server, mixed_size(i + 3));
	await_both(&link);
	link_close(&link);
}

static void test_flood_both_ways_in_one_loop_arrives(void **state)
{
	(void)state;
	run_flood(ONE_LOOP);
}

static void test_flood_both_ways_in_two_loops_arrives(void **state)
{
	(void)state;
	run_flood(TWO_LOOPS);
}

static void test_flood_of_empty_messages_arrives(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	for (unsigned i = 0; i < 1000; i++) {
		end_post(link.client, 0);
		end_post(link.server, 0);
	}
	await_both(&link);
	link_close(&link);
}

static void test_flood_of_large_messages_both_ways_arrives(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	for (unsigned i = 0; i < 60; i++) {
		end_post(link.client, 100 * KIB + i);
		end_post(link.server, 90 * KIB + i);
	}
	await_both(&link);
	link_close(&link);
}

/* ---- what is kept ---- */

static void test_slow_reader_that_keeps_300_messages_gets_all(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.server_hub->keep = KEEP_POINTERS;
	for (unsigned i = 0; i < 600; i++)
		end_post(link.client, mixed_size(i));
	await(link.server->received >= 300);
	end_free_letters(link.server);
	link.server_hub->keep = KEEP_NOTHING;
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	link_close(&link);
}

/* A reader that does not even look: what is posted waits, and harms nobody. */
static void test_reader_that_sleeps_gets_all_afterwards(void **state)
{
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.server_hub->sleeps = true;
	for (unsigned i = 0; i < 500; i++)
		end_post(link.client, mixed_size(i));
	hubs_linger();
	assert_int_equal(link.server->received, 0);
	link.server_hub->sleeps = false;
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	link_close(&link);
}

static void post_some(struct link *link)
{
	for (unsigned i = 0; i < 12; i++)
		end_post(link->client, i % 4 == 3 ? 100 * KIB + i : i * 400);
	await(end_has_delivered(link->client, link->server));
	end_assert_delivered(link->client, link->server);
}

static void run_kept(enum hub_keep keep)
{
	struct link link;

	link_open(&link, TWO_LOOPS);
	link.server_hub->keep = keep;
	post_some(&link);
	/* Others come and go meanwhile. */
	link.server_hub->keep = KEEP_NOTHING;
	for (unsigned i = 0; i < 300; i++)
		end_post(link.client, mixed_size(i));
	await(end_has_delivered(link.client, link.server));
	end_free_letters(link.server);
	link_close(&link);
}

static void test_kept_pointers_freed_later_are_intact(void **state)
{
	(void)state;
	run_kept(KEEP_POINTERS);
}

static void test_kept_copies_freed_later_are_intact(void **state)
{
	(void)state;
	run_kept(KEEP_COPIES);
}

static void run_kept_beyond_close(enum hub_keep keep)
{
	struct link link;

	link_open(&link, TWO_LOOPS);
	link.server_hub->keep = keep;
	post_some(&link);
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	link_await_closed(&link);
	end_free_letters(link.server);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

static void test_kept_pointers_freed_after_close_are_intact(void **state)
{
	(void)state;
	run_kept_beyond_close(KEEP_POINTERS);
}

static void test_kept_copies_freed_after_close_are_intact(void **state)
{
	(void)state;
	run_kept_beyond_close(KEEP_COPIES);
}

static void run_kept_beyond_destroy(enum hub_keep keep)
{
	struct link link;

	link_open(&link, TWO_LOOPS);
	link.server_hub->keep = keep;
	post_some(&link);
	hub_destroy(link.server_hub);
	hub_destroy(link.client_hub);
	end_free_letters(link.server);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
}

static void test_kept_pointers_freed_after_destroy_are_intact(void **state)
{
	(void)state;
	run_kept_beyond_destroy(KEEP_POINTERS);
}

static void test_kept_copies_freed_after_destroy_are_intact(void **state)
{
	(void)state;
	run_kept_beyond_destroy(KEEP_COPIES);
}

static void test_alloc_that_is_never_posted_is_freed_whenever(void **state)
{
	struct parcel *before, *after, *last;
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	before = end_alloc(link.client, 5000);
	after = end_alloc(link.client, MIB);
	last = end_alloc(link.client, 100);
	assert_int_equal(ibmsg_free_msg(&before->msg), IBMSG_OK);
	assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
	link_await_closed(&link);
	assert_true(checksum(after->msg.data, after->size) == after->sum);
	assert_int_equal(ibmsg_free_msg(&after->msg), IBMSG_OK);
	hub_free(link.client_hub);
	hub_free(link.server_hub);
	assert_true(checksum(last->msg.data, last->size) == last->sum);
	assert_int_equal(ibmsg_free_msg(&last->msg), IBMSG_OK);
	free(before);
	free(after);
	free(last);
}

/* ---- the same buffer again ---- */

static void run_resend(size_t size)
{
	struct parcel *parcel;
	struct link link;

	link_open(&link, TWO_LOOPS);
	link.client_hub->keeps_parcels = true;
	parcel = end_post(link.client, size);
	for (unsigned i = 1;; i++) {
		await(parcel->done == i && link.server->received == i);
		assert_int_equal(parcel->msg.status, IBMSG_SENT);
		assert_int_equal(link.server->letters[i - 1].size, size);
		assert_true(link.server->letters[i - 1].sum == parcel->sum);
		if (i == 20)
			break;
		fill_random(parcel->msg.data, size, 1000 + i);
		parcel->sum = checksum(parcel->msg.data, size);
		end_post_parcel(link.client, parcel);
		/* It is on its way again, and says so. */
		assert_int_equal(parcel->msg.status, IBMSG_WAITING);
	}
	link_close(&link);
}

static void test_resend_of_a_small_buffer_sends_its_new_contents(void **state)
{
	(void)state;
	run_resend(500);
}

static void test_resend_of_a_large_buffer_sends_its_new_contents(void **state)
{
	(void)state;
	run_resend(200 * KIB);
}

static void repost(struct end *end, struct parcel *parcel)
{
	if (parcel->posted < 50)
		end_post_parcel(end, parcel);
}

static void test_resend_inside_message_sent_arrives(void **state)
{
	struct parcel *small, *large;
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.client_hub->on.sent = repost;
	small = end_post(link.client, 700);
	large = end_post(link.client, 70 * KIB);
	await(small->done == 50 && large->done == 50 && link.server->received == 100);
	for (unsigned i = 0; i < 100; i++) {
		const struct letter *letter = &link.server->letters[i];

		assert_true(letter->sum == (letter->size == 700 ? small : large)->sum);
	}
	link_close(&link);
}

/* Less than was allocated may be sent. */
static void test_shortened_message_arrives_as_short_as_it_is(void **state)
{
	static const size_t sizes[] = {10, 0, 5000, 200 * KIB};
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct parcel *parcel = end_alloc(link.client, 300 * KIB);

		parcel->msg.size = parcel->size = sizes[i];
		parcel->sum = checksum(parcel->msg.data, sizes[i]);
		end_post_parcel(link.client, parcel);
	}
	await(end_has_delivered(link.client, link.server));
	end_assert_delivered(link.client, link.server);
	link_close(&link);
}

/* ---- echo ---- */

static unsigned echoes;

static void echo(struct end *end, ibmsg_buffer *msg)
{
	assert_int_equal(ibmsg_post_send(&end->socket, msg), IBMSG_OK);
}

static void echo_sent(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	(void)socket;
	assert_int_equal(msg->status, IBMSG_SENT);
	assert_int_equal(ibmsg_free_msg(msg), IBMSG_OK);
	echoes++;
}

static void echo_copy(struct end *end, ibmsg_buffer *msg)
{
	ibmsg_buffer *copy = malloc(sizeof(*copy));

	assert_non_null(copy);
	*copy = *msg;
	assert_int_equal(ibmsg_post_send(&end->socket, copy), IBMSG_OK);
}

static void echo_copy_sent(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	echo_sent(socket, msg);
	free(msg);
}

static void run_echo(void (*received)(struct end *, ibmsg_buffer *),
		     void (*sent)(ibmsg_socket *, ibmsg_buffer *))
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link link;

	echoes = 0;
	server->on.received = received;
	server->loop.message_sent = sent;
	link_join(&link, client, server);
	for (unsigned i = 0; i < 200; i++)
		end_post(link.client, i == 9 ? 3 * MIB : mixed_size(i));
	await(link.client->received == 200 && echoes == 200 && link.client->sent == 200);
	end_assert_delivered(link.client, link.server);
	end_assert_delivered(link.client, link.client);
	link_close(&link);
}

static void test_echo_of_received_messages_comes_back_equal(void **state)
{
	(void)state;
	run_echo(echo, echo_sent);
}

static void test_echo_of_copied_messages_comes_back_equal(void **state)
{
	(void)state;
	run_echo(echo_copy, echo_copy_sent);
}

/* ---- many connections ---- */

#define CLIENTS 64

static unsigned char client_number(const struct end *end)
{
	unsigned char number;

	assert_int_equal(ibmsg_peer_data(&end->socket, &number, 1), 1);
	return number;
}

static void connect_many(struct hub *client, uint16_t port, struct end *clients[CLIENTS])
{
	for (unsigned char i = 0; i < CLIENTS; i++) {
		clients[i] = end_new(client);
		assert_int_equal(ibmsg_connect_with(&client->loop, &clients[i]->socket,
						    hub_address(), port, &i, 1),
				 IBMSG_OK);
	}
}

static void test_64_clients_of_one_listener_exchange_messages(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct end *clients[CLIENTS] = {0};

	(void)state;
	connect_many(client, server->port, clients);
	await(hub_established(server) == CLIENTS && hub_established(client) == CLIENTS);
	for (unsigned round = 0; round < 10; round++) {
		for (struct end *end = server->ends; end; end = end->next)
			end_post(end, mixed_size(round * CLIENTS + client_number(end)));
		for (unsigned i = 0; i < CLIENTS; i++)
			end_post(clients[i], mixed_size(round * i));
	}
	await(hub_received(server) == 10 * CLIENTS && hub_received(client) == 10 * CLIENTS);
	for (struct end *end = server->ends; end; end = end->next) {
		struct end *peer = clients[client_number(end)];

		await(end_has_delivered(end, peer) && end_has_delivered(peer, end));
		end_assert_delivered(end, peer);
		end_assert_delivered(peer, end);
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		assert_int_equal(ibmsg_disconnect(&clients[i]->socket), IBMSG_OK);
	await(hub_closed(server) == CLIENTS && hub_closed(client) == CLIENTS);
	for (struct end *end = server->ends; end; end = end->next)
		assert_int_equal(end->error, IBMSG_OK);
	hub_free(client);
	hub_free(server);
}

/* ---- early messages ---- */

static void post_early(struct end *end)
{
	end_post(end, 50);
	end_post(end, 100 * KIB);
	end_post(end, 0);
}

static void test_messages_posted_in_connection_established_arrive(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link link;

	(void)state;
	server->on.established = post_early;
	client->on.established = post_early;
	link_join(&link, client, server);
	await_both(&link);
	assert_int_equal(link.client->received, 3);
	link_close(&link);
}

static int early_result;

/* Before it is established a message may be refused; one that is taken arrives. */
static void accept_and_post(struct hub *hub, ibmsg_connection_request *request)
{
	struct end *end = end_accept(hub, request);
	struct parcel *parcel = end_alloc(end, 3000);

	end->parcels = malloc(sizeof(struct parcel *));
	assert_non_null(end->parcels);
	early_result = ibmsg_post_send(&end->socket, &parcel->msg);
	if (early_result == IBMSG_OK) {
		end->parcels[end->posted++] = parcel;
		parcel->posted = 1;
		return;
	}
	assert_int_equal(early_result, IBMSG_NOT_CONNECTED);
	assert_int_equal(ibmsg_free_msg(&parcel->msg), IBMSG_OK);
	free(parcel);
}

static void test_message_posted_right_after_accept_arrives_or_is_refused(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	struct link link;

	(void)state;
	server->on.request = accept_and_post;
	link_join(&link, client, server);
	end_post(link.server, 20);
	end_post(link.client, 30);
	await_both(&link);
	assert_int_equal(link.client->received, early_result == IBMSG_OK ? 2 : 1);
	link_close(&link);
}

/* ---- statistics ---- */

struct sum {
	uint64_t messages, bytes;
};

static struct sum sum_of(const struct end *end)
{
	struct sum sum = {0};

	for (unsigned i = 0; i < end->posted; i++) {
		sum.messages++;
		sum.bytes += end->parcels[i]->size;
	}
	return sum;
}

static void assert_stats(const struct end *end, const struct end *peer, const ibmsg_stats *stats)
{
	struct sum sent = sum_of(end), received = sum_of(peer);

	assert_int_equal(stats->messages_sent, sent.messages);
	assert_int_equal(stats->bytes_sent, sent.bytes);
	assert_int_equal(stats->messages_received, received.messages);
	assert_int_equal(stats->bytes_received, received.bytes);
	assert_int_equal(stats->messages_failed, 0);
}

static void get_stats(const struct hub *hub, const struct end *end, ibmsg_stats *out)
{
	memset(out, 0xff, sizeof(*out));
	assert_int_equal(ibmsg_get_stats(&hub->loop, end ? &end->socket : NULL, out), IBMSG_OK);
}

static void test_statistics_of_two_ends_add_up(void **state)
{
	ibmsg_stats client, server, loop;
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	for (unsigned i = 0; i < 100; i++)
		end_post(link.client, mixed_size(i));
	end_post(link.server, 8 * MIB);
	end_post(link.server, 100);
	await_both(&link);
	get_stats(link.client_hub, link.client, &client);
	get_stats(link.server_hub, link.server, &server);
	assert_stats(link.client, link.server, &client);
	assert_stats(link.server, link.client, &server);
	/* 8 MiB are large and 100 bytes are not, wherever large begins. */
	assert_int_equal(server.rendezvous_sent, 1);
	assert_int_equal(client.rendezvous_received, 1);
	assert_int_equal(client.rendezvous_sent, server.rendezvous_received);
	get_stats(link.client_hub, NULL, &loop);
	assert_stats(link.client, link.server, &loop);
	assert_int_equal(loop.connections, 1);
	link_close(&link);
}

static void test_statistics_of_a_loop_outlive_its_connections(void **state)
{
	struct hub *server = hub_new_listening(), *client = hub_new();
	ibmsg_stats stats;
	struct link link;

	(void)state;
	for (unsigned round = 1; round <= 3; round++) {
		link_join(&link, client, server);
		post_some(&link);
		assert_int_equal(ibmsg_disconnect(&link.client->socket), IBMSG_OK);
		link_await_closed(&link);
		get_stats(client, NULL, &stats);
		assert_int_equal(stats.messages_sent, 12 * round);
		assert_int_equal(stats.connections, 0);
		get_stats(server, NULL, &stats);
		assert_int_equal(stats.messages_received, 12 * round);
		assert_int_equal(stats.connections, 0);
	}
	hub_free(client);
	hub_free(server);
}

/* What a loop says that arriving messages take falls again when they are freed. */
static void test_statistics_of_kept_messages_fall_when_they_are_freed(void **state)
{
	uint64_t idle, kept;
	ibmsg_stats stats;
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	end_ping(link.client, link.server);
	get_stats(link.server_hub, NULL, &stats);
	idle = stats.arriving_bytes;
	link.server_hub->keep = KEEP_POINTERS;
	end_post(link.client, 4 * MIB);
	await(end_has_delivered(link.client, link.server));
	get_stats(link.server_hub, NULL, &stats);
	kept = stats.arriving_bytes;
	assert_true(kept >= idle + 4 * MIB);
	end_free_letters(link.server);
	get_stats(link.server_hub, NULL, &stats);
	assert_true(stats.arriving_bytes <= kept - 4 * MIB);
	link_close(&link);
}

/* ---- what is the application's ---- */

/* That of buffers and sockets is checked in every callback; this one survives reuse. */
static void test_user_data_of_a_buffer_is_untouched(void **state)
{
	struct parcel *parcel;
	struct link link;

	(void)state;
	link_open(&link, TWO_LOOPS);
	link.client_hub->keeps_parcels = true;
	link.server_hub->keep = KEEP_POINTERS;
	parcel = end_post(link.client, 4000);
	await(parcel->done == 1 && link.server->received == 1);
	link.server->letters[0].msg->user_data = &link;
	end_post_parcel(link.client, parcel);
	assert_ptr_equal(parcel->msg.user_data, parcel);
	await(parcel->done == 2 && link.server->received == 2);
	assert_ptr_equal(parcel->msg.user_data, parcel);
	assert_ptr_equal(link.server->letters[0].msg->user_data, &link);
	assert_ptr_equal(link.client_hub->loop.user_data, link.client_hub);
	end_free_letters(link.server);
	link_close(&link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		hub_test(test_message_of_each_edge_size_in_one_loop_arrives),
		hub_test(test_message_of_each_edge_size_in_two_loops_arrives),
		hub_test(test_messages_of_all_edge_sizes_at_once_arrive_in_order),
		hub_test(test_messages_of_random_sizes_in_one_loop_arrive_in_order),
		hub_test(test_messages_of_random_sizes_in_two_loops_arrive_in_order),
		hub_test(test_flood_both_ways_in_one_loop_arrives),
		hub_test(test_flood_both_ways_in_two_loops_arrives),
		hub_test(test_flood_of_empty_messages_arrives),
		hub_test(test_flood_of_large_messages_both_ways_arrives),
		hub_test(test_slow_reader_that_keeps_300_messages_gets_all),
		hub_test(test_reader_that_sleeps_gets_all_afterwards),
		hub_test(test_kept_pointers_freed_later_are_intact),
		hub_test(test_kept_copies_freed_later_are_intact),
		hub_test(test_kept_pointers_freed_after_close_are_intact),
		hub_test(test_kept_copies_freed_after_close_are_intact),
		hub_test(test_kept_pointers_freed_after_destroy_are_intact),
		hub_test(test_kept_copies_freed_after_destroy_are_intact),
		hub_test(test_alloc_that_is_never_posted_is_freed_whenever),
		hub_test(test_resend_of_a_small_buffer_sends_its_new_contents),
		hub_test(test_resend_of_a_large_buffer_sends_its_new_contents),
		hub_test(test_resend_inside_message_sent_arrives),
		hub_test(test_shortened_message_arrives_as_short_as_it_is),
		hub_test(test_echo_of_received_messages_comes_back_equal),
		hub_test(test_echo_of_copied_messages_comes_back_equal),
		hub_test(test_64_clients_of_one_listener_exchange_messages),
		hub_test(test_messages_posted_in_connection_established_arrive),
		hub_test(test_message_posted_right_after_accept_arrives_or_is_refused),
		hub_test(test_statistics_of_two_ends_add_up),
		hub_test(test_statistics_of_a_loop_outlive_its_connections),
		hub_test(test_statistics_of_kept_messages_fall_when_they_are_freed),
		hub_test(test_user_data_of_a_buffer_is_untouched),
	};

	return cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
}
