/* SPDX-License-Identifier: MIT */
/*
 * The hello by which two queue pairs meet by number. It is the private data of an MPA request, and
 * of the reply to it. Bytes in, bytes out: no descriptor, no clock, no allocation.
 */
#ifndef SOFTRDMA_WIRE_QP_HELLO_H
#define SOFTRDMA_WIRE_QP_HELLO_H

#include <stddef.h>
#include <stdint.h>

#define QP_HELLO_LEN 40

enum qp_hello_answer {
	MEET_WELCOME,   /* also in a request */
	MEET_NOT_YET,   /* the queue pair expects nobody so far: ask again later */
	MEET_CROSSING,  /* my own hello is on its way to you */
	MEET_UNFITTING, /* the queue pair expects somebody else, or has met already */
	MEET_ANSWERS,
};

struct qp_hello {
	uint8_t answer;    /* enum qp_hello_answer */
	uint8_t path_mtu;  /* enum ibv_mtu */
	uint32_t from;     /* number of the queue pair that says this */
	uint32_t to;       /* and of the one that is meant */
	uint32_t psn;      /* the first that it sends; in a reply, unless welcome: 0 */
	uint32_t expected; /* the first that it expects to receive */
	uint8_t gid[16];   /* its own */
};

void qp_hello_build(const struct qp_hello *hello, uint8_t out[QP_HELLO_LEN]);
/* 0; -EPROTO: it is no hello, or a field is out of range. */
int qp_hello_parse(const uint8_t *bytes, size_t len, struct qp_hello *out);

#endif
