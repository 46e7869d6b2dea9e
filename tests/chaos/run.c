/* SPDX-License-Identifier: MIT */
/* The driver of one program: starts the ends, watches them, stops and kills them, and judges. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "end.h"
#include "run.h"

struct supervisor {
	struct run run;
	const struct options *options;
	pid_t pids[MAX_ENDS];
	bool gone[MAX_ENDS];
	double resume_at; /* when a stopped end goes on; 0: none is stopped */
	unsigned seen;    /* progress */
	double seen_at;
};

double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fail_here(const char *call)
{
	perror(call);
	exit(2);
}

static void *map_shared(int fd, size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

	if (memory == MAP_FAILED)
		fail_here("mmap");
	return memory;
}

static void open_run(struct run *run, const struct program *program, const struct options *options)
{
	*run = (struct run){.program = program, .placed = options->placed, .lie = options->lie};
	layout_make(&run->layout, program);
	run->board = map_shared(-1, sizeof(*run->board));
	run->board->number = (uint32_t)getpid() ^ (uint32_t)program->seed << 16;
	for (int q = 0; q < MAX_QPS; q++)
		run->board->sides[q][0].last_srq = run->board->sides[q][1].last_srq = -1;
	for (int e = 0; e < program->num_ends; e++) {
		run->memfd[e] = memfd_create("end", MFD_CLOEXEC);
		run->log[e] = memfd_create("log", MFD_CLOEXEC);
		if (run->memfd[e] < 0 || run->log[e] < 0 ||
		    ftruncate(run->memfd[e], (off_t)run->layout.size[e]))
			fail_here("memfd_create");
		run->view[e] = map_shared(run->memfd[e], run->layout.size[e]);
	}
}

static void close_run(struct run *run)
{
	for (int e = 0; e < run->program->num_ends; e++) {
		munmap(run->view[e], run->layout.size[e]);
		close(run->memfd[e]);
		close(run->log[e]);
	}
	munmap(run->board, sizeof(*run->board));
}

/* ---- faults from outside ---- */

static void commit_fault(struct supervisor *sup)
{
	struct run *run = &sup->run;
	const struct fault *fault = &run->program->fault;

	if (sup->resume_at && now() >= sup->resume_at) {
		kill(sup->pids[fault->end], SIGCONT);
		sup->resume_at = 0;
	}
	if ((fault->kind != FAULT_KILL && fault->kind != FAULT_STOP) || run->board->fault_done ||
	    run->board->completions < fault->after || sup->gone[fault->end])
		return;
	for (int e = 0; e < run->program->num_ends; e++)
		if (!run->board->ends[e].started || run->board->ends[e].finished)
			return;
	if (fault->kind == FAULT_STOP) {
		kill(sup->pids[fault->end], SIGSTOP);
		sup->resume_at = now() + fault->duration / 1000.0;
	} else {
		for (int q = 0; q < run->program->num_qps; q++)
			if (run->program->qps[q].sides[0].end == fault->end ||
			    run->program->qps[q].sides[1].end == fault->end)
				run->board->sides[q][0].ended = run->board->sides[q][1].ended =
					true;
		kill(sup->pids[fault->end], SIGKILL);
	}
	run->board->fault_done = true;
}

/* ---- hangs ---- */

static const char *const doing_names[] = {
	[DOING_NOTHING] = "nothing yet",
	[DOING_POST] = "posts",
	[DOING_POLL] = "polls",
	[DOING_EVENT] = "sleeps in ibv_get_cq_event",
	[DOING_EPOLL] = "sleeps in epoll_wait",
	[DOING_MEMORY] = "watches memory",
	[DOING_SLOT] = "waits for room to post",
	[DOING_OVER] = "is through",
};

