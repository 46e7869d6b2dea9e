/* SPDX-License-Identifier: MIT */
/*
 * Waking the peer, and being woken. Each end has a word in shared memory that says that it does not
 * look at the ring by itself. Who writes into the ring looks at that word afterwards; whoever is
 * about to sleep sets it, and looks at the ring afterwards. So one of them sees the other, and
 * between two that poll nobody calls the kernel.
 *
 * The bell is a byte through the Unix socket: 0, or 1 and the two of a Terminate's code, which has
 * its turn behind all that is in the ring. Its end is the peer's end.
 */
#include <errno.h>
#include <sys/socket.h>

#include "../../common/uncancel.h"
#include "conn.h"
#include "fence.h"

#define TERMINATE 1
#define TRIES     4

static bool is_passing(int error)
{
	return error == EINTR || error == EAGAIN || error == ENOBUFS || error == ENOMEM;
}

/* 0 or -errno. */
static int say(const struct shm_conn *conn, const void *bytes, size_t len)
{
	UNCANCELLABLE;
	for (int i = 0; i < TRIES; i++) {
		if (send(conn->link->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return 0;
		if (!is_passing(errno))
			break;
	}
	return -errno;
}

/* What the kernel did not take must not be lost. */
static void ring_failed(struct shm_conn *conn, int error)
{
	if (is_passing(error)) {
		atomic_store(&conn->peer->asleep, 1);
		conn->tx.wrote = true;
	} else {
		conn->bell.closed = true;
	}
	progress_again(&conn->rc.source);
}

void bell_ring(struct shm_conn *conn)
{
	const uint8_t byte = 0;
	int error;

	conn->tx.wrote = false;
	full_fence();
	if (!atomic_load_explicit(&conn->peer->asleep, memory_order_relaxed) ||
	    !atomic_exchange(&conn->peer->asleep, 0))
		return;
	error = say(conn, &byte, sizeof(byte));
	/* If it is full of bells it is readable all the same. */
	if (error && error != -EAGAIN)
		ring_failed(conn, -error);
}

void bell_terminate(struct shm_conn *conn, uint16_t code)
{
	const uint8_t bytes[] = {TERMINATE, (uint8_t)(code >> 8), (uint8_t)code};

	say(conn, bytes, sizeof(bytes));
}

static void hear_byte(struct bell *bell, uint8_t byte)
{
	if (bell->terminated || (!bell->len && byte != TERMINATE))
		return;
	bell->code[bell->len++] = byte;
	bell->terminated = bell->len == sizeof(bell->code);
}

void bell_hear(struct shm_conn *conn)
{
	uint8_t bytes[64];
	ssize_t got;

	UNCANCELLABLE;
	got = recv(conn->link->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	for (ssize_t i = 0; i < got; i++)
		hear_byte(&conn->bell, bytes[i]);
	if (!got || (got < 0 && errno != EAGAIN && errno != EINTR))
		conn->bell.closed = true;
}

void bell_publish(struct shm_conn *conn)
{
	uint32_t placed = rc_placed(&conn->rc);

	ring_publish(&conn->rx.ring);
	if (placed != conn->tx.told)
		atomic_store_explicit(&conn->own->placed, placed, memory_order_release);
	conn->tx.told = placed;
}

void bell_publish_room(struct shm_conn *conn, uint32_t cells)
{
	bool wanted = atomic_load_explicit(&conn->peer->wants_room, memory_order_relaxed);

	if (!ring_is_unpublished(&conn->rx.ring, wanted ? 1 : cells))
		return;
	bell_publish(conn);
	full_fence();
	if (atomic_load_explicit(&conn->peer->wants_room, memory_order_relaxed))
		bell_ring(conn);
}

bool shm_has_acks(const struct shm_conn *conn)
{
	const struct rc_tx *tx = &conn->rc.tx;

	return tx->settled != tx->position &&
	       rc_is_news(&conn->rc,
			  atomic_load_explicit(&conn->peer->placed, memory_order_acquire));
}

/* Is there something that no bell will ring for any more? */
static bool has_news(const struct shm_conn *conn)
{
	return !ring_is_empty(&conn->rx.ring) || shm_has_acks(conn) || conn->tx.waits ||
	       shm_is_unfinished(conn) || conn->rc.rx.ack_due ||
	       atomic_load_explicit(&conn->peer->wants_room, memory_order_relaxed);
}

static void fall_asleep(struct shm_conn *conn)
{
	atomic_store(&conn->own->asleep, 1);
	full_fence();
}

void bell_arm(struct shm_conn *conn)
{
	if (progress_is_poller_owned(&conn->rc.source))
		return;
	bell_publish_room(conn, 1);
	fall_asleep(conn);
	if (shm_rx_is_waiting(conn) || shm_has_acks(conn))
		progress_again(&conn->rc.source);
}

/*
 * A thread that is inside the connection just now may leave something behind after this look, and
 * believe that a poller comes back for it. So then somebody has to look again.
 */
bool bell_set_poller_owned(struct progress_source *source, bool poller_owned, bool locked)
{
	struct shm_conn *conn = container_of(source, struct shm_conn, rc.source);
	struct lock *lock = &conn_qp(&conn->rc)->lock;
	bool news;

	if (poller_owned) {
		atomic_store_explicit(&conn->own->asleep, 0, memory_order_relaxed);
		return false;
	}
	fall_asleep(conn);
	if (!locked && !lock_try(lock))
		return true;
	news = has_news(conn);
	if (!locked)
		lock_give(lock);
	return news;
}
