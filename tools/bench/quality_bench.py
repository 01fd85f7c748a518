#!/usr/bin/env python3
"""What each of Optimus-CC's techniques does to the validation loss, over paired seeds, and over ranks.

Every row trains the same GPT (4 stages, 2 data ranks) on the same tokens from the same weights, so that a
seed's rows differ by compression alone. The corpus is the quickstart's (tools/quickstart, or its `prepare`
stage). A finished run is kept in OUT and not run again; so the bench may be stopped and called again.
CB+FE gives CB's bits, so of it only the first seed is run.

With --slow: the same model on two nodes of four ranks with an emulated slow link between them, for the loss over
wall time: the baseline, Optimus-CC, critical_path and everything compressed. critical_path chooses there, for every
seed, and its losses are its row of the first table, too: links change when numbers arrive, not what they are. With
a bound on what a message may lose it is run once more, for the first seed.

usage: tools/bench/quality_bench.py CORPUS OUT [--seeds N] [--steps N] [--slow] [--table]
       CORPUS: directory with train.bin and valid.bin      --table: print what is in OUT, run nothing
"""

import shutil
import statistics
import sys

from clusters import cluster, link
from codec_settings import cast, integers, low_rank
from runs import KeptResults, Workplace, corpus_job, parser_of_kept, print_header, print_row, require_binary

FIRST_SEED = 1234
SWEEP_RANKS = (2, 4, 8, 16, 32, 64)
BACKWARD_RANK = 16  # as the paper's
GRADIENT_RANK = 16  # shrinks the gradients of this model as much as the paper's 128 those of its own
LOW_RANK = 2


def backward(policy, rank, error_feedback, **more):
    return {"policy": policy, "pipeline_backward": low_rank(rank, error_feedback), **more}


DATA_GRADIENT = {"data_gradient": low_rank(GRADIENT_RANK, "immediate")}


def epilogue(error_feedback, rank=BACKWARD_RANK, stages=0, **more):
    return backward("optimus_cc", rank, error_feedback, stages=stages, **more)


# Name: (compress section, embedding_sync)
ROWS = {
    "baseline": ({"policy": "none"}, "separate"),
    "PowerSGD, all stages": ({"policy": "all", **DATA_GRADIENT}, "separate"),
    "CB without LEP": (epilogue("none"), "separate"),
    "CB": (epilogue("lazy"), "separate"),
    "CB+FE": (epilogue("lazy"), "fused"),
    "CB+FE+SC": (epilogue("lazy", stages=3, **DATA_GRADIENT), "fused"),
    f"all backward, rank {LOW_RANK}": (backward("all", LOW_RANK, "lazy"), "separate"),
    f"all backward, rank {LOW_RANK}, without LEP": (backward("all", LOW_RANK, "none"), "separate"),
}


SLOW_LINK = cluster(2, 4, link("node", 1e-5, 1e10), link("network", 1e-4, 5e6, shared_by="node"))
INT8 = integers(8)
CRITICAL_PATH = "critical_path"
GUARDED = "critical_path, max_error 0.1"
AS_IT_COMES = "critical_path, as it comes"
CANDIDATES = {
    "pipeline_forward": {"candidates": [cast(), INT8]},
    "pipeline_backward": {
        "candidates": [integers(8, "none"), low_rank(64, "none"), low_rank(BACKWARD_RANK, "none")],
    },
    "data_gradient": {"candidates": [low_rank(64, "immediate"), low_rank(GRADIENT_RANK, "immediate")]},
}
SLOW_ROWS = {
    "baseline": ({"policy": "none"}, "fused"),
    "optimus_cc": ROWS["CB+FE+SC"],
    CRITICAL_PATH: ({"policy": "critical_path", **CANDIDATES, "guard": {"max_error": None}}, "fused"),
    AS_IT_COMES: ({"policy": "critical_path"}, "fused"),
    GUARDED: ({"policy": "critical_path", **CANDIDATES, "guard": {"every": 10, "max_error": 0.1}}, "fused"),
    "all": (backward("all", BACKWARD_RANK, "lazy", pipeline_forward=INT8, **DATA_GRADIENT), "fused"),
}
CURVE_STEPS = 10  # of a point
LOSSES = (2.2, 2.0, 1.9, 1.8)  # of training, to be reached


def sweep_row(rank, error_feedback):
    """Name and row; the rank of ROWS is not run twice."""
    name = "CB" if error_feedback == "lazy" else "CB without LEP"
    if rank != BACKWARD_RANK:
        name += f", rank {rank}"
    return name, (epilogue(error_feedback, rank), "separate")


def config(corpus, steps, seed, compress, embedding_sync, links=""):
    return corpus_job(
        corpus, steps, run={"seed": seed, "eval_every": steps, "eval_batches": 40}, batch={"global": 32, "micro": 2},
        parallel={"pipeline": 4, "data": 2, "embedding_sync": embedding_sync}, compress=compress,
        network={"timeout_seconds": 100000, "links": links},
    )


