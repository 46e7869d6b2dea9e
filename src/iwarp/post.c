/* SPDX-License-Identifier: MIT */
/* The operations: what they may be, and the requests that they make. */
#include "internal.h"

#define KNOWN_FLAGS (IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_SOLICITED | IBV_SEND_INLINE)

/* What is to be done; the place in @rmr only if it is one-sided. */
struct op {
	enum ibv_wr_opcode opcode;
	const struct iw_sgl *sgl;
	const struct iw_rmr *rmr;
	uint64_t offset;
	int flags;
	uint64_t total; /* bytes */
};

static void sgl_of_one(struct iw_sgl *sgl, struct iw_lmr *lmr, size_t offset, size_t length)
{
	sgl->num_sge = 1;
	sgl->sge[0] = (struct iw_sge){lmr, offset, length};
}

/* ---- checks ---- */

/* @needs: a right that the buffers must have. */
static int check_list(const struct conn *conn, const struct iw_sgl *sgl, int needs, uint64_t *total)
{
	if (!sgl || sgl->num_sge > IW_MAX_SGE)
		return error_say(EINVAL, "this is not a list");
	for (unsigned i = 0; i < sgl->num_sge; i++) {
		const struct iw_lmr *lmr = sgl->sge[i].lmr;
		int error = sge_check(&sgl->sge[i]);

		if (error)
			return error;
		if (lmr->private_[0] != conn->domain)
			return error_say(EINVAL, "the buffer was registered for another context, "
						 "whose protection domain is not shared");
		if ((lmr->access_flags & needs) != needs)
			return error_say(EACCES, "the buffer was registered without "
						 "IBV_ACCESS_LOCAL_WRITE");
	}
	if (!cut_total(sgl, total))
		return error_say(EINVAL, "the list is too long");
	return 0;
}

/* A message is one request: what the device takes of one is the limit. */
static int check_message(const struct conn *conn, const struct iw_sgl *sgl, uint64_t total)
{
	const char *device = ibv_get_device_name(conn->id->verbs->device);

	if (sgl->num_sge > conn->max_sge)
		return error_say(E2BIG, "a message of %u pieces: %s takes %u", sgl->num_sge, device,
				 conn->max_sge);
	if (total > conn->max_message)
		return error_say(EMSGSIZE, "a message of %llu bytes: %s takes %u",
				 (unsigned long long)total, device, conn->max_message);
	return 0;
}

static int check_remote(const struct op *op)
{
	bool is_read = op->opcode == IBV_WR_RDMA_READ;
	int needs = is_read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;

	if (!op->rmr)
		return error_say(EINVAL, "there is no remote buffer");
	if (op->offset > op->rmr->length || op->total > op->rmr->length - op->offset)
		return error_say(EINVAL, "%llu bytes at %llu are not within the advertised %llu",
				 (unsigned long long)op->total, (unsigned long long)op->offset,
				 (unsigned long long)op->rmr->length);
	if (!(op->rmr->access_flags & needs))
		return error_say(EACCES, "the remote buffer was not advertised for %s",
				 is_read ? "reading" : "writing");
	return 0;
}

static int check_flags(const struct conn *conn, const struct op *op)
{
	if (op->flags & ~KNOWN_FLAGS)
		return error_say(EINVAL, "unknown flags 0x%x",
				 (unsigned)(op->flags & ~KNOWN_FLAGS));
	if (op->flags & IBV_SEND_INLINE &&
	    (op->opcode == IBV_WR_RDMA_READ || op->total > conn->max_inline))
		return error_say(EINVAL, "%u bytes at most can be sent inline", conn->max_inline);
	return 0;
}

static int check_op(const struct conn *conn, struct op *op)
{
	bool is_read = op->opcode == IBV_WR_RDMA_READ;
	int error = check_list(conn, op->sgl, is_read ? IBV_ACCESS_LOCAL_WRITE : 0, &op->total);

	if (!error)
		error = op->opcode == IBV_WR_SEND ? check_message(conn, op->sgl, op->total)
						  : check_remote(op);
	return error ? error : check_flags(conn, op);
}

/* ---- requests ---- */

static int find_key(const struct conn *conn, enum ibv_wr_opcode opcode, struct iw_lmr *lmr,
		    uint32_t *lkey)
{
	*lkey = lmr->mr->lkey;
	if (opcode != IBV_WR_RDMA_READ || !conn->is_iwarp ||
	    lmr->access_flags & IBV_ACCESS_REMOTE_WRITE)
		return 0;
	return lmr_find_sink(lmr, lkey);
}

