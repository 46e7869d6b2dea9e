/* SPDX-License-Identifier: MIT */
/*
 * Every function that the library exports, called by a thread with a pending cancellation: it comes
 * back, or it is cancelled in a sleep, and no lock stays held. names.h says which functions there
 * are; one that is not called here fails the test.
 */
#include "pair.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/select.h>
#include <time.h>

#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#include "../../src/softrdma/interpose/names.h"

#define NUM_MRS 3
#define NUM_IDS 3

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned index,
		       unsigned *type);

static const char *const names[] = {
#define NAME(name, node) #name,
	SOFTRDMA_IBVERBS_NAMES(NAME) SOFTRDMA_RDMACM_NAMES(NAME)
#undef NAME
};

static bool used[ARRAY_SIZE(names)];
static const char *last_used; /* for the message if a thread does not come back */
static unsigned failed_line;
static int wanted_state; /* in which a scenario calls */

static void mark(const char *name)
{
	last_used = name;
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i], name))
			used[i] = true;
}

/* The function, and a note that it was called. */
#define USE(name) (mark(#name), name)

static bool state_is_kept(void)
{
	int found;

	pthread_setcancelstate(wanted_state, &found);
	return found == wanted_state;
}

/* What must hold; and the call has left the thread's state as it was. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition) || !state_is_kept()) {                                            \
			failed_line = __LINE__;                                                    \
			return;                                                                    \
		}                                                                                  \
	} while (0)

/* For calls that are cancellation points. */
#define DISABLED(call)                                                                             \
	({                                                                                         \
		int disabled_before;                                                               \
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &disabled_before);                  \
		__typeof__(call) disabled_result = (call);                                         \
		pthread_setcancelstate(disabled_before, NULL);                                     \
		disabled_result;                                                                   \
	})

static char memory[4096];
static const struct ibv_qp_cap small = {
	.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};

static struct ibv_context *open_loopback(void)
{
	struct ibv_device **list, *found = NULL;
	struct ibv_context *context;
	int num = 0;

	list = USE(ibv_get_device_list)(&num);
	for (int i = 0; i < num; i++)
		if (!strcmp(USE(ibv_get_device_name)(list[i]), "soft_lo"))
			found = list[i];
	context = found ? USE(ibv_open_device)(found) : NULL;
	if (list)
		USE(ibv_free_device_list)(list);
	return context;
}

/* ---- what must come back ---- */

static void use_devices(void)
{
	struct ibv_context *context = open_loopback(), **contexts;
	struct ibv_device_attr_ex extended;
	struct ibv_gid_entry entries[64];
	struct ibv_device_attr device = {0};
	struct ibv_port_attr port;
	union ibv_gid gid;
	unsigned type;
	__be16 pkey;
	int num;

	CHECK(context);
	CHECK(!USE(ibv_query_device)(context, &device));
	CHECK(!ibv_query_device_ex(context, NULL, &extended));
	CHECK(!USE(ibv_query_port)(context, 1, (struct _compat_ibv_port_attr *)&port));
	CHECK(!USE(ibv_query_gid)(context, 1, 0, &gid));
	CHECK(!USE(_ibv_query_gid_ex)(context, 1, 0, entries, 0, sizeof(*entries)));
	CHECK(USE(_ibv_query_gid_table)(context, entries, 64, 0, sizeof(*entries)) > 0);
	CHECK(!USE(ibv_query_gid_type)(context, 1, 0, &type));
	CHECK(!USE(ibv_query_pkey)(context, 1, 0, &pkey));
	CHECK(!USE(ibv_get_pkey_index)(context, 1, pkey));
	USE(ibv_get_device_guid)(context->device);
	CHECK(USE(ibv_get_device_index)(context->device) == -1);
	CHECK(!USE(ibv_import_device)(-1));
	CHECK(!USE(ibv_fork_init)());
	USE(ibv_is_fork_initialized)();
	CHECK(!USE(ibv_close_device)(context));
	contexts = USE(rdma_get_devices)(&num);
	CHECK(contexts);
	USE(rdma_free_devices)(contexts);
}

