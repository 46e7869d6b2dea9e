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
 * it. That takes longer than a short computation between two single polls. Benchmark:
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

/*
 * Bytes of one copy or system call of a poller from which on the thread is told that it has begun
 * and ended (progress_begin_long). A longer one may outlast a tick, and the thread must not take
 * the poller for gone meanwhile. At 5 GiB/s, 32 KiB take 6 us of a tick of 100 us. Shorter calls
 * are spared the two updates of a counter. No comparison with other values is recorded. Benchmark:
 * `bench softrdma`, "1 MiB WRITE stream" and "1 MiB READ stream".
 */
#define PROGRESS_LONG_MOVE_BYTES (32u << 10)

/* ---- rc: what all reliable connections share ---- */

/*
 * Looks of one empty poll of a CQ, shared among the queue pairs that it looks at. A service that
 * gets all of them knows that the poller has nothing else to look at, and may pause between two
 * looks. With 16 in all instead of 8 for each, one way over 30 connections in turn in shared memory
 * went from 0.44 to 0.34 us, for ibmsg from 0.58 to 0.47 us (2026-11-16). Benchmark: `bench peers`,
 * "64 B one way, polling" and connections in turn, the rows of shm.
 */
#define RC_LOOKS 16

/*
 * Consecutive empty polls of a connection before an acknowledgement leaves without company. A
 * program may poll once more before it posts its reply: with 1, libibmsg made twice as many system
 * calls over TCP. Benchmark: `bench ibmsg`, "64 B ping-pong, polling".
 */
#define RC_ACK_POLLS 2

/* ---- verbs: polls and posts ---- */

/*
 * Queue pairs that may be active at a CQ: they had traffic lately, and an empty poll looks at each.
 * With 4, 30 connections of shared memory in turn took 4.5 us for a message; with 32 they take
 * 0.34 us. Benchmark: `bench peers`, connections in turn.
 */
#define CQ_MAX_ACTIVE 32

/*
 * Those of them at which a look is a system call. Beyond a few, one look at the whole DATA set is
 * cheaper. No comparison with other values is recorded. Benchmark: `bench peers`, connections in
 * turn, the rows of tcp.
 */
#define CQ_MAX_ACTIVE_SYSCALL 4

/*
 * Active queue pairs that did something without a completion, after which a poll returns. No
 * comparison with other values is recorded. Benchmark: `bench softrdma`, the 1 MiB streams.
 */
#define CQ_HITS 4

/*
 * Consecutive empty polls after which a queue pair becomes inactive, if a look at it is a system
 * call. No comparison with other values is recorded. Benchmark: `bench peers`, connections in turn.
 */
#define CQ_EMPTY_POLLS_SYSCALL 64

/* The same if a look is a read of memory, which costs a poll little. Benchmark: as above. */
#define CQ_EMPTY_POLLS 2048

/*
 * Requests that may wait to leave together in one system call. No comparison with other values is
 * recorded. Benchmark: `bench softrdma`, "64 B SEND stream".
 */
#define POST_MAX_HELD_BACK 32

/*
 * Bytes of a request with which it and those before it leave at once: its copy dominates the system
 * call. No comparison with other values is recorded. Benchmark: as above, and the 1 MiB streams.
 */
#define POST_MAX_HELD_BACK_BYTES (32 << 10)

/* ---- shm: connections in shared memory ---- */

/*
 * Entries that one run takes out of the ring before others have their turn. No comparison with
 * other values is recorded. Benchmark: `bench peers`, "64 B rate" and connections in turn, the rows
 * of shm.
 */
#define SHM_ENTRIES_AT_ONCE 16

/*
 * Consecutive empty polls of a connection after which each further one looks at its ring only once.
 * A silent connection may be one of many, and more looks at it delay the others. It was 8 at first,
 * and became 64 so that a lone connection is looked at as often as before while it is in use.
 * Benchmark: `bench peers`, connections in turn, and "64 B one way, polling", the rows of shm.
 */
#define SHM_MISSES_TO_LOOK_ONCE 64

