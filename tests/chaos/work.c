/* SPDX-License-Identifier: MIT */
/* The threads of an end: they post when they can, and wait for completions as the program says. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "end.h"
#include "lie.h"

struct loop {
	struct end_run *er;
	struct run *run;
	int thread;
	const struct thread *how;
	int epoll;
	int num_cqs;
	int cqs[MAX_CQS];    /* which it polls */
	bool armed[MAX_CQS]; /* and has not had an event from since */
	unsigned empty;
};

static void set_doing(struct loop *loop, enum doing doing)
{
	loop->run->board->ends[loop->er->end].doing[loop->thread] = doing;
}

static bool is_mine(const struct loop *loop, int cq)
{
	const struct cq *what = &loop->run->program->cqs[cq];

	return what->end == loop->er->end && what->thread == loop->thread;
}

/* Each side that belongs to this end. */
#define for_each_side(loop, q, s)                                                                  \
	for (int q = 0; q < (loop)->run->program->num_qps; q++)                                    \
		for (int s = 0; s < 2; s++)                                                        \
			if ((loop)->run->program->qps[q].sides[s].end == (loop)->er->end)

/* ---- posting ---- */

static int post_all(struct loop *loop)
{
	int total = 0;

	for_each_side(loop, q, s)
	{
		if (loop->run->program->qps[q].sides[s].thread == loop->thread)
			total += post_requests(loop->er, q, s);
	}
	return total;
}

static bool has_posted_all(struct loop *loop)
{
	for_each_side(loop, q, s)
	{
		const struct side *side = &loop->run->program->qps[q].sides[s];
		const struct side_board *sb = &loop->run->board->sides[q][s];

		if (side->thread == loop->thread && !sb->buried && sb->posted < side->num_ops)
			return false;
	}
	return true;
}

/* Receives of the queues that this thread looks after, again or for the first time. */
static void feed(struct loop *loop, bool first)
{
	const struct program *program = loop->run->program;
	bool fed[MAX_SRQS] = {false};

	for_each_side(loop, q, s)
	{
		const struct side *side = &program->qps[q].sides[s];

		if (!is_mine(loop, side->recv_cq))
			continue;
		if (side->srq < 0) {
			if (first && side->late)
				usleep((useconds_t)side->late);
			post_receives(loop->er, q, s);
		} else if (!fed[side->srq]) {
			fed[side->srq] = true;
			if (first && program->srqs[side->srq].late)
				usleep((useconds_t)program->srqs[side->srq].late);
			post_srq_receives(loop->er, side->srq);
		}
	}
}

/* ---- polling ---- */

/* Poll one CQ, until it is empty or once; how many there were. */
static int reap(struct loop *loop, int cq, bool all)
{
	struct ibv_wc wcs[64];
	int total = 0, num;

	do {
		num = ibv_poll_cq(loop->er->cqs[cq], loop->how->batch, wcs);
		if (num < 0)
			end_fail(loop->er, "poll", "ibv_poll_cq", -num);
		if (loop->run->lie)
			num = lie_about(loop->run, cq, wcs, num);
		for (int i = 0; i < num; i++) {
			model_completed(loop->run, cq, &wcs[i]);
			end_check(loop->er);
		}
		total += num;
	} while (all && num > 0);
	if (total)
		feed(loop, false);
	return total;
}

static int reap_all(struct loop *loop, bool all)
{
	int total = 0;

	for (int i = 0; i < loop->num_cqs; i++)
		total += reap(loop, loop->cqs[i], all);
	return total;
}

static void arm(struct loop *loop, int i)
{
	int error = ibv_req_notify_cq(loop->er->cqs[loop->cqs[i]],
				      loop->run->program->cqs[loop->cqs[i]].solicited);

	if (error)
		end_fail(loop->er, "poll", "ibv_req_notify_cq", error);
	loop->armed[i] = true;
}

/* An event from the channel; false: there was none. */
static bool take_event(struct loop *loop)
{
	struct ibv_cq *cq;
	void *context;
	int i = 0;

	if (ibv_get_cq_event(loop->er->channels[loop->thread], &cq, &context)) {
		if (errno == EAGAIN || errno == EINTR)
			return false;
		end_fail(loop->er, "poll", "ibv_get_cq_event", errno);
	}
	ibv_ack_cq_events(cq, 1);
	while (i < loop->num_cqs && loop->er->cqs[loop->cqs[i]] != cq)
		i++;
	if (i == loop->num_cqs)
		end_fail(loop->er, "event", "ibv_get_cq_event returned another CQ", EINVAL);
	if (!loop->armed[i])
		end_fail(loop->er, "event", "an event of a CQ that was not armed", EINVAL);
	loop->armed[i] = false;
	loop->run->board->progress++;
	if (loop->how->arm_early)
		arm(loop, i);
	reap(loop, loop->cqs[i], true);
	return true;
}

/* ---- waiting ---- */

/* The order that never loses an event: arm, look once more, sleep. */
static bool may_sleep(struct loop *loop)
{
	bool armed_now = false;

	for (int i = 0; i < loop->num_cqs; i++)
		if (!loop->armed[i]) {
			arm(loop, i);
			armed_now = true;
		}
	return !armed_now || reap_all(loop, true) == 0;
}

