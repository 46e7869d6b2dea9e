/* SPDX-License-Identifier: MIT */
#include "burst.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../tuning.h"
#include "../wire/crc32c.h"

#define HEADER_ROOM (FPDU_LENGTH_LEN + DDP_MAX_HEADER + 3 + FPDU_CRC_LEN)

_Static_assert(TCP_BURST_BYTES + FPDU_MAX_ULPDU < 2 * TCP_NEAR_QUEUE_BYTES,
	       "one fits a queue that is kept short");

int burst_init(struct tcp_conn *conn)
{
	struct tcp_tx *tx = &conn->tx;

	tx->stage_size = conn->crc ? TCP_STAGE_CRC_BYTES : TCP_STAGE_BYTES;
	tx->stage = malloc(tx->stage_size);
	return tx->stage ? 0 : -ENOMEM;
}

void burst_fini(struct tcp_conn *conn)
{
	free(conn->tx.stage);
}

static void add_iov(struct tcp_tx *tx, void *base, size_t len)
{
	struct iovec *last = tx->iov_end ? &tx->iov[tx->iov_end - 1] : NULL;

	if (!len)
		return;
	tx->left += len;
	if (last && (char *)last->iov_base + last->iov_len == base) {
		last->iov_len += len;
		return;
	}
	tx->iov[tx->iov_end++] = (struct iovec){.iov_base = base, .iov_len = len};
}

static uint8_t *stage(struct tcp_tx *tx, size_t len)
{
	uint8_t *bytes = tx->stage + tx->stage_len;

	tx->stage_len += len;
	add_iov(tx, bytes, len);
	return bytes;
}

bool burst_is_copied(const struct tcp_conn *conn, size_t len)
{
	return conn->crc || len <= TCP_COPY_MAX;
}

bool burst_has_room(const struct tcp_conn *conn, size_t len)
{
	const struct tcp_tx *tx = &conn->tx;

	return tx->left < TCP_BURST_BYTES && tx->iov_end + RC_MAX_SGE + 2 <= TCP_BURST_PIECES &&
	       tx->stage_size - tx->stage_len >=
		       HEADER_ROOM + (burst_is_copied(conn, len) ? len : 0);
}

size_t burst_max_payload(const struct tcp_conn *conn, size_t header_len)
{
	size_t most = conn->max_ulpdu - header_len;

	if (conn->crc && most > TCP_STAGE_CRC_BYTES - HEADER_ROOM)
		most = TCP_STAGE_CRC_BYTES - HEADER_ROOM;
	return most;
}

static void add_payload(struct tcp_conn *conn, const struct ibv_sge *sge, unsigned num_sge,
			uint64_t offset, size_t len)
{
	struct iovec pieces[RC_MAX_SGE];
	size_t bytes;
	int count;

	if (burst_is_copied(conn, len)) {
		rc_sge_gather(sge, num_sge, offset, stage(&conn->tx, len), len);
		return;
	}
	count = rc_sge_slice(sge, num_sge, offset, len, pieces, RC_MAX_SGE, &bytes);
	for (int i = 0; i < count; i++)
		add_iov(&conn->tx, pieces[i].iov_base, pieces[i].iov_len);
}

/*
 * Padding and CRC behind an FPDU that began at @start of the stage (contiguous there when CRC is
 * on).
 */
static void add_trailer(struct tcp_conn *conn, size_t start, size_t ulpdu_len)
{
	size_t pad = fpdu_pad(ulpdu_len);
	uint8_t *trailer = stage(&conn->tx, pad + FPDU_CRC_LEN);
	uint32_t crc = 0;

	memset(trailer, 0, pad);
	if (conn->crc)
		crc = crc32c(0, conn->tx.stage + start, FPDU_LENGTH_LEN + ulpdu_len + pad);
	fpdu_put_crc(trailer + pad, crc);
}

void burst_add_fpdu(struct tcp_conn *conn, const uint8_t *header, size_t header_len,
		    const struct ibv_sge *sge, unsigned num_sge, uint64_t offset, size_t len)
{
	size_t start = conn->tx.stage_len;

	memcpy(stage(&conn->tx, header_len), header, header_len);
	if (len)
		add_payload(conn, sge, num_sge, offset, len);
	add_trailer(conn, start, header_len - FPDU_LENGTH_LEN + len);
}

void burst_reset(struct tcp_tx *tx)
{
	tx->iov_first = tx->iov_end = 0;
	tx->stage_len = 0;
	tx->burst_len = 0;
}
