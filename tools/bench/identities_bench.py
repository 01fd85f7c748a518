#!/usr/bin/env python3
"""What Optimus-CC's techniques save, by formula and rehearsed.

1. Compressing the cool-down's backward messages, blocking transfers: (P - 1)(c - c'), and no more from all.
2. The tied table over 2 stages and D data ranks: V(3D - 2)/D bytes a rank become V(2D - 1)/D, one sum instead of two.
3. The smallest useful k of stages whose gradients are compressed: t_u - k(B + c) <= t_c; messages and gradients
   have links of their own.

Ops, codecs and links are given and round, so that a formula's terms can be read off the config.

usage: tools/bench/identities_bench.py
"""

from clusters import cluster, link
from codec_settings import cast, low_rank
from runs import Workplace, cores_awake, print_header, print_row, ranks_of, require_binary

FORWARD, BACKWARD = 0.012, 0.024
HIDDEN, SEQUENCE = 128, 64
MESSAGE = 4 * HIDDEN * SEQUENCE  # bytes between two stages
STEPS = 8
CAST = cast("none", always=True)
FREE = {"dtype": "fp32", "encode_seconds": 0.0, "decode_seconds": 0.0, "sent_bytes": 0}


def cost_file(stages, settings):
    ops = [
        {"stage": stage, "kind": kind, "seconds": seconds}
        for stage in range(stages)
        for kind, seconds in (("forward", FORWARD), ("backward", BACKWARD), ("optimizer", 0.0))
    ]
    return {"ops": ops, "codecs": [{"codec": one, "shape": [1 << 20], **FREE} for one in settings]}


def rehearse(place, parallel, micro_batches, speed, compress, settings=(), shared_by="node", **model):
    stages = parallel["pipeline"]
    shape = {"layers": stages, "hidden": HIDDEN, "heads": 4, "sequence": SEQUENCE, "vocab": 32, **model}
    links = cluster(64, 1, link("network", 0, speed, shared_by=shared_by))
    job = {
        "run": {"dir": "unused", "steps": STEPS},
        "device": "rehearsal",
        "rehearsal": {"costs": place.write("costs.json", cost_file(stages, settings))},
        "model": shape,
        "data": {"train": [{"path": "unused"}]},
        "batch": {"global": micro_batches * parallel.get("data", 1), "micro": 1},
        "parallel": parallel,
        "compress": {**compress, "guard": {"every": 0}},
        "network": {"links": place.write("cluster.json", links)},
    }
    run = place.train(job, ranks=ranks_of(parallel))
    run.planned_seconds = place.plan(job)["step_seconds"]
    return run


def epilogue(place):
    print("Cool-down's backward messages as bf16, blocking transfers\n")
    names = ("saved by the cool-down's: planned", "rehearsed", "saved by all: planned", "rehearsed")
    print_header("P", "m", "c", "(P - 1)(c - c')", *names)
    for stages, micro_batches, seconds in ((2, 8, 0.02), (4, 8, 0.01), (4, 16, 0.02), (8, 8, 0.008)):
        speed = MESSAGE / seconds
        parallel = {"pipeline": stages, "transfers": "blocking", "embedding_sync": "fused"}

        plain, *compressed = (
            rehearse(
                place, parallel, micro_batches, speed,
                {"policy": policy, "pipeline_backward": CAST}, [CAST], tie_embeddings=False,
            )
            for policy in ("none", "optimus_cc", "all")
        )
        saved = []
        for run in compressed:
            saved += [plain.planned_seconds - run.planned_seconds, plain.step_seconds() - run.step_seconds()]
        due = (stages - 1) * seconds / 2
        cells = (f"{1000 * one:.1f} ms" for one in (due, *saved))
        print_row(stages, micro_batches, f"{1000 * seconds:.0f} ms", *cells)
    print()


def embedding(place):
    print("The tied table, 2 stages\n")
    names = ("bytes a rank, separate", "V(3D - 2)/D", "fused", "V(2D - 1)/D", "saved", "V(D - 1)/D at link speed")
    print_header("D", *names)
    hidden, vocab, speed = 32, 8192, 2.5e6  # next to which the layers are small
    table = 4 * hidden * vocab
    for data in (2, 3, 4):
        runs = [
            rehearse(
                place, {"pipeline": 2, "data": data, "embedding_sync": sync}, 4, speed, {"policy": "none"},
                hidden=hidden, vocab=vocab,
            )
            for sync in ("separate", "fused")
        ]
        # Separate, the table's sums over data ranks stand on the data axis, beside the layers'.
        axes = [run.steps[-1]["axes"] for run in runs]
        layers = axes[1]["data"]["sent_bytes"]
        sent = [
            (axis["embedding"]["sent_bytes"] + axis["data"]["sent_bytes"] - layers) / (2 * data) for axis in axes
        ]
        print_row(
            data, f"{sent[0]:.0f}", f"{table * (3 * data - 2) / data:.0f}",
            f"{sent[1]:.0f}", f"{table * (2 * data - 1) / data:.0f}",
            f"{1000 * (runs[0].step_seconds() - runs[1].step_seconds()):.1f} ms",
            f"{1000 * table * (data - 1) / data / speed:.1f} ms",
        )
    print()


def smallest_k(place):
    print("Gradients as low_rank, 4 stages, 2 data ranks: how many stages have to be compressed\n")
    print_header("t_u", "t_c", "by the rule", "step at k = 0", *(f"k = {k}" for k in range(1, 5)))
    setting = low_rank(4, "none", always=True)
    gradients = 4 * 12 * HIDDEN * HIDDEN  # of a stage: one layer's matrices, all but its biases
    for late in (0.03, 0.06, 0.09):  # seconds that a stage's plain gradients take
        speed = gradients / late
        steps, sent = [], []
        for k in range(5):
            compress = {
                "policy": "optimus_cc", "stages": k, "data_gradient": setting, "pipeline_backward": CAST
            }
            run = rehearse(
                place, {"pipeline": 4, "data": 2}, 8, speed, compress, [setting, CAST], shared_by="pair",
                tie_embeddings=False,
            )
            steps.append(run.step_seconds())
            sent.append(run.median(lambda step: step["axes"]["data"]["sent_bytes"]))
        short = late * sent[4] / sent[0]
        message = MESSAGE / 2 / speed  # compressed
        rule = next((k for k in range(5) if late - k * (BACKWARD + message) <= short), 4)
        cells = (f"{1000 * step:.1f} ms" for step in steps)
        print_row(f"{1000 * late:.0f} ms", f"{1000 * short:.1f} ms", rule, *cells)
    print()


def main():
    require_binary()
    place = Workplace()
    with cores_awake():
        epilogue(place)
        embedding(place)
        smallest_k(place)


if __name__ == "__main__":
    main()
