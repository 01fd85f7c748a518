#!/usr/bin/env python3
"""Data strategies ranked by `slackline plan`: the shapes of LLaMA-7B and 65B on 32 to 128 GPUs, eight to a node.

Every row is one plan, whose ranking has all strategies: predicted seconds of a step, each against ZeRO-3 of the same
row. GPUs are assumed (COMPUTE), links come from a cluster file. A layer has two matrices of 4 C^2 in its MLP, as many
elements as LLaMA's three. A strategy whose memory is more than a device has stands in brackets.

With --coded: the same plans with gradients that travel in bf16 or in 4 bits, and weights that passes gather in 8, as
ZeRO++ has them; what codecs take on the assumed GPUs is counted (tools/bench/assumed_gpus.py).
With --layouts: ZeRO-1 in layouts of several axes with collectives that go directly, as a flat ring, or through the nodes.
A ring sends (1 - 1/n) of a tensor through a node's adapter where hierarchical ways send (1 - 1/g), with n data ranks in
g nodes: it is planned as these over a network as many times slower, without its latencies. Those of 16 GPUs are rehearsed.
With --rehearse: a dozen of them rehearsed, messages really sent, their steps beside the predicted ones.
With --losses: a small model really trained by four processes in groups of two, each strategy's losses against ZeRO-3's.
With --memory: the largest peak of four processes beside what `plan` says, for every strategy; then with and without
ZeRO-3 under a limit in which no rank could hold the model.
With --lab RATE: eight processes on two "nodes" that a really shaped link joins (tools/bench/netlab), every strategy's
measured step beside what `plan` foresees from costs and links that a run of `replicate` measured there.

usage: tools/bench/strategies_bench.py [--coded | --layouts | --rehearse | --losses | --memory | --lab RATE...]
"""

import contextlib
import itertools
import json
import math
import subprocess
import sys

from assumed_gpus import seconds_of_codec
from codec_settings import cast, integers
from runs import (
    BINARY, REPOSITORY, Workplace, cores_awake, lab_launch, mpi_environment, print_header, print_row, require_binary,
)

COMPUTE = 140e12  # operations a second: 45 % of an A100's 312 in bf16
MEMORY = 1.5e12  # bytes a second
DEVICES = 8  # of a node
MODELS = {
    "7B": {"layers": 32, "hidden": 4096, "heads": 32},
    "65B": {"layers": 80, "hidden": 8192, "heads": 64},
}
SHAPE = {"sequence": 1024, "vocab": 32000, "tie_embeddings": False, "recompute": "block"}
CLUSTERS = ("a100_80g_tcp", "a100_200g")  # 80 and 200 Gb/s a node
MICRO_BATCH = 2
SHOWN = ("zero1", "zero2", "zero3", "III", "NIG", "ING", "IIG", "IGG", "GNG", "GIG")
# What is trained: all, two layers of 32, and less than a half per cent.
PARTS = {
    "7B": {"1": [], "1/16": ["h.30.*", "h.31.*"], "3/1000": ["h.31.attn.c_proj.weight"]},
    "65B": {"1": [], "1/16": ["h.7[5-9].*"], "3/1000": ["h.79.attn.c_attn.weight"]},
}
SHARES = {"1": 1.0, "1/16": 1 / 16, "3/1000": 3 / 1000}  # of layers' weight gradients that are made
BF16, BITS_4, BITS_8 = cast("none"), integers(4, "none"), integers(8, scale="group")
TRAVEL = {
    "fp32": {},
    "bf16": {"policy": "all", "data_gradient": BF16},
    "4 bits": {"policy": "all", "data_gradient": BITS_4},
    "4 bits, two shots": {"policy": "all", "data_gradient": {**BITS_4, "sum": "two_shot"}},
    "4 bits, weights 8": {"policy": "all", "data_gradient": BITS_4, "parameter_gather": BITS_8},
}
CODED = ("zero3", "zero2", "zero1", "III", "NIG", "IIG", "IGG", "GIG")
REHEARSED = 3  # steps
SLOWER = 4  # times that a rehearsal's time runs slower than its GPUs', so that two cores can follow
REHEARSAL_SCALE = 4096
LAYOUTS = ((1, 1), (2, 1), (1, 2), (2, 2))  # tensor, pipeline
STRATEGIES = ("replicate", "NNI", "zero1", "NII", "NIG", "zero2", "INI", "ING", "III", "IIG", "IGG", "GNG", "GIG", "zero3")
LAUNCH = ("mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-np", "4")
SMALL = {"layers": 4, "hidden": 128, "heads": 4, "sequence": 128, "vocab": 257}
LARGE = {"layers": 8, "hidden": 1024, "heads": 16, "sequence": 32, "vocab": 16384}
MIB = 1 << 20
LAB_STEPS = 10
APART = 0.05  # strategies whose predictions differ by as much have an order