static void wait_polling(struct loop *loop)
{
	set_doing(loop, DOING_POLL);
	while (reap_all(loop, false) == 0) {
		if (++loop->empty % 64 == 0)
			sched_yield();
		end_check(loop->er);
		/* A thread whose queue pairs died without a trace is through. */
		if (loop->empty % 64 == 0)
			return;
	}
}

static void wait_sleeping(struct loop *loop)
{
	struct epoll_event event;

	if (!may_sleep(loop))
		return;
	if (loop->how->wait == WAIT_EPOLL) {
		set_doing(loop, DOING_EPOLL);
		if (epoll_wait(loop->epoll, &event, 1, -1) < 0 && errno != EINTR)
			end_fail(loop->er, "poll", "epoll_wait", errno);
	}
	set_doing(loop, DOING_EVENT);
	take_event(loop);
	set_doing(loop, DOING_NOTHING);
}

/* Is the last byte there that the peer of this side writes? */
static bool memory_shows(struct loop *loop, int q, int s)
{
	struct run *run = loop->run;
	const struct side *peer = peer_of(run->program, q, s);
	const volatile uint8_t *arena = run->view[loop->er->end] + run->layout.arena[q][!s];
	uint8_t byte;

	for (int i = peer->num_ops - 1; i >= 0; i--) {
		const struct op *op = &peer->ops[i];

		if ((op->kind != OP_WRITE && op->kind != OP_WRITE_IMM) || op->len == 0)
			continue;
		pattern_fill(&byte, 1, op_tag(run->program, q, !s, i),
			     (size_t)(op->offset + op->len - 1));
		return arena[op->offset + op->len - 1] == byte;
	}
	return true;
}

/* Is all posted whose completions this thread sees, be it by another thread? */
static bool may_be_lazy(struct loop *loop)
{
	for_each_side(loop, q, s)
	{
		const struct side *side = &loop->run->program->qps[q].sides[s];
		const struct side_board *sb = &loop->run->board->sides[q][s];

		if ((is_mine(loop, side->send_cq) || is_mine(loop, side->recv_cq)) && !sb->buried &&
		    sb->posted < side->num_ops)
			return false;
	}
	return true;
}

/* All is posted: watch the memory that the peers write to and leave the device alone. */
static void wait_for_memory(struct loop *loop)
{
	set_doing(loop, DOING_MEMORY);
	for_each_side(loop, q, s)
	{
		const struct side_board *sb = &loop->run->board->sides[q][s];

		if (!is_mine(loop, loop->run->program->qps[q].sides[s].recv_cq))
			continue;
		while (!memory_shows(loop, q, s) && !sb->ended) {
			end_check(loop->er);
			sched_yield();
		}
	}
}

/* Has everything come that a CQ of this thread waits for? */
static bool is_through(struct loop *loop)
{
	if (!has_posted_all(loop))
		return false;
	for_each_side(loop, q, s)
	{
		const struct side *side = &loop->run->program->qps[q].sides[s];

		if ((is_mine(loop, side->send_cq) && !sends_are_over(loop->run, q, s)) ||
		    (is_mine(loop, side->recv_cq) && !recvs_are_over(loop->run, q, s)))
			return false;
	}
	return true;
}

static void run_loop(struct loop *loop)
{
	bool lazy = loop->how->wait == WAIT_LAZY;

	feed(loop, true);
	for (;;) {
		set_doing(loop, DOING_POST);
		post_all(loop);
		if (is_through(loop))
			break;
		if (lazy && may_be_lazy(loop)) {
			wait_for_memory(loop);
			lazy = false;
		}
		if (loop->how->wait == WAIT_POLL || loop->how->wait == WAIT_LAZY)
			wait_polling(loop);
		else
			wait_sleeping(loop);
	}
}

/* A thread without CQs: it only posts, and looks now and then whether it may go on. */
static void run_poster(struct loop *loop)
{
	while (!has_posted_all(loop)) {
		set_doing(loop, DOING_POST);
		if (post_all(loop) == 0) {
			set_doing(loop, DOING_SLOT);
			nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
		}
		end_check(loop->er);
	}
}

void *work(void *arg)
{
	struct worker *worker = arg;
	struct end_run *er = worker->er;
	struct loop loop = {
		.er = er,
		.run = er->run,
		.thread = worker->thread,
		.how = &er->run->program->ends[er->end].threads[worker->thread],
		.epoll = -1,
	};

	for (int c = 0; c < er->run->program->num_cqs; c++)
		if (is_mine(&loop, c)) {
			loop.armed[loop.num_cqs] = loop.how->arm_early; /* when it was made */
			loop.cqs[loop.num_cqs++] = c;
		}
	if (loop.how->wait == WAIT_EPOLL) {
		struct epoll_event event = {.events = EPOLLIN};
		int fd = er->channels[loop.thread]->fd;

		loop.epoll = epoll_create1(EPOLL_CLOEXEC);
		if (loop.epoll < 0 || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 ||
		    epoll_ctl(loop.epoll, EPOLL_CTL_ADD, fd, &event) < 0)
			end_fail(er, "setup", "epoll", errno);
	}
	if (loop.num_cqs)
		run_loop(&loop);
	else
		run_poster(&loop);
	set_doing(&loop, DOING_OVER);
	if (loop.epoll >= 0)
		close(loop.epoll);
	er->threads_over++;
	return NULL;
}
