#!/usr/bin/env python3
"""What outer rounds do to the validation loss at equal tokens, and what they send between workers.

Every row trains the same GPT (2.2 million parameters, four ranks) on the same tokens from the same weights: as data
ranks that step together, or as four workers that meet in rounds, by method, period, penalty, and codec of what
travels. The corpus is the quickstart's (tools/quickstart, or its `prepare` stage). A finished run is kept in OUT and not
run again; so the bench may be stopped and called again, and its result files may be carried to another machine.

With --scale or --rehearse: nothing is trained. `slackline plan` says what a step takes on 16 and on 128 assumed GPUs (40 % of an A100's
TF32 peak), eight to a node, over 800 and 80 Gb/s, by method and period; the ratio of both speeds, each rank's, says how a
method scales. --rehearse runs six of them on 16 ranks, messages really sent, and sets their steps beside the predicted ones.

With --lab: four nodes of one rank train for a minute or so over really shaped links (tools/bench/netlab): the mean step of
the second half, of whole periods where there are rounds, against a link without a limit.

usage: tools/bench/outer_bench.py CORPUS OUT [--seeds N] [--steps N] [--small] [--only PATTERN] [--table]
       tools/bench/outer_bench.py --scale | --rehearse
       tools/bench/outer_bench.py --lab RATE...
       CORPUS: directory with train.bin and valid.bin      --only: rows whose name matches (shell pattern)
       --small: a tenth of the parameters, for more steps
       --table: print what is in OUT, run nothing
"""

import contextlib
import fnmatch
import json
import shutil
import statistics
import sys

from assumed_gpus import cost_file
from codec_settings import cast, integers, low_rank, top_k
from runs import (
    REPOSITORY, KeptResults, Workplace, cores_awake, corpus_job, lab_launch, parser_of_kept, print_header, print_row,
    require_binary,
)

FIRST_SEED = 1234
RANKS = 4
TOGETHER = "data parallel"


def rounds(method, period, codec=None, **outer):
    compress = {"policy": "all", "outer": codec} if codec else {}
    return {"outer": {"method": method, "period": period, **outer}, "compress": compress}


WHOLE_MEAN = {"lr": 1.0, "momentum": 0.0}
LATE = {"lr": 0.5, "momentum": 0.2, "nesterov": False}  # the defaults of rounds that are late and not eager
SMALL_MODEL = {"layers": 2, "hidden": 96, "heads": 4, "sequence": 128, "vocab": 257}
ROWS = {
    TOGETHER: {},
    "Local-SGD, 12": rounds("co2", 12, delay=0, **WHOLE_MEAN),
    "Local-SGD, 48": rounds("co2", 48, delay=0, **WHOLE_MEAN),
    "Local-SGD a round late, 12": rounds("co2", 12, **WHOLE_MEAN),
    "SlowMo, 12": rounds("slowmo", 12, lr=1.0, momentum=0.5),
    "SlowMo, 12, momentum 0.2": rounds("slowmo", 12, lr=1.0, momentum=0.2),
    "DiLoCo, 12": rounds("diloco", 12),
    "DiLoCo, 48": rounds("diloco", 48),
    "CO2, 3": rounds("co2", 3),
    "CO2, 12": rounds("co2", 12),
    "CO2, 48": rounds("co2", 48),
    "CO2, 12, lr 0.8": rounds("co2", 12, lr=0.8),
    "CO2, 12, lr 0.3 momentum 0.5": rounds("co2", 12, lr=0.3, momentum=0.5),
    "CO2, 12, gap": rounds("co2", 12, penalty="gap"),
    "CO2, 12, gap, lr 0.8": rounds("co2", 12, penalty="gap", lr=0.8),
    "CO2, 12, gap per tensor, lr 0.8": rounds("co2", 12, penalty="gap_per_tensor", lr=0.8),
    "CO2, 12, clip norm 1": rounds("co2", 12, clip=1.0, clip_kind="norm"),
    "CO2 eager, 12": rounds("co2", 12, eager=True, **LATE),
    "CO2 eager, 12, lr 0.8": rounds("co2", 12, eager=True, **{**LATE, "lr": 0.8}),
    "CO2 eager, 48": rounds("co2", 48, eager=True, **LATE),
    "CO2 eager, 12, lr 0.7 momentum 0.5": rounds("co2", 12, eager=True, **{**LATE, "lr": 0.7, "momentum": 0.5}),
    "CO2 eager Nesterov, 12": rounds("co2", 12, eager=True),
    "CO2 eager Nesterov, 12, own 1/4": rounds("co2", 12, eager=True, lead=0.25),
    "CO2 eager Nesterov, 48": rounds("co2", 48, eager=True),
    "CO2 eager Nesterov, 12, 2 bits": rounds("co2", 12, eager=True, codec=integers(2)),
    "Streaming DiLoCo, 12 in 4": rounds("diloco", 12, fragments=4),
    "Streaming DiLoCo, 12 in 4, mix 0": rounds("diloco", 12, fragments=4, mix=0),
    "Streaming DiLoCo, 48 in 4": rounds("diloco", 48, fragments=4),
    "CO2, 12, bf16": rounds("co2", 12, codec=cast()),
    "CO2, 12, 4 bits": rounds("co2", 12, codec=integers(4)),
    "CO2, 12, 2 bits": rounds("co2", 12, codec=integers(2)),
    "CO2, 12, Top-K 3 %": rounds("co2", 12, codec=top_k(0.03)),
    "CO2, 12, Top-K 1 %": rounds("co2", 12, codec=top_k(0.01)),
    "DiLoCo, 12, 4 bits": rounds("diloco", 12, codec=integers(4)),
    "DiLoCo, 12, 2 bits": rounds("diloco", 12, codec=integers(2)),
    "DiLoCo, 24, 2 bits": rounds("diloco", 24, codec=integers(2)),
    "DiLoCo, 12, Top-K 3 %": rounds("diloco", 12, codec=top_k(0.03)),
    "Local-SGD, 12, Top-K 3 %": rounds("co2", 12, codec=top_k(0.03), delay=0, **WHOLE_MEAN),
    "DiLoCo, 12, rank 8": rounds("diloco", 12, codec=low_rank(8, factors="bf16")),
}


