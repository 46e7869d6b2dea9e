/* SPDX-License-Identifier: MIT */
/* Raw TCP, and frames made by the encoders of the wire. */
#include "stranger.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "pair.h"
#include "wire/crc32c.h"

/* ---- the stream ---- */

static void begin(struct stranger *stranger, int fd)
{
	int one = 1;

	assert_true(fd >= 0);
	*stranger = (struct stranger){.fd = fd, .send_msn = 1, .read_msn = 1};
	assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
}

static socklen_t address_len(const struct sockaddr_storage *addr)
{
	return addr->ss_family == AF_INET ? sizeof(struct sockaddr_in)
					  : sizeof(struct sockaddr_in6);
}

void stranger_open(struct stranger *stranger, int family)
{
	begin(stranger, socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

void stranger_reach(struct stranger *stranger, const struct sockaddr_storage *to)
{
	struct pollfd done = {.fd = stranger->fd, .events = POLLOUT};

	if (!connect(stranger->fd, (const struct sockaddr *)to, address_len(to)))
		return;
	/* A signal interrupts the wait, not the connection. */
	assert_int_equal(errno, EINTR);
	while (poll(&done, 1, WAIT_MS) < 0)
		assert_int_equal(errno, EINTR);
	assert_int_equal(done.revents, POLLOUT);
}

void stranger_connect(struct stranger *stranger, uint16_t port)
{
	const struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_storage any_family = {0};

	memcpy(&any_family, &to, sizeof(to));
	stranger_open(stranger, AF_INET);
	stranger_reach(stranger, &any_family);
}

int stranger_listen_at(struct sockaddr_storage *at)
{
	int fd = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*at);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)at, address_len(at)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)at, &len), 0);
	return fd;
}

int stranger_listen(uint16_t *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_storage any_family = {0};
	int fd;

	memcpy(&any_family, &at, sizeof(at));
	fd = stranger_listen_at(&any_family);
	memcpy(&at, &any_family, sizeof(at));
	*port = at.sin_port;
	return fd;
}

void stranger_accept(struct stranger *stranger, int listener)
{
	if (!fd_is_readable(listener, WAIT_MS))
		fail_msg("nobody connected");
	begin(stranger, accept4(listener, NULL, NULL, SOCK_CLOEXEC));
}

/* The port of one end of @fd; @get is getsockname or getpeername. 0: it has none. */
static uint16_t port_of(int fd, int (*get)(int fd, struct sockaddr *addr, socklen_t *len))
{
	struct sockaddr_in at = {0};
	socklen_t len = sizeof(at);

	return !get(fd, (struct sockaddr *)&at, &len) && at.sin_family == AF_INET ? at.sin_port : 0;
}

int stranger_other_end(const struct stranger *stranger)
{
	uint16_t own = port_of(stranger->fd, getsockname);
	uint16_t other = port_of(stranger->fd, getpeername);

	for (int fd = 0; fd < 4096; fd++)
		if (port_of(fd, getpeername) == own && port_of(fd, getsockname) == other)
			return fd;
	fail_msg("nobody has the other end of the stranger's connection");
	return -1;
}

void stranger_close(struct stranger *stranger)
{
	if (stranger->fd >= 0)
		close(stranger->fd);
	stranger->fd = -1;
}

void stranger_reset(struct stranger *stranger)
{
	const struct linger at_once = {.l_onoff = 1};

	assert_int_equal(setsockopt(stranger->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)),
			 0);
	stranger_close(stranger);
}

void stranger_finish(struct stranger *stranger)
{
	assert_int_equal(shutdown(stranger->fd, SHUT_WR), 0);
}

size_t stranger_push(struct stranger *stranger, const void *bytes, size_t len, int ms)
{
	const uint8_t *at = bytes;
	struct pollfd room = {.fd = stranger->fd, .events = POLLOUT};
	size_t done = 0;

	while (done < len && poll(&room, 1, ms) == 1) {
		ssize_t n = send(stranger->fd, at + done, len - done, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN)
			break;
		done += n > 0 ? (size_t)n : 0;
	}
	return done;
}

void stranger_say(struct stranger *stranger, const void *bytes, size_t len)
{
	assert_int_equal(stranger_push(stranger, bytes, len, WAIT_MS), len);
}

