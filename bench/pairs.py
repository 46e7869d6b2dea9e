# SPDX-License-Identifier: MIT
"""What the benchmarks share: running pairs of programs in rounds, comparing them, and the table.

Every measurement of ours runs next to its bare counterpart, in rounds, so that both see the same
machine; the order changes from round to round. Server and client are pinned to a core each.
"""
import argparse
import contextlib
import json
import os
import pathlib
import select
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SERVER_CORE, CLIENT_CORE = "0", "1"
LIMIT = 60  # seconds for one run of a pair
MIB = 1 << 20


class Failed(Exception):
    """A program did not do its part."""


# ---- running a pair ----


def start(core, command, stderr=None):
    """A pinned child whose stdout is ours to read."""
    return subprocess.Popen(
        ["taskset", "-c", core, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def end(child):
    if child.poll() is None:
        child.kill()
    child.wait()
    child.stdout.close()


def read_port(server):
    """Of the line "listening PORT"."""
    if not select.select([server.stdout], [], [], LIMIT)[0]:
        raise Failed("the server does not listen")
    words = server.stdout.readline().split()
    if len(words) != 2 or words[0] != "listening":
        raise Failed("the server ended before it listened")
    return words[1]


def finish(child, who):
    """All that it says."""
    try:
        text, _ = child.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"the {who} did not end within {LIMIT} s") from error
    if child.returncode:
        raise Failed(f"the {who} ended with status {child.returncode}")
    return text


def numbers(text):
    """Of key=value pairs."""
    return {key: float(value) for key, value in (word.split("=") for word in text.split())}


def run_pair(command, stderr=None):
    """The client's results, and the server's with "server_" before each name."""
    command = [*command, "--limit", str(LIMIT)]
    with contextlib.ExitStack() as stack:
        server = start(SERVER_CORE, command, stderr)
        stack.callback(end, server)
        client = start(CLIENT_CORE, [*command, "--connect", read_port(server)], stderr)
        stack.callback(end, client)
        results = numbers(finish(client, "client"))
        ours = numbers(finish(server, "server"))
    return {**results, **{f"server_{key}": value for key, value in ours.items()}}


# ---- comparing ----


class Group:
    """Runs that are compared with each other: one of each per round, in changing order."""

    def __init__(self, **commands):
        self.commands = commands
        self.runs = {label: [] for label in commands}

    def run_round(self, number_of_round):
        labels = list(self.commands)
        for label in reversed(labels) if number_of_round % 2 else labels:
            try:
                self.runs[label].append(run_pair(self.commands[label]))
            except Failed as error:
                raise Failed(f"{' '.join(self.commands[label])}: {error}") from error

    def values(self, label, key):
        return [run[key] for run in self.runs[label]]

    def median(self, label, key):
        return statistics.median(self.values(label, key))

    def ratio(self, ours, bare):
        """The median of the rounds' ratios of two (label, key)."""
        return statistics.median(a / b for a, b in zip(self.values(*ours), self.values(*bare)))


def against(group, name, unit, ours, bare, target, lower_is_better):
    """A row: @ours against the best of @bare, each a (label, key)."""
    best = min if lower_is_better else max
    winner = best(bare, key=lambda side: group.median(*side))
    ratio = group.ratio(ours, winner)
    return {
        "name": name,
        "unit": unit,
        "ours": group.median(*ours),
        "bare": group.median(*winner),
        "winner": winner[0].replace("_", " "),
        "ratio": ratio,
        "best_ratio": best(group.values(*ours)) / best(group.values(*winner)),
        "target": f"{'<=' if lower_is_better else '>='} {target} x",
        "met": ratio <= target if lower_is_better else ratio >= target,
        "bare_medians": {label: group.median(label, key) for label, key in bare},
    }


def alone(name, unit, value, target, lower_is_better):
    """A row whose target is a number of its own, or None."""
    row = {"name": name, "unit": unit, "ours": value}
    if target is None:
        return row
    return {
        **row,
        "target": f"{'<' if lower_is_better else '>='} {number(target)}",
        "met": value < target if lower_is_better else value >= target,
    }


def bare_notes(medians):
    return [f"bare {label.replace('_', ' ')} {number(value)}" for label, value in medians.items()]


class Comparison:
    """Ours against the best of bare. Of @beside, a note says how it fares."""

    def __init__(self, name, target, ours, bare, beside=None):
        self.name, self.target, self.bare, self.beside = name, target, list(bare), beside or {}
        self.group = Group(ours=ours, **bare, **self.beside)

    def row(self, unit, key, lower_is_better):
        bare = [(label, key) for label in self.bare]
        row = against(self.group, self.name, unit, ("ours", key), bare, self.target,
                      lower_is_better)  # fmt: skip
        row["beside_medians"] = {label: self.group.median(label, key) for label in self.beside}
        row["notes"] = [
            f"{label.replace('_', ' ')} {number(value)},"
            f" ratio {number(self.group.ratio(('ours', key), (label, key)))}"
            for label, value in row["beside_medians"].items()
        ]
        return row


class Latency(Comparison):
    """Ping-pong. The median counts; what a thread beside it costs is seen in mean and p99."""

    def rows(self):
        row = self.row("us", "p50_us", True)
        row["notes"] += [
            f"{key[:-3]} {number(self.group.median('ours', key))},"
            f" bare {number(self.group.median(self.bare[0], key))}"
            for key in ("mean_us", "p99_us")
        ]
        return [row]


class Idle:
    """One process with a lone connection, then with many idle ones beside it."""

    def __init__(self, idle, command, memory_kib=None):
        self.name, self.idle, self.memory_kib = f"{idle} idle connections", idle, memory_kib
        self.group = Group(idle=[*command, "--idle", str(idle)])

    def rows(self):
        latency = against(self.group, f"64 B ping-pong, {self.idle} idle beside", "us",
                          ("idle", "p50_us"), [("idle", "lone_p50_us")], 1.15, True)  # fmt: skip
        latency["winner"] = "ours, lone"
        memory = [
            alone(f"memory per idle connection, {who}", "KiB",
                  self.group.median("idle", key) / 1024, self.memory_kib, True)
            for who, key in (("client", "idle_bytes"), ("server", "server_idle_bytes"))
        ]  # fmt: skip
        return [latency, *memory]


# ---- the table ----


def number(value):
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def print_columns(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def print_table(results):
    met = {True: "yes", False: "NO", None: "-"}
    lines = [["", "unit", "ours", "bare", "bare is", "ratio", "best", "target", "met"]]
    for result in results:
        lines.append([
            result["name"], result["unit"], number(result["ours"]), number(result.get("bare")),
            result.get("winner", "-"), number(result.get("ratio")),
            number(result.get("best_ratio")), result.get("target", "-"), met[result.get("met")],
        ])  # fmt: skip
    print_columns(lines)
    print()
    for result in results:
        if result.get("notes"):
            print(f"{result['name']}, {result['unit']}: {'; '.join(result['notes'])}")
    print("ours, bare: medians of the rounds; ratio: median of the rounds' ratios; best: the best"
          " round of ours by the best of bare. Latency is of one way.")  # fmt: skip


# ---- the program ----


def option_parser(name, description):
    """With what every benchmark takes."""
    parser = argparse.ArgumentParser(prog=f"./run bench {name}", description=description)
    parser.add_argument("--rounds", type=int, default=9, help="9 unless told")
    parser.add_argument("--json", action="store_true", help="all that was measured, as JSON")
    parser.add_argument("--quick", action="store_true", help="3 rounds, a tenth of the work in each")
    parser.add_argument("--only", default="", metavar="TEXT", help="what has TEXT in its name")
    parser.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(),
                        default=ROOT / "build", metavar="FOLDER")  # fmt: skip
    return parser


def measure(options, measurements):
    """@measurements have a name, a group to run, and rows of results afterwards."""
    rounds = min(options.rounds, 3) if options.quick else options.rounds
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("bench: two cores are needed, one for each side")
    todo = [one for one in measurements if options.only in one.name]
    try:
        for turn in range(rounds):
            print(f"round {turn + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
            for one in todo:
                one.group.run_round(turn)
    except Failed as error:
        sys.exit(f"bench: {error}")
    results = [result for one in todo for result in one.rows()]
    if options.json:
        runs = {one.name: one.group.runs for one in todo}
        print(json.dumps({"rounds": rounds, "results": results, "runs": runs}, indent=2))
    else:
        print_table(results)
