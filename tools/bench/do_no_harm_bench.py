#!/usr/bin/env python3
"""Two ranks over links of several speeds: does critical_path ever cost anything, and does it find the best?

Nodes are network namespaces (tools/bench/netlab): real compute, real TCP, shaped. For every rate and axis one run
chooses a plan among all the settings below. A second run then replays plans in turns, a few steps each, for
ROUNDS rounds: no compression, each fixed setting everywhere, and what was chosen. So they meet the same machine,
whose compute varies by a tenth from run to run. Ratios are medians over rounds, with their quartiles. On the pipeline axis
blocking transfers without compression are a run of their own.

With --peer also PyTorch DDP on the data axis, plain and with its PowerSGD hook, for the same model, batch and
links (tools/bench/ddp_peer.py says what it needs), against the median of the chosen plan's steps.

With --rehearsed: larger meshes, 16 or 32 GPUs of configs/clusters, the rehearsals of flip_bench.py.

usage: tools/bench/do_no_harm_bench.py [--axis data|pipeline] [--rounds N] [--peer PYTHON] [RATE]...
       (rates: 10mbit 30mbit 100mbit 300mbit 1gbit none)
       tools/bench/do_no_harm_bench.py --rehearsed
"""

import argparse
import json
import statistics

from codec_settings import cast, codec_name, integers, low_rank, top_k
from flip_bench import CANDIDATES, MODEL as REHEARSED_MODEL, rehearsed
from runs import REPOSITORY, Workplace, cores_awake, lab_launch, percent, print_header, print_row, require_binary
from turns import quartiles, take_turns

PEER = str(REPOSITORY / "tools/bench/ddp_peer.py")
RATES = ["10mbit", "30mbit", "100mbit", "300mbit", "1gbit", "none"]
MODEL = {"layers": 4, "hidden": 192, "heads": 4, "sequence": 128, "vocab": 257}
GLOBAL_BATCH = 32
CHOOSING_STEPS = 12  # plans by measured steps are in force from steps 3 and 10
PEER_STEPS, PEER_FIRST = 12, 4
PEER_RANKS = (0, 4, 16)
DOMINATES = 0.5  # share of a plain step that waits for the link


# Settings by name: codec by site.
FIXED = {
    "data": {
        "bf16": {"data_gradient": cast("immediate")},
        "int8": {"data_gradient": integers(8, "immediate")},
        **{f"low_rank {rank}": {"data_gradient": low_rank(rank, "immediate")} for rank in (4, 16, 64)},
        "top_k 1 %": {"data_gradient": top_k(0.01, "immediate")},
    },
    "pipeline": {
        "backward int8": {"pipeline_backward": integers(8, "lazy")},
        "backward low_rank 8": {"pipeline_backward": low_rank(8, "lazy")},
        "both bf16": {"pipeline_forward": cast(), "pipeline_backward": cast("lazy")},
        "both int8": {"pipeline_forward": integers(8), "pipeline_backward": integers(8, "lazy")},
        "int8, low_rank 8": {"pipeline_forward": integers(8), "pipeline_backward": low_rank(8, "lazy")},
    },
}


# The same of rehearsals: the index of a site's candidate.
REHEARSED = {
    "backward bf16": {"pipeline_backward": 0},
    "backward low_rank 16": {"pipeline_backward": 2},
    "both int8": {"pipeline_forward": 1, "pipeline_backward": 1},
    "gradients low_rank 128": {"data_gradient": 0},
    "gradients low_rank 32": {"data_gradient": 1},
    "all strongest": {"pipeline_forward": 1, "pipeline_backward": 2, "data_gradient": 1},
}

# With so many GPUs of theirs.
REHEARSED_CLUSTERS = {"ethernet_10g": 16, "a100_80g_tcp": 32, "a100_200g": 32, "a100_800g_rdma": 32}


def candidates(axis):
    """All settings of FIXED, by site."""
    sites = {}
    for setting in FIXED[axis].values():
        for site, codec in setting.items():
            listed = sites.setdefault(site, {"candidates": []})["candidates"]
            if codec not in listed:
                listed.append(codec)
    return sites


def config(place, axis, compress, steps, transfers="asynchronous"):
    return {
        "run": {"dir": "unused", "steps": steps},
        "model": MODEL,
        "data": {"train": [{"path": str(place.path / "corpus")}], "split": [1, 0, 0]},
        "batch": {"global": GLOBAL_BATCH, "micro": 16 if axis == "data" else 4},
        "parallel": {axis: 2, "transfers": transfers},
        "compress": {**compress, "guard": {"every": 0}},
    }


def choice(classes):
    """How many classes take which codec."""
    names = [codec_name(one["codec"]) for one in classes if one["site"] != "embedding"]
    return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))


def choose(place, axis, rate):
    """The classes of the plan that critical_path makes."""
    compress = {"policy": "critical_path", **candidates(axis)}
    run = place.train(config(place, axis, compress, CHOOSING_STEPS), launch=lab_launch(rate))
    return json.loads((run.directory / "plan.json").read_text())[-1]["classes"]


def fixed(classes, sites):
    """The same classes with a site's codec for all its transfers."""
    return [{**one, "codec": sites.get(one["site"])} for one in classes]


