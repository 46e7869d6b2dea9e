/* SPDX-License-Identifier: MIT */
/*
 * iwarp: one-sided access made simple. Connections, buffers that are registered and advertised,
 * sends, RDMA writes and reads, over InfiniBand, RoCE and iWARP, and over TCP where a machine has
 * no RDMA device.
 *
 * The rules, in short:
 *  1. A call returns 0, or -1 with errno; iw_error_text says more.
 *  2. Objects are the application's (iwarp_objs.h). A context is made by iw_ctx_alloc, iw_open or
 *     iw_listen, and given back by iw_disconnect, iw_await_disconnect, iw_reject, iw_close or
 *     iw_ctx_free. Regions outlive it, until iw_lmr_destroy.
 *  3. What a post uses stays as it is until it has completed. Of sends, writes and reads those with
 *     IBV_SEND_SIGNALED give a completion, and all that fail; of receives all do.
 *  4. Any thread may use any context. But what makes, connects or gives back a context is alone
 * with it; and threads that share one agree on who waits for what, and cannot tell whose last_wr_id
 * is.
 */
#ifndef IWARP_H
#define IWARP_H

#include <iwarp_objs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- connections: the initiator ---- */

/*
 * Find the way to a host, by name or address, and make what a connection needs: @qp_capacity
 * requests outstanding in each direction, in @shared_pd, or NULL for a protection domain of its
 * own.
 */
int iw_ctx_alloc(const char *remote_addr, int remote_port, int qp_capacity,
		 struct ibv_pd *shared_pd, struct iw_ctx_conn *iw_ctx);
/* Connect; returns when the peer has accepted. If it fails the context is left to iw_ctx_free. */
int iw_connect(const void *priv_data, size_t priv_data_len, struct iw_ctx_conn *iw_ctx);

/* ---- connections: the responder ---- */

/* @listen_addr NULL or "*": every address. */
int iw_open(const char *listen_addr, int listen_port, int backlog,
	    struct iw_ctx_conn *listen_iw_ctx);
/* Wait for a request, and make what its connection needs. Any number of clients, a context each. */
int iw_listen(struct iw_ctx_conn *listen_iw_ctx, struct iw_ctx_conn *cli_iw_ctx);
/* The same for at most @timeout_ms; -1: no limit. */
int iw_listen_timeout(struct iw_ctx_conn *listen_iw_ctx, struct iw_ctx_conn *cli_iw_ctx,
		      int timeout_ms);
/* For the clients to come: what the initiator says in iw_ctx_alloc. 0, NULL: as if not told. */
int iw_set_client_options(struct iw_ctx_conn *listen_iw_ctx, int qp_capacity,
			  struct ibv_pd *shared_pd);
/* One of the two. If accept fails the context is left to iw_ctx_free; reject gives it back. */
int iw_accept(const void *priv_data, size_t priv_data_len, struct iw_ctx_conn *cli_iw_ctx);
int iw_reject(const void *priv_data, size_t priv_data_len, struct iw_ctx_conn *cli_iw_ctx);
/* End a listener. Its clients stay. */
int iw_close(struct iw_ctx_conn *listen_iw_ctx);

/* ---- connections: both ---- */

/*
 * What the peer passed to iw_connect, iw_accept or iw_reject. Returns its length; copies at most
 * @size.
 */
size_t iw_peer_data(const struct iw_ctx_conn *iw_ctx, void *out, size_t size);
int iw_peer_address(const struct iw_ctx_conn *iw_ctx, struct sockaddr_storage *out);
int iw_local_address(const struct iw_ctx_conn *iw_ctx, struct sockaddr_storage *out);

/* End the connection when all that was posted has left; the context is given back. */
int iw_disconnect(struct iw_ctx_conn *iw_ctx);
/* Wait until the peer, or a failure, has ended it; the context is given back. */
int iw_await_disconnect(struct iw_ctx_conn *iw_ctx);
/* Give back a context in any state, at once. Harmless for one that was given back. */
int iw_ctx_free(struct iw_ctx_conn *iw_ctx);

/* ---- buffers ---- */