static void use_memory(void)
{
	struct ibv_context *context = open_loopback();
	struct ibv_dm dm = {.context = context};
	struct ibv_mr *mrs[NUM_MRS];
	struct ibv_pd *pd;

	CHECK(context);
	pd = USE(ibv_alloc_pd)(context);
	CHECK(pd);
	mrs[0] = USE(ibv_reg_mr)(pd, memory, sizeof(memory), ALL_ACCESS);
	mrs[1] = USE(ibv_reg_mr_iova)(pd, memory, sizeof(memory), 0, ALL_ACCESS);
	mrs[2] = USE(ibv_reg_mr_iova2)(pd, memory, sizeof(memory), 0, ALL_ACCESS);
	CHECK(mrs[0] && mrs[1] && mrs[2]);
	CHECK(!USE(ibv_reg_dmabuf_mr)(pd, 0, 1, 0, -1, 0));
	CHECK(USE(ibv_rereg_mr)(mrs[0], 0, pd, memory, 1, 0));
	CHECK(!USE(ibv_import_mr)(pd, 0));
	CHECK(!USE(ibv_import_pd)(context, 0));
	CHECK(!USE(ibv_import_dm)(context, 0));
	USE(ibv_unimport_mr)(mrs[0]);
	USE(ibv_unimport_pd)(pd);
	USE(ibv_unimport_dm)(&dm);
	for (unsigned i = 0; i < NUM_MRS; i++)
		CHECK(!USE(ibv_dereg_mr)(mrs[i]));
	CHECK(!USE(ibv_dealloc_pd)(pd));
	CHECK(!USE(ibv_close_device)(context));
}

static void set_nonblocking(int fd)
{
	fcntl(fd, F_SETFL, O_NONBLOCK); /* that command is no cancellation point */
}

static void use_completions(void)
{
	struct ibv_async_event event = {.event_type = IBV_EVENT_PORT_ACTIVE};
	struct ibv_context *context = open_loopback();
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *found;
	void *cq_context = NULL;

	CHECK(context);
	channel = USE(ibv_create_comp_channel)(context);
	CHECK(channel);
	cq = USE(ibv_create_cq)(context, 16, NULL, channel, 0);
	CHECK(cq);
	CHECK(!USE(ibv_resize_cq)(cq, 32));
	CHECK(!ibv_req_notify_cq(cq, 0));
	set_nonblocking(channel->fd);
	CHECK(USE(ibv_get_cq_event)(channel, &found, &cq_context) == -1 && errno == EAGAIN);
	USE(ibv_ack_cq_events)(cq, 0);
	CHECK(!USE(ibv_destroy_cq)(cq));
	CHECK(!USE(ibv_destroy_comp_channel)(channel));
	set_nonblocking(context->async_fd);
	CHECK(USE(ibv_get_async_event)(context, &event) == -1 && errno == EAGAIN);
	USE(ibv_ack_async_event)(&event);
	CHECK(!USE(ibv_close_device)(context));
}

