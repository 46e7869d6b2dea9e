/* SPDX-License-Identifier: MIT */
/*
 * Raw Ethernet packets with flow rules, over verbs: hashpipe_ibverbs(3).
 *
 * A context has packets to send and packets to receive. To send: get packets, fill them, set
 * their lengths, send them. To receive: set flow rules, receive packets, release them. A packet
 * that was handed back to the library, by whatever call and with whatever result, is the library's.
 *
 * One thread may receive and another one send at the same time; rules may be set by any thread.
 */
#ifndef HASHPIPE_IBVERBS_H
#define HASHPIPE_IBVERBS_H

#include <net/if.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A packet to send. Its length is wr.sg_list->length, its place in send_pkt_buf is wr.wr_id. */
struct hashpipe_ibv_send_pkt {
	struct ibv_send_wr wr;
	uint64_t timestamp; /* of its completion; see hashpipe_ibv_timestamp_ns */
};

/* A packet received. Its place in recv_pkt_buf is wr.wr_id. */
struct hashpipe_ibv_recv_pkt {
	struct ibv_recv_wr wr;
	uint32_t length;    /* of the frame, without FCS; 0: the receive has failed */
	uint64_t timestamp; /* of its arrival; see hashpipe_ibv_timestamp_ns */
};

/* The attributes of a flow with three specifications, for users of ibv_create_flow. */
struct hashpipe_ibv_flow {
	struct ibv_flow_attr attr;
	struct ibv_flow_spec_eth spec_eth;
	struct ibv_flow_spec_ipv4 spec_ipv4;
	struct ibv_flow_spec_tcp_udp spec_tcp_udp;
} __attribute__((packed));

/*
 * (L) is set by the library, (U) by the user before hashpipe_ibv_init, (B) by the user if
 * user_managed_flag is set, by the library otherwise. Set everything else to 0.
 */
struct hashpipe_ibv_context {
	struct ibv_context *ctx;                     /* L */
	struct ibv_pd *pd;                           /* L */
	struct ibv_comp_channel *send_cc;            /* L: NULL */
	struct ibv_comp_channel *recv_cc;            /* L: its descriptor can be polled */
	struct ibv_cq **send_cq;                     /* L: [nqp] */
	struct ibv_cq **recv_cq;                     /* L: [nqp] */
	struct ibv_qp **qp;                          /* L: [nqp] */
	struct ibv_device_attr dev_attr;             /* L */
	uint32_t nqp;                                /* U: 0 means 1 */
	uint8_t port_num;                            /* L */
	uint8_t mac[6];                              /* L: of the interface */
	uint64_t interface_id;                       /* L: of the MAC, modified EUI-64 */
	struct hashpipe_ibv_send_pkt *send_pkt_buf;  /* B: [send_pkt_num * nqp] */
	struct hashpipe_ibv_recv_pkt *recv_pkt_buf;  /* B: [recv_pkt_num * nqp] */
	struct hashpipe_ibv_send_pkt *send_pkt_head; /* L: packets that are free */
	struct ibv_sge *send_sge_buf;                /* B: of all packets, in order */
	struct ibv_sge *recv_sge_buf;                /* B */
	uint8_t *send_mr_buf;                        /* B: the packets' memory */
	uint8_t *recv_mr_buf;                        /* B */
	size_t send_mr_size;                         /* B */
	size_t recv_mr_size;                         /* B */
	struct ibv_mr *send_mr;                      /* L */
	struct ibv_mr *recv_mr;                      /* L */
	uint32_t send_pkt_num;                       /* U: per QP; 0 means the device's maximum */
	uint32_t recv_pkt_num;                       /* U: likewise */
	uint32_t pkt_size_max;                       /* U: bytes per packet */
	int user_managed_flag;                       /* U */
	uint32_t max_flows;                          /* U: 0 means 1 */
	struct ibv_flow **ibv_flows;                 /* L: [nqp * max_flows] */
	uint32_t *flow_dst_ips;                      /* L: [max_flows], multicast groups */
	int mcast_subscriber;                        /* L: the socket that joins groups */
	char interface_name[IFNAMSIZ];               /* U */
};

/* ---- interfaces and devices ---- */

/*
 * The interface's MAC and the interface id that is made from it; either may be NULL. Returns 0, or
 * with errno 1 (no name), 2 (no socket) or 3 (no such interface).
 */
int hashpipe_ibv_get_interface_info(const char *interface_name, uint8_t *mac,
				    uint64_t *interface_id);

/*
 * Open the device that has @interface_id and offers raw packets. With @found_ctx NULL it is closed
 * again; the others may be NULL, too. Returns 0, 1 if there is none, 1 + the number of devices that
 * could not be asked if there were such; errno is ENODEV then.
 */
