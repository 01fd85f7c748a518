#!/usr/bin/env python3
"""Layouts with real compute, on two cores: what ranks cost, what they gain, and what plans say before.

  speed        two ranks on two cores against one single-threaded rank, the same batch and micro-batches
  cpu          total CPU seconds of 8 ranks (2 x 2 x 2) against one rank's, the same batch
  narrow       both for layers so narrow, at one sequence a micro-batch, that every pass waits for its sums
  predictions  step times of two-rank layouts, planned from costs measured on another, against measured ones

usage: tools/bench/layout_bench.py [speed | cpu | narrow | predictions]...
"""

import random
import statistics
import sys

from runs import Workplace, layout_name, percent, print_header, print_row, require_binary

PAIRS = 7
ALONE = ["taskset", "-c", "0"]


def mpirun(ranks):
    return ["mpirun", "--oversubscribe", "-np", str(ranks)]


def prepare(place):
    """Random letters: what the tokens are changes no time."""
    letters = random.Random(1234).choices("abcdefghijklmnopqrstuvwxyz ", k=1 << 20)
    place.prepare_text("corpus", "".join(letters))


def config(place, micro, steps=7, sequences=16, **parallel):
    return {
        "run": {"dir": "unused", "steps": steps, "log_every": 1000},
        "model": {"layers": 4, "hidden": 384, "heads": 6, "sequence": 128, "vocab": 257},
        "data": {"train": [{"path": str(place.path / "corpus")}], "split": [1, 0, 0]},
        "batch": {"global": sequences, "micro": micro},
        "parallel": parallel,
    }


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} .. {max(values):.2f})"


def speed(place):
    print("Two ranks on two cores against one single-threaded rank, times as fast\n")
    print_header("layout", "micro-batch", f"median of {PAIRS} pairs (lowest .. highest)")
    for name, micro, parallel in (
        ("data 2", 8, {"data": 2}),
        ("data 2, zero1", 8, {"data": 2, "data_strategy": "zero1"}),
        ("tensor 2", 8, {"tensor": 2}),
        ("tensor 2, sequence parallel", 8, {"tensor": 2, "sequence_parallel": True}),
        ("pipeline 2, 1f1b, 16 micro-batches", 1, {"pipeline": 2}),
        ("pipeline 2, zb_h1, 16 micro-batches", 1, {"pipeline": 2, "schedule": "zb_h1"}),
    ):
        ratios = []
        for _ in range(PAIRS):
            alone = place.train(config(place, micro), launch=ALONE)
            both = place.train(config(place, micro, **parallel), launch=mpirun(2))
            ratios.append(alone.step_seconds() / both.step_seconds())
        print_row(name, micro, spread(ratios))
    print()


def cpu(place):
    print("Total CPU seconds of 8 ranks (2 x 2 x 2) against one rank\n")
    print_header("micro-batch", "one rank, a step", "8 ranks, a step", "median ratio of 3 (lowest .. highest)")

    def seconds_a_step(micro, launch, **parallel):
        # Start and end of a run cost the same in both.
        few, many = (
            place.train(config(place, micro, steps, 32, **parallel), launch=launch).cpu_seconds
            for steps in (2, 8)
        )
        return (many - few) / 6

    for micro in (2, 8):
        alone, together = [], []
        for _ in range(3):
            alone.append(seconds_a_step(micro, []))
            together.append(seconds_a_step(micro, mpirun(8), tensor=2, pipeline=2, data=2))
        ratios = [b / a for a, b in zip(alone, together)]
        print_row(
            micro, f"{statistics.median(alone):.3f} s", f"{statistics.median(together):.3f} s", spread(ratios)
        )
    print()


def narrow(place):
    print("8 layers of 256, one sequence a micro-batch, 16 a step\n")
    print_header("CPU seconds of 8 ranks (2 x 2 x 2) over one rank's", "tensor 2, times as fast as one rank")

    def runs(steps, launch, **parallel):
        job = config(place, 1, steps, **parallel)
        job["model"] |= {"layers": 8, "hidden": 256, "heads": 4}
        return place.train(job, launch=launch)

    def seconds_a_step(launch, **parallel):
        few, many = (runs(steps, launch, **parallel).cpu_seconds for steps in (3, 19))
        return (many - few) / 16

    ratios, speeds = [], []
    for _ in range(5):
        ratios.append(seconds_a_step(mpirun(8), tensor=2, pipeline=2, data=2) / seconds_a_step(ALONE))
        speeds.append(runs(12, ALONE).step_seconds() / runs(12, mpirun(2), tensor=2).step_seconds())
    print_row(spread(ratios), spread(speeds))
    print()


def predictions(place):
    print("Step time of two ranks, planned from costs measured on another layout, against measured\n")
    print_header("layout", "predicted", "measured", "off by")
    layouts = [
        (8, {"data": 2}),
        (8, {"data": 2, "data_strategy": "zero1"}),
        (2, {"data": 2}),
        (8, {"tensor": 2}),
        (8, {"tensor": 2, "sequence_parallel": True}),
        (2, {"tensor": 2}),
        (2, {"pipeline": 2, "schedule": "1f1b"}),
        (2, {"pipeline": 2, "schedule": "gpipe"}),
        (2, {"pipeline": 2, "schedule": "interleaved", "chunks": 2}),
        (2, {"pipeline": 2, "schedule": "zb_h1"}),
        (2, {"pipeline": 2, "transfers": "blocking"}),
        (2, {"pipeline": 2, "stage_layers": [1, 3]}),
        (4, {"pipeline": 2, "schedule": "1f1b"}),
    ]
    offs = []
    for micro, parallel in layouts:
        # Measured with both cores busy, and anew each time: this machine's speed drifts.
        source = {"pipeline": 2} if "data" in parallel else {"data": 2}
        costs = place.train(config(place, 4, **source), launch=mpirun(2)).directory / "costs.json"
        job = config(place, micro, **parallel)
        planned = place.plan(job, str(costs))["step_seconds"]
        measured = place.train(job, launch=mpirun(2)).step_seconds()
        offs.append(planned / measured - 1)
        name = f"{layout_name(parallel)}, micro-batch {micro}"
        print_row(name, f"{planned:.4f} s", f"{measured:.4f} s", percent(offs[-1]))
    print(f"\noff by {percent(min(offs))} to {percent(max(offs))}, median {percent(statistics.median(offs))}\n")


def main():
    parts = {"speed": speed, "cpu": cpu, "narrow": narrow, "predictions": predictions}
    chosen = sys.argv[1:] or list(parts)
    if any(name not in parts for name in chosen):
        sys.exit(__doc__)
    require_binary()
    place = Workplace()
    prepare(place)
    for name in chosen:
        parts[name](place)


if __name__ == "__main__":
    main()
