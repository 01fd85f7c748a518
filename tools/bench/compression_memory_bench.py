#!/usr/bin/env python3
"""Memory of a run with and without each of Optimus-CC's techniques: what the plan says and what ranks took.

Eight ranks under mpirun (4 stages, 2 data ranks), a process each, so that the operating system's high-water
mark is a rank's own. One row per technique: planned and measured bytes of the rank that the plan gives the most,
the largest difference of any rank, and what the technique adds, planned and measured, on the rank where it
adds most: state of the codecs, messages, scratch, and residuals once more where they are copied for a
checkpoint.
Ranks of the codecs are the paper's: 16 for backward messages, 128 for gradients.

usage: tools/bench/compression_memory_bench.py
"""

import os
import pathlib
import resource
import subprocess
import sys

from codec_settings import low_rank
from runs import Workplace, percent, print_header, print_row, require_binary

RANKS = 8
BACKWARD_RANK = 16
GRADIENT_RANK = 128


def techniques(stages, error_feedback):
    """Optimus-CC's rules: backward messages of the cool-down, and gradients of the first stages."""
    return {
        "policy": "optimus_cc",
        "stages": stages,
        "pipeline_backward": low_rank(BACKWARD_RANK, error_feedback),
        "data_gradient": low_rank(GRADIENT_RANK, "immediate"),
    }


# Name: (compress section, embedding_sync)
ROWS = {
    "baseline": ({"policy": "none"}, "separate"),
    "CB without LEP": (techniques(0, "none"), "separate"),
    "CB": (techniques(0, "lazy"), "separate"),
    "CB+FE": (techniques(0, "lazy"), "fused"),
    "CB+FE+SC": (techniques(3, "lazy"), "fused"),
    "PowerSGD, all stages": (
        {"policy": "all", "data_gradient": low_rank(GRADIENT_RANK, "immediate")},
        "separate",
    ),
}


MODEL = {"layers": 8, "hidden": 512, "heads": 8, "sequence": 128, "vocab": 257}


def config(place, compress, embedding_sync):
    return {
        "run": {"dir": "unused", "steps": 2},
        "model": MODEL,
        "data": {"train": [{"path": str(place.path / "corpus")}], "split": [1, 0, 0]},
        "batch": {"global": 16, "micro": 2},
        "parallel": {"pipeline": 4, "data": 2, "embedding_sync": embedding_sync},
        "compress": compress,
    }


def run_rank(directory, command):
    """One rank, in the place of the binary: runs it and notes its peak."""
    code = subprocess.run(command, check=False).returncode
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    path = pathlib.Path(directory) / f"peak-{os.environ['OMPI_COMM_WORLD_RANK']}"
    path.write_text(str(peak))
    sys.exit(code)


def measured_peaks(place, settings):
    launch = ["mpirun", "-np", str(RANKS), "--oversubscribe", sys.executable, __file__]
    place.train(settings, launch=[*launch, "--rank", str(place.path)])
    return [int((place.path / f"peak-{rank}").read_text()) for rank in range(RANKS)]


def planned_bytes(plan):
    return [rank["memory_bytes"] for rank in plan["ranks"]]


class Memory:
    """Bytes of each rank in a run, planned and measured."""

    def __init__(self, place, row):
        settings = config(place, *row)
        self.planned = planned_bytes(place.plan(settings))
        self.measured = measured_peaks(place, settings)

    def print(self, name, baseline):
        most = self.planned.index(max(self.planned))
        differences = [peak / bytes - 1 for peak, bytes in zip(self.measured, self.planned)]
        added = [bytes - without for bytes, without in zip(self.planned, baseline.planned)]
        rank = added.index(max(added))
        print_row(
            name,
            self.planned[most],
            self.measured[most],
            percent(differences[most]),
            percent(max(differences, key=abs)),
            added[rank],
            self.measured[rank] - baseline.measured[rank],
        )


def main():
    if sys.argv[1:2] == ["--rank"]:
        run_rank(sys.argv[2], sys.argv[3:])
    require_binary()
    place = Workplace()
    place.prepare_letters("corpus", 1 << 18)
    print_header(
        "techniques", "planned", "measured", "difference", "of any rank", "added, planned", "added, measured"
    )
    baseline = None
    for name, row in ROWS.items():
        memory = Memory(place, row)
        baseline = baseline or memory
        memory.print(name, baseline)


if __name__ == "__main__":
    main()
