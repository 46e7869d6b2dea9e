/* SPDX-License-Identifier: MIT */
/*
 * Two namespaces that a veth pair joins, made by the test itself and gone with it: the test lives
 * in the first, "here", and has sockets in the second, "there". And a raw packet queue pair here.
 */
#ifndef TESTS_PACKET_HOUSE_H
#define TESTS_PACKET_HOUSE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <infiniband/verbs.h>

#include "frame.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof(*(a)))
#define WAIT_MS       5000 /* for what must happen */
#define HERE          "here0"
#define THERE         "there0"
#define ADDRESS_HERE  "10.77.0.1"
#define ADDRESS_THERE "10.77.0.2"

/* ---- the place ---- */

/* Exits with 77 where it may not be made. */
void house_build(void);
/* The same, with interfaces of so many queues. */
void house_build_queues(unsigned queues);
/* The namespace "here", for a second process: /proc/PID/fd/N. */
const char *house_path(void);
/* Enter a namespace by such a path. */
void house_enter(const char *path);
/* A socket in the other namespace. */
int there_socket(int family, int type, int protocol);
/* Run a command there, or here. */
void there_run(const char *command);
void here_run(const char *command);
bool back_end_is(const char *name); /* SOFTRDMA_RAW */

/* ---- frames there ---- */

/* A packet socket on the interface there, to send and to receive. */
int there_open(void);
void there_send(int fd, const struct fields *fields);
void there_send_bytes(int fd, const void *frame, size_t len);
/* The next frame of this Ethernet type that arrives there, within WAIT_MS; its length. */
size_t there_receive(int fd, uint16_t ether_type, uint8_t out[FRAME_MAX]);

/* UDP sockets, bound to and connected with the other end. Port 0: any. */
int udp_open(bool there, uint16_t port);
void udp_send(int fd, const char *address, uint16_t port, const char *text);
/* Whether a datagram is there: waits if it must be. */
bool udp_has(int fd, const char *text, bool must);

/* ---- a queue pair here ---- */

#define END_FRAMES 512
#define END_ROOM   9216

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;           /* END_FRAMES of END_ROOM for receives, then as many for sends */
	uint8_t arrived[END_ROOM]; /* a copy of the last that end_wait found */
	uint32_t length;           /* of it */
};

struct ibv_context *open_here(void);
/* In RTS, without rules; @receives are posted. */
void end_open(struct end *end, unsigned receives);
void end_close(struct end *end);
/* A second, small queue pair of it, in RESET. NULL and errno if there is none. */
struct ibv_qp *end_create_qp(struct end *end, struct ibv_cq *cq);
/* Post receive number @id. */
void end_post(struct end *end, unsigned id);
uint8_t *end_send_buffer(const struct end *end, unsigned id);
/* Post a frame from that buffer. */
void end_send(struct end *end, unsigned id, uint32_t len);
struct ibv_wc end_take(struct ibv_cq *cq); /* within WAIT_MS */
/* Wait for the next frame, and post its receive again behind it. */
void end_wait(struct end *end);
/* The next frame is this one, to the byte. */
void end_expect(struct end *end, const struct fields *fields);
bool end_is_empty(struct end *end);

struct ibv_flow *flow_add(struct end *end, struct rule *rule);
/* A rule about one UDP port here. */
struct ibv_flow *flow_add_port(struct end *end, uint16_t port);
void flow_remove(struct ibv_flow *flow);

uint64_t now_ms(void);

#endif
