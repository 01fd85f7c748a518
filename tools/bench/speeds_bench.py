#!/usr/bin/env python3
"""Is critical_path, as it comes, as fast as the best setting by hand, at every speed and on every layout?

A GPT of 4 x 128 on two or four nodes of one rank each, links for each pair (`network.links`). Per layout and link one run
with nothing in the config but the policy chooses a plan. Two ranks compute really, as threads of one process:
plans then take turns within one run, no compression, the twelve fixed settings below and the plan chosen, a few
steps each, so that they meet the same machine. Four ranks would share two cores: their steps are rehearsed by the costs
that the run of two ranks measured, with the plan that `slackline plan` chooses from these costs and errors.

Fixed settings are those that keep the loss (docs/results/quality.md): bf16, integers of 8 and 4 bits for
gradients and the tied table, nothing, bf16 and 8 bits between stages, in every combination, and a few scales.

A setting that is done is kept in OUT and not run again; so the bench may be stopped and called again.

usage: tools/bench/speeds_bench.py CORPUS OUT [--layouts NAME...] [--rounds N] [--table]
       CORPUS: a prepared corpus      --table: print what is in OUT, run nothing
"""

import json
import statistics
import sys

from clusters import links_file
from codec_settings import boundaries, cast, codec_name, integers, sums
from runs import (
    KeptResults, Workplace, cores_awake, parser_of_kept, percent, print_header, print_row, ranks_of, require_binary,
)
from turns import quartiles, take_turns

MODEL = {"layers": 4, "hidden": 128, "heads": 4, "sequence": 128, "vocab": 257}
GLOBAL_BATCH = 32
CHOOSING_STEPS = 20  # the plan of step 10 and what the guard makes of it
MEGABIT = 1e6 / 8
SHORT = 1e-4
# (bytes a second, latency)
LINKS = {
    "5 Mb/s": (5 * MEGABIT, SHORT),
    "20 Mb/s": (20 * MEGABIT, SHORT),
    "100 Mb/s": (100 * MEGABIT, SHORT),
    "1 Gb/s": (1000 * MEGABIT, SHORT),
    "4 Gb/s": (4000 * MEGABIT, SHORT),
    "100 Mb/s, 20 ms": (100 * MEGABIT, 20e-3),
    "20 Mb/s, 70 ms": (20 * MEGABIT, 70e-3),
    "1 Gb/s, 70 ms": (1000 * MEGABIT, 70e-3),
}
SPEEDS = [name for name in LINKS if "ms" not in name]
LONG = ["20 Mb/s, 70 ms", "1 Gb/s, 70 ms"]
# Name: (ranks by axis, sequences of a micro-batch, links, the layout whose costs serve a rehearsal)
LAYOUTS = {
    "data 2": ({"data": 2}, 8, [*SPEEDS, "100 Mb/s, 20 ms", *LONG], None),
    "pipeline 2": ({"pipeline": 2}, 4, [*SPEEDS, *LONG], None),
    "data 4": ({"data": 4}, 8, SPEEDS, "data 2"),
    "pipeline 4": ({"pipeline": 4}, 4, SPEEDS, "pipeline 2"),
    "2 x 2": ({"pipeline": 2, "data": 2}, 4, SPEEDS, "pipeline 2"),
}
SUMS = {
    "bf16": sums(cast("immediate")),
    "int8": sums(integers(8, "immediate", scale="channel"), integers(8, "immediate", scale="token")),
    "int4": sums(integers(4, "immediate", scale="channel"), integers(4, "immediate", scale="token")),
}
BF16, INT8 = cast("none"), integers(8, "none", scale="token")  # of messages between stages
BOUNDARIES = {"plain": {}, "bf16": boundaries(BF16, BF16), "int8": boundaries(INT8, INT8)}
TENSOR = integers(8, "none", scale="tensor")
FIXED = {
    f"{between} between stages, {added} sums": {**BOUNDARIES[between], **SUMS[added]}
    for between in BOUNDARIES
    for added in SUMS
} | {
    "int8 between stages, plain sums": BOUNDARIES["int8"],
    "int8 a tensor, int8 a tensor": {**boundaries(TENSOR, TENSOR), **sums(integers(8, "immediate", scale="tensor"))},
    "int8 forward, bf16 backward, int4 sums": {**boundaries(INT8, BF16), **SUMS["int4"]},
}


