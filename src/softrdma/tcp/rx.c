/* SPDX-License-Identifier: MIT */
/*
 * Receiving: the byte stream becomes FPDUs, whose payload goes straight to where it belongs. An
 * FPDU has three parts: the header is gathered, the payload is placed as it comes, the trailer is
 * checked; then the segment takes effect.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "../tuning.h"
#include "../wire/crc32c.h"
#include "conn.h"

#define IOV_MAX_DIRECT (RC_MAX_SGE + 1)

/* What reading from a socket needs, once per thread. */
static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

static void make_scratch_key(void)
{
	if (pthread_key_create(&scratch_key, free))
		abort(); /* the process has used up its keys: nothing works then */
}

static uint8_t *scratch(void)
{
	uint8_t *bytes;

	pthread_once(&scratch_once, make_scratch_key);
	bytes = pthread_getspecific(scratch_key);
	if (!bytes) {
		bytes = malloc(TCP_SCRATCH_BYTES);
		if (bytes && pthread_setspecific(scratch_key, bytes)) {
			free(bytes);
			bytes = NULL;
		}
	}
	return bytes;
}

void tcp_rx_init(struct tcp_conn *conn)
{
	ddp_order_init(&conn->rx.order);
}

void tcp_rx_fini(struct tcp_conn *conn)
{
	free(conn->rx.stash);
}

/* @at_hand: the header that is to blame was understood, and is attached. */
static enum rc_outcome fail(struct tcp_conn *conn, uint16_t code, bool at_hand)
{
	rc_fail(&conn->rc, code, at_hand, NULL, IBV_WC_WR_FLUSH_ERR);
	return RC_ENDED;
}

/* ---- payload ---- */

static enum rc_outcome place(struct tcp_conn *conn, const uint8_t *data, size_t len)
{
	struct tcp_rx *rx = &conn->rx;
	struct iovec iov[RC_MAX_SGE];
	struct rc_region *region;
	const uint8_t *from = data;
	int count;

	if (conn->crc)
		rx->crc = crc32c(rx->crc, data, len);
	if (rx->segment.opcode == RDMAP_TERMINATE && rx->done < sizeof(rx->terminate)) {
		size_t room = sizeof(rx->terminate) - rx->done;

		memcpy(rx->terminate + rx->done, data, len < room ? len : room);
	}
	count = rc_place(&conn->rc, &rx->frame, rx->done, len, iov, &region);
	if (count < 0)
		return fail(conn, TERM_DDP_INVALID_STAG, true); /* deregistered in the middle */
	for (int i = 0; i < count; i++) {
		memcpy(iov[i].iov_base, from, iov[i].iov_len);
		from += iov[i].iov_len;
	}
	if (region)
		rc_region_put(region);
	rx->done += (uint32_t)len;
	return RC_GO_ON;
}

/* ---- the stream ---- */

/* The empty FPDU that may open a peer-to-peer connection. */
static bool is_ready_to_receive(const struct tcp_conn *conn)
{
	return !conn->rx.ulpdu_len && !conn->heard && !conn->rc.initiator &&
	       conn->rtr == MPA_RTR_FPDU;
}

/* Take header bytes from *@data. RC_GO_ON with state changed when the header is whole. */
static enum rc_outcome take_header(struct tcp_conn *conn, const uint8_t **data, size_t *len)
{
	struct tcp_rx *rx = &conn->rx;
	size_t have = rx->header_len, more = sizeof(rx->header) - have, ulpdu;
	uint16_t why = TERM_NONE;
	int error;