def config(corpus, steps, seed, small, row):
    job = corpus_job(
        corpus, steps, run={"seed": seed, "eval_every": steps, "eval_batches": 40}, batch={"global": 32, "micro": 8},
        parallel={"data": RANKS, "group": 1}, network={"timeout_seconds": 100000}, **row,
    )
    return {**job, "model": SMALL_MODEL} if small else job


class Bench:
    def __init__(self, corpus, out, steps, small):
        self._corpus = corpus.resolve()
        self._steps = steps
        self._small = small
        self._kept = KeptResults(out, corpus, **({"small": True} if small else {}))
        self._place = Workplace()

    def run(self, name, seed):
        if self._kept.has(name, self._steps, seed):
            return
        run = self._place.train(config(self._corpus, self._steps, seed, self._small, ROWS[name]), ranks=RANKS)
        loss = run.last_eval_loss()
        axis = "outer" if "outer" in ROWS[name] else "data"
        sent = sum(line["axes"][axis]["sent_bytes"] for line in run.steps if "axes" in line)
        shutil.rmtree(run.directory)  # which holds a checkpoint
        self._kept.write({"valid_loss": loss, "bytes_of_all": sent}, name, self._steps, seed)
        print(f"{name}, seed {seed}: {loss:.4f}", file=sys.stderr, flush=True)

    def read(self, name, seed):
        return self._kept.read(name, self._steps, seed)


def print_table(bench, seeds, steps):
    together = bench.read(TOGETHER, seeds[0])
    print_header("row", "bytes a rank sends a step", "times fewer", *(f"seed {seed}" for seed in seeds), "difference")
    for name in ROWS:
        runs = {seed: run for seed in seeds if (run := bench.read(name, seed))}
        if not runs:
            continue
        sent = next(iter(runs.values()))["bytes_of_all"] / steps / RANKS
        plain = together["bytes_of_all"] / steps / RANKS
        pairs = [(run["valid_loss"], base["valid_loss"]) for seed, run in runs.items() if (base := bench.read(TOGETHER, seed))]
        difference = statistics.mean(loss / base - 1 for loss, base in pairs)
        print_row(
            name, f"{sent / 1e3:.1f} kB", f"{plain / sent:.0f}",
            *(f"{runs[seed]['valid_loss']:.4f}" if seed in runs else "" for seed in seeds),
            f"{100 * difference:+.2f} %",
        )


