/* SPDX-License-Identifier: MIT */
/*
 * Two connected contexts, for tests of the public interface of libiwarp on any device. Connecting
 * and accepting block, so the server's part runs in a thread meanwhile; afterwards both ends are
 * the test's own. Everything the application owns is full of 0xff bytes before the library gets it.
 */
#ifndef IWARP_LINK_H
#define IWARP_LINK_H

#include <pthread.h>

/* Time, addresses, and peers in processes of their own. */
#include "pair.h"

#include <iwarp.h>

#define LOCAL  IBV_ACCESS_LOCAL_WRITE
#define READ   (LOCAL | IBV_ACCESS_REMOTE_READ)
#define WRITE  (LOCAL | IBV_ACCESS_REMOTE_WRITE)
#define BOTH   (READ | IBV_ACCESS_REMOTE_WRITE)
#define SIGNAL IBV_SEND_SIGNALED

/* A call that must succeed, and one that must fail with that errno. */
#define must(call)                                                                                 \
	do {                                                                                       \
		if (call)                                                                          \
			fail_msg("%s: %s", #call, iw_error_text());                                \
	} while (0)
#define must_fail(call, number)                                                                    \
	do {                                                                                       \
		assert_int_equal((call), -1);                                                      \
		if (errno != (number))                                                             \
			fail_msg("%s: %s (%d), expected %s", #call, iw_error_text(), errno,        \
				 strerror(number));                                                \
		assert_true(*iw_error_text());                                                     \
	} while (0)

/* The address that IBMSG_ADDR names. */
const char *link_address(void);
/* "rxe", "siw", or "" on the software device. */
const char *link_device(void);

struct link {
	struct iw_ctx_conn listener, client, server;
	int port;
	/* What is done before connect and before accept; returns as a call of the library does. */
	int (*before_connect)(struct link *link);
	int (*before_accept)(struct link *link);
	int capacity; /* 0: the default */
};

/* A listener at an unused port. */
void listener_open(struct iw_ctx_conn *listener, int *port);
/* For links that need no settings. */
void link_open(struct link *link);
/* The same with what @link says. */
void link_open_as(struct link *link);
/* A further client, @client and @server, of a listener. */
void link_join(struct iw_ctx_conn *listener, int port, struct iw_ctx_conn *client,
	       struct iw_ctx_conn *server);
/* The client disconnects, the server waits for it. */
void link_close(struct link *link);

/* Accept one client in a thread; returns when that has ended. */
struct accepting {
	struct iw_ctx_conn *listener, *server;
	int (*before)(struct link *link);
	struct link *link;
	const void *data; /* private */
	size_t len;
	bool rejects;
	pthread_t thread;
	char text[256]; /* "" or why it failed */
};
void accept_begin(struct accepting *accepting);
void accept_end(struct accepting *accepting);

/* Await @count completions, all well; returns the last. */
struct ibv_wc link_await(struct iw_ctx_conn *ctx, enum iw_cq_type type, int count);
/* An empty message that arrives: so has all before it. */
void link_ping(struct iw_ctx_conn *from, struct iw_ctx_conn *to);
/* A buffer of @from's that @to knows of: its advertisement goes all the way. */
void link_offer(struct iw_ctx_conn *from, struct iw_ctx_conn *to, size_t bytes, int access,
		struct iw_lmr *lmr, struct iw_rmr *rmr);

#endif
