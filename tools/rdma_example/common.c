/* SPDX-License-Identifier: MIT */
/* Complaints, numbers, waiting. */
#include "common.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* ---- complaints ---- */

void common_report_error(const char *file, int line, const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "%s : %d : ERROR : ", file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

void common_hint_device(void)
{
	const char *mode = getenv("SOFTRDMA");

	if (mode && !strcmp(mode, "off"))
		fputs("HINT : SOFTRDMA=off leaves out the software device: unset it to run without "
		      "an RDMA device.\n",
		      stderr);
	else
		fputs("HINT : without an RDMA device, run this program by 'softrdma'.\n", stderr);
	fputs("HINT : 'rdma link' lists the devices of this machine and their interfaces, whose "
	      "addresses to use; the kernel makes one on an interface: 'rdma link add siw0 type "
	      "siw netdev eth0', or rxe. See docs/no-device.md.\n",
	      stderr);
}

void common_print_safely(const char *text, size_t len)
{
	for (size_t i = 0; i < len && text[i]; i++)
		fputc(text[i] >= ' ' && text[i] < 0x7f ? text[i] : '?', stderr);
}

/* ---- signals and waiting ---- */

static volatile sig_atomic_t caught;
static int signal_fd = -1;

static void catch_signal(int number)
{
	uint64_t one = 1;
	int saved = errno;

	caught = number;
	/* It never fills. */
	if (write(signal_fd, &one, sizeof(one)) < 0)
		errno = saved;
	errno = saved;
}

int common_catch_signals(void)
{
	/* No SA_RESTART: a call that waits is to end. */
	struct sigaction action = {.sa_handler = catch_signal, .sa_flags = (int)SA_RESETHAND};

	signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (signal_fd < 0)
		return -errno;
	if (sigaction(SIGINT, &action, NULL) || sigaction(SIGTERM, &action, NULL))
		return -errno;
	return 0;
}

int common_wait(struct pollfd *fds, nfds_t count, int ms)
{
	uint64_t deadline = common_now_ms() + (uint64_t)(ms > 0 ? ms : 0);
	int ready;

	fds[0] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
	do
		ready = poll(fds, count, ms < 0 ? -1 : common_ms_until(deadline));
	while (ready < 0 && errno == EINTR && !caught);
	if (caught)
		return -EINTR;
	return ready < 0 ? -errno : ready;
}

int common_exit_status(int error)
{
	return caught ? 128 + caught : error;
}

uint64_t common_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int common_ms_until(uint64_t deadline)
{
	uint64_t now = common_now_ms();

	return deadline > now ? (int)(deadline - now) : 0;
}

/* ---- addresses and numbers ---- */

const char *common_address_text(const struct sockaddr *address, char text[static ADDRESS_TEXT])
{
	socklen_t length = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
							  : sizeof(struct sockaddr_in);

	if (getnameinfo(address, length, text, ADDRESS_TEXT, NULL, 0, NI_NUMERICHOST))
		snprintf(text, ADDRESS_TEXT, "?");
	return text;
}

bool common_parse_number(const char *text, bool units, uint64_t most, uint64_t *out)
{
	static const char letters[] = "KMG";
	const char *letter;
	unsigned shift = 0;
	uint64_t number;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	number = strtoull(text, &end, 0);
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

bool common_parse_port(const char *text, uint16_t *out)
{
	uint64_t number;

	if (!common_parse_number(text, false, UINT16_MAX, &number))
		return false;
	*out = (uint16_t)number;
	return true;
}

bool common_parse_seconds(const char *text, int *out_ms)
{
	uint64_t seconds;

	if (!common_parse_number(text, false, MAX_TIMEOUT_S, &seconds))
		return false;
	*out_ms = (int)seconds * 1000;
	return true;
}