int hashpipe_ibv_open_device_for_interface_id(uint64_t interface_id, struct ibv_context **found_ctx,
					      struct ibv_device_attr *found_dev_attr,
					      uint8_t *found_port);

/* The most packets that a queue of the interface's device can have; -1 with errno. */
int hashpipe_ibv_query_max_wr(const char *interface_name);

/* ---- contexts ---- */

/* Returns 0; -1 if @hibv_ctx is NULL and 1 otherwise, with errno, and nothing is left behind. */
int hashpipe_ibv_init(struct hashpipe_ibv_context *hibv_ctx);

/*
 * Waits for packets that are being sent, for a second at most, and gives everything back. Returns
 * the number of steps that have failed, -1 if @hibv_ctx is NULL. Again does nothing, and returns 0.
 */
int hashpipe_ibv_shutdown(struct hashpipe_ibv_context *hibv_ctx);

struct hashpipe_ibv_region {
	void *addr;
	size_t length;
};

enum hashpipe_ibv_option_flags {
	HASHPIPE_IBV_HUGE_PAGES = 1, /* for the library's buffers, where the system has some */
};

struct hashpipe_ibv_options {
	uint32_t size;  /* sizeof(struct hashpipe_ibv_options) */
	uint32_t flags; /* enum hashpipe_ibv_option_flags */
	/* Memory for received packets beside recv_mr_buf, if it is user-managed. */
	const struct hashpipe_ibv_region *regions;
	uint32_t num_regions;
	uint32_t reserved;
};

/* As hashpipe_ibv_init, with options; NULL: none. */
int hashpipe_ibv_init_with(struct hashpipe_ibv_context *hibv_ctx,
			   const struct hashpipe_ibv_options *options);

/*
 * The key for @length bytes at @addr, for whoever writes an address of another region into a
 * packet's sg_list. Returns 0, or 1 with errno.
 */
int hashpipe_ibv_get_lkey(struct hashpipe_ibv_context *hibv_ctx, const void *addr, size_t length,
			  uint32_t *lkey);

/* ---- flow rules ---- */

/*
 * Set the rule @flow_idx: packets that have all of these are received, and taken away from the
 * kernel. NULL and 0 match anything. Numbers are in host order, MACs as on the wire. Without a
 * @dst_mac it is the interface's; with a multicast @dst_ip it is the group's, and the group is
 * joined. Without any criterion the rule is removed. Returns 0, or 1 with errno, and the rule is
 * what it was.
 */
#ifdef __cplusplus
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* a struct has the same name */
#endif
int hashpipe_ibv_flow(struct hashpipe_ibv_context *hibv_ctx, uint32_t flow_idx,
		      enum ibv_flow_spec_type flow_type, uint8_t *dst_mac, uint8_t *src_mac,
		      uint16_t ether_type, uint16_t vlan_tag, uint32_t src_ip, uint32_t dst_ip,
		      uint16_t src_port, uint16_t dst_port);
#ifdef __cplusplus
#pragma GCC diagnostic pop
#endif

/* What of a rule is to be matched. A value of 0 is matched as any other. */
enum hashpipe_ibv_match {
	HASHPIPE_IBV_DST_MAC = 1 << 0,
	HASHPIPE_IBV_SRC_MAC = 1 << 1,
	HASHPIPE_IBV_ETHER_TYPE = 1 << 2,
	HASHPIPE_IBV_VLAN_ID = 1 << 3,  /* the low 12 bits of vlan */
	HASHPIPE_IBV_VLAN_TAG = 1 << 4, /* all of it: priority, too */
	HASHPIPE_IBV_SRC_IP = 1 << 5,
	HASHPIPE_IBV_DST_IP = 1 << 6,
	HASHPIPE_IBV_SRC_PORT = 1 << 7,
	HASHPIPE_IBV_DST_PORT = 1 << 8,
};

enum hashpipe_ibv_rule_flags {
	HASHPIPE_IBV_COPY = 1, /* the kernel gets the packets as well */
};

struct hashpipe_ibv_rule {
	uint32_t size;        /* sizeof(struct hashpipe_ibv_rule) */
	uint32_t flags;       /* enum hashpipe_ibv_rule_flags */
	uint32_t match;       /* enum hashpipe_ibv_match */
	uint16_t ip_version;  /* 0, 4 or 6; with 0 neither addresses nor ports are matched */
	uint16_t ip_protocol; /* 0, IPPROTO_TCP or IPPROTO_UDP; with 0 ports are not matched */
	uint8_t dst_mac[6];
	uint8_t src_mac[6];
	uint16_t ether_type; /* this and what follows is in host order */
	uint16_t vlan;
	uint16_t src_port;
	uint16_t dst_port;
	uint8_t src_ip[16]; /* network order; an IPv4 address is in the first four bytes */
	uint8_t dst_ip[16];
	uint8_t src_ip_bits; /* how many bits of it count; 0: all */
	uint8_t dst_ip_bits;
	uint8_t reserved[10];
};

