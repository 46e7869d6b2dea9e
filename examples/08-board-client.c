/* SPDX-License-Identifier: MIT */
/* Write on the server's board and read it back: 08-board-client ADDRESS PORT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <iwarp.h>

static void must(int result, const char *what)
{
	if (result == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, iw_error_text());
	exit(1);
}

int main(int argc, char **argv)
{
	static const char text[] = "written from afar";
	struct iw_ctx_conn ctx;
	struct iw_lmr source, sink;
	struct iw_rmr board;
	struct ibv_wc wc;

	if (argc != 3)
		return 2;
	/* A receive for the server's advertisement must be there before it comes. */
	must(iw_ctx_alloc(argv[1], atoi(argv[2]), 16, NULL, &ctx), "alloc");
	must(iw_post_recv_adv(&ctx), "post a receive");
	must(iw_connect(NULL, 0, &ctx), "connect");
	must(iw_wait_recv_adv(&board, &ctx), "wait for the board");
	printf("the board has %llu bytes\n", (unsigned long long)board.length);

	must(iw_lmr_create(sizeof(text), 0, &source, &ctx), "create");
	must(iw_lmr_create(sizeof(text), IBV_ACCESS_LOCAL_WRITE, &sink, &ctx), "create");
	memcpy(source.addr, text, sizeof(text));
	must(post_write_lmr(&source, 0, &board, 0, sizeof(text), 0, &ctx), "write");
	/* Requests are done in order: when the read is complete, so is the write. */
	must(post_read_lmr(&sink, 0, &board, 0, sizeof(text), IBV_SEND_SIGNALED, &ctx), "read");
	must(await_completions(IW_SCQ, 1, &wc, &ctx), "await");
	printf("read back: %s\n", (char *)sink.addr);

	/* What is outside the board is refused here, before anything is sent. */
	if (post_write_lmr(&source, 0, &board, board.length, 1, 0, &ctx))
		printf("one byte past: %s\n", iw_error_text());

	must(iw_disconnect(&ctx), "disconnect");
	must(iw_lmr_destroy(&source, 1), "destroy");
	must(iw_lmr_destroy(&sink, 1), "destroy");
	return 0;
}
