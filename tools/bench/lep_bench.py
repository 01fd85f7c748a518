#!/usr/bin/env python3
"""The diagnostic of lazy error propagation (Optimus-CC, Fig. 11) for a small GPT on real text.

Four stages, every backward message compressed with lazy feedback. With E_i what message i of a step left
and X_i the input of the stage that sends, the weight gradients miss the sum of (X_(i+1) - X_i)^T E_i
(docs/compression.md). One row for each sending stage and range of steps: the cosine of E_i with
X_i - X_(i+1) over the pairs of a sampled step, as mean and root mean square over these steps, means of the
elements of both, and their sizes. Under gpipe all backward messages are of one class; the numbers are those
of 1f1b, whose messages go in the same order.

usage: tools/bench/lep_bench.py CORPUS [--steps N] [--rank R]
       CORPUS: directory with train.bin and valid.bin
"""

import argparse
import pathlib
import statistics

from codec_settings import low_rank
from runs import Workplace, corpus_job, print_header, print_row, require_binary

STAGES = 4
EVERY = 5
NUM_RANGES = 4


def config(corpus, steps, rank):
    return corpus_job(
        corpus, steps, run={"log_every": 100}, batch={"global": 16, "micro": 2},
        parallel={"pipeline": STAGES, "data": 1, "schedule": "gpipe"},
        compress={"policy": "all", "pipeline_backward": low_rank(rank, "lazy"), "guard": {"every": EVERY}},
    )


def rows_of(steps, stage, first, last):
    """What the sampled steps of a range say of a stage's messages."""
    return [
        row
        for step in steps
        if first <= step["step"] <= last
        for row in step.get("compression", [])
        if row["stage"] == stage
    ]


def print_stage(rows, stage, first, last):
    mean = {key: statistics.fmean(row[key] for row in rows) for key in rows[0] if "_" in key}
    cosine_size = statistics.fmean(row["activation_cosine"] ** 2 for row in rows) ** 0.5
    print_row(
        stage,
        f"{first} .. {last}",
        f"{mean['relative_error']:.2f}",
        f"{mean['activation_cosine']:+.4f}",
        f"{cosine_size:.4f}",
        f"{mean['residual_mean']:+.1e}",
        f"{mean['residual_rms']:.1e}",
        f"{mean['activation_difference_mean']:+.1e}",
        f"{mean['activation_difference_rms']:.1e}",
    )


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rank", type=int, default=4)
    options = parser.parse_args()
    require_binary()
    run = Workplace().train(config(options.corpus, options.steps, options.rank), ranks=STAGES)
    print(f"loss {run.steps[0]['loss']:.3f} .. {run.steps[-1]['loss']:.3f} in {len(run.steps)} steps\n")
    print_header(
        "stage", "steps", "message error", "cosine", "its rms", "mean E", "rms E", "mean D", "rms D"
    )
    width = options.steps // NUM_RANGES
    for stage in range(1, STAGES):
        for first in range(1, width * NUM_RANGES, width):
            rows = rows_of(run.steps, stage, first, first + width - 1)
            print_stage(rows, stage, first, first + width - 1)


if __name__ == "__main__":
    main()
