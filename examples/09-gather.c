/* SPDX-License-Identifier: MIT */
/* Pieces from here and there, written as one, to the board of 08: 09-gather ADDRESS PORT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <iwarp.h>

#define LINES 1000

static void must(int result, const char *what)
{
	if (result == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, iw_error_text());
	exit(1);
}

/* Memory of the program's own, in several places, and a list of the pieces in their order. */
static void gather(struct iw_sgl *list, struct iw_lmr *words, struct iw_lmr *number)
{
	memcpy(words->addr, "line  of many", 13);
	iw_sgl_init(list);
	must(iw_sgl_add(list, words, 0, 5), "add");
	must(iw_sgl_add(list, number, 0, 4), "add");
	must(iw_sgl_add(list, words, 5, 9), "add"); /* with the NUL behind it */
}

int main(int argc, char **argv)
{
	char number[16];
	struct iw_ctx_conn ctx;
	struct iw_lmr words, digits, sink;
	struct iw_rmr board;
	struct iw_sgl list;
	struct ibv_wc wc;

	if (argc != 3)
		return 2;
	must(iw_ctx_alloc(argv[1], atoi(argv[2]), 16, NULL, &ctx), "alloc");
	must(iw_post_recv_adv(&ctx), "post a receive");
	must(iw_connect(NULL, 0, &ctx), "connect");
	must(iw_wait_recv_adv(&board, &ctx), "wait for the board");
	must(iw_lmr_create(64, 0, &words, &ctx), "create");
	must(iw_lmr_register(number, sizeof(number), 0, &digits, &ctx), "register");
	gather(&list, &words, &digits);

	/*
	 * Far more than the 16 requests that fit the queue, and none of them signalled: the library
	 * makes room by itself. As few bytes as these are taken along at once, so they may change.
	 */
	for (int i = 0; i < LINES; i++) {
		snprintf(number, sizeof(number), "%04d", i);
		must(post_write_sgl(&list, &board, 0, IBV_SEND_INLINE, &ctx), "write");
	}
	must(iw_lmr_create(64, IBV_ACCESS_LOCAL_WRITE, &sink, &ctx), "create");
	must(post_read_lmr(&sink, 0, &board, 0, 18, IBV_SEND_SIGNALED, &ctx), "read");
	must(await_completions(IW_SCQ, 1, &wc, &ctx), "await");
	printf("the last of %d: %s\n", LINES, (char *)sink.addr);
	must(iw_disconnect(&ctx), "disconnect");
	must(iw_lmr_destroy(&words, 1), "destroy");
	must(iw_lmr_destroy(&digits, 0), "destroy"); /* its memory is not ours to free */
	must(iw_lmr_destroy(&sink, 1), "destroy");
	return 0;
}