/* Bytes, 0 for the end, -1 for a reset; a wait that runs out fails the test. */
static ssize_t hear_some(struct stranger *stranger, void *bytes, size_t len, int ms)
{
	ssize_t n;

	if (!fd_is_readable(stranger->fd, ms))
		fail_msg("the stranger heard nothing, and no end, for %d ms", ms);
	n = recv(stranger->fd, bytes, len, 0);
	if (n < 0 && errno != ECONNRESET && errno != EPIPE)
		fail_msg("the stranger's socket: %s", strerror(errno));
	return n;
}

void stranger_hear(struct stranger *stranger, void *bytes, size_t len)
{
	uint8_t *at = bytes;
	size_t done = 0;

	while (done < len) {
		ssize_t n = hear_some(stranger, at + done, len - done, WAIT_MS);

		if (n <= 0)
			fail_msg("the stream ended (%s) after %zu of %zu bytes",
				 n ? "reset" : "in order", done, len);
		done += (size_t)n;
	}
}

void stranger_expect_end_within(struct stranger *stranger, int ms)
{
	uint8_t byte;

	if (hear_some(stranger, &byte, 1, ms) > 0)
		fail_msg("the stranger heard 0x%02x instead of the end", byte);
}

void stranger_expect_end(struct stranger *stranger)
{
	stranger_expect_end_within(stranger, WAIT_MS);
}

void stranger_expect_end_after_all(struct stranger *stranger)
{
	uint8_t scrap[4096];

	while (hear_some(stranger, scrap, sizeof(scrap), WAIT_MS) > 0)
		continue;
}

void stranger_expect_silence(struct stranger *stranger)
{
	assert_false(fd_is_readable(stranger->fd, QUIET_MS));
}

/* ---- the handshake ---- */

size_t mpa_bytes(const struct mpa_frame *frame, uint8_t bytes[MPA_MAX_FRAME])
{
	ssize_t len = mpa_build(frame, bytes);

	assert_true(len > 0);
	return (size_t)len;
}

void stranger_say_frame(struct stranger *stranger, const struct mpa_frame *frame)
{
	uint8_t bytes[MPA_MAX_FRAME];

	stranger_say(stranger, bytes, mpa_bytes(frame, bytes));
}

void stranger_hear_frame(struct stranger *stranger, enum mpa_kind kind,
			 uint8_t bytes[MPA_MAX_FRAME], struct mpa_frame *frame)
{
	size_t rest;

	stranger_hear(stranger, bytes, MPA_HEADER_LEN);
	rest = get_be16(bytes + 18);
	assert_true(rest <= MPA_MAX_PRIVATE);
	stranger_hear(stranger, bytes + MPA_HEADER_LEN, rest);
	assert_int_equal(mpa_parse(kind, bytes, MPA_HEADER_LEN + rest, frame), 0);
}

/* ---- FPDUs ---- */

static void add_payload(struct fpdu *fpdu, size_t header, size_t payload, uint8_t value)
{
	memset(fpdu->bytes + header, value, payload);
	fpdu->len = header + payload;
}

void fpdu_segment(struct fpdu *fpdu, struct stranger *stranger, enum rdmap_opcode opcode, bool last,
		  uint32_t mo, size_t payload, uint8_t value)
{
	size_t header = ddp_put_send(fpdu->bytes, opcode, last, 0, stranger->send_msn, mo, payload);

	stranger->send_msn += last;
	add_payload(fpdu, header, payload, value);
}

void fpdu_send(struct fpdu *fpdu, struct stranger *stranger, size_t payload, uint8_t value)
{
	fpdu_segment(fpdu, stranger, RDMAP_SEND, true, 0, payload, value);
}

void fpdu_tagged(struct fpdu *fpdu, enum rdmap_opcode opcode, bool last, uint32_t stag, uint64_t to,
		 size_t payload, uint8_t value)
{
	add_payload(fpdu, ddp_put_tagged(fpdu->bytes, opcode, last, stag, to, payload), payload,
		    value);
}