GPUS = 8  # of a node
SCALES = (16, 128)  # GPUs
SEQUENCES = 8  # of a GPU and step
CLUSTERS = ("a100_800g_rdma", "a100_80g_tcp")
SHAPES = {
    "GPT-2 small": {"layers": 12, "hidden": 768, "heads": 12, "sequence": 1024, "vocab": 50304},
    "GPT-2 medium": {"layers": 24, "hidden": 1024, "heads": 16, "sequence": 1024, "vocab": 50304},
    "7B": {"layers": 32, "hidden": 4096, "heads": 32, "sequence": 1024, "vocab": 32000, "tie_embeddings": False},
}
# Data strategy, and where there are rounds their delay. Local-SGD and SlowMo wait alike, and Overlap-Local-SGD hides
# what CO2 hides.
SCALED = {
    "data parallel": ("replicate", None),
    "ZeRO-1": ("zero1", None),
    "Local-SGD, SlowMo": ("replicate", 0),
    "CO2, Overlap-Local-SGD": ("replicate", 1),
    "CO2, NII inside": ("zero2", 1),
}
PERIODS = (12, 48)


def model_of(shape):
    return {**shape, "recompute": "block" if shape["hidden"] > 1024 else "none"}


def planned(place, shape, gpus, cluster, strategy, delay):
    return {
        "run": {"dir": "unused", "steps": 1},
        "precision": "bf16",
        "model": model_of(shape),
        "data": {"train": [{"path": str(place.path / "corpus")}], "split": [1, 0, 0]},
        "batch": {"global": SEQUENCES * gpus, "micro": 1 if shape["hidden"] > 1024 else SEQUENCES},
        "parallel": {"data": gpus, "group": GPUS, "data_strategy": strategy},
        "network": {"links": str(REPOSITORY / f"configs/clusters/{cluster}.json")},
        "outer": {"method": "none"} if delay is None else {"method": "co2", "period": 12, "delay": delay},
    }


def step_seconds(plan, costs, delay, period):
    """With rounds a mean of a period, whose end moves the anchor in one pass over the rank's share."""
    step = plan["step_seconds"]
    if delay is None:
        return step
    update = next(op["seconds"] for op in costs["ops"] if op["kind"] == "element_update")
    share = next(item["bytes"] for item in plan["memory"] if item["name"].startswith("outer anchor")) / 12
    travels = plan["outer"]["seconds"]
    computes = period * step + share * update
    return (max(computes, travels) if delay else computes + travels) / period


def print_scale(place):
    print_header("model", "link", "method", "period", *(f"{gpus} GPUs, tokens/s" for gpus in SCALES), "ratio")
    for name, shape in SHAPES.items():
        costs = cost_file(model_of(shape), [])
        path = place.write("costs.json", costs)
        for cluster in CLUSTERS:
            for method, (strategy, delay) in SCALED.items():
                plans = [place.plan(planned(place, shape, gpus, cluster, strategy, delay), path) for gpus in SCALES]
                fits = plans[-1]["memory_bytes"] <= 80e9
                for period in PERIODS if delay is not None else ("",):
                    speeds = [
                        SEQUENCES * gpus * shape["sequence"] / step_seconds(plan, costs, delay, period)
                        for gpus, plan in zip(SCALES, plans)
                    ]
                    ratio = speeds[1] / SCALES[1] / (speeds[0] / SCALES[0])
                    shown = [f"{speed:.0f}" if fits else f"({speed:.0f})" for speed in speeds]
                    print_row(name, cluster, method, period, *shown, f"{ratio:.3f}")


REHEARSED = (
    ("data parallel", "", 0), ("ZeRO-1", "", 0), ("Local-SGD, SlowMo", 12, 0), ("CO2, Overlap-Local-SGD", 12, 0),
    ("CO2, NII inside", 12, 0), ("CO2, Overlap-Local-SGD", 12, 4),
)
REHEARSAL_SCALE = 4096
SLOWER = 8  # times that a rehearsal's time runs slower than its GPUs', so that two cores can follow