def config(place, corpus, layout, link, compress, steps):
    parallel, micro, _, _ = LAYOUTS[layout]
    bytes_per_second, latency = LINKS[link]
    return {
        "run": {"dir": "unused", "steps": steps},
        "model": MODEL,
        "data": {"train": [{"path": str(corpus)}]},
        "batch": {"global": GLOBAL_BATCH, "micro": micro},
        "parallel": parallel,
        "optimizer": {"lr": 1e-3, "schedule": "constant", "warmup_steps": 20},
        "network": {"links": links_file(place, nodes=4, latency=latency, bytes_per_second=bytes_per_second)},
        "compress": compress,
    }


def distinct(classes):
    """Settings that make different plans of these classes, by name, plain among them: what a layout does not send
    makes none."""
    plans = {"plain": [{**one, "codec": None} for one in classes]}
    for name, sites in FIXED.items():
        plan = [{**one, "codec": sites.get(one["site"])} for one in classes]
        if plan not in plans.values():
            plans[name] = plan
    return plans


def choose_really(place, corpus, layout, link):
    job = config(place, corpus, layout, link, {"policy": "critical_path"}, CHOOSING_STEPS)
    run = place.train(job, ranks=2)
    plans = json.loads((run.directory / "plan.json").read_text())
    chosen = [plan for plan in plans if plan["predicted_step_seconds"] is not None][-1]
    return {
        "classes": plans[-1]["classes"],
        "predicted": chosen["predicted_step_seconds"],
        "guarded": chosen is not plans[-1],
        "costs": json.loads((run.directory / "costs.json").read_text()),
    }


def choose_by_plan(place, corpus, layout, link, costs):
    path = place.write("known-costs.json", {**costs, "links": []})
    planned = place.plan(config(place, corpus, layout, link, {"policy": "critical_path"}, CHOOSING_STEPS), path)
    return {"classes": planned["classes"], "predicted": planned["step_seconds"], "guarded": False}


def compare(place, corpus, layout, link, chosen, rounds, costs=None):
    plans = {**distinct(chosen["classes"]), "chosen": chosen["classes"]}
    job = config(place, corpus, layout, link, {}, 0)
    if costs is not None:
        job |= {"device": "rehearsal", "rehearsal": {"costs": place.write("known-costs.json", costs)}}
    turns = take_turns(place, job, (), plans, rounds, ranks=ranks_of(LAYOUTS[layout][0]))
    return {name: [one[name].seconds for one in turns] for name in plans}


def measure(place, corpus, kept, layout, link, rounds):
    origin = LAYOUTS[layout][3]
    if origin is None:
        chosen = choose_really(place, corpus, layout, link)
        seconds = compare(place, corpus, layout, link, chosen, rounds)
    else:
        costs = kept.read(origin, link)["chosen"]["costs"]
        chosen = choose_by_plan(place, corpus, layout, link, costs)
        seconds = compare(place, corpus, layout, link, chosen, rounds, costs)
    kept.write({"chosen": chosen, "seconds": seconds}, layout, link)


def choice(classes):
    names = [f"{codec_name(one['codec'])} {one['site']}" for one in classes]
    return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))


def print_result(layout, link, result):
    seconds = result["seconds"]
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    best = min((name for name in medians if name != "chosen"), key=medians.get)

    def against(name):
        low, middle, high = quartiles([one / own for one, own in zip(seconds[name], seconds["chosen"])])
        return f"{middle:.3f} ({low:.3f} .. {high:.3f})"

    predicted = result["chosen"]["predicted"]
    off = "the guard's" if result["chosen"]["guarded"] else percent(predicted / medians["chosen"] - 1)
    print_row(
        layout, link, f"{medians['plain']:.4f}", f"{medians['chosen']:.4f}", against("plain"),
        f"{best}: {against(best)}", off, choice(result["chosen"]["classes"]),
    )


def main():
    parser = parser_of_kept(__doc__)
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = KeptResults(arguments.out, arguments.corpus, rounds=arguments.rounds)
    if not arguments.table:
        require_binary()
        place = Workplace()
        with cores_awake():
            for layout in arguments.layouts:
                for link in LAYOUTS[layout][2]:
                    if not kept.has(layout, link):
                        measure(place, arguments.corpus.resolve(), kept, layout, link, arguments.rounds)
                        print(f"{layout}, {link}: done", file=sys.stderr, flush=True)
    print_header("layout", "link", "plain", "chosen", "plain / chosen", "best fixed / chosen", "predicted", "which is")
    for layout in arguments.layouts:
        for link in LAYOUTS[layout][2]:
            if result := kept.read(layout, link):
                print_result(layout, link, result)
    kept.print_commits()


if __name__ == "__main__":
    main()
