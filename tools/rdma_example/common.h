/* SPDX-License-Identifier: MIT */
/* What both programs need and what has nothing to do with RDMA: complaints, numbers, waiting. */
#ifndef RDMA_EXAMPLE_COMMON_H
#define RDMA_EXAMPLE_COMMON_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define DEFAULT_RDMA_PORT 20886
#define DEFAULT_TIMEOUT_S 10
#define MAX_TIMEOUT_S     86400
#define ADDRESS_TEXT      64

/* "FILE : LINE : ERROR : ..." on standard error. */
#define report_error(...) common_report_error(__FILE__, __LINE__, __VA_ARGS__)
void common_report_error(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* What to do where there is no device, or none that serves an address. */
void common_hint_device(void);

/* For main(): a negative errno, as it is; or 128 and the number of the signal that ended us. */
int common_exit_status(int error);

/* From now on SIGINT and SIGTERM end waits with -EINTR. A second one ends the process. */
int common_catch_signals(void);

/*
 * Wait until one of @fds is ready: how many are, 0 when @ms have passed (-1: never), or -EINTR for
 * a signal. The first entry is left to this function.
 */
int common_wait(struct pollfd *fds, nfds_t count, int ms);

uint64_t common_now_ms(void);
/* Milliseconds until @deadline, 0 if it has passed. */
int common_ms_until(uint64_t deadline);

/* As a number, without the port; returns @text. */
const char *common_address_text(const struct sockaddr *address, char text[static ADDRESS_TEXT]);

/* A number up to @most in the way of C, 0x... too; with K, M or G behind it if @units. */
bool common_parse_number(const char *text, bool units, uint64_t most, uint64_t *out);
bool common_parse_port(const char *text, uint16_t *out);
bool common_parse_seconds(const char *text, int *out_ms);

/* The bytes of a peer's text that a terminal may see. */
void common_print_safely(const char *text, size_t len);

#endif
