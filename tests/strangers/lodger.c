/* SPDX-License-Identifier: MIT */
#include "lodger.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

/* Of the lodger that comes. */
static int (*listen_for_side)(int tcp_fd);
static int offer = -1;

/* ---- sockets ---- */

static void name_end(int fd, int (*get)(int fd, struct sockaddr *addr, socklen_t *len), char *out,
		     size_t size)
{
	struct sockaddr_in addr;
	socklen_t len = sizeof(addr);
	char host[INET_ADDRSTRLEN];

	assert_int_equal(get(fd, (struct sockaddr *)&addr, &len), 0);
	assert_non_null(inet_ntop(AF_INET, &addr.sin_addr, host, sizeof(host)));
	snprintf(out, size, "%s:%u", host, ntohs(addr.sin_port));
}

static socklen_t make_name(int tcp_fd, bool initiator, struct sockaddr_un *name)
{
	char own[64], peer[64];
	int len;

	name_end(tcp_fd, getsockname, own, sizeof(own));
	name_end(tcp_fd, getpeername, peer, sizeof(peer));
	*name = (struct sockaddr_un){.sun_family = AF_UNIX};
	len = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "softrdma/%s-%s",
		       initiator ? own : peer, initiator ? peer : own);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

int unix_listen(int tcp_fd)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un name;
	socklen_t len = make_name(tcp_fd, true, &name);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&name, len), 0);
	assert_int_equal(listen(fd, 8), 0);
	return fd;
}

int unix_connect(int tcp_fd)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un name;
	socklen_t len = make_name(tcp_fd, false, &name);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&name, len), 0);
	return fd;
}

union fd_message {
	struct cmsghdr header;
	char room[CMSG_SPACE(4 * sizeof(int))];
};

ssize_t unix_hear(int fd, void *bytes, size_t len, int *fds, unsigned *num_fds)
{
	struct iovec iov = {.iov_base = bytes, .iov_len = len};
	union fd_message control;
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *header;
	ssize_t got;

	assert_true(fd_is_readable(fd, WAIT_MS));
	got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	header = CMSG_FIRSTHDR(&message);
	*num_fds = 0;
	if (header) {
		*num_fds = (unsigned)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(header), *num_fds * sizeof(int));
	}
	return got;
}

