/* SPDX-License-Identifier: MIT */
/*
 * A peer whose memory cannot be copied: it is missing, and its owner never provides it, so that a
 * process_vm_readv would wait for ever. The peer runs as the same user on the same host, but in a
 * pid namespace of its own, as in a container. It could not stop the side by a signal, and it must
 * not be able to by its memory.
 */
#include "keeper.h"
#include "lodger.h"
#include "visit.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/regions.h"
#include "shm/sealed.h"

#define LEN         64u
#define DOMAIN      5u
#define TABLE_SLOTS 65536u /* as in regions.c */

static struct keeper stranger;   /* in a pid namespace of its own; one page is blocked */
static struct keeper neighbour;  /* in the test's namespaces */
static struct keeper foreigner;  /* in a user namespace of its own */
static const char *no_foreigner; /* why there is none */

/* ---- a lodger whose memory a keeper has ---- */

static const struct keeper *host; /* of the lodger that comes */

static int listen_by_host(int tcp_fd)
{
	return keeper_listen(host, tcp_fd);
}

static struct hello make_hello(uint64_t probe_at, bool has_table)
{
	uint64_t value;
	struct hello hello;

	memset(&value, KEEPER_VALUE, sizeof(value));
	hello_make(&hello, has_table, &value);
	hello.probe_at = probe_at;
	return hello;
}

/* The region that the side was offered is the keeper's other page. */
static int make_table(const struct keeper *keeper)
{
	struct regions_entry *entry;
	void *table;
	int fd = sealed_new(TABLE_SLOTS * sizeof(*entry), SEALED_READ_BY_OTHERS, &table);

	assert_true(fd >= 0);
	entry = (struct regions_entry *)table + (SINK_STAG >> 8) % TABLE_SLOTS;
	atomic_store(&entry->tags, DOMAIN << 2 | 3);
	atomic_store(&entry->iova, SINK_TO);
	atomic_store(&entry->addr, keeper->other);
	atomic_store(&entry->length, KEEPER_PAGE);
	atomic_store(&entry->key, SINK_STAG);
	munmap(table, TABLE_SLOTS * sizeof(*entry));
	return fd;
}

static void say_hello(struct lodger *lodger, const struct keeper *keeper, uint64_t probe_at)
{
	struct hello hello = make_hello(probe_at, true);
	int table = make_table(keeper);

	host = keeper;
	lodger_meet_at(lodger, NULL, listen_by_host);
	atomic_store(&lodger->area->side[AREA_INITIATOR].domain, DOMAIN);
	unix_say(lodger->fd, &hello, sizeof(hello), &table, 1);
	close(table);
}

static void open_lodger(struct lodger *lodger, const struct keeper *keeper)
{
	say_hello(lodger, keeper, keeper->plain);
	lodger_expect_alive(lodger);
}

/* What the side says about itself when it has heard the hello. */
static bool side_may_copy(const struct lodger *lodger)
{
	return atomic_load(&lodger->area->side[AREA_RESPONDER].may_copy);
}

/* Nobody has waited for the page, nor does anybody now. */
static void expect_untouched(void)
{
	assert_false(keeper_was_touched(&stranger));
}

static void expect_others_go_on(void)
{
	uint64_t begin = now_ms();

	house_check();
	house_check_newcomer();
	assert_true(now_ms() - begin < SOON_MS);
	expect_untouched();
}

static void close_soon(struct lodger *lodger)
{
	uint64_t begin = now_ms();

	lodger_close(lodger);
	assert_true(now_ms() - begin < SOON_MS);
	expect_untouched();
}

/* ---- the first look ---- */

static void test_probe_of_an_initiator_that_is_blocked_holds_up_nobody(void **state)
{
	struct lodger lodger;

	(void)state;
	say_hello(&lodger, &stranger, stranger.other);
	expect_others_go_on();
	lodger_expect_alive(&lodger);
	assert_false(side_may_copy(&lodger));
	assert_false(lodger.has_table);
	close_soon(&lodger);
}