def costs_of(model, part):
    """Seconds of a token in each part of a model; a layer's backward pass runs its forward pass again."""
    width = model["hidden"]
    layer = (24 * width * width + 2 * width * model["sequence"]) / COMPUTE
    head = 2 * width * model["vocab"] / COMPUTE
    kinds = {
        "embedding_forward": 2 * width / COMPUTE,
        "embedding_backward": 2 * width / COMPUTE,
        "layer_forward": layer,
        "layer_backward": (2 + SHARES[part]) * layer,
        "head_forward": 2 * width / COMPUTE,
        "head_backward": (3 if part == "1" else 2) * head,
        "element_update": 28 / MEMORY,
    }
    return {"ops": [{"stage": 0, "kind": kind, "seconds": seconds} for kind, seconds in kinds.items()]}


def job(place, name, gpus, micro_batches, part, cluster, strategy="zero3"):
    model = {**MODELS[name], **SHAPE, "trainable": PARTS[name][part]}
    return {
        "run": {"dir": "unused", "steps": REHEARSED},
        "device": "rehearsal",
        "precision": "bf16",
        "model": model,
        "data": {"train": [{"path": str(place.path / "corpus")}], "split": [1, 0, 0]},
        "batch": {"global": MICRO_BATCH * micro_batches * gpus, "micro": MICRO_BATCH},
        "parallel": {"data": gpus, "group": DEVICES, "data_strategy": strategy},
        "network": {"links": str(REPOSITORY / f"configs/clusters/{cluster}.json")},
        "rehearsal": {"costs": place.write("costs.json", costs_of(model, part)), "scale": REHEARSAL_SCALE},
    }


def ranking(place, *setting):
    """Of every strategy: its seconds, bytes and whether it fits, by name; and the first that fits."""
    rows = place.plan(job(place, *setting))["strategies"]
    first = next(row for row in rows if row["fits"])
    return {row["data_strategy"]: row for row in rows}, first


def ratio(row, zero3):
    text = f"{zero3['step_seconds'] / row['step_seconds']:.2f}"
    return text if row["fits"] else f"({text})"


def print_setting(place, cells, setting):
    rows, first = ranking(place, *setting)
    zero3 = rows["zero3"]
    print_row(
        *cells,
        f"{zero3['step_seconds']:.3f} s",
        *(ratio(rows[name], zero3) for name in SHOWN if name != "zero3"),
        f"{first['data_strategy']} {zero3['step_seconds'] / first['step_seconds']:.2f}",
    )


def header(*cells):
    print_header(*cells, "ZeRO-3", *(name for name in SHOWN if name != "zero3"), "auto")


