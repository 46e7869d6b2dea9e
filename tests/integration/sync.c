/* SPDX-License-Identifier: MIT */
/* Synchronous ids: endpoints, requests, and calls that wait for their event. */
#include "pair.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>

#define MESSAGE 64

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1};
}

static struct rdma_addrinfo *resolve(const char *node, const char *service, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;

	assert_int_equal(rdma_getaddrinfo(node, service, &hints, &found), 0);
	return found;
}

static const char *address(void)
{
	const char *text = getenv("IBMSG_ADDR");

	return text ? text : "127.0.0.1";
}

static struct rdma_cm_id *listen_endpoint(void)
{
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_addrinfo *info = resolve(address(), "0", RAI_PASSIVE);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_ep(&id, info, NULL, &attr), 0);
	rdma_freeaddrinfo(info);
	assert_int_equal(rdma_listen(id, 4), 0);
	return id;
}

static struct rdma_cm_id *client_endpoint(const char *node, uint16_t port)
{
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_addrinfo *info;
	struct rdma_cm_id *id;
	char service[8];

	snprintf(service, sizeof(service), "%u", ntohs(port));
	info = resolve(node, service, 0);
	assert_int_equal(rdma_create_ep(&id, info, NULL, &attr), 0);
	rdma_freeaddrinfo(info);
	return id;
}

/* The client's side of a conversation, in a thread of its own: the first step that failed, or 0. */
struct client {
	pthread_t thread;
	uint16_t port;
	struct rdma_cm_id *id;
};

