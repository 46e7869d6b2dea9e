/* SPDX-License-Identifier: MIT */
/*
 * The RC service in shared memory, between two processes of one host.
 *
 * It begins beside the handshake on TCP, which stays as it is. The initiator, connected, listens
 * at an abstract Unix socket that bears the names of both ends of its TCP connection, and says so
 * in its request. A responder that accepts looks there. That it finds the name shows that both are
 * in one network namespace; each then asks the socket who the other is. The responder sends a
 * hello with the memory, and says so in its reply; the initiator answers with a hello of its own,
 * and TCP is closed; or it hangs up, and both go on over TCP.
 */
#ifndef SOFTRDMA_SHM_H
#define SOFTRDMA_SHM_H

#include <stdbool.h>

#include "../rc.h"
#include "../wire/mpa.h"

struct shm_link; /* a meeting that has taken place */

/*
 * Initiator: be found by the peer of the TCP socket @tcp_fd. The Unix socket, to be handed to
 * shm_take or closed; -errno if shared memory is not to be used, with a line in the log.
 */
int shm_offer(int tcp_fd);

/* Responder: look for the initiator. NULL: TCP. Logged. */
struct shm_link *shm_meet(int tcp_fd);

/* Initiator: the reply says that the responder was there. Closes @offer. NULL: TCP. Logged. */
struct shm_link *shm_take(int offer, int tcp_fd);

/* For one that was not attached; may be NULL. */
void shm_link_free(struct shm_link *link);

/*
 * Run @qp over @link. Called with the queue pair's lock held; on success takes over @link and
 * @tcp_fd, which is needed until both ends know that it is not. 0 or -errno.
 */
int shm_attach(struct rc_qp *qp, struct shm_link *link, int tcp_fd, const struct mpa_agreed *agreed,
	       bool initiator);

#endif
