/* SPDX-License-Identifier: MIT */
/* The calls that libiwarp makes: into libc, and into verbs and the CM. */
#include <netdb.h>
#include <poll.h>
#include <pthread.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* Name, and what it fails with. */
#define CALLS(X)                                                                                   \
	X(calloc, ENOMEM)                                                                          \
	X(posix_memalign, ENOMEM)                                                                  \
	X(poll, EINTR)                                                                             \
	X(eventfd, EMFILE)                                                                         \
	X(fcntl, EAGAIN)                                                                           \
	X(getaddrinfo, EAI_MEMORY)                                                                 \
	X(softrdma_ibv_alloc_pd, ENOMEM)                                                           \
	X(softrdma_ibv_create_comp_channel, EMFILE)                                                \
	X(softrdma_ibv_create_cq, ENOMEM)                                                          \
	X(softrdma_ibv_get_cq_event, EAGAIN)                                                       \
	X(softrdma_ibv_query_device, ENOMEM)                                                       \
	X(softrdma_ibv_reg_mr, ENOMEM)                                                             \
	X(softrdma_ibv_reg_mr_iova2, ENOMEM)                                                       \
	X(softrdma_rdma_accept, ENOMEM)                                                            \
	X(softrdma_rdma_bind_addr, EADDRINUSE)                                                     \
	X(softrdma_rdma_connect, ENOMEM)                                                           \
	X(softrdma_rdma_create_event_channel, ENODEV)                                              \
	X(softrdma_rdma_create_id, ENOMEM)                                                         \
	X(softrdma_rdma_create_qp, ENOMEM)                                                         \
	X(softrdma_rdma_get_cm_event, EAGAIN)                                                      \
	X(softrdma_rdma_listen, EADDRINUSE)                                                        \
	X(softrdma_rdma_migrate_id, ENOMEM)                                                        \
	X(softrdma_rdma_resolve_addr, ENODEV)                                                      \
	X(softrdma_rdma_resolve_route, EHOSTUNREACH)                                               \
	X(post_send, ENOMEM)                                                                       \
	X(post_recv, ENOMEM)                                                                       \
	X(req_notify_cq, ENOMEM)

#include "fail.h"

WRAP(void *, calloc, NULL, (size_t count, size_t size), (count, size))
WRAP(int, posix_memalign, errno, (void **out, size_t alignment, size_t size),
     (out, alignment, size))
WRAP(int, poll, -1, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
WRAP(int, eventfd, -1, (unsigned value, int flags), (value, flags))
WRAP(int, fcntl, -1, (int fd, int command, long argument), (fd, command, argument))
WRAP(int, getaddrinfo, errno,
     (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res),
     (node, service, hints, res))
WRAP(struct ibv_pd *, softrdma_ibv_alloc_pd, NULL, (struct ibv_context * context), (context))
WRAP(struct ibv_comp_channel *, softrdma_ibv_create_comp_channel, NULL,
     (struct ibv_context * context), (context))
WRAP(struct ibv_cq *, softrdma_ibv_create_cq, NULL,
     (struct ibv_context * context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
      int vector),
     (context, cqe, cq_context, channel, vector))
WRAP(int, softrdma_ibv_get_cq_event, -1,
     (struct ibv_comp_channel * channel, struct ibv_cq **cq, void **context),
     (channel, cq, context))
WRAP(struct ibv_mr *, softrdma_ibv_reg_mr, NULL,
     (struct ibv_pd * pd, void *addr, size_t len, int access), (pd, addr, len, access))
WRAP(struct ibv_mr *, softrdma_ibv_reg_mr_iova2, NULL,
     (struct ibv_pd * pd, void *addr, size_t len, uint64_t iova, unsigned access),
     (pd, addr, len, iova, access))
WRAP(int, softrdma_rdma_accept, -1, (struct rdma_cm_id * id, struct rdma_conn_param *param),
     (id, param))
WRAP(int, softrdma_rdma_bind_addr, -1, (struct rdma_cm_id * id, struct sockaddr *addr), (id, addr))
WRAP(int, softrdma_rdma_connect, -1, (struct rdma_cm_id * id, struct rdma_conn_param *param),
     (id, param))
WRAP(struct rdma_event_channel *, softrdma_rdma_create_event_channel, NULL, (void), ())
WRAP(int, softrdma_rdma_create_id, -1,
     (struct rdma_event_channel * channel, struct rdma_cm_id **id, void *context,
      enum rdma_port_space space),
     (channel, id, context, space))
WRAP(int, softrdma_rdma_create_qp, -1,
     (struct rdma_cm_id * id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr), (id, pd, attr))
WRAP(int, softrdma_rdma_get_cm_event, -1,
     (struct rdma_event_channel * channel, struct rdma_cm_event **event), (channel, event))
WRAP(int, softrdma_rdma_listen, -1, (struct rdma_cm_id * id, int backlog), (id, backlog))
WRAP(int, softrdma_rdma_migrate_id, -1,
     (struct rdma_cm_id * id, struct rdma_event_channel *channel), (id, channel))
WRAP(int, softrdma_rdma_resolve_addr, -1,
     (struct rdma_cm_id * id, struct sockaddr *from, struct sockaddr *to, int ms),
     (id, from, to, ms))
WRAP(int, softrdma_rdma_resolve_route, -1, (struct rdma_cm_id * id, int ms), (id, ms))

/* ---- what is called through the context, which the library has seen first when it asks what it is ---- */

static struct ibv_context_ops real_ops;
static pthread_once_t ops_once = PTHREAD_ONCE_INIT;
static struct ibv_context *first_context;

static int failing_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	if (!fails(CALL_post_send))
		return real_ops.post_send(qp, wr, bad);
	*bad = wr;
	return errno;
}

static int failing_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (!fails(CALL_post_recv))
		return real_ops.post_recv(qp, wr, bad);
	*bad = wr;
	return errno;
}

static int failing_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return fails(CALL_req_notify_cq) ? errno : real_ops.req_notify_cq(cq, solicited_only);
}

/* Both threads of the program come here; all is on one device. */
static void replace_ops(void)
{
	real_ops = first_context->ops;
	first_context->ops.post_send = failing_post_send;
	first_context->ops.post_recv = failing_post_recv;
	first_context->ops.req_notify_cq = failing_req_notify_cq;
}

int __real_softrdma_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int __wrap_softrdma_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int __wrap_softrdma_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	first_context = context;
	pthread_once(&ops_once, replace_ops);
	if (fails(CALL_softrdma_ibv_query_device))
		return errno;
	return __real_softrdma_ibv_query_device(context, attr);
}