	if (more > *len)
		more = *len;
	/* Take one header's worth; what belongs to the payload is given back below. */
	memcpy(rx->header + have, *data, more);
	have += more;
	if (have < FPDU_LENGTH_LEN) {
		rx->header_len = (uint8_t)have;
		*data += more;
		*len -= more;
		return RC_GO_ON;
	}
	rx->ulpdu_len = (uint16_t)(rx->header[0] << 8 | rx->header[1]);
	rx->rtr = is_ready_to_receive(conn);
	rx->segment.header_len = 0;
	rx->segment.payload_len = 0;
	ulpdu = have - FPDU_LENGTH_LEN < rx->ulpdu_len ? have - FPDU_LENGTH_LEN : rx->ulpdu_len;
	error = rx->rtr ? 0
			: ddp_parse(rx->header + FPDU_LENGTH_LEN, ulpdu, rx->ulpdu_len, conn->soft,
				    &rx->segment, &why);
	if (error == -EAGAIN) {
		rx->header_len = (uint8_t)have;
		*data += more;
		*len -= more;
		return RC_GO_ON;
	}
	if (error)
		return fail(conn, why, false);
	more = FPDU_LENGTH_LEN + rx->segment.header_len - rx->header_len;
	*data += more;
	*len -= more;
	rx->header_len = 0;
	if (!rx->rtr && !tcp_is_acknowledgement(conn) &&
	    ddp_order_check(&rx->order, &rx->segment, &why))
		return fail(conn, why, true);
	rx->crc = conn->crc ? crc32c(0, rx->header, FPDU_LENGTH_LEN + rx->segment.header_len) : 0;
	rx->done = 0;
	rx->trailer_len = 0;
	rx->state = RX_PAYLOAD;
	if (rx->rtr)
		return RC_GO_ON;
	return tcp_begin_segment(conn);
}

static enum rc_outcome take_trailer(struct tcp_conn *conn, const uint8_t **data, size_t *len)
{
	struct tcp_rx *rx = &conn->rx;
	size_t pad = fpdu_pad(rx->ulpdu_len);
	size_t more = pad + FPDU_CRC_LEN - rx->trailer_len;

	if (more > *len)
		more = *len;
	memcpy(rx->trailer + rx->trailer_len, *data, more);
	rx->trailer_len += (uint8_t)more;
	*data += more;
	*len -= more;
	if (rx->trailer_len < pad + FPDU_CRC_LEN)
		return RC_GO_ON;
	if (conn->crc && crc32c(rx->crc, rx->trailer, pad) != fpdu_get_crc(rx->trailer + pad))
		return fail(conn, TERM_MPA_CRC, true);
	rx->state = RX_HEADER;
	if (!conn->heard)
		tcp_hear_first(conn);
	return conn_is_attached(&conn->rc) ? tcp_end_segment(conn) : RC_ENDED;
}

static enum rc_outcome take_payload(struct tcp_conn *conn, const uint8_t **data, size_t *len)
{
	struct tcp_rx *rx = &conn->rx;
	size_t more = rx->segment.payload_len - rx->done;
	enum rc_outcome outcome = RC_GO_ON;

	if (more > *len)
		more = *len;
	if (more)
		outcome = place(conn, *data, more);
	*data += more;
	*len -= more;
	if (outcome == RC_GO_ON && rx->done == rx->segment.payload_len)
		rx->state = RX_TRAILER;
	return outcome;
}

/* Stop reading: keep what was read already. */
static void block(struct tcp_conn *conn, const uint8_t *data, size_t len)
{
	struct tcp_rx *rx = &conn->rx;
	uint8_t *stash = len ? malloc(len) : NULL;

	if (len && !stash) {
		fail(conn, TERM_DDP_NO_BUFFER, true);
		return;
	}
	if (len)
		memcpy(stash, data, len);
	free(rx->stash);
	rx->stash = stash;
	rx->stash_len = len;
	tcp_watch(conn, (conn->rc.source.events & ~(uint32_t)EPOLLIN) | EPOLLRDHUP);
}

/* Work through @len bytes of the stream. False: no more may be read now. */
static bool feed(struct tcp_conn *conn, const uint8_t *data, size_t len)
{
	struct tcp_rx *rx = &conn->rx;
	enum rc_outcome outcome = RC_GO_ON;

	/* An empty payload takes its step without bytes. */
	while (outcome == RC_GO_ON &&
	       (len || (rx->state == RX_PAYLOAD && rx->done == rx->segment.payload_len))) {
		if (rx->state == RX_HEADER)
			outcome = take_header(conn, &data, &len);
		else if (rx->state == RX_PAYLOAD)
			outcome = take_payload(conn, &data, &len);
		else
			outcome = take_trailer(conn, &data, &len);
	}
	if (outcome == RC_BLOCKED)
		block(conn, data, len);
	return outcome == RC_GO_ON;
}

/* ---- reading ---- */

/*
 * Read into place what is still to come of a long payload, and a little more into @buffer. Bytes of
 * the latter, or -errno.
 */
