/* SPDX-License-Identifier: MIT */
/*
 * A life of two connected libiwarp ends, any call of which may fail: a buffer is advertised,
 * written and read, messages go both ways, then a disconnect. Whatever fails must be reported, and
 * nothing may hang; a second life must then succeed. exit status: 0 all well, 1 an error was
 * reported, 2 something is wrong
 */
#include <arpa/inet.h>
#include <iwarp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_S 80
#define WAIT_MS 2000
#define SIZE    5000
#define ACCESS  (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

enum outcome { ALL_WELL, REPORTED, WRONG };

static bool failed_once;

/* Called by the copy of the library when the call has failed. */
void sweep_failed(void);
__attribute__((visibility("default"))) void sweep_failed(void)
{
	__atomic_store_n(&failed_once, true, __ATOMIC_RELAXED);
}

/* What an end does when it is connected; a failure ends it. */
static int talk(struct iw_ctx_conn *ctx, struct iw_lmr *lmr, struct iw_lmr *sink)
{
	struct iw_rmr rmr;
	struct ibv_wc wc;

	if (iw_post_send_adv(lmr, ctx) || iw_wait_recv_adv_timeout(&rmr, WAIT_MS, ctx) ||
	    post_write_lmr(sink, 0, &rmr, 0, SIZE, 0, ctx) ||
	    post_read_lmr(sink, 0, &rmr, 0, SIZE, IBV_SEND_SIGNALED, ctx) ||
	    await_completions_timeout(IW_SCQ, 1, &wc, WAIT_MS, ctx))
		return -1;
	return post_send_lmr(sink, 0, 100, 0, ctx) ||
	       await_completions_timeout(IW_RCQ, 1, &wc, WAIT_MS, ctx);
}

static int prepare(struct iw_ctx_conn *ctx, struct iw_lmr *lmr, struct iw_lmr *sink)
{
	return iw_lmr_create(SIZE, ACCESS, lmr, ctx) ||
	       iw_lmr_create(SIZE, IBV_ACCESS_LOCAL_WRITE, sink, ctx) || iw_post_recv_adv(ctx) ||
	       post_recv_lmr(sink, 0, 100, ctx);
}

static int end(struct iw_ctx_conn *ctx, struct iw_lmr *lmr, struct iw_lmr *sink, int error)
{
	iw_ctx_free(ctx);
	if (lmr->mr)
		error |= iw_lmr_destroy(lmr, 1);
	if (sink->mr)
		error |= iw_lmr_destroy(sink, 1);
	return error;
}

static void *serve(void *listener)
{
	struct iw_ctx_conn ctx = {0};
	struct iw_lmr lmr = {0}, sink = {0};
	int error = iw_listen_timeout(listener, &ctx, WAIT_MS) || prepare(&ctx, &lmr, &sink) ||
		    iw_accept(NULL, 0, &ctx) || talk(&ctx, &lmr, &sink) ||
		    iw_await_disconnect(&ctx);

	return end(&ctx, &lmr, &sink, error) ? listener : NULL;
}

static int connect_to(int port)
{
	struct iw_ctx_conn ctx = {0};
	struct iw_lmr lmr = {0}, sink = {0};
	int error = iw_ctx_alloc("127.0.0.1", port, 8, NULL, &ctx) || prepare(&ctx, &lmr, &sink) ||
		    iw_connect(NULL, 0, &ctx) || talk(&ctx, &lmr, &sink) || iw_disconnect(&ctx);

	return end(&ctx, &lmr, &sink, error);
}

static enum outcome live(void)
{
	struct iw_ctx_conn listener;
	struct sockaddr_storage at;
	pthread_t thread;
	void *failed;
	int error;

	if (iw_open("127.0.0.1", 0, 4, &listener))
		return REPORTED;
	if (iw_local_address(&listener, &at) || pthread_create(&thread, NULL, serve, &listener))
		return WRONG;
	error = connect_to(ntohs(((struct sockaddr_in *)&at)->sin_port));
	pthread_join(thread, &failed);
	if (iw_close(&listener))
		return WRONG;
	return error || failed ? REPORTED : ALL_WELL;
}

int main(void)
{
	enum outcome first, second;

	alarm(LIMIT_S);
	first = live();
	if (first != WRONG) {
		bool had_failed = failed_once;

		second = live();
		if (second == WRONG || (second == REPORTED && had_failed)) {
			fprintf(stderr, "onesided: the second life failed too: %s\n",
				iw_error_text());
			first = WRONG;
		}
	}
	printf("%s\n", failed_once ? "failed" : "not reached");
	return first;
}
