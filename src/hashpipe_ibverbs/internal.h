/* SPDX-License-Identifier: MIT */
/*
 * The library's objects, and who does what:
 *   context.c     init and shutdown: everything that a context has, made and given back in order
 *   device.c      interfaces, and the devices that serve them
 *   memory.c      packets, their memory and their keys
 *   completion.c  both kinds of completion queue as one
 *   receive.c     recv_pkts, poll_pkts, release_pkts
 *   send.c        get_pkts, send_pkts, draining
 *   rule.c        a rule as the attributes of a verbs flow; no device
 *   flow.c        the rules of a context: set, replaced, removed
 *   group.c       multicast groups that rules need
 *   stats.c       what has happened, and when
 * Inside, 0 or a count, or -errno; the public calls translate.
 */
#ifndef HASHPIPE_IBVERBS_INTERNAL_H
#define HASHPIPE_IBVERBS_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../softrdma/interpose/redirect.h"

#pragma GCC visibility push(default)
#include <hashpipe_ibverbs.h>
#pragma GCC visibility pop

#include "../softrdma/interpose/counters.h"

#include "../common/list.h"
#include "../common/log.h"
#include "group.h"
#include "rule.h"

#define DEFAULT_BUSY_US 50

/* Programs and the Julia package know these by heart. */
_Static_assert(sizeof(struct hashpipe_ibv_context) == 464, "part of the ABI");
_Static_assert(sizeof(struct hashpipe_ibv_send_pkt) == 136, "part of the ABI");
_Static_assert(sizeof(struct hashpipe_ibv_recv_pkt) == 48, "part of the ABI");
_Static_assert(sizeof(struct hashpipe_ibv_flow) == 100, "part of the ABI");
_Static_assert(sizeof(struct hashpipe_ibv_rule) == 80, "part of the ABI");

/* ---- completions ---- */

struct completion {
	uint64_t wr_id;
	uint64_t timestamp;
	uint32_t length;
	enum ibv_wc_status status;
};

#define COMPLETIONS 64 /* that are taken at once */

struct queue {
	struct ibv_cq *cq;
	struct ibv_cq_ex *extended; /* the same, if it has time stamps */
};

/* @stamped: with the device's time stamps, if it can. */
int queue_open(struct queue *queue, struct ibv_context *device, uint32_t entries, void *context,
	       struct ibv_comp_channel *channel, bool stamped);
int queue_close(struct queue *queue);
/* Take up to @max completions, COMPLETIONS at most. How many there were. */
int queue_poll(struct queue *queue, struct completion *out, int max);
uint64_t clock_ns(clockid_t clock);

/* ---- what a context leads to ---- */

/* Where a packet is. */
enum pkt_place {
	PKT_FREE, /* to send: in the free list. To receive: held, because it could not be posted */
	PKT_USER,
	PKT_DEVICE,
};

/* How far the queue pairs have come. */
enum level { LEVEL_INIT, LEVEL_RECEIVES, LEVEL_SENDS, LEVEL_BROKEN };

/* Only one thread adds to a counter, others read it. */
static inline void counter_add(_Atomic uint64_t *counter, uint64_t number)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + number,
			      memory_order_relaxed);
}

struct flow_slot {
	bool used;
	struct hashpipe_ibv_rule rule;
	struct group group; /* none: its family is 0 */
};

/* Memory that is the library's: how to give it back. */
struct mapping {
	void *addr;
	size_t length;
};

/* What is known only here; hashpipe_ibv_context.qp points to its end. */
struct packets {
	pthread_mutex_t lock; /* guards the level's changes, the rules and the clock's reference */
	atomic_int level;     /* enum level */

	/* receiving: the receiving thread's */
	struct queue *recv;  /* [nqp] */
	uint8_t *recv_place; /* [recv_pkt_num * nqp], enum pkt_place */
	unsigned next_qp;    /* to be looked at */
	_Atomic uint64_t recv_pkts, recv_bytes, recv_errors, recv_lists, recv_sleeps;
	_Atomic uint64_t held, out;
	atomic_uint max_batch, busy_us;

