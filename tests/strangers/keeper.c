/* SPDX-License-Identifier: MIT */
#include "keeper.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lodger.h"

/* Longer than anything may take that must not wait for the page. */
#define LET_GO_MS (2 * SOON_MS)

/* ---- the keeper's process ---- */

enum command { LISTEN, CONNECT, WAS_TOUCHED };

/* What a keeper says first. */
struct report {
	char why[32]; /* "": it is ready */
	int error;
	uint8_t *pages;
};

/* The page at the end of @pages. */
struct block {
	int uffd; /* -1: there is none */
	uint8_t *page;
	bool touched;
	uint64_t until; /* if it was: when to let go; 0: that has been done */
};

static void say_report(int fd, const char *why, uint8_t *pages)
{
	struct report report = {.error = errno, .pages = pages};

	snprintf(report.why, sizeof(report.why), "%s", why);
	unix_say(fd, &report, sizeof(report), NULL, 0);
	if (*why)
		_exit(0);
}

static int set_block(const struct block *block)
{
	struct uffdio_register missing = {
		.range = {.start = (uintptr_t)block->page, .len = KEEPER_PAGE},
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	return madvise(block->page, KEEPER_PAGE, MADV_DONTNEED) ||
	       ioctl(block->uffd, UFFDIO_REGISTER, &missing);
}

static int make_block(struct block *block)
{
	struct uffdio_api api = {.api = UFFD_API};

	block->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	return block->uffd < 0 || ioctl(block->uffd, UFFDIO_API, &api) || set_block(block);
}

/* Who waits for the page finds zeros. */
static void let_go(struct block *block)
{
	struct uffdio_range range = {.start = (uintptr_t)block->page, .len = KEEPER_PAGE};

	ioctl(block->uffd, UFFDIO_UNREGISTER, &range);
	block->until = 0;
}

static bool take_touched(struct block *block)
{
	bool touched = block->touched;

	if (touched) {
		let_go(block);
		set_block(block);
	}
	block->touched = false;
	return touched;
}

/* A command comes with the descriptor of a TCP connection, or with none. */
static void obey(int fd, struct block *block)
{
	int fds[4] = {-1, -1, -1, -1}, made;
	enum command command;
	bool touched = false;
	unsigned count;

	if (unix_hear(fd, &command, sizeof(command), fds, &count) != sizeof(command))
		_exit(0); /* the test has ended */
	if (command == WAS_TOUCHED) {
		touched = take_touched(block);
		unix_say(fd, &touched, sizeof(touched), NULL, 0);
		return;
	}
	made = command == LISTEN ? unix_listen(fds[0]) : unix_connect(fds[0]);
	unix_say(fd, &touched, sizeof(touched), &made, 1);
	close(made);
	close(fds[0]);
}

static void serve(int fd, struct block *block)
{
	for (;;) {
		struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
				       {.fd = block->touched ? -1 : block->uffd, .events = POLLIN}};
		uint64_t now = now_ms();

		if (block->until && now >= block->until)
			let_go(block);
		poll(fds, ARRAY_SIZE(fds), block->until ? (int)(block->until - now) : -1);
		if (fds[1].revents) {
			block->touched = true;
			block->until = now_ms() + LET_GO_MS;
		}
		if (fds[0].revents)
			obey(fd, block);
	}
}

static void die_with_parent(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
}

/*
 * Only children are in a new pid namespace; they see their parent as 0. Who enters a user namespace
 * may lose the wish to die with its parent, so that comes afterwards.
 */
static void enter(int fd, int namespaces, pid_t parent)
{
	pid_t pid;

	if (namespaces && unshare(namespaces) && unshare(namespaces | CLONE_NEWUSER))
		say_report(fd, "a new namespace", NULL);
	die_with_parent(parent);
	if (!(namespaces & CLONE_NEWPID))
		return;
	pid = fork();
	if (pid < 0)
		say_report(fd, "a process in a new namespace", NULL);
	if (pid) {
		waitpid(pid, NULL, 0);
		_exit(0);
	}
	die_with_parent(0);
}

static void keep(int fd, int namespaces, pid_t parent, bool blocked)
{
	struct block block = {.uffd = -1};
	uint8_t *pages;

	enter(fd, namespaces, parent);
	pages = mmap(NULL, (size_t)2 * KEEPER_PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		say_report(fd, "two pages of memory", NULL);
	memset(pages, KEEPER_VALUE, (size_t)2 * KEEPER_PAGE);
	block.page = pages + KEEPER_PAGE;
	if (blocked && make_block(&block))
		say_report(fd, "userfaultfd", NULL);
	say_report(fd, "", pages);
	serve(fd, &block);
}

/* ---- the test's ---- */

const char *keeper_start(struct keeper *keeper, int namespaces, bool blocked)
{
	static struct report report;
	pid_t parent = getpid();
	unsigned count;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	if (!fork()) {
		close(fds[0]);
		keep(fds[1], namespaces, parent, blocked);
	}
	close(fds[1]);
	assert_int_equal(unix_hear(fds[0], &report, sizeof(report), NULL, &count), sizeof(report));
	keeper->fd = fds[0];
	keeper->plain = (uintptr_t)report.pages;
	keeper->other = keeper->plain + KEEPER_PAGE;
	errno = report.error;
	return *report.why ? report.why : NULL;
}

static int ask_for_socket(const struct keeper *keeper, enum command command, int tcp_fd)
{
	int fds[4] = {-1, -1, -1, -1};
	unsigned count;
	bool unused;

	unix_say(keeper->fd, &command, sizeof(command), &tcp_fd, 1);
	assert_int_equal(unix_hear(keeper->fd, &unused, sizeof(unused), fds, &count),
			 sizeof(unused));
	assert_int_equal(count, 1);
	return fds[0];
}

int keeper_listen(const struct keeper *keeper, int tcp_fd)
{
	return ask_for_socket(keeper, LISTEN, tcp_fd);
}

int keeper_connect(const struct keeper *keeper, int tcp_fd)
{
	return ask_for_socket(keeper, CONNECT, tcp_fd);
}

bool keeper_was_touched(const struct keeper *keeper)
{
	const enum command command = WAS_TOUCHED;
	unsigned count;
	bool touched;

	unix_say(keeper->fd, &command, sizeof(command), NULL, 0);
	assert_int_equal(unix_hear(keeper->fd, &touched, sizeof(touched), NULL, &count),
			 sizeof(touched));
	return touched;
}
