/* SPDX-License-Identifier: MIT */
/* Protection domains and memory regions: registration, and who may reach what. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "../../common/uncancel.h"
#include "../fork_order.h"
#include "../shm/regions.h"
#include "objects.h"
#include "region_table.h"

/* What the program has of a region. It is freed with it, unlike the region itself. */
struct soft_mr {
	struct ibv_mr mr;
	struct rc_region *region;
};

/* All regions of the process, by key. */
static struct region_table table = REGION_TABLE_INIT(SOFT_MAX_MR);

FORK_MUTEX(FORK_REGIONS, &table.lock, NULL);

static void show(const struct rc_region *region)
{
	const struct region_grant *grant = &region->grant;
	const struct soft_pd *pd = container_of(grant->pd, const struct soft_pd, pd);

	if (!atomic_load(&region->invalidated))
		regions_add(atomic_load(&region->key), pd->number, grant->access, grant->iova,
			    grant->mem, grant->length);
}

void rc_regions_show(void)
{
	pthread_mutex_lock(&table.lock);
	region_table_walk(&table, show);
	pthread_mutex_unlock(&table.lock);
}

/* Keys are random, so a peer cannot guess a neighbour's. */
static int draw_key(uint32_t *key)
{
	do {
		if (getrandom(key, sizeof(*key), 0) != sizeof(*key))
			return -EIO;
	} while (*key >> 8 == 0); /* index 0 is kept free: hardware refuses STag 0 */
	return 0;
}

