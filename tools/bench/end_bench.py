#!/usr/bin/env python3
"""How long a job of eight ranks under mpirun takes to end after a fault, seen from outside: a rank is killed (the first,
one in the middle, the last; as soon as all processes are there, after the first step, after a checkpoint), or stopped,
with a timeout of two seconds. The goal is 5 s after the fault, or after the timeout, for all ranks and mpirun; the run
must then go on from what it saved.

usage: tools/bench/end_bench.py [--rounds N]
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

from runs import BINARY, Workplace, mpi_environment, print_header, print_row, read_metrics, require_binary

GOAL = 5.0  # seconds
TIMEOUT = 2.0  # network.timeout_seconds
LIMIT = 60.0  # for anything to happen
RANKS = 8
FAULTS = [
    (f"{number.name} of rank {rank}, {when}", rank, number, when)
    for number, moments in ((signal.SIGKILL, ("start", "first step", "checkpoint")), (signal.SIGSTOP, ("checkpoint",)))
    for when in moments
    for rank in (0, 3, RANKS - 1)
]


def config(directory):
    return {
        "run": {"dir": str(directory / "run"), "steps": 100000, "save_every": 2},
        "model": {"layers": 4, "hidden": 64, "heads": 2, "sequence": 64, "vocab": 257},
        "data": {"train": [{"path": str(directory / "corpus")}]},
        "batch": {"global": 8, "micro": 2},
        "parallel": {"tensor": 2, "pipeline": 2, "data": 2},
        "network": {"timeout_seconds": TIMEOUT},
    }


def children():
    """The name, state and parent of every process."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, tail = (entry / "stat").read_text().rsplit(")", 1)
            except OSError:
                continue
            found[int(entry.name)] = (head.split("(", 1)[1], tail.split()[0], int(tail.split()[1]))
    return found


def processes_of_ranks(job):
    """Processes of the ranks, by rank."""
    ranks = {}
    for process, (name, state, parent) in children().items():
        if parent == job.pid and name == "slackline" and state not in "ZX":
            try:
                variables = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            for variable in variables:
                if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                    ranks[int(variable.split(b"=")[1])] = process
    return ranks


def wait_until(condition, what):
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > LIMIT:
            sys.exit(f"{what}: not within {LIMIT:.0f} s")
        time.sleep(0.005)


def is_gone(process):
    found = children().get(process)
    return found is None or found[1] in "ZX"


def end_of(fault):
    """(seconds until all ranks are gone, until mpirun is, its exit code, the code of a run that goes on)."""
    _, victim, number, when = fault
    place = Workplace()
    place.prepare_text("corpus", "a line of some text that is read\n" * 4000)
    path, directory = place.write("config.json", config(place.path)), place.path / "run"
    command = ["mpirun", "--oversubscribe", "-np", str(RANKS), str(BINARY), "train", path]
    with open(place.path / "messages.txt", "w", encoding="utf-8") as messages:
        job = subprocess.Popen(command, stdout=messages, stderr=messages, env=mpi_environment(OMP_NUM_THREADS="1"))
        wait_until(lambda: len(processes_of_ranks(job)) == RANKS, "start")
        if when == "first step":
            wait_until(lambda: read_metrics(directory), when)
        elif when == "checkpoint":
            wait_until(lambda: any(directory.glob("checkpoints/step-*[0-9]")), when)
        ranks = processes_of_ranks(job)
        os.kill(ranks[victim], number)
        begin = time.monotonic()
        gone = None
        while job.poll() is None or gone is None:
            if gone is None and all(is_gone(process) for process in ranks.values()):
                gone = time.monotonic() - begin
            if time.monotonic() - begin > LIMIT:
                sys.exit(f"{fault[0]}: no end within {LIMIT:.0f} s")
            time.sleep(0.005)
        ended = time.monotonic() - begin
    newest = max((line["step"] for line in read_metrics(directory)), default=0)
    again = subprocess.run(
        [str(BINARY), "train", path, "--resume", "--ranks", str(RANKS), "--set", f"run.steps={newest + 2}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return gone, ended, job.returncode, again.returncode


def main():
    parser = argparse.ArgumentParser(usage=__doc__[__doc__.index("usage: ") + len("usage: ") :])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    require_binary()
    print_header("fault", "ranks gone after", "mpirun gone after", "code", "resumed with")
    slowest = 0.0
    for fault in FAULTS:
        extra = TIMEOUT if fault[2] == signal.SIGSTOP else 0.0
        ends = [end_of(fault) for _ in range(options.rounds)]
        slowest = max(slowest, *(ended - extra for _, ended, _, _ in ends), *(gone - extra for gone, *_ in ends))
        gone, ended, codes, resumed = zip(*ends)
        print_row(
            fault[0], *(", ".join(f"{seconds:.2f}" for seconds in column) for column in (gone, ended)),
            *(", ".join(map(str, column)) for column in (codes, resumed)),
        )
    print(f"\nslowest: {slowest:.2f} s after the fault, the timeout of {TIMEOUT:.0f} s apart (goal {GOAL:.0f})")
    return 0 if slowest <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
