#!/usr/bin/env python3
"""Is what critical_path picks the critical path? Every class of its plan flipped, one at a time, and run again.

Rehearsed: a GPT over 16 GPUs on each of the clusters in configs/clusters, and on two nodes with one slow boundary and
gradients that stay inside the nodes. A class that travels plain is flipped to its strongest candidate, one that is
compressed to plain; no flip should shorten the step by more than 2 %. Beside it policy `all` with the
strongest candidates: its step, and its bytes, of which the plan should compress strictly fewer at equal speed.

With --real the same with real compute and real TCP: 2 stages on a node each of a network lab (tools/bench/netlab), two
data ranks inside each, 100 Mb/s between them. All plans take turns within one run; gains are medians over rounds,
with their quartiles. The plan it flips is chosen by a run under critical_path.

usage: tools/bench/flip_bench.py [CLUSTER]...     (default: all)
       tools/bench/flip_bench.py --real
"""

import json
import statistics
import sys

import clusters
from assumed_gpus import cost_file
from codec_settings import cast, integers, low_rank
from runs import REPOSITORY, Workplace, cores_awake, lab_launch, percent, print_header, print_row, require_binary
from turns import quartiles, take_turns

MODEL = {"layers": 24, "hidden": 1024, "heads": 16, "sequence": 1024, "vocab": 51200}
MICRO, MICRO_BATCHES = 8, 8
SCALE = 500
STEPS = 8

BF16, INT8 = cast("none"), integers(8, "none")
# From the weakest to the strongest.
CANDIDATES = {
    "pipeline_forward": [BF16, INT8],
    "pipeline_backward": [BF16, INT8, low_rank(16, "lazy")],
    "data_gradient": [low_rank(128, "immediate"), low_rank(32, "immediate")],
}
# Name: (cluster file, pipeline, data)
CLUSTERS = {
    **{
        name: (f"configs/clusters/{name}.json", pipeline, data)
        for name, pipeline, data in (
            ("a100_200g", 4, 4), ("a100_800g_rdma", 4, 4), ("a100_80g_tcp", 4, 4), ("h200_400g", 8, 2),
            ("ethernet_10g", 4, 4),
        )
    },
    "one slow boundary": (None, 4, 2),
}
SLOW_BOUNDARY = clusters.cluster(2, 4, clusters.link("node", 5e-6, 5e10), clusters.link("network", 2e-5, 1.25e9))


LAB = lab_launch("100mbit", ranks_per_node=2)
LAB_MODEL = {"layers": 4, "hidden": 192, "heads": 4, "sequence": 128, "vocab": 257}
LAB_STEPS = 12  # plans by measured steps are in force from steps 3 and 10
LAB_ROUNDS = 9


def rehearsed(place, model, parallel, links, compress):
    """A config of steps on assumed GPUs that know all candidates."""
    settings = [setting for listed in CANDIDATES.values() for setting in listed]
    unique = [one for i, one in enumerate(settings) if one not in settings[:i]]
    return {
        "run": {"dir": "unused", "steps": STEPS},
        "device": "rehearsal",
        "rehearsal": {"costs": place.write("costs.json", cost_file(model, unique)), "scale": SCALE},
        "model": model,
        "data": {"train": [{"path": "unused"}]},
        "batch": {"global": MICRO * MICRO_BATCHES * parallel.get("data", 1), "micro": MICRO},
        "parallel": parallel,
        "compress": {**compress, "guard": {"every": 0}},
        "network": {"links": links},
    }


def run(place, cluster, compress):
    path, pipeline, data = CLUSTERS[cluster]
    links = str(REPOSITORY / path) if path else place.write("cluster.json", SLOW_BOUNDARY)
    parallel = {"pipeline": pipeline, "data": data}
    return place.train(rehearsed(place, MODEL, parallel, links, compress), ranks=pipeline * data)


def compressed_bytes(classes):
    """What the compressed classes would send plain."""
    return sum(one["raw_bytes"] for one in classes if one["codec"])


