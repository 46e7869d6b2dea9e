/* SPDX-License-Identifier: MIT */
#include "ear.h"

#include <errno.h>
#include <sys/socket.h>

#include "../fuzz.h"
#include "honest.h"
#include "tcp/conn.h"
#include "wire/crc32c.h"

void ear_begin(struct ear *ear, bool soft, bool acks)
{
	memset(ear, 0, sizeof(*ear));
	ear->soft = soft;
	ear->acks = acks;
	ddp_order_init(&ear->order);
}

const struct asked *ear_oldest(const struct ear *ear)
{
	return ear->answered == ear->asked ? NULL : &ear->request[ear->answered % MAX_ASKED];
}

bool ear_note_said(struct ear *ear, bool ends_message)
{
	if (ear->said == MAX_SAID)
		return false;
	ear->said++;
	ear->messages[ear->said] = (uint16_t)(ear->messages[ear->said - 1] + ends_message);
	return true;
}

unsigned ear_acknowledged_messages(const struct ear *ear)
{
	return ear->wild ? 0 : ear->messages[ear->acknowledged];
}

static void note_request(struct ear *ear, const struct ddp_header *header)
{
	CHECK(ear->asked - ear->answered < MAX_ASKED);
	ear->request[ear->asked++ % MAX_ASKED] = (struct asked){
		.atomic = header->opcode == RDMAP_ATOMIC_REQUEST,
		.id = header->msn,
		.read = header->read,
	};
}

/* They never go back, and never beyond what was said. */
static void check_acknowledgement(struct ear *ear, uint64_t position)
{
	CHECK(position >= ear->acknowledged);
	CHECK(ear->wild || position <= ear->said);
	ear->acknowledged = position;
}

static bool is_acknowledgement(const struct ear *ear, const struct ddp_header *header)
{
	return ear->acks && header->opcode == RDMAP_WRITE && header->stag == STAG_ACKNOWLEDGE;
}

/* A Send that invalidates nothing tells it on the way. */
static bool acknowledges_by_send(const struct ear *ear, const struct ddp_header *header)
{
	return ear->acks && (header->opcode == RDMAP_SEND || header->opcode == RDMAP_SEND_SE);
}

static bool is_answer(const struct ddp_header *header)
{
	return header->opcode == RDMAP_READ_RESPONSE || header->opcode == RDMAP_ATOMIC_RESPONSE;
}

/* A run that is too long for chance. */
static bool has_secret(const uint8_t *payload, size_t len)
{
	uint8_t secret[32];

	memset(secret, SECRET_BYTE, sizeof(secret));
	return memmem(payload, len, secret, sizeof(secret)) != NULL;
}

static void check_payload(const struct ear *ear, const struct ddp_header *header,
			  const uint8_t *payload)
{
	bool is_read = header->opcode == RDMAP_READ_RESPONSE;

	if (is_read && !ear->wild)
		CHECK(!has_secret(payload, header->payload_len));
	if (header->opcode == RDMAP_TERMINATE ||
	    (is_read && (ear->wild || header->stag != SINK_READONLY)))
		return;
	CHECK(is_only(payload, header->payload_len, is_read ? READONLY_BYTE : SOURCE_BYTE));
}

static void take_fpdu(struct ear *ear, const uint8_t *ulpdu, size_t len)
{
	struct ddp_header header;
	uint16_t why;

	CHECK(!ear->terminated);
	CHECK(!ddp_parse(ulpdu, len, len, ear->soft, &header, &why));
	ear->heard++;
	if (is_acknowledgement(ear, &header)) {
		check_acknowledgement(ear, header.to);
		return;
	}
	CHECK(!ddp_order_check(&ear->order, &header, &why));
	if (acknowledges_by_send(ear, &header))
		check_acknowledgement(ear, header.ulp_word);
	check_payload(ear, &header, ulpdu + header.header_len);
	if (header.opcode == RDMAP_READ_REQUEST || header.opcode == RDMAP_ATOMIC_REQUEST)
		note_request(ear, &header);
	ear->owed -= is_answer(&header) && header.last;
	ear->terminated = header.opcode == RDMAP_TERMINATE;
}

static void take_fpdus(struct ear *ear, bool crc)
{
	size_t at = 0;

	while (ear->len - at >= FPDU_LENGTH_LEN) {
		const uint8_t *fpdu = ear->bytes + at;
		size_t ulpdu = get_be16(fpdu), len = fpdu_len(ulpdu);

		if (ear->len - at < len)
			break;
		CHECK(fpdu_get_crc(fpdu + len - FPDU_CRC_LEN) ==
		      (crc ? crc32c(0, fpdu, len - FPDU_CRC_LEN) : 0));
		take_fpdu(ear, fpdu + FPDU_LENGTH_LEN, ulpdu);
		at += len;
	}
	ear->len -= at;
	memmove(ear->bytes, ear->bytes + at, ear->len);
}

bool ear_hear(struct ear *ear, const struct stranger *stranger)
{
	bool any = false;
	ssize_t got;

	if (stranger->fd < 0)
		return false;
	while ((got = recv(stranger->fd, ear->bytes + ear->len, sizeof(ear->bytes) - ear->len,
			   MSG_DONTWAIT)) > 0) {
		ear->len += (size_t)got;
		take_fpdus(ear, stranger->crc);
		any = true;
	}
	ear->ended |= !got || (errno != EAGAIN && errno != EINTR);
	return any;
}