/* The device's pieces for the parts of a request. */
static int fill_pieces(const struct conn *conn, const struct op *op, const struct cut_part *parts,
		       unsigned count, struct ibv_sge *out)
{
	for (unsigned i = 0; i < count; i++) {
		const struct iw_sge *piece = &op->sgl->sge[parts[i].piece];
		int error = find_key(conn, op->opcode, piece->lmr, &out[i].lkey);

		if (error)
			return error;
		out[i].addr = (uintptr_t)piece->lmr->addr + piece->offset + parts[i].at;
		out[i].length = parts[i].length;
	}
	return 0;
}

/* Devices want a place even for a read of nothing. */
static unsigned add_empty_piece(const struct op *op, unsigned count, struct cut_part *parts)
{
	if (count || op->opcode != IBV_WR_RDMA_READ || !op->sgl->num_sge)
		return count;
	parts[0] = (struct cut_part){0};
	return 1;
}

static struct cut_limits limits_of(const struct conn *conn, const struct op *op)
{
	bool is_read = op->opcode == IBV_WR_RDMA_READ;

	return (struct cut_limits){
		.pieces = is_read ? conn->max_read_sge : conn->max_sge,
		.bytes = op->opcode == IBV_WR_SEND ? conn->max_message : conn->max_request,
	};
}

static unsigned request_flags(const struct conn *conn, const struct op *op)
{
	unsigned flags = (unsigned)op->flags & ~(unsigned)(IBV_SEND_SIGNALED | IBV_SEND_INLINE);

	if (op->opcode != IBV_WR_RDMA_READ && op->total && op->total <= conn->max_inline)
		flags |= IBV_SEND_INLINE;
	return flags;
}

/* What @op does @done bytes from its begin, with the @parts; the last of its requests or not. */
static int post_request(struct conn *conn, const struct op *op, uint64_t done,
			const struct cut_part *parts, unsigned count, bool is_last,
			uint64_t *number)
{
	bool is_wanted = is_last && op->flags & IBV_SEND_SIGNALED;
	struct ibv_sge pieces[IW_MAX_SGE];
	struct ibv_send_wr wr = {
		.opcode = op->opcode,
		.send_flags = request_flags(conn, op) | (is_wanted ? IBV_SEND_SIGNALED : 0),
		.sg_list = pieces,
		.num_sge = (int)count,
	};
	int error = fill_pieces(conn, op, parts, count, pieces);

	if (error)
		return error;
	if (op->rmr) {
		wr.wr.rdma.remote_addr = op->rmr->addr + op->offset + done;
		wr.wr.rdma.rkey = op->rmr->rkey;
	}
	return sendq_post(conn, &wr, number, is_wanted ? SENT_WANTED : SENT_QUIET);
}

/* All requests of an operation but the last one are the library's own affair. */
static int post_cut(struct conn *conn, const struct op *op, const struct cut_limits *limits,
		    uint64_t *number)
{
	struct cut cut = {.sgl = op->sgl};
	uint64_t done = 0;
	bool is_last;

	do {
		struct cut_part parts[IW_MAX_SGE];
		uint32_t bytes;
		unsigned count = cut_next(&cut, limits, parts, &bytes);
		int error;

		is_last = cut_is_done(&cut);
		count = add_empty_piece(op, count, parts);
		error = post_request(conn, op, done, parts, count, is_last, number);
		if (error)
			return error;
		done += bytes;
	} while (!is_last);
	return 0;
}

/* Most have one piece, which needs no cutting. */
static int post_requests(struct conn *conn, const struct op *op, uint64_t *number)
{
	const struct cut_limits limits = limits_of(conn, op);
	const struct cut_part whole = {.length = (uint32_t)op->total};

	if (op->sgl->num_sge == 1 && op->total && op->total <= limits.bytes)
		return post_request(conn, op, 0, &whole, 1, true, number);
	return post_cut(conn, op, &limits, number);
}

static int post_op(struct op *op, struct iw_ctx_conn *ctx)
{
	uint64_t number = 0;
	struct conn *conn;
	int error = conn_of_open(ctx, &conn);

	if (!error)
		error = check_op(conn, op);
	if (error)
		return error_return(error);
	conn_lock(conn);
	error = post_requests(conn, op, &number);
	if (!error)
		ctx->last_wr_id = number;
	conn_unlock(conn);
	return error_return(error);
}

/* ---- the calls ---- */

