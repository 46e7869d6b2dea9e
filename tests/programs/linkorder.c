/* SPDX-License-Identifier: MIT */
/*
 * A program that uses the software device, built and run in every way of linking: opens a device,
 * connects to itself and sends one message.
 *
 * LINKORDER_DLOPEN: nothing is linked; the arguments are the libraries to open, that of ibv_*
 * first.
 */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* The header's macros of these names would get in the way of CALL(). */
#undef ibv_reg_mr
#undef ibv_get_device_list

#ifdef LINKORDER_DLOPEN
#define FUNCTIONS(VERBS, CM)                                                                       \
	VERBS(ibv_get_device_list)                                                                 \
	VERBS(ibv_free_device_list)                                                                \
	VERBS(ibv_get_device_name)                                                                 \
	VERBS(ibv_open_device)                                                                     \
	VERBS(ibv_close_device)                                                                    \
	VERBS(ibv_alloc_pd)                                                                        \
	VERBS(ibv_dealloc_pd)                                                                      \
	VERBS(ibv_reg_mr)                                                                          \
	VERBS(ibv_dereg_mr)                                                                        \
	VERBS(ibv_create_cq)                                                                       \
	VERBS(ibv_destroy_cq)                                                                      \
	CM(rdma_create_event_channel)                                                              \
	CM(rdma_destroy_event_channel)                                                             \
	CM(rdma_create_id)                                                                         \
	CM(rdma_destroy_id)                                                                        \
	CM(rdma_bind_addr)                                                                         \
	CM(rdma_listen)                                                                            \
	CM(rdma_get_src_port)                                                                      \
	CM(rdma_resolve_addr)                                                                      \
	CM(rdma_resolve_route)                                                                     \
	CM(rdma_create_qp)                                                                         \
	CM(rdma_destroy_qp)                                                                        \
	CM(rdma_connect)                                                                           \
	CM(rdma_accept)                                                                            \
	CM(rdma_disconnect)                                                                        \
	CM(rdma_get_cm_event)                                                                      \
	CM(rdma_ack_cm_event)

#define MEMBER(name) __typeof__(name) *name;
static struct {
	FUNCTIONS(MEMBER, MEMBER)
} library;
#define CALL(name) library.name
#else
#define CALL(name) name
#endif