/*
 * Looks at the ring between two at what the peer has placed, while acknowledgements are awaited.
 * Each look takes a cache line away from the peer, which writes both, and mostly a message comes
 * first. But a program with one buffer cannot reply before it has heard of its last message:
 * libibmsg's ping-pong took 0.61 us with 1 or 2 and 0.69 us with 4 (2026-11-18, seven rounds).
 * Benchmark: `bench peers`, "64 B one way, polling" in shared memory.
 */
#define SHM_LOOKS_PER_ACK 2

/*
 * Consecutive messages found without waiting that let a poll take one entry more. The peer is then
 * ahead, and another message is likely to be there. Otherwise a look behind the first message waits
 * for a cache line that the peer has just written. This rule and the pause between two looks took
 * 6 % off 64 bytes one way by ibmsg, and left the rate as it was (2026-11-16). No comparison of 8
 * with other values is recorded. Benchmark: `bench peers`, "64 B one way, polling" and "64 B rate",
 * the rows of shm.
 */
#define SHM_MESSAGES_TO_LEAD 8

/*
 * The reader tells the writer about free room each time that it has read this share of the ring: 4
 * is a quarter. Each time costs both ends a cache line; if it is told too rarely, the writer waits
 * for room. shm/rx.c asserts that the rest of the ring has room for the longest entry. No
 * comparison with other values is recorded. Benchmark: `bench peers`, "64 B rate", the rows of shm,
 * and "1 MiB bandwidth", the rows of ring.
 */
#define SHM_PUBLISH_SHARE 4

/*
 * Steps of one run of sending before others have their turn. A step is an entry of the ring or a
 * single copy. No comparison with other values is recorded. Benchmark: `bench peers`, "64 B rate",
 * the rows of shm, and "1 MiB bandwidth", the rows of ring.
 */
#define SHM_STEPS_AT_ONCE 64

/*
 * Bytes of a single copy that count as one more step: a run copies about 4 MiB at most. No
 * comparison with other values is recorded. Benchmark: `bench peers`, "1 MiB bandwidth", verbs by
 * shm.
 */
#define SHM_STEP_BYTES (64u << 10)

/*
 * Bytes of a SEND from which on a peer that sleeps fetches it by a single copy. Shorter ones go
 * through the ring, where one wake-up suffices for them. A longer one could fill the ring, and the
 * peer would be woken for each ring that is full. A peer that is awake always gets the ring,
 * because both ends copy at the same time: 64 KiB one way took 3.9 us instead of 10.4 us
 * (2026-11-15). No benchmark has decided 16 KiB: the sleeping rows of `bench peers` have 64 B
 * alone.
 */
#define SHM_FETCH_MIN (16u << 10)

/*
 * Rounds of receiving and sending in one callback, before others have their turn. No benchmark has
 * decided it. One that is set up for it should compare `bench peers`, "64 B rate" by shm, with both
 * ends asleep.
 */
#define SHM_RUNS_AT_ONCE 8

/*
 * Bytes of one single copy. ibv_dereg_mr waits for a copy in flight, and 1 MiB takes a millisecond
 * at most; PATIENCE_NS in shm/regions.c, after which a peer counts as stopped, relies on that. No
 * comparison with other values is recorded. Benchmark: `bench peers`, "1 MiB bandwidth" and the
 * curve of bandwidth from 4 MiB on, verbs by shm.
 */
#define SHM_COPY_BYTES (1u << 20)

/* ---- tcp: connections over a socket ---- */

/*
 * Bytes of a burst, which leaves by one system call, at which it takes no further FPDU. Fewer and
 * longer calls cost the kernel less: with 768 KiB instead of 256 KiB, 1 MiB messages went from 4.7
 * to 5.3 GiB/s. With 896 KiB and the queue of TCP_NEAR_QUEUE_BYTES, SEND went from 5.8 to 6.5 GiB/s
 * (both 2026-11-16). tcp/burst.c asserts that a burst and one FPDU fit that queue. Benchmark:
 * `bench peers`, "1 MiB bandwidth", verbs and ibmsg by tcp.
 */
