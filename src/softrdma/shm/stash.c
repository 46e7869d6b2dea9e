/* SPDX-License-Identifier: MIT */
/*
 * Entries that wait for a receive, taken out of the ring so that what is behind them is not held
 * up.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/log.h"
#include "conn.h"

#define MAX_BYTES (256 << 10)

int stash_add(struct shm_conn *conn, const struct ring_entry *entry, const uint8_t *payload)
{
	struct rx *rx = &conn->rx;
	size_t size = sizeof(struct stashed) + entry->len;
	struct stashed *stashed;

	if (rx->stash_bytes + size > MAX_BYTES)
		return -EAGAIN;
	stashed = malloc(size);
	if (!stashed)
		return -ENOMEM;
	stashed->entry = *entry;
	memcpy(stashed->payload, payload, entry->len);
	list_add_tail(&rx->stash, &stashed->link);
	rx->stash_bytes += size;
	return 0;
}

void stash_drop(struct shm_conn *conn, struct stashed *stashed)
{
	conn->rx.stash_bytes -= sizeof(*stashed) + stashed->entry.len;
	list_del(&stashed->link);
	free(stashed);
}

void stash_starve(struct shm_conn *conn)
{
	struct rx *rx = &conn->rx;

	rx->starved = true;
	rx->starved_since = progress_now();
	if (rx->timed)
		return;
	log_debug("%s: a message waits for a receive", conn->link->name);
	rx->timed = true;
	progress_timer_arm(&conn->recv_timer, rc_recv_timeout());
}

bool stash_is_too_old(struct shm_conn *conn)
{
	struct rx *rx = &conn->rx;
	uint64_t limit = (uint64_t)rc_recv_timeout() * 1000000u, waited;

	rx->timed = false;
	if (!rx->starved)
		return false;
	waited = progress_now() - rx->starved_since;
	if (waited >= limit)
		return true;
	rx->timed = true;
	progress_timer_arm(&conn->recv_timer, (unsigned)((limit - waited) / 1000000u + 1));
	return false;
}
