#!/usr/bin/env python3
"""A run under critical_path whose network becomes another one notices and probes its links anew.

usage: drift_test.py SLACKLINE

Two ranks over network namespaces whose rate changes under them. Exits with 77 where rights for a lab are missing.
"""

import json
import os
import re
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[3] / "tools/bench"
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))
import network_lab  # noqa: E402
import runs  # noqa: E402

runs.BINARY = Path(sys.argv[1]).resolve()
import drift_bench  # noqa: E402

SKIPPED = 77
STEPS, CHANGE_AFTER = 200, 40
ATTEMPTS = 3
MODEL = {"layers": 2, "hidden": 64, "heads": 4, "sequence": 64, "vocab": 257}
# Speeds of the links, in bits a second.
FAST, SLOW = 10**10, 10 * 10**6
SLOW_AT_LEAST, SLOW_AT_MOST = 0.3 * SLOW, 3 * SLOW


def reasons_for_no_lab():
    reasons = network_lab.missing()
    if not reasons:
        try:
            network_lab.Lab(network_lab.own_name(), 1, FAST).make()
        except network_lab.Refusal as refusal:
            reasons.append(str(refusal))
        network_lab.remove(network_lab.own_name())
    return ", ".join(reasons)


def train():
    """The steps that drifted, the step after which the network changed, and the bits a second that the last plan was
    chosen by."""
    place = runs.Workplace()
    place.prepare_letters("corpus", 1 << 16)
    job = {**drift_bench.drift_config(place, STEPS), "model": MODEL}
    steps, _, said, changed = drift_bench.train(place, job, FAST, SLOW, CHANGE_AFTER)
    print(said)
    assert len(steps) == STEPS, len(steps)
    drifted = re.findall(r"step (\d+): steps have drifted .*; links and costs are measured anew", said)
    links = json.loads((place.path / f"drift-{FAST}" / "costs.json").read_text())["links"]
    speed = 8 * next(link["bytes_per_second"] for link in links if link["scope"] == "network")
    return drifted, changed, speed


def main():
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    reasons = reasons_for_no_lab()
    if reasons:
        print(f"SKIPPED: no lab was made, because {reasons}")
        return SKIPPED
    for _ in range(ATTEMPTS):
        drifted, changed, speed = train()
        # Another load of the machine can drift just before the network changes, which is then a part of what is usual.
        if not drifted or speed < SLOW_AT_MOST:
            break
    assert drifted and int(drifted[-1]) > changed, (drifted, changed)
    assert SLOW_AT_LEAST < speed < SLOW_AT_MOST, speed
    return 0


if __name__ == "__main__":
    sys.exit(main())