/* The side is the initiator: the next entry of its ring. */
static void expect_entry(struct area *area, enum rc_kind kind, uint32_t len)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct rc_frame entry;
	struct ring_reader in;
	const uint8_t *payload;

	ring_reader_init(&in, area->ring[AREA_INITIATOR], &area->side[AREA_RESPONDER].consumed);
	while (!ring_peek(&in, &entry, &payload)) {
		assert_true(now_ms() < end);
		poll(NULL, 0, 1);
	}
	assert_int_equal(entry.kind, kind);
	assert_int_equal(entry.len, len);
}

/* Returns what the side says about itself then. */
static bool visit_keeper(const struct keeper *keeper, uint64_t probe_at)
{
	struct hello hello = make_hello(probe_at, false);
	struct visit visit;
	struct area *area;
	bool may_copy;
	uint64_t begin;
	void *map;
	int fd, area_fd = sealed_new(sizeof(*area), SEALED_SHARED, &map);

	assert_true(area_fd >= 0);
	area = map;
	for (unsigned end = 0; end < 2; end++)
		ring_clear(area->ring[end]);
	visit_open(&visit);
	fd = keeper_connect(keeper, visit.stranger.fd);
	unix_say(fd, &hello, sizeof(hello), &area_fd, 1);
	visit_say_reply(&visit, true);
	expect_others_go_on();
	side_await_established(&visit.side);
	side_send(&visit.side, 3, KIB, LEN);
	expect_entry(area, RC_SEND, LEN);
	may_copy = atomic_load(&area->side[AREA_INITIATOR].may_copy);
	begin = now_ms();
	close(fd);
	cm_expect(visit.side.channel, RDMA_CM_EVENT_DISCONNECTED);
	visit_close(&visit);
	assert_true(now_ms() - begin < SOON_MS);
	munmap(area, sizeof(*area));
	close(area_fd);
	return may_copy;
}

static void test_probe_of_a_responder_that_is_blocked_holds_up_nobody(void **state)
{
	(void)state;
	assert_false(visit_keeper(&stranger, stranger.other));
	expect_untouched();
}

/* ---- requests ---- */

static void put_fetched(struct lodger *lodger, uint64_t addr)
{
	const struct ibv_sge where = {.addr = addr, .length = LEN};
	struct rc_frame entry = {
		.kind = RC_SEND_FETCH, .flags = RC_LAST, .len = sizeof(where), .arg = LEN};

	lodger_put_bytes(lodger, &entry, &where);
}

/* Copies were not agreed on, so it is an error, whatever the list names. */
static void test_send_that_is_blocked_ends_its_own_connection(void **state)
{
	struct lodger lodger;

	(void)state;
	open_lodger(&lodger, &stranger);
	put_fetched(&lodger, stranger.other);
	expect_others_go_on();
	lodger_expect_terminate(&lodger, TERM_RDMAP_STREAM);
	close_soon(&lodger);
}

static void post(struct lodger *lodger, enum ibv_wr_opcode opcode, size_t at)
{
	side_post(&lodger->scene.side, &(struct request){.opcode = opcode,
							 .id = 7,
							 .at = at,
							 .len = LEN,
							 .flags = IBV_SEND_SIGNALED});
}

static void test_write_to_blocked_memory_goes_through_the_ring(void **state)
{
	struct lodger lodger;
	struct rc_frame entry;
	const uint8_t *payload;

	(void)state;
	open_lodger(&lodger, &stranger);
	memset(lodger.scene.side.buf + 40 * KIB, 0x42, LEN);
	post(&lodger, IBV_WR_RDMA_WRITE, 40 * KIB);
	expect_others_go_on();
	entry = lodger_take(&lodger, &payload);
	assert_int_equal(entry.kind, RC_WRITE);
	assert_int_equal(entry.key, SINK_STAG);
	assert_int_equal(entry.len, LEN);
	assert_true(is_all(payload, LEN, 0x42));
	cq_expect(lodger.scene.side.send_cq, 7, IBV_WC_SUCCESS);
	close_soon(&lodger);
}