static void use_queues(void)
{
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq_attr limit = {.srq_limit = 1};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = small};
	struct ibv_context *context = open_loopback();
	struct ibv_ah ah = {.context = context};
	struct ibv_ece ece = {0};
	union ibv_gid gid = {{0}};
	struct ibv_ah_attr ah_attr;
	struct ibv_pd *pd;
	struct ibv_qp *qp;
	uint8_t mac[6];
	uint16_t vid;

	CHECK(context);
	pd = USE(ibv_alloc_pd)(context);
	init.send_cq = init.recv_cq = USE(ibv_create_cq)(context, 16, NULL, NULL, 0);
	init.srq = USE(ibv_create_srq)(pd, &srq_attr);
	CHECK(pd && init.send_cq && init.srq);
	CHECK(!USE(ibv_modify_srq)(init.srq, &limit, IBV_SRQ_LIMIT));
	CHECK(!USE(ibv_query_srq)(init.srq, &limit));
	qp = USE(ibv_create_qp)(pd, &init);
	CHECK(qp);
	CHECK(!USE(ibv_query_qp)(qp, &attr, IBV_QP_STATE, &init));
	attr.qp_state = IBV_QPS_ERR;
	CHECK(!USE(ibv_modify_qp)(qp, &attr, IBV_QP_STATE));
	USE(ibv_query_qp_data_in_order)(qp, IBV_WR_SEND, 0);
	CHECK(!USE(ibv_qp_to_qp_ex)(qp));
	CHECK(USE(ibv_set_ece)(qp, &ece) && USE(ibv_query_ece)(qp, &ece));
	CHECK(USE(ibv_attach_mcast)(qp, &gid, 0) && USE(ibv_detach_mcast)(qp, &gid, 0));
	CHECK(!USE(ibv_create_ah)(pd, &ah_attr) && !USE(ibv_create_ah_from_wc)(pd, NULL, NULL, 1));
	CHECK(USE(ibv_init_ah_from_wc)(context, 1, NULL, NULL, &ah_attr));
	CHECK(USE(ibv_destroy_ah)(&ah));
	CHECK(USE(ibv_resolve_eth_l2_from_gid)(context, &ah_attr, mac, &vid));
	CHECK(!USE(ibv_destroy_qp)(qp));
	CHECK(!USE(ibv_destroy_srq)(init.srq));
	CHECK(!USE(ibv_destroy_cq)(init.send_cq));
	CHECK(!USE(ibv_dealloc_pd)(pd));
	CHECK(!USE(ibv_close_device)(context));
}

/* The event must be there, or come; it is acked. NULL: another one came. */
static struct rdma_cm_id *fetch(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = NULL;
	struct rdma_cm_id *id = NULL;

	if (DISABLED(!fd_is_readable(channel->fd, WAIT_MS) ||
		     USE(rdma_get_cm_event)(channel, &event)) ||
	    !event)
		return NULL;
	id = event->event == type ? event->id : NULL;
	return USE(rdma_ack_cm_event)(event) ? NULL : id;
}

static struct rdma_cm_id *new_listener(struct rdma_event_channel *channel)
{
	struct sockaddr_storage at;
	struct rdma_cm_id *id = NULL;

	test_address(&at, 0);
	if (USE(rdma_create_id)(channel, &id, NULL, RDMA_PS_TCP) ||
	    USE(rdma_bind_addr)(id, (struct sockaddr *)&at) || USE(rdma_listen)(id, 8))
		return NULL;
	return id;
}

static struct rdma_cm_id *new_client(struct rdma_event_channel *channel, uint16_t port)
{
	struct sockaddr_storage to;
	struct rdma_cm_id *id = NULL;

	test_address(&to, port);
	if (USE(rdma_create_id)(channel, &id, NULL, RDMA_PS_TCP) ||
	    USE(rdma_resolve_addr)(id, NULL, (struct sockaddr *)&to, WAIT_MS) ||
	    fetch(channel, RDMA_CM_EVENT_ADDR_RESOLVED) != id ||
	    USE(rdma_resolve_route)(id, WAIT_MS) ||
	    fetch(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) != id)
		return NULL;
	return id;
}

static bool equip(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = small};

	return !USE(rdma_create_qp)(id, NULL, &attr);
}

/* A request from a client at a listener; its id is to be answered. */
struct request_stage {
	struct rdma_event_channel *connecting, *listening;
	struct rdma_cm_id *client, *listener, *server;
};

static bool request_open(struct request_stage *stage)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	memset(stage, 0, sizeof(*stage));
	stage->connecting = USE(rdma_create_event_channel)();
	stage->listening = USE(rdma_create_event_channel)();
	if (!stage->connecting || !stage->listening)
		return false;
	stage->listener = new_listener(stage->listening);
	if (!stage->listener)
		return false;
	stage->client = new_client(stage->connecting, USE(rdma_get_src_port)(stage->listener));
	if (!stage->client || !equip(stage->client) || USE(rdma_connect)(stage->client, &param))
		return false;
	stage->server = fetch(stage->listening, RDMA_CM_EVENT_CONNECT_REQUEST);
	return stage->server && equip(stage->server);
}

