#!/usr/bin/env python3
"""Two ranks over links of several speeds: does critical_path ever cost anything, and does it find the best?

Nodes are network namespaces (tools/bench/netlab): real compute, real TCP, shaped. For every rate and axis: steps
without compression, under each fixed setting, and under critical_path, which may choose among the same settings.
Runs of a rate take turns, ROUNDS times; a cell is the median over rounds of a run's median step, and
ratios are medians of the rounds' ratios. With --peer also PyTorch DDP on the data axis, plain and with its
PowerSGD hook, for the same model, batch and links, in the first round (tools/bench/ddp_peer.py says what it needs).

usage: tools/bench/do_no_harm_bench.py [--axis data|pipeline] [--rounds N] [--peer PYTHON] [RATE]...
       (rates: 10mbit 30mbit 100mbit 300mbit 1gbit none)
"""

import argparse
import json
import statistics

from runs import REPOSITORY, Workplace, cores_awake, percent, print_header, print_row, require_binary

NETLAB = str(REPOSITORY / "tools/bench/netlab")
PEER = str(REPOSITORY / "tools/bench/ddp_peer.py")
RATES = ["10mbit", "30mbit", "100mbit", "300mbit", "1gbit", "none"]
MODEL = {"layers": 4, "hidden": 192, "heads": 4, "sequence": 128, "vocab": 257}
GLOBAL_BATCH = 32
FIRST_STEP = 3  # of those that count
STEPS = 9
FIRST_PLANNED, PLANNED_STEPS = 11, 18  # a plan is in force from step 9, and 10 and 11 are traced
DOMINATES = 0.5  # share of a plain step that waits for the link


def feedback(setting, kind):
    return {**setting, "error_feedback": kind}


def low_rank(rank, kind):
    return feedback({"codec": "low_rank", "rank": rank}, kind)


BF16, INT8 = {"codec": "cast"}, {"codec": "quantize", "bits": 8}
# Settings by name: codec by site.
FIXED = {
    "data": {
        "bf16": {"data_gradient": feedback(BF16, "immediate")},
        "int8": {"data_gradient": feedback(INT8, "immediate")},
        **{f"low_rank {rank}": {"data_gradient": low_rank(rank, "immediate")} for rank in (4, 16, 64)},
        "top_k 1 %": {"data_gradient": feedback({"codec": "top_k", "ratio": 0.01}, "immediate")},
    },
    "pipeline": {
        "backward int8": {"pipeline_backward": feedback(INT8, "lazy")},
        "backward low_rank 8": {"pipeline_backward": low_rank(8, "lazy")},
        "both bf16": {"pipeline_forward": BF16, "pipeline_backward": feedback(BF16, "lazy")},
        "both int8": {"pipeline_forward": INT8, "pipeline_backward": feedback(INT8, "lazy")},
        "int8, low_rank 8": {"pipeline_forward": INT8, "pipeline_backward": low_rank(8, "lazy")},
    },
}


def candidates(axis):
    """All settings of FIXED, by site."""
    sites = {}
    for setting in FIXED[axis].values():
        for site, codec in setting.items():
            listed = sites.setdefault(site, {"candidates": []})["candidates"]
            if codec not in listed:
                listed.append(codec)
    return sites


def config(place, axis, policy, sites, transfers="asynchronous"):
    return {
        "run": {"dir": "unused", "steps": PLANNED_STEPS if policy == "critical_path" else STEPS},
        "model": MODEL,
        "data": {"train": [{"path": str(place.path / "corpus")}], "split": [1, 0, 0]},
        "batch": {"global": GLOBAL_BATCH, "micro": 16 if axis == "data" else 4},
        "parallel": {axis: 2, "transfers": transfers},
        "compress": {"policy": policy, **sites, "guard": {"every": 0}},
    }


class Measured:
    """A run's median step, what of it waited for the link, and its bytes."""

    def __init__(self, run, axis, first):
        steps = [step for step in run.steps if step["step"] >= first]
        self.seconds = statistics.median(step["step_seconds"] for step in steps)
        self.exposed = statistics.median(step["seconds"]["exposed"] for step in steps)
        self.bytes = statistics.median(
            sum(step["axes"][name]["sent_bytes"] for name in (axis, "embedding")) for step in steps
        )
        self.choice = choice(run.directory)


def codec_name(codec):
    if codec is None:
        return "plain"
    strength = next((codec[key] for key in ("rank", "bits", "ratio") if key in codec), "")
    return f"{codec['codec']} {strength}".strip()


