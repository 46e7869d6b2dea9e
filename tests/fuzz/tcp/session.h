/* SPDX-License-Identifier: MIT */
/*
 * One connection between a rude stranger and an honest end, driven by a program of bytes. The
 * stranger's operations take their arguments from it.
 */
#ifndef FUZZ_TCP_SESSION_H
#define FUZZ_TCP_SESSION_H

#include "../fuzz.h"
#include "ear.h"
#include "honest.h"

struct session {
	struct input input;
	uint8_t options, depths;
	struct honest honest;
	int honest_fd;
	int wait_budget;              /* milliseconds */
	const struct ibv_mr *foreign; /* of another protection domain */

	struct stranger stranger; /* its fd is -1 when it has gone */
	struct ear ear;
	struct fpdu fpdu;             /* the one in the making */
	bool ends_message;            /* that takes a receive */
	uint8_t patch_at, patch_with; /* of the next one */
	uint32_t mo;                  /* of the Send in progress */
	bool write_open;
	uint32_t write_stag;
	uint64_t write_to;
	uint32_t answer_done;
	uint32_t result_msn;
	size_t pending_len; /* bytes that were begun and are not yet said */
	uint8_t pending[sizeof(((struct fpdu *)0)->bytes)];
};

static inline uint8_t session_take(struct session *session)
{
	return take_byte(&session->input);
}

/* The honest end takes what has arrived; what is blocked may stay. */
void session_look(struct session *session);
/* The stranger listens until something comes, but not longer than its budget lasts. */
void session_wait(struct session *session, int ms);
/* An argument that is a number of bytes. */
uint32_t session_size(uint8_t arg);

/* ---- the stranger's operations: rude.c ---- */

void rude_send(struct session *session);
void rude_write(struct session *session);
void rude_read(struct session *session);
void rude_atomic(struct session *session);
void rude_answer(struct session *session);
void rude_immediate(struct session *session);
void rude_acknowledge(struct session *session);
void rude_terminate(struct session *session);
void rude_garbage(struct session *session);
void rude_noise(struct session *session);
void rude_empty(struct session *session);
void rude_patch(struct session *session);
void rude_hear(struct session *session);
void rude_finish(struct session *session);
void rude_reset(struct session *session);

#endif
