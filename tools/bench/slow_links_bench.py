#!/usr/bin/env python3
"""Two ranks on two nodes over links of several speeds: what compression does to a step.

Nodes are network namespaces (tools/bench/netlab), so the links are real TCP, shaped. One row per rate,
axis and policy: seconds of a step, the seconds of it that ranks waited for transfers, bytes counted, and
bytes of the interfaces without headers.

usage: tools/bench/slow_links_bench.py [RATE]...     (default: 10mbit 100mbit 1gbit none)
"""

import json
import sys

from codec_settings import low_rank
from runs import Workplace, lab_launch, print_header, print_row, require_binary

STEPS = 6
HEADER_BYTES = 66  # Ethernet, IP and TCP of a packet

COMPRESSION = {
    "data": {"data_gradient": low_rank(8, "immediate")},
    "pipeline": {"pipeline_backward": low_rank(8, "lazy")},
}


def config(place, axis, policy):
    return {
        "run": {"dir": "unused", "steps": STEPS},
        "model": {"layers": 4, "hidden": 128, "heads": 4, "sequence": 64, "vocab": 257},
        "data": {"train": [{"path": str(place.path / "corpus")}], "split": [1, 0, 0]},
        "batch": {"global": 32, "micro": 4},
        "parallel": {axis: 2},
        "compress": {"policy": policy, **COMPRESSION[axis]},
    }


def on_the_wire(counters):
    nodes = json.loads(counters.read_text())["nodes"]
    return sum(node["sent_bytes"] - HEADER_BYTES * node["sent_packets"] for node in nodes)


def measure(place, rate, axis, policy):
    counters = place.path / "counters.json"
    run = place.train(config(place, axis, policy), launch=lab_launch(rate, counters=counters))
    counted = sum(axis["sent_bytes"] for step in run.steps for axis in step["axes"].values())
    wire = on_the_wire(counters)
    print_row(
        rate,
        axis,
        policy,
        f"{run.step_seconds():.4f} s",
        f"{run.median(lambda step: step['seconds']['exposed']):.4f} s",
        f"{counted / len(run.steps):.0f}",
        f"{100 * (wire / counted - 1):+.2f} %",
    )


def main():
    require_binary()
    place = Workplace()
    place.prepare_letters("corpus", 1 << 18)
    print_header("rate", "axis", "policy", "step", "exposed", "bytes a step", "interfaces")
    for rate in sys.argv[1:] or ["10mbit", "100mbit", "1gbit", "none"]:
        for axis in COMPRESSION:
            for policy in ("none", "all", "optimus_cc"):
                measure(place, rate, axis, policy)


if __name__ == "__main__":
    main()
