/* SPDX-License-Identifier: MIT */
/* The environment: read once, wrong values are named once, and nobody gains by another's rights. */
#include "pair.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* A value that no variable takes, and the warning that must name it. */
static const struct {
	const char *name, *value;
} wrong[] = {
	{"SOFTRDMA_LOG", "loud"},    {"SOFTRDMA", "maybe"},      {"SOFTRDMA_SHM", "sometimes"},
	{"SOFTRDMA_RAW", "pigeons"}, {"SOFTRDMA_CRC", "please"}, {"SOFTRDMA_MPA", "3"},
	{"SOFTRDMA_P2P", "2"},       {"SOFTRDMA_STRICT", "yes"}, {"SOFTRDMA_RECV_TIMEOUT", "-1"},
	{"SOFTRDMA_LOOK", "good"},   {"SOFTRDMA_PORTS", "9-1"},
};

/* The role: uses the device twice, so that a warning that comes each time shows. */
static void run_reader(uint16_t port)
{
	(void)port;
	for (unsigned i = 0; i < 2; i++) {
		struct rdma_event_channel *channel = rdma_create_event_channel();
		int num;

		if (!channel)
			_exit(1);
		rdma_destroy_event_channel(channel);
		ibv_free_device_list(ibv_get_device_list(&num));
	}
}

static const struct peer_role roles[] = {{"reader", run_reader}};

static void set_all_wrong(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++)
		setenv(wrong[i].name, wrong[i].value, 1);
}

/* What a reader with wrong settings says on stderr; @lifted: with more rights than its user. */
static void run_with_wrong_settings(bool lifted, char *said, size_t size)
{
	char *const argv[] = {(char *)(uintptr_t) "peer", (char *)(uintptr_t) "--peer",
			      (char *)(uintptr_t) "reader", (char *)(uintptr_t) "0", NULL};
	size_t len = 0;
	int pipes[2];
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		dup2(pipes[1], STDERR_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		set_all_wrong();
		if (lifted && setresuid(65534, 0, 0))
			_exit(125);
		execv("/proc/self/exe", argv);
		_exit(126);
	}
	close(pipes[1]);
	while (len < size - 1 && fd_is_readable(pipes[0], WAIT_MS) &&
	       (n = read(pipes[0], said + len, size - 1 - len)) > 0)
		len += (size_t)n;
	said[len] = '\0';
	close(pipes[0]);
	assert_int_equal(peer_wait(pid), 0);
}

static unsigned count_lines_with(const char *text, const char *what)
{
	unsigned count = 0;

	for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
		count++;
	return count;
}

static void test_wrong_values_are_named_once_each(void **state)
{
	char said[8192], wanted[128];

	(void)state;
	run_with_wrong_settings(false, said, sizeof(said));
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		snprintf(wanted, sizeof(wanted), "warn: %s=%s: not ", wrong[i].name,
			 wrong[i].value);
		if (count_lines_with(said, wanted) != 1)
			fail_msg("'%s' is not there once: %s", wanted, said);
	}
	assert_int_equal(count_lines_with(said, "\n"), ARRAY_SIZE(wrong));
}

/* As with set-user-ID and file capabilities: whoever starts it must not steer it. */
static void test_a_process_with_more_rights_than_its_user_has_the_defaults(void **state)
{
	char said[8192];

	(void)state;
	if (getuid() != 0) {
		print_message("only root can start such a process\n");
		skip();
	}
	run_with_wrong_settings(true, said, sizeof(said));
	assert_string_equal(said, "");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_values_are_named_once_each),
		cmocka_unit_test(test_a_process_with_more_rights_than_its_user_has_the_defaults),
	};

	peer_main(argc, argv, roles, ARRAY_SIZE(roles));
	return cmocka_run_group_tests_name("soft_settings", tests, NULL, NULL);
}
