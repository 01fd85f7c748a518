#!/usr/bin/env python3
"""Validation loss by the clock over a slow link: what a user of Slackline reaches, and a user of PyTorch.

Two nodes of one rank each with a really shaped link (tools/bench/netlab), a GPT of 4 x 128 on real text, constant
rate after 20 steps. Rows: no compression, critical_path with nothing else in the config, settings by hand, rounds of
workers that train apart, and with --peer PyTorch's DDP, its PowerSGD hook and DiLoCo (tools/bench/time_to_loss_peer.py says what it needs). The clock
has everything between the start of step 1 and the moment, and before it what critical_path takes to probe links; it
stands while a model is validated. All rows are validated on the same windows, spread evenly over valid.bin, and begin
with weights of one distribution. Losses are at 60 and at 300 seconds, between the validations before and after.

A finished run is kept in OUT and not run again; so the bench may be stopped and called again.

usage: tools/bench/time_to_loss_bench.py CORPUS OUT [--rates RATE...] [--seeds N] [--rows NAME...] [--seconds S]
                                         [--peer PYTHON] [--table]
       CORPUS: directory with train.bin and valid.bin      --table: print what is in OUT, run nothing
"""

import json
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

from codec_settings import integer_sums, low_rank_sums, sums, top_k
from runs import (
    BINARY, REPOSITORY, KeptResults, Workplace, lab_launch, mpi_environment, parser_of_kept, print_header, print_row,
    read_metrics, require_binary,
)

PEER = str(REPOSITORY / "tools/bench/time_to_loss_peer.py")
RATES = ["5mbit", "20mbit", "200mbit", "1gbit"]
FIRST_SEED = 1234
MARKS = (60, 300)  # seconds
MODEL = {"layers": 4, "hidden": 128, "heads": 4, "sequence": 128, "vocab": 257}
GLOBAL_BATCH = 32
VALID_BATCHES = 8
LEARNING_RATE, WARMUP = 1e-3, 20
VALIDATIONS = 20  # about as many in a run
MOST_STEPS = 1_000_000
PATIENCE = 0.5  # seconds between looks at a run


def compress(sites):
    return {"policy": "all", **sites}


OURS = {
    "plain": {"policy": "none"},
    "critical_path": {"policy": "critical_path"},
    "int8": compress(integer_sums(8, "channel", "token")),
    "int4": compress(integer_sums(4, "channel", "token")),
    "int2": compress(integer_sums(2, "both")),
    "int2, moments": compress(integer_sums(2, "both", units="moments")),
    "low_rank 16": compress(low_rank_sums(16)),
    "low_rank 4": compress(low_rank_sums(4)),
    "top_k 1 %": compress(sums(top_k(0.01, "immediate", values="bf16"))),
}
# Workers that train apart: each node is one.
ROUNDS = {
    "rounds, DiLoCo 20": {"method": "diloco", "period": 20},
    "rounds, CO2 20": {"method": "co2", "period": 20},
    "rounds, CO2 20 eager": {"method": "co2", "period": 20, "eager": True},
}
PEERS = {
    "DDP": {"method": "ddp"},
    "DDP, PowerSGD 4": {"method": "powersgd", "rank": 4},
    "DDP, PowerSGD 16": {"method": "powersgd", "rank": 16},
    "DiLoCo 20": {"method": "diloco", "period": 20},
}


