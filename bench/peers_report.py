# SPDX-License-Identifier: MIT
"""What ./run bench peers tells of its runs: tables, goals and plots."""
import statistics

import plot
from pairs import number, print_columns, print_table

LIMITS = {"memory": "cache line", "tcp": "bare TCP"}
PEERS = ("UCX", "ZeroMQ", "nng")  # that can sleep
HIGHER = {"rate": "messages_per_s", "bandwidth": "gib_per_s", "curve_of_bandwidth": "gib_per_s"}
SCALES = {"rate": 1e-6, "curve_of_bandwidth": 1024}  # of what is shown
TITLES = {
    "poll": "64 B one way, both sides polling, us",
    "sleep": "64 B one way, both sides sleeping, us",
    "rate": "64 B messages, one direction, M/s",
    "bandwidth": "1 MiB messages, one direction, GiB/s",
    "curve_of_time": "one way by size, us; polling, asleep where it says *",
    "curve_of_bandwidth": "one direction by size, MiB/s",
    "connections": "64 B one way over so many connections in turn, us",
}


class Cell:
    """What one contestant did in one exchange, over the rounds."""

    def __init__(self, cell, family):
        self.cannot = cell.get("cannot")
        self.higher = family in HIGHER
        self.ways = cell.get("ways", {})
        self.way, self.key = None, HIGHER.get(family, "p50_us")
        self.failure = next((run["failed"] for runs in self.ways.values() for run in runs
                             if "failed" in run), None)  # fmt: skip
        self.choose()

    def choose(self):
        """The best way; by the mean where there are no percentiles."""
        if not any(self.rounds(self.key, way) for way in self.ways) and not self.higher:
            self.key = "mean_us"
        able = [way for way in self.ways if self.rounds(self.key, way)]
        if able:
            best = max if self.higher else min
            self.way = best(able, key=lambda way: self.median(self.key, way))

    def rounds(self, key, way=None):
        """{round: value}, of those that did not fail."""
        runs = self.ways.get(way or self.way, [])
        return {turn: run[key] for turn, run in enumerate(runs) if key in run}

    def median(self, key=None, way=None):
        values = self.rounds(key or self.key, way).values()
        return statistics.median(values) if values else None

    def spread(self, scale=1):
        values = [value * scale for value in self.rounds(self.key).values()]
        return f"{number(min(values))} .. {number(max(values))}" if values else "-"

    def sleeps(self):
        """A warning where it mostly did not, though it should."""
        sleeps = self.median("sleeps")
        is_fine = sleeps is None or self.higher or sleeps > 0.8
        return "" if is_fine else f" ({number(sleeps)} sleeps)"

    def why_not(self):
        return self.cannot or (f"failed: {self.failure}" if self.failure else "-")


def ratio(ours, other, key=None):
    """The median of the rounds' ratios, None if there are none."""
    if key is None:
        key = ours.key if ours.key == other.key else "mean_us"
    mine, theirs = ours.rounds(key), other.rounds(key)
    ratios = [mine[turn] / theirs[turn] for turn in mine if theirs.get(turn)]
    return statistics.median(ratios) if ratios else None


def figure(value, scale=1):
    """None: not measured. Less than nothing: more for the start than for the messages."""
    return "-" if value is None or value < 0 else number(value * scale)


