/* SPDX-License-Identifier: MIT */
/* The same exchanges as verbs_pair's, by a plain TCP program: what the network itself costs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench.h"

#define READ_SIZE (64 << 10) /* of a receiver of small messages */
#define MAX_BATCH 64

static int open_socket(const struct options *options)
{
	int listener, fd;

	if (options->port)
		return tcp_connect(options);
	listener = tcp_listen(options);
	fd = tcp_accept(listener);
	close(listener);
	return fd;
}

/* @flags MSG_DONTWAIT: spin. */
static void read_all(int fd, uint8_t *data, size_t size, int flags)
{
	while (size) {
		ssize_t got = recv(fd, data, size, flags);

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got <= 0)
			die("recv");
		data += got;
		size -= (size_t)got;
	}
}

static void write_all(int fd, const uint8_t *data, size_t size, int flags)
{
	while (size) {
		ssize_t sent = send(fd, data, size, flags | MSG_NOSIGNAL);

		if (sent < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (sent < 0)
			die("send");
		data += sent;
		size -= (size_t)sent;
	}
}

/* ---- ping-pong ---- */

static void ask(int fd, uint8_t *data, const struct options *options, int flags)
{
	unsigned warm_up = options->count / BENCH_WARM_UP;
	struct samples samples;

	samples_init(&samples, options->count);
	for (unsigned i = 0; i < warm_up + options->count; i++) {
		write_all(fd, data, options->size, 0);
		read_all(fd, data, options->size, flags);
		samples_add_lap(&samples, i >= warm_up);
	}
	samples_print(&samples, "");
	samples_fini(&samples);
}

static void answer(int fd, uint8_t *data, const struct options *options, int flags)
{
	for (unsigned i = 0; i < options->count / BENCH_WARM_UP + options->count; i++) {
		read_all(fd, data, options->size, flags);
		write_all(fd, data, options->size, 0);
	}
}

static void ping_pong_spinning(int fd, uint8_t *data, const struct options *options)
{
	(options->port ? ask : answer)(fd, data, options, MSG_DONTWAIT);
}

static void ping_pong_sleeping(int fd, uint8_t *data, const struct options *options)
{
	(options->port ? ask : answer)(fd, data, options, 0);
}

/* ---- streams: the client sends, the server answers with one byte when it has all ---- */

static void send_batches(int fd, uint8_t *data, const struct options *options, unsigned count)
{
	struct iovec iov[MAX_BATCH];

	for (unsigned i = 0; i < options->batch; i++)
		iov[i] = (struct iovec){.iov_base = data, .iov_len = options->size};
	for (; count >= options->batch; count -= options->batch) {
		size_t all = options->batch * options->size, rest;
		ssize_t sent = writev(fd, iov, (int)options->batch);

		if (sent < 0)
			die("writev");
		for (rest = all - (size_t)sent; rest;) {
			size_t piece = rest < options->size ? rest : options->size;

			write_all(fd, data, piece, 0);
			rest -= piece;
		}
	}
	for (; count; count--)
		write_all(fd, data, options->size, 0);
}

static void send_messages(int fd, uint8_t *data, const struct options *options, unsigned count)
{
	int flags = options->spins ? MSG_DONTWAIT : 0;

	if (options->batch > 1)
		send_batches(fd, data, options, count);
	else
		for (; count; count--)
			write_all(fd, data, options->size, flags);
	read_all(fd, data, 1, flags);
}

static void receive_messages(int fd, uint8_t *data, const struct options *options, unsigned count)
{
	size_t chunk = options->size < READ_SIZE ? READ_SIZE : options->size;
	uint64_t left = (uint64_t)count * options->size;
	int flags = options->spins ? MSG_DONTWAIT : 0;

	while (left) {
		ssize_t got = recv(fd, data, left < chunk ? (size_t)left : chunk, flags);

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got <= 0)
			die("recv");
		left -= (uint64_t)got;
	}
	write_all(fd, data, 1, 0);
}

static void stream(int fd, uint8_t *data, const struct options *options)
{
	unsigned warm_up = options->count / BENCH_WARM_UP;
	uint64_t begin;

	if (!options->port) {
		receive_messages(fd, data, options, warm_up);
		receive_messages(fd, data, options, options->count);
		return;
	}
	send_messages(fd, data, options, warm_up);
	begin = now_ns();
	send_messages(fd, data, options, options->count);
	print_rate(options->count, options->size, now_ns() - begin);
}

/* ---- many connections: the client asks over each in its turn, the server answers who asks ---- */

static void ask_in_turn(const int *fds, uint8_t *data, const struct options *options)
{
	unsigned warm_up = options->count / BENCH_WARM_UP;
	struct samples samples;

	samples_init(&samples, options->count);
	for (unsigned i = 0; i < warm_up + options->count; i++) {
		int fd = fds[i % (options->idle + 1)];

		write_all(fd, data, options->size, 0);
		read_all(fd, data, options->size, MSG_DONTWAIT);
		samples_add_lap(&samples, i >= warm_up);
	}
	samples_print(&samples, "");
	samples_fini(&samples);
}

static void answer_who_asks(const int *fds, uint8_t *data, const struct options *options)
{
	unsigned left = options->count / BENCH_WARM_UP + options->count;
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event;

	for (unsigned i = 0; i <= options->idle; i++) {
		event = (struct epoll_event){.events = EPOLLIN, .data.fd = fds[i]};
		if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event))
			die("epoll");
	}
	while (left) {
		int ready = epoll_wait(epoll, &event, 1, 0);

		if (ready < 0)
			die("epoll_wait");
		if (!ready)
			continue;
		read_all(event.data.fd, data, options->size, MSG_DONTWAIT);
		write_all(event.data.fd, data, options->size, 0);
		left--;
	}
	close(epoll);
}

static void test_turns(const struct options *options)
{
	unsigned count = options->idle + 1;
	int *fds = calloc(count, sizeof(*fds)), listener = -1;
	uint8_t *data = calloc(1, options->size);

	if (!fds || !data)
		die("memory");
	allow_descriptors(count);
	if (!options->port)
		listener = tcp_listen(options);
	for (unsigned i = 0; i < count; i++)
		fds[i] = options->port ? tcp_connect(options) : tcp_accept(listener);
	(options->port ? ask_in_turn : answer_who_asks)(fds, data, options);
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
	if (listener >= 0)
		close(listener);
	free(data);
	free(fds);
}

/* ---- */

static void over_socket(const struct options *options,
			void (*exchange)(int fd, uint8_t *data, const struct options *options))
{
	uint8_t *data = calloc(1, options->size < READ_SIZE ? READ_SIZE : options->size);
	int fd;

	if (!data)
		die("memory");
	if (options->batch > MAX_BATCH)
		die("--batch is too large");
	fd = open_socket(options);
	exchange(fd, data, options);
	close(fd);
	free(data);
}

static void test_poll(const struct options *options)
{
	over_socket(options, ping_pong_spinning);
}

static void test_sleep(const struct options *options)
{
	over_socket(options, ping_pong_sleeping);
}

static void test_stream(const struct options *options)
{
	over_socket(options, stream);
}

static const struct test tests[] = {
	{"poll", test_poll},   {"sleep", test_sleep}, {"stream", test_stream},
	{"turns", test_turns}, {NULL, NULL},
};

int main(int argc, char **argv)
{
	return run_test(tests, argc, argv);
}