def flipped(classes, index):
    copy = [dict(one) for one in classes]
    candidates = CANDIDATES[copy[index]["site"]]
    copy[index]["codec"] = None if copy[index]["codec"] else candidates[-1]
    return copy


def replay(place, cluster, classes):
    plan = [{"from_step": 1, "predicted_step_seconds": None, "classes": classes}]
    return run(place, cluster, {"policy": "replay", "plan": place.write("plan.json", plan)})


def name_of(one):
    return f"{one['site']} {one['stage']} {one['phase']} {'to plain' if one['codec'] else 'compressed'}"


def flip_all(place, cluster):
    sites = {site: {"candidates": listed} for site, listed in CANDIDATES.items()}
    planned = run(place, cluster, {"policy": "critical_path", **sites})
    strongest = {site: listed[-1] for site, listed in CANDIDATES.items()}
    everything = run(place, cluster, {"policy": "all", **strongest})
    plain = run(place, cluster, {"policy": "none"})
    classes, all_classes = (
        json.loads((one.directory / "plan.json").read_text())[-1]["classes"] for one in (planned, everything)
    )
    best, best_name = None, "none"
    flips = 0
    for index, one in enumerate(classes):
        if one["site"] not in CANDIDATES:
            continue
        flips += 1
        gain = planned.step_seconds() / replay(place, cluster, flipped(classes, index)).step_seconds() - 1
        if best is None or gain > best:
            best, best_name = gain, name_of(one)
    print_row(
        cluster, f"{plain.step_seconds():.4f} s", f"{everything.step_seconds():.4f} s",
        f"{planned.step_seconds():.4f} s", f"{compressed_bytes(classes) / 1e9:.2f} GB",
        f"{compressed_bytes(all_classes) / 1e9:.2f} GB", flips, percent(best), best_name,
    )


def flip_all_in_lab(place):
    place.prepare_letters("corpus", 1 << 18)
    sites = {site: {"candidates": listed} for site, listed in CANDIDATES.items()}
    job = {
        "run": {"dir": "unused", "steps": LAB_STEPS},
        "model": LAB_MODEL,
        "data": {"train": [{"path": str(place.path / "corpus")}], "split": [1, 0, 0]},
        "batch": {"global": 32, "micro": 2},
        "parallel": {"pipeline": 2, "data": 2},
        "compress": {"policy": "critical_path", **sites, "guard": {"every": 0}},
    }
    planned = place.train(job, launch=LAB)
    classes = json.loads((planned.directory / "plan.json").read_text())[-1]["classes"]
    strongest = {site: listed[-1] for site, listed in CANDIDATES.items()}
    plans = {
        "plain": [{**one, "codec": None} for one in classes],
        "all": [{**one, "codec": strongest.get(one["site"])} for one in classes],
        "critical_path": classes,
    }
    flips = {
        name_of(one): flipped(classes, index) for index, one in enumerate(classes) if one["site"] in CANDIDATES
    }
    rounds = take_turns(place, job, LAB, plans | flips, LAB_ROUNDS)
    print_header("plan", "step", "gains on critical_path", "compressed bytes")
    for name, plan in (plans | flips).items():
        low, middle, high = quartiles([r["critical_path"].seconds / r[name].seconds - 1 for r in rounds])
        print_row(
            name, f"{statistics.median(r[name].seconds for r in rounds):.4f} s",
            f"{percent(middle)} ({percent(low)} .. {percent(high)})", f"{compressed_bytes(plan) / 1e6:.2f} MB",
        )


def main():
    require_binary()
    place = Workplace()
    if sys.argv[1:] == ["--real"]:
        with cores_awake():
            flip_all_in_lab(place)
        return
    names = sys.argv[1:] or list(CLUSTERS)
    print_header("cluster", "plain", "all", "critical_path", "it compresses", "all compresses", "flips", "best flip", "of")
    with cores_awake():
        for cluster in names:
            flip_all(place, cluster)


if __name__ == "__main__":
    main()