def choice(directory):
    """Of the last plan: how many classes take which codec."""
    classes = json.loads((directory / "plan.json").read_text())[-1]["classes"]
    names = [codec_name(one["codec"]) for one in classes if one["site"] != "embedding"]
    return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))


def lab(rate):
    return [NETLAB, "--nodes", "2", "--rate", rate, "--"]


def runs_of(place, axis, rate, peer):
    """(name, function that measures) of all runs of a rate, in the order in which they take turns."""

    def measure(policy, sites, transfers="asynchronous"):
        run = place.train(config(place, axis, policy, sites, transfers), launch=lab(rate))
        return Measured(run, axis, FIRST_PLANNED if policy == "critical_path" else FIRST_STEP)

    yield "plain", lambda: measure("none", {})
    if axis == "pipeline":
        yield "plain, blocking", lambda: measure("none", {}, "blocking")
    for name, sites in FIXED[axis].items():
        yield name, lambda sites=sites: measure("all", sites)
    yield "critical_path", lambda: measure("critical_path", candidates(axis))
    if peer and axis == "data":
        for name, rank in (("DDP", 0), ("DDP, PowerSGD 4", 4), ("DDP, PowerSGD 16", 16)):
            yield name, lambda rank=rank: measure_peer(place, rate, peer, rank)


def measure_peer(place, rate, peer, rank):
    shape = {**MODEL, "batch": GLOBAL_BATCH // 2, "rank": rank, "steps": STEPS, "first": FIRST_STEP}
    out = place.path / "peer.json"
    place.launch([*lab(rate), peer, PEER, json.dumps(shape), str(out)])
    measured = json.loads(out.read_text())
    return argparse.Namespace(seconds=measured["step_seconds"])


def allowed(plain, planned):
    """The step that the byte ratio allows: waits for the link shrink with the bytes, nothing else does."""
    return plain.seconds - plain.exposed * (1 - planned.bytes / plain.bytes)


def print_rate(axis, rate, rounds):
    def ratio(of):
        return statistics.median(of(round_) for round_ in rounds)

    names = list(rounds[0])
    uncompressed = [name for name in names if name.startswith("plain")]
    others = [name for name in names if not name.startswith("DDP") and name != "critical_path"]
    peers = [name for name in names if name.startswith("DDP")]

    def against(group):
        compared = [r for r in rounds if group[0] in r]
        return statistics.median(
            min(r[name].seconds for name in group) / r["critical_path"].seconds for r in compared
        )

    waits = ratio(lambda r: r["plain"].exposed / r["plain"].seconds)
    bound = ratio(lambda r: allowed(r["plain"], r["critical_path"]) / r["critical_path"].seconds)
    print_row(
        axis, rate,
        *(f"{statistics.median(r[name].seconds for r in rounds if name in r):.4f}" for name in names),
        f"{against(uncompressed):.3f}", f"{against(others):.3f}",
        percent(waits), f"{bound:.2f}" if waits >= DOMINATES else "",
        *([f"{against(peers):.2f}"] if peers else []),
        rounds[-1]["critical_path"].choice,
    )
    fastest, slowest = (f(r["critical_path"].seconds for r in rounds) for f in (min, max))
    print(f"  critical_path from {fastest:.4f} to {slowest:.4f} s; best fixed: "
          + min(others, key=lambda name: ratio(lambda r: r[name].seconds)))


def main():
    parser = argparse.ArgumentParser(usage=__doc__[__doc__.index("usage: ") + len("usage: ") :])
    parser.add_argument("--axis", choices=FIXED)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer")
    parser.add_argument("rates", nargs="*", default=RATES)
    options = parser.parse_args()
    require_binary()
    place = Workplace()
    place.prepare_letters("corpus", 1 << 18)
    with cores_awake():
        for axis in [options.axis] if options.axis else FIXED:
            names = [name for name, _ in runs_of(place, axis, "none", options.peer)]
            ends = ["against plain", "against best fixed", "plain waits", "of allowed"]
            peer = ["against DDP"] if options.peer and axis == "data" else []
            print_header("axis", "rate", *names, *ends, *peer, "choice")
            for rate in options.rates:
                rounds = [
                    {name: measure() for name, measure in runs_of(place, axis, rate, peer)}
                    for peer in [options.peer, *[None] * (options.rounds - 1)]
                ]
                print_rate(axis, rate, rounds)
            print()


if __name__ == "__main__":
    main()