static int post_recv(struct conn *conn, const struct iw_sgl *sgl, uint64_t *number)
{
	struct ibv_sge pieces[IW_MAX_SGE];
	int count = 0;
	uint64_t total;
	int error = check_list(conn, sgl, IBV_ACCESS_LOCAL_WRITE, &total);

	if (!error)
		error = check_message(conn, sgl, total);
	if (error)
		return error;
	for (unsigned i = 0; i < sgl->num_sge; i++) {
		const struct iw_sge *piece = &sgl->sge[i];

		if (piece->length)
			pieces[count++] = (struct ibv_sge){.addr = (uintptr_t)piece->lmr->addr +
								   piece->offset,
							   .length = (uint32_t)piece->length,
							   .lkey = piece->lmr->mr->lkey};
	}
	/* siw wants a place even for an empty message. */
	if (!count && conn->is_iwarp)
		pieces[count++] = (struct ibv_sge){.addr = (uintptr_t)conn->records,
						   .lkey = conn->records_mr->lkey};
	conn_lock(conn);
	error = recvq_post(conn, pieces, count, number);
	conn_unlock(conn);
	return error;
}

int post_recv_sgl(const struct iw_sgl *iw_sgl_dst, struct iw_ctx_conn *iw_ctx)
{
	struct conn *conn;
	int error = conn_of(iw_ctx, &conn);

	if (!error && conn->state == CONN_FAILED)
		error = error_say(ENOTCONN, "the context is not connected");
	if (!error)
		error = post_recv(conn, iw_sgl_dst, &iw_ctx->last_wr_id);
	return error_return(error);
}

int post_recv_lmr(struct iw_lmr *iw_lmr_dst, size_t offset, size_t length,
		  struct iw_ctx_conn *iw_ctx)
{
	struct iw_sgl sgl;

	sgl_of_one(&sgl, iw_lmr_dst, offset, length);
	return post_recv_sgl(&sgl, iw_ctx);
}

int post_send_sgl(const struct iw_sgl *iw_sgl_src, int send_flags, struct iw_ctx_conn *iw_ctx)
{
	struct op op = {.opcode = IBV_WR_SEND, .sgl = iw_sgl_src, .flags = send_flags};

	return post_op(&op, iw_ctx);
}

int post_send_lmr(struct iw_lmr *iw_lmr_src, size_t offset, size_t length, int send_flags,
		  struct iw_ctx_conn *iw_ctx)
{
	struct iw_sgl sgl;
	struct op op = {.opcode = IBV_WR_SEND, .sgl = &sgl, .flags = send_flags};

	sgl_of_one(&sgl, iw_lmr_src, offset, length);
	return post_op(&op, iw_ctx);
}

int post_write_sgl(const struct iw_sgl *iw_sgl_src, const struct iw_rmr *iw_rmr_dst,
		   uint64_t offset_dst, int send_flags, struct iw_ctx_conn *iw_ctx)
{
	struct op op = {.opcode = IBV_WR_RDMA_WRITE,
			.sgl = iw_sgl_src,
			.rmr = iw_rmr_dst,
			.offset = offset_dst,
			.flags = send_flags};

	return post_op(&op, iw_ctx);
}

int post_write_lmr(struct iw_lmr *iw_lmr_src, size_t offset_src, const struct iw_rmr *iw_rmr_dst,
		   uint64_t offset_dst, size_t length, int send_flags, struct iw_ctx_conn *iw_ctx)
{
	struct iw_sgl sgl;
	struct op op = {.opcode = IBV_WR_RDMA_WRITE,
			.sgl = &sgl,
			.rmr = iw_rmr_dst,
			.offset = offset_dst,
			.flags = send_flags};

	sgl_of_one(&sgl, iw_lmr_src, offset_src, length);
	return post_op(&op, iw_ctx);
}

int post_read_sgl(const struct iw_sgl *iw_sgl_dst, const struct iw_rmr *iw_rmr_src,
		  uint64_t offset_src, int send_flags, struct iw_ctx_conn *iw_ctx)
{
	struct op op = {.opcode = IBV_WR_RDMA_READ,
			.sgl = iw_sgl_dst,
			.rmr = iw_rmr_src,
			.offset = offset_src,
			.flags = send_flags};

	return post_op(&op, iw_ctx);
}

int post_read_lmr(struct iw_lmr *iw_lmr_dst, size_t offset_dst, const struct iw_rmr *iw_rmr_src,
		  uint64_t offset_src, size_t length, int send_flags, struct iw_ctx_conn *iw_ctx)
{
	struct iw_sgl sgl;
	struct op op = {.opcode = IBV_WR_RDMA_READ,
			.sgl = &sgl,
			.rmr = iw_rmr_src,
			.offset = offset_src,
			.flags = send_flags};

	sgl_of_one(&sgl, iw_lmr_dst, offset_dst, length);
	return post_op(&op, iw_ctx);
}
