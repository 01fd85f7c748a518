#!/usr/bin/env python3
"""What codecs make of the loss at equal tokens, beside what a guard would see of them: where its bounds come from.

A GPT of 4 x 128 on real text, two or four data ranks or two stages, steps of 4096 tokens. Every row of a seed has the same data
and initial weights; a row compresses everything of its sites from step 1 on, without a guard that judges. Columns: the
loss over text that was never trained on, how much above the row without compression that is, and of the samples of every
25th step the median and the largest share that the guard holds against its bound: owed with error feedback, else lost.

A run that is done is kept in OUT and not run again; so the bench may be stopped and called again.

usage: tools/bench/guard_bounds_bench.py CORPUS OUT [--steps N] [--seeds N] [--rows NAME...] [--table]
       CORPUS: directory with train.bin and valid.bin      --table: print what is in OUT, run nothing
"""

import statistics
import sys

from codec_settings import boundaries, integer_sums, integers, low_rank_sums, sums, top_k
from runs import KeptResults, Workplace, parser_of_kept, percent, print_header, print_row, ranks_of, require_binary

MODEL = {"layers": 4, "hidden": 128, "heads": 4, "sequence": 128, "vocab": 257}
GLOBAL_BATCH = 32
# Layouts, and the sequences of a micro-batch.
DATA, DATA_4, STAGES = ({"data": 2}, 16), ({"data": 4}, 8), ({"pipeline": 2}, 4)
SAMPLED_EVERY = 25
FIRST_SEED = 1


def integer_boundaries(forward, backward):
    return boundaries(*(integers(bits, "none", scale="token", units="values") for bits in (forward, backward)))


PLAIN = "no compression"
# Name: (layout, sites)
ROWS = {
    PLAIN: (DATA, {}),
    "sums int8": (DATA, integer_sums(8, "channel", "token")),
    "sums int4": (DATA, integer_sums(4, "channel", "token")),
    "sums int4, a scale for each row": (DATA, integer_sums(4, "token")),
    "sums int4, scales of rows and columns": (DATA, integer_sums(4, "both")),
    "sums int3, scales of rows and columns": (DATA, integer_sums(3, "both")),
    "sums int2, scales of rows and columns": (DATA, integer_sums(2, "both")),
    "sums int4, scales of rows and columns, moments": (DATA, integer_sums(4, "both", units="moments")),
    "sums int3, scales of rows and columns, moments": (DATA, integer_sums(3, "both", units="moments")),
    "sums int2, scales of rows and columns, moments": (DATA, integer_sums(2, "both", units="moments")),
    "sums int4 of four ranks": (DATA_4, integer_sums(4, "channel", "token")),
    "sums int4 of four ranks, in two shots": (DATA_4, integer_sums(4, "channel", "token", sum="two_shot")),
    "sums low_rank 32": (DATA, low_rank_sums(32)),
    "sums low_rank 16": (DATA, low_rank_sums(16)),
    "sums low_rank 8": (DATA, low_rank_sums(8)),
    "sums top_k 10 %": (DATA, sums(top_k(0.1, "immediate"))),
    "forward int8, backward int8": (STAGES, integer_boundaries(8, 8)),
    "forward int4, backward int8": (STAGES, integer_boundaries(4, 8)),
    "forward int8, backward int4": (STAGES, integer_boundaries(8, 4)),
}


def config(corpus, name, seed, steps):
    (parallel, micro), sites = ROWS[name]
    guard = {"every": SAMPLED_EVERY, "max_error": None}
    return {
        "run": {
            "dir": "unused", "seed": seed, "steps": steps, "eval_every": steps, "eval_batches": 60, "save_every": 0,
            "log_every": 100,
        },
        "model": MODEL,
        "data": {"train": [{"path": str(corpus / "train")}], "valid": [{"path": str(corpus / "valid")}]},
        "batch": {"global": GLOBAL_BATCH, "micro": micro},
        "parallel": parallel,
        "optimizer": {"lr": 3e-3, "min_lr": 3e-4, "schedule": "cosine", "warmup_steps": steps // 10},
        "compress": {"policy": "all", **sites, "guard": guard} if sites else {"policy": "none"},
    }


def shares(steps, sites):
    """What a guard holds against its bound, for each sampled class."""
    found = []
    for step in steps:
        for one in step.get("compression", []):
            owes = sites[one["site"]]["error_feedback"] != "none"
            found.append(one["residual_norm"] / one["raw_norm"] if owes else one["relative_error"])
    return found


def measure(place, corpus, name, seed, steps):
    run = place.train(config(corpus, name, seed, steps), ranks=ranks_of(ROWS[name][0][0]))
    return {"loss": run.last_eval_loss(), "shares": shares(run.steps, ROWS[name][1])}


def print_table(kept, seeds):
    plain = {seed: kept.read(PLAIN, seed)["loss"] for seed in seeds}
    print_header("row", *(f"seed {seed}" for seed in seeds), "above plain", "share: median", "largest")
    for name in ROWS:
        found = {seed: kept.read(name, seed) for seed in seeds if kept.has(name, seed)}
        if not found:
            continue
        losses = [f"{found[seed]['loss']:.4f}" if seed in found else "-" for seed in seeds]
        above = statistics.mean(one["loss"] / plain[seed] - 1 for seed, one in found.items())
        seen = [share for one in found.values() for share in one["shares"]]
        cells = [f"{statistics.median(seen):.3f}", f"{max(seen):.3f}"] if seen else ["", ""]
        print_row(name, *losses, percent(above), *cells)


def main():
    parser = parser_of_kept(__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    arguments = parser.parse_args()
    seeds = [FIRST_SEED + i for i in range(arguments.seeds)]
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = KeptResults(arguments.out, arguments.corpus, steps=arguments.steps)
    if not arguments.table:
        require_binary()
        place = Workplace()
        for seed in seeds:
            for name in dict.fromkeys([PLAIN, *arguments.rows]):
                if not kept.has(name, seed):
                    kept.write(measure(place, arguments.corpus.resolve(), name, seed, arguments.steps), name, seed)
                    print(f"{name}, seed {seed}: done", file=sys.stderr, flush=True)
    print_table(kept, [seed for seed in seeds if kept.has(PLAIN, seed)])
    kept.print_commits()


if __name__ == "__main__":
    main()
