/* SPDX-License-Identifier: MIT */
/*
 * A peer in a process of its own: this program anew, as a device's threads do not survive a fork.
 */
#include "pair.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void peer_main(int argc, char **argv, const struct peer_role *roles, size_t count)
{
	if (argc != 4 || strcmp(argv[1], "--peer") != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		if (strcmp(argv[2], roles[i].name) != 0)
			continue;
		roles[i].run((uint16_t)strtoul(argv[3], NULL, 10));
		exit(0);
	}
	fprintf(stderr, "no role is called %s\n", argv[2]);
	exit(2);
}

pid_t peer_start(const char *role, uint16_t port)
{
	char number[8];
	char *const argv[] = {(char *)(uintptr_t) "peer", (char *)(uintptr_t) "--peer",
			      (char *)(uintptr_t)role, number, NULL};
	pid_t pid, parent = getpid();

	snprintf(number, sizeof(number), "%u", port);
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		execv("/proc/self/exe", argv);
	_exit(126);
}

void peer_kill(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int peer_wait(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0), status;

	assert_true(fd >= 0);
	if (!fd_is_readable(fd, WAIT_MS)) {
		peer_kill(pid);
		fail_msg("the peer did not end");
	}
	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
