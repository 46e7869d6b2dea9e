/* SPDX-License-Identifier: MIT */
/*
 * What the programs of this folder share: a context at one end of a veth pair, and a packet socket
 * at the other that sends and sees frames byte by byte; in a network namespace of their own.
 */
#ifndef TESTS_PACKET_SIDE_H
#define TESTS_PACKET_SIDE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hashpipe_ibverbs.h>

#define NEAR "hp0"
#define FAR  "hp1"

#define PATIENCE_MS 5000 /* for what must come */
#define QUIET_MS    60   /* for what must not */

/* ---- the far end ---- */

extern uint8_t near_mac[6], far_mac[6];

/* Once per program. */
int side_open(void **state);
int side_close(void **state);

struct frame {
	uint8_t dst_mac[6], src_mac[6];
	int vlan;            /* the tag; -1: none */
	uint16_t ether_type; /* 0: that of the IP version */
	uint8_t ip_version;  /* 0: bytes and nothing else */
	uint8_t protocol;
	uint8_t src_ip[16], dst_ip[16];
	uint16_t src_port, dst_port;
	uint32_t mark; /* the last bytes, to know it by */
	uint32_t len;  /* of the whole frame */
};

/* UDP from far to near, 10.9.0.2:1111 to 10.9.0.1:2222, of 100 bytes. */
struct frame frame_udp(uint32_t mark);
void frame_set_ip(uint8_t ip[16], const char *text);
/* Its bytes; returns the length. */
uint32_t frame_write(const struct frame *frame, uint8_t *out);

void far_send(const struct frame *frame);
/* So many, marked from @mark on. */
void far_send_udp(uint32_t mark, unsigned count);
/* The next frame that arrives there and was sent by near_mac; 0: none in time. */
uint32_t far_recv(uint8_t *out, uint32_t size, int timeout_ms);

/* ---- the near end ---- */

void near_init(struct hashpipe_ibv_context *context, uint32_t sends, uint32_t receives,
	       uint32_t size, uint32_t flows);
void near_shutdown(struct hashpipe_ibv_context *context);
/* Rule 0 for far_send_udp, and reception begun. */
void near_listen(struct hashpipe_ibv_context *context);

uint8_t *bytes_of(const struct hashpipe_ibv_recv_pkt *pkt);
uint32_t mark_of(const struct hashpipe_ibv_recv_pkt *pkt);
struct hashpipe_ibv_recv_pkt *next_of(const struct hashpipe_ibv_recv_pkt *pkt);
unsigned length_of(const struct hashpipe_ibv_recv_pkt *list);

/* Exactly these marks arrive, in order, and nothing else; they are released. */
void near_expect(struct hashpipe_ibv_context *context, uint32_t mark, unsigned count);
void near_expect_nothing(struct hashpipe_ibv_context *context);
/* One packet; it is the caller's. */
struct hashpipe_ibv_recv_pkt *near_take(struct hashpipe_ibv_context *context);

/* A packet with @len bytes that begin with near to far, and end with @mark. */
void near_fill(struct hashpipe_ibv_send_pkt *pkt, uint32_t len, uint32_t mark);

uint64_t now_ns(clockid_t clock);
unsigned open_descriptors(void);

#define RUN(name, tests) cmocka_run_group_tests_name(name, tests, side_open, side_close)

#endif
