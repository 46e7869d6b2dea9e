/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs by number: the contract between the verbs objects (above) and meet/ (below).
 *
 * A program that brings up its queue pairs itself tells the peer a number and a GID, and gets the
 * peer's. The number says where the process listens: TCP port << 8 | index. So peers find each
 * other without a daemon, and the kernel's own choice of ports makes numbers unique on a host.
 *
 * A queue pair in RTR expects its peer; one in RTS dials. They agree by a hello (wire/qp_hello.h),
 * and the socket then carries the connection, or shared memory does, as after the CM's handshake.
 *
 * Locks: all of it is guarded by the CM's lock (PROGRESS_CM), which comes before a queue pair's.
 * Verbs may hold the lock of a queue pair when it calls meet/, which therefore calls verbs only
 * from callbacks.
 */
#ifndef SOFTRDMA_MEET_H
#define SOFTRDMA_MEET_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/mpa.h"

struct shm_link;

/* Numbers below this are not of ports that an ordinary user has. The CM's queue pairs have them. */
#define MEET_FIRST_NUMBER (1024u << 8)

/* ---- what meet/ offers ---- */

/* A number of its own, with a socket that listens. Without a lock. 0 or -errno. */
int meet_take_number(uint32_t *number);
void meet_give_number(uint32_t number);

/* What the program has said of both ends. */
struct meet_terms {
	uint32_t own, peer; /* numbers */
	uint8_t own_gid[16], peer_gid[16];
	unsigned ifindex;      /* of the device, for link-local addresses */
	uint32_t expected_psn; /* the first that the peer sends */
	uint8_t path_mtu;      /* enum ibv_mtu */
	uint16_t ird;          /* reads that the peer may have open */
};

struct meeting;

/* RTR: the peer may come from now on. 0 or -errno. */
int meet_expect(const struct meet_terms *terms, struct meeting **out);
/* RTS: dial, unless they have met. -EPROTO: they have, and the peer expects another PSN. */
int meet_dial(struct meeting *meeting, uint32_t psn);
/* The queue pair expects nobody any more. */
void meet_end(struct meeting *meeting);

/* ---- what verbs offers; without the lock of a queue pair ---- */

/*
 * The two have met: run the queue pair @number over @fd, or over @link if it is not NULL. Takes
 * both over on success. 0 or -errno.
 */
int qp_met(uint32_t number, int fd, struct shm_link *link, const struct mpa_agreed *agreed,
	   bool initiator);

#endif
