/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs that the ends bring up themselves: they exchange numbers on the board and move to RTR
 * and RTS. Nothing tells such a queue pair that its peer has ended, but requests that fail.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "end.h"

enum {
	TIMEOUT = 16, /* 0.27 s for each try */
	RETRIES = 7,
	REQUESTS_FAIL_S = 10 /* then they have failed, or were not asked for */
};

/* On which all ends agree without a word. */
static uint32_t psn_of(const struct program *program, int q, int s)
{
	return (uint32_t)(program->seed * 2654435761u + (unsigned)q * 2 + (unsigned)s) & 0xffffff;
}

/* The end's own, by its address. */
static union ibv_gid find_gid(struct end_run *er, int *index)
{
	struct sockaddr_in address = end_own_address();
	union ibv_gid gid, wanted = {.raw = {[10] = 0xff, [11] = 0xff}};

	memcpy(wanted.raw + 12, &address.sin_addr, 4);
	for (*index = 0; !ibv_query_gid(er->verbs, 1, *index, &gid); ++*index)
		if (!memcmp(&gid, &wanted, sizeof(gid)))
			return gid;
	end_fail(er, "setup", "ibv_query_gid", ENOENT);
}

static void move_to(struct end_run *er, int q, int s, struct ibv_qp_attr *attr, int mask)
{
	int error = ibv_modify_qp(er->conns[q][s].qp, attr, mask | IBV_QP_STATE);

	if (error)
		end_fail(er, "setup", "ibv_modify_qp", error);
}

static void initialise(struct end_run *er, int q, int s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};

	move_to(er, q, s, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void expect_peer(struct end_run *er, int q, int s)
{
	struct side_board *peer = &er->run->board->sides[q][!s];
	const struct qp *qp = &er->run->program->qps[q];
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.rq_psn = psn_of(er->run->program, q, !s),
		.max_dest_rd_atomic = (uint8_t)(s ? qp->ord : qp->ird),
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1},
	};
	int index;

	while (!peer->qp_num) {
		end_check(er);
		usleep(100);
	}
	attr.dest_qp_num = peer->qp_num;
	attr.ah_attr.grh.dgid = find_gid(er, &index); /* all ends have the same address */
	attr.ah_attr.grh.sgid_index = (uint8_t)index;
	attr.ah_attr.grh.hop_limit = 1;
	move_to(er, q, s, &attr,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	er->run->board->sides[q][s].expects = true;
}

static void start_sending(struct end_run *er, int q, int s)
{
	const struct qp *qp = &er->run->program->qps[q];
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = psn_of(er->run->program, q, s),
		.timeout = TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = 7,
		.max_rd_atomic = (uint8_t)(s ? qp->ird : qp->ord),
	};

	move_to(er, q, s, &attr,
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Requests are lawful when the peer expects them. */
static void await_peer(struct end_run *er, int q, int s)
{
	while (!er->run->board->sides[q][!s].expects) {
		end_check(er);
		usleep(100);
	}
	er->conns[q][s].up = true;
}

static void for_each(struct end_run *er, void (*step)(struct end_run *er, int q, int s))
{
	for (int q = 0; q < er->run->program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			if (er->run->program->qps[q].number &&
			    er->run->program->qps[q].sides[s].end == er->end)
				step(er, q, s);
}

void number_connect(struct end_run *er)
{
	for_each(er, end_make_qp);
	for_each(er, initialise);
	for_each(er, end_publish_qp);
	for_each(er, expect_peer);
	for_each(er, start_sending);
	for_each(er, await_peer);
}

/* ---- the end ---- */

static bool is_late(struct conn *conn)
{
	time_t now = time(NULL);

	if (!conn->ended_at)
		conn->ended_at = now;
	return now - conn->ended_at > REQUESTS_FAIL_S;
}

static void look(struct end_run *er, int q, int s)
{
	struct side_board *sb = &er->run->board->sides[q][s];

	if (!sb->ended || sb->buried || sb->gone)
		return;
	if (sb->failed || sb->posted == sb->completed || is_late(&er->conns[q][s]))
		end_bury(er, q, s);
}

void number_look(struct end_run *er)
{
	for_each(er, look);
}
