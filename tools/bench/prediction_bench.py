#!/usr/bin/env python3
"""Predicted steps against measured ones, from costs that were measured on another layout.

One rehearsed run on 2 stages measures ops and codecs in steps 2 to 6 (its costs.json). From that every other layout,
schedule, policy and cluster below is predicted by `slackline plan --costs`, and then rehearsed with the ops that the
first run was given. The goal is 5 %.

With --real: the same on this machine's cores, for layouts of two ranks that compute. Compute varies from run to run, so
there are several rounds: in each a run with 2 stages measures ops, from which every layout is predicted, and then run. The
table has medians over rounds and the spread of the difference: its quartiles, least and largest.

usage: tools/bench/prediction_bench.py [--real]
"""

import statistics
import sys

from flip_bench import CANDIDATES, rehearsed
from runs import (
    REPOSITORY, Workplace, cores_awake, layout_name, percent, print_header, print_row, ranks_of, require_binary,
)
from turns import quartiles

MODEL = {"layers": 16, "hidden": 1024, "heads": 16, "sequence": 1024, "vocab": 51200}
GOAL = 0.05
CLUSTERS = ("ethernet_10g", "a100_80g_tcp")
LAYOUTS = (
    {"pipeline": 4, "data": 1},
    {"pipeline": 4, "data": 2},
    {"pipeline": 4, "data": 4},
    {"pipeline": 4, "data": 2, "schedule": "gpipe"},
    {"pipeline": 4, "data": 2, "schedule": "zb_h1"},
    {"pipeline": 4, "data": 2, "transfers": "blocking"},
    {"pipeline": 4, "data": 2, "data_strategy": "zero1"},
    {"pipeline": 8, "data": 2},
    {"pipeline": 2, "data": 4},
    {"data": 8},
)
REAL_MODEL = {"layers": 4, "hidden": 192, "heads": 4, "sequence": 128, "vocab": 257}
REAL_ROUNDS = 5
REAL_FIRST = {"pipeline": 2}  # whose run measures ops; predicting its own step is the easiest case
REAL_LAYOUTS = (
    REAL_FIRST,
    {"pipeline": 2, "transfers": "blocking"},
    {"pipeline": 2, "schedule": "gpipe"},
    {"pipeline": 2, "schedule": "zb_h1"},
    {"data": 2},
    {"data": 2, "data_strategy": "zero1"},
    {"tensor": 2},
)


def compression(parallel, policy):
    """The strongest candidates of the sites that have transfers in this layout."""
    sites = []
    if policy == "all" and parallel.get("pipeline", 1) > 1:
        sites += ["pipeline_forward", "pipeline_backward"]
    if policy == "all" and parallel.get("data", 1) > 1:
        sites.append("data_gradient")
    return {"policy": policy, **{site: CANDIDATES[site][-1] for site in sites}}


def job_of(place, parallel, policy, cluster):
    links = str(REPOSITORY / f"configs/clusters/{cluster}.json")
    return rehearsed(place, MODEL, parallel, links, compression(parallel, policy))


def real(place, parallel, steps=16):
    return {
        "run": {"dir": "unused", "steps": steps},
        "model": REAL_MODEL,
        "data": {"train": [{"path": str(place.path / "corpus")}], "split": [1, 0, 0]},
        "batch": {"global": 32, "micro": 4},
        "parallel": parallel,
    }


class Table:
    def __init__(self):
        self._rows = []

    def add(self, planned, measured, *cells):
        self._rows.append(planned / measured - 1)
        print_row(*cells, f"{planned:.4f} s", f"{measured:.4f} s", percent(self._rows[-1]))

    def end(self):
        within = sum(abs(off) <= GOAL for off in self._rows)
        print(f"\n{within} of {len(self._rows)} within {percent(GOAL)}; largest difference "
              f"{percent(max(self._rows, key=abs))}\n")


def predict_rehearsed(place):
    first = {"pipeline": 2, "data": 2}
    measured = place.train({**job_of(place, first, "all", "a100_200g"), "trace": True}, ranks=ranks_of(first))
    costs = str(measured.directory / "costs.json")
    print_header("cluster", "layout", "policy", "predicted", "rehearsed", "off by")
    table = Table()
    for cluster in CLUSTERS:
        for parallel in LAYOUTS:
            for policy in ("none", "all"):
                job = job_of(place, parallel, policy, cluster)
                planned = place.plan(job, costs)["step_seconds"]
                run = place.train(job, ranks=ranks_of(parallel))
                table.add(planned, run.step_seconds(), cluster, layout_name(parallel), policy)
    table.end()


def measure_round(place, pairs):
    """Adds (predicted, measured) of each layout to its list in `pairs`."""
    first = place.train(real(place, REAL_FIRST), ranks=ranks_of(REAL_FIRST))
    costs = str(first.directory / "costs.json")
    for parallel in REAL_LAYOUTS:
        planned = place.plan(real(place, parallel), costs)["step_seconds"]
        run = place.train(real(place, parallel), ranks=ranks_of(parallel))
        pairs[layout_name(parallel)].append((planned, run.step_seconds()))


def predict_real(place):
    place.prepare_letters("corpus", 1 << 18)
    pairs = {layout_name(parallel): [] for parallel in REAL_LAYOUTS}
    for _ in range(REAL_ROUNDS):
        measure_round(place, pairs)
    print_header("layout", "predicted", "measured", "off by", "quartiles", "least to largest")
    within = 0
    for name, rounds in pairs.items():
        planned, measured = (statistics.median(column) for column in zip(*rounds))
        off = [predicted / found - 1 for predicted, found in rounds]
        low, middle, high = quartiles(off)
        within += abs(middle) <= GOAL
        print_row(name, f"{planned:.4f} s", f"{measured:.4f} s", percent(middle),
                  f"{percent(low)} to {percent(high)}", f"{percent(min(off))} to {percent(max(off))}")
    print(f"\n{within} of {len(pairs)} within {percent(GOAL)}, by the median of {REAL_ROUNDS} rounds\n")


def main():
    if sys.argv[1:] not in ([], ["--real"]):
        sys.exit(__doc__)
    require_binary()
    place = Workplace()
    if sys.argv[1:]:
        predict_real(place)
    else:
        with cores_awake():
            predict_rehearsed(place)


if __name__ == "__main__":
    main()