def rehearse(place):
    """Two nodes over a tenth of the 80 Gb/s, so that a round of twelve steps does not hide; codecs take no time."""
    shape = SHAPES["GPT-2 small"]
    costs = cost_file(shape, [])
    path = place.write("costs.json", costs)
    cluster = json.loads((REPOSITORY / f"configs/clusters/{CLUSTERS[1]}.json").read_text())
    cluster["nodes"] = [{"count": 2, "devices": GPUS}]
    for link in cluster["links"]:
        link["bytes_per_second"] /= 10 if link["scope"] == "network" else 1
    links = place.write("links.json", cluster)
    print_header("method", "period", "codec", "predicted", "rehearsed", "off by")
    for method, period, bits in REHEARSED:
        strategy, delay = SCALED[method]
        job = planned(place, shape, SCALES[0], CLUSTERS[1], strategy, delay)
        job["run"]["steps"] = 37 if period else 5
        job["network"]["links"] = links
        job["compress"] = {"policy": "all", "outer": integers(bits)} if bits else {}
        expected = step_seconds(place.plan(job, path), {"ops": [{"kind": "element_update", "seconds": 0.0}]}, delay, period)
        job = {**job, "device": "rehearsal", "rehearsal": {"costs": path, "scale": REHEARSAL_SCALE}}
        steps = place.train(place.slowed(job, SLOWER), ranks=SCALES[0]).steps
        settled_steps = steps[12:36] if period else steps[1:]  # two periods, without the first
        took = statistics.mean(step["step_seconds"] for step in settled_steps) / SLOWER
        print_row(method, period, f"{bits} bits" if bits else "", f"{expected:.4f} s", f"{took:.4f} s",
                  f"{100 * (expected / took - 1):+.1f} %")


LAB_MODEL = {"layers": 4, "hidden": 128, "heads": 4, "sequence": 128, "vocab": 257}
NO_LIMIT = "none"
# Name: (steps, what it adds)
LAB_ROWS = {
    "plain": (30, {}),
    "critical_path": (60, {"compress": {"policy": "critical_path"}}),
    "SlowMo, 12": (120, rounds("slowmo", 12)),
    "CO2, auto": (240, rounds("co2", "auto")),
}


def settled(steps):
    """The second half; where there are rounds, from an end in it to the last end but one, after which the run ends."""
    half = steps[len(steps) // 2:]
    ends = [i for i, step in enumerate(half) if "outer" in step]
    return half[ends[0] + 1: ends[-2] + 1] if len(ends) > 2 else half


def lab_row(place, rate, name):
    count, more = LAB_ROWS[name]
    job = {
        "run": {"dir": "unused", "steps": count, "save_every": 0},
        "model": LAB_MODEL,
        "data": {"train": [{"path": str(place.path / "corpus")}], "split": [1, 0, 0]},
        "batch": {"global": 64, "micro": 16},
        "parallel": {"data": RANKS, "group": 1},
        **more,
    }
    return [step for step in place.train(job, launch=lab_launch(rate, nodes=RANKS)).steps if "loss" in step]


def lab(place, rates):
    print_header("link", "row", "a step", "against no limit", "period", "a round travels", "ends waited")
    free = {}
    for rate in [NO_LIMIT, *rates]:
        for name in LAB_ROWS:
            steps = lab_row(place, rate, name)
            seconds = statistics.mean(step["step_seconds"] for step in settled(steps))
            free.setdefault(name, seconds)
            ends = [step["outer"] for step in settled(steps) if "outer" in step]
            travelled = [end for end in ends if "round_seconds" in end]
            print_row(
                rate, name, f"{seconds:.4f} s", f"{100 * (seconds / free[name] - 1):+.1f} %",
                ends[-1]["period"] if ends else "",
                f"{statistics.median(end['round_seconds'] for end in travelled):.2f} s" if travelled else "",
                f"{statistics.mean(end['wait_seconds'] for end in travelled):.3f} s" if travelled else "",
            )


def main():
    if sys.argv[1:2] == ["--lab"]:
        require_binary()
        place = Workplace()
        place.prepare_letters("corpus", 1 << 16)
        lab(place, sys.argv[2:])
        return
    modes = {"--scale": print_scale, "--rehearse": rehearse}
    if len(sys.argv) == 2 and sys.argv[1] in modes:
        require_binary()
        place = Workplace()
        place.prepare_letters("corpus", 1 << 16)
        with cores_awake() if sys.argv[1] == "--rehearse" else contextlib.nullcontext():
            modes[sys.argv[1]](place)
        return
    parser = parser_of_kept(__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", default="*")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.corpus, options.out, options.steps, options.small)
    seeds = [FIRST_SEED + i for i in range(options.seeds)]
    if not options.table:
        require_binary()
        for seed in seeds:
            for name in ROWS:
                if name == TOGETHER or fnmatch.fnmatch(name, options.only):
                    bench.run(name, seed)
    print_table(bench, seeds, options.steps)


if __name__ == "__main__":
    main()
