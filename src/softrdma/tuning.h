/* SPDX-License-Identifier: MIT */
/*
 * The tuning constants of libsoftrdma: numbers that change how fast it is, not what it does.
 *
 * A constant belongs here if a benchmark could ask for another value. Limits of a protocol, sizes
 * of a format and timeouts that a program can notice stay beside the code that they belong to.
 * Each constant says what it counts, why it has this value, and which benchmark decides it. Change
 * one only with that benchmark, interleaved with the value before; docs/performance.md says how.
 */
#ifndef SOFTRDMA_TUNING_H
#define SOFTRDMA_TUNING_H

/* ---- progress: how soon the progress thread steps in (progress/policy.h has the rules) ---- */

/*
 * The first tick of the thread, in nanoseconds, after pollers took over. A target that stops
 * polling answers one-sided requests after two of these. Shorter ticks steal time from a poller
 * that shares its core. Benchmark: `bench softrdma`, "64 B SEND ping-pong, polling".
 */
#define PROGRESS_TICK_NS 100000

/*
 * The longest tick, in nanoseconds. Each tick takes some 30 us from a pinned poller on a virtual
 * machine, which is the 99th percentile of its round trip; 1 ms was too often. A tick also bounds
 * how long gathered sends wait for a program that stopped polling; 4 ms was too long for that.
 * Benchmark: the 99th percentile of `bench softrdma`, "64 B SEND ping-pong, polling".
 */
#define PROGRESS_LONG_TICK_NS 2000000

/*
 * How long the thread gives a program that posts and sleeps to gather more sends, in nanoseconds.
 * Shorter, and the thread takes them away one by one; longer is latency for a program that does
 * not come back. Benchmark: `bench peers`, the sleeping rows of verbs and ibmsg over TCP.
 */
#define PROGRESS_KICK_NS 50000

/*
 * Consecutive ticks without a poll, or with data unread, after which the thread drives the data.
 * One tick is no proof: a poller may have lost its core for that long. Benchmark: `bench softrdma`,
 * "64 B SEND ping-pong, polling", beside other load.
 */
#define PROGRESS_PATIENT_TICKS 2

/*
 * The same, without a poll, while a program sleeps in an event loop of its own. Such a program is
 * rightly silent, and the kernel wakes it for data; 25 ticks are at most 50 ms. A thread that
 * steps in earlier is woken for every message beside the program. Benchmark: `bench peers`, the
 * sleeping rows of ibmsg; without this rule they took half as long again.
 */
#define PROGRESS_LOOP_TICKS 25

/*
 * Consecutive empty polls after which a poller is taken to spin, and the thread leaves the data to
 * it. So many take longer than a short computation between two single polls. Benchmark:
 * `bench softrdma`, "64 B SEND ping-pong, polling"; 256 was never compared finely.
 */
#define PROGRESS_MISSES_TO_YIELD 256

/*
 * Polls that found data while the thread was watching, after which the thread leaves the data to
 * the pollers. Few, because until then each message wakes the thread too. Benchmark: as above.
 */
#define PROGRESS_HITS_TO_YIELD 16

/*
 * Packets that pollers find at one source until they own it and it leaves the epoll set. Then a
 * packet costs the kernel no wake-up: the ratio to bare TCP went from 1.16 to 1.11. Leaving and
 * coming back are a system call each, which 64 packets are worth. Benchmark: `bench softrdma`,
 * "64 B SEND ping-pong, polling"; for raw packets `bench packets`.
 */
#define PROGRESS_FINDS_TO_HAND_OVER 64

/*
 * Polls without a hit between two looks at the whole DATA set. A look is a system call, of which
 * a poller of one queue pair sees nothing; a poller of many needs it to hear of the others.
 * Benchmark: `bench softrdma`, "64 B ping-pong with 4,999 idle connections beside", and
 * `bench peers`, connections in turn.
 */
#define PROGRESS_LOOK_EMPTY 8

/*
 * The same for polls that found something: the others must not starve beside a busy one.
 * Benchmark: `bench softrdma`, "64 B SEND stream".
 */
#define PROGRESS_LOOK_BUSY 64

/*
 * The same for polls without a hit while pollers own every source: then such a look can only find
 * what another poller neglects, and the tick finds that too. Benchmark: `bench peers`, "64 B one
 * way, polling" in shared memory, where a system call every 8 polls would dominate.
 */
#define PROGRESS_LOOK_ALL_OWNED 1024

/*
 * Event loops that may have the DATA set in them. The kernel walks through all of them whenever
 * data arrives. Benchmark: `bench peers`, the sleeping rows; 8 was never compared finely.
 */
#define PROGRESS_MOST_LOOPS 8

/*
 * CM callbacks that the thread runs in a row before data and timers have their turn. It keeps a
 * flood of new connections from starving the others. No benchmark has decided it. One that is set
 * up for it should compare `bench peers`, connections in turn, with 1,000 of them.
 */
#define PROGRESS_CM_AT_ONCE 16

/*
 * Ready sources that one system call reports; the array is on the stack. 64 was never compared
 * finely. Benchmark: `bench peers`, connections in turn, with 100 and 1,000 of them.
 */
#define PROGRESS_EVENTS_AT_ONCE 64

#endif
