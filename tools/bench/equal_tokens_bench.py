#!/usr/bin/env python3
"""What the plans of critical_path, as it comes, cost at equal tokens: the loss with and without them.

A GPT of 2.2 million parameters on two data ranks. For each speed of the link between them one run with nothing in the
config but the policy chooses, and what it ends with is replayed without a link, for every seed on the same data from the
same weights as the run without compression. A plan names what has no codec too, so plans of different speeds may be one.

A run that is done is kept in OUT and not run again; so the bench may be stopped and called again.

usage: tools/bench/equal_tokens_bench.py CORPUS OUT [--seeds N] [--steps N] [--speeds NAME...] [--table]
       CORPUS: directory with train.bin and valid.bin      --table: print what is in OUT, run nothing
"""

import json
import math
import statistics
import sys

from clusters import links_file
from codec_settings import codec_name
from runs import KeptResults, Workplace, corpus_job, parser_of_kept, percent, print_header, print_row, require_binary

GLOBAL_BATCH = 32
WARMUP = 100  # steps, also of a run that only chooses
CHOOSING_STEPS = 40  # the plan of step 10 and what the guard makes of it
MEGABIT = 1e6 / 8
SPEEDS = {"5 Mb/s": 5 * MEGABIT, "20 Mb/s": 20 * MEGABIT, "200 Mb/s": 200 * MEGABIT, "1 Gb/s": 1000 * MEGABIT}
PLAIN = "plain"
FIRST_SEED = 1234


def config(corpus, seed, steps, compress, links=""):
    return corpus_job(
        corpus, steps,
        run={"seed": seed, "eval_every": steps, "eval_batches": 40, "save_every": 0, "log_every": 100}, warmup=WARMUP,
        batch={"global": GLOBAL_BATCH, "micro": GLOBAL_BATCH // 2}, parallel={"data": 2}, compress=compress,
        network={"links": links},
    )


def choose(place, corpus, speed):
    """The classes that a run over the link ends with."""
    links = links_file(place, nodes=2, latency=1e-4, bytes_per_second=SPEEDS[speed])
    run = place.train(config(corpus, FIRST_SEED, CHOOSING_STEPS, {"policy": "critical_path"}, links), ranks=2)
    return json.loads((run.directory / "plan.json").read_text())[-1]["classes"]


def codecs(classes):
    return {(one["site"], one["stage"], one["phase"]): one["codec"] for one in classes}


def replay(place, corpus, seed, steps, classes):
    """The loss at the end."""
    compress = {"policy": "none"}
    if classes is not None:
        plan = place.write("plan.json", [{"from_step": 1, "predicted_step_seconds": None, "classes": classes}])
        compress = {"policy": "replay", "plan": plan, "guard": {"every": 0}}
    return place.train(config(corpus, seed, steps, compress), ranks=2).last_eval_loss()


def measure(place, corpus, kept, arguments):
    for speed in arguments.speeds:
        if not kept.has("plan", speed):
            kept.write(choose(place, corpus, speed), "plan", speed)
            print(f"{speed}: chosen", file=sys.stderr, flush=True)
    for seed in range(FIRST_SEED, FIRST_SEED + arguments.seeds):
        for name in [PLAIN, *arguments.speeds]:
            if kept.has("loss", name, seed):
                continue
            classes = None if name == PLAIN else kept.read("plan", name)
            twin = next(
                (other for other in arguments.speeds if classes is not None and kept.has("loss", other, seed) and
                 codecs(kept.read("plan", other)) == codecs(classes)), None)
            loss = kept.read("loss", twin, seed) if twin else replay(place, corpus, seed, arguments.steps, classes)
            kept.write(loss, "loss", name, seed)
            print(f"{name}, seed {seed}: {loss:.4f}", file=sys.stderr, flush=True)


def choice(classes):
    return ", ".join(f"{codec_name(one['codec'])} {one['site']} {one['phase']}" for one in classes if one["codec"])


def print_table(kept, arguments):
    seeds = [seed for seed in range(FIRST_SEED, FIRST_SEED + arguments.seeds) if kept.has("loss", PLAIN, seed)]
    print_header("link", "what it compresses", *(f"seed {seed}" for seed in seeds), "above plain", "standard error")
    print_row(PLAIN, "", *(f"{kept.read('loss', PLAIN, seed):.4f}" for seed in seeds), "", "")
    for speed in arguments.speeds:
        losses = {seed: kept.read("loss", speed, seed) for seed in seeds}
        above = [loss / kept.read("loss", PLAIN, seed) - 1 for seed, loss in losses.items() if loss is not None]
        if not above:
            continue
        error = percent(statistics.stdev(above) / math.sqrt(len(above))) if len(above) > 1 else ""
        cells = ["-" if losses[seed] is None else f"{losses[seed]:.4f}" for seed in seeds]
        print_row(speed, choice(kept.read("plan", speed)), *cells, percent(statistics.mean(above)), error)


def main():
    parser = parser_of_kept(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--speeds", nargs="+", choices=SPEEDS, default=list(SPEEDS))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = KeptResults(arguments.out, arguments.corpus, steps=arguments.steps)
    if not arguments.table:
        require_binary()
        measure(Workplace(), arguments.corpus.resolve(), kept, arguments)
    print_table(kept, arguments)
    kept.print_commits()


if __name__ == "__main__":
    main()