/* errno says why, where the call sets it. */
#define check(ok, ...)                                                                             \
	do {                                                                                       \
		if (!(ok)) {                                                                       \
			printf("FAIL: " __VA_ARGS__);                                              \
			printf(" (errno: %s)\n", strerror(errno));                                 \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#ifdef LINKORDER_DLOPEN
static void *open_library(const char *name, int flags)
{
	void *handle = dlopen(name, flags);

	check(!!handle, "dlopen: %s", handle ? "" : dlerror());
	return handle;
}

/* A library of ours is opened as a plug-in's host would: apart from all others. */
static int flags_of(const char *name)
{
	return strstr(name, "softrdma") ? RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND : RTLD_NOW;
}

static void open_libraries(char **names)
{
	void *verbs = open_library(names[0], flags_of(names[0]));
	void *cm = open_library(names[1], flags_of(names[1]));

#define FIND(handle, name)                                                                         \
	library.name = (__typeof__(name) *)dlsym(handle, #name);                                   \
	check(!!library.name, "dlsym: %s", #name);
#define FIND_VERBS(name) FIND(verbs, name)
#define FIND_CM(name)    FIND(cm, name)
	FUNCTIONS(FIND_VERBS, FIND_CM)
}
#endif

static void use_device(void)
{
	struct ibv_device **list, *device = NULL;
	struct ibv_context *context;
	static char buffer[4096];
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	int num = 0;

	list = CALL(ibv_get_device_list)(&num);
	check(list && num > 0, "there is no device");
	for (int i = 0; i < num && !device; i++)
		if (!strcmp(CALL(ibv_get_device_name)(list[i]), "soft_lo"))
			device = list[i];
	check(!!device, "soft_lo is not among the %d devices", num);
	context = CALL(ibv_open_device)(device);
	check(!!context, "ibv_open_device");
	CALL(ibv_free_device_list)(list);
	pd = CALL(ibv_alloc_pd)(context);
	check(!!pd, "ibv_alloc_pd");
	mr = CALL(ibv_reg_mr)(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	check(!!mr, "ibv_reg_mr");
	cq = CALL(ibv_create_cq)(context, 16, NULL, NULL, 0);
	check(!!cq, "ibv_create_cq");
	check(!CALL(ibv_destroy_cq)(cq), "ibv_destroy_cq");
	check(!CALL(ibv_dereg_mr)(mr), "ibv_dereg_mr");
	check(!CALL(ibv_dealloc_pd)(pd), "ibv_dealloc_pd");
	check(!CALL(ibv_close_device)(context), "ibv_close_device");
}

/* One end of the connection. */
struct end {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char buffer[64];
};

static void end_init(struct end *end, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};

	end->id = id;
	end->cq = CALL(ibv_create_cq)(id->verbs, 16, NULL, NULL, 0);
	check(!!end->cq, "ibv_create_cq");
	attr.send_cq = attr.recv_cq = end->cq;
	check(!CALL(rdma_create_qp)(id, NULL, &attr), "rdma_create_qp");
	end->mr =
		CALL(ibv_reg_mr)(id->pd, end->buffer, sizeof(end->buffer), IBV_ACCESS_LOCAL_WRITE);
	check(!!end->mr, "ibv_reg_mr");
}

static void end_fini(struct end *end)
{
	CALL(rdma_destroy_qp)(end->id);
	check(!CALL(ibv_destroy_cq)(end->cq), "ibv_destroy_cq");
	check(!CALL(ibv_dereg_mr)(end->mr), "ibv_dereg_mr");
	check(!CALL(rdma_destroy_id)(end->id), "rdma_destroy_id");
}

static void end_post_recv(struct end *end)
{
	struct ibv_sge sge = {(uintptr_t)end->buffer, sizeof(end->buffer), end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	check(!ibv_post_recv(end->id->qp, &wr, &bad), "ibv_post_recv");
}

static void end_post_send(struct end *end, const char *text)
{
	struct ibv_sge sge = {(uintptr_t)end->buffer, (uint32_t)strlen(text) + 1, end->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	snprintf(end->buffer, sizeof(end->buffer), "%s", text);
	check(!ibv_post_send(end->id->qp, &wr, &bad), "ibv_post_send");
}

/* The test's time limit bounds this. */
static void end_poll(struct end *end, uint64_t wr_id)
{
	struct ibv_wc wc;
	int num;

	while (!(num = ibv_poll_cq(end->cq, 1, &wc)))
		;
	check(num == 1, "ibv_poll_cq");
	check(wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id, "request %d: status %d",
	      (int)wc.wr_id, wc.status);
}

/* Wait for an event of this kind; the id it is about. */
static struct rdma_cm_id *await(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	check(!CALL(rdma_get_cm_event)(channel, &event), "rdma_get_cm_event");
	check(event->event == type, "event %d with status %d, not %d", event->event, event->status,
	      type);
	id = event->id;
	check(!CALL(rdma_ack_cm_event)(event), "rdma_ack_cm_event");
	return id;
}

static void send_a_message(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_event_channel *listening, *connecting;
	struct rdma_cm_id *listener, *id;
	struct end client, server;

	listening = CALL(rdma_create_event_channel)();
	connecting = CALL(rdma_create_event_channel)();
	check(listening && connecting, "rdma_create_event_channel");
	check(!CALL(rdma_create_id)(listening, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	check(!CALL(rdma_bind_addr)(listener, (struct sockaddr *)&address), "rdma_bind_addr");
	check(!CALL(rdma_listen)(listener, 1), "rdma_listen");
	address.sin_port = CALL(rdma_get_src_port)(listener);

	check(!CALL(rdma_create_id)(connecting, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	check(!CALL(rdma_resolve_addr)(id, NULL, (struct sockaddr *)&address, 2000),
	      "rdma_resolve_addr");
	await(connecting, RDMA_CM_EVENT_ADDR_RESOLVED);
	check(!CALL(rdma_resolve_route)(id, 2000), "rdma_resolve_route");
	await(connecting, RDMA_CM_EVENT_ROUTE_RESOLVED);
	end_init(&client, id);
	check(!CALL(rdma_connect)(id, &param), "rdma_connect");

	end_init(&server, await(listening, RDMA_CM_EVENT_CONNECT_REQUEST));
	end_post_recv(&server);
	check(!CALL(rdma_accept)(server.id, &param), "rdma_accept");
	await(connecting, RDMA_CM_EVENT_ESTABLISHED);
	await(listening, RDMA_CM_EVENT_ESTABLISHED);

	end_post_send(&client, "linked");
	end_poll(&client, 2);
	end_poll(&server, 1);
	check(!strcmp(server.buffer, "linked"), "the message arrived as '%.64s'", server.buffer);

	check(!CALL(rdma_disconnect)(client.id), "rdma_disconnect");
	await(listening, RDMA_CM_EVENT_DISCONNECTED);
	await(connecting, RDMA_CM_EVENT_DISCONNECTED);
	end_fini(&client);
	end_fini(&server);
	check(!CALL(rdma_destroy_id)(listener), "rdma_destroy_id");
	CALL(rdma_destroy_event_channel)(listening);
	CALL(rdma_destroy_event_channel)(connecting);
}

int main(int argc, char **argv)
{
#ifdef LINKORDER_DLOPEN
	check(argc == 3, "usage: linkorder_dlopen LIBIBVERBS LIBRDMACM");
	open_libraries(argv + 1);
#else
	(void)argc;
	(void)argv;
#endif
	use_device();
	send_a_message();
	puts("ok");
	return 0;
}
