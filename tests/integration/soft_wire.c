/* SPDX-License-Identifier: MIT */
/* A peer made of a plain socket and bytes: what is right is taken, what is wrong ends the
 * connection with the code for it. */
#include "pair.h"

#include <netinet/in.h>
#include <unistd.h>

static const struct pair_options options;

/* RFC 5044 without markers: a Send of "hello", message 1, with its CRC. */
static const uint8_t hello[] = {0x00, 0x17, 0x41, 0x43, 0, 0, 0,    0,    0,    0,   0,
				0,    0,    0,    0,    1, 0, 0,    0,    0,    'h', 'e',
				'l',  'l',  'o',  0,    0, 0, 0xb9, 0x90, 0xb1, 0x0c};

enum { AT_LENGTH = 0, AT_DDP = 2, AT_RDMAP = 3, AT_QN = 8, AT_MSN = 12, AT_MO = 16, AT_CRC = 28 };

struct stranger {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct side side;
	int fd;
};

static void read_exactly(int fd, uint8_t *to, size_t len)
{
	while (len) {
		ssize_t got;

		assert_true(fd_is_readable(fd, WAIT_MS));
		got = recv(fd, to, len, 0);
		assert_true(got > 0);
		to += got;
		len -= (size_t)got;
	}
}

static void write_all(int fd, const void *bytes, size_t len)
{
	assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), len);
}

/* Connected, with three receives of 64 bytes posted. */
static void stranger_open(struct stranger *stranger, bool crc)
{
	uint8_t request[20] = "MPA ID Req Frame\x00\x01\x00", reply[20];
	struct rdma_cm_event *event;
	struct sockaddr_storage at;

	memset(stranger, 0, sizeof(*stranger));
	request[16] = crc ? 0x40 : 0;
	test_address(&at, 0);
	stranger->channel = rdma_create_event_channel();
	stranger->listener = listen_at(stranger->channel, &at, 1);
	test_address(&at, rdma_get_src_port(stranger->listener));
	stranger->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(stranger->fd, (struct sockaddr *)&at, sizeof(struct sockaddr_in)),
			 0);
	write_all(stranger->fd, request, sizeof(request));
	event = cm_take(stranger->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	stranger->side.id = event->id;
	rdma_ack_cm_event(event);
	stranger->side.channel = rdma_create_event_channel();
	assert_int_equal(rdma_migrate_id(stranger->side.id, stranger->side.channel), 0);
	side_equip(&stranger->side, &options);
	for (unsigned i = 0; i < 3; i++)
		side_recv(&stranger->side, i, i * 64, 64);
	assert_int_equal(rdma_accept(stranger->side.id, NULL), 0);
	read_exactly(stranger->fd, reply, sizeof(reply));
	assert_memory_equal(reply, "MPA ID Rep Frame", 16);
	assert_int_equal(reply[16] & 0x40, request[16]);
	assert_int_equal(reply[16] & 0xb0, 0);
	assert_int_equal(reply[17], 1);
	cm_expect(stranger->side.channel, RDMA_CM_EVENT_ESTABLISHED);
}

static void stranger_close(struct stranger *stranger)
{
	close(stranger->fd);
	side_close(&stranger->side);
	rdma_destroy_id(stranger->listener);
	rdma_destroy_event_channel(stranger->channel);
}

/* A Terminate with that layer, type and code, then the end; nothing was delivered. */
static void stranger_expect_terminate(struct stranger *stranger, uint8_t layer_type, uint8_t code)
{
	uint8_t terminate[22], scrap[64];

	read_exactly(stranger->fd, terminate, sizeof(terminate));
	assert_int_equal(terminate[AT_DDP], 0x41);
	assert_int_equal(terminate[AT_RDMAP], 0x47);
	assert_int_equal(terminate[20], layer_type);
	assert_int_equal(terminate[21], code);
	while (fd_is_readable(stranger->fd, WAIT_MS) &&
	       recv(stranger->fd, scrap, sizeof(scrap), 0) > 0)
		continue;
	cm_expect(stranger->side.channel, RDMA_CM_EVENT_DISCONNECTED);
	for (unsigned i = 0; i < 3; i++)
		cq_expect(stranger->side.recv_cq, i, IBV_WC_WR_FLUSH_ERR);
}

static void test_frame_with_right_crc_is_delivered(void **state)
{
	struct stranger stranger;

	(void)state;
	stranger_open(&stranger, true);
	write_all(stranger.fd, hello, sizeof(hello));
	assert_int_equal(cq_expect(stranger.side.recv_cq, 0, IBV_WC_SUCCESS).byte_len, 5);
	assert_memory_equal(stranger.side.buf, "hello", 5);
	stranger_close(&stranger);
}

