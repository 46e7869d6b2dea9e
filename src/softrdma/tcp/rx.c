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

#include "../wire/crc32c.h"
#include "conn.h"
#include "held.h"
#include "segment.h"

#define SCRATCH_SIZE   (64 << 10)
#define SCRATCH_SENDS  (16 << 10) /* while Sends come: no more than a usual receive queue takes */
#define DIRECT_MIN     2048       /* payloads with at least so much to come are read into place */
#define DIRECT_TAIL    128 /* and, in the middle of a message, just the next header with them */
#define READS_AT_ONCE  16  /* then others have their turn */
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
		bytes = malloc(SCRATCH_SIZE);
		if (bytes && pthread_setspecific(scratch_key, bytes)) {
			free(bytes);
			bytes = NULL;
		}
	}
	return bytes;
}

void rx_init(struct tcp_conn *conn)
{
	ddp_order_init(&conn->rx.order);
	list_init(&conn->rx.held);
}

void rx_fini(struct tcp_conn *conn)
{
	held_drop_all(conn);
	free(conn->rx.stash);
}

/* When the layout was not understood no header is attached. */
static enum outcome fail_bare(struct tcp_conn *conn, uint16_t code)
{
	conn_fail(conn, code, false, NULL, IBV_WC_WR_FLUSH_ERR);
	return ENDED;
}

/* ---- payload ---- */

/*
 * Memory for the payload still to come, at most @most bytes; @region is to be put back by the
 * caller. Pieces, or -1: gone.
 */
static int payload_slices(struct tcp_conn *conn, size_t most, struct iovec *iov,
			  struct rc_region **region)
{
	struct rx *rx = &conn->rx;
	enum rc_fault fault;
	const struct rc_send *send;
	size_t bytes;
	void *mem;

	*region = NULL;
	switch (rx->sink) {
	case SINK_RECV:
		return rc_sge_slice(rx->recv->sge, rx->recv->num_sge, rx->recv_done + rx->done,
				    most, iov, RC_MAX_SGE, &bytes);
	case SINK_READ:
		send = tx_oldest_request(conn);
		return rc_sge_slice(send->sge, send->num_sge, (uint64_t)rx->read_done + rx->done,
				    most, iov, RC_MAX_SGE, &bytes);
	case SINK_REGION:
		*region = rc_region_get(conn_qp(conn), rx->segment.stag, rx->segment.to + rx->done,
					most, IBV_ACCESS_REMOTE_WRITE, &mem, &fault);
		if (!*region)
			return -1;
		iov[0] = (struct iovec){.iov_base = mem, .iov_len = most};
		return 1;
	case SINK_HELD:
		iov[0] = (struct iovec){.iov_base = held_end(conn), .iov_len = most};
		return 1;
	default:
		return 0;
	}
}

/* @len bytes of payload are in place. */
static void payload_placed(struct tcp_conn *conn, size_t len)
{
	conn->rx.done += (uint32_t)len;
	if (conn->rx.sink == SINK_HELD)
		held_placed(conn, (uint32_t)len);
}

static enum outcome place(struct tcp_conn *conn, const uint8_t *data, size_t len)
{
	struct rx *rx = &conn->rx;
	struct iovec iov[RC_MAX_SGE];
	struct rc_region *region;
	const uint8_t *from = data;
	int count;

	if (conn->crc)
		rx->crc = crc32c(rx->crc, data, len);
	if (rx->sink == SINK_TERMINATE && rx->done < sizeof(rx->terminate)) {
		size_t room = sizeof(rx->terminate) - rx->done;

		memcpy(rx->terminate + rx->done, data, len < room ? len : room);
	}
	count = payload_slices(conn, len, iov, &region);
	if (count < 0)
		return segment_fail(conn, TERM_DDP_INVALID_STAG); /* deregistered in the middle */
	for (int i = 0; i < count; i++) {
		memcpy(iov[i].iov_base, from, iov[i].iov_len);
		from += iov[i].iov_len;
	}
	if (region)
		rc_region_put(region);
	payload_placed(conn, len);
	return GO_ON;
}

/* ---- the stream ---- */

