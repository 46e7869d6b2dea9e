/* SPDX-License-Identifier: MIT */
/* Three gigabytes in one write and one read. */
#include "link.h"

#include <stdio.h>
#include <sys/mman.h>

#define HUGE_BYTES (3ull * 1024 * MIB + 12345)
#define MARKS      4096 /* where the memory is written and looked at: most of it is never touched */

static uint64_t mark_at(unsigned i)
{
	return i < MARKS - 1 ? HUGE_BYTES / MARKS * i : HUGE_BYTES - 8;
}

static uint64_t mark_of(unsigned i)
{
	return (i + 1) * 0x9e3779b97f4a7c15;
}

static uint8_t *map_huge(void)
{
	uint8_t *bytes = mmap(NULL, HUGE_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(bytes, MAP_FAILED);
	return bytes;
}

static unsigned count_marks(const uint8_t *bytes)
{
	unsigned count = 0;

	for (unsigned i = 0; i < MARKS; i++) {
		uint64_t mark;

		memcpy(&mark, bytes + mark_at(i), sizeof(mark));
		count += mark == mark_of(i);
	}
	return count;
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

static void test_three_gigabytes_go_there_and_back(void **state)
{
	uint8_t *here, *there;
	struct iw_lmr mine, theirs;
	struct iw_rmr rmr;
	struct link link;
	struct ibv_wc wc;

	(void)state;
	if (available_bytes() < 3 * HUGE_BYTES)
		skip();
	here = map_huge();
	there = map_huge();
	for (unsigned i = 0; i < MARKS; i++) {
		uint64_t mark = mark_of(i);

		memcpy(here + mark_at(i), &mark, sizeof(mark));
	}
	link_open(&link);
	must(iw_post_recv_adv(&link.client));
	must(iw_lmr_register(there, HUGE_BYTES, BOTH, &theirs, &link.server));
	must(iw_post_send_adv(&theirs, &link.server));
	must(iw_wait_recv_adv_timeout(&rmr, WAIT_MS, &link.client));
	assert_int_equal(rmr.length, HUGE_BYTES);
	must(iw_lmr_register(here, HUGE_BYTES, LOCAL, &mine, &link.client));
	must(post_write_lmr(&mine, 0, &rmr, 0, HUGE_BYTES, SIGNAL, &link.client));
	must(await_completions(IW_SCQ, 1, &wc, &link.client));
	assert_int_equal(wc.wr_id, link.client.last_wr_id);
	link_ping(&link.client, &link.server);
	assert_int_equal(count_marks(there), MARKS);

	assert_int_equal(madvise(here, HUGE_BYTES, MADV_DONTNEED), 0);
	assert_int_equal(count_marks(here), 0);
	must(post_read_lmr(&mine, 0, &rmr, 0, HUGE_BYTES, SIGNAL, &link.client));
	must(await_completions(IW_SCQ, 1, &wc, &link.client));
	assert_int_equal(wc.wr_id, link.client.last_wr_id);
	assert_int_equal(count_marks(here), MARKS);
	must_fail(await_completions_timeout(IW_SCQ, 1, &wc, 0, &link.client), ETIMEDOUT);
	must(iw_lmr_destroy(&mine, 0));
	must(iw_lmr_destroy(&theirs, 0));
	link_close(&link);
	munmap(here, HUGE_BYTES);
	munmap(there, HUGE_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_three_gigabytes_go_there_and_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
