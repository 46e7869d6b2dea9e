/* SPDX-License-Identifier: MIT */
#include "regions.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../fork_order.h"
#include "../progress/progress.h"
#include "../rc.h"
#include "fence.h"
#include "sealed.h"

#define SLOTS     65536u /* a power of two; pages that nothing falls into take no memory */
#define PROBES    16u    /* places at which a key may be */
#define TABLE_LEN (SLOTS * sizeof(struct regions_entry))

#define PATIENCE_NS 1000000000u /* for one copy, which takes a millisecond */
#define SETTLE_NS   10000000    /* for a system call that has read the vector as it was */

_Static_assert(sizeof(struct regions_entry) == 32, "two to a line");

static struct {
	pthread_mutex_t lock; /* guards fd and readers; taken before verbs' table of regions */
	int fd;
	struct list readers;
	_Atomic(struct regions_entry *) table; /* its entries: under the lock of verbs' table */
} regions = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.fd = -1,
	.readers = {&regions.readers, &regions.readers},
};

static uint32_t tags_of(uint32_t domain, unsigned access)
{
	return domain << 2 | (access & IBV_ACCESS_REMOTE_WRITE ? 1 : 0) |
	       (access & IBV_ACCESS_REMOTE_READ ? 2 : 0);
}

/* The place of @key (0: a free one), among those where @key_for may be. */
static struct regions_entry *place_of(const struct regions_entry *table, uint32_t key,
				      uint32_t key_for)
{
	for (uint32_t i = 0; i < PROBES; i++) {
		const struct regions_entry *entry = &table[((key_for >> 8) + i) % SLOTS];

		if (atomic_load_explicit(&entry->key, memory_order_acquire) == key)
			return (struct regions_entry *)(uintptr_t)entry;
	}
	return NULL;
}

/* ---- the owner ---- */

void regions_add(uint32_t key, uint32_t domain, unsigned access, uint64_t iova, const void *addr,
		 uint64_t length)
{
	struct regions_entry *table = atomic_load(&regions.table), *entry;

	if (!table || !(access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)) ||
	    place_of(table, key, key))
		return;
	entry = place_of(table, 0, key);
	if (!entry)
		return; /* peers will ask */
	atomic_store_explicit(&entry->tags, tags_of(domain, access), memory_order_relaxed);
	atomic_store_explicit(&entry->iova, iova, memory_order_relaxed);
	atomic_store_explicit(&entry->addr, (uintptr_t)addr, memory_order_relaxed);
	atomic_store_explicit(&entry->length, length, memory_order_relaxed);
	atomic_store_explicit(&entry->key, key, memory_order_release);
}

bool regions_remove(uint32_t key)
{
	struct regions_entry *table = atomic_load(&regions.table), *entry;

	entry = table ? place_of(table, key, key) : NULL;
	if (entry)
		atomic_store(&entry->key, 0);
	return entry != NULL;
}

/* A forked child has no peers, and must not write what its parent shares. */
static void forget(void)
{
	regions.fd = -1; /* stays open until the child execs or ends */
	list_init(&regions.readers);
	atomic_store(&regions.table, NULL);
}

FORK_MUTEX(FORK_SHM_REGIONS, &regions.lock, forget);

static int make_table(void)
{
	void *map;
	int fd;

	fd = sealed_new(TABLE_LEN, SEALED_READ_BY_OTHERS, &map);
	if (fd < 0)
		return fd;
	regions.fd = fd;
	atomic_store(&regions.table, map);
	rc_regions_show();
	return 0;
}

int regions_fd(void)
{
	int result = 0;

	pthread_mutex_lock(&regions.lock);
	if (regions.fd < 0)
		result = make_table();
	if (!result)
		result = regions.fd;
	pthread_mutex_unlock(&regions.lock);
	return result;
}

void regions_join(struct regions_reader *reader)
{
	pthread_mutex_lock(&regions.lock);
	list_add_tail(&regions.readers, &reader->link);
	pthread_mutex_unlock(&regions.lock);
}

void regions_leave(struct regions_reader *reader)
{
	pthread_mutex_lock(&regions.lock);
	list_del(&reader->link);
	pthread_mutex_unlock(&regions.lock);
}

/* Whether a peer says that it copies. @revoke: it has had its time, and must not any more. */
static bool is_held(uint32_t key, bool revoke)
{
	bool held = false;
	struct list *pos;

	pthread_mutex_lock(&regions.lock);
	list_for_each (pos, &regions.readers) {
		struct regions_reader *reader = container_of(pos, struct regions_reader, link);

		if (atomic_load(&reader->hold->key) != key)
			continue;
		held = true;
		if (!revoke)
			continue;
		log_warn("%s: ends: the peer does not finish a copy (is it stopped?), and its "
			 "memory is to be deregistered",
			 reader->name);
		reader->hold->remote = (struct iovec){0};
		shutdown(reader->fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&regions.lock);
	return held;
}

void regions_wait(uint32_t key)
{
	const struct timespec settle = {.tv_nsec = SETTLE_NS};
	uint64_t until;

	full_fence();
	if (!is_held(key, false))
		return;
	until = progress_now() + PATIENCE_NS;
	while (is_held(key, false)) {
		sched_yield();
		if (progress_now() < until)
			continue;
		if (is_held(key, true))
			nanosleep(&settle, NULL);
		return;
	}
}

/* ---- a peer ---- */

const struct regions_entry *regions_map(int fd)
{
	void *map;

	return sealed_map(fd, TABLE_LEN, SEALED_READ_BY_OTHERS, &map) ? NULL : map;
}

void regions_unmap(const struct regions_entry *table)
{
	munmap((void *)(uintptr_t)table, TABLE_LEN);
}

const struct regions_entry *regions_find(const struct regions_entry *table, uint32_t key,
					 uint32_t domain, unsigned access, uint64_t addr,
					 uint64_t len, uint64_t *where)
{
	const struct regions_entry *entry = key ? place_of(table, key, key) : NULL;
	uint32_t tags = tags_of(domain, access);
	uint64_t iova, length;

	if (!entry)
		return NULL;
	if ((atomic_load_explicit(&entry->tags, memory_order_relaxed) & (tags | ~3u)) != tags)
		return NULL;
	iova = atomic_load_explicit(&entry->iova, memory_order_relaxed);
	length = atomic_load_explicit(&entry->length, memory_order_relaxed);
	if (addr < iova || len > length || addr - iova > length - len)
		return NULL;
	*where = atomic_load_explicit(&entry->addr, memory_order_relaxed) + (addr - iova);
	return entry;
}
