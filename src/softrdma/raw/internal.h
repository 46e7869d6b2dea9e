/* SPDX-License-Identifier: MIT */
/* A raw queue pair, for the files of this folder. */
#ifndef SOFTRDMA_RAW_INTERNAL_H
#define SOFTRDMA_RAW_INTERNAL_H

#include "../../common/list.h"
#include "presence.h"
#include "raw.h"
#include "rx.h"

struct raw_tx {
	struct progress_source source; /* the packet socket; watched while it is full */
	bool is_blocked;
	struct progress_timer retry; /* the interface's queue was full */
	uint64_t refused_since;      /* it has been for so long; 0: it is not */
};

struct raw_qp {
	struct rc_qp *qp;
	unsigned max_receives; /* that may be posted */
	struct raw_interface iface;

	/* Under the queue pair's lock. */
	struct raw_tx tx;
	struct raw_rx *rx; /* NULL: no rules, or not the time. Changes under both locks */
	/*
	 * One that was replaced, and has frames that came before: they go first. It is closed when
	 * the next one is, or with the queue pair. Changes under both locks.
	 */
	struct raw_rx *finishing;
	bool starved; /* the last look ended for want of a receive */
	struct raw_counters counters;

	/* Under the configuration's lock. */
	struct presence presence;
	struct list link;  /* among all raw queue pairs of the process */
	struct list flows; /* of struct raw_flow */
	unsigned num_flows;
	bool receives; /* the state says so */
};

/* Add what the kernel dropped since the last time. The queue pair's lock is held. */
void raw_count_drops(struct raw_qp *raw);

/* ---- tx.c: sending; the queue pair's lock is held ---- */

int raw_tx_open(struct raw_qp *raw);
void raw_tx_close(struct raw_qp *raw);
/* Send what is posted. Whether anything was done. */
bool raw_tx_run(struct raw_qp *raw);

/* ---- choice.c: which back end; the configuration's lock is held ---- */

/* @alone: nobody else, in this process or another, receives from the interface. */
int raw_choose_rx(struct raw_qp *raw, const struct raw_rules *rules, bool alone,
		  struct raw_rx **rx);
/* Whether XDP can do what these rules ask: it cannot copy, and sees no tag that a card strips. */
bool raw_suits_xdp(const struct raw_interface *iface, const struct raw_rules *rules);

/* ---- addresses.c: what the interface is to let in; the configuration's lock is held ---- */

void raw_join(struct raw_qp *raw, const struct raw_rule *rule);
void raw_leave(struct raw_qp *raw, const struct raw_rule *rule);

#endif
