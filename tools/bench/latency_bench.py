#!/usr/bin/env python3
"""Predicted steps against rehearsed ones over links with long latencies.

A GPT of 6.3 million parameters (25 MB of gradients) on two or four nodes of one rank each. `slackline plan` predicts
each layout's step over each link, then a rehearsal runs it: messages are real and travel over emulated links, ops and
codecs take the same seconds in both. The goal is 10 %.

usage: tools/bench/latency_bench.py [BINARY [LINK]...]     (LINK: the place of one in LINKS; default: all)
"""

import pathlib
import statistics
import sys

import runs
from clusters import OF_PAIRS, cluster, link
from codec_settings import integers, low_rank
from runs import Workplace, cores_awake, layout_name, percent, print_header, print_row, ranks_of, require_binary

MODEL = {"layers": 8, "hidden": 256, "heads": 8, "sequence": 128, "vocab": 257}
STEPS = 4
GOAL = 0.10
# Megabits a second, milliseconds.
LINKS = ((100, 0.1), (100, 20), (100, 70), (1000, 0.1), (1000, 20), (1000, 40))
# Seconds of one token in one part, as one core of a small machine takes.
OPS = {"layer_forward": 2e-6, "layer_backward": 4e-6, "embedding_forward": 1e-7, "embedding_backward": 1e-7,
       "head_forward": 1e-7, "head_backward": 6e-7, "element_update": 2e-9}
LOW_RANK = low_rank(32, "immediate")
INT8 = integers(8, "immediate")
# Encoding and decoding a million elements.
CODECS = ((LOW_RANK, 4e-3, 1e-3), (INT8, 2e-3, 2e-3))
LAYOUTS = (
    ({"data": 2}, None),
    ({"data": 2}, LOW_RANK),
    ({"data": 2}, INT8),
    ({"data": 2, "data_strategy": "zero1"}, None),
    ({"data": 4}, None),
    ({"data": 4}, LOW_RANK),
    ({"pipeline": 2, "data": 2}, None),
)


def cost_file(place):
    codecs = [
        {"codec": codec, "shape": [1 << 20], "dtype": "fp32", "encode_seconds": encode, "decode_seconds": decode,
         "sent_bytes": 1 << 18}
        for codec, encode, decode in CODECS
    ]
    ops = [{"stage": 0, "kind": kind, "seconds": seconds} for kind, seconds in OPS.items()]
    return place.write("costs.json", {"ops": ops, "codecs": codecs})


def links_file(place, megabits, milliseconds):
    links = (link(scope, 1e-3 * milliseconds, 1e6 * megabits / 8, **OF_PAIRS) for scope in ("node", "network"))
    return place.write(f"links-{megabits}-{milliseconds}.json", cluster(4, 1, *links))


def job(costs, links, parallel, gradient):
    compress = {"policy": "all", "data_gradient": gradient, "guard": None} if gradient else {"policy": "none"}
    return {
        "run": {"dir": "unused", "steps": STEPS},
        "device": "rehearsal",
        "rehearsal": {"costs": costs},
        "model": MODEL,
        "data": {"train": [{"path": "unused"}]},
        "batch": {"global": 32, "micro": 4},
        "parallel": parallel,
        "compress": compress,
        "network": {"links": links},
    }


def name_of(parallel, gradient):
    return f"{layout_name(parallel)}, {gradient['codec'] if gradient else 'plain'}"


def main():
    if "--help" in sys.argv:
        sys.exit(__doc__)
    if len(sys.argv) > 1:
        runs.BINARY = pathlib.Path(sys.argv[1]).resolve()
    require_binary()
    place = Workplace()
    costs = cost_file(place)
    off = []
    print_header("link", "layout, gradients", "predicted", "rehearsed", "off by")
    with cores_awake():
        for megabits, milliseconds in [LINKS[int(i)] for i in sys.argv[2:]] or LINKS:
            links = links_file(place, megabits, milliseconds)
            for parallel, gradient in LAYOUTS:
                config = job(costs, links, parallel, gradient)
                planned = place.plan(config)["step_seconds"]
                run = place.train(config, ranks=ranks_of(parallel))
                rehearsed = run.step_seconds()
                off.append(abs(planned / rehearsed - 1))
                print_row(f"{megabits} Mb/s, {milliseconds} ms", name_of(parallel, gradient), f"{planned:.3f} s",
                          f"{rehearsed:.3f} s", percent(planned / rehearsed - 1))
    print(f"\n{sum(one <= GOAL for one in off)} of {len(off)} within {percent(GOAL)}; median {percent(statistics.median(off))}, "
          f"largest {percent(max(off))}")


if __name__ == "__main__":
    main()
