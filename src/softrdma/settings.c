/* SPDX-License-Identifier: MIT */
/* Reads the environment, once. */
#include "settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/log.h"

#define RECV_TIMEOUT_MS  30000u
#define RECV_TIMEOUT_MAX (1ul << 30)

static struct settings current;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/*
 * The index of the variable's value in @values, which NULL ends. The first value is the default;
 * @list names all for the warning about another value.
 */
static unsigned choose(const char *name, const char *const values[], const char *list)
{
	const char *value = secure_getenv(name);

	if (!value || !*value)
		return 0;
	for (unsigned i = 0; values[i]; i++)
		if (!strcmp(value, values[i]))
			return i;
	log_warn("%s=%s: not one of %s; %s is used", name, value, list, values[0]);
	return 0;
}

static bool is_on(const char *name)
{
	static const char *const values[] = {"0", "1", NULL};

	return choose(name, values, "0, 1") == 1;
}

static unsigned read_recv_timeout(void)
{
	const char *name = "SOFTRDMA_RECV_TIMEOUT", *value = secure_getenv(name);
	unsigned long ms;
	char *end;

	if (!value || !*value)
		return RECV_TIMEOUT_MS;
	errno = 0;
	ms = strtoul(value, &end, 10);
	if (!errno && !*end && *value != '-' && ms && ms < RECV_TIMEOUT_MAX)
		return (unsigned)ms;
	log_warn("%s=%s: not a number of milliseconds from 1 to %lu; %u is used", name, value,
		 RECV_TIMEOUT_MAX - 1, RECV_TIMEOUT_MS);
	return RECV_TIMEOUT_MS;
}

/* Where queue pairs listen for their peers. */
static void read_ports(uint16_t *first, uint16_t *last)
{
	const char *name = "SOFTRDMA_PORTS", *value = secure_getenv(name);
	unsigned from, to;
	char end;

	*first = *last = 0;
	if (!value || !*value)
		return;
	if (sscanf(value, "%5u-%5u%c", &from, &to, &end) == 2 && from >= 1024 && from <= to &&
	    to <= UINT16_MAX) {
		*first = (uint16_t)from;
		*last = (uint16_t)to;
		return;
	}
	log_warn("%s=%s: not a range of ports such as 20000-20099, from 1024 to 65535; any is used",
		 name, value);
}

static void read_environment(void)
{
	static const char *const modes[] = {"auto", "on", "off", NULL};
	static const char *const shm[] = {"on", "off", "ring", NULL};
	static const char *const raw[] = {"best", "xdp", "ring", "socket", NULL};
	static const char *const looks[] = {"iwarp", "roce", NULL};
	static const char *const revisions[] = {"2", "1", NULL};
	int saved = errno;

	current = (struct settings){
		.mode = (enum settings_mode)choose("SOFTRDMA", modes, "auto, on, off"),
		.shm = (enum settings_shm)choose("SOFTRDMA_SHM", shm, "on, off, ring"),
		.raw = (enum settings_raw)choose("SOFTRDMA_RAW", raw, "best, xdp, ring, socket"),
		.look = (enum settings_look)choose("SOFTRDMA_LOOK", looks, "iwarp, roce"),
		.crc = is_on("SOFTRDMA_CRC"),
		.peer_to_peer = is_on("SOFTRDMA_P2P"),
		.revision_1 = choose("SOFTRDMA_MPA", revisions, "1, 2") == 1,
		.strict = is_on("SOFTRDMA_STRICT"),
		.recv_timeout_ms = read_recv_timeout(),
	};
	read_ports(&current.first_port, &current.last_port);
	errno = saved;
}

const struct settings *settings(void)
{
	pthread_once(&once, read_environment);
	return &current;
}