class Report:
    def __init__(self, document):
        self.document = document
        self.media = {one["name"]: one["medium"] for one in document["contestants"]}
        self.cells = {}  # family: {x: {contestant: Cell}}
        for one in document["measurements"]:
            family = self.cells.setdefault(one["family"], {})
            family[one["x"]] = {
                name: Cell(cell, one["family"]) for name, cell in one["cells"].items()
            }

    def cell(self, family, x, name):
        return self.cells.get(family, {}).get(x, {}).get(name)

    # ---- tables ----

    def print(self):
        document = self.document
        rounds = f"{document.get('rounds', 0)} rounds{', quick' if document['quick'] else ''}"
        print(f"{document['date']}, {document['cpu']}, Linux {document['kernel']}; {rounds}")
        print(", ".join(f"{name} {version}" for name, version in document["packages"].items()))
        for note in document["notes"] + self.doubts():
            print(f"note: {note}")
        shapes = {"poll": self.print_latency, "sleep": self.print_latency,
                  "rate": self.print_stream, "bandwidth": self.print_stream}  # fmt: skip
        for family, table in self.cells.items():
            print(f"\n{TITLES[family]}")
            shapes.get(family, self.print_curve)(family, table)
        if self.goals():
            print("\ngoals")
            print_table(self.goals())
        print("Medians of the rounds; .. from the lowest to the highest; x limit: median of the"
              " rounds' ratios to the cache line or to bare TCP. CPU and sleeps are of both sides"
              " together; with fewer than one sleep per message the answer was often there before"
              " its receiver slept.")  # fmt: skip

    def doubts(self):
        """What to know before believing the tables."""
        failures = [
            f"{one['name']}, {name}: {len(failed)} of {len(runs)} runs failed: {failed[-1]}"
            for one in self.document["measurements"]
            for name, cell in one["cells"].items()
            for runs in cell.get("ways", {}).values()
            if (failed := [run["failed"] for run in runs if "failed" in run])
        ]
        return self.doubt_of_cores() + failures

    def doubt_of_cores(self):
        """A virtual machine's cores may move, to two threads of one core and back."""
        line = self.cell("poll", 64, "cache line")
        rounds = list(line.rounds(line.key).values()) if line and line.way else []
        if not rounds or max(rounds) < 2 * min(rounds):
            return []
        return ["the cache line took more than twice as long in one round as in another: the two"
                " cores are not always as near to each other"]  # fmt: skip

    def by_limit(self, family, x, name):
        limit = self.cell(family, x, LIMITS[self.media[name]])
        value = ratio(self.cell(family, x, name), limit) if limit else None
        return figure(value)

    def print_latency(self, family, table):
        ((x, cells),) = table.items()
        lines = [["", "p50", "rounds", "mean", "p99", "p99.9", "x limit", "CPU us/message",
                  "sleeps/message", ""]]  # fmt: skip
        for name, cell in cells.items():
            if cell.way is None:
                lines.append([name, *["-"] * 8, cell.why_not()])
                continue
            has_median = cell.key == "p50_us"
            lines.append([
                name, figure(cell.median("p50_us")), cell.spread() if has_median else "-",
                *(figure(cell.median(key)) for key in ("mean_us", "p99_us", "p999_us")),
                self.by_limit(family, x, name), figure(cell.median("cpu_us")),
                figure(cell.median("sleeps")),
                "" if has_median else f"the mean is all it tells: {cell.spread()}",
            ])  # fmt: skip
        print_columns(lines)

    def print_stream(self, family, table):
        ((x, cells),) = table.items()
        scale = SCALES.get(family, 1)
        lines = [["", "median", "rounds", "x limit", "CPU us/message", "best way"]]
        for name, cell in cells.items():
            if cell.way is None:
                lines.append([name, *["-"] * 4, cell.why_not()])
                continue
            others = [f"{way} {figure(cell.median(way=way), scale)}" for way in cell.ways]
            lines.append([name, figure(cell.median(), scale), cell.spread(scale),
                          self.by_limit(family, x, name), figure(cell.median("cpu_us")),
                          "; ".join(others) if len(others) > 1 else cell.way])  # fmt: skip
        print_columns(lines)

    def print_curve(self, family, table):
        many, scale = family == "connections", SCALES.get(family, 1)
        heads = [f"{x:,}" if many else plot.size_name(x) for x in table]
        lines = [["", *heads, *(["KiB each", "at the server"] if many else []), ""]]
        for name in self.media:
            row = [cells[name] for cells in table.values()]
            why = next((cell.why_not() for cell in row if cell.way is None), "")
            asleep = "*" if self.is_asleep(family, table, name) else ""
            memory = [figure(row[-1].median(key), 1 / 1024)
                      for key in ("idle_bytes", "server_idle_bytes")] if many else []  # fmt: skip
            values = [figure(cell.median(), scale) for cell in row]
            lines.append([name + asleep, *values, *memory, why])
        print_columns(lines)

    @staticmethod
    def is_asleep(family, table, name):
        """Who cannot poll is in the curve of time nevertheless."""
        return family == "curve_of_time" and any(
            cells[name].way == "sleep" for cells in table.values()
        )

    # ---- goals ----

    def goals(self):
        shm = [
            self.goal("poll", 64, "verbs, shm", "cache line", 2.0),
            self.goal("poll", 64, "ibmsg, shm", "cache line", 2.5),
            *(self.goal("poll", 64, ours, other, 1.0)
              for ours in ("verbs, shm", "ibmsg, shm")
              for other in ("UCX, posix and cma", "libfabric, shm")),
            self.goal("rate", 64, "ibmsg, shm", "UCX, posix and cma", 1.3),
            *(self.goal("bandwidth", 1 << 20, ours, "UCX, posix and cma", target)
              for ours, target in (("verbs, shm", 0.95), ("ibmsg, shm", 0.95),
                                   ("verbs, ring", None), ("ibmsg, ring", None))),
        ]  # fmt: skip
        tcp = [
            self.goal(family, x, ours, other, 1.0)
            for family, x in (("poll", 64), ("rate", 64), ("bandwidth", 1 << 20),
                              ("curve_of_time", 1 << 20))
            for ours in ("verbs, tcp", "ibmsg, tcp")
            for other in ("UCX, tcp", "libfabric, tcp")
        ]  # fmt: skip
        asleep = [
            self.goal("sleep", 64, ours, other, 1.0)
            for ours in ("verbs, shm", "ibmsg, shm", "verbs, tcp", "ibmsg, tcp")
            for other in self.media
            if other.startswith(PEERS) and self.media[other] == self.media.get(ours)
        ]
        return [goal for goal in (*shm, *tcp, *asleep) if goal]

    def goal(self, family, x, ours, other, target):
        """None where one of the two has nothing to show."""
        mine, theirs = self.cell(family, x, ours), self.cell(family, x, other)
        value = ratio(mine, theirs) if mine and theirs else None
        if value is None:
            return None
        key = mine.key if mine.key == theirs.key else "mean_us"
        best = max if mine.higher else min
        row = {
            "name": f"{TITLES[family].split(',')[0].replace('by size', plot.size_name(x))},"
                    f" {family.replace('_', ' ')}: {ours}",
            "unit": {"messages_per_s": "1/s", "gib_per_s": "GiB/s"}.get(key, "us"),
            "ours": mine.median(key),
            "bare": theirs.median(key),
            "winner": other + theirs.sleeps(),
            "ratio": value,
            "best_ratio": best(mine.rounds(key).values()) / best(theirs.rounds(key).values()),
        }  # fmt: skip
        if target is None:
            return row
        return {**row, "target": f"{'>=' if mine.higher else '<='} {target} x",
                "met": value >= target if mine.higher else value <= target}  # fmt: skip

    # ---- plots ----

    def dashes(self, name):
        if self.media[name] == "tcp":
            return "6 3"
        return "2 3" if name.endswith("ring") else ""

    def write_plots(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        for family, table in self.cells.items():
            is_curve = family not in ("poll", "sleep", "rate", "bandwidth")
            drawing = self.draw_curve(family, table) if is_curve else self.draw_bars(family, table)
            if drawing:
                path = folder / f"{family.replace('_', '-')}.svg"
                path.write_text(drawing, encoding="utf-8")
                yield path

    def draw_bars(self, family, table):
        ((_, cells),) = table.items()
        scale = SCALES.get(family, 1)
        rows = [
            (name, self.media[name] == "tcp", cell.median() * scale,
             [cell.median(key) for key in ("p99_us", "p999_us") if cell.rounds(key)])
            for name, cell in cells.items() if cell.way is not None
        ]  # fmt: skip
        title = TITLES[family] + ("; red: p99, p99.9" if any(row[3] for row in rows) else "")
        return plot.bars(title, rows, number) if rows else None

    def draw_curve(self, family, table):
        series = []
        for name in self.media:
            points = [(x, cells[name].median()) for x, cells in table.items()]
            points = [(x, y * SCALES.get(family, 1)) for x, y in points if y]
            if points:
                asleep = "*" if self.is_asleep(family, table, name) else ""
                series.append((name + asleep, self.dashes(name), points))
        name_x = str if family == "connections" else plot.size_name
        return plot.lines(TITLES[family], series, name_x) if series else None