static ssize_t read_direct(struct tcp_conn *conn, uint8_t *buffer, bool *filled)
{
	struct tcp_rx *rx = &conn->rx;
	struct iovec iov[IOV_MAX_DIRECT];
	struct msghdr message = {.msg_iov = iov};
	size_t left = rx->segment.payload_len - rx->done, placed;
	size_t tail = rx->segment.last ? TCP_SCRATCH_BYTES : TCP_DIRECT_TAIL;
	struct rc_region *region;
	ssize_t got;
	int count = rc_place(&conn->rc, &rx->frame, rx->done, left, iov, &region);

	if (count < 0) {
		fail(conn, TERM_DDP_INVALID_STAG, true);
		return -ECONNABORTED;
	}
	iov[count] = (struct iovec){.iov_base = buffer, .iov_len = tail};
	message.msg_iovlen = (size_t)count + 1;
	got = recvmsg(conn->rc.source.fd, &message, MSG_DONTWAIT);
	if (got <= 0) {
		if (region)
			rc_region_put(region);
		return got ? -errno : -EPIPE;
	}
	placed = (size_t)got < left ? (size_t)got : left;
	for (size_t i = 0, rest = placed; conn->crc && rest; i++) {
		size_t piece = rest < iov[i].iov_len ? rest : iov[i].iov_len;

		rx->crc = crc32c(rx->crc, iov[i].iov_base, piece);
		rest -= piece;
	}
	if (region)
		rc_region_put(region);
	rx->done += (uint32_t)placed;
	*filled = (size_t)got == left + tail;
	return got - (ssize_t)placed;
}

static ssize_t read_buffered(struct tcp_conn *conn, uint8_t *buffer, bool *filled)
{
	size_t size = conn->rc.rx.delivered ? TCP_SCRATCH_SENDS_BYTES : TCP_SCRATCH_BYTES;
	ssize_t got;
	/* For a poller that looks again and again, the way to the next look is shorter here. */
	int looks = progress_is_poller_owned(&conn->rc.source) ? TCP_LOOKS : 1;

	do
		got = recv(conn->rc.source.fd, buffer, size, MSG_DONTWAIT);
	while (got < 0 && errno == EAGAIN && --looks);
	*filled = got == (ssize_t)size;
	if (got > 0)
		return got;
	return got ? -errno : -EPIPE;
}

static bool is_direct(const struct tcp_conn *conn)
{
	const struct tcp_rx *rx = &conn->rx;

	return rx->state == RX_PAYLOAD && rx->segment.payload_len - rx->done >= TCP_DIRECT_MIN &&
	       conn->rc.rx.sink != RC_SINK_NONE;
}

/* The stream has ended, or the socket has failed. */
static void end_of_stream(struct tcp_conn *conn, int error)
{
	const struct tcp_rx *rx = &conn->rx;

	if (error == EPIPE)
		rc_peer_gone(&conn->rc, rx->state == RX_HEADER && !rx->header_len);
	else
		rc_end(&conn->rc, error);
}

bool tcp_rx_run(struct tcp_conn *conn)
{
	struct rc_rx *rx = &conn->rc.rx;
	uint8_t *buffer = scratch();
	bool any = false, filled = true;

	if (rx->blocked || !buffer)
		return false;
	for (int i = 0; i < TCP_READS_AT_ONCE && filled; i++) {
		ssize_t got = is_direct(conn) ? read_direct(conn, buffer, &filled)
					      : read_buffered(conn, buffer, &filled);

		rx->delivered = false;
		if (got == -ECONNABORTED && !conn_is_attached(&conn->rc))
			return any;
		if (got == -EAGAIN || got == -EINTR)
			break;
		if (got < 0) {
			end_of_stream(conn, (int)-got);
			return true;
		}
		any = true;
		if (!feed(conn, buffer, (size_t)got) || rx->delivered)
			break;
	}
	if (conn_is_attached(&conn->rc))
		rc_watch_message(&conn->rc);
	return any;
}

void tcp_rx_resume(struct rc_conn *rc)
{
	struct tcp_conn *conn = to_tcp(rc);
	struct tcp_rx *rx = &conn->rx;
	uint8_t *stash = rx->stash;
	bool good;

	/* The segment that had to wait begins again, then what was read behind it. */
	if (rc_begin_frame(rc, &rx->frame) != RC_GO_ON)
		return;
	rx->stash = NULL;
	good = feed(conn, stash, rx->stash_len);
	free(stash);
	if (good)
		tcp_watch(conn, (rc->source.events | EPOLLIN) & ~(uint32_t)EPOLLRDHUP);
}
