/* SPDX-License-Identifier: MIT */
/* Who is on the same host, and whose queue becomes short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <unistd.h>

#include "tcp/near.h"
#include "tuning.h"

static struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage out = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)&out;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out;

	if (inet_pton(AF_INET, text, &in->sin_addr) == 1)
		out.ss_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1)
		out.ss_family = AF_INET6;
	else
		fail_msg("%s is no address", text);
	return out;
}

static bool are_near(const char *own, const char *peer)
{
	struct sockaddr_storage from = address(own), to = address(peer);

	return near_is((struct sockaddr *)&from, (struct sockaddr *)&to);
}

static void test_one_host(void **state)
{
	(void)state;
	assert_true(are_near("127.0.0.1", "127.0.0.1"));
	assert_true(are_near("127.0.0.1", "127.0.0.2"));
	assert_true(are_near("127.0.0.1", "192.0.2.1"));
	assert_true(are_near("192.0.2.1", "127.0.0.1"));
	assert_true(are_near("192.0.2.1", "192.0.2.1"));
	assert_true(are_near("::1", "::1"));
	assert_true(are_near("2001:db8::1", "2001:db8::1"));
	assert_true(are_near("::ffff:192.0.2.1", "::ffff:192.0.2.1"));
}

static void test_two_hosts(void **state)
{
	const struct sockaddr local = {.sa_family = AF_UNIX};

	(void)state;
	assert_false(are_near("192.0.2.1", "192.0.2.2"));
	assert_false(are_near("128.0.0.1", "128.0.0.2"));
	assert_false(are_near("2001:db8::1", "2001:db8::2"));
	assert_false(are_near("127.0.0.1", "::1"));
	assert_false(near_is(&local, &local));
}

static int queue_of(int fd)
{
	int bytes = 0;
	socklen_t len = sizeof(bytes);

	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len), 0);
	return bytes;
}

/* What a socket gets that asks for as much. */
static int most_allowed(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), bytes = TCP_NEAR_QUEUE_BYTES;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
	bytes = queue_of(fd);
	close(fd);
	return bytes;
}

static void test_queue_of_a_near_peer_is_short(void **state)
{
	struct sockaddr_storage own = address("127.0.0.1");
	socklen_t len = sizeof(struct sockaddr_in);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
	int before;

	(void)state;
	assert_int_equal(bind(listener, (struct sockaddr *)&own, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&own, &len), 0);
	before = queue_of(fd);
	near_shorten_queue(fd);
	assert_int_equal(queue_of(fd), before); /* it has no peer yet */
	assert_int_equal(connect(fd, (struct sockaddr *)&own, len), 0);
	before = queue_of(fd);
	near_shorten_queue(fd);
	if (most_allowed() >= 2 * TCP_NEAR_QUEUE_BYTES)
		assert_int_equal(queue_of(fd), 2 * TCP_NEAR_QUEUE_BYTES);
	else /* a much shorter one would be worse */
		assert_int_equal(queue_of(fd), before);
	close(fd);
	close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_host),
		cmocka_unit_test(test_two_hosts),
		cmocka_unit_test(test_queue_of_a_near_peer_is_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
