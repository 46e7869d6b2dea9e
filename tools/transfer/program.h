/* SPDX-License-Identifier: MIT */
/* What ibmsg-send and ibmsg-recv have in common as programs: complaints, signals, numbers. */
#ifndef IBMSG_TOOLS_PROGRAM_H
#define IBMSG_TOOLS_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include <ibmsg.h>

#define DEFAULT_PORT      12345
#define GOODBYE_MS        2000 /* after a signal, for the peer to be told */
#define PEER_REASON_BYTES (IBMSG_MAX_USER_DATA + 1)

/* How complaints begin: as those of the original, "ibmsg-rdma-send" and "ibmsg-rdma-recv". */
extern const char program_name[];

/* "NAME: error: ..." on standard error. Returns the exit status. */
int program_fails(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* And a line with the cause, and what to do about it. */
int program_fails_by(int error, const char *what);
/* Of the original: the same for a wrong call. */
int program_usage_fails(const char *what);

/* "12 bytes", "12 of 34 bytes (35%)": how far a transfer came. */
#define PROGRAM_SO_FAR_TEXT 80
const char *program_so_far(char out[PROGRAM_SO_FAR_TEXT], uint64_t done, uint64_t size);
/* What the peer said with its reject; "" if nothing. In connection_closed. */
const char *program_peer_reason(char out[PEER_REASON_BYTES], const ibmsg_socket *connection);
/* A peer's text as it may be shown on a terminal: control characters become '?'. */
void program_make_printable(char *text, size_t len);

/* The LOG lines of the original, if @wanted and the user has not set IBMSG_LOG. */
void program_set_log(bool wanted);

/* From now on SIGINT and SIGTERM wake @loop; program_signal tells which one came, or 0. */
void program_catch_signals(ibmsg_event_loop *loop);
int program_signal(void);

uint64_t program_now_ms(void);

/* A decimal number up to @most, with K, M, G or T behind it if @units. */
bool program_parse_number(const char *text, bool units, uint64_t most, uint64_t *out);
bool program_parse_port(const char *text, unsigned short *out);

#endif