def write_validation(place, corpus):
    """A data set of as many windows as are validated, which follow each other in it."""
    tokens = (corpus / "valid.bin").read_bytes()
    count, window = VALID_BATCHES * GLOBAL_BATCH, 2 * MODEL["sequence"]  # 2 bytes a token
    step = (len(tokens) // count - window) // 2 * 2 + window
    windows = b"".join(tokens[i * step : i * step + window] for i in range(count))
    place.write_tokens("valid", windows + tokens[(count - 1) * step + window :][:2])
    shutil.copyfile(corpus / "valid.tokenizer.json", place.path / "valid.tokenizer.json")
    return place.path / "valid"


def config(corpus, valid, seed, name, eval_every):
    section = {"compress": OURS[name]} if name in OURS else {"outer": ROUNDS[name]}
    return {
        "run": {
            "dir": "run", "seed": seed, "steps": MOST_STEPS, "eval_every": eval_every, "eval_batches": VALID_BATCHES,
            "save_every": 0,
        },
        "model": MODEL,
        "data": {"train": [{"path": str(corpus / "train")}], "valid": [{"path": str(valid)}]},
        "batch": {"global": GLOBAL_BATCH, "micro": GLOBAL_BATCH // 2},
        "parallel": {"data": 2},
        "optimizer": {"lr": LEARNING_RATE, "schedule": "constant", "warmup_steps": WARMUP, "decay_embeddings": False},
        **section,
    }


def pauses(messages):
    """Seconds between steps that a run says it spent on choosing, links among it."""
    found = re.findall(r"critical_path: ([0-9.]+) s to try codecs|probed (?:anew )?in ([0-9.]+) s", messages)
    return sum(float(seconds) for pair in found for seconds in pair if seconds)


def curve_of(lines, paused):
    """(seconds on the clock, loss) of each validation."""
    points, seconds = [], paused
    for line in lines:
        if "step_seconds" in line:
            seconds += line["step_seconds"]
        elif "eval_loss" in line:
            points.append((seconds, line["eval_loss"]))
    return points


def watch(process, directory, seconds):
    """Ends the run when its clock has passed `seconds` and it has been validated behind that."""
    while process.poll() is None:
        time.sleep(PATIENCE)
        points = curve_of(read_metrics(directory), 0.0)
        if points and points[-1][0] >= seconds:
            process.send_signal(signal.SIGTERM)
            process.wait()


def run_ours(place, corpus, rate, seed, name, seconds, eval_every):
    text = config(corpus, place.path / "valid", seed, name, eval_every)
    text["run"]["dir"] = str(place.path / f"run-{time.monotonic_ns()}")
    path = place.write("config.json", text)
    log = place.path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [*lab_launch(rate), str(BINARY), "train", path], stdout=out, stderr=out, env=mpi_environment(), text=True
        )
        directory = pathlib.Path(text["run"]["dir"])
        try:
            watch(process, directory, seconds)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    lines = read_metrics(directory)
    points = curve_of(lines, pauses(log.read_text()))
    if not points or points[-1][0] < seconds:
        sys.exit(f"{path}: ended early\n{log.read_text()}")
    steps = [line["step_seconds"] for line in lines if "step_seconds" in line]
    return {"curve": points, "step_seconds": statistics.median(steps[3:]), "steps": len(steps)}


def run_peer(place, corpus, rate, seed, method, seconds, python):
    job = {
        **MODEL, **method, "seed": seed, "batch": GLOBAL_BATCH // 2, "lr": LEARNING_RATE, "warmup": WARMUP,
        "seconds": seconds, "validations": VALIDATIONS, "valid_batches": VALID_BATCHES, "corpus": str(corpus), "valid": str(place.path / "valid"),
    }
    out = place.path / "peer.json"
    place.launch([*lab_launch(rate), python, PEER, json.dumps(job), str(out)])
    return json.loads(out.read_text())


def loss_at(points, mark):
    """Between the validations around it; nothing where a run is shorter."""
    before = None
    for seconds, loss in points:
        if seconds >= mark:
            if before is None:
                return loss
            share = (mark - before[0]) / (seconds - before[0])
            return before[1] + share * (loss - before[1])
        before = (seconds, loss)
    return None


def steps_between(place, corpus, rate, seed, name, seconds):
    """Steps after which to validate, by a short run; with rounds at the end of one."""
    period = ROUNDS[name]["period"] if name in ROUNDS else 1
    first = run_ours(place, corpus, rate, seed, name, 1.0, max(8, period))
    return period * max(1, round(seconds / VALIDATIONS / first["step_seconds"] / period))


def print_table(kept, rates, seeds, marks):
    names = [*OURS, *ROUNDS, *PEERS]
    print_header("link", "row", "step s", *(f"loss at {mark} s, seed {seed}" for mark in marks for seed in seeds))
    for rate in rates:
        for name in names:
            found = {seed: run for seed in seeds if (run := kept.read(rate, name, seed))}
            if not found:
                continue
            step = statistics.mean(run["step_seconds"] for run in found.values())
            losses = [loss_at(found[seed]["curve"], mark) if seed in found else None for mark in marks for seed in seeds]
            print_row(rate, name, f"{step:.4f}", *("-" if loss is None else f"{loss:.3f}" for loss in losses))


def main():
    parser = parser_of_kept(__doc__)
    parser.add_argument("--rates", nargs="+", default=RATES)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rows", nargs="+", choices=[*OURS, *ROUNDS, *PEERS])
    parser.add_argument("--seconds", type=int, default=MARKS[-1])
    parser.add_argument("--peer", help="a Python with PyTorch")
    arguments = parser.parse_args()
    seeds = [FIRST_SEED + i for i in range(arguments.seeds)]
    marks = [mark for mark in MARKS if mark <= arguments.seconds]
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = KeptResults(arguments.out, arguments.corpus, seconds=arguments.seconds)
    names = arguments.rows or [*OURS, *ROUNDS, *(PEERS if arguments.peer else {})]
    if not arguments.table:
        require_binary()
        place = Workplace()
        corpus = arguments.corpus.resolve()
        write_validation(place, corpus)
        for seed in seeds:
            for rate in arguments.rates:
                for name in names:
                    if kept.has(rate, name, seed):
                        continue
                    if name not in PEERS:
                        every = steps_between(place, corpus, rate, seed, name, arguments.seconds)
                        run = run_ours(place, corpus, rate, seed, name, arguments.seconds, every)
                    else:
                        run = run_peer(place, corpus, rate, seed, PEERS[name], arguments.seconds, arguments.peer)
                    kept.write(run, rate, name, seed)
                    print(f"{rate}, {name}, seed {seed}: {run['curve'][-1]}", file=sys.stderr, flush=True)
    print_table(kept, arguments.rates, seeds, marks)
    kept.print_commits()


if __name__ == "__main__":
    main()
