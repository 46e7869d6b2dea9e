# SPDX-License-Identifier: MIT
"""Who takes part in ./run bench peers, and the commands by which each does an exchange.

A contestant has a method for every exchange. It returns the ways in which it can be done, by name
and the usual one first, or Cannot, which says why not. A way is called and returns its results as
numbers: mean_us, p50_us, p99_us, p999_us (of one way), messages_per_s, gib_per_s, idle_bytes; and
"messages", how many it took to get there.
"""
import contextlib
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import pairs
from pairs import Failed

WARM_UP = 10  # one in so many comes before the measured ones, as in bench.h
IN_FLIGHT = 4 << 20  # bytes that a stream of ours has outstanding; UCX and bare TCP have one buffer
LONG = 64 << 10  # bytes of a message
FEW = 16  # messages in flight: what a stream of verbs posts
LISTEN = "0A"  # the state of a socket in /proc/net/tcp


class Cannot(str):
    """Why a contestant does not take part in an exchange."""


def with_warm_up(count):
    return count + count // WARM_UP


def buffers(size, most):
    return max(2, min(most, IN_FLIGHT // size))


class Contestant:
    """@medium: memory, if both ends have to be on one host; or tcp."""

    pace = 1.0  # of a stream of short messages: a share of the usual count

    def __init__(self, name, medium, program):
        self.name, self.medium, self.program = name, medium, str(program)

    def poll(self, _size, _count):
        return Cannot("does not poll")

    def sleep(self, _size, _count):
        return Cannot("does not sleep")

    def stream(self, _size, _count):
        return Cannot("has no streams")

    def turns(self, _connections, _count):
        return Cannot("has one connection")


# ---- programs of this folder ----


class Program(Contestant):
    """One of ours, which runs as both sides."""

    def __init__(self, name, medium, *command):
        super().__init__(name, medium, command[-1])
        self.command = list(map(str, command))

    def way(self, messages, test, *words):
        command = [*self.command, test, *map(str, words)]
        return lambda: {**pairs.run_pair(command), "messages": messages}

    def ping_pong(self, test, size, count, *more):
        words = ["--size", size, "--count", count, *more]
        return {test: self.way(2 * with_warm_up(count), test, *words)}

    def stream_way(self, test, size, count, *more):
        return self.way(with_warm_up(count), test, "--size", size, "--count", count, *more)

    def in_turn(self, connections, count):
        words = ["--idle", connections - 1] if connections > 1 else []
        return {"turns": self.way(2 * with_warm_up(count), "turns", "--count", count, *words)}


class CacheLine(Program):
    """Without contents, so no size changes it."""

    def poll(self, size, count):
        return self.ping_pong("poll", size, count) if size <= 64 else Cannot("is one line")

    def sleep(self, size, count):
        return self.ping_pong("sleep", size, count)


class BareTcp(Program):
    def poll(self, size, count):
        return self.ping_pong("poll", size, count)

    def sleep(self, size, count):
        return self.ping_pong("sleep", size, count)

    def stream(self, size, count):
        if size < 4096:
            batches = {f"writev of {batch}": ["--batch", batch] for batch in (64, 16)}
            return {name: self.stream_way("stream", size, count, *words)
                    for name, words in batches.items()}  # fmt: skip
        return {"spinning": self.stream_way("stream", size, count, "--spin"),
                "blocking": self.stream_way("stream", size, count)}  # fmt: skip

    turns = Program.in_turn


class Verbs(Program):
    def poll(self, size, count):
        return self.ping_pong("poll", size, count, "--one-cq")

    def sleep(self, size, count):
        return self.ping_pong("sleep", size, count, "--one-cq")

    def stream(self, size, count):
        many = ["--one-cq", "--buffers", buffers(size, FEW)]
        ways = {"SEND, credits": self.stream_way("send", size, count, "--credits", *many)}
        if size < 4096:
            ways["SEND"] = self.stream_way("send", size, count, *many)
        else:
            ways["READ"] = self.stream_way("read", size, count, *many)
            ways["WRITE"] = self.stream_way("write", size, count, *many)
        return ways

    turns = Program.in_turn


class Ibmsg(Program):
    def poll(self, size, count):
        return self.ping_pong("poll", size, count)

    def sleep(self, size, count):
        return self.ping_pong("sleep", size, count)

    def stream(self, size, count):
        many = ["--buffers", buffers(size, 256 if size < LONG else FEW)]
        return {"stream": self.stream_way("stream", size, count, *many)}

    turns = Program.in_turn


class Messenger(Program):
    """ZeroMQ and nng: what the program waits for, a thread of theirs has read."""

    def poll(self, _size, _count):
        return Cannot("its own thread does the I/O, and sleeps")

    def sleep(self, size, count):
        return self.ping_pong("sleep", size, count, *self.local())

    def stream(self, size, count):
        return {"stream": self.stream_way("stream", size, count, *self.local())}

    def turns(self, connections, count):
        more = ["--idle", connections - 1] if connections > 1 else []
        words = ["--count", count, *more, *self.local()]
        messages = 2 * (with_warm_up(count) + connections)
        return {"REQ and REP": self.way(messages, "turns", *words)}

    def local(self):
        return ["--local"] if self.medium == "memory" else []


class Nng(Messenger):
    pace = 0.1


# ---- programs of others ----


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_listening(port):
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in pathlib.Path(table).read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == LISTEN and int(words[1].split(":")[1], 16) == port:
                    return True
    return False


def run_others(server_command, client_command, port):
    """What the client says. They do not tell when they listen, so the kernel is asked."""
    with contextlib.ExitStack() as stack:
        server = pairs.start(pairs.SERVER_CORE, server_command, subprocess.DEVNULL)
        stack.callback(pairs.end, server)
        give_up = time.monotonic() + pairs.LIMIT
        while not is_listening(port):
            if server.poll() is not None or time.monotonic() > give_up:
                raise Failed("the server does not listen")
            time.sleep(0.005)
        client = pairs.start(pairs.CLIENT_CORE, client_command, subprocess.DEVNULL)
        stack.callback(pairs.end, client)
        text = pairs.finish(client, "client")
        pairs.finish(server, "server")
    return text


def parse_ucx(text):
    """Of two lines of CSV, of which the last is values."""
    lines = [line.split(",") for line in text.strip().splitlines() if "," in line]
    if len(lines) < 2 or len(lines[-1]) != len(lines[-2]):
        raise Failed(f"ucx_perftest says: {text.strip()[-200:]}")
    values = dict(zip(lines[-2], map(float, lines[-1])))
    percentile = next(value for key, value in values.items() if key.endswith("_percentile_lat"))
    return {"percentile": percentile, "mean_us": values["overall_lat"],
            "messages_per_s": values["overall_mr"], "mib_per_s": values["overall_bw"]}  # fmt: skip


class Ucx(Contestant):
    """ucx_perftest's active messages."""

    def __init__(self, name, medium, *settings):
        super().__init__(name, medium, "ucx_perftest")
        self.settings = settings
        self.pace = 1.0 if medium == "memory" else 0.2

    def run(self, test, size, count, *more):
        port = free_port()
        command = ["env", *self.settings, "ucx_perftest", "-p", str(port)]
        warm_up = max(count // WARM_UP, 1)
        client = [*command, "127.0.0.1", "-f", "-v", "-t", test, "-s", str(size), "-n", str(count),
                  "-w", str(warm_up), *map(str, more)]  # fmt: skip
        return parse_ucx(run_others(command, client, port))

    def latency(self, size, count, *more):
        """It gives one percentile in a run."""
        results = {"messages": 0}
        ranks = {"p50_us": 50, "p99_us": 99, "p999_us": 99.9}
        for key, rank in ranks.items():
            run = self.run("ucp_am_lat", size, count, "-R", rank, *more)
            results[key] = run["percentile"]
            results.setdefault("mean_us", run["mean_us"])
            results["messages"] += 2 * with_warm_up(count)
        return results

    def poll(self, size, count):
        if size != 64:  # of a curve, the median is enough
            return {"am": lambda: self.median(size, count)}
        return {"am": lambda: self.latency(size, count)}

    def median(self, size, count):
        run = self.run("ucp_am_lat", size, count)
        return {"p50_us": run["percentile"], "mean_us": run["mean_us"],
                "messages": 2 * with_warm_up(count)}  # fmt: skip

    def sleep(self, size, count):
        return {"am": lambda: self.latency(size, count, "-E", "sleep")}

    def stream(self, size, count):
        def run():
            results = self.run("ucp_am_bw", size, count)
            rate = results["messages_per_s"]  # in whole ones, bandwidth in hundredths
            gib_per_s = rate * size / 2**30 if rate > 10000 else results["mib_per_s"] / 1024
            return {"messages_per_s": rate, "gib_per_s": gib_per_s,
                    "messages": with_warm_up(count)}  # fmt: skip

        return {"am": run}

    def turns(self, _connections, _count):
        return Cannot("ucx_perftest has one connection")


class Fabric(Contestant):
    """fi_pingpong, of which the mean is all there is."""

    def __init__(self, name, medium, *ways):
        super().__init__(name, medium, "fi_pingpong")
        self.ways = ways

    def run(self, way, size, count):
        port = str(free_port())
        command = ["fi_pingpong", *way.split(), "-I", str(count), "-S", str(size)]
        text = run_others([*command, "-B", port], [*command, "-P", port, "127.0.0.1"], int(port))
        words = text.strip().splitlines()[-1].split() if text.strip() else []
        try:
            mean_us = float(words[6])
        except (IndexError, ValueError) as error:
            raise Failed(f"fi_pingpong says: {text.strip()[-200:]}") from error
        return {"mean_us": mean_us, "messages": 2 * count}

    def poll(self, size, count):
        return {way: lambda way=way: self.run(way, size, count) for way in self.ways}

    def sleep(self, _size, _count):
        return Cannot("fi_pingpong does not sleep")

    def stream(self, _size, _count):
        return Cannot("fi_pingpong has no streams")

    def turns(self, _connections, _count):
        return Cannot("fi_pingpong has one connection")


# ---- all of them ----


def shared_memory_is_used(build):
    """Whether softrdma takes it between two processes here; its log says so."""
    command = ["env", "SOFTRDMA=on", "SOFTRDMA_LOG=info", str(build / "bin/softrdma"),
               str(build / "bin/bench/verbs_pair"), "poll", "--count", "10"]  # fmt: skip
    with tempfile.TemporaryFile("w+") as log:
        pairs.run_pair(command, log)
        log.seek(0)
        return "connected by shared memory" in log.read()


def ours(build, medium, name, setting):
    settings = ["env", "SOFTRDMA=on", f"SOFTRDMA_SHM={setting}"]
    programs = build / "bin/bench"
    return [
        Verbs(f"verbs, {name}", medium, *settings, build / "bin/softrdma", programs / "verbs_pair"),
        Ibmsg(f"ibmsg, {name}", medium, *settings, programs / "ibmsg_pair"),
    ]


def contestants(build):
    """In the order of the tables, and notes on who is missing."""
    programs = build / "bin/bench"
    found, notes = [CacheLine("cache line", "memory", programs / "cache_line")], []
    if shared_memory_is_used(build):
        found += ours(build, "memory", "shm", "on") + ours(build, "memory", "ring", "ring")
    else:
        notes.append("softrdma does not use shared memory here; its rows are left out")
    found += [
        Ucx("UCX, posix and cma", "memory", "UCX_TLS=posix,cma"),
        Fabric("libfabric, shm", "memory", "-p shm -e rdm"),
        Messenger("ZeroMQ, ipc", "memory", programs / "zmq_pair"),
        Nng("nng, ipc", "memory", programs / "nng_pair"),
        BareTcp("bare TCP", "tcp", programs / "bare_tcp"),
        *ours(build, "tcp", "tcp", "off"),
        Ucx("UCX, tcp", "tcp", "UCX_TLS=tcp", "UCX_NET_DEVICES=lo"),
        Fabric("libfabric, tcp", "tcp", "-p tcp -e msg", "-p tcp -e rdm"),
        Messenger("ZeroMQ, tcp", "tcp", programs / "zmq_pair"),
        Nng("nng, tcp", "tcp", programs / "nng_pair"),
    ]
    absent = [one for one in found if not shutil.which(one.program)]
    notes += [f"{one.name} is left out: there is no {one.program}" for one in absent]
    return [one for one in found if one not in absent], notes