/*
 * Set the rule @flow_idx; NULL: remove it. As hashpipe_ibv_flow, but only what @rule says is
 * matched: without a MAC every packet that the interface receives is looked at, and a rule that
 * matches nothing in particular is for all packets. Groups are joined, also with IPv6.
 */
int hashpipe_ibv_flow_rule(struct hashpipe_ibv_context *hibv_ctx, uint32_t flow_idx,
			   const struct hashpipe_ibv_rule *rule);

/* ---- receiving ---- */

/*
 * Packets that have arrived, linked by wr.next; waits for @timeout_ms for the first of them, for
 * ever if it is negative. NULL when time is over, errno is not touched then; or with errno, EINTR
 * after a signal. All packets of a list are of one QP.
 */
struct hashpipe_ibv_recv_pkt *hashpipe_ibv_recv_pkts(struct hashpipe_ibv_context *hibv_ctx,
						     int timeout_ms);

/*
 * The same without waiting and without a system call of its own: for a thread that does nothing
 * else. At most @max_pkts packets, 0: as many as are good at once.
 */
struct hashpipe_ibv_recv_pkt *hashpipe_ibv_poll_pkts(struct hashpipe_ibv_context *hibv_ctx,
						     uint32_t max_pkts);

/*
 * Give packets back, in any order, to be received into anew: at the addresses that their sg_lists
 * have now. Returns 0, -1 if @hibv_ctx is NULL, or an error number, also in errno: of the first
 * packet that could not be posted. The library tries it again when packets are released; the
 * caller may correct and release it again, too.
 */
int hashpipe_ibv_release_pkts(struct hashpipe_ibv_context *hibv_ctx,
			      struct hashpipe_ibv_recv_pkt *recv_pkt);

/* At most so many packets per hashpipe_ibv_recv_pkts; 0, as after init: the library decides. */
int hashpipe_ibv_set_max_batch(struct hashpipe_ibv_context *hibv_ctx, uint32_t max_pkts);

/* How long hashpipe_ibv_recv_pkts looks before it sleeps; 50 µs after init. */
int hashpipe_ibv_set_busy_poll(struct hashpipe_ibv_context *hibv_ctx, uint32_t microseconds);

/* ---- sending ---- */

/*
 * Up to @num_pkts packets that are free, linked by wr.next. NULL if there are none, errno is not
 * touched then; or with errno.
 */
struct hashpipe_ibv_send_pkt *hashpipe_ibv_get_pkts(struct hashpipe_ibv_context *hibv_ctx,
						    uint32_t num_pkts);

/*
 * Send packets, by one of the QPs. Returns 0, -1 for wrong arguments, or an error number, also in
 * errno: packets from that one on are not sent, and are free again.
 */
int hashpipe_ibv_send_pkts(struct hashpipe_ibv_context *hibv_ctx,
			   struct hashpipe_ibv_send_pkt *send_pkt, uint32_t qp_idx);

/* ---- what happened ---- */

struct hashpipe_ibv_stats {
	uint64_t recv_pkts, recv_bytes;
	uint64_t recv_errors; /* receives that have failed */
	uint64_t recv_lists;  /* lists that were handed out */
	uint64_t recv_sleeps; /* times that hashpipe_ibv_recv_pkts had to wait in the kernel */
	uint64_t send_pkts, send_bytes;
	uint64_t send_errors; /* sends that were not taken or have failed */
	uint64_t pkts_held;   /* receives that could not be posted, to be tried again */
	uint64_t pkts_out;    /* received packets that were not released yet */
	/* As the device counts them; on hardware for all users of its port together. */
	uint64_t recv_dropped;   /* packets that were not fetched in time */
	uint64_t recv_no_buffer; /* packets that found no receive posted */
};

/* @size: sizeof(*@stats). Returns 0, or -1 with errno. */
int hashpipe_ibv_get_stats(struct hashpipe_ibv_context *hibv_ctx, struct hashpipe_ibv_stats *stats,
			   size_t size);

/* Nanoseconds since 1970 of a packet's time stamp, which counts the device's clock. */
uint64_t hashpipe_ibv_timestamp_ns(struct hashpipe_ibv_context *hibv_ctx, uint64_t timestamp);

#ifdef __cplusplus
}
#endif

#endif
