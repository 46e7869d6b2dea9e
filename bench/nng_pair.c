/* SPDX-License-Identifier: MIT */
/* nng: a pair of sockets, or many that ask and one that answers. */
#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>
#include <nng/supplemental/util/platform.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blocking_pair.h"

#define NAMES       60000
#define NAME_FORMAT "abstract://ibmsg-bench-nng-%u" /* nothing is left behind */

static struct {
	nng_socket *sockets;
	unsigned count;
	bool is_server;
	nng_mtx *lock;
	nng_cv *gone;
	unsigned clients; /* that are connected; guarded by the lock */
} peer;

static void check(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s\n", what, nng_strerror(error));
	exit(1);
}

static void init(const struct options *options)
{
	peer.sockets = calloc(options->idle + 1, sizeof(*peer.sockets));
	if (!peer.sockets)
		die("memory");
	check(nng_mtx_alloc(&peer.lock), "nng_mtx_alloc");
	check(nng_cv_alloc(&peer.gone, peer.lock), "nng_cv_alloc");
}

static void set_up(nng_socket socket, const struct options *options, bool many)
{
	int depth = (int)messenger_depth(options);

	check(nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, 0), NNG_OPT_RECVMAXSZ);
	if (many)
		return; /* who asks has one message at a time */
	check(nng_socket_set_int(socket, NNG_OPT_SENDBUF, depth), NNG_OPT_SENDBUF);
	check(nng_socket_set_int(socket, NNG_OPT_RECVBUF, depth), NNG_OPT_RECVBUF);
}

static void count_client(nng_pipe pipe, nng_pipe_ev event, void *unused)
{
	(void)pipe;
	(void)unused;
	nng_mtx_lock(peer.lock);
	if (event == NNG_PIPE_EV_ADD_POST)
		peer.clients++;
	else
		peer.clients--;
	nng_cv_wake(peer.gone);
	nng_mtx_unlock(peer.lock);
}

void messenger_listen(const struct options *options, bool many)
{
	int port = (int)((unsigned)getpid() % NAMES + 1);
	nng_listener listener;
	nng_socket *socket;
	char url[64];

	init(options);
	peer.is_server = true;
	socket = &peer.sockets[peer.count++];
	check(many ? nng_rep0_open(socket) : nng_pair0_open(socket), "open");
	set_up(*socket, options, many);
	check(nng_pipe_notify(*socket, NNG_PIPE_EV_ADD_POST, count_client, NULL), "notify");
	check(nng_pipe_notify(*socket, NNG_PIPE_EV_REM_POST, count_client, NULL), "notify");
	if (options->local)
		snprintf(url, sizeof(url), NAME_FORMAT, (unsigned)port);
	else
		snprintf(url, sizeof(url), "tcp://%s:0", options->address);
	check(nng_listen(*socket, url, &listener, 0), "nng_listen");
	if (!options->local)
		check(nng_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, &port),
		      NNG_OPT_TCP_BOUND_PORT);
	say_listening_at((unsigned)port);
}

void messenger_connect(const struct options *options, unsigned connection, bool many)
{
	unsigned port = (unsigned)options->port;
	nng_socket *socket;
	char url[64];

	if (!connection)
		init(options);
	socket = &peer.sockets[peer.count++];
	check(many ? nng_req0_open(socket) : nng_pair0_open(socket), "open");
	set_up(*socket, options, many);
	if (options->local)
		snprintf(url, sizeof(url), NAME_FORMAT, port);
	else
		snprintf(url, sizeof(url), "tcp://%s:%u", options->address, port);
	check(nng_dial(*socket, url, NULL, 0), "nng_dial");
}

void messenger_send(unsigned connection, size_t size)
{
	nng_msg *msg;

	check(nng_msg_alloc(&msg, size), "nng_msg_alloc");
	check(nng_sendmsg(peer.sockets[connection], msg, 0), "nng_sendmsg");
}

void messenger_receive(unsigned connection)
{
	nng_msg *msg;

	check(nng_recvmsg(peer.sockets[connection], &msg, 0), "nng_recvmsg");
	nng_msg_free(msg);
}

/* nng_close() forgets what has not left, so the server waits until its clients, served, are gone.
 */
void messenger_close(void)
{
	nng_mtx_lock(peer.lock);
	while (peer.is_server && peer.clients)
		nng_cv_wait(peer.gone);
	nng_mtx_unlock(peer.lock);
	for (unsigned i = 0; i < peer.count; i++)
		nng_close(peer.sockets[i]);
	nng_cv_free(peer.gone);
	nng_mtx_free(peer.lock);
	free(peer.sockets);
}
