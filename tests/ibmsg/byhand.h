/* SPDX-License-Identifier: MIT */
/*
 * Peers that speak the protocol by hand, in processes of their own, and the side that they visit.
 */
#ifndef IBMSG_BYHAND_H
#define IBMSG_BYHAND_H

#include "bare.h"
#include "proto.h"
#include "side.h"

/* ---- being a peer ---- */

#define DATA_RECEIVES    16
#define CONTROL_RECEIVES 16

extern struct side visitor;          /* that this process is, if it plays a role */
extern struct proto_private granted; /* by the side that accepted */
extern uint32_t longest_send;        /* that this peer says it takes */
extern uint16_t features;            /* that it says it has */

void put_private(uint8_t out[PROTO_PRIVATE_MAX]);
void say(struct side *side, const struct proto_message *message);
struct proto_message hello_of(const struct side *side);
void say_hello(struct side *side);
void connect_without_hello(struct side *side, uint16_t port);
void connect_properly(struct side *side, uint16_t port);
/* The next message of @type, whatever comes before; false: the connection has ended. */
bool hear(struct side *side, enum proto_type type, struct proto_message *out);
void say_end(struct side *side, uint8_t flags);
void close_properly(struct side *side);

/* ---- the side that is visited ---- */

struct visit {
	struct link link; /* of others, on the same loop */
	struct end *guest;
};

/* Others exchange messages all the while. */
void visit_open(struct visit *visit, void (*established)(struct end *));
void visit_close(struct visit *visit);
/* The visitor's connection was accepted and has ended. */
void visit_await_end(struct visit *visit, const char *role);
/* A whole visit, which ends so, and nothing was received. */
void run_protocol_error(const char *role);

#endif