def predict(place):
    for cluster in CLUSTERS:
        print(f"\n{cluster}, 4 micro-batches of {MICRO_BATCH} sequences a GPU; times as fast as ZeRO-3\n")
        header("model", "GPUs", "trained")
        for name, gpus in (("7B", 32), ("7B", 64), ("7B", 128), ("65B", 64), ("65B", 128)):
            for part in SHARES:
                print_setting(place, (name, gpus, part), (name, gpus, 4, part, cluster))
    print(f"\n{CLUSTERS[0]}, all trained, by micro-batches a step\n")
    header("model", "GPUs", "micro-batches")
    for name, gpus in (("7B", 32), ("65B", 64)):
        for micro_batches in (1, 2, 4, 8, 16):
            print_setting(place, (name, gpus, micro_batches), (name, gpus, micro_batches, "1", CLUSTERS[0]))
    print(f"\n{CLUSTERS[0]}, 7B, all trained, 4 micro-batches: tokens a second and GPU, against 16 GPUs\n")
    print_header("GPUs", "zero2", "zero3", "NIG", "IIG", "IGG")
    first = None
    for gpus in (16, 32, 64, 128):
        rows, _ = ranking(place, "7B", gpus, 4, "1", CLUSTERS[0])
        speeds = {name: 4 * MICRO_BATCH * SHAPE["sequence"] / rows[name]["step_seconds"]
                  for name in ("zero2", "zero3", "NIG", "IIG", "IGG")}
        first = first or speeds
        print_row(gpus, *(f"{speed:.0f} ({100 * speed / first[name]:.1f} %)" for name, speed in speeds.items()))


def coded_job(place, gpus, cluster, strategy, travel):
    setting = job(place, "7B", gpus, 4, "1", cluster, strategy)
    costs = costs_of({**MODELS["7B"], **SHAPE}, "1")
    costs["codecs"] = [seconds_of_codec(codec, 1) for codec in (BF16, BITS_4, BITS_8)]
    setting["rehearsal"]["costs"] = place.write("coded_costs.json", costs)
    return {**setting, "compress": TRAVEL[travel]}


def coded(place):
    for cluster in CLUSTERS:
        print(f"\n{cluster}, 7B, all trained, 4 micro-batches of {MICRO_BATCH} sequences a GPU; seconds of a step\n")
        print_header("GPUs", "gradients", *CODED)
        for gpus in (32, 128):
            for travel in TRAVEL:
                plans = [place.plan(coded_job(place, gpus, cluster, strategy, travel))
                         if "parameter_gather" not in TRAVEL[travel] or strategy in ("zero3", "III", "IIG", "IGG", "GIG")
                         else None for strategy in CODED]
                print_row(gpus, travel, *(f"{plan['step_seconds']:.3f}" if plan else "" for plan in plans))


def slower_network(place, cluster, times):
    """The cluster file with a network of so many times fewer bytes a second."""
    content = json.loads((REPOSITORY / f"configs/clusters/{cluster}.json").read_text())
    for link in content["links"]:
        if link["scope"] == "network":
            link["bytes_per_second"] /= times
    return place.write("slower.json", content)


def rehearsed_seconds(place, setting, ranks):
    """The median step of a job whose ops and links take SLOWER times as long, in seconds of its GPUs."""
    return place.train(place.slowed(setting, SLOWER), ranks=ranks).step_seconds() / SLOWER