/* The initiator's first FPDU: now this side may speak. */
static void hear_first(struct tcp_conn *conn)
{
	conn->heard = true;
	if (conn->initiator)
		return;
	progress_timer_cancel(&conn->open_timer);
	rc_opened(conn_qp(conn));
	tx_open(conn);
}

/* The empty FPDU that may open a peer-to-peer connection. */
static bool is_ready_to_receive(const struct tcp_conn *conn)
{
	return !conn->rx.ulpdu_len && !conn->heard && !conn->initiator && conn->rtr == MPA_RTR_FPDU;
}

/* Take header bytes from *@data. GO_ON with state changed when the header is whole. */
static enum outcome take_header(struct tcp_conn *conn, const uint8_t **data, size_t *len)
{
	struct rx *rx = &conn->rx;
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
		return GO_ON;
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
		return GO_ON;
	}
	if (error)
		return fail_bare(conn, why);
	more = FPDU_LENGTH_LEN + rx->segment.header_len - rx->header_len;
	*data += more;
	*len -= more;
	rx->header_len = 0;
	if (!rx->rtr && ddp_order_check(&rx->order, &rx->segment, &why))
		return segment_fail(conn, why);
	rx->crc = conn->crc ? crc32c(0, rx->header, FPDU_LENGTH_LEN + rx->segment.header_len) : 0;
	rx->done = 0;
	rx->trailer_len = 0;
	rx->state = RX_PAYLOAD;
	if (rx->rtr)
		return GO_ON;
	return segment_begin(conn);
}

static enum outcome take_trailer(struct tcp_conn *conn, const uint8_t **data, size_t *len)
{
	struct rx *rx = &conn->rx;
	size_t pad = fpdu_pad(rx->ulpdu_len);
	size_t more = pad + FPDU_CRC_LEN - rx->trailer_len;

	if (more > *len)
		more = *len;
	memcpy(rx->trailer + rx->trailer_len, *data, more);
	rx->trailer_len += (uint8_t)more;
	*data += more;
	*len -= more;
	if (rx->trailer_len < pad + FPDU_CRC_LEN)
		return GO_ON;
	if (conn->crc && crc32c(rx->crc, rx->trailer, pad) != fpdu_get_crc(rx->trailer + pad))
		return segment_fail(conn, TERM_MPA_CRC);
	rx->state = RX_HEADER;
	if (!conn->heard)
		hear_first(conn);
	return conn_is_attached(conn) ? segment_end(conn) : ENDED;
}

static enum outcome take_payload(struct tcp_conn *conn, const uint8_t **data, size_t *len)
{
	struct rx *rx = &conn->rx;
	size_t more = rx->segment.payload_len - rx->done;
	enum outcome outcome = GO_ON;

	if (more > *len)
		more = *len;
	if (more)
		outcome = place(conn, *data, more);
	*data += more;
	*len -= more;
	if (outcome == GO_ON && rx->done == rx->segment.payload_len)
		rx->state = RX_TRAILER;
	return outcome;
}

/* Stop reading: keep what was read already. */
static void block(struct tcp_conn *conn, const uint8_t *data, size_t len)
{
	struct rx *rx = &conn->rx;
	uint8_t *stash = len ? malloc(len) : NULL;

	if (len && !stash) {
		segment_fail(conn, TERM_DDP_NO_BUFFER);
		return;
	}
	if (len)
		memcpy(stash, data, len);
	free(rx->stash);
	rx->stash = stash;
	rx->stash_len = len;
	rx->blocked = true;
	conn_watch(conn, (conn->source.events & ~(uint32_t)EPOLLIN) | EPOLLRDHUP);
}

/* Work through @len bytes of the stream. False: no more may be read now. */
static bool feed(struct tcp_conn *conn, const uint8_t *data, size_t len)
{
	struct rx *rx = &conn->rx;
	enum outcome outcome = GO_ON;

	/* An empty payload takes its step without bytes. */
	while (outcome == GO_ON &&
	       (len || (rx->state == RX_PAYLOAD && rx->done == rx->segment.payload_len))) {
		if (rx->state == RX_HEADER)
			outcome = take_header(conn, &data, &len);
		else if (rx->state == RX_PAYLOAD)
			outcome = take_payload(conn, &data, &len);
		else
			outcome = take_trailer(conn, &data, &len);
	}
	if (outcome == BLOCKED)
		block(conn, data, len);
	return outcome == GO_ON;
}

