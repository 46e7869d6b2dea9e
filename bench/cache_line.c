/* SPDX-License-Identifier: MIT */
/* The least that two processes can do: hand one shared cache line to and fro. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

#define PATH_SIZE 64

struct line {
	_Alignas(64) _Atomic uint32_t turn; /* odd: the client has spoken; even: the server */
};

/* ---- sharing it: the server tells the client, once connected, where it is ---- */

static struct line *map_line(int fd)
{
	void *line =
		fd < 0 ? MAP_FAILED
		       : mmap(NULL, sizeof(struct line), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (line == MAP_FAILED)
		die("shared memory");
	close(fd);
	return line;
}

static struct line *offer_line(const struct options *options)
{
	int listener = tcp_listen(options), fd = memfd_create("line", MFD_CLOEXEC), client;
	char path[PATH_SIZE] = "", answer;

	if (fd < 0 || ftruncate(fd, sizeof(struct line)))
		die("memfd_create");
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
	client = tcp_accept(listener);
	if (write(client, path, sizeof(path)) != (ssize_t)sizeof(path) ||
	    read(client, &answer, 1) != 1)
		die("the client");
	close(client);
	close(listener);
	return map_line(fd);
}

static struct line *find_line(const struct options *options)
{
	int server = tcp_connect(options);
	char path[PATH_SIZE];
	struct line *line;

	if (recv(server, path, sizeof(path), MSG_WAITALL) != (ssize_t)sizeof(path) ||
	    path[sizeof(path) - 1])
		die("the server");
	line = map_line(open(path, O_RDWR | O_CLOEXEC));
	if (write(server, "", 1) != 1)
		die("the server");
	close(server);
	return line;
}

/* ---- ping-pong ---- */

static void set_polling(struct line *line, uint32_t turn)
{
	atomic_store_explicit(&line->turn, turn, memory_order_release);
}

static void await_polling(struct line *line, uint32_t turn)
{
	while (atomic_load_explicit(&line->turn, memory_order_acquire) != turn)
		;
}

static void set_sleeping(struct line *line, uint32_t turn)
{
	set_polling(line, turn);
	syscall(SYS_futex, &line->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void await_sleeping(struct line *line, uint32_t turn)
{
	uint32_t seen;

	while ((seen = atomic_load_explicit(&line->turn, memory_order_acquire)) != turn)
		syscall(SYS_futex, &line->turn, FUTEX_WAIT, seen, NULL, NULL, 0);
}

/* Inlined, so that the loop has no call in it. */
static inline __attribute__((always_inline)) void
ping_pong(const struct options *options, void (*set)(struct line *line, uint32_t turn),
	  void (*await)(struct line *line, uint32_t turn))
{
	struct line *line = options->port ? find_line(options) : offer_line(options);
	unsigned warm_up = options->count / BENCH_WARM_UP;
	struct samples samples;

	samples_init(&samples, options->count);
	for (uint32_t i = 0; i < warm_up + options->count; i++) {
		if (options->port) {
			set(line, 2 * i + 1);
			await(line, 2 * i + 2);
			samples_add_lap(&samples, i >= warm_up);
		} else {
			await(line, 2 * i + 1);
			set(line, 2 * i + 2);
		}
	}
	samples_print(&samples, "");
	samples_fini(&samples);
	munmap(line, sizeof(*line));
}

static void test_poll(const struct options *options)
{
	ping_pong(options, set_polling, await_polling);
}

static void test_sleep(const struct options *options)
{
	ping_pong(options, set_sleeping, await_sleeping);
}

static const struct test tests[] = {
	{"poll", test_poll},
	{"sleep", test_sleep},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	return run_test(tests, argc, argv);
}
