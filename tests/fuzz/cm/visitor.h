/* SPDX-License-Identifier: MIT */
/*
 * The rude end: raw TCP connections to the program's listener, or from the program's ids, over
 * which the input says MPA frames and FPDUs as it likes. What was said is remembered, so that
 * events can be compared with it.
 */
#ifndef FUZZ_CM_VISITOR_H
#define FUZZ_CM_VISITOR_H

#include <netinet/in.h>

#include "../fuzz.h"
#include "stranger.h"

#define VISITORS_MAX 8

struct visitor {
	struct stranger stranger;
	enum mpa_kind kind; /* what it has to say: a request if it came, a reply if it was called */
	uint16_t port;      /* of a request: its own; of a reply: the program's. Network order */
	uint8_t said[MPA_MAX_FRAME], heard[MPA_MAX_FRAME]; /* how each direction began */
	size_t said_len, heard_len;
	bool has_heard_end; /* the program closed, or reset */
	bool is_shown;      /* the program was told of its request */
};

/* ---- all of one input ---- */

/* Listens at @at, where it stores the port. */
void visitors_open(struct sockaddr_storage *at);
/* Nobody connects to the program, and nobody answers it. */
void visitors_close(void);
/* Where they listen, or did; network order. */
uint16_t visitors_port(void);
void visitors_stop_listening(void);
/* The last one of this kind and port; NULL: there is none. */
struct visitor *visitors_find(enum mpa_kind kind, uint16_t port);
/* Those who came and are still there: each has said enough, and was answered or is known. */
bool visitors_are_decided(void);
/* Each has heard the end, or is known. */
bool visitors_are_cut_off(void);

/* ---- one ---- */

/* Connects to @to, and calls @with_socket before that; NULL: there are too many. */
struct visitor *visitor_connect(const struct sockaddr_storage *to, void (*with_socket)(void));
/* Takes a connection of the program's, if there is one within @ms. */
struct visitor *visitor_accept(int ms);
/* The @index-th, counted around; NULL: there is none. */
struct visitor *visitor_choose(unsigned index);

/* The input has the frame's fields, and how it is cut into pieces. */
void visitor_say_frame(struct visitor *visitor, struct input *input);
/* The same for the first messages of a connection. */
void visitor_say_fpdu(struct visitor *visitor, struct input *input);
/* Bytes of the input as they are. */
void visitor_say_bytes(struct visitor *visitor, struct input *input);
/* A byte of the next frame is replaced. */
void visitor_spoil_next(struct input *input);
/* Reads what there is, and checks that it begins with a frame of ours. */
void visitor_hear(struct visitor *visitor);
void visitor_finish(struct visitor *visitor);
void visitor_close(struct visitor *visitor);
void visitor_reset(struct visitor *visitor);

/* It is there, and has said a whole frame, or what cannot become one. */
bool visitor_is_decided(const struct visitor *visitor);
/* What it said begins with a whole frame. */
bool visitor_has_said(const struct visitor *visitor, struct mpa_frame *frame);

#endif