static void test_frame_with_wrong_crc_ends_the_connection(void **state)
{
	static const uint8_t places[] = {AT_CRC, AT_CRC + 3, 20, 24, 25};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
		uint8_t frame[sizeof(hello)];
		struct stranger stranger;

		memcpy(frame, hello, sizeof(frame));
		frame[places[i]] ^= 1;
		stranger_open(&stranger, true);
		write_all(stranger.fd, frame, sizeof(frame));
		stranger_expect_terminate(&stranger, 0x20, 0x02);
		stranger_close(&stranger);
	}
}

static void test_frames_in_single_bytes_are_delivered(void **state)
{
	uint8_t frames[2 * sizeof(hello)];
	struct stranger stranger;

	(void)state;
	memcpy(frames, hello, sizeof(hello));
	memcpy(frames + sizeof(hello), hello, sizeof(hello));
	frames[sizeof(hello) + AT_MSN + 3] = 2;
	stranger_open(&stranger, false);
	for (unsigned i = 0; i < sizeof(frames); i++) {
		write_all(stranger.fd, frames + i, 1);
		if (i % 8 == 0)
			usleep(200); /* so that they are not read together */
	}
	for (unsigned i = 0; i < 2; i++) {
		cq_expect(stranger.side.recv_cq, i, IBV_WC_SUCCESS);
		assert_memory_equal(stranger.side.buf + i * 64, "hello", 5);
	}
	stranger_close(&stranger);
}

static void test_frame_that_breaks_a_rule_ends_the_connection_with_its_code(void **state)
{
	static const struct {
		uint8_t at, value, layer_type, code;
	} wrongs[] = {
		{AT_DDP, 0x42, 0x12, 0x06},    /* DDP version */
		{AT_RDMAP, 0x83, 0x02, 0x05},  /* RDMAP version */
		{AT_RDMAP, 0x4f, 0x02, 0x06},  /* opcode */
		{AT_QN + 1, 0x05, 0x12, 0x01}, /* queue number */
		{AT_MSN + 3, 2, 0x12, 0x03},   /* message number */
		{AT_MO + 3, 4, 0x12, 0x04},    /* offset */
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(wrongs); i++) {
		uint8_t frame[sizeof(hello)];
		struct stranger stranger;

		memcpy(frame, hello, sizeof(frame));
		frame[wrongs[i].at] = wrongs[i].value;
		stranger_open(&stranger, false);
		write_all(stranger.fd, frame, sizeof(frame));
		stranger_expect_terminate(&stranger, wrongs[i].layer_type, wrongs[i].code);
		stranger_close(&stranger);
	}
}

/* A length that does not even hold the header, for every opcode there is. */
static void test_frame_shorter_than_its_header_ends_the_connection(void **state)
{
	(void)state;
	for (unsigned opcode = 0; opcode < 16; opcode++) {
		uint8_t frame[64] = {0, 3, opcode == 0 || opcode == 2 ? 0xc1 : 0x41};
		struct stranger stranger;

		frame[AT_RDMAP] = (uint8_t)(0x40 | opcode);
		stranger_open(&stranger, false);
		write_all(stranger.fd, frame, sizeof(frame));
		cm_expect(stranger.side.channel, RDMA_CM_EVENT_DISCONNECTED);
		for (unsigned i = 0; i < 3; i++)
			cq_expect(stranger.side.recv_cq, i, IBV_WC_WR_FLUSH_ERR);
		stranger_close(&stranger);
	}
}

static void test_stream_cut_anywhere_flushes_everything_once(void **state)
{
	(void)state;
	for (size_t len = 0; len < sizeof(hello); len++) {
		struct tally tally = {.posted = 3};
		struct stranger stranger;

		stranger_open(&stranger, false);
		write_all(stranger.fd, hello, len);
		shutdown(stranger.fd, SHUT_WR);
		cm_expect(stranger.side.channel, RDMA_CM_EVENT_DISCONNECTED);
		tally_drain(&tally, stranger.side.recv_cq);
		assert_int_equal(tally.flushed, 3);
		stranger_close(&stranger);
	}
}

/* Nobody asked for it. */
static void test_read_response_unasked_for_ends_the_connection(void **state)
{
	static const uint8_t frame[24] = {0, 18, 0xc1, 0x42, 0, 0, 1, 0};
	struct stranger stranger;

	(void)state;
	stranger_open(&stranger, false);
	write_all(stranger.fd, frame, sizeof(frame));
	stranger_expect_terminate(&stranger, 0x02, 0x06);
	stranger_close(&stranger);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frame_with_right_crc_is_delivered),
		cmocka_unit_test(test_frame_with_wrong_crc_ends_the_connection),
		cmocka_unit_test(test_frames_in_single_bytes_are_delivered),
		cmocka_unit_test(test_frame_that_breaks_a_rule_ends_the_connection_with_its_code),
		cmocka_unit_test(test_frame_shorter_than_its_header_ends_the_connection),
		cmocka_unit_test(test_stream_cut_anywhere_flushes_everything_once),
		cmocka_unit_test(test_read_response_unasked_for_ends_the_connection),
	};

	return cmocka_run_group_tests_name("soft_wire", tests, NULL, NULL);
}
