/* SPDX-License-Identifier: MIT */
/*
 * What the files of this folder share. ports.c has numbers and listening sockets, visitor.c the
 * hellos that arrive, dial.c those that leave, meeting.c what a queue pair expects and whether a
 * hello fits. Everything is guarded by the CM's lock.
 */
#ifndef SOFTRDMA_MEET_INTERNAL_H
#define SOFTRDMA_MEET_INTERNAL_H

#include <sys/socket.h>

#include "../../common/list.h"
#include "../meet.h"
#include "../progress/progress.h"
#include "../wire/qp_hello.h"

enum meeting_state {
	MEETING_EXPECTS, /* in RTR */
	MEETING_DIALS,   /* TCP is connecting */
	MEETING_ASKS,    /* the hello has been sent */
	MEETING_PAUSES,  /* until the next try */
	MEETING_MET,
};

struct meeting {
	struct list link; /* in its bucket */
	struct meet_terms terms;
	uint8_t own_ip[16], peer_ip[16]; /* where the two are, as GIDs */
	enum meeting_state state;
	bool knows_psn; /* in RTS */
	uint32_t psn;   /* then: the first that this end sends */
	bool peer_told; /* the peer's hello has said what it expects: */
	uint32_t peer_expects;

	/* While it dials: */
	struct progress_source source;
	struct progress_timer timer;
	unsigned tries;
	int shm_offer; /* or -1 */
	struct mpa_frame request;
	uint8_t hello[QP_HELLO_LEN];
	uint8_t frame[MPA_MAX_FRAME];
	size_t frame_len;
};

/* ---- meeting.c ---- */

struct meeting *meeting_find(uint32_t own);
/* May the peer with this @hello, who dialled from @from, meet? */
enum qp_hello_answer meeting_judge(const struct meeting *meeting, const struct qp_hello *hello,
				   const struct sockaddr *from);
/* This end's, for a request or a reply. */
void meeting_say(const struct meeting *meeting, enum qp_hello_answer answer,
		 uint8_t out[QP_HELLO_LEN]);
/* It has met by @hello. */
void meeting_done(struct meeting *meeting, const struct qp_hello *hello);

/* ---- dial.c ---- */

void dial_init(struct meeting *meeting);
void dial_begin(struct meeting *meeting);
/* Hang up, if it is dialling. */
void dial_end(struct meeting *meeting);

/* ---- visitor.c, ports.c ---- */

/* A connected socket, taken over. */
void visitor_new(int fd);
/* In a forked child, whose descriptors of these are closed. */
void visitors_forget(void);
void ports_forget(void);

/* ---- addresses ---- */

/* The socket address of @gid. Returns its length. */
socklen_t gid_to_addr(const uint8_t gid[16], uint16_t port, unsigned ifindex,
		      struct sockaddr_storage *out);
bool gid_is_addr(const uint8_t gid[16], const struct sockaddr *addr);

#endif