#define TCP_BURST_BYTES (896 << 10)

/*
 * Bursts of one run of sending, before others have their turn. It was 4 when a burst had 1 MiB, and
 * no comparison with other values is recorded. Benchmark: `bench softrdma`, "1 MiB WRITE stream".
 */
#define TCP_BURSTS_AT_ONCE 2

/*
 * Pieces of memory of a burst, at most. The array of 16 bytes for each is part of every connection.
 * One FPDU may need RC_MAX_SGE and two more, for its header and its trailer. No comparison with
 * other values is recorded. Benchmark: `bench softrdma`, "1 MiB WRITE stream" and "memory per idle
 * connection".
 */
#define TCP_BURST_PIECES 64

/*
 * Bytes of the stage, to which the headers, the trailers and the short payloads of a burst are
 * copied. Every connection has one. 4 KiB have room for some 45 SENDs of 64 bytes in one system
 * call. No comparison with other values is recorded. Benchmark: `bench softrdma`, "64 B SEND
 * stream" and "memory per idle connection".
 */
#define TCP_STAGE_BYTES 4096

/*
 * The same for a connection with CRC. All payloads are copied then, because the CRC must be of the
 * very bytes that leave. 72 KiB have room for the longest FPDU. No benchmark has decided it, and
 * none uses CRC.
 */
#define TCP_STAGE_CRC_BYTES (72 << 10)

/*
 * Bytes of the longest payload that is copied to the stage. A longer one is left where it is, and
 * becomes a piece of its own. A copy is cheaper than a further piece as long as it is short. No
 * benchmark has decided 512 bytes. One that is set up for it should compare `bench peers`, the
 * curves between 256 B and 4 KiB, verbs by tcp.
 */
#define TCP_COPY_MAX 512

/*
 * Bytes of the send queue of a connection within the host, as set by SO_SNDBUF. The kernel doubles
 * them for its own needs, which are small here. The kernel's own choice grows to 4 MiB, which is
 * more than the caches beside the two cores hold. With 1 MiB, 1 MiB messages travelled 7 to 13 %
 * faster. A queue of half that length is slower than the kernel's choice, and one that is an eighth
 * longer is no faster (2026-11-16). Benchmark: `bench peers`, "1 MiB bandwidth", verbs and ibmsg by
 * tcp.
 */
#define TCP_NEAR_QUEUE_BYTES (512 << 10)

/*
 * Bytes of the buffer for reading, one for each thread; a read into it takes as much. The longest
 * FPDU fits. No benchmark has decided it.
 */
#define TCP_SCRATCH_BYTES (64 << 10)

/*
 * The same for a read behind one that delivered SENDs. It brings no more SENDs than a usual receive
 * queue takes; those beyond it would have to be kept and copied once more. No comparison with other
 * values is recorded. Benchmark: `bench softrdma`, "64 B SEND stream".
 */
#define TCP_SCRATCH_SENDS_BYTES (16 << 10)

/*
 * Bytes that a payload still lacks from which on they are read straight to their place, not by way
 * of the buffer. That saves a copy. No comparison with other values is recorded. Benchmark:
 * `bench peers`, the curves between 1 KiB and 16 KiB, verbs by tcp.
 */
#define TCP_DIRECT_MIN 2048

/*
 * Bytes that such a read takes behind the payload, in the middle of a message. They have room for
 * the trailer and the longest header, so that the next payload can be read to its place too. What
 * is read of that payload itself is copied. Benchmark: `bench softrdma`, "1 MiB WRITE stream".
 */
#define TCP_DIRECT_TAIL 128

/*
 * Reads of one run of receiving, before others have their turn. No comparison with other values is
 * recorded. Benchmark: `bench softrdma`, "1 MiB READ stream", and `bench peers`, connections in
 * turn.
 */
#define TCP_READS_AT_ONCE 16

/*
 * Reads of one empty poll at a socket that pollers own. The second look comes sooner than that of
 * the next poll would. No comparison with other values is recorded. Benchmark: `bench softrdma`,
 * "64 B SEND ping-pong, polling".
 */
