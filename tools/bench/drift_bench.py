#!/usr/bin/env python3
"""What a run under critical_path does when its network becomes another one.

Two data ranks over a network lab (tools/bench/netlab): real compute, real TCP. Once the plan has been in force for a
while the links' rate changes under the run. It should notice, probe its links, measure, and plan anew; the table has
the medians of steps before the change, between change and new plan, and after that.

usage: tools/bench/drift_bench.py
"""

import json
import os
import statistics
import subprocess
import time

import network_lab
from do_no_harm_bench import candidates, config
from runs import BINARY, Workplace, cores_awake, print_header, print_row, read_metrics, require_binary

STEPS = 120
CHANGE_AFTER = 40
# So many steps in which the run says nothing: by then it knows what they take (DriftWatch), and measures nothing.
QUIET = 20
CHANGES = [("10gbit", 10**10, "30mbit", 30 * 10**6), ("30mbit", 30 * 10**6, "10gbit", 10**10)]


def drift_config(place, steps):
    return config(place, "data", {"policy": "critical_path", **candidates("data")}, steps)


def train(place, job, first, then, change_after):
    """Rates in bits a second; the rate changes after `change_after` steps or, where a noisy machine has the run measure
    anew, later. Returns the steps, the plans, what rank 0 said, and the step after which the rate changed."""
    directory = place.path / f"drift-{first}"
    job = {**job, "run": {**job["run"], "dir": str(directory)}}
    network_lab.remove_leftovers()
    lab = network_lab.Lab(network_lab.own_name(), 2, first)
    try:
        lab.make()
        command = [str(BINARY), "train", place.write("drift.json", job)]
        words = place.path / "words"
        with open(words, "w", encoding="utf-8") as file:
            process = lab.start_ranks(1, command, stdout=subprocess.DEVNULL, stderr=file)
        changed = said_at = said_bytes = 0
        while process.poll() is None and changed < max(change_after, said_at + QUIET):
            time.sleep(0.02)
            changed = len(read_metrics(directory))
            if words.stat().st_size != said_bytes:
                said_bytes, said_at = words.stat().st_size, changed
        lab.change_rate(then)
        process.wait()
        said = words.read_text(encoding="utf-8")
    finally:
        network_lab.remove(lab.name)
    assert process.returncode == 0, said
    return read_metrics(directory), json.loads((directory / "plan.json").read_text()), said, changed


def codecs_of(plan):
    codecs = [one["codec"] for one in plan["classes"] if one["site"] == "data_gradient"]
    return ", ".join(json.dumps(codec) if codec else "plain" for codec in codecs)


def median(steps):
    return f"{statistics.median(step['step_seconds'] for step in steps):.4f} s" if steps else ""


def main():
    require_binary()
    place = Workplace()
    place.prepare_letters("corpus", 1 << 18)
    print_header("rate", "then", "before", "changed after step", "until the new plan", "from step", "after", "plans")
    said = []
    with cores_awake():
        for name, rate, next_name, next_rate in CHANGES:
            steps, plans, words, changed = train(
                place, drift_config(place, STEPS), rate, next_rate, CHANGE_AFTER
            )
            said.append(words)
            new = [plan for plan in plans if plan["from_step"] > changed]
            begin = new[0]["from_step"] if new else STEPS + 1
            print_row(
                name, next_name, median(steps[10:changed - 2]), changed, median(steps[changed + 1:begin - 1]),
                begin if new else "none", median(steps[begin:]), "; ".join(codecs_of(plan) for plan in plans),
            )
    print()
    for words in said:
        print("\n".join(line for line in words.splitlines() if "critical_path" in line or "drift" in line or "probed" in line))
        print()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    main()
