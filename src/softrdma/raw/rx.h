/* SPDX-License-Identifier: MIT */
/*
 * The back ends that receive frames: one small table each.
 *
 * open, set_rules, stop and close are called under the configuration's lock, receive and read_drops
 * under the queue pair's. receive may run at the same time as set_rules and stop.
 */
#ifndef SOFTRDMA_RAW_RX_H
#define SOFTRDMA_RAW_RX_H

#include "../progress/progress.h"
#include "interface.h"
#include "rule.h"

struct raw_qp;

struct raw_rules {
	struct raw_rule *rules;
	unsigned num;
};

/* A back end at work; embedded in its own. */
struct raw_rx {
	const struct raw_rx_ops *ops;
	struct raw_qp *raw;
	struct progress_source source; /* its descriptor is readable when there are frames */
	bool paused;                   /* not watched, as no receive is posted */
};

struct raw_rx_ops {
	const char *name;
	/*
	 * Begin to receive what @rules match. *@rx->source.fd is to be watched then. -EPERM: rights
	 * are missing; others: the next back end may do better.
	 */
	int (*open)(struct raw_rx **rx, struct raw_qp *raw, const struct raw_rules *rules);
	/* Other rules. What both the old and the new ones match is not lost. */
	int (*set_rules)(struct raw_rx *rx, const struct raw_rules *rules);
	/*
	 * Pass at most @budget frames to raw_deliver, until it refuses one; that one is passed
	 * again next time. Returns their number.
	 */
	unsigned (*receive)(struct raw_rx *rx, unsigned budget);
	/* Frames that the kernel dropped since the last call. */
	uint64_t (*read_drops)(struct raw_rx *rx);
	/*
	 * Frames go their way as if there were no rules; those that came before can still be
	 * received. NULL: that is not so, they have come to others as well.
	 */
	void (*stop)(struct raw_rx *rx);
	/* In a forked child: close what would keep it alive when the parent has ended. */
	void (*let_go)(struct raw_rx *rx);
	void (*close)(struct raw_rx *rx);
};

extern const struct raw_rx_ops raw_rx_xdp;
extern const struct raw_rx_ops raw_rx_ring;
extern const struct raw_rx_ops raw_rx_socket;

/* ---- what the service offers to a back end ---- */

#define FRAME_PIECES 24 /* 64 KiB and a bit in chunks of 4 KiB */

struct raw_frame {
	const struct iovec *pieces;
	unsigned num;
	uint32_t len;       /* of all pieces, and of what is missing if it is cut */
	bool is_cut;        /* it was longer than the back end can hold */
	struct raw_tag tag; /* to be put back */
};

/* Put a frame into the next receive. False: none is posted. The queue pair's lock is held. */
bool raw_deliver(struct raw_qp *raw, const struct raw_frame *frame);
/* The next receive has a frame of so many bytes in it already (rc_recv_peek). */
void raw_delivered(struct raw_qp *raw, uint32_t len);

#endif
