/* SPDX-License-Identifier: MIT */
#include "answers.h"

#include <errno.h>
#include <stdlib.h>

#include "burst.h"
#include "segment.h"

bool answers_wait(const struct tx *tx)
{
	return tx->answers_head != tx->answers_tail;
}

bool answer_is_open(const struct tcp_conn *conn)
{
	const struct tx *tx = &conn->tx;

	return answers_wait(tx) && tx->answers[tx->answers_head % conn->ird].done;
}

bool answers_or_bytes_wait(const struct tcp_conn *conn)
{
	return conn->tx.left || answers_wait(&conn->tx);
}

/* False: that memory may not be reached, or not any more. */
static bool execute(struct tcp_conn *conn, struct answer *answer, enum rc_fault *fault)
{
	const struct rdmap_atomic_request request = answer->atomic;
	const struct rc_atomic atomic = {
		.key = request.stag,
		.addr = request.to,
		.swaps = request.op != RDMAP_FETCH_ADD,
		.compare = request.compare,
		.add_swap = request.add_swap,
	};
	uint64_t value;

	if (rc_execute_atomic(conn_qp(conn), &atomic, &value, fault))
		return false;
	answer->kind = ANSWER_ATOMIC_DONE;
	answer->result = (struct rdmap_atomic_response){.id = request.id, .value = value};
	return true;
}

/*
 * An atomic takes effect when it arrives, ahead of what the peer sends after it; but behind reads
 * that are not answered yet it waits for its turn.
 */
int answer_add(struct tcp_conn *conn, const struct answer *answer)
{
	struct tx *tx = &conn->tx;
	struct answer *last;
	enum rc_fault fault;

	if (tx->answers_tail - tx->answers_head >= conn->ird)
		return -EPROTO;
	if (!tx->answers)
		tx->answers = calloc(conn->ird, sizeof(*tx->answers));
	if (!tx->answers)
		return -ENOMEM;
	last = &tx->answers[tx->answers_tail % conn->ird];
	*last = *answer;
	if (last->kind == ANSWER_ATOMIC && !answers_wait(tx) && !execute(conn, last, &fault))
		return -EFAULT;
	tx->answers_tail++;
	return 0;
}

static bool build_atomic_answer(struct tcp_conn *conn)
{
	struct tx *tx = &conn->tx;
	struct answer *answer = &tx->answers[tx->answers_head % conn->ird];
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	enum rc_fault fault;
	size_t header_len;

	if (answer->kind == ANSWER_ATOMIC && !execute(conn, answer, &fault)) {
		conn_fail(conn, segment_read_fault(fault), false, NULL, IBV_WC_WR_FLUSH_ERR);
		return false;
	}
	header_len = ddp_put_atomic_response(header, tx->result_msn++, &answer->result);
	burst_add_fpdu(conn, header, header_len, NULL, 0, 0, 0);
	tx->answers_head++;
	return true;
}

/*
 * FPDUs of the oldest answer, to a read. Its memory is looked up here for the addresses; transmit
 * holds it while the socket copies. False: that may not be read, and the connection has ended.
 */
static bool build_read_answer(struct tcp_conn *conn)
{
	struct tx *tx = &conn->tx;
	struct answer *answer = &tx->answers[tx->answers_head % conn->ird];
	const struct rdmap_read_request *request = &answer->read;
	size_t most = burst_max_payload(conn, DDP_TAGGED_LEN), len, header_len;
	uint32_t begin = answer->done;
	struct rc_region *region = NULL;
	enum rc_fault fault;
	void *mem = NULL;

	if (request->size) {
		region = rc_region_get(conn_qp(conn), request->source_stag,
				       request->source_to + begin, request->size - begin,
				       IBV_ACCESS_REMOTE_READ, &mem, &fault);
		if (!region) {
			conn_fail(conn, segment_read_fault(fault), false, NULL,
				  IBV_WC_WR_FLUSH_ERR);
			return false;
		}
	}
	do {
		uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
		struct ibv_sge piece = {.addr = (uintptr_t)mem + (answer->done - begin)};

		len = request->size - answer->done;
		if (len > most)
			len = most;
		if (!burst_has_room(conn, len))
			break;
		piece.length = (uint32_t)len;
		header_len = ddp_put_tagged(header, RDMAP_READ_RESPONSE,
					    answer->done + len == request->size, request->sink_stag,
					    request->sink_to + answer->done, len);
		burst_add_fpdu(conn, header, header_len, &piece, 1, 0, len);
		answer->done += (uint32_t)len;
	} while (answer->done < request->size);
	if (region)
		rc_region_put(region);
	tx->burst_stag = request->source_stag;
	tx->burst_to = request->source_to + begin;
	tx->burst_len = answer->done - begin;
	if (answer->done == request->size)
		tx->answers_head++;
	return true;
}

bool answer_build(struct tcp_conn *conn)
{
	const struct tx *tx = &conn->tx;

	return tx->answers[tx->answers_head % conn->ird].kind == ANSWER_READ
		       ? build_read_answer(conn)
		       : build_atomic_answer(conn);
}
