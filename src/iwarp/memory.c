/* SPDX-License-Identifier: MIT */
/* Local buffers and their registration, and lists of pieces of them. */
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"

#define REMOTE_CHANGE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* ---- regions ---- */

static int check_access(int access)
{
	if (access & REMOTE_CHANGE && !(access & IBV_ACCESS_LOCAL_WRITE))
		return error_say(EINVAL, "a buffer that the peer may write needs "
					 "IBV_ACCESS_LOCAL_WRITE too");
	return 0;
}

static struct ibv_mr *register_memory(struct domain *domain, void *addr, size_t length, int access,
				      int *error)
{
	struct ibv_mr *mr = ibv_reg_mr(domain->pd, addr, length, access);

	if (!mr)
		*error =
			error_say(errno, "cannot register %zu bytes: %s%s", length, strerror(errno),
				  errno == ENOMEM ? "; the limit for locked memory is the usual "
						    "cause: ulimit -l"
						  : "");
	return mr;
}

static int lmr_register(struct conn *conn, void *addr, size_t length, int access,
			struct iw_lmr *out)
{
	struct ibv_mr *mr;
	int error = check_access(access);

	if (error)
		return error;
	mr = register_memory(conn->domain, addr, length, access, &error);
	if (!mr)
		return error;
	domain_hold(conn->domain);
	*out = (struct iw_lmr){.addr = addr, .length = length, .access_flags = access, .mr = mr};
	out->private_[0] = conn->domain;
	return 0;
}

int iw_lmr_register(void *addr, size_t length, int access_flags, struct iw_lmr *iw_lmr_out,
		    struct iw_ctx_conn *iw_ctx)
{
	struct conn *conn;
	int error = conn_of(iw_ctx, &conn);

	if (!error && (!addr || !length || !iw_lmr_out))
		error = error_say(EINVAL, "a buffer needs an address and a length");
	if (!error)
		error = lmr_register(conn, addr, length, access_flags, iw_lmr_out);
	return error_return(error);
}

/* Zeroed, because a peer may come to read it. */
static int allocate(size_t length, void **out)
{
	void *memory;
	int error = posix_memalign(&memory, (size_t)sysconf(_SC_PAGESIZE), length);

	if (error)
		return error_say(error, "no memory for %zu bytes", length);
	memset(memory, 0, length);
	*out = memory;
	return 0;
}

int iw_lmr_create(size_t length, int access_flags, struct iw_lmr *iw_lmr_out,
		  struct iw_ctx_conn *iw_ctx)
{
	struct conn *conn;
	void *memory;
	int error = conn_of(iw_ctx, &conn);

	if (!error && (!length || !iw_lmr_out))
		error = error_say(EINVAL, "a buffer needs a length");
	if (!error)
		error = allocate(length, &memory);
	if (error)
		return error_return(error);
	error = lmr_register(conn, memory, length, access_flags, iw_lmr_out);
	if (error)
		free(memory);
	return error_return(error);
}

int iw_lmr_destroy(struct iw_lmr *iw_lmr, int free_buf_flag)
{
	struct ibv_mr *sink;
	int error;

	if (!iw_lmr || !iw_lmr->mr)
		return error_return(error_say(EINVAL, "this is not a registered buffer"));
	sink = iw_lmr->private_[1];
	if (sink && (error = ibv_dereg_mr(sink)))
		return error_return(error_of(error, "cannot deregister"));
	iw_lmr->private_[1] = NULL;
	error = ibv_dereg_mr(iw_lmr->mr);
	if (error)
		return error_return(error_of(error, "cannot deregister"));
	domain_put(iw_lmr->private_[0]);
	if (free_buf_flag)
		free(iw_lmr->addr);
	memset(iw_lmr, 0, sizeof(*iw_lmr));
	return 0;
}

/*
 * iWARP writes what was read by means of the sink's key, which the peer gets to know. So such a
 * region is one of its own: the key that is advertised has the rights that were asked for.
 */
int lmr_find_sink(struct iw_lmr *lmr, uint32_t *lkey)
{
	struct domain *domain = lmr->private_[0];
	struct ibv_mr *sink =
		__atomic_load_n((struct ibv_mr **)&lmr->private_[1], __ATOMIC_ACQUIRE);
	int error = 0;

	if (sink) {
		*lkey = sink->lkey;
		return 0;
	}
	/* Two connections in one domain may read into it for the first time at once. */
	pthread_mutex_lock(&domain->sink_lock);
	sink = lmr->private_[1];
	if (!sink)
		sink = register_memory(domain, lmr->addr, lmr->length,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &error);
	if (sink) {
		__atomic_store_n((struct ibv_mr **)&lmr->private_[1], sink, __ATOMIC_RELEASE);
		*lkey = sink->lkey;
	}
	pthread_mutex_unlock(&domain->sink_lock);
	return error;
}

/* ---- lists ---- */

void iw_sgl_init(struct iw_sgl *iw_sgl)
{
	iw_sgl->num_sge = 0;
}

int iw_sgl_add(struct iw_sgl *iw_sgl, struct iw_lmr *iw_lmr, size_t offset, size_t length)
{
	struct iw_sge piece = {iw_lmr, offset, length};
	int error;

	if (!iw_sgl)
		return error_return(error_say(EINVAL, "there is no list"));
	if (iw_sgl->num_sge >= IW_MAX_SGE)
		return error_return(error_say(E2BIG, "a list has %d pieces at most", IW_MAX_SGE));
	error = sge_check(&piece);
	if (error)
		return error_return(error);
	iw_sgl->sge[iw_sgl->num_sge++] = piece;
	return 0;
}

int sge_check(const struct iw_sge *piece)
{
	const struct iw_lmr *lmr = piece->lmr;

	if (!lmr || !lmr->mr)
		return error_say(EINVAL, "this is not a registered buffer");
	if (piece->offset > lmr->length || piece->length > lmr->length - piece->offset)
		return error_say(EINVAL, "%zu bytes at %zu are not within a buffer of %zu",
				 piece->length, piece->offset, lmr->length);
	return 0;
}
