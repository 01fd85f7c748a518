#!/usr/bin/env python3
"""How long a job of eight ranks under mpirun takes to end after a fault, seen from outside: a rank is killed (the first,
one in the middle, the last; as soon as all processes are there, after the first step, after a checkpoint), or stopped,
with a timeout of two seconds. The goal is 5 s after the fault, or after the timeout, for all ranks and mpirun; the run
must then go on from what it saved.

usage: tools/bench/end_bench.py [--rounds N]
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from runs import BINARY, require_binary

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


def ranks_of(job):
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


def end_of(fault, directory):
    """(seconds until all ranks are gone, until mpirun is, its exit code, the code of a run that goes on)."""
    _, victim, number, when = fault
    command = ["mpirun", "--oversubscribe", "-np", str(RANKS), str(BINARY), "train", str(directory / "config.json")]
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
    }
    with open(directory / "messages.txt", "w", encoding="utf-8") as messages:
        job = subprocess.Popen(command, stdout=messages, stderr=messages, env=environment)
        record = directory / "run/metrics.jsonl"
        wait_until(lambda: len(ranks_of(job)) == RANKS, "start")
        if when == "first step":
            wait_until(lambda: record.exists() and record.stat().st_size > 0, when)
        elif when == "checkpoint":
            wait_until(lambda: any(directory.glob("run/checkpoints/step-*[0-9]")), when)
        ranks = ranks_of(job)
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
    lines = record.read_text().splitlines() if record.exists() else []
    newest = max((json.loads(line)["step"] for line in lines), default=0)
    again = subprocess.run(
        [str(BINARY), "train", str(directory / "config.json"), "--resume", "--ranks", str(RANKS),
         "--set", f"run.steps={newest + 2}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return gone, ended, job.returncode, again.returncode


def main():
    parser = argparse.ArgumentParser(usage=__doc__[__doc__.index("usage: ") + len("usage: ") :])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    require_binary()
    print("| fault | ranks gone after | mpirun gone after | code | resumed with |\n|---|---|---|---|---|")
    slowest = 0.0
    for fault in FAULTS:
        extra = TIMEOUT if fault[2] == signal.SIGSTOP else 0.0
        ends = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as name:
                directory = pathlib.Path(name)
                (directory / "text.txt").write_text("a line of some text that is read\n" * 4000)
                subprocess.run(
                    [str(BINARY), "prepare", "--input", str(directory / "text.txt"), "--tokenizer", "byte",
                     "--out", str(directory / "corpus")],
                    stdout=subprocess.DEVNULL, check=True,
                )  # fmt: skip
                (directory / "config.json").write_text(json.dumps(config(directory)))
                ends.append(end_of(fault, directory))
        slowest = max(slowest, *(ended - extra for _, ended, _, _ in ends), *(gone - extra for gone, *_ in ends))
        print(
            f"| {fault[0]} | {', '.join(f'{end[0]:.2f}' for end in ends)} | {', '.join(f'{end[1]:.2f}' for end in ends)} "
            f"| {', '.join(str(end[2]) for end in ends)} | {', '.join(str(end[3]) for end in ends)} |",
            flush=True,
        )
    print(f"\nslowest: {slowest:.2f} s after the fault, the timeout of {TIMEOUT:.0f} s apart (goal {GOAL:.0f})")
    return 0 if slowest <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
