/* SPDX-License-Identifier: MIT */
/* Protection domains and memory regions: the table of keys, and who may reach what. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>

#include "../shm/regions.h"
#include "objects.h"

#define FIRST_BUCKETS 256

/* All regions of the process, by key: keys are random, so a peer cannot guess a neighbour's. */
static struct {
	pthread_mutex_t lock; /* guards all below and every region's next and rights; a leaf */
	struct rc_region **buckets;
	uint32_t size; /* a power of two */
	uint32_t count;
	atomic_uint version; /* another one when a region is gone */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Where the link to the region of this key is, or would be. The table must have buckets. */
static struct rc_region **place_of(uint32_t key)
{
	struct rc_region **link = &table.buckets[(key ^ key >> 8) & (table.size - 1)];

	while (*link && (*link)->mr.rkey != key)
		link = &(*link)->next;
	return link;
}

static struct rc_region *find(uint32_t key)
{
	return table.size ? *place_of(key) : NULL;
}

/* Keep about one region per bucket. */
static int grow(void)
{
	struct rc_region **old = table.buckets;
	uint32_t old_size = table.size, size = old_size ? old_size * 2 : FIRST_BUCKETS;
	struct rc_region **buckets = calloc(size, sizeof(struct rc_region *));

	if (!buckets)
		return -ENOMEM;
	table.buckets = buckets;
	table.size = size;
	for (uint32_t i = 0; i < old_size; i++) {
		while (old[i]) {
			struct rc_region *region = old[i];
			struct rc_region **link = place_of(region->mr.rkey);

			old[i] = region->next;
			region->next = *link;
			*link = region;
		}
	}
	free(old);
	return 0;
}

static void show(const struct rc_region *region)
{
	regions_add(region->mr.rkey, container_of(region->mr.pd, struct soft_pd, pd)->number,
		    region->access, region->iova, region->mr.addr, region->mr.length);
}

void rc_regions_show(void)
{
	pthread_mutex_lock(&table.lock);
	for (uint32_t i = 0; i < table.size; i++)
		for (const struct rc_region *region = table.buckets[i]; region;
		     region = region->next)
			if (!region->invalidated)
				show(region);
	pthread_mutex_unlock(&table.lock);
}

static int insert(struct rc_region *region)
{
	uint32_t key;

	if (table.count >= SOFT_MAX_MR)
		return -ENOMEM;
	/* Without memory a table that is there already just becomes fuller. */
	if (table.count == table.size && grow() && !table.size)
		return -ENOMEM;
	do {
		if (getrandom(&key, sizeof(key), 0) != sizeof(key))
			return -EIO;
		/* Index 0 is kept free: hardware refuses STag 0. */
	} while (key >> 8 == 0 || find(key));
	region->mr.lkey = region->mr.rkey = key;
	region->next = NULL;
	*place_of(key) = region;
	table.count++;
	show(region);
	return 0;
}

struct ibv_pd *soft_ibv_alloc_pd(struct ibv_context *context)
{
	static atomic_uint last;
	struct soft_pd *pd = calloc(1, sizeof(*pd));

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	do
		pd->number = (atomic_fetch_add(&last, 1) + 1) & PD_NUMBERS;
	while (!pd->number);
	pd->pd.context = context;
	atomic_fetch_add(&to_context(context)->objects, 1);
	return &pd->pd;
}

int soft_ibv_dealloc_pd(struct ibv_pd *ibpd)
{
	struct soft_pd *pd = container_of(ibpd, struct soft_pd, pd);

	if (atomic_load(&pd->users))
		return EBUSY;
	atomic_fetch_sub(&to_context(ibpd->context)->objects, 1);
	free(pd);
	return 0;
}

struct ibv_mr *soft_ibv_reg_mr(struct ibv_pd *ibpd, void *addr, size_t length, uint64_t iova,
			       unsigned access)
{
	const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			       IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;
	const unsigned write = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	struct soft_pd *pd = container_of(ibpd, struct soft_pd, pd);
	struct rc_region *region;
	int error;

	if (access & ~known) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (((access & write) && !(access & IBV_ACCESS_LOCAL_WRITE)) ||
	    (uintptr_t)addr + length < (uintptr_t)addr || iova + length < iova) {
		errno = EINVAL;
		return NULL;
	}
	region = calloc(1, sizeof(*region));
	if (!region) {
		errno = ENOMEM;
		return NULL;
	}
	region->mr = (struct ibv_mr){
		.context = ibpd->context, .pd = ibpd, .addr = addr, .length = length};
	region->iova = iova;
	region->access = access;
	pthread_mutex_lock(&table.lock);
	error = insert(region);
	pthread_mutex_unlock(&table.lock);
	if (error) {
		free(region);
		errno = -error;
		return NULL;
	}
	region->mr.handle = region->mr.rkey >> 8;
	atomic_fetch_add(&pd->users, 1);
	return &region->mr;
}

int soft_ibv_dereg_mr(struct ibv_mr *mr)
{
	struct rc_region *region = container_of(mr, struct rc_region, mr);
	struct soft_pd *pd = container_of(mr->pd, struct soft_pd, pd);
	bool shown;

	pthread_mutex_lock(&table.lock);
	*place_of(mr->rkey) = region->next;
	table.count--;
	atomic_fetch_add(&table.version, 1);
	shown = regions_remove(mr->rkey) || region->invalidated;
	pthread_mutex_unlock(&table.lock);
	if (shown)
		regions_wait(mr->rkey);
	/* Holders are inside one copy or system call that does not block: this is short. */
	while (atomic_load(&region->holders))
		sched_yield();
	atomic_fetch_sub(&pd->users, 1);
	free(region);
	return 0;
}

/* Whether @length bytes from @iova on hold [addr, addr + len). */
static bool has_range(uint64_t iova, uint64_t length, uint64_t addr, uint64_t len)
{
	return addr >= iova && len <= length && addr - iova <= length - len;
}

static bool sight_covers(const struct region_sight *sight, const struct ibv_sge *sge,
			 unsigned access)
{
	return sight->key == sge->lkey && (sight->access & access) == access &&
	       has_range(sight->iova, sight->length, sge->addr, sge->length);
}

static bool is_recent(const struct region_sight *sight)
{
	return sight->version == atomic_load_explicit(&table.version, memory_order_acquire);
}

/* Look at the region of @key anew, if there is one and it is of @pd. */
static void look_at(struct region_sight *sight, const struct ibv_pd *pd, uint32_t key)
{
	const struct rc_region *region;

	*sight = (struct region_sight){0};
	pthread_mutex_lock(&table.lock);
	region = find(key);
	if (region && region->mr.pd == pd)
		*sight = (struct region_sight){
			.version = atomic_load(&table.version),
			.key = key,
			.iova = region->iova,
			.length = region->mr.length,
			.access = region->access,
		};
	pthread_mutex_unlock(&table.lock);
}

bool region_covers(struct region_sight *last, struct ibv_pd *pd, const struct ibv_sge *sge,
		   unsigned num_sge, unsigned access)
{
	for (unsigned i = 0; i < num_sge; i++) {
		if (!sge[i].length || (sight_covers(last, &sge[i], access) && is_recent(last)))
			continue;
		look_at(last, pd, sge[i].lkey);
		if (!sight_covers(last, &sge[i], access))
			return false;
	}
	return true;
}

struct rc_region *rc_region_get(struct rc_qp *qp, uint32_t key, uint64_t addr, uint64_t len,
				unsigned access, void **mem, enum rc_fault *fault)
{
	struct rc_region *region;

	pthread_mutex_lock(&table.lock);
	region = find(key);
	if (!region || region->invalidated)
		*fault = RC_FAULT_KEY;
	else if (region->mr.pd != to_qp(qp)->qp.pd)
		*fault = RC_FAULT_PD;
	else if (addr + len < addr)
		*fault = RC_FAULT_WRAP;
	else if (!has_range(region->iova, region->mr.length, addr, len))
		*fault = RC_FAULT_BOUNDS;
	else if ((region->access & access) != access)
		*fault = RC_FAULT_ACCESS;
	else {
		atomic_fetch_add(&region->holders, 1);
		*mem = (char *)region->mr.addr + (addr - region->iova);
		pthread_mutex_unlock(&table.lock);
		return region;
	}
	pthread_mutex_unlock(&table.lock);
	return NULL;
}

void rc_region_put(struct rc_region *region)
{
	atomic_fetch_sub(&region->holders, 1);
}

int rc_execute_atomic(struct rc_qp *qp, const struct rc_atomic *atomic, uint64_t *value,
		      enum rc_fault *fault)
{
	struct rc_region *region;
	void *mem;

