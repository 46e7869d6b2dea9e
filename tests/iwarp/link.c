/* SPDX-License-Identifier: MIT */
/* Connected contexts, and what tests do with them again and again. */
#include "link.h"

#include <arpa/inet.h>
#include <stdio.h>

const char *link_address(void)
{
	const char *address = getenv("IBMSG_ADDR");

	return address ? address : "127.0.0.1";
}

const char *link_device(void)
{
	const char *device = getenv("IBMSG_DEVICE");

	return device ? device : "";
}

static int port_of(const struct sockaddr_storage *at)
{
	return ntohs(at->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)at)->sin6_port
					       : ((const struct sockaddr_in *)at)->sin_port);
}

void listener_open(struct iw_ctx_conn *listener, int *port)
{
	struct sockaddr_storage at;

	memset(listener, 0xff, sizeof(*listener));
	must(iw_open(link_address(), 0, 64, listener));
	must(iw_local_address(listener, &at));
	*port = port_of(&at);
	assert_int_not_equal(*port, 0);
}

/* ---- the server's part ---- */

static int answer(struct accepting *accepting)
{
	if (iw_listen_timeout(accepting->listener, accepting->server, WAIT_MS))
		return -1;
	if (accepting->rejects)
		return iw_reject(accepting->data, accepting->len, accepting->server);
	if (accepting->before && accepting->before(accepting->link))
		return -1;
	return iw_accept(accepting->data, accepting->len, accepting->server);
}

/* Not the thread that runs the test: it does not assert. */
static void *accept_thread(void *data)
{
	struct accepting *accepting = data;

	if (answer(accepting))
		snprintf(accepting->text, sizeof(accepting->text), "%s", iw_error_text());
	return NULL;
}

void accept_begin(struct accepting *accepting)
{
	accepting->text[0] = 0;
	memset(accepting->server, 0xff, sizeof(*accepting->server));
	assert_int_equal(pthread_create(&accepting->thread, NULL, accept_thread, accepting), 0);
}

void accept_end(struct accepting *accepting)
{
	assert_int_equal(pthread_join(accepting->thread, NULL), 0);
	if (accepting->text[0])
		fail_msg("the server: %s", accepting->text);
}

/* ---- links ---- */

void link_open_as(struct link *link)
{
	struct accepting accepting = {.listener = &link->listener,
				      .server = &link->server,
				      .before = link->before_accept,
				      .link = link};

	memset(&link->client, 0xff, sizeof(link->client));
	listener_open(&link->listener, &link->port);
	must(iw_set_client_options(&link->listener, link->capacity, NULL));
	accept_begin(&accepting);
	must(iw_ctx_alloc(link_address(), link->port, link->capacity, NULL, &link->client));
	if (link->before_connect)
		must(link->before_connect(link));
	must(iw_connect(NULL, 0, &link->client));
	accept_end(&accepting);
}

void link_open(struct link *link)
{
	memset(link, 0, sizeof(*link));
	link_open_as(link);
}

void link_join(struct iw_ctx_conn *listener, int port, struct iw_ctx_conn *client,
	       struct iw_ctx_conn *server)
{
	struct accepting accepting = {.listener = listener, .server = server};

	/* Small ones: siw has room for few large queues in a process. */
	must(iw_set_client_options(listener, 4, NULL));
	accept_begin(&accepting);
	must(iw_ctx_alloc(link_address(), port, 4, NULL, client));
	must(iw_connect(NULL, 0, client));
	accept_end(&accepting);
}

static void *await_thread(void *server)
{
	return iw_await_disconnect(server) ? (void *)1 : NULL;
}

/* At the same time: some devices want the peer's answer to a disconnect. */
void link_close(struct link *link)
{
	pthread_t thread;
	void *failed;

	assert_int_equal(pthread_create(&thread, NULL, await_thread, &link->server), 0);
	must(iw_disconnect(&link->client));
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	must(iw_close(&link->listener));
}

struct ibv_wc link_await(struct iw_ctx_conn *ctx, enum iw_cq_type type, int count)
{
	struct ibv_wc *wc = calloc((size_t)count, sizeof(*wc)), last;

	assert_non_null(wc);
	must(await_completions_timeout(type, count, wc, WAIT_MS, ctx));
	assert_int_equal(ctx->num_wcs[type], count);
	last = wc[count - 1];
	free(wc);
	return last;
}

void link_offer(struct iw_ctx_conn *from, struct iw_ctx_conn *to, size_t bytes, int access,
		struct iw_lmr *lmr, struct iw_rmr *rmr)
{
	memset(lmr, 0xff, sizeof(*lmr));
	memset(rmr, 0xff, sizeof(*rmr));
	must(iw_post_recv_adv(to));
	must(iw_lmr_create(bytes, access, lmr, from));
	must(iw_post_send_adv(lmr, from));
	must(iw_wait_recv_adv_timeout(rmr, WAIT_MS, to));
}

void link_ping(struct iw_ctx_conn *from, struct iw_ctx_conn *to)
{
	struct iw_sgl nothing;

	iw_sgl_init(&nothing);
	must(post_recv_sgl(&nothing, to));
	must(post_send_sgl(&nothing, SIGNAL, from));
	link_await(from, IW_SCQ, 1);
	assert_int_equal(link_await(to, IW_RCQ, 1).byte_len, 0);
}