static bool request_close(struct request_stage *stage)
{
	struct rdma_cm_id *const ids[NUM_IDS] = {stage->client, stage->server, stage->listener};

	for (unsigned i = 0; i < NUM_IDS; i++) {
		if (ids[i]->qp)
			USE(rdma_destroy_qp)(ids[i]);
		if (USE(rdma_destroy_id)(ids[i]))
			return false;
	}
	USE(rdma_destroy_event_channel)(stage->connecting);
	USE(rdma_destroy_event_channel)(stage->listening);
	return true;
}

static void use_connections(void)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	struct rdma_event_channel *other;
	struct request_stage stage;
	uint8_t tos = 0;
	int mask;

	CHECK(request_open(&stage));
	CHECK(!USE(rdma_accept)(stage.server, &param));
	CHECK(fetch(stage.connecting, RDMA_CM_EVENT_ESTABLISHED));
	CHECK(fetch(stage.listening, RDMA_CM_EVENT_ESTABLISHED));
	CHECK(USE(rdma_get_dst_port)(stage.client));
	CHECK(!USE(rdma_set_option)(stage.client, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1));
	CHECK(!USE(rdma_init_qp_attr)(stage.client, &attr, &mask));
	CHECK(!USE(rdma_notify)(stage.client, IBV_EVENT_COMM_EST));
	CHECK(USE(rdma_establish)(stage.client));
	other = USE(rdma_create_event_channel)();
	CHECK(other && !USE(rdma_migrate_id)(stage.client, other));
	CHECK(!USE(rdma_disconnect)(stage.client));
	CHECK(fetch(other, RDMA_CM_EVENT_DISCONNECTED));
	CHECK(fetch(stage.listening, RDMA_CM_EVENT_DISCONNECTED));
	CHECK(request_close(&stage));
	USE(rdma_destroy_event_channel)(other);
}

static void use_rejections(void)
{
	struct rdma_cm_join_mc_attr_ex join = {0};
	struct sockaddr_storage at;
	struct request_stage stage;
	struct ibv_ece ece = {0};

	test_address(&at, 0);
	CHECK(request_open(&stage));
	CHECK(USE(rdma_set_local_ece)(stage.client, &ece));
	CHECK(USE(rdma_get_remote_ece)(stage.client, &ece));
	CHECK(USE(rdma_join_multicast)(stage.client, (struct sockaddr *)&at, NULL));
	CHECK(USE(rdma_join_multicast_ex)(stage.client, &join, NULL));
	CHECK(USE(rdma_leave_multicast)(stage.client, (struct sockaddr *)&at));
	CHECK(!USE(rdma_reject)(stage.server, NULL, 0));
	CHECK(fetch(stage.connecting, RDMA_CM_EVENT_REJECTED));
	CHECK(request_close(&stage));
	CHECK(request_open(&stage));
	CHECK(!USE(rdma_reject_ece)(stage.server, NULL, 0));
	CHECK(fetch(stage.connecting, RDMA_CM_EVENT_REJECTED));
	CHECK(request_close(&stage));
}

static void use_queues_of_ids(void)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq_init_attr_ex srq_ex = {.attr = {.max_wr = 4, .max_sge = 1},
					      .comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
					      .srq_type = IBV_SRQT_BASIC};
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC, .cap = small};
	struct rdma_event_channel *channel = USE(rdma_create_event_channel)();
	struct rdma_cm_id *id = NULL;

	CHECK(channel);
	id = new_client(channel, unused_port());
	CHECK(id);
	CHECK(!USE(rdma_create_srq)(id, NULL, &srq));
	USE(rdma_destroy_srq)(id);
	CHECK(!USE(rdma_create_srq_ex)(id, &srq_ex));
	CHECK(!USE(rdma_create_qp_ex)(id, &attr));
	USE(rdma_destroy_qp)(id);
	USE(rdma_destroy_srq)(id);
	CHECK(!USE(rdma_destroy_id)(id));
	USE(rdma_destroy_event_channel)(channel);
}

static struct rdma_addrinfo *passive_address(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP};
	struct rdma_addrinfo *info = NULL;

	if (DISABLED(USE(rdma_getaddrinfo)("127.0.0.1", "0", &hints, &info)))
		return NULL;
	return info;
}

