/* SPDX-License-Identifier: MIT */
/* Sending: posted requests leave as frames by a packet socket, many with one system call. */
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../tuning.h"
#include "internal.h"

#define REFUSED_FOR   1000000000u /* ns: then the interface's queue is not full but stuck */
#define MAX_FRAME_LEN (64 << 10)

struct batch {
	struct mmsghdr messages[RAW_SEND_BATCH];
	struct iovec pieces[RAW_SEND_BATCH * RC_MAX_SGE];
	unsigned num;
};

/* ---- what cannot be sent now ---- */

static void tx_ready(struct progress_source *source, uint32_t events)
{
	struct raw_tx *tx = container_of(source, struct raw_tx, source);
	struct raw_qp *raw = container_of(tx, struct raw_qp, tx);

	(void)events;
	lock_take(&raw->qp->lock);
	if (tx->is_blocked) {
		progress_unwatch(source);
		tx->is_blocked = false;
	}
	raw_tx_run(raw);
	lock_give(&raw->qp->lock);
}

static void retry_expired(struct progress_timer *timer)
{
	struct raw_tx *tx = container_of(timer, struct raw_tx, retry);
	struct raw_qp *raw = container_of(tx, struct raw_qp, tx);

	lock_take(&raw->qp->lock);
	raw_tx_run(raw);
	lock_give(&raw->qp->lock);
}

/* The interface's queue is full. False: it has been for too long. */
static bool wait_for_queue(struct raw_tx *tx)
{
	uint64_t now = progress_now();

	if (!tx->refused_since)
		tx->refused_since = now;
	if (now - tx->refused_since > REFUSED_FOR)
		return false;
	progress_timer_arm(&tx->retry, RAW_SEND_RETRY_MS);
	return true;
}

static enum ibv_wc_status status_of(int error)
{
	switch (error) {
	case EMSGSIZE:
	case EINVAL:
		return IBV_WC_LOC_LEN_ERR;
	case EFAULT:
		return IBV_WC_LOC_PROT_ERR;
	default:
		return IBV_WC_GENERAL_ERR;
	}
}

/* The next frame was refused. True: go on with what is behind it. */
static bool refused(struct raw_qp *raw, int error)
{
	struct rc_sendq *sq = &raw->qp->sq;

	switch (error) {
	case EINTR:
		return true;
	case EAGAIN:
		raw->tx.is_blocked = !progress_watch(&raw->tx.source, EPOLLOUT);
		if (raw->tx.is_blocked)
			return false;
		break;
	case ENOBUFS:
	case ENOMEM:
		if (wait_for_queue(&raw->tx))
			return false;
		break;
	default:
		break;
	}
	log_debug("soft_%s: QP 0x%x: a frame of %u bytes was refused: %s", raw->iface.name,
		  raw->qp->qp_num, rc_send_at(sq, sq->next)->length, strerror(error));
	raw->tx.refused_since = 0;
	rc_send_done(raw->qp, rc_send_at(sq, sq->next++), status_of(error));
	return true;
}

/* ---- sending ---- */

/* Describe the posted frames, up to one that was wrong when it was posted. */
static void gather(const struct raw_qp *raw, struct batch *batch)
{
	const struct rc_sendq *sq = &raw->qp->sq;
	unsigned used = 0;

	batch->num = 0;
	for (uint32_t i = sq->next; i != sq->tail && batch->num < RAW_SEND_BATCH; i++) {
		const struct rc_send *send = rc_send_at(sq, i);
		struct msghdr *message = &batch->messages[batch->num].msg_hdr;
		size_t bytes;
		int count;

		if (send->status != IBV_WC_SUCCESS || send->length > MAX_FRAME_LEN)
			return;
		count = rc_sge_slice(send->sge, send->num_sge, 0, send->length,
				     &batch->pieces[used], RC_MAX_SGE, &bytes);
		*message = (struct msghdr){.msg_iov = &batch->pieces[used],
					   .msg_iovlen = (size_t)count};
		used += (unsigned)count;
		batch->num++;
	}
}

static void finish_wrong_one(struct raw_qp *raw)
{
	struct rc_sendq *sq = &raw->qp->sq;
	struct rc_send *send = rc_send_at(sq, sq->next++);

	rc_send_done(raw->qp, send, send->status ? send->status : IBV_WC_LOC_LEN_ERR);
}

/* How many have left, or -1. A lone frame of one piece costs less by itself. */
static int send_batch(int fd, struct batch *batch)
{
	const struct msghdr *first = &batch->messages[0].msg_hdr;

	if (batch->num > 1 || first->msg_iovlen != 1)
		return sendmmsg(fd, batch->messages, batch->num, MSG_DONTWAIT);
	return send(fd, first->msg_iov->iov_base, first->msg_iov->iov_len, MSG_DONTWAIT) < 0 ? -1
											     : 1;
}

bool raw_tx_run(struct raw_qp *raw)
{
	struct rc_sendq *sq = &raw->qp->sq;
	struct batch batch;
	bool any = false;

	if (raw->tx.is_blocked || raw->qp->state != IBV_QPS_RTS)
		return false;
	while (sq->next != sq->tail) {
		int sent;

		gather(raw, &batch);
		if (!batch.num) {
			finish_wrong_one(raw);
			any = true;
			continue;
		}
		sent = send_batch(raw->tx.source.fd, &batch);
		if (sent < 0) {
			if (!refused(raw, errno))
				return any;
			continue;
		}
		raw->tx.refused_since = 0;
		for (int i = 0; i < sent; i++)
			rc_send_done(raw->qp, rc_send_at(sq, sq->next++), IBV_WC_SUCCESS);
		any = true;
	}
	return any;
}

/* ---- making ---- */

static int explain_open(int error)
{
	if (error == EPERM || error == EACCES)
		log_error("raw packets need the capability CAP_NET_RAW: run as root, or give it to "
			  "the program: sudo setcap "
			  "cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon,cap_ipc_lock+ep PROGRAM");
	else
		log_error("cannot open a packet socket: %s", strerror(error));
	return error == EACCES ? -EPERM : -error;
}

int raw_tx_open(struct raw_qp *raw)
{
	/* Protocol 0: it receives nothing. */
	const struct sockaddr_ll address = {.sll_family = AF_PACKET,
					    .sll_ifindex = (int)raw->iface.index};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int size = RAW_SEND_BUFFER_BYTES;
	int error;

	raw->tx.source = (struct progress_source){
		.fd = fd, .set = PROGRESS_DATA, .ready = tx_ready, .events = EPOLLOUT};
	progress_timer_init(&raw->tx.retry, PROGRESS_DATA, retry_expired);
	if (fd < 0)
		return explain_open(errno);
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address))) {
		error = errno;
		log_error("soft_%s: cannot bind a packet socket: %s", raw->iface.name,
			  strerror(error));
		close(fd);
		return -error;
	}
	return 0;
}

void raw_tx_close(struct raw_qp *raw)
{
	struct raw_tx *tx = &raw->tx;

	if (tx->is_blocked)
		progress_unwatch(&tx->source);
	progress_timer_cancel(&tx->retry);
	progress_barrier();
	close(tx->source.fd);
}