/* ---- reading ---- */

/*
 * Read into place what is still to come of a long payload, and a little more into @buffer. Bytes of
 * the latter, or -errno.
 */
static ssize_t read_direct(struct tcp_conn *conn, uint8_t *buffer, bool *filled)
{
	struct rx *rx = &conn->rx;
	struct iovec iov[IOV_MAX_DIRECT];
	struct msghdr message = {.msg_iov = iov};
	size_t left = rx->segment.payload_len - rx->done, placed;
	size_t tail = rx->segment.last ? SCRATCH_SIZE : DIRECT_TAIL;
	struct rc_region *region;
	ssize_t got;
	int count = payload_slices(conn, left, iov, &region);

	if (count < 0) {
		segment_fail(conn, TERM_DDP_INVALID_STAG);
		return -ECONNABORTED;
	}
	iov[count] = (struct iovec){.iov_base = buffer, .iov_len = tail};
	message.msg_iovlen = (size_t)count + 1;
	got = recvmsg(conn->source.fd, &message, MSG_DONTWAIT);
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
	payload_placed(conn, placed);
	*filled = (size_t)got == left + tail;
	return got - (ssize_t)placed;
}

static ssize_t read_buffered(struct tcp_conn *conn, uint8_t *buffer, bool *filled)
{
	size_t size = conn->rx.delivered ? SCRATCH_SENDS : SCRATCH_SIZE;
	ssize_t got;
	/* For a poller that looks again and again, the way to the next look is shorter here. */
	int looks = progress_is_lent(&conn->source) ? 2 : 1;

	do
		got = recv(conn->source.fd, buffer, size, MSG_DONTWAIT);
	while (got < 0 && errno == EAGAIN && --looks);
	*filled = got == (ssize_t)size;
	if (got > 0)
		return got;
	return got ? -errno : -EPIPE;
}

/* The stream has ended: in good order only between two FPDUs with no read unanswered. */
static void end_of_stream(struct tcp_conn *conn)
{
	const struct rx *rx = &conn->rx;
	bool orderly = rx->state == RX_HEADER && !rx->header_len && !conn->tx.reads_open;

	conn_end(conn, orderly ? 0 : ECONNRESET);
}

static bool is_direct(const struct rx *rx)
{
	return rx->state == RX_PAYLOAD && rx->segment.payload_len - rx->done >= DIRECT_MIN &&
	       rx->sink != SINK_NONE && rx->sink != SINK_TERMINATE;
}

bool rx_run(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;
	uint8_t *buffer = scratch();
	bool any = false, filled = true;

	if (rx->blocked || !buffer)
		return false;
	for (int i = 0; i < READS_AT_ONCE && filled; i++) {
		ssize_t got = is_direct(rx) ? read_direct(conn, buffer, &filled)
					    : read_buffered(conn, buffer, &filled);

		rx->delivered = false;
		if (got == -ECONNABORTED && !conn_is_attached(conn))
			return any;
		if (got == -EAGAIN || got == -EINTR)
			break;
		if (got < 0) {
			if (got == -EPIPE)
				end_of_stream(conn);
			else
				conn_end(conn, (int)-got);
			return true;
		}
		any = true;
		if (!feed(conn, buffer, (size_t)got) || rx->delivered)
			break;
	}
	return any;
}

void rx_resume(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;
	uint8_t *stash;
	bool good;

	if (!held_deliver(conn) || !rx->blocked)
		return;
	stash = rx->stash;
	rx->stash = NULL;
	rx->blocked = false;
	/* The segment that had to wait begins again, then what was read behind it. */
	switch (segment_begin(conn)) {
	case BLOCKED:
		rx->stash = stash;
		rx->blocked = true;
		return;
	case ENDED:
		free(stash);
		return;
	default:
		break;
	}
	good = feed(conn, stash, rx->stash_len);
	free(stash);
	if (good)
		conn_watch(conn, (conn->source.events | EPOLLIN) & ~(uint32_t)EPOLLRDHUP);
}
