/* SPDX-License-Identifier: MIT */
/* Complaints, signals, numbers. */
#include "program.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int program_fails(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: error: ", program_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return EXIT_FAILURE;
}

int program_fails_by(int error, const char *what)
{
	const char *hint = ibmsg_error_hint(error);

	program_fails("%s", what);
	fprintf(stderr, "%s: %s%s%s\n", program_name, ibmsg_strerror(error), *hint ? "; " : "",
		hint);
	return EXIT_FAILURE;
}

int program_usage_fails(const char *what)
{
	program_fails("%s", what);
	fprintf(stderr, "%s: usage: %s IP [PORT]\n", program_name, program_name);
	return EXIT_FAILURE;
}

const char *program_so_far(char out[PROGRAM_SO_FAR_TEXT], uint64_t done, uint64_t size)
{
	if (size == UINT64_MAX)
		snprintf(out, PROGRAM_SO_FAR_TEXT, "%" PRIu64 " bytes", done);
	else
		snprintf(out, PROGRAM_SO_FAR_TEXT, "%" PRIu64 " of %" PRIu64 " bytes (%d%%)", done,
			 size, size ? (int)((double)done / (double)size * 100) : 100);
	return out;
}

const char *program_peer_reason(char out[PEER_REASON_BYTES], const ibmsg_socket *connection)
{
	size_t len = ibmsg_peer_data(connection, out, PEER_REASON_BYTES - 1);

	out[len < PEER_REASON_BYTES ? len : PEER_REASON_BYTES - 1] = '\0';
	program_make_printable(out, strlen(out));
	return out;
}

void program_make_printable(char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			text[i] = '?';
}

void program_set_log(bool wanted)
{
	if (wanted)
		setenv("IBMSG_LOG", "original", 0);
}

/* ---- signals ---- */

static volatile sig_atomic_t caught;
static ibmsg_event_loop *to_wake;

static void catch_signal(int number)
{
	int saved = errno;

	caught = number;
	ibmsg_wake_event_loop(to_wake);
	errno = saved;
}

void program_catch_signals(ibmsg_event_loop *loop)
{
	/* No SA_RESTART: a read or write that waits is to end. The second signal is deadly. */
	struct sigaction action = {.sa_handler = catch_signal, .sa_flags = (int)SA_RESETHAND};

	to_wake = loop;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	/* A reader of our output that has gone is an error like others. */
	signal(SIGPIPE, SIG_IGN);
}

int program_signal(void)
{
	return caught;
}

uint64_t program_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- numbers ---- */

bool program_parse_number(const char *text, bool units, uint64_t most, uint64_t *out)
{
	static const char letters[] = "KMGT";
	const char *letter;
	unsigned shift = 0;
	uint64_t number;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno)
		return false;
	letter = units && *end ? strchr(letters, *end & ~0x20) : NULL;
	if (letter) {
		shift = 10 * (unsigned)(letter - letters + 1);
		end++;
	}
	if (*end || number > most >> shift)
		return false;
	*out = number << shift;
	return true;
}

bool program_parse_port(const char *text, unsigned short *out)
{
	uint64_t number;

	if (!program_parse_number(text, false, UINT16_MAX, &number) || !number)
		return false;
	*out = (unsigned short)number;
	return true;
}
