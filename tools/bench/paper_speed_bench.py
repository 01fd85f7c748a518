#!/usr/bin/env python3
"""The speed of Optimus-CC's techniques on its own machines, predicted and rehearsed.

GPT 2.5B and 8.3B as TP8 x PP4 x DP4 on 16 nodes of 8 A100 behind one 200 Gb/s adapter each. A node is one rank
here: its eight tensor ranks send a boundary's shares, and reduce their shards, over the one adapter at the same
time, which is what one rank with the whole of both does. Ops take what ASSUMED_FLOPS say; messages and
links are scaled down together. Each step is predicted by `slackline plan` before it runs.

usage: tools/bench/paper_speed_bench.py [--model 2.5B|8.3B] [--predict] [--scaling]
       --predict: run nothing      --scaling: predictions from 8 to 128 GPUs instead
"""

import argparse

from runs import Workplace, cores_awake, percent, print_header, print_row, require_binary

MODELS = {
    "2.5B": {"layers": 52, "hidden": 1920, "heads": 20},
    "8.3B": {"layers": 72, "hidden": 3072, "heads": 24},
}
GPUS_OF_NODE = 8
ASSUMED_FLOPS = GPUS_OF_NODE * 62e12  # of a node: 40 % of the TF32 peak of 156 TFLOP/s
ASSUMED_MEMORY = GPUS_OF_NODE * 1.5e12  # bytes a second
ADAPTER = 2.5e10  # bytes a second of a node
SEQUENCE, VOCAB, MICRO, GLOBAL = 1024, 51200, 8, 512
PIPELINE, DATA = 4, 4
SCALE = 2000

BACKWARD = {"codec": "low_rank", "rank": 16, "error_feedback": "lazy", "always": True}
GRADIENTS = {"codec": "low_rank", "rank": 128, "error_feedback": "immediate", "always": True}


def epilogue(stages=0):
    return {"policy": "optimus_cc", "stages": stages, "pipeline_backward": BACKWARD, "data_gradient": GRADIENTS}


# Name: (compress section, embedding_sync)
ROWS = {
    "baseline": ({"policy": "none"}, "separate"),
    "PowerSGD, all stages": ({"policy": "all", "data_gradient": GRADIENTS}, "separate"),
    "CB": (epilogue(), "separate"),
    "CB+FE": (epilogue(), "fused"),
    **{f"CB+FE+SC, k = {k}": (epilogue(k), "fused") for k in range(1, 5)},
    "critical_path": (
        {"policy": "critical_path", "pipeline_backward": BACKWARD, "data_gradient": GRADIENTS},
        "fused",
    ),
}


def flops_of_layer(model):
    """Of one token: products of the forward pass, and causal attention."""
    width = model["hidden"]
    return 24 * width * width + 2 * width * SEQUENCE


def costs(model):
    """Costs of parts and of both codecs, from floating-point operations and memory traffic."""
    width = model["hidden"]
    layer = flops_of_layer(model) / ASSUMED_FLOPS
    head = 6 * width * VOCAB / ASSUMED_FLOPS
    ops = {
        "embedding_forward": 2 * width / ASSUMED_FLOPS,
        "embedding_backward": 2 * width / ASSUMED_FLOPS,
        "layer_forward": layer,
        "layer_backward": 2 * layer,
        "layer_backward_input": layer,
        "layer_backward_weight": layer,
        "head_forward": 2 * width / ASSUMED_FLOPS,
        "head_backward": head,
        "element_update": 28 / ASSUMED_MEMORY,
    }
    elements = 1 << 20
    codecs = [
        {
            "codec": setting,
            "shape": [elements],
            "dtype": "fp32",
            "encode_seconds": elements * (4 * setting["rank"] / ASSUMED_FLOPS + 12 / ASSUMED_MEMORY),
            "decode_seconds": elements * (2 * setting["rank"] / ASSUMED_FLOPS + 4 / ASSUMED_MEMORY),
            "sent_bytes": 0,
        }
        for setting in (BACKWARD, GRADIENTS)
    ]
    return {
        "ops": [{"stage": 0, "kind": kind, "seconds": seconds} for kind, seconds in ops.items()],
        "codecs": codecs,
    }


def cluster(nodes):
    link = {"latency_seconds": 5e-6, "bytes_per_second": ADAPTER, "shared_by": "node", "source": "published"}
    return {"nodes": [{"count": nodes, "devices": 1}], "links": [{"scope": "network", **link}]}


def config(place, model, row, transfers="asynchronous", data=DATA, steps=6):
    compress, embedding_sync = row
    return {
        "run": {"dir": "unused", "steps": steps},
        "device": "rehearsal",
        "rehearsal": {"costs": place.write("costs.json", costs(model)), "scale": SCALE},
        "model": {**model, "sequence": SEQUENCE, "vocab": VOCAB},
        "data": {"train": [{"path": "unused"}]},
        "batch": {"global": GLOBAL // DATA * data, "micro": MICRO},
        "parallel": {
            "pipeline": PIPELINE, "data": data, "transfers": transfers, "embedding_sync": embedding_sync
        },
        "compress": {**compress, "guard": {"every": 0}},
        "network": {"links": place.write("cluster.json", cluster(PIPELINE * data))},
    }


def speeds(place, name, predict):
    print(f"GPT {name}, TP8 x PP4 x DP4, {GLOBAL // DATA // MICRO} micro-batches of {MICRO}\n")
    print_header("row", "transfers", "predicted", "speed-up", "rehearsed", "speed-up", "off by")
    worst = 0.0
    for transfers in ("blocking", "asynchronous"):
        first = None
        for row, section in ROWS.items():
            job = config(place, MODELS[name], section, transfers)
            planned = place.plan(job)["step_seconds"]
            measured = None if predict else place.train(job, ranks=PIPELINE * DATA).step_seconds()
            first = first or (planned, measured)
            cells = ["", "", ""]
            if measured:
                worst = max(worst, planned / measured - 1, key=abs)
                cells = [f"{measured:.4f} s", percent(first[1] / measured - 1), percent(planned / measured - 1)]
            print_row(row, transfers, f"{planned:.4f} s", percent(first[0] / planned - 1), *cells)
    if not predict:
        print(f"\nlargest difference: {percent(worst)}")
    print()


def scaling(place, name):
    print(f"GPT {name}, TP8 x PP4, {GLOBAL // DATA} sequences a data rank, asynchronous transfers, predicted\n")
    names = ("baseline", "CB+FE", "CB+FE+SC, k = 3", "critical_path")
    print_header("GPUs", "data ranks", *names, "critical_path against baseline")
    for data in (1, 2, 4):
        steps = []
        for row in names:
            compress, embedding_sync = ROWS[row]
            if data == 1:  # no gradients travel
                compress = {key: value for key, value in compress.items() if key != "data_gradient"}
                compress = {**compress, "stages": 0} if compress["policy"] == "optimus_cc" else compress
            job = config(place, MODELS[name], (compress, embedding_sync), data=data)
            steps.append(place.plan(job)["step_seconds"])
        gpus = GPUS_OF_NODE * PIPELINE * data
        print_row(gpus, data, *(f"{step:.4f} s" for step in steps), percent(steps[0] / steps[-1] - 1))
    print()


def main():
    parser = argparse.ArgumentParser(usage=__doc__[__doc__.index("usage: ") + len("usage: ") :])
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--scaling", action="store_true")
    options = parser.parse_args()
    require_binary()
    place = Workplace()
    with cores_awake():
        for name in [options.model] if options.model else MODELS:
            scaling(place, name) if options.scaling else speeds(place, name, options.predict)


if __name__ == "__main__":
    main()