	/* sending: the sending thread's */
	struct queue *send;
	uint8_t *send_place;
	uint64_t sends_posted, sends_done;
	_Atomic uint64_t send_pkts, send_bytes, send_errors;

	/* rules */
	struct flow_slot *slots; /* [max_flows] */
	struct group_sockets groups;

	uint64_t port_drops; /* the port's, at init */

	/* time stamps */
	uint64_t clock_khz;
	uint64_t reference_stamp, reference_ns; /* one moment, by both clocks */

	/* memory */
	bool user_managed; /* at init */
	bool huge_pages;
	struct mapping send_mapping, recv_mapping;
	struct ibv_mr **regions; /* beside recv_mr */
	uint32_t num_regions;

	uint32_t nqp;
	struct ibv_qp *qp[];
};

/* NULL, with errno: it is not initialised. */
static inline struct packets *packets_of(const struct hashpipe_ibv_context *context)
{
	if (!context || !context->qp) {
		errno = EINVAL;
		return NULL;
	}
	return container_of(context->qp, struct packets, qp);
}

static inline uint32_t packets_total(uint32_t per_qp, const struct packets *packets)
{
	return per_qp * packets->nqp;
}

/* Bring the queue pairs to @level at least. 0, or -EPROTO if they are broken. */
int packets_raise(struct packets *packets, enum level level);
/* A request of @qp has failed: was it the end of the queue pair? */
void packets_check(struct packets *packets, struct ibv_qp *qp);

/* ---- device.c ---- */

struct found_device {
	struct ibv_context *verbs;
	struct ibv_device_attr attr;
	uint8_t port;
};

/*
 * Open the device number @skip of those that have @interface_id, real ones first. @ifindex: of
 * several interfaces with the same MAC it is this one; 0: any. -ENODEV; *@failures counts devices
 * that could not be asked.
 */
int device_open(uint64_t interface_id, unsigned ifindex, unsigned skip, struct found_device *out,
		int *failures);
/* Does @error of a call say that the device has no raw packets? */
bool device_lacks_packets(int error);

/* ---- memory.c ---- */

/* Check what the user has set, or make packets and memory. */
int memory_prepare(struct hashpipe_ibv_context *context, struct packets *packets);
int memory_register(struct hashpipe_ibv_context *context, struct packets *packets,
		    const struct hashpipe_ibv_options *options);
/* Number and link the packets, fill in keys. Needs registered memory. */
int memory_link(struct hashpipe_ibv_context *context, struct packets *packets);
/* How many pieces a packet has at most. */
uint32_t memory_max_send_sge(const struct hashpipe_ibv_context *context,
			     const struct packets *packets);
uint32_t memory_max_recv_sge(const struct hashpipe_ibv_context *context,
			     const struct packets *packets);
/* Both return the number of failures. */
int memory_deregister(struct hashpipe_ibv_context *context, struct packets *packets);
int memory_free(struct hashpipe_ibv_context *context, struct packets *packets);

/* ---- receive.c and send.c ---- */

/* Post every receive, for the first time. */
int receive_post_all(struct hashpipe_ibv_context *context, struct packets *packets);
/* Take every completed send back. */
void send_reap(struct hashpipe_ibv_context *context, struct packets *packets);
/* Wait for what is being sent, for a bounded time. */
void send_drain(struct hashpipe_ibv_context *context, struct packets *packets);

/* ---- stats.c ---- */

/* Packets that the device's port had no receive for, as hardware counts them; 0: it does not. */
uint64_t stats_port_drops(const struct hashpipe_ibv_context *context);

/* ---- flow.c ---- */

/* Remove every rule. How many could not be. */
int flow_remove_all(struct hashpipe_ibv_context *context, struct packets *packets);

#endif
