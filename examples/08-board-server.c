/* SPDX-License-Identifier: MIT */
/* A board that clients write on by themselves, one after another: 08-board-server ADDRESS PORT */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <iwarp.h>

#define BOARD_SIZE 4096

static void must(int result, const char *what)
{
	if (result == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, iw_error_text());
	exit(1);
}

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

/* Offer the board, then wait until the client has gone. What it wrote is there then. */
static int serve(struct iw_ctx_conn *client)
{
	struct iw_lmr board;
	int error;

	if (iw_accept(NULL, 0, client))
		return -1;
	if (iw_lmr_create(BOARD_SIZE,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
			  &board, client))
		return -1;
	error = iw_post_send_adv(&board, client);
	if (!error)
		error = iw_await_disconnect(client);
	((char *)board.addr)[BOARD_SIZE - 1] = 0; /* whatever a client may have written */
	printf("on the board: %s\n", (char *)board.addr);
	fflush(stdout);
	iw_lmr_destroy(&board, 1);
	return error;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = stop};
	struct iw_ctx_conn listener, client;

	if (argc != 3)
		return 2;
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	must(iw_open(argv[1], atoi(argv[2]), 16, &listener), "listen");
	printf("listening\n");
	fflush(stdout);
	while (!stopped) {
		/* A moment at a time: a signal may come just before the wait. */
		if (iw_listen_timeout(&listener, &client, 200))
			continue;
		if (serve(&client))
			fprintf(stderr, "a client failed: %s\n", iw_error_text());
		iw_ctx_free(&client); /* harmless if it was given back */
	}
	must(iw_close(&listener), "close");
	return 0;
}