class Bench:
    def __init__(self, corpus, out, steps):
        self._corpus = corpus.resolve()
        self._steps = steps
        self._kept = KeptResults(out, corpus, steps=steps)
        self._place = Workplace()

    def run_slow(self, name, seed, row):
        self.run(f"slow {name}", seed, (*row, self._place.write("slow_link.json", SLOW_LINK)))

    def run(self, name, seed, row):
        if self._kept.has(name, seed):
            return
        run = self._place.train(config(self._corpus, self._steps, seed, *row), ranks=8)
        last = [line for line in run.steps if "axes" in line][-1]
        axes = {
            axis: {key: bytes[key] for key in ("raw_bytes", "sent_bytes")}
            for axis, bytes in last["axes"].items()
        }
        steps = [line for line in run.steps if "step_seconds" in line]
        loss = run.last_eval_loss()
        shutil.copyfile(run.directory / "plan.txt", self._kept.path(name, seed).with_suffix(".plan.txt"))
        shutil.rmtree(run.directory)  # which holds a checkpoint
        self._kept.write({"valid_loss": loss, "axes": axes, "curve": curve(steps)}, name, seed)
        print(f"{name}, seed {seed}: {loss:.4f}", file=sys.stderr, flush=True)

    def read(self, name, seed):
        return self._kept.read(name, seed)

    def baseline(self, seed):
        run = self.read("baseline", seed) or self.read("slow baseline", seed)
        return run["valid_loss"] if run else None


def curve(steps):
    """(seconds since the first step began, mean loss) of every CURVE_STEPS steps."""
    points, seconds = [], 0.0
    for first in range(0, len(steps), CURVE_STEPS):
        part = steps[first : first + CURVE_STEPS]
        seconds += sum(step["step_seconds"] for step in part)
        points.append((seconds, statistics.mean(step["loss"] for step in part)))
    return points


def sent_share(run):
    axes = run["axes"].values()
    return f"{100 * sum(a['sent_bytes'] for a in axes) / sum(a['raw_bytes'] for a in axes):.1f} %"


def spread(values):
    return f"{statistics.stdev(values):.4f}" if len(values) > 1 else "-"


def seconds_until(points, loss):
    return next((f"{seconds:.0f} s" for seconds, mean in points if mean <= loss), "")


def loss_at(points, time):
    return next((f"{mean:.3f}" for seconds, mean in points if seconds >= time), "")


def print_slow(bench, seed):
    runs = {name: bench.read(f"slow {name}", seed) for name in SLOW_ROWS}
    if not runs["baseline"]:
        return
    whole = runs["baseline"]["curve"][-1][0]
    shares = (0.25, 0.5, 0.75)
    print_header(
        "row", "bytes sent", "seconds", "validation loss", *(f"until {loss}" for loss in LOSSES),
        *(f"loss after {share * whole:.0f} s" for share in shares),
    )
    for name, run in runs.items():
        if run:
            points = run["curve"]
            print_row(
                name, sent_share(run), f"{points[-1][0]:.0f}", f"{run['valid_loss']:.4f}",
                *(seconds_until(points, loss) for loss in LOSSES),
                *(loss_at(points, share * whole) for share in shares),
            )


def print_quality(bench, seeds):
    print_header("row", "bytes sent", *(f"seed {seed}" for seed in seeds), "mean", "difference", "spread of it")
    for name in [*ROWS, CRITICAL_PATH, GUARDED, AS_IT_COMES]:
        kept = name if name in ROWS else f"slow {name}"
        runs = {seed: bench.read(kept, seed) for seed in seeds}
        losses = {seed: run["valid_loss"] for seed, run in runs.items() if run}
        if not losses:
            continue
        baselines = {seed: bench.baseline(seed) for seed in losses}
        differences = [losses[seed] - baselines[seed] for seed in losses]
        mean = statistics.mean(losses.values())
        print_row(
            name,
            sent_share(next(run for run in runs.values() if run)),
            *(f"{losses[seed]:.5f}" if seed in losses else "" for seed in seeds),
            f"{mean:.4f}",
            f"{statistics.mean(differences):+.4f} "
            f"({100 * sum(differences) / sum(baselines.values()):+.2f} %)",
            spread(differences),
        )


def print_sweep(bench, seed):
    print_header("CB, rank", "bytes sent", "with LEP", "difference", "without LEP", "difference")
    baseline = bench.baseline(seed)
    if baseline is None:
        return
    for rank in SWEEP_RANKS:
        cells = []
        for error_feedback in ("lazy", "none"):
            run = bench.read(sweep_row(rank, error_feedback)[0], seed)
            if run:
                loss = run["valid_loss"]
                cells += [f"{loss:.4f}", f"{100 * (loss / baseline - 1):+.2f} %"]
                share = sent_share(run)
            else:
                cells += ["", ""]
        if any(cells):
            print_row(rank, share, *cells)


def main():
    parser = parser_of_kept(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--slow", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.corpus, options.out, options.steps)
    seeds = [FIRST_SEED + i for i in range(options.seeds)]
    if not options.table:
        require_binary()
    if options.slow and not options.table:
        for name, row in SLOW_ROWS.items():
            bench.run_slow(name, FIRST_SEED, row)
        for seed in seeds[1:]:
            bench.run("baseline", seed, ROWS["baseline"])
        for seed in seeds:
            for name in (CRITICAL_PATH, AS_IT_COMES):
                bench.run_slow(name, seed, SLOW_ROWS[name])
    elif not options.table:
        for seed in seeds:
            for name, row in ROWS.items():
                if seed == FIRST_SEED or name != "CB+FE":
                    bench.run(name, seed, row)
        for error_feedback in ("lazy", "none"):
            for rank in SWEEP_RANKS:
                name, row = sweep_row(rank, error_feedback)
                bench.run(name, FIRST_SEED, row)
    print_quality(bench, seeds)
    print()
    print_sweep(bench, FIRST_SEED)
    print()
    print_slow(bench, FIRST_SEED)


if __name__ == "__main__":
    main()
