/* SPDX-License-Identifier: MIT */
/* Single copies, straight between the two processes' memory. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "../../common/uncancel.h"
#include "../tuning.h"
#include "conn.h"
#include "fence.h"

/*
 * A process number may be another's when its owner has died. The socket knows of that at once; a
 * number comes back only when all others have been used meanwhile.
 */
static bool is_peer_there(const struct shm_conn *conn)
{
	uint8_t byte;
	ssize_t got;

	UNCANCELLABLE;
	got = recv(conn->link->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);
	return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static void begin_move(size_t len)
{
	if (len >= PROGRESS_LONG_MOVE_BYTES)
		progress_begin_long();
}

static void end_move(size_t len)
{
	if (len >= PROGRESS_LONG_MOVE_BYTES)
		progress_end_long();
}

/* The word about what is copied is given: is the region still there? Then copy. */
static ssize_t copy_held(struct shm_conn *conn, const struct regions_entry *entry, bool writes,
			 const struct iovec *local, int count)
{
	struct area_hold *hold = &conn->own->hold;
	uint32_t key = atomic_load_explicit(&hold->key, memory_order_relaxed);
	pid_t pid = conn->link->pid;
	ssize_t bytes;

	full_fence();
	if (atomic_load(&entry->key) != key || !is_peer_there(conn))
		return -EAGAIN;
	if (writes)
		bytes = process_vm_writev(pid, local, (unsigned long)count, &hold->remote, 1, 0);
	else
		bytes = process_vm_readv(pid, local, (unsigned long)count, &hold->remote, 1, 0);
	return bytes > 0 ? bytes : -EAGAIN;
}

ssize_t copy_onesided(struct shm_conn *conn, const struct rc_send *send, uint32_t offset)
{
	bool writes = rc_is_write(send->opcode);
	uint32_t domain = atomic_load_explicit(&conn->peer->domain, memory_order_relaxed);
	uint32_t left = send->length - offset;
	struct area_hold *hold = &conn->own->hold;
	const struct regions_entry *entry;
	struct iovec local[RC_MAX_SGE];
	uint64_t where;
	ssize_t result;
	size_t bytes;
	int count;

	if (!conn->link->table || !domain)
		return -EAGAIN;
	entry = regions_find(conn->link->table, send->rkey, domain,
			     writes ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ,
			     send->remote_addr + offset, left, &where);
	if (!entry)
		return -EAGAIN;
	count = rc_sge_slice(send->sge, send->num_sge, offset,
			     left < SHM_COPY_BYTES ? left : SHM_COPY_BYTES, local, RC_MAX_SGE,
			     &bytes);
	hold->remote = (struct iovec){.iov_base = (void *)(uintptr_t)where, .iov_len = bytes};
	atomic_store(&hold->key, send->rkey);
	begin_move(bytes);
	result = copy_held(conn, entry, writes, local, count);
	end_move(bytes);
	atomic_store(&hold->key, 0);
	return result;
}

ssize_t copy_ref(struct shm_conn *conn)
{
	const struct rc_recv *recv = conn->rc.rx.recv;
	struct shm_ref *ref = &conn->rx.ref;
	struct iovec local[RC_MAX_SGE], remote[RC_MAX_SGE];
	uint32_t left = (uint32_t)ref->frame.arg - ref->done;
	size_t most = left < SHM_COPY_BYTES ? left : SHM_COPY_BYTES, here, there;
	int to, from;
	ssize_t bytes;

	to = rc_sge_slice(recv->sge, recv->num_sge, ref->done, most, local, RC_MAX_SGE, &here);
	from = rc_sge_slice(ref->sge, ref->num_sge, ref->done, most, remote, RC_MAX_SGE, &there);
	if (!is_peer_there(conn))
		return -ESRCH;
	begin_move(most);
	bytes = process_vm_readv(conn->link->pid, local, (unsigned long)to, remote,
				 (unsigned long)from, 0);
	end_move(most);
	if (bytes < 0)
		return -errno;
	return bytes ? bytes : -EFAULT;
}
