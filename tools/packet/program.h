/* SPDX-License-Identifier: MIT */
/* What the packet programs share: arguments, signals, errors, and an open context. */
#ifndef TOOLS_PACKET_PROGRAM_H
#define TOOLS_PACKET_PROGRAM_H

#include <hashpipe_ibverbs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

extern const char program_name[];

#define PROGRAM_FAILED 2 /* the exit status when nothing could be tried */

/* A line on standard error; both return PROGRAM_FAILED. */
int program_fails(const char *format, ...) __attribute__((format(printf, 1, 2)));
int program_usage_fails(const char *what);

/* A whole number; k, M and G behind it mean powers of 1000. */
bool program_parse_count(const char *text, uint64_t *out);
/* Seconds, with a fraction. */
bool program_parse_seconds(const char *text, double *out);

/* SIGINT and SIGTERM end a wait, and are remembered. */
void program_catch_signals(void);
/* 0: none came. */
int program_signal(void);

uint64_t program_now_ns(void);

/*
 * A context with one queue pair, its packets the library's. 0, or PROGRAM_FAILED after a line that
 * says why, and what to do.
 */
int program_open(struct hashpipe_ibv_context *context, const char *ifname, uint32_t sends,
		 uint32_t receives, uint32_t size, uint32_t flows);

/* A rule for copies; where the device cannot copy, one that takes the packets away. */
int program_set_copy_rule(struct hashpipe_ibv_context *context, uint32_t index,
			  struct hashpipe_ibv_rule *rule);

/*
 * The MAC of @ip, one hop away, by ARP; rule number @index is used meanwhile. 0 or -errno,
 * -EHOSTUNREACH if nobody answers for three seconds.
 */
int program_resolve(struct hashpipe_ibv_context *context, uint32_t index, struct in_addr source,
		    struct in_addr ip, uint8_t mac[6]);

#endif
