/* SPDX-License-Identifier: MIT */
/*
 * Hubs and ends, for tests of the public interface of ibmsg on any device. A hub is an event loop
 * whose callbacks write down what they see, an end is a socket of it. Everything the application
 * owns is full of 0xff bytes before the library gets it. Waits are bounded; what the contract
 * promises for every message and every connection is checked in the callbacks. Not for threads of a
 * test: all of it belongs to the thread that runs the test.
 */
#ifndef IBMSG_SIDE_H
#define IBMSG_SIDE_H

/* Time, addresses, and peers in processes of their own. */
#include "pair.h"

#include <ibmsg.h>

/* ---- memory ---- */

uint64_t checksum(const void *at, size_t len);
/* The same bytes for the same @seed. */
void fill_random(void *to, size_t len, uint64_t seed);

/* ---- what was seen ---- */

/* A message that was posted. */
struct parcel {
	ibmsg_buffer msg; /* first: callbacks give it back */
	struct end *end;
	size_t size;
	uint64_t sum;
	unsigned posted, done; /* times */
	enum ibmsg_buffer_status status;
	int error;
	bool is_freed;
};

/* A message that arrived. */
struct letter {
	size_t size;
	uint64_t sum;
	ibmsg_buffer *msg; /* while it is kept */
	ibmsg_buffer copy; /* that moves about with this struct, while it is kept so */
	bool is_copied;
};

struct end {
	ibmsg_socket socket; /* first: callbacks give it back */
	struct hub *hub;
	bool is_server;
	unsigned established, closed; /* times */
	int error;                    /* that connection_closed said */
	struct parcel **parcels;      /* in order */
	unsigned posted;              /* parcels */
	unsigned sent, failed;        /* completions */
	struct letter *letters;       /* in order */
	unsigned received;
	struct end *next;
};

/* What a test does in a callback, after the hub has written it down. */
struct hub_hooks {
	void (*request)(struct hub *hub, ibmsg_connection_request *request); /* not accepting it */
	void (*established)(struct end *end);
	void (*received)(struct end *end, ibmsg_buffer *msg); /* instead of freeing it */
	void (*sent)(struct end *end, struct parcel *parcel); /* likewise */
	void (*closed)(struct end *end, int error);
};

enum hub_keep { KEEP_NOTHING, KEEP_POINTERS, KEEP_COPIES };

struct hub {
	ibmsg_event_loop loop;
	ibmsg_socket listener;
	uint16_t port;        /* of the listener, in host order */
	struct end *ends;     /* newest first */
	struct end *accepted; /* the last one */
	unsigned requests;
	struct hub_hooks on;
	enum hub_keep keep; /* of messages that arrive */
	bool keeps_parcels; /* they are not freed when they have been sent */
	bool sleeps;        /* is not dispatched */
	struct hub *next;
};

/* ---- hubs ---- */

/* The address that IBMSG_ADDR names. */
char *hub_address(void);
/* "rxe", "siw", or "" on the software device. */
const char *hub_device(void);

struct hub *hub_new(void);
/* With a listener at an unused port. */
struct hub *hub_new_listening(void);
void hub_listen(struct hub *hub);
/*
 * Destroys the loop, and checks that every message of it has completed once. What is kept is still
 * there afterwards, until hub_free.
 */
void hub_destroy(struct hub *hub);
/* The loop too, if it still exists. */
void hub_free(struct hub *hub);
int hub_dispatch(struct hub *hub, int ms);
unsigned hub_closed(const struct hub *hub);      /* of its ends */
unsigned hub_established(const struct hub *hub); /* likewise */
unsigned hub_received(const struct hub *hub);    /* messages of all ends */
/* A port, in host order, at which nobody listens. */
uint16_t hub_unused_port(void);
uint16_t port_of(const struct sockaddr_storage *addr);

/* Dispatch all hubs in turn, once. */
void hubs_step(void);
/* For a moment: for what must not happen. */
void hubs_linger(void);
/* Setup of each test: what a failed one has left is not dispatched. */
int hubs_forget(void **state);
#define hub_test(function) cmocka_unit_test_setup(function, hubs_forget)

/* Dispatch all hubs until @condition holds. */
#define await(condition) await_for(WAIT_MS, condition)
#define await_for(ms, condition)                                                                   \
	do {                                                                                       \
		uint64_t limit_ = now_ms() + (ms);                                                 \
		while (!(condition)) {                                                             \
			if (now_ms() > limit_)                                                     \
				fail_msg("%s:%d: in vain: %s", __FILE__, __LINE__, #condition);    \
			hubs_step();                                                               \
		}                                                                                  \
	} while (0)

/* The exit status of a peer in a process of its own; hubs are dispatched until it has ended. */
int hubs_await_peer(pid_t pid);

/* ---- ends ---- */

struct end *end_new(struct hub *hub);
struct end *end_connect(struct hub *hub, uint16_t port);
/* In the request hook. */
struct end *end_accept(struct hub *hub, ibmsg_connection_request *request);
/* The same for a request whose sender may be gone by now: a device may notice it there. */
void end_try_accept(struct hub *hub, ibmsg_connection_request *request);
/* A message with contents of its own, not posted yet. */
struct parcel *end_alloc(struct end *end, size_t size);
/* Post it, and the library must take it. */
void end_post_parcel(struct end *end, struct parcel *parcel);
struct parcel *end_post(struct end *end, size_t size);
/* Free what is kept of what arrived. */
void end_free_letters(struct end *end);
/* All that @from posted, and nothing else, has come to @to, in order. */
void end_assert_delivered(const struct end *from, const struct end *to);
bool end_has_delivered(const struct end *from, const struct end *to);
/* Send something and wait until it has come. */
void end_ping(struct end *from, struct end *to);

/* ---- a connection ---- */

struct link {
	struct hub *client_hub, *server_hub;
	struct end *client, *server;
};

enum link_loops { ONE_LOOP, TWO_LOOPS };

void link_open(struct link *link, enum link_loops loops);
/* A client in @hub of a listener in the same or another. */
void link_join(struct link *link, struct hub *client_hub, struct hub *server_hub);
/* Both have heard that it was closed and that all arrived. */
void link_await_closed(struct link *link);
/* Disconnect, await, free the hubs. */
void link_close(struct link *link);

#endif