def layout_jobs(place, gpus, layout, cluster):
    """ZeRO-1 on GPUs in (tensor, pipeline) and data ranks, whose groups are the nodes, by what carries its sums."""
    tensor, pipeline = layout
    group, groups = DEVICES // math.prod(layout), gpus // DEVICES
    setting = job(place, "7B", gpus // math.prod(layout), 4, "1", cluster, "zero1")
    setting["batch"] = {"global": 4 * MICRO_BATCH * gpus, "micro": MICRO_BATCH}
    setting["parallel"] |= {"tensor": tensor, "pipeline": pipeline, "group": group}

    def carried(collectives, links):
        return {**setting, "network": {"links": links, "collectives": collectives}}

    links = setting["network"]["links"]
    of_ring = (1 - 1 / (group * groups)) / (1 - 1 / groups)
    return (carried("direct", links), carried("hierarchical", slower_network(place, cluster, of_ring)),
            carried("hierarchical", links))


def layouts(place):
    for cluster in CLUSTERS:
        print(f"\n{cluster}, 7B, all trained, zero1, 4 micro-batches of {MICRO_BATCH} sequences a GPU; seconds of a step\n")
        print_header("GPUs", "tensor", "pipeline", "direct", "flat ring", "hierarchical", "faster than the ring by")
        for gpus, layout in itertools.product((16, 32, 64, 128), LAYOUTS):
            direct, ring, hierarchical = (place.plan(setting)["step_seconds"]
                                          for setting in layout_jobs(place, gpus, layout, cluster))
            print_row(gpus, *layout, *(f"{seconds:.3f}" for seconds in (direct, ring, hierarchical)),
                      f"{100 * (ring / hierarchical - 1):.1f} %")
    print(f"\n{CLUSTERS[0]}, 16 GPUs; seconds of a step\n")
    print_header("tensor", "pipeline", "collectives", "predicted", "rehearsed", "off by")
    for layout in LAYOUTS:
        direct, _, hierarchical = layout_jobs(place, 16, layout, CLUSTERS[0])
        for name, setting in (("direct", direct), ("hierarchical", hierarchical)):
            planned = place.plan(setting)["step_seconds"]
            took = rehearsed_seconds(place, setting, 16)
            print_row(*layout, name, f"{planned:.3f}", f"{took:.3f}", f"{100 * (planned / took - 1):.1f} %")


def rehearse(place):
    print_header("model", "GPUs", "trained", "strategy", "predicted", "rehearsed", "off by")
    for part in SHARES:
        for strategy in ("zero2", "zero3", "III", "IIG"):
            setting = job(place, "7B", 32, 4, part, CLUSTERS[0], strategy)
            planned = place.plan(setting)["step_seconds"]
            took = rehearsed_seconds(place, setting, 32)
            print_row("7B", 32, part, strategy, f"{planned:.3f} s", f"{took:.3f} s",
                      f"{100 * (planned / took - 1):.1f} %")


def trained(place, model, strategy, steps, batch):
    return {
        "run": {"dir": "unused", "steps": steps},
        "model": model,
        "data": {"train": [{"path": str(place.path / "corpus")}], "split": [1, 0, 0]},
        "batch": batch,
        "optimizer": {"lr": 1e-3, "warmup_steps": 20},
        "parallel": {"data": 4, "group": 2, "data_strategy": strategy},
    }


def losses(place):
    text = "".join(path.read_text() for path in sorted((REPOSITORY / "docs").glob("*.md")))
    place.prepare_text("docs", text)

    def run(strategy):
        job = trained(place, SMALL, strategy, 300, {"global": 16, "micro": 2})
        job["data"]["train"] = [{"path": str(place.path / "docs")}]
        return [step["loss"] for step in place.train(job, launch=LAUNCH).steps if "loss" in step]

    zero3 = run("zero3")
    print_header("strategy", "step 1", "step 100", "step 200", "step 300", "largest difference from ZeRO-3", "same bits")
    for strategy in ("NIG", "IGG", "IIG"):
        own = run(strategy)
        gaps = [abs(a - b) / b for a, b in zip(own, zero3)]
        print_row(strategy, *(f"{own[step - 1]:.6f}" for step in (1, 100, 200, 300)), f"{max(gaps):.1e}",
                  f"{sum(gap == 0 for gap in gaps)} of {len(gaps)}")
    print_row("ZeRO-3", *(f"{zero3[step - 1]:.6f}" for step in (1, 100, 200, 300)), "", "")


def peak_bytes(place, job, limit=None):
    """The largest peak of a run's processes; none where one of them has no memory left."""
    config = place.write("memory.json", {**job, "run": {**job["run"], "dir": str(place.path / "memory-run")}})
    report = place.path / "peaks"
    report.write_text("")
    # Each process says what its largest resident memory was.
    child = "import resource, subprocess, sys; done = subprocess.run(sys.argv[2:]).returncode; " \
            "peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss; " \
            "open(sys.argv[1], 'a').write(f'{peak}\\n'); sys.exit(done)"
    limited = ("prlimit", f"--data={limit}") if limit else ()
    command = [*LAUNCH, sys.executable, "-c", child, str(report), *limited, str(BINARY), "train", config]
    subprocess.run(["rm", "-rf", str(place.path / "memory-run")], check=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=mpi_environment())
    if done.returncode != 0:
        print(next((line for line in done.stderr.splitlines() if "memory" in line), done.stderr[-500:]))
        return None
    return 1024 * max(int(line) for line in report.read_text().split())


def memory(place):
    print_header("strategy", "planned", "largest peak", "off by")
    batch = {"global": 8, "micro": 1}
    for strategy in STRATEGIES:
        job = trained(place, LARGE, strategy, 4, batch)
        planned = place.plan(job)["memory_bytes"]
        peak = peak_bytes(place, job)
        print_row(strategy, f"{planned / MIB:.1f} MiB", f"{peak / MIB:.1f} MiB", f"{100 * (planned / peak - 1):.1f} %")
    whole = place.plan(trained(place, LARGE, "replicate", 4, batch))
    weights = next(item["bytes"] for item in whole["memory"] if item["name"] == "weights (fp32)")
    limit = int(3.5 * weights)  # less than the model's state, more than zero3 takes
    print(f"\nweights, gradients and moments of the model take {4 * weights / MIB:.0f} MiB; "
          f"each process has {limit / MIB:.0f} MiB of data\n")
    for strategy in ("replicate", "zero3"):
        peak = peak_bytes(place, trained(place, LARGE, strategy, 4, batch), limit)
        print(f"{strategy}: {'trains, peak ' + format(peak / MIB, '.0f') + ' MiB' if peak else 'out of memory'}")


def lab(place, rate):
    launch = lab_launch(rate, nodes=2, ranks_per_node=4)

    def job(strategy):
        config = trained(place, SMALL, strategy, LAB_STEPS, {"global": 64, "micro": 4})
        return {**config, "parallel": {"data": 8, "group": 4, "data_strategy": strategy}, "network": {"links": "probe"}}

    costs = place.train(job("replicate"), launch=launch).directory / "costs.json"
    measured = {"nodes": [{"count": 2, "devices": 4}], "links": json.loads(costs.read_text())["links"]}
    ranked = place.plan({**job("replicate"), "network": {}}, str(costs), place.write("lab.json", measured))["strategies"]
    predicted = {row["data_strategy"]: row["step_seconds"] for row in ranked}
    took = {strategy: place.train(job(strategy), launch=launch).step_seconds() for strategy in STRATEGIES}
    print(f"\n{rate}\n")
    print_header("strategy", "predicted", "measured", "off by")
    for strategy in sorted(STRATEGIES, key=predicted.get):
        off = 100 * (predicted[strategy] / took[strategy] - 1)
        print_row(strategy, f"{predicted[strategy]:.3f} s", f"{took[strategy]:.3f} s", f"{off:.1f} %")
    pairs = [pair for pair in itertools.permutations(STRATEGIES, 2)
             if predicted[pair[0]] * (1 + APART) <= predicted[pair[1]]]
    ordered = sum(took[fast] < took[slow] for fast, slow in pairs)
    first, best = min(STRATEGIES, key=predicted.get), min(STRATEGIES, key=took.get)
    print(f"\n{ordered} of {len(pairs)} pairs that are predicted {100 * APART:.0f} % apart stand in that order; "
          f"{first}, predicted to be the fastest, takes {took[first] / took[best]:.3f} times as long as {best}")


MODES = {"--coded": coded, "--layouts": layouts, "--rehearse": rehearse, "--losses": losses, "--memory": memory}


def main():
    require_binary()
    place = Workplace()
    place.prepare_letters("corpus", 1 << 16)
    if sys.argv[1:2] == ["--lab"]:
        for rate in sys.argv[2:]:
            lab(place, rate)
        return
    modes = [MODES[argument] for argument in sys.argv[1:]] or [predict]
    for mode in modes:
        with cores_awake() if mode in (layouts, rehearse) else contextlib.nullcontext():
            mode(place)


if __name__ == "__main__":
    main()