/* The key is drawn without the lock: getrandom is a system call, and a cancellation point. */
static int insert(const struct region_grant *grant, uint32_t *key, struct rc_region **region)
{
	int error;

	do {
		error = draw_key(key);
		if (error)
			return error;
		pthread_mutex_lock(&table.lock);
		error = region_table_add(&table, *key, grant, region);
		if (!error)
			show(*region);
		pthread_mutex_unlock(&table.lock);
	} while (error == -EEXIST);
	return error;
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

/* 0, or the errno of a region that cannot be. */
static int check_registration(const struct region_grant *grant)
{
	const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			       IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
			       IBV_ACCESS_OPTIONAL_RANGE;
	const unsigned write = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	uintptr_t addr = (uintptr_t)grant->mem;

	if (grant->access & ~known)
		return EOPNOTSUPP;
	if ((grant->access & write) && !(grant->access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (addr + grant->length < addr || grant->iova + grant->length < grant->iova)
		return EINVAL;
	return 0;
}

struct ibv_mr *soft_ibv_reg_mr(struct ibv_pd *ibpd, void *addr, size_t length, uint64_t iova,
			       unsigned access)
{
	const struct region_grant grant = {
		.pd = ibpd,
		.iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova,
		.length = length,
		.mem = addr,
		.access = access,
	};
	int error = check_registration(&grant);
	struct soft_mr *mr = NULL;
	uint32_t key;

	UNCANCELLABLE;
	if (!error) {
		mr = calloc(1, sizeof(*mr));
		error = mr ? -insert(&grant, &key, &mr->region) : ENOMEM;
	}
	if (error) {
		free(mr);
		errno = error;
		return NULL;
	}
	mr->mr = (struct ibv_mr){
		.context = ibpd->context,
		.pd = ibpd,
		.addr = addr,
		.length = length,
		.handle = key >> 8,
		.lkey = key,
		.rkey = key,
	};
	atomic_fetch_add(&container_of(ibpd, struct soft_pd, pd)->users, 1);
	return &mr->mr;
}

int soft_ibv_dereg_mr(struct ibv_mr *ibmr)
{
	struct soft_mr *mr = container_of(ibmr, struct soft_mr, mr);
	struct soft_pd *pd = container_of(ibmr->pd, struct soft_pd, pd);
	uint32_t key = atomic_load(&mr->region->key);
	bool shown;

	UNCANCELLABLE;
	pthread_mutex_lock(&table.lock);
	region_table_remove(&table, mr->region);
	shown = regions_remove(key) || atomic_load(&mr->region->invalidated);
	pthread_mutex_unlock(&table.lock);
	if (shown)
		regions_wait(key);
	/* Holders are inside one copy or system call that does not block: this is short. */
	region_table_free(&table, mr->region);
	atomic_fetch_sub(&pd->users, 1);
	free(mr);
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
	/* Before the look: if the region goes meanwhile, what was seen of it is not recent. */
	unsigned version = atomic_load(&table.version);
	struct rc_region *region = region_table_get(&table, key);

	*sight = (struct region_sight){0};
	if (!region)
		return;
	if (region->grant.pd == pd)
		*sight = (struct region_sight){
			.version = version,
			.key = key,
			.iova = region->grant.iova,
			.length = region->grant.length,
			.access = region->grant.access,
			.shift = (uintptr_t)region->grant.mem - region->grant.iova,
		};
	region_table_put(region);
}

/* Whether @last, or else the region of the piece's key, which is then @last, covers the piece. */
static inline bool sees(struct region_sight *last, const struct ibv_pd *pd,
			const struct ibv_sge *sge, unsigned access)
{
	if (sight_covers(last, sge, access) && is_recent(last))
		return true;
	look_at(last, pd, sge->lkey);
	return sight_covers(last, sge, access);
}

bool region_covers(struct region_sight *last, const struct ibv_pd *pd, const struct ibv_sge *sge,
		   unsigned num_sge, unsigned access)
{
	for (unsigned i = 0; i < num_sge; i++)
		if (sge[i].length && (!sees(last, pd, &sge[i], access) || last->shift))
			return false;
	return true;
}

unsigned region_resolve(struct region_sight *last, const struct ibv_pd *pd,
			const struct ibv_sge *sge, unsigned num_sge, unsigned access,
			struct ibv_sge *to)
{
	unsigned i;

	for (i = 0; i < num_sge; i++) {
		to[i] = sge[i];
		if (!sge[i].length)
			continue;
		if (!sees(last, pd, &sge[i], access))
			break;
		to[i].addr += last->shift;
	}
	return i;
}

bool region_cut(struct region_sight *last, const struct ibv_pd *pd, struct ibv_sge *piece,
		unsigned access)
{
	uint64_t left;

	look_at(last, pd, piece->lkey);
	if (!last->key || (last->access & access) != access || piece->addr < last->iova ||
	    piece->addr - last->iova >= last->length)
		return false;
	left = last->length - (piece->addr - last->iova);
	if (left < piece->length)
		piece->length = (uint32_t)left;
	piece->addr += last->shift;
	return true;
}

/* Whether it grants @access to [@addr, @addr + @len) for @pd; else why not, in *@fault. */
static bool grants(const struct rc_region *region, const struct ibv_pd *pd, uint64_t addr,
		   uint64_t len, unsigned access, enum rc_fault *fault)
{
	const struct region_grant *grant = &region->grant;

	if (atomic_load_explicit(&region->invalidated, memory_order_acquire))
		*fault = RC_FAULT_KEY;
	else if (grant->pd != pd)
		*fault = RC_FAULT_PD;
	else if (addr + len < addr)
		*fault = RC_FAULT_WRAP;
	else if (!has_range(grant->iova, grant->length, addr, len))
		*fault = RC_FAULT_BOUNDS;
	else if ((grant->access & access) != access)
		*fault = RC_FAULT_ACCESS;
	else
		return true;
	return false;
}

struct rc_region *rc_region_get(struct rc_qp *qp, uint32_t key, uint64_t addr, uint64_t len,
				unsigned access, void **mem, enum rc_fault *fault)
{
	struct rc_region *region = region_table_get(&table, key);

	if (!region) {
		*fault = RC_FAULT_KEY;
		return NULL;
	}
	if (!grants(region, to_qp(qp)->qp.pd, addr, len, access, fault)) {
		region_table_put(region);
		return NULL;
	}
	if ((qp->access & access) != access) {
		*fault = RC_FAULT_ACCESS;
		region_table_put(region);
		return NULL;
	}
	*mem = region->grant.mem + (addr - region->grant.iova);
	return region;
}

void rc_region_put(struct rc_region *region)
{
	region_table_put(region);
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
	region = region_table_find(&table, key);
	if (region && region->grant.pd == to_qp(qp)->qp.pd && (region->grant.access & remote)) {
		atomic_store(&region->invalidated, true);
		regions_remove(key);
		error = 0;
	}
	pthread_mutex_unlock(&table.lock);
	return error;
}
