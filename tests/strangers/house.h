/* SPDX-License-Identifier: MIT */
/*
 * The house that strangers come to: a listener of the public interface, and a connection between
 * two good sides that goes on whatever strangers do. A program's tests share one house; it checks
 * at the end that nothing is left of its guests.
 */
#ifndef STRANGERS_HOUSE_H
#define STRANGERS_HOUSE_H

#include "pair.h"
#include "stranger.h"

/* For cmocka's groups. */
int house_open(void **state);
/* Without a thread: the good connection moves in house_check alone. There is no end to it. */
void house_open_quietly(void);
/* Every descriptor that came since is gone. */
int house_close(void **state);

uint16_t house_port(void); /* network order */
struct rdma_event_channel *house_channel(void);
/* The good connection is alive and moves now. */
void house_check(void);
/* Another well-behaved client comes, talks and leaves. */
void house_check_newcomer(void);
unsigned count_descriptors(void);
size_t resident_bytes(void);
/*
 * The process has grown by less than @limit since then. Sanitizers keep what is freed, so that
 * there only they judge.
 */
void expect_growth_below(size_t before, size_t limit);

/* ---- one stranger, let in ---- */

#define GUARD  4096u
#define REGION 8192u
#define RECVS  4u
#define ROOM   256u /* of a receive */
#define FRESH  0x5a /* what the memory holds before */

struct scene_options {
	uint8_t revision; /* 0: 1 */
	bool crc;
	bool soft;     /* the stranger says that it is one of us */
	bool enhanced; /* revision 2, with these: */
	bool peer_to_peer;
	uint8_t rtr;
	uint16_t ird, ord;
	/* What the stranger does before it says its request, in which it offers shared memory. */
	void (*offer_shm)(const struct stranger *stranger);
	unsigned access;  /* of the region; 0: all */
	unsigned no_recv; /* post none */
	bool unopened;    /* do not wait for ESTABLISHED */
	struct pair_options side;
};

/* A stranger whose request was accepted, and the side it talks to. */
struct scene {
	struct stranger stranger;
	struct side side;
	struct mpa_frame reply;
	uint8_t reply_bytes[MPA_MAX_FRAME];
	uint8_t *arena; /* a guard, the region, a guard */
	uint8_t *region;
	struct ibv_mr *mr; /* of the region alone; NULL when a test has deregistered it */
	struct tally recvs;
};

void scene_open(struct scene *scene, const struct scene_options *options);
uint64_t scene_to(const struct scene *scene); /* the region's first byte, as a tagged offset */
/* The next receive brings @len bytes, all @value. */
void scene_expect_recv(struct scene *scene, uint32_t len, uint8_t value);
/* The side's connection is over: every receive is flushed, and DISCONNECTED is told once. */
void scene_expect_disconnected(struct scene *scene);
/* The same, and the stranger is told @code. */
void scene_expect_terminate(struct scene *scene, uint16_t code);
/* The stranger may still talk: a Send is received and one of ours arrives. */
void scene_expect_alive(struct scene *scene);
/* Bytes that the socket of the side takes to send. */
int scene_send_queue(const struct scene *scene);
/* The connection's sockets hold little: what the stranger does not read stays with the side. */
void scene_shrink_buffers(struct scene *scene);
bool scene_is_untouched(const struct scene *scene);
/*
 * Everything is taken down; nothing outside the region was written, and the good connection goes
 * on.
 */
void scene_close(struct scene *scene);

/* Say one FPDU; the answer is a Terminate with @code, and the memory is as before. */
void scene_refuse(struct scene *scene, struct fpdu *fpdu, uint16_t code);

#endif