static void use_endpoints(void)
{
	struct ibv_qp_init_attr attr = {.cap = small};
	struct rdma_addrinfo *info = passive_address();
	struct rdma_cm_id *id = NULL;

	CHECK(info);
	CHECK(!USE(rdma_create_ep)(&id, info, NULL, &attr));
	USE(rdma_freeaddrinfo)(info);
	CHECK(!USE(rdma_listen)(id, 1));
	USE(rdma_destroy_ep)(id);
}

static void use_texts(void)
{
	CHECK(USE(ibv_wc_status_str)(IBV_WC_SUCCESS));
	CHECK(USE(ibv_event_type_str)(IBV_EVENT_CQ_ERR));
	CHECK(USE(ibv_node_type_str)(IBV_NODE_CA));
	CHECK(USE(ibv_port_state_str)(IBV_PORT_DOWN));
	CHECK(USE(rdma_event_str)(RDMA_CM_EVENT_ADDR_RESOLVED));
}

/* The device has none. */
static void use_rsockets(void)
{
	struct timeval none = {0};
	struct iovec iov = {memory, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);

	CHECK(USE(rsocket)(AF_INET, SOCK_STREAM, 0) == -1);
	CHECK(USE(rbind)(-1, (struct sockaddr *)&at, len) == -1);
	CHECK(USE(rlisten)(-1, 1) == -1);
	CHECK(USE(raccept)(-1, (struct sockaddr *)&at, &len) == -1);
	CHECK(USE(rconnect)(-1, (struct sockaddr *)&at, len) == -1);
	CHECK(USE(rshutdown)(-1, SHUT_RDWR) == -1 && USE(rclose)(-1) == -1);
	CHECK(USE(rrecv)(-1, memory, 1, 0) == -1 && USE(rsend)(-1, memory, 1, 0) == -1);
	CHECK(USE(rrecvfrom)(-1, memory, 1, 0, NULL, NULL) == -1);
	CHECK(USE(rsendto)(-1, memory, 1, 0, NULL, 0) == -1);
	CHECK(USE(rrecvmsg)(-1, &msg, 0) == -1 && USE(rsendmsg)(-1, &msg, 0) == -1);
	CHECK(USE(rread)(-1, memory, 1) == -1 && USE(rwrite)(-1, memory, 1) == -1);
	CHECK(USE(rreadv)(-1, &iov, 1) == -1 && USE(rwritev)(-1, &iov, 1) == -1);
	CHECK(USE(riomap)(-1, memory, 1, 0, 0, 0) == -1);
	CHECK(USE(riounmap)(-1, memory, 1) == -1);
	CHECK(USE(riowrite)(-1, memory, 1, 0, 0) == (size_t)-1);
	CHECK(USE(rgetpeername)(-1, (struct sockaddr *)&at, &len) == -1);
	CHECK(USE(rgetsockname)(-1, (struct sockaddr *)&at, &len) == -1);
	CHECK(USE(rsetsockopt)(-1, 0, 0, memory, 0) == -1);
	CHECK(USE(rgetsockopt)(-1, 0, 0, memory, &len) == -1);
	CHECK(USE(rfcntl)(-1, F_GETFL, 0L) == -1);
	CHECK(DISABLED(USE(rpoll)(NULL, 0, 0)) == 0);
	CHECK(DISABLED(USE(rselect)(0, NULL, NULL, NULL, &none)) == 0);
}

static void use_all(void)
{
	void (*const scenarios[])(void) = {
		use_devices,       use_memory,    use_completions, use_queues, use_connections,
		use_queues_of_ids, use_endpoints, use_rejections,  use_texts,  use_rsockets,
	};

	for (unsigned i = 0; i < ARRAY_SIZE(scenarios) && !failed_line; i++)
		scenarios[i]();
}

/* ---- what sleeps, and is cancelled there ---- */

/* Nobody frees what a cancelled thread has made; here it is not lost. */
static void *kept[32];

static void *keep(void *object)
{
	static unsigned count;

	return kept[count++] = object;
}

static void sleep_for_cq_event(void)
{
	struct ibv_context *context = keep(open_loopback());
	struct ibv_comp_channel *channel = keep(USE(ibv_create_comp_channel)(context));
	struct ibv_cq *cq = NULL;
	void *cq_context = NULL;

	USE(ibv_get_cq_event)(channel, &cq, &cq_context);
}

