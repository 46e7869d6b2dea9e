/* SPDX-License-Identifier: MIT */
/* One thread at a time, with endpoints of rdma_create_ep. */
#include "sync.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

#include "../fuzz.h"
#include "moment.h"

#define HOW_REJECTS     0x01 /* a listener rejects every request but the last */
#define HOW_DROPS       0x02 /* or destroys their ids */
#define HOW_DISCONNECTS 0x04
#define HOW_PRIVATE     0x08
#define HOW_ERRS        0x10 /* calls that must fail come first */
#define HOW_PLAIN       0x20 /* the endpoint makes no queue pair by itself */

#define RETRY_MS     25
#define AWAIT_ROUNDS 3000
#define LACK_MS      10

static struct {
	pthread_t thread;
	bool is_running, is_listener;
	atomic_bool is_done;
	atomic_bool has_lacked; /* descriptors */
	uint8_t how;
	struct sockaddr_storage addr;
	sem_t is_ready; /* port is known */
	uint16_t port;
} worker;

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
	};
}

static struct rdma_cm_id *create(bool passive)
{
	struct rdma_addrinfo info = {
		.ai_flags = passive ? RAI_PASSIVE : 0,
		.ai_family = worker.addr.ss_family,
		.ai_qp_type = IBV_QPT_RC,
		.ai_port_space = RDMA_PS_TCP,
	};
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_cm_id *id;

	if (passive) {
		info.ai_src_addr = (struct sockaddr *)&worker.addr;
		info.ai_src_len = sizeof(worker.addr);
	} else {
		info.ai_dst_addr = (struct sockaddr *)&worker.addr;
		info.ai_dst_len = sizeof(worker.addr);
	}
	CHECK(!rdma_create_ep(&id, &info, NULL, worker.how & HOW_PLAIN ? NULL : &attr));
	return id;
}

/* Descriptors may run out for a while. */
static bool lacks(void)
{
	CHECK(errno == EMFILE);
	atomic_store(&worker.has_lacked, true);
	return false;
}

static bool equip(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = qp_attr();

	return id->qp || !rdma_create_qp(id, NULL, &attr) || lacks();
}

/* A call that succeeds has its event in id->event; one that fails, at most. */
static void finish(struct rdma_cm_id *id, bool connected)
{
	if (connected) {
		CHECK(id->event && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
		if (worker.how & HOW_DISCONNECTS) {
			CHECK(!rdma_disconnect(id));
			CHECK(id->event->event == RDMA_CM_EVENT_DISCONNECTED);
			CHECK(!rdma_disconnect(id)); /* does not wait */
		}
	}
	rdma_destroy_ep(id);
}

static struct rdma_conn_param conn_param(void)
{
	static const uint8_t data[32] = {3};

	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = worker.how & HOW_PRIVATE ? sizeof(data) : 0,
		.responder_resources = 1,
		.initiator_depth = 1,
	};
}

static void call(void)
{
	struct rdma_conn_param param = conn_param();
	struct rdma_cm_id *id = create(false);

	CHECK(equip(id));
	finish(id, !rdma_connect(id, &param));
}

/* Whether it was the honest peer. */
static bool answer(struct rdma_cm_id *id)
{
	const struct rdma_conn_param *request = &id->event->param.conn;
	struct rdma_conn_param param = conn_param();
	bool honest = request->private_data_len == 16 &&
		      !memcmp(request->private_data, "an honest peer", 15);

	if (!honest && worker.how & HOW_REJECTS)
		rdma_reject(id, NULL, 0);
	if (!honest && worker.how & (HOW_REJECTS | HOW_DROPS)) {
		rdma_destroy_ep(id);
		return false;
	}
	if (!equip(id)) {
		rdma_destroy_ep(id);
		return false;
	}
	finish(id, !rdma_accept(id, &param));
	return honest;
}

static void serve(void)
{
	struct rdma_cm_id *listener = create(true), *id;
	bool done = false;

	CHECK(!rdma_listen(listener, 0));
	worker.port = rdma_get_src_port(listener);
	sem_post(&worker.is_ready);
	while (!done) {
		if (rdma_get_request(listener, &id)) {
			lacks();
			continue;
		}
		CHECK(id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
		done = answer(id);
	}
	rdma_destroy_ep(listener);
}

/* What is wrong fails, and leaves nothing behind. */
static void err(void)
{
	struct sockaddr_in foreign = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(0xc6336401)}; /* RFC 5737 */
	struct sockaddr_in none = {.sin_family = AF_UNIX};
	struct rdma_addrinfo info = {
		.ai_flags = RAI_PASSIVE,
		.ai_port_space = RDMA_PS_TCP,
		.ai_src_addr = (struct sockaddr *)&foreign,
		.ai_src_len = sizeof(foreign),
		.ai_dst_addr = (struct sockaddr *)&none,
		.ai_dst_len = sizeof(none),
	};
	struct rdma_cm_id *id;

	CHECK(rdma_create_ep(NULL, &info, NULL, NULL) && errno == EINVAL);
	CHECK(rdma_create_ep(&id, &info, NULL, NULL) && errno == EADDRNOTAVAIL);
	info.ai_flags = 0;
	info.ai_src_len = 0;
	CHECK(rdma_create_ep(&id, &info, NULL, NULL) && errno == EINVAL);
	info.ai_qp_type = IBV_QPT_UD;
	CHECK(rdma_create_ep(&id, &info, NULL, NULL) && errno == EOPNOTSUPP);
	info.ai_qp_type = IBV_QPT_RC;
	info.ai_port_space = RDMA_PS_UDP;
	CHECK(rdma_create_ep(&id, &info, NULL, NULL) && errno == EOPNOTSUPP);
	CHECK(rdma_get_request(NULL, &id) && errno == EINVAL);
	rdma_destroy_ep(NULL);
}

static void *run(void *unused)
{
	(void)unused;
	if (worker.how & HOW_ERRS)
		err();
	if (worker.is_listener)
		serve();
	else
		call();
	atomic_store(&worker.is_done, true);
	return NULL;
}

/* libFuzzer's alarm is for the thread that runs the input: the calls here would fail with EINTR. */
static void start(bool listener, const struct sockaddr_storage *addr, uint8_t how)
{
	sigset_t all, before;

	worker.is_listener = listener;
	worker.addr = *addr;
	worker.how = how;
	atomic_store(&worker.is_done, false);
	CHECK(!sem_init(&worker.is_ready, 0, 0));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	CHECK(!pthread_create(&worker.thread, NULL, run, NULL));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	worker.is_running = true;
}

void sync_connect(const struct sockaddr_storage *to, uint8_t how)
{
	if (!worker.is_running)
		start(false, to, how);
}

uint16_t sync_listen(const struct sockaddr_storage *at, uint8_t how)
{
	start(true, at, how);
	while (sem_wait(&worker.is_ready))
		continue;
	return worker.port;
}

void sync_await_lack(void)
{
	for (unsigned i = 0; i < LACK_MS && !atomic_load(&worker.has_lacked); i++)
		moment_pass();
	atomic_store(&worker.has_lacked, false);
}

bool sync_is_running(void)
{
	return worker.is_running;
}

void sync_await(void)
{
	if (!worker.is_running)
		return;
	for (unsigned i = 0; !atomic_load(&worker.is_done); i++) {
		CHECK(i < AWAIT_ROUNDS);
		moment_pass();
		moment_advance(RETRY_MS);
		moment_settle();
	}
	CHECK(!pthread_join(worker.thread, NULL));
	sem_destroy(&worker.is_ready);
	worker.is_running = false;
}
