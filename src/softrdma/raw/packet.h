/* SPDX-License-Identifier: MIT */
/* What the two back ends over AF_PACKET share: the socket and its filter. */
#ifndef SOFTRDMA_RAW_PACKET_H
#define SOFTRDMA_RAW_PACKET_H

#include "rx.h"
#include "take.h"

#define PACKET_LONGEST (68 << 10) /* a frame: loopback's */

struct packet_socket {
	struct raw_rx rx;
	/*
	 * Rules that have to be matched here, as they do not fit into a filter; num 0: the filter
	 * does it all. Under the queue pair's lock.
	 */
	struct raw_rules unfiltered;
	struct raw_take take;
};

/* A packet socket that will receive, once it is bound, what the rules match. */
int packet_open(struct packet_socket *packet, struct raw_qp *raw, const struct raw_rx_ops *ops,
		const struct raw_rules *rules);
/* From now on it receives, and the kernel loses what NORMAL rules match. */
int packet_bind(struct packet_socket *packet, const struct raw_rules *rules);
/* Let frames of so many bytes wait at the socket. Whether it may. */
bool packet_make_room(const struct packet_socket *packet, int bytes);
int packet_set_rules(struct raw_rx *rx, const struct raw_rules *rules);
uint64_t packet_read_drops(struct raw_rx *rx);
void packet_let_go(struct raw_rx *rx);
void packet_close(struct packet_socket *packet);

/*
 * Deliver one frame of @whole bytes, of which the first @len lie at @data, unless it is not wanted.
 * False: no receive is posted.
 */
bool packet_deliver(struct packet_socket *packet, void *data, uint32_t len, uint32_t whole,
		    const struct raw_tag *tag);

#endif