#define TCP_LOOKS 2

/*
 * Reads of 16 KiB from a connection that has ended, before others have their turn. What is read is
 * dropped. No benchmark has decided it, and none looks at the end of connections.
 */
#define TCP_DRAINS_AT_ONCE 64

/* ---- meet: how queue pairs find each other by number ---- */

/*
 * A hello that came too early is said again after this time, which doubles up to the second. Two
 * programs that bring up their queue pairs at once are some milliseconds apart. No benchmark has
 * decided it, and none looks at how fast queue pairs meet.
 */
#define MEET_RETRY_MS     1u
#define MEET_RETRY_MAX_MS 1000u

/* The time for TCP and the answer to a hello, of a dialler; and to say it, of a visitor. */
#define MEET_DIAL_MS    5000u
#define MEET_HELLO_MS   2000u
/* When a port cannot accept: how long it waits for a descriptor or for memory. */
#define MEET_STARVED_MS 100u

/*
 * Visitors of all ports that have not said their hello. Beyond, the one that has waited longest
 * makes room, so a crowd that says nothing keeps nobody out.
 */
#define MEET_MAX_VISITORS 256u

/* Reads in flight that an end asks for. The peer's max_dest_rd_atomic is the limit. */
#define MEET_MAX_READS 128u

/* ---- cm: how connections begin and end ---- */

/*
 * Connections that a listener accepts in one callback, before others have their turn. No benchmark
 * has decided it, and none looks at how fast connections are made.
 */
#define CM_ACCEPTS_AT_ONCE 64

/*
 * Reads of 4 KiB in one callback from a socket that the CM has closed for sending. What is read is
 * dropped, and a timer ends a peer that keeps sending. No benchmark has decided it, and none looks
 * at the end of connections.
 */
#define CM_LINGER_READS_AT_ONCE 16

/* ---- raw: raw packets ---- */

/*
 * Frames that one poll takes from a queue pair. A poller wants its completions soon. No comparison
 * with other values is recorded. Benchmark: `bench packets`, "100 B spinning" and "100 B without
 * loss".
 */
#define RAW_POLL_FRAMES 64

/*
 * Frames that one callback takes. More than a poll, so that a thread that was woken is woken less
 * often. No comparison with other values is recorded. Benchmark: `bench packets`, "100 B without
 * loss".
 */
#define RAW_READY_FRAMES 256

/*
 * Slots of the ring for each receive of the queue pair. They also hold what comes while no receive
 * is posted. The kernel and the reader walk through the whole ring again and again, so a ring that
 * is larger than the receives are worth leaves the caches. For 64 receives a round trip took 5.2 us
 * with 16,384 slots, 4.95 us with 512 and 4.9 us with 256. Where many receives announce bursts,
 * more slots lose less: 691 thousand frames of 100 bytes a second with 16,384 slots, 872 thousand
 * with 65,536 (2026-11-16). Benchmark: `bench packets`, "round trip, spinning" and "100 B without
 * loss".
 */
#define RAW_RING_SLOTS_PER_RECEIVE 8

/*
 * The fewest slots of a ring, however few receives there are. The round trips of
 * RAW_RING_SLOTS_PER_RECEIVE speak for it. Benchmark: `bench packets`, "round trip, spinning".
 */
#define RAW_RING_LEAST_SLOTS 512

/*
 * The longest ring, in bytes; rings for long frames have fewer slots. Room decides how much is
 * lost. At 1500 bytes 27 MiB took 540 thousand frames a second without loss, 32 MiB 571 thousand,
 * 64 MiB 581 thousand. At 9000 bytes 64 MiB took 210 thousand, 128 MiB 219 thousand (2026-11-16).
 * Benchmark: `bench packets`, "1500 B without loss" and "9000 B without loss".
 */
#define RAW_RING_MOST_BYTES (128 << 20)

/*
 * Bytes that the socket of the ring keeps for all frames that are longer than a slot. No benchmark
 * has decided it.
 */
