/* SPDX-License-Identifier: MIT */
/*
 * Raw packet queue pairs: the service that stands where a connection's transport stands (rc.h), and
 * what verbs needs of it besides.
 *
 * A raw queue pair sends every request as one Ethernet frame, and receives those that its flow
 * rules match while it is in RTR or RTS. Frames are moved under the queue pair's lock. Rules change
 * under another, the configuration's, which all raw queue pairs share and which is taken before
 * every other: a change takes the kernel milliseconds, in which frames go on.
 */
#ifndef SOFTRDMA_RAW_H
#define SOFTRDMA_RAW_H

#include "../rc.h"
#include "rule.h"

struct raw_qp;

/*
 * Make @qp, of so many receives, a raw queue pair of this interface. -EPERM: the process may not,
 * and the log says what it lacks; -EOPNOTSUPP: not an Ethernet interface.
 */
int raw_attach(struct rc_qp *qp, unsigned max_receives, unsigned ifindex, const char *ifname);

/* Whether rules are left: then the queue pair cannot go. */
bool raw_has_flows(const struct rc_qp *qp);
/* The queue pair goes; nobody drives it any more. */
void raw_detach(struct rc_qp *qp);

/*
 * Around a change of state: the configuration's lock, and whether frames are to be received from
 * then on. Without the queue pair's lock. 0 or -errno.
 */
void raw_lock_config(void);
void raw_unlock_config(void);
int raw_receive_from_now(struct rc_qp *qp, bool receives);

/* A rule in force. */
struct raw_flow;
int raw_add_flow(struct rc_qp *qp, const struct raw_rule *rule, struct raw_flow **flow);
int raw_remove_flow(struct raw_flow *flow);

struct raw_counters {
	uint64_t received;  /* frames that went into a receive */
	uint64_t dropped;   /* by the kernel: nobody fetched them in time */
	uint64_t no_buffer; /* the same, while no receive was posted */
};
void raw_read_counters(struct rc_qp *qp, struct raw_counters *counters);

#endif