static void describe_hang(struct supervisor *sup)
{
	struct run *run = &sup->run;
	char text[700];
	size_t used = 0;

#define ADD(...)                                                                                   \
	do {                                                                                       \
		if (used < sizeof(text))                                                           \
			used += (size_t)snprintf(text + used, sizeof(text) - used, __VA_ARGS__);   \
	} while (0)
	for (int e = 0; e < run->program->num_ends; e++)
		for (int t = 0; t < run->program->ends[e].num_threads; t++)
			ADD("\n  end %d thread %d %s", e, t,
			    !run->board->ends[e].started
				    ? "is not connected"
				    : doing_names[run->board->ends[e].doing[t]]);
	for (int q = 0; q < run->program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			const struct side_board *sb = &run->board->sides[q][s];
			const struct side *side = &run->program->qps[q].sides[s];

			if (sends_are_over(run, q, s) && recvs_are_over(run, q, s))
				continue;
			ADD("\n  qp %d side %d: %d of %d requests posted, %d completed; %d of %d "
			    "messages"
			    " arrived, %d receives posted%s",
			    q, s, sb->posted, side->num_ops, sb->completed, sb->received,
			    side_count_messages(peer_of(run->program, q, s)),
			    side->srq < 0 ? sb->recv_posted : run->board->srqs[side->srq].posted,
			    sb->buried ? ", ended" : "");
		}
#undef ADD
	board_fail(run->board, "hang", "nothing happened for %d s:%s", sup->options->patience,
		   text);
}

static void watch_progress(struct supervisor *sup)
{
	unsigned progress = sup->run.board->progress;

	if (progress != sup->seen || sup->resume_at) {
		sup->seen = progress;
		sup->seen_at = now();
	} else if (now() - sup->seen_at > sup->options->patience) {
		describe_hang(sup);
	}
}

/* ---- life and death of the ends ---- */

static void reap_ends(struct supervisor *sup)
{
	const struct fault *fault = &sup->run.program->fault;

	for (int e = 0; e < sup->run.program->num_ends; e++) {
		int status;

		if (sup->gone[e] || waitpid(sup->pids[e], &status, WNOHANG) != sup->pids[e])
			continue;
		sup->gone[e] = true;
		sup->run.board->progress++;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue;
		if (fault->kind == FAULT_KILL && fault->end == e && sup->run.board->fault_done)
			continue;
		board_fail(sup->run.board, "crash", "end %d died: %s %d", e,
			   WIFEXITED(status) ? "exit status" : "signal",
			   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	}
}

static bool all_gone(const struct supervisor *sup)
{
	for (int e = 0; e < sup->run.program->num_ends; e++)
		if (!sup->gone[e])
			return false;
	return true;
}

static void end_all(struct supervisor *sup)
{
	for (int e = 0; e < sup->run.program->num_ends; e++)
		if (!sup->gone[e]) {
			kill(sup->pids[e], SIGKILL);
			waitpid(sup->pids[e], NULL, 0);
		}
}

static void collect_logs(const struct run *run, struct verdict *verdict)
{
	size_t used = 0;

	for (int e = 0; e < run->program->num_ends; e++) {
		off_t size = lseek(run->log[e], 0, SEEK_END);
		off_t from = size > 1500 ? size - 1500 : 0;
		ssize_t got;

		used += (size_t)snprintf(verdict->logs + used, sizeof(verdict->logs) - used,
					 "end %d said%s:\n", e, size ? "" : " nothing");
		got = pread(run->log[e], verdict->logs + used, 1500, from);
		if (got > 0)
			used += (size_t)got;
	}
	verdict->logs[used] = '\0';
}

void run_program(const struct program *program, const struct options *options,
		 struct verdict *verdict)
{
	struct supervisor *sup = calloc(1, sizeof(*sup));
	struct board *board;

	if (!sup)
		fail_here("calloc");
	sup->options = options;
	sup->seen_at = now();
	open_run(&sup->run, program, options);
	board = sup->run.board;
	for (int e = 0; e < program->num_ends; e++) {
		sup->pids[e] = fork();
		if (sup->pids[e] < 0)
			fail_here("fork");
		if (sup->pids[e] == 0)
			end_main(&sup->run, e);
	}
	while (!board->fail_state && !all_gone(sup)) {
		reap_ends(sup);
		commit_fault(sup);
		watch_progress(sup);
		usleep(200);
	}
	while (board->fail_state == 1) /* somebody is writing */
		usleep(100);
	if (!board->fail_state)
		model_finish(&sup->run);
	end_all(sup);
	*verdict = (struct verdict){.failed = board->fail_state};
	if (verdict->failed) {
		snprintf(verdict->rule, sizeof(verdict->rule), "%s", board->rule);
		snprintf(verdict->text, sizeof(verdict->text), "%s", board->text);
		collect_logs(&sup->run, verdict);
	}
	close_run(&sup->run);
	free(sup);
}