void fpdu_read(struct fpdu *fpdu, struct stranger *stranger, uint32_t stag, uint64_t to,
	       uint32_t size)
{
	struct rdmap_read_request read = {
		.sink_stag = SINK_STAG,
		.sink_to = SINK_TO,
		.size = size,
		.source_stag = stag,
		.source_to = to,
	};

	fpdu->len = ddp_put_read_request(fpdu->bytes, stranger->read_msn++, &read);
}

void fpdu_terminate(struct fpdu *fpdu, uint8_t first, uint8_t second, uint8_t third)
{
	fpdu->len = terminate_build(fpdu->bytes, TERM_RDMAP_LOCAL, NULL, 0, 0);
	fpdu->len = ULPDU(RDMAP_TERMINATE_LEN); /* the padding is ours to add */
	fpdu->bytes[ULPDU(18)] = first;
	fpdu->bytes[ULPDU(19)] = second;
	fpdu->bytes[ULPDU(20)] = third;
}

size_t fpdu_end(struct fpdu *fpdu, const struct stranger *stranger)
{
	size_t pad = fpdu_pad(fpdu->len - FPDU_LENGTH_LEN), len = fpdu->len + pad;

	memset(fpdu->bytes + fpdu->len, 0, pad);
	fpdu_put_crc(fpdu->bytes + len, stranger->crc ? crc32c(0, fpdu->bytes, len) : 0);
	return len + FPDU_CRC_LEN;
}

void stranger_say_fpdu(struct stranger *stranger, struct fpdu *fpdu)
{
	stranger_say(stranger, fpdu->bytes, fpdu_end(fpdu, stranger));
}

void stranger_hear_fpdu(struct stranger *stranger, struct fpdu *fpdu)
{
	size_t ulpdu, rest;
	uint32_t crc;

	stranger_hear(stranger, fpdu->bytes, FPDU_LENGTH_LEN);
	ulpdu = get_be16(fpdu->bytes);
	rest = fpdu_len(ulpdu) - FPDU_LENGTH_LEN;
	stranger_hear(stranger, fpdu->bytes + FPDU_LENGTH_LEN, rest);
	fpdu->len = FPDU_LENGTH_LEN + ulpdu;
	crc = fpdu_get_crc(fpdu->bytes + FPDU_LENGTH_LEN + rest - FPDU_CRC_LEN);
	assert_int_equal(
		crc,
		stranger->crc ? crc32c(0, fpdu->bytes, FPDU_LENGTH_LEN + rest - FPDU_CRC_LEN) : 0);
}

void stranger_expect_send(struct stranger *stranger, size_t len, uint8_t value)
{
	static struct fpdu fpdu;

	stranger_hear_fpdu(stranger, &fpdu);
	assert_int_equal(fpdu.bytes[ULPDU(0)], 0x41);
	assert_int_equal(fpdu.bytes[ULPDU(1)], 0x40 | RDMAP_SEND);
	assert_int_equal(fpdu.len, ULPDU(DDP_UNTAGGED_LEN) + len);
	assert_true(is_all(fpdu.bytes + ULPDU(DDP_UNTAGGED_LEN), len, value));
}

void stranger_expect_terminate(struct stranger *stranger, uint16_t code)
{
	static struct fpdu fpdu;
	uint16_t said;

	stranger_hear_fpdu(stranger, &fpdu);
	assert_true(fpdu.len >= ULPDU(RDMAP_TERMINATE_LEN));
	assert_int_equal(fpdu.bytes[ULPDU(0)], 0x41);
	assert_int_equal(fpdu.bytes[ULPDU(1)], 0x40 | RDMAP_TERMINATE);
	assert_int_equal(get_be32(fpdu.bytes + ULPDU(2)), 0);
	assert_int_equal(get_be32(fpdu.bytes + ULPDU(6)), DDP_QN_TERMINATE);
	assert_int_equal(get_be32(fpdu.bytes + ULPDU(10)), 1);
	assert_int_equal(get_be32(fpdu.bytes + ULPDU(14)), 0);
	said = get_be16(fpdu.bytes + ULPDU(18));
	if (said != code)
		fail_msg("Terminate 0x%04x (%s) instead of 0x%04x (%s)", said, terminate_text(said),
			 code, terminate_text(code));
	stranger_expect_end(stranger);
}