static void test_read_of_blocked_memory_goes_through_the_ring(void **state)
{
	struct rc_frame data = {.kind = RC_READ_DATA, .flags = RC_LAST, .len = LEN}, entry;
	struct lodger lodger;
	const uint8_t *payload;

	(void)state;
	open_lodger(&lodger, &stranger);
	post(&lodger, IBV_WR_RDMA_READ, 40 * KIB);
	expect_others_go_on();
	entry = lodger_take(&lodger, &payload);
	assert_int_equal(entry.kind, RC_READ);
	assert_int_equal(entry.key, SINK_STAG);
	assert_int_equal(entry.arg, LEN);
	lodger_put(&lodger, &data, 0x24);
	cq_expect(lodger.scene.side.send_cq, 7, IBV_WC_SUCCESS);
	assert_true(is_all(lodger.scene.side.buf + 40 * KIB, LEN, 0x24));
	close_soon(&lodger);
}

/* ---- who is copied from and to, and who is not ---- */

/* All of it without the lodger's help, which takes nothing out of the ring. */
static void test_neighbour_is_copied_from_and_to(void **state)
{
	struct lodger lodger;
	uint8_t *buf;

	(void)state;
	open_lodger(&lodger, &neighbour);
	buf = lodger.scene.side.buf;
	assert_true(side_may_copy(&lodger));
	assert_true(lodger.has_table);
	put_fetched(&lodger, neighbour.other);
	scene_expect_recv(&lodger.scene, LEN, KEEPER_VALUE);
	memset(buf + 40 * KIB, 0x42, LEN);
	post(&lodger, IBV_WR_RDMA_WRITE, 40 * KIB);
	cq_expect(lodger.scene.side.send_cq, 7, IBV_WC_SUCCESS);
	post(&lodger, IBV_WR_RDMA_READ, 41 * KIB);
	cq_expect(lodger.scene.side.send_cq, 7, IBV_WC_SUCCESS);
	assert_true(is_all(buf + 41 * KIB, LEN, 0x42));
	assert_true(ring_is_empty(&lodger.in));
	lodger_close(&lodger);
	assert_true(visit_keeper(&neighbour, neighbour.plain));
}

static void test_peer_of_another_user_namespace_is_not_copied_from(void **state)
{
	struct lodger lodger;

	(void)state;
	if (no_foreigner) {
		print_message("%s is not permitted\n", no_foreigner);
		skip();
	}
	open_lodger(&lodger, &foreigner);
	assert_false(side_may_copy(&lodger));
	assert_false(lodger.has_table);
	lodger_close(&lodger);
	assert_false(visit_keeper(&foreigner, foreigner.plain));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_probe_of_an_initiator_that_is_blocked_holds_up_nobody),
		cmocka_unit_test(test_probe_of_a_responder_that_is_blocked_holds_up_nobody),
		cmocka_unit_test(test_send_that_is_blocked_ends_its_own_connection),
		cmocka_unit_test(test_write_to_blocked_memory_goes_through_the_ring),
		cmocka_unit_test(test_read_of_blocked_memory_goes_through_the_ring),
		cmocka_unit_test(test_neighbour_is_copied_from_and_to),
		cmocka_unit_test(test_peer_of_another_user_namespace_is_not_copied_from),
	};
	const char *why = keeper_start(&stranger, CLONE_NEWPID, true);

	if (why) {
		print_message("%s is not permitted: %s\n", why, strerror(errno));
		return 77;
	}
	keeper_start(&neighbour, 0, false);
	no_foreigner = keeper_start(&foreigner, CLONE_NEWUSER, false);
	return cmocka_run_group_tests_name("shm_blocked", tests, house_open, house_close);
}
