# SPDX-License-Identifier: MIT
"""A perftest program that talks as the pairs of this folder do: it says where it listens, and prints key=value.

perftest_pair.py PROGRAM --address ADDRESS [--connect PORT] [--count N] [--size BYTES] [--limit SECONDS] [--tcp]
"""
import argparse
import random
import signal
import subprocess
import sys
import time


def parse_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--address", required=True)
    parser.add_argument("--connect", type=int)
    parser.add_argument("--count", default="1000")
    parser.add_argument("--size", default="64")
    parser.add_argument("--tcp", action="store_true", help="its queue pairs meet by TCP, not by the CM")
    parser.add_argument("--limit", type=int, default=60)
    return parser.parse_args()


def is_latency(options):
    return options.program.endswith("_lat")


def cpu_mhz():
    """What the kernel says; None where it says nothing."""
    with open("/proc/cpuinfo", encoding="ascii") as file:
        return next((float(line.split(":")[1]) for line in file if line.startswith("cpu MHz")), None)


def command(options, port):
    """-F: whatever the clock does. -R: connected by the CM; it makes two connections one after the other,
    the second of which may find nobody listening."""
    words = [options.program, "-F", "-s", options.size, "-n", options.count, "-p", str(port)]
    if not options.tcp:
        words.append("-R")
    # In cycles: where clocks are slow to read, its own idea of how long one takes is off by tenths.
    if is_latency(options) and cpu_mhz():
        words.append("-C")
    return words


def is_listening(port):
    """At the kernel's CM, or at TCP where the device is softrdma."""
    asked = (["rdma", "resource", "show", "cm_id"], ["ss", "-Hltn"])
    found = [subprocess.run(one, capture_output=True, text=True).stdout for one in asked]
    return any(f":{port} " in line for text in found for line in text.splitlines())


def serve(options):
    for _ in range(20):
        port = random.randrange(20000, 30000)
        child = subprocess.Popen(command(options, port), stdout=subprocess.DEVNULL)
        while child.poll() is None:
            if is_listening(port):
                print("listening", port, flush=True)
                sys.exit(child.wait())
            time.sleep(0.05)
    sys.exit("perftest_pair: the server does not listen")


def results(options, text):
    """Of the line below the heading."""
    lines = [line.split() for line in text.splitlines()]
    row = next(line for line in lines[::-1] if len(line) >= 5 and line[0].isdigit())
    if not is_latency(options):
        return {"gib_per_s": float(row[3]) / 1024}
    columns = {"p50_us": 4, "mean_us": 5, "p99_us": 7}
    return {key: float(row[column]) / (cpu_mhz() or 1) for key, column in columns.items()}


def connect(options):
    run = subprocess.run([*command(options, options.connect), options.address],
                         stdout=subprocess.PIPE, text=True)  # fmt: skip
    if run.returncode:
        sys.exit(run.stdout)
    print(*(f"{key}={value}" for key, value in results(options, run.stdout).items()))


def main():
    options = parse_options()
    signal.alarm(options.limit)
    if options.connect:
        connect(options)
    else:
        serve(options)


if __name__ == "__main__":
    main()
