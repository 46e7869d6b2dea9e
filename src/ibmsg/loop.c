/* SPDX-License-Identifier: MIT */
/* The event loop: waiting for the CM, completions, timers and other threads; then the work. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "../common/log.h"
#include "internal.h"

#define POLL_BATCH   32
#define POLL_MOST    1024 /* completions of one CQ in a row, then others have their turn */
#define EVENTS       16
#define SPINS        128 /* looks at completions between two looks at all the rest */
#define ROUNDS       4 /* of them between two looks at the clock, which is slow on some machines */
#define QUIET_MISSES 256 /* looks in vain after which a spinning dispatcher arms a CQ */

uint64_t loop_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- locking and waking ---- */

/* For a dispatcher that spins. */
static void make_room(struct loop *loop)
{
	if (!lock_is_wanted(&loop->lock))
		return;
	loop_unlock(loop);
	sched_yield();
	loop_lock(loop);
}

void loop_wake(const struct loop *loop)
{
	const uint64_t one = 1;

	if (write(loop->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_error("cannot wake the loop: %s", strerror(errno));
}

bool loop_is_dispatcher(const struct loop *loop)
{
	return loop->dispatching && pthread_equal(loop->dispatcher, pthread_self());
}

void loop_due(struct conn *conn)
{
	struct loop *loop = conn->loop;

	if (!list_is_empty(&conn->due_link))
		return;
	list_add_tail(&loop->due, &conn->due_link);
	if (!loop_is_dispatcher(loop))
		loop_wake(loop);
}

/* ---- descriptors ---- */

int loop_watch(struct loop *loop, int fd, void *who)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = who};

	return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void loop_unwatch(struct loop *loop, int fd)
{
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static void drain(int fd)
{
	uint64_t count;

	if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_error("event loop: %s", strerror(errno));
}

/* ---- timers ---- */

static void set_timer_fd(struct loop *loop)
{
	struct itimerspec spec = {0};
	uint64_t deadline;

	if (list_is_empty(&loop->timers))
		return;
	deadline = list_first(&loop->timers, struct timer, link)->deadline;
	if (loop->timer_set == deadline)
		return;
	loop->timer_set = deadline;
	spec.it_value.tv_sec = (time_t)(deadline / 1000000000u);
	spec.it_value.tv_nsec = (long)(deadline % 1000000000u);
	timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

void timer_arm(struct loop *loop, struct timer *timer, unsigned milliseconds)
{
	struct list *pos;

	timer_cancel(timer);
	timer->deadline = loop_now() + (uint64_t)milliseconds * 1000000u;
	/* From the end: most are as long as the one before. */
	for (pos = loop->timers.prev; pos != &loop->timers; pos = pos->prev)
		if (container_of(pos, struct timer, link)->deadline <= timer->deadline)
			break;
	list_add_head(pos, &timer->link);
	set_timer_fd(loop);
}

void timer_cancel(struct timer *timer)
{
	list_del(&timer->link);
}

static bool run_timers(struct loop *loop)
{
	uint64_t now = loop_now();
	bool any = false;

	loop->timer_set = 0;
	while (!list_is_empty(&loop->timers)) {
		struct timer *timer = list_first(&loop->timers, struct timer, link);

		if (timer->deadline > now)
			break;
		timer_cancel(timer);
		conn_expired(container_of(timer, struct conn, timer));
		any = true;
	}
	set_timer_fd(loop);
	return any;
}

/* ---- completions ---- */

static int failed_error(const struct ibv_wc *wc)
{
	switch (wc->status) {
	case IBV_WC_RETRY_EXC_ERR:
		return IBMSG_PEER_SILENT;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_LOC_LEN_ERR:
		return IBMSG_PROTOCOL_ERROR;
	default:
		return IBMSG_CONNECTION_LOST;
	}
}

/* Requests are flushed at every end: what kind of end it is, the CM will say. */
static bool comes_by_cm(const struct conn *conn, const struct ibv_wc *wc)
{
	if (conn->parting || conn_is_over(conn))
		return true;
	return wc->status == IBV_WC_WR_FLUSH_ERR &&
	       (conn->state != CONN_OPEN || conn->peer == PEER_ORIGINAL);
}

static void completed(struct conn *conn, const struct ibv_wc *wc)
{
	enum wr_kind kind = wr_kind(wc->wr_id);

	if (wc->status != IBV_WC_SUCCESS) {
		if (!comes_by_cm(conn, wc))
			conn_doom(conn, failed_error(wc));
		return;
	}
	log_debug("%s complete: WRID 0x%llx", kind == WR_RECV ? "RECV" : "SEND",
		  (unsigned long long)wc->wr_id);
	if (kind == WR_RECV)
		recv_arrived(conn, wr_ptr(wc->wr_id), wc->byte_len);
	else if (kind == WR_READ)
		recv_read_done(conn);
	else
		send_completed(conn, kind);
}

static void log_found(const struct ibv_wc *wc, int count)
{
	int receives = 0;

	if (count <= 0 || !log_is_on(LOG_DEBUG))
		return;
	for (int i = 0; i < count; i++)
		receives += wr_kind(wc[i].wr_id) == WR_RECV;
	if (receives)
		log_debug("%d recv completion(s) found", receives);
	if (count - receives)
		log_debug("%d send completion(s) found", count - receives);
}

/* How many there were, or an error of verbs. */
static int poll_once(struct cq *cq)
{
	struct ibv_wc wc[POLL_BATCH];
	int count = ibv_poll_cq(cq->cq, POLL_BATCH, wc);

	log_found(wc, count);
	for (int i = 0; i < count; i++) {
		struct conn *conn = conn_find(cq->device, wc[i].qp_num);

		if (conn && conn->state != CONN_CLOSED)
			completed(conn, &wc[i]);
	}
	if (count < 0)
		log_error("cannot poll a completion queue");
	return count;
}

bool loop_poll_cq(struct cq *cq)
{
	int total = 0, count;

	do {
		count = poll_once(cq);
		total += count > 0 ? count : 0;
	} while (count == POLL_BATCH && total < POLL_MOST);
	return total;
}

static bool poll_unarmed(struct loop *loop)
{
	struct list *pos, *next;
	bool any = false;

	list_for_each_safe (pos, next, &loop->unarmed) {
		struct cq *cq = container_of(pos, struct cq, unarmed);

		if (loop_poll_cq(cq)) {
			cq->misses = 0;
			any = true;
		} else if (++cq->misses > QUIET_MISSES &&
			   loop->unarmed.next != loop->unarmed.prev) {
			cq_arm(cq);
		}
	}
	return any;
}

/* Before sleeping. Whether something had arrived. */
static bool arm_all(struct loop *loop)
{
	struct list *pos, *next;
	bool any = false;

	list_for_each_safe (pos, next, &loop->unarmed)
		any |= cq_arm(container_of(pos, struct cq, unarmed));
	return any;
}

/* ---- what is due ---- */

/* Those that are due now: whoever is marked meanwhile has its turn the next time. */
static bool attend(struct loop *loop)
{
	struct list last;

	if (list_is_empty(&loop->due))
		return false;
	list_add_tail(&loop->due, &last);
	while (loop->due.next != &last) {
		struct conn *conn = list_first(&loop->due, struct conn, due_link);

		list_del(&conn->due_link);
		conn_attend(conn);
	}
	list_del(&last);
	return true;
}

static void attend_all(struct loop *loop)
{
	for (int i = 0; i < 64 && attend(loop); i++)
		continue;
}

/* Messages were freed: those who wait for memory try again. */
static void feed_starved(struct loop *loop)
{
	struct list *pos;

	list_for_each (pos, &loop->conns) {
		struct conn *conn = container_of(pos, struct conn, link);

		if (conn->state == CONN_OPEN && conn->is_short)
			loop_due(conn);
	}
}

static bool ready(struct loop *loop, void *who)
{
	if (who == &loop->channel)
		return cm_dispatch(loop);
	if (who == &loop->timer_fd) {
		drain(loop->timer_fd);
		run_timers(loop);
		return true;
	}
	if (who == &loop->wake_fd) {
		drain(loop->wake_fd);
		feed_starved(loop);
		return true;
	}
	return device_ready(who);
}

/* Whether anything was ready; -errno. */
static int wait(struct loop *loop, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	int count;

	if (timeout_ms) {
		loop_unlock(loop);
		count = epoll_wait(loop->epoll_fd, events, EVENTS, timeout_ms);
		loop_lock(loop);
	} else {
		count = epoll_wait(loop->epoll_fd, events, EVENTS, 0);
	}
	if (count < 0)
		return errno == EINTR ? 1 : -errno;
	if (count)
		log_debug("Found %d event(s)", count);
	for (int i = 0; i < count; i++)
		ready(loop, events[i].data.ptr);
	return count > 0;
}

/* Whether there was something; -errno. */
static int spin_round(struct loop *loop)
{
	for (int i = 0; i < SPINS; i++) {
		if (poll_unarmed(loop) || !list_is_empty(&loop->due))
			return 1;
		make_room(loop);
	}
	return wait(loop, 0);
}

/* Look again and again for a while. Whether there was something; -errno. */
static int spin(struct loop *loop, int timeout_ms)
{
	uint64_t begin = 0, now = 0, span = (uint64_t)loop->busy_poll_us * 1000;
	int result;

	if (timeout_ms >= 0 && span > (uint64_t)timeout_ms * 1000000u)
		span = (uint64_t)timeout_ms * 1000000u;
	do {
		for (int i = 0; i < ROUNDS; i++) {
			result = spin_round(loop);
			if (result)
				return result;
		}
		now = loop_now();
		if (!begin)
			begin = now;
	} while (now - begin < span);
	return 0;
}

/* Sleep until something happens. Whether it did; -errno. */
static int sleep_for(struct loop *loop, int timeout_ms)
{
	if (arm_all(loop) || !list_is_empty(&loop->due))
		timeout_ms = 0;
	return wait(loop, timeout_ms);
}

static int dispatch_once(struct loop *loop, int timeout_ms)
{
	int result;

	device_reap(loop);
	if (attend(loop)) {
		attend_all(loop);
		timeout_ms = 0;
	}
	result = loop->busy_poll_us && timeout_ms ? spin(loop, timeout_ms) : 0;
	if (!result)
		result = sleep_for(loop, timeout_ms);
	attend_all(loop);
	if (loop->fd_is_shared && (arm_all(loop) || !list_is_empty(&loop->due)))
		loop_wake(loop);
	return result;
}

int loop_dispatch(struct loop *loop, int timeout_ms)
{
	int result;

	if (loop->dispatching)
		return IBMSG_BUSY;
	loop->dispatching = true;
	loop->dispatcher = pthread_self();
	result = dispatch_once(loop, timeout_ms);
	loop->dispatching = false;
	if (result >= 0)
		return IBMSG_OK;
	log_error("event loop: %s", strerror(-result));
	return IBMSG_EPOLL_WAIT_FAILED;
}

/* ---- life ---- */

static int set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

static int open_descriptors(struct loop *loop)
{
	loop->channel = rdma_create_event_channel();
	if (!loop->channel) {
		log_error("no RDMA communication manager: %s", strerror(errno));
		return IBMSG_NO_DEVICE;
	}
	if (set_nonblocking(loop->channel->fd))
		return IBMSG_FCNTL_FAILED;
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	loop->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (loop->epoll_fd < 0 || loop->wake_fd < 0 || loop->timer_fd < 0)
		return IBMSG_EPOLL_FAILED;
	if (loop_watch(loop, loop->channel->fd, &loop->channel) ||
	    loop_watch(loop, loop->wake_fd, &loop->wake_fd) ||
	    loop_watch(loop, loop->timer_fd, &loop->timer_fd))
		return IBMSG_EPOLL_ADD_FD_FAILED;
	return IBMSG_OK;
}

static void free_loop(struct loop *loop)
{
	const int fds[] = {loop->epoll_fd, loop->wake_fd, loop->timer_fd};

	for (unsigned i = 0; i < sizeof(fds) / sizeof(*fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (loop->channel)
		rdma_destroy_event_channel(loop->channel);
	free(loop);
}

int loop_open(ibmsg_event_loop *event_loop)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	int error;

	if (!loop)
		return IBMSG_ALLOC_FAILED;
	loop->event_loop = event_loop;
	loop->epoll_fd = loop->wake_fd = loop->timer_fd = -1;
	loop->connect_ms = 10000;
	loop->keepalive_ms = 4000;
	loop->max_message = 1ull << 30;
	loop->max_memory = 2ull << 30;
	list_init(&loop->devices);
	list_init(&loop->conns);
	list_init(&loop->listeners);
	list_init(&loop->timers);
	list_init(&loop->due);
	list_init(&loop->unarmed);
	error = open_descriptors(loop);
	if (error) {
		free_loop(loop);
		return error;
	}
	event_loop->event_channel = loop->channel;
	event_loop->epollfd = loop->epoll_fd;
	event_loop->private_[0] = loop;
	return IBMSG_OK;
}

void loop_close(struct loop *loop)
{
	loop->dispatching = true;
	loop->ended = true;
	loop->dispatcher = pthread_self();
	while (!list_is_empty(&loop->listeners))
		cm_close_listener(list_first(&loop->listeners, struct listener, link));
	while (!list_is_empty(&loop->conns))
		conn_end(list_first(&loop->conns, struct conn, link), IBMSG_CLOSED);
	while (!list_is_empty(&loop->devices))
		device_free(list_first(&loop->devices, struct device, link));
	loop_unlock(loop);
	free_loop(loop);
}
