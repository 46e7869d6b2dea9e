/* SPDX-License-Identifier: MIT */
/* Raw packets for programs that have few rights, or none. */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "house.h"

/* Become an ordinary user that keeps these capabilities. */
static bool keep_only(uint32_t capabilities)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
		{.effective = capabilities, .permitted = capabilities}};

	return !prctl(PR_SET_KEEPCAPS, 1) && !setgid(65534) && !setuid(65534) &&
	       !syscall(SYS_capset, &header, data);
}

/* In a process without rights. */
static int try_without_rights(void)
{
	struct end end = {0};
	struct ibv_cq *cq;
	int result;

	if (!keep_only(0))
		return 2;
	end.context = open_here();
	end.pd = ibv_alloc_pd(end.context);
	cq = ibv_create_cq(end.context, 8, NULL, NULL, 0);
	if (!end.pd || !cq)
		return 3;
	result = !end_create_qp(&end, cq) && errno == EPERM ? 0 : 4;
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(end.pd);
	ibv_close_device(end.context);
	return result;
}

/* In a process that may open packet sockets and no more: rules deliver copies. */
static int try_with_few_rights(void)
{
	int kernel = udp_open(false, 5000);
	struct ibv_flow *flows[2];
	struct end end;

	if (!keep_only(1u << CAP_NET_RAW))
		return 2;
	unsetenv("SOFTRDMA_RAW");
	end_open(&end, 8);
	flows[0] = flow_add_port(&end, 5000);
	flows[1] = flow_add_port(&end, 5001);
	if (write(STDOUT_FILENO, "r", 1) != 1)
		return 3;
	end_wait(&end);
	if (!udp_has(kernel, "copied", true))
		return 4;
	flow_remove(flows[0]);
	flow_remove(flows[1]);
	end_close(&end);
	close(kernel);
	return 0;
}

/* Run one of them in a process of its own; what it says on stderr. */
static void run_guest(const char *role, bool sends, char *text, size_t size)
{
	const char *place = house_path();
	int errors[2], ready[2], status;
	ssize_t got = 0, more;
	char what;
	pid_t child;

	assert_int_equal(pipe2(errors, O_CLOEXEC), 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
		dup2(ready[1], STDOUT_FILENO);
		dup2(errors[1], STDERR_FILENO);
		execl("/proc/self/exe", "packet_rights", role, place, (char *)NULL);
		_exit(127);
	}
	close(errors[1]);
	close(ready[1]);
	if (sends && read(ready[0], &what, 1) == 1) {
		int far = udp_open(true, 0);

		udp_send(far, ADDRESS_HERE, 5000, "copied");
		close(far);
	}
	while ((more = read(errors[0], text + got, size - 1 - (size_t)got)) > 0)
		got += more;
	text[got] = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	close(errors[0]);
	close(ready[0]);
	if (status)
		fail_msg("status 0x%x: %s", (unsigned)status, text);
}

static void test_without_rights_there_is_an_error_that_helps(void **state)
{
	char text[2048];

	(void)state;
	run_guest("none", false, text, sizeof(text));
	assert_non_null(strstr(text, "CAP_NET_RAW"));
	assert_non_null(strstr(text, "setcap"));
}

static void test_with_few_rights_there_are_copies_and_a_word_about_it(void **state)
{
	char text[2048];
	const char *said;

	(void)state;
	run_guest("few", true, text, sizeof(text));
	said = strstr(text, "deliver copies");
	assert_non_null(said);
	assert_null(strstr(said + 1, "deliver copies")); /* once */
	assert_non_null(strstr(text, "CAP_NET_ADMIN"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_rights_there_is_an_error_that_helps),
		cmocka_unit_test(test_with_few_rights_there_are_copies_and_a_word_about_it),
	};

	if (argc == 3) {
		house_enter(argv[2]);
		return strcmp(argv[1], "few") ? try_without_rights() : try_with_few_rights();
	}
	house_build();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
