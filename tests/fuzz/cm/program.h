/* SPDX-License-Identifier: MIT */
/*
 * The honest end: a program with two event channels, a listener, and ids that connect or were
 * connected to. It keeps a model of what each id may be told, and checks every event against it.
 */
#ifndef FUZZ_CM_PROGRAM_H
#define FUZZ_CM_PROGRAM_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "../fuzz.h"

#define CHANNELS 2
#define ENDS_MAX 12

/* An id of the program's, and what it has been told. */
struct end {
	struct rdma_cm_id *id;  /* NULL: this place is free */
	struct ibv_qp *bare_qp; /* one that the id does not know */
	unsigned channel;
	bool is_listener;
	bool is_requested;  /* a request that was not answered yet */
	bool is_accepted;   /* rdma_accept succeeded */
	bool is_connecting; /* rdma_connect succeeded */
	bool is_deaf;       /* its channel was destroyed */
	bool has_missed;    /* it was deaf once, so an event may be lost */
	bool has_asked;     /* rdma_disconnect succeeded on a connection */
	bool is_established, has_failed, has_ended;
};

struct call {
	const struct sockaddr_storage *to;
	const struct sockaddr_storage *from; /* bound to this first, if not NULL */
	unsigned channel;
	bool sets_tos;
	bool is_bare;  /* the queue pair is not the id's */
	bool no_param; /* the id's queue pair and no parameters */
	bool resolves; /* with @from as the source, instead of binding */
	uint8_t private_len, ird, ord;
};

void program_open(void);
/* Everything ends: ids in this order or the reverse, and then the channels. */
void program_close(bool reverse);

/* Fetch and check what is in the channels. */
void program_serve(void);
/* Fetch one event of the channel and keep it unacknowledged. */
void program_hold_event(unsigned channel);
void program_release_events(void);
/* The ids of this channel hear nothing until they migrate. */
void program_renew_channel(unsigned channel);

/*
 * @at NULL: rdma_listen chooses the address. @has_rival: another id is bound to the same port, and
 * comes too late. Afterwards program_port is where it listens.
 */
void program_listen(const struct sockaddr_storage *at, unsigned channel, int backlog,
		    bool has_rival);
uint16_t program_port(void); /* network order; 0: there is no listener */

/* NULL: there is no place for another id, or it failed. */
struct end *program_call(const struct call *call);
struct end *program_choose(unsigned index);

/* Each may be called in any state; results that the model does not allow are found. */
void end_accept(struct end *end, struct input *input);
void end_reject(struct end *end, struct input *input);
void end_disconnect(struct end *end);
void end_connect_again(struct end *end);
void end_destroy(struct end *end, bool qp_first);
void end_destroy_qp(struct end *end);
void end_migrate(struct end *end, unsigned channel, bool by_way_of_none);
void end_ask(struct end *end); /* calls that change nothing */

/* A connect or an accept has had no outcome yet. */
bool program_is_waiting(void);
/* No connect waits for a reply that was said. */
void program_check_replies(void);
/* Every connect and accept has its outcome, once the peers are gone. */
void program_await_outcomes(void);
/* Every connection ends. */
void program_disconnect(void);
/* An honest connection to @port; @serves: the program's own listener answers it. */
void program_check_listener(const struct sockaddr_storage *at, bool serves);

/* What queue pairs need, made once for each device. */
struct ibv_qp_init_attr program_qp_attr(struct ibv_context *verbs, struct ibv_pd **pd);

#endif
