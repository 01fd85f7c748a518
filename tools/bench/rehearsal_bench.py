#!/usr/bin/env python3
"""Rehearsed steps against formulas and predictions.

First every schedule over p stages and m micro-batches, transfers without delay: the share of the step that
is bubble against the closed formula, and the step time against the plan's. Then layouts over emulated links
of several speeds: the step time against the plan's, both made before the run.

usage: tools/bench/rehearsal_bench.py [--mpirun]
"""

import sys

from clusters import OF_PAIRS, cluster, link
from runs import Workplace, cores_awake, layout_name, percent, print_header, print_row, ranks_of, require_binary

FORWARD = 0.012  # seconds of a stage and micro-batch; backward takes twice as long
LAYERS = 16
# A sum over tensor ranks interrupts a layer twice and costs this machine some tenths of a millisecond, so
# layers are longer where there are some.
TENSOR_FORWARD, TENSOR_LAYERS = 0.048, 4
HIDDEN, SEQUENCE = 64, 64
MESSAGE = 4 * HIDDEN * SEQUENCE  # bytes between two stages


def costs(stages, forward):
    """A cost file of equal virtual stages."""
    kinds = {
        "forward": forward,
        "backward": 2 * forward,
        "backward_input": forward,
        "backward_weight": forward,
        "optimizer": 0.0,
    }
    return {
        "ops": [
            {"stage": stage, "kind": kind, "seconds": seconds}
            for stage in range(stages)
            for kind, seconds in kinds.items()
        ]
    }


def config(place, parallel, micro_batches, links=""):
    has_tensor = parallel.get("tensor", 1) > 1
    chunks = parallel.get("chunks", 1)
    stages = parallel.get("pipeline", 1) * chunks
    forward = (TENSOR_FORWARD if has_tensor else FORWARD) / chunks
    return {
        "run": {"dir": "unused", "steps": 6},
        "device": "rehearsal",
        "rehearsal": {"costs": place.write("costs.json", costs(stages, forward))},
        "model": {
            "layers": TENSOR_LAYERS if has_tensor else LAYERS,
            "hidden": HIDDEN,
            "heads": 4,
            "sequence": SEQUENCE,
            "vocab": 256,
        },
        "data": {"train": [{"path": "unused"}]},
        "batch": {"global": micro_batches * parallel.get("data", 1), "micro": 1},
        "parallel": parallel,
        "network": {"links": links},
    }


def formula(schedule, p, v, m):
    """Bubble share of docs/schedule.md, with backward twice as long as forward."""
    if schedule == "zb_h1":
        idle = (p - 1) * FORWARD  # (p - 1)(F + B_input - W)
        return idle / (m * 3 * FORWARD + idle)
    return (p - 1) / (v * m + p - 1)


def launch(ranks, mpirun):
    if mpirun:
        return {"launch": ["mpirun", "--oversubscribe", "-np", str(ranks)]}
    return {"ranks": ranks}


def bubbles(place, mpirun):
    print("Bubble share and step time, transfers without delay\n")
    print_header("schedule", "p", "m", "bubble, formula", "measured", "step, predicted", "measured", "off by")
    worst_bubble, worst_step = 0.0, 0.0
    for schedule in ("gpipe", "1f1b", "interleaved", "zb_h1"):
        for p in (2, 4, 8):
            for m in (4, 8, 16, 64):
                v = 2 if schedule == "interleaved" else 1
                if m < p and schedule != "gpipe" and schedule != "1f1b":
                    continue  # interleaved takes multiples of p; the formula of ZB-H1 asks for m >= p
                parallel = {"pipeline": p, "schedule": schedule, "chunks": v}
                job = config(place, parallel, m)
                planned = place.plan(job)["step_seconds"]
                run = place.train(job, **launch(p, mpirun))
                due = formula(schedule, p, v, m)
                off = planned / run.step_seconds() - 1
                worst_bubble = max(worst_bubble, abs(run.bubble_share() - due), key=abs)
                worst_step = max(worst_step, off, key=abs)
                print_row(
                    schedule, p, m, percent(due), percent(run.bubble_share()),
                    f"{planned:.4f} s", f"{run.step_seconds():.4f} s", percent(off),
                )
    print(f"\nlargest difference: bubble {100 * worst_bubble:.2f} points, step {percent(worst_step)}\n")


def over_links(place, mpirun):
    print("Step time over emulated links\n")
    print_header("layout", "latency", "MB/s", "predicted", "measured", "off by")
    layouts = [
        {"pipeline": 4, "schedule": "1f1b"},
        {"pipeline": 4, "schedule": "1f1b", "transfers": "blocking"},
        {"pipeline": 4, "schedule": "gpipe"},
        {"pipeline": 4, "schedule": "interleaved", "chunks": 2},
        {"pipeline": 4, "schedule": "zb_h1"},
        {"pipeline": 8, "schedule": "1f1b"},
        {"data": 4},
        {"data": 4, "data_strategy": "zero1"},
        {"tensor": 4},
        {"tensor": 4, "sequence_parallel": True},
        {"tensor": 2, "pipeline": 2, "data": 2},
        {"tensor": 2, "pipeline": 2, "data": 2, "sequence_parallel": True, "data_strategy": "zero1"},
    ]
    worst = 0.0
    for parallel in layouts:
        # A message between stages takes a tenth, half and one and a half of a forward pass.
        for latency, share in ((0.001, 0.1), (0.001, 0.5), (0.004, 1.5)):
            speed = MESSAGE / (share * FORWARD)
            links = (link(scope, latency, speed, **OF_PAIRS) for scope in ("node", "network"))
            job = config(place, parallel, 8, place.write("cluster.json", cluster(64, 1, *links)))
            planned = place.plan(job)["step_seconds"]
            run = place.train(job, **launch(ranks_of(parallel), mpirun))
            off = planned / run.step_seconds() - 1
            worst = max(worst, off, key=abs)
            print_row(
                layout_name(parallel), f"{1000 * latency:.0f} ms", f"{speed / 1e6:.2f}",
                f"{planned:.4f} s", f"{run.step_seconds():.4f} s", percent(off),
            )
    print(f"\nlargest difference: {percent(worst)}")


def main():
    if sys.argv[1:] not in ([], ["--mpirun"]):
        sys.exit(__doc__)
    require_binary()
    place = Workplace()
    mpirun = sys.argv[1:] == ["--mpirun"]
    with cores_awake():
        bubbles(place, mpirun)
        over_links(place, mpirun)


if __name__ == "__main__":
    main()