#define RAW_RING_LONG_BYTES (16 << 20)

/*
 * Bytes of a block, in which the kernel allocates the ring. Slots do not cross the end of a block,
 * so what is left there is lost. A slot with the longest frame must fit. No benchmark has decided
 * it. One that is set up for it should compare `bench packets`, "9000 B without loss".
 */
#define RAW_RING_BLOCK_BYTES (256 << 10)

/*
 * Slots whose status the reader prefetches for the kernel when it has emptied the ring. The kernel
 * reads the status before it fills the slot, mostly on the same core, and would wait for it. At
 * 1500 bytes 6, 10 and 0 % more frames came without loss, in three runs (2026-11-16). Benchmark:
 * `bench packets`, "1500 B without loss".
 */
#define RAW_RING_WARM_SLOTS 8

/*
 * Frames that one system call reads from a packet socket (SOFTRDMA_RAW=socket). The back end has a
 * buffer of 68 KiB for each. No comparison with other values is recorded. Benchmark:
 * `bench packets`, "100 B without loss", with that setting.
 */
#define RAW_SOCKET_BATCH 32

/*
 * Pieces of memory into which such a call reads, at most: four for each frame. A receive may have
 * more; then fewer frames are read at once. No benchmark has decided it.
 */
#define RAW_SOCKET_PIECES (4 * RAW_SOCKET_BATCH)

/*
 * Bytes of the receive buffer of such a socket, or as many as the kernel grants. With 64 MiB and
 * with 128 MiB, 155 and 161 thousand frames of 9000 bytes a second came without loss (2026-11-16);
 * no figure for 32 MiB is recorded. Benchmark: `bench packets`, "9000 B without loss", with that
 * setting.
 */
#define RAW_SOCKET_BUFFER_BYTES (32 << 20)

/*
 * Chunks of AF_XDP memory of one queue, a frame in each; twice as many where RAW_XDP_JUMBO_MTU says
 * so. All queues together have at most twice this number, unless RAW_XDP_LEAST_CHUNKS asks for
 * more. No comparison with other values is recorded. Benchmark: `bench packets`, "1500 B without
 * loss", with SOFTRDMA_RAW=xdp.
 */
#define RAW_XDP_MOST_CHUNKS 8192

/*
 * The fewest chunks of one queue. With many queues, or where the limit of locked memory is low, the
 * number is halved down to this. No benchmark has decided it.
 */
#define RAW_XDP_LEAST_CHUNKS 512

/*
 * The MTU, in bytes, above which a queue gets twice as many chunks. A jumbo frame of 9000 bytes
 * takes three. No comparison with other values is recorded. Benchmark: `bench packets`, "9000 B
 * without loss", with SOFTRDMA_RAW=xdp.
 */
#define RAW_XDP_JUMBO_MTU 3500

/*
 * Rules of a packet socket up to which its filter is classic BPF, which compares one rule after the
 * other. With more it is eBPF, which looks them up in tables. No benchmark has decided 8:
 * `bench packets` compares 1 rule with 256 ("100 B with 256 rules").
 */
#define RAW_MANY_RULES 8

/*
 * Rules of one mask up to which an eBPF filter compares them one after the other. With more it
 * looks them up in a table, which is a call of a helper. No benchmark has decided 4.
 */
#define RAW_FEW_RULES 4

/*
 * Frames that one system call sends. The array is on the stack, with RC_MAX_SGE pieces for each. No
 * comparison with other values is recorded, and no benchmark looks at the rate of sending alone.
 */
#define RAW_SEND_BATCH 64

/*
 * Bytes of the send buffer of a packet socket. No comparison with other values is recorded, and no
 * benchmark looks at the rate of sending alone.
 */
#define RAW_SEND_BUFFER_BYTES (8 << 20)

/*
 * Milliseconds until the next attempt when the queue of the interface is full. The kernel does not
 * tell when it has room again. No benchmark has decided it.
 */
#define RAW_SEND_RETRY_MS 1

#endif