/* @access_flags: of IBV_ACCESS_*. The memory of create is zeroed, and free() frees it. */
int iw_lmr_create(size_t length, int access_flags, struct iw_lmr *iw_lmr_out,
		  struct iw_ctx_conn *iw_ctx);
int iw_lmr_register(void *addr, size_t length, int access_flags, struct iw_lmr *iw_lmr_out,
		    struct iw_ctx_conn *iw_ctx);
int iw_lmr_destroy(struct iw_lmr *iw_lmr, int free_buf_flag);

/* Tell the peer of a buffer that it may read or write, as its access flags say. */
int iw_post_send_adv(struct iw_lmr *iw_lmr, struct iw_ctx_conn *iw_ctx);
/* A receive for one advertisement: in the order of posting with all other receives. */
int iw_post_recv_adv(struct iw_ctx_conn *iw_ctx);
/* Wait for the next advertisement. */
int iw_wait_recv_adv(struct iw_rmr *iw_rmr_out, struct iw_ctx_conn *iw_ctx);
int iw_wait_recv_adv_timeout(struct iw_rmr *iw_rmr_out, int timeout_ms, struct iw_ctx_conn *iw_ctx);

/* An empty list, and one more piece in it. */
void iw_sgl_init(struct iw_sgl *iw_sgl);
int iw_sgl_add(struct iw_sgl *iw_sgl, struct iw_lmr *iw_lmr, size_t offset, size_t length);

/* ---- operations ---- */

/*
 * All return as soon as the request is posted; one of the second half waits for room if the queue
 * is full. @send_flags: of IBV_SEND_SIGNALED, _FENCE, _SOLICITED and _INLINE. Writes and reads may
 * be longer than the device's longest message, and have any number of pieces.
 */
int post_recv_sgl(const struct iw_sgl *iw_sgl_dst, struct iw_ctx_conn *iw_ctx);
int post_recv_lmr(struct iw_lmr *iw_lmr_dst, size_t offset, size_t length,
		  struct iw_ctx_conn *iw_ctx);

int post_send_sgl(const struct iw_sgl *iw_sgl_src, int send_flags, struct iw_ctx_conn *iw_ctx);
int post_send_lmr(struct iw_lmr *iw_lmr_src, size_t offset, size_t length, int send_flags,
		  struct iw_ctx_conn *iw_ctx);

int post_write_sgl(const struct iw_sgl *iw_sgl_src, const struct iw_rmr *iw_rmr_dst,
		   uint64_t offset_dst, int send_flags, struct iw_ctx_conn *iw_ctx);
int post_write_lmr(struct iw_lmr *iw_lmr_src, size_t offset_src, const struct iw_rmr *iw_rmr_dst,
		   uint64_t offset_dst, size_t length, int send_flags, struct iw_ctx_conn *iw_ctx);

int post_read_sgl(const struct iw_sgl *iw_sgl_dst, const struct iw_rmr *iw_rmr_src,
		  uint64_t offset_src, int send_flags, struct iw_ctx_conn *iw_ctx);
int post_read_lmr(struct iw_lmr *iw_lmr_dst, size_t offset_dst, const struct iw_rmr *iw_rmr_src,
		  uint64_t offset_src, size_t length, int send_flags, struct iw_ctx_conn *iw_ctx);

/*
 * Wait for @num_wcs completions. 0: all have come, and all are well. -1: one has failed, or the
 * connection ended; num_wcs of the context says how many were given, the last may be the one that
 * failed. After ETIMEDOUT and EINTR none was given, and none is lost.
 */
int await_completions(enum iw_cq_type cq_type, int num_wcs, struct ibv_wc *wc_list_out,
		      struct iw_ctx_conn *iw_ctx);
int await_completions_timeout(enum iw_cq_type cq_type, int num_wcs, struct ibv_wc *wc_list_out,
			      int timeout_ms, struct iw_ctx_conn *iw_ctx);
/* Look for this long before sleeping: lower latency for CPU time. 20 unless told; 0: sleep at once.
 */
int iw_set_busy_poll(unsigned microseconds, struct iw_ctx_conn *iw_ctx);

/* Why the last call that failed in this thread did so; "" if none has. */
const char *iw_error_text(void);

#ifdef __cplusplus
}
#endif

#endif