static int talk(struct rdma_cm_id *id, struct ibv_mr *mr, uint8_t *message)
{
	struct ibv_wc wc;

	if (rdma_post_recv(id, NULL, message, MESSAGE, mr))
		return 2;
	if (rdma_connect(id, NULL))
		return 3;
	if (rdma_post_send(id, NULL, message, MESSAGE, mr, 0))
		return 4;
	if (rdma_get_send_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
		return 5;
	if (rdma_get_recv_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
		return 6;
	if (!is_filled(message, MESSAGE, 2))
		return 7;
	return 0;
}

static void *client_thread(void *arg)
{
	struct client *client = arg;
	static uint8_t message[MESSAGE];
	struct ibv_mr *mr = rdma_reg_msgs(client->id, message, MESSAGE);
	intptr_t failed;

	fill(message, MESSAGE, 1);
	failed = mr ? talk(client->id, mr, message) : 1;
	if (!failed && rdma_disconnect(client->id))
		failed = 8;
	if (!failed && rdma_disconnect(client->id)) /* must not hang */
		failed = 9;
	if (mr)
		rdma_dereg_mr(mr);
	return (void *)failed;
}

static void serve(struct rdma_cm_id *id)
{
	uint8_t message[MESSAGE] = {0};
	struct ibv_mr *mr = rdma_reg_msgs(id, message, MESSAGE);
	struct ibv_wc wc;

	assert_non_null(mr);
	assert_int_equal(rdma_post_recv(id, NULL, message, MESSAGE, mr), 0);
	assert_int_equal(rdma_accept(id, NULL), 0);
	assert_int_equal(rdma_get_recv_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_true(is_filled(message, MESSAGE, 1));
	fill(message, MESSAGE, 2);
	assert_int_equal(rdma_post_send(id, NULL, message, MESSAGE, mr, 0), 0);
	assert_int_equal(rdma_get_send_comp(id, &wc), 1);
	assert_int_equal(rdma_disconnect(id), 0);
	assert_int_equal(rdma_disconnect(id), 0);
	rdma_dereg_mr(mr);
}

static void converse(struct rdma_cm_id *listener, const char *node)
{
	struct client client = {.port = rdma_get_src_port(listener)};
	struct rdma_cm_id *id;
	void *failed;

	client.id = client_endpoint(node, client.port);
	assert_int_equal(pthread_create(&client.thread, NULL, client_thread, &client), 0);
	assert_int_equal(rdma_get_request(listener, &id), 0);
	assert_non_null(id->qp);
	serve(id);
	assert_int_equal(pthread_join(client.thread, &failed), 0);
	assert_int_equal((intptr_t)failed, 0);
	rdma_destroy_ep(client.id);
	rdma_destroy_ep(id);
}

static void test_endpoints_converse_and_disconnect_twice(void **state)
{
	struct rdma_cm_id *listener = listen_endpoint();

	(void)state;
	for (int i = 0; i < 5; i++)
		converse(listener, address());
	rdma_destroy_ep(listener);
}

static void test_request_outlives_its_listening_endpoint(void **state)
{
	struct rdma_cm_id *listener = listen_endpoint(), *id;
	struct client client = {.port = rdma_get_src_port(listener)};
	void *failed;

	(void)state;
	client.id = client_endpoint(address(), client.port);
	assert_int_equal(pthread_create(&client.thread, NULL, client_thread, &client), 0);
	assert_int_equal(rdma_get_request(listener, &id), 0);
	rdma_destroy_ep(listener);
	serve(id);
	assert_int_equal(pthread_join(client.thread, &failed), 0);
	assert_int_equal((intptr_t)failed, 0);
	rdma_destroy_ep(client.id);
	rdma_destroy_ep(id);
}

static void test_connect_to_nobody_fails_with_econnrefused(void **state)
{
	struct rdma_cm_id *id = client_endpoint(address(), unused_port());

	(void)state;
	assert_int_equal(rdma_connect(id, NULL), -1);
	assert_int_equal(errno, ECONNREFUSED);
	assert_non_null(id->event);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_ep(id);
}

static void *connect_thread(void *arg)
{
	return (void *)(intptr_t)(rdma_connect(arg, NULL) ? errno : 0);
}

static void test_reject_fails_connect_with_econnrefused(void **state)
{
	struct rdma_cm_id *listener = listen_endpoint(), *id, *client;
	pthread_t thread;
	void *failed;

	(void)state;
	client = client_endpoint(address(), rdma_get_src_port(listener));
	assert_int_equal(pthread_create(&thread, NULL, connect_thread, client), 0);
	assert_int_equal(rdma_get_request(listener, &id), 0);
	assert_int_equal(rdma_reject(id, "no", 3), 0);
	rdma_destroy_ep(id);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_int_equal((intptr_t)failed, ECONNREFUSED);
	assert_string_equal(client->event->param.conn.private_data, "no");
	rdma_destroy_ep(client);
	rdma_destroy_ep(listener);
}

static void test_migrate_to_a_channel_makes_it_asynchronous(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = client_endpoint(address(), unused_port());

	(void)state;
	assert_int_equal(rdma_migrate_id(id, channel), 0);
	assert_int_equal(rdma_connect(id, NULL), 0);
	cm_expect(channel, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_ep(id);
	rdma_destroy_event_channel(channel);
}

/* ---- names ---- */

static void test_getaddrinfo_passive_gives_source(void **state)
{
	struct rdma_addrinfo *info = resolve(NULL, "7174", RAI_PASSIVE);

	(void)state;
	assert_true(info->ai_flags & RAI_PASSIVE);
	assert_non_null(info->ai_src_addr);
	assert_null(info->ai_dst_addr);
	assert_int_equal(((struct sockaddr_in *)info->ai_src_addr)->sin_port, htons(7174));
	rdma_freeaddrinfo(info);
}

static void test_getaddrinfo_active_gives_destination(void **state)
{
	struct rdma_addrinfo *info = resolve(address(), "7174", 0);

	(void)state;
	assert_non_null(info->ai_dst_addr);
	assert_int_equal(info->ai_port_space, RDMA_PS_TCP);
	assert_int_equal(info->ai_qp_type, IBV_QPT_RC);
	assert_int_equal(((struct sockaddr_in *)info->ai_dst_addr)->sin_port, htons(7174));
	rdma_freeaddrinfo(info);
}

static void test_getaddrinfo_of_name_with_numerichost_fails(void **state)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
	struct rdma_addrinfo *info = NULL;

	(void)state;
	assert_int_not_equal(rdma_getaddrinfo("localhost", "1", &hints, &info), 0);
	assert_null(info);
}

static void test_getaddrinfo_of_nothing_fails(void **state)
{
	struct rdma_addrinfo *info = NULL;

	(void)state;
	assert_int_not_equal(rdma_getaddrinfo(NULL, NULL, NULL, &info), 0);
	assert_null(info);
}

static void test_getaddrinfo_name_reaches_its_address(void **state)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_family = AF_INET};
	struct rdma_addrinfo *info;
	struct sockaddr_in *to;

	(void)state;
	assert_int_equal(rdma_getaddrinfo("localhost", "1", &hints, &info), 0);
	to = (struct sockaddr_in *)info->ai_dst_addr;
	assert_int_equal(to->sin_family, AF_INET);
	assert_int_equal(ntohl(to->sin_addr.s_addr) >> 24, 127);
	rdma_freeaddrinfo(info);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_endpoints_converse_and_disconnect_twice),
		cmocka_unit_test(test_request_outlives_its_listening_endpoint),
		cmocka_unit_test(test_connect_to_nobody_fails_with_econnrefused),
		cmocka_unit_test(test_reject_fails_connect_with_econnrefused),
		cmocka_unit_test(test_migrate_to_a_channel_makes_it_asynchronous),
		cmocka_unit_test(test_getaddrinfo_passive_gives_source),
		cmocka_unit_test(test_getaddrinfo_active_gives_destination),
		cmocka_unit_test(test_getaddrinfo_of_name_with_numerichost_fails),
		cmocka_unit_test(test_getaddrinfo_of_nothing_fails),
		cmocka_unit_test(test_getaddrinfo_name_reaches_its_address),
	};

	return cmocka_run_group_tests_name("sync", tests, NULL, NULL);
}