	region = rc_region_get(qp, atomic->key, atomic->addr, sizeof(*value),
			       IBV_ACCESS_REMOTE_ATOMIC, &mem, fault);
	if (region && (uintptr_t)mem % sizeof(*value)) {
		rc_region_put(region);
		*fault = RC_FAULT_BOUNDS; /* registered at an odd address under an even one */
		region = NULL;
	}
	if (!region)
		return -EFAULT;
	*value = atomic->compare;
	if (atomic->swaps)
		__atomic_compare_exchange_n((uint64_t *)mem, value, atomic->add_swap, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	else
		*value = __atomic_fetch_add((uint64_t *)mem, atomic->add_swap, __ATOMIC_SEQ_CST);
	rc_region_put(region);
	return 0;
}

uint32_t rc_domain(const struct rc_qp *qp)
{
	const struct soft_qp *soft = container_of(qp, const struct soft_qp, rc);

	return container_of(soft->qp.pd, struct soft_pd, pd)->number;
}

int rc_region_invalidate(struct rc_qp *qp, uint32_t key)
{
	const unsigned remote =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct rc_region *region;
	int error = -EINVAL;

	pthread_mutex_lock(&table.lock);
	region = find(key);
	if (region && region->mr.pd == to_qp(qp)->qp.pd && (region->access & remote)) {
		region->invalidated = true;
		regions_remove(key);
		error = 0;
	}
	pthread_mutex_unlock(&table.lock);
	return error;
}