static void sleep_for_async_event(void)
{
	struct ibv_async_event event = {0};

	USE(ibv_get_async_event)(keep(open_loopback()), &event);
}

static void sleep_for_cm_event(void)
{
	struct rdma_event_channel *channel = keep(USE(rdma_create_event_channel)());
	struct rdma_cm_event *event = NULL;

	keep(new_listener(channel));
	USE(rdma_get_cm_event)(channel, &event);
}

static void sleep_for_request(void)
{
	struct rdma_cm_id *id = NULL;

	USE(rdma_get_request)(keep(new_listener(NULL)), &id);
}

static void sleep_while_resolving(void)
{
	struct sockaddr_storage to;
	struct rdma_cm_id *id = NULL;

	test_address(&to, unused_port());
	if (!USE(rdma_create_id)(NULL, &id, NULL, RDMA_PS_TCP))
		USE(rdma_resolve_addr)(keep(id), NULL, (struct sockaddr *)&to, WAIT_MS);
}

/* An event that is not acked keeps the id. */
static void sleep_for_an_ack(void)
{
	struct rdma_event_channel *channel = keep(USE(rdma_create_event_channel)());
	struct rdma_cm_event *event = NULL;
	struct sockaddr_storage to;
	struct rdma_cm_id *id = NULL;

	test_address(&to, unused_port());
	if (!USE(rdma_create_id)(channel, &id, NULL, RDMA_PS_TCP) &&
	    !USE(rdma_resolve_addr)(id, NULL, (struct sockaddr *)&to, WAIT_MS) &&
	    !DISABLED(USE(rdma_get_cm_event)(channel, &event)) && keep(event))
		USE(rdma_destroy_id)(keep(id));
}

/* ---- threads ---- */

struct task {
	void (*run)(void);
	int state;    /* in which it is to run, with a cancellation that is pending */
	bool is_back; /* it returned */
};

static void *run_cancelled(void *arg)
{
	struct task *task = arg;
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	pthread_cancel(pthread_self());
	wanted_state = task->state;
	pthread_setcancelstate(task->state, &before);
	task->run();
	task->is_back = true;
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
	pthread_testcancel();
	return NULL;
}

/* Returns whether it came back; it ends within the time. */
static bool run_task(void (*run)(void), int state)
{
	struct task task = {.run = run, .state = state};
	struct timespec until;
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, run_cancelled, &task), 0);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 2 * WAIT_MS / 1000;
	if (pthread_timedjoin_np(thread, &result, &until))
		fail_msg("a thread hangs in %s", last_used);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	return task.is_back;
}

static void expect_all_work(int state)
{
	failed_line = 0;
	if (!run_task(use_all, state))
		fail_msg("a thread was cancelled in %s", last_used);
	if (failed_line)
		fail_msg("line %u: %s", failed_line, last_used);
}

static void test_calls_come_back_though_a_cancellation_is_pending(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		expect_all_work(PTHREAD_CANCEL_ENABLE);
	expect_all_work(PTHREAD_CANCEL_DISABLE);
}

static void test_sleeps_are_cancelled_and_hold_no_lock(void **state)
{
	void (*const sleepers[])(void) = {
		sleep_for_cq_event, sleep_for_async_event, sleep_for_cm_event,
		sleep_for_request,  sleep_while_resolving, sleep_for_an_ack,
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(sleepers); i++) {
		if (run_task(sleepers[i], PTHREAD_CANCEL_ENABLE))
			fail_msg("%s is no cancellation point", last_used);
		expect_all_work(PTHREAD_CANCEL_ENABLE);
	}
}

static void test_no_exported_function_is_left_out(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		if (!used[i])
			fail_msg("%s was never called", names[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls_come_back_though_a_cancellation_is_pending),
		cmocka_unit_test(test_sleeps_are_cancelled_and_hold_no_lock),
		cmocka_unit_test(test_no_exported_function_is_left_out),
	};

	return cmocka_run_group_tests_name("soft_cancel", tests, NULL, NULL);
}