def measure_peer(place, rate, peer, rank):
    shape = {**MODEL, "batch": GLOBAL_BATCH // 2, "rank": rank, "steps": PEER_STEPS, "first": PEER_FIRST}
    out = place.path / "peer.json"
    place.launch([*lab_launch(rate), peer, PEER, json.dumps(shape), str(out)])
    return json.loads(out.read_text())["step_seconds"]


def allowed(plain, planned):
    """The step that the byte ratio allows: waits for the link shrink with the bytes, nothing else does."""
    return plain.seconds - plain.exposed * (1 - planned.bytes / plain.bytes)


def print_rate(place, axis, rate, options):
    classes = choose(place, axis, rate)
    plans = {"plain": fixed(classes, {})}
    plans |= {name: fixed(classes, sites) for name, sites in FIXED[axis].items()}
    plans["chosen"] = classes
    rounds = take_turns(place, config(place, axis, {}, 0), lab_launch(rate), plans, options.rounds)
    medians = {name: statistics.median(r[name].seconds for r in rounds) for name in plans}
    best = min((name for name in plans if name != "chosen"), key=medians.get)

    def against(name):
        low, middle, high = quartiles([r[name].seconds / r["chosen"].seconds for r in rounds])
        return f"{middle:.3f} ({low:.3f} .. {high:.3f})"

    waits = statistics.median(r["plain"].exposed / r["plain"].seconds for r in rounds)
    bound = statistics.median(allowed(r["plain"], r["chosen"]) / r["chosen"].seconds for r in rounds)
    others = []
    if axis == "pipeline":
        compress = {"policy": "none"}
        blocking = place.train(config(place, axis, compress, CHOOSING_STEPS, "blocking"), launch=lab_launch(rate))
        others = [blocking.step_seconds()]
    elif options.peer:
        others = [measure_peer(place, rate, options.peer, rank) for rank in PEER_RANKS]
    print_row(
        axis, rate, *(f"{seconds:.4f}" for seconds in medians.values()), choice(classes),
        against("plain"), f"{best}: {against(best)}", percent(waits),
        f"{bound:.2f}" if waits >= DOMINATES else "", *(f"{seconds:.4f}" for seconds in others),
    )


def print_rehearsed(place, cluster, parallel):
    links = str(REPOSITORY / f"configs/clusters/{cluster}.json")

    def step(compress, **more):
        job = rehearsed(place, REHEARSED_MODEL, {**parallel, **more}, links, compress)
        return place.train(job, ranks=parallel["pipeline"] * parallel["data"])

    chosen = step({"policy": "critical_path", **{site: {"candidates": one} for site, one in CANDIDATES.items()}})
    plain = {"plain": step({"policy": "none"}), "blocking": step({"policy": "none"}, transfers="blocking")}
    settings = {
        name: step({"policy": "all", **{site: CANDIDATES[site][i] for site, i in sites.items()}})
        for name, sites in REHEARSED.items()
    }
    seconds = {name: run.step_seconds() for name, run in (plain | settings).items()}
    uncompressed = min(seconds[name] for name in plain)
    best = min(seconds, key=seconds.get)
    classes = json.loads((chosen.directory / "plan.json").read_text())[-1]["classes"]
    print_row(
        cluster, f"{parallel['pipeline']} x {parallel['data']}", *(f"{one:.4f}" for one in seconds.values()),
        f"{chosen.step_seconds():.4f}", choice(classes), f"{uncompressed / chosen.step_seconds():.3f}",
        f"{best}: {seconds[best] / chosen.step_seconds():.3f}",
    )


def rehearse(place):
    names = ("stages x data", "plain", "plain, blocking", *REHEARSED)
    print_header("cluster", *names, "chosen", "choice", "best plain / chosen", "best of all / chosen")
    for cluster, gpus in REHEARSED_CLUSTERS.items():
        for pipeline in (8, 4):
            print_rehearsed(place, cluster, {"pipeline": pipeline, "data": gpus // pipeline})


def main():
    parser = argparse.ArgumentParser(usage=__doc__[__doc__.index("usage: ") + len("usage: ") :])
    parser.add_argument("--axis", choices=FIXED)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--peer")
    parser.add_argument("--rehearsed", action="store_true")
    parser.add_argument("rates", nargs="*", default=RATES)
    options = parser.parse_args()
    require_binary()
    place = Workplace()
    place.prepare_letters("corpus", 1 << 18)
    if options.rehearsed:
        with cores_awake():
            rehearse(place)
        return
    with cores_awake():
        for axis in [options.axis] if options.axis else FIXED:
            others = ["plain, blocking"] if axis == "pipeline" else []
            if options.peer and axis == "data":
                others = [f"DDP, PowerSGD {rank}" if rank else "DDP" for rank in PEER_RANKS]
            print_header(
                "axis", "rate", "plain", *FIXED[axis], "chosen", "choice", "plain / chosen", "best fixed / chosen",
                "plain waits", "of allowed", *others,
            )
            for rate in options.rates:
                print_rate(place, axis, rate, options)
            print()


if __name__ == "__main__":
    main()
