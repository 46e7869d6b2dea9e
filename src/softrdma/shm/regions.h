/* SPDX-License-Identifier: MIT */
/*
 * The process's regions that peers may reach, in a table that peers on this host can read: so they
 * can copy while the process is stopped or busy. It is given to processes of the same user in the
 * same namespaces alone, who could open it in /proc without being given it; and those whom the
 * kernel lets copy could read and write all of the process's memory without any table.
 *
 * A peer says what it is about to copy (struct area_hold), looks at the table again, copies, and
 * takes its word back. Who deregisters removes the entry first and then waits for words about it.
 */
#ifndef SOFTRDMA_SHM_REGIONS_H
#define SOFTRDMA_SHM_REGIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "../../common/list.h"
#include "area.h"

/* What is to be known of a region. */
struct regions_entry {
	_Atomic uint32_t key;  /* 0: nothing here. Written last, cleared first */
	_Atomic uint32_t tags; /* protection domain, may it be written, may it be read */
	_Atomic uint64_t iova;
	_Atomic uint64_t addr;
	_Atomic uint64_t length;
};

/* ---- the owner ---- */

/* The table's descriptor, for peers, who can map it for reading; made when first asked for. -errno.
 */
int regions_fd(void);

/*
 * From verbs, under the lock of its table: a region that peers may reach appears in ours, if there
 * is one; or is in it no more, and whether it was.
 */
void regions_add(uint32_t key, uint32_t domain, unsigned access, uint64_t iova, const void *addr,
		 uint64_t length);
bool regions_remove(uint32_t key);
/* Without that lock: wait for peers that copy from or to the region @key, which was removed. */
void regions_wait(uint32_t key);

/* An end whose peer has the table. */
struct regions_reader {
	struct list link;
	struct area_hold *hold; /* the peer's */
	int fd;                 /* of the connection, which ends if the peer lets us wait */
	const char *name;       /* for the log */
};
void regions_join(struct regions_reader *reader);
void regions_leave(struct regions_reader *reader);

/* ---- a peer ---- */

/* Map the table behind @fd, which comes from a peer. NULL: it is not one. */
const struct regions_entry *regions_map(int fd);
void regions_unmap(const struct regions_entry *table);

/*
 * Where [@addr, @addr + @len) of the region @key is in the owner's memory, if it is of @domain and
 * grants @access; NULL if not, or if the table does not say: then only the owner knows.
 */
const struct regions_entry *regions_find(const struct regions_entry *table, uint32_t key,
					 uint32_t domain, unsigned access, uint64_t addr,
					 uint64_t len, uint64_t *where);

#endif
