#!/usr/bin/env python3
"""What outer rounds do to the validation loss at equal tokens, and what they send between workers.

Every row trains the same GPT (2.2 million parameters, four ranks) on the same tokens from the same weights: as data
ranks that step together, or as four workers that meet in rounds, by method, period, penalty, and codec of what
travels. The corpus is the quickstart's (tools/quickstart, or its `prepare` stage). A finished run is kept in OUT and not
run again; so the bench may be stopped and called again, and its result files may be carried to another machine.

usage: tools/bench/outer_bench.py CORPUS OUT [--seeds N] [--steps N] [--only PATTERN] [--table]
       CORPUS: directory with train.bin and valid.bin      --only: rows whose name matches (shell pattern)
       --table: print what is in OUT, run nothing
"""

import argparse
import fnmatch
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

from runs import BINARY, print_header, print_row, require_binary

FIRST_SEED = 1234
RANKS = 4
TOGETHER = "data parallel"


def rounds(method, period, codec=None, **outer):
    compress = {"policy": "all", "outer": codec} if codec else {}
    return {"outer": {"method": method, "period": period, **outer}, "compress": compress}


def quantize(bits):
    return {"codec": "quantize", "bits": bits}


def top_k(ratio):
    return {"codec": "top_k", "ratio": ratio}


WHOLE_MEAN = {"lr": 1.0, "momentum": 0.0}
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
    "CO2 eager, 12": rounds("co2", 12, eager=True),
    "CO2 eager, 12, lr 0.8": rounds("co2", 12, eager=True, lr=0.8),
    "CO2 eager, 48": rounds("co2", 48, eager=True),
    "Streaming DiLoCo, 12 in 4": rounds("diloco", 12, fragments=4),
    "Streaming DiLoCo, 48 in 4": rounds("diloco", 48, fragments=4),
    "CO2, 12, bf16": rounds("co2", 12, codec={"codec": "cast"}),
    "CO2, 12, 4 bits": rounds("co2", 12, codec=quantize(4)),
    "CO2, 12, 2 bits": rounds("co2", 12, codec=quantize(2)),
    "CO2, 12, Top-K 3 %": rounds("co2", 12, codec=top_k(0.03)),
    "CO2, 12, Top-K 1 %": rounds("co2", 12, codec=top_k(0.01)),
    "DiLoCo, 12, 4 bits": rounds("diloco", 12, codec=quantize(4)),
    "DiLoCo, 12, 2 bits": rounds("diloco", 12, codec=quantize(2)),
    "DiLoCo, 12, Top-K 3 %": rounds("diloco", 12, codec=top_k(0.03)),
    "Local-SGD, 12, Top-K 3 %": rounds("co2", 12, codec=top_k(0.03), delay=0, **WHOLE_MEAN),
    "DiLoCo, 12, rank 8": rounds("diloco", 12, codec={"codec": "low_rank", "rank": 8, "factors": "bf16"}),
}


def config(corpus, directory, steps, seed, row):
    return {
        "run": {"dir": str(directory), "seed": seed, "steps": steps, "eval_every": steps, "eval_batches": 40},
        "model": {"layers": 4, "hidden": 208, "heads": 4, "sequence": 128, "vocab": 257},
        "data": {
            "train": [{"path": str(corpus / "train")}],
            "valid": [{"path": str(corpus / "valid")}],
        },
        "batch": {"global": 32, "micro": 8},
        "parallel": {"data": RANKS, "group": 1},
        "optimizer": {
            "lr": 3e-3, "min_lr": 1e-4, "schedule": "cosine", "warmup_steps": steps // 10, "decay_embeddings": False,
        },
        "network": {"timeout_seconds": 100000},
        **row,
    }


class Bench:
    def __init__(self, corpus, out, steps):
        self._corpus = corpus.resolve()
        self._out = out
        self._steps = steps

    def _result(self, name, seed):
        slug = "".join(letter if letter.isalnum() else "-" for letter in name)
        return self._out / f"{slug}-{self._steps}-{seed}.json"

    def run(self, name, seed):
        result = self._result(name, seed)
        if result.exists():
            return
        directory = self._out / "run"
        shutil.rmtree(directory, ignore_errors=True)
        path = self._out / "config.json"
        path.write_text(json.dumps(config(self._corpus, directory, self._steps, seed, ROWS[name])))
        command = [str(BINARY), "train", str(path), "--ranks", str(RANKS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: ended with {done.returncode}\n{done.stderr}")
        lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
        loss = [line["eval_loss"] for line in lines if "eval_loss" in line][-1]
        axis = "outer" if "outer" in ROWS[name] else "data"
        sent = sum(line["axes"][axis]["sent_bytes"] for line in lines if "axes" in line)
        temporary = result.with_suffix(".part")
        temporary.write_text(json.dumps({"valid_loss": loss, "sent_bytes": sent}))
        os.replace(temporary, result)
        print(f"{name}, seed {seed}: {loss:.4f}", file=sys.stderr, flush=True)

    def read(self, name, seed):
        result = self._result(name, seed)
        return json.loads(result.read_text()) if result.exists() else None


def print_table(bench, seeds, steps):
    # A line of rounds is the first worker's, that of data ranks all ranks'.
    together = bench.read(TOGETHER, seeds[0])
    print_header("row", "bytes a rank sends a step", "times fewer", *(f"seed {seed}" for seed in seeds), "difference")
    for name in ROWS:
        runs = {seed: run for seed in seeds if (run := bench.read(name, seed))}
        if not runs:
            continue
        sent = next(iter(runs.values()))["sent_bytes"] / steps / (RANKS if name == TOGETHER else 1)
        plain = together["sent_bytes"] / steps / RANKS
        pairs = [(run["valid_loss"], base["valid_loss"]) for seed, run in runs.items() if (base := bench.read(TOGETHER, seed))]
        difference = statistics.mean(loss / base - 1 for loss, base in pairs)
        print_row(
            name, f"{sent / 1e3:.1f} kB", f"{plain / sent:.0f}",
            *(f"{runs[seed]['valid_loss']:.4f}" if seed in runs else "" for seed in seeds),
            f"{100 * difference:+.2f} %",
        )


def main():
    parser = argparse.ArgumentParser(usage=__doc__[__doc__.index("usage: ") + len("usage: ") :])
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--only", default="*")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    bench = Bench(options.corpus, options.out, options.steps)
    seeds = [FIRST_SEED + i for i in range(options.seeds)]
    if not options.table:
        require_binary()
        options.out.mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            for name in ROWS:
                if name == TOGETHER or fnmatch.fnmatch(name, options.only):
                    bench.run(name, seed)
    print_table(bench, seeds, options.steps)


if __name__ == "__main__":
    main()