bool unix_try(int fd, const void *bytes, size_t len, const int *fds, unsigned num_fds)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
	union fd_message control = {.header = {.cmsg_level = SOL_SOCKET,
					       .cmsg_type = SCM_RIGHTS,
					       .cmsg_len = CMSG_LEN(num_fds * sizeof(int))}};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (num_fds) {
		memcpy(CMSG_DATA(&control.header), fds, num_fds * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len;
}

void unix_say(int fd, const void *bytes, size_t len, const int *fds, unsigned num_fds)
{
	assert_true(unix_try(fd, bytes, len, fds, num_fds));
}

/* ---- coming and going ---- */

static void listen_for_the_side(const struct stranger *stranger)
{
	offer = listen_for_side(stranger->fd);
}

void lodger_meet(struct lodger *lodger, const struct scene_options *options)
{
	lodger_meet_at(lodger, options, unix_listen);
}

void lodger_meet_at(struct lodger *lodger, const struct scene_options *options,
		    int (*listen_for)(int tcp_fd))
{
	struct scene_options all = options ? *options : (struct scene_options){0};
	struct hello hello;
	int fds[4] = {-1, -1, -1, -1};
	unsigned count;

	all.soft = all.enhanced = true;
	all.ird = all.ord = 4;
	all.offer_shm = listen_for_the_side;
	listen_for_side = listen_for;
	memset(lodger, 0, sizeof(*lodger));
	scene_open(&lodger->scene, &all);
	assert_true(lodger->scene.reply.shm);
	lodger->fd = accept4(offer, NULL, NULL, SOCK_CLOEXEC);
	assert_true(lodger->fd >= 0);
	close(offer);
	assert_int_equal(unix_hear(lodger->fd, &hello, sizeof(hello), fds, &count), sizeof(hello));
	assert_int_equal(hello_parse(&hello, sizeof(hello), count, true, &hello), 0);
	lodger->area_fd = fds[0];
	lodger->has_table = count > 1;
	if (lodger->has_table)
		close(fds[1]);
	lodger->area =
		mmap(NULL, sizeof(struct area), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	assert_true(lodger->area != MAP_FAILED);
	ring_writer_init(&lodger->out, lodger->area->ring[AREA_INITIATOR],
			 &lodger->area->side[AREA_RESPONDER].consumed);
	ring_reader_init(&lodger->in, lodger->area->ring[AREA_RESPONDER],
			 &lodger->area->side[AREA_INITIATOR].consumed);
	lodger->probe = 0x1122334455667788;
}

void lodger_say_hello(struct lodger *lodger)
{
	struct hello hello;

	hello_make(&hello, false, &lodger->probe);
	unix_say(lodger->fd, &hello, sizeof(hello), NULL, 0);
}

void lodger_open(struct lodger *lodger)
{
	lodger_meet(lodger, NULL);
	lodger_say_hello(lodger);
}

void lodger_close(struct lodger *lodger)
{
	close(lodger->fd);
	scene_close(&lodger->scene);
	munmap(lodger->area, sizeof(*lodger->area));
	close(lodger->area_fd);
}

/* ---- talking ---- */

void lodger_ring(struct lodger *lodger)
{
	const uint8_t byte = 0;

	send(lodger->fd, &byte, sizeof(byte), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void lodger_put_quietly(struct lodger *lodger, struct rc_frame *entry, const void *payload)
{
	uint8_t *at;

	if (ring_is_short(entry->kind, entry->flags, entry->len)) {
		assert_int_equal(ring_put_short(&lodger->out, entry->flags, payload, entry->len),
				 0);
		return;
	}
	assert_int_equal(ring_reserve(&lodger->out, entry, &at), 0);
	if (payload)
		memcpy(at, payload, entry->len);
	ring_commit(&lodger->out, entry);
}

void lodger_put_bytes(struct lodger *lodger, struct rc_frame *entry, const void *payload)
{
	lodger_put_quietly(lodger, entry, payload);
	lodger_ring(lodger);
}

void lodger_put(struct lodger *lodger, struct rc_frame *entry, uint8_t value)
{
	static uint8_t bytes[RING_MAX_PAYLOAD];

	memset(bytes, value, sizeof(bytes));
	lodger_put_bytes(lodger, entry, bytes);
}

struct rc_frame lodger_take(struct lodger *lodger, const uint8_t **payload)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct rc_frame entry;

	while (!ring_peek(&lodger->in, &entry, payload)) {
		assert_true(now_ms() < end);
		poll(NULL, 0, 1);
	}
	ring_pop(&lodger->in);
	ring_publish(&lodger->in);
	atomic_store(&lodger->area->side[AREA_INITIATOR].placed, lodger->in.published);
	lodger_ring(lodger);
	return entry;
}

void lodger_expect_alive(struct lodger *lodger)
{
	struct rc_frame send = {.kind = RC_SEND, .flags = RC_LAST, .len = 24}, got;
	struct side *side = &lodger->scene.side;
	const uint8_t *payload;

	lodger_put(lodger, &send, 0x77);
	scene_expect_recv(&lodger->scene, 24, 0x77);
	memset(side->buf + 32 * KIB, 0x66, 40);
	side_send(side, 99, 32 * KIB, 40);
	got = lodger_take(lodger, &payload);
	assert_int_equal(got.kind, RC_SEND);
	assert_int_equal(got.len, 40);
	assert_true(is_all(payload, 40, 0x66));
	cq_expect(side->send_cq, 99, IBV_WC_SUCCESS);
}

void lodger_expect_terminate(struct lodger *lodger, uint16_t code)
{
	const uint8_t expected[] = {1, (uint8_t)(code >> 8), (uint8_t)code};
	uint8_t byte, heard[3];
	unsigned len = 0;

	/* Bells, the code, the end. */
	while (fd_is_readable(lodger->fd, WAIT_MS) && recv(lodger->fd, &byte, 1, 0) == 1)
		if ((len || byte) && len < sizeof(heard))
			heard[len++] = byte;
	assert_int_equal(len, sizeof(heard));
	assert_memory_equal(heard, expected, sizeof(expected));
	scene_expect_disconnected(&lodger->scene);
}

void lodger_refuse(struct rc_frame *entry, uint16_t code)
{
	struct lodger lodger;

	lodger_open(&lodger);
	lodger_put(&lodger, entry, 0x99);
	lodger_expect_terminate(&lodger, code);
	assert_true(scene_is_untouched(&lodger.scene));
	lodger_close(&lodger);
}
