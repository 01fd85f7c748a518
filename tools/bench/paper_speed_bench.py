#!/usr/bin/env python3
"""The speed of Optimus-CC's techniques on its own machines, predicted and rehearsed.

GPT 2.5B and 8.3B as TP8 x PP4 x DP4 on 16 nodes of 8 A100 behind one 200 Gb/s adapter each. A node is one rank
here: its eight tensor ranks send a boundary's shares, and reduce their shards, over the one adapter at the same
time, which is what one rank with the whole of both does. Ops take what assumed_gpus.py says; messages and
links are scaled down together. Each step is predicted by `slackline plan` before it runs. Speed-ups are over the
baseline of the paper, those of critical_path over the same with the fused embedding sync, which costs no loss and is
the default here.

usage: tools/bench/paper_speed_bench.py [--model 2.5B|8.3B] [--predict] [--scaling]
       --predict: run nothing      --scaling: predictions from 8 to 128 GPUs instead
"""

import argparse

from assumed_gpus import cost_file
from clusters import cluster, link
from codec_settings import low_rank
from runs import Workplace, cores_awake, percent, print_header, print_row, require_binary

MODELS = {
    "2.5B": {"layers": 52, "hidden": 1920, "heads": 20},
    "8.3B": {"layers": 72, "hidden": 3072, "heads": 24},
}
GPUS_OF_NODE = 8
ADAPTER = 2.5e10  # bytes a second of a node
SEQUENCE, VOCAB, MICRO, GLOBAL = 1024, 51200, 8, 512
PIPELINE, DATA = 4, 4
SCALE = 2000

BACKWARD = low_rank(16, "lazy", always=True)
GRADIENTS = low_rank(128, "immediate", always=True)


def epilogue(stages=0):
    return {"policy": "optimus_cc", "stages": stages, "pipeline_backward": BACKWARD, "data_gradient": GRADIENTS}


# Name: (compress section, embedding_sync)
ROWS = {
    "baseline": ({"policy": "none"}, "separate"),
    "baseline, fused": ({"policy": "none"}, "fused"),
    "PowerSGD, all stages": ({"policy": "all", "data_gradient": GRADIENTS}, "separate"),
    "CB": (epilogue(), "separate"),
    "CB+FE": (epilogue(), "fused"),
    **{f"CB+FE+SC, k = {k}": (epilogue(k), "fused") for k in range(1, 5)},
    "critical_path": (
        {"policy": "critical_path", "pipeline_backward": BACKWARD, "data_gradient": GRADIENTS},
        "fused",
    ),
}


REFERENCES = {"critical_path": "baseline, fused"}  # what a row's speed-up counts from, if not the baseline


def config(place, model, row, transfers="asynchronous", pipeline=PIPELINE, data=DATA, steps=6):
    compress, embedding_sync = row
    model = {**model, "sequence": SEQUENCE, "vocab": VOCAB}
    costs = cost_file(model, (BACKWARD, GRADIENTS), gpus=GPUS_OF_NODE)
    adapter = link("network", 5e-6, ADAPTER, shared_by="node", source="published")
    return {
        "run": {"dir": "unused", "steps": steps},
        "device": "rehearsal",
        "rehearsal": {"costs": place.write("costs.json", costs), "scale": SCALE},
        "model": model,
        "data": {"train": [{"path": "unused"}]},
        "batch": {"global": GLOBAL // DATA * data, "micro": MICRO},
        "parallel": {
            "pipeline": pipeline, "data": data, "transfers": transfers, "embedding_sync": embedding_sync
        },
        "compress": {**compress, "guard": {"every": 0}},
        "network": {"links": place.write("cluster.json", cluster(pipeline * data, 1, adapter))},
    }


def speeds(place, name, predict):
    print(f"GPT {name}, TP8 x PP4 x DP4, {GLOBAL // DATA // MICRO} micro-batches of {MICRO}\n")
    print_header("row", "transfers", "predicted", "speed-up", "rehearsed", "speed-up", "off by")
    worst = 0.0
    for transfers in ("blocking", "asynchronous"):
        steps = {}
        for row, section in ROWS.items():
            job = config(place, MODELS[name], section, transfers)
            planned = place.plan(job)["step_seconds"]
            measured = None if predict else place.train(job, ranks=PIPELINE * DATA).step_seconds()
            steps[row] = (planned, measured)
            first = steps[REFERENCES.get(row, "baseline")]
            cells = ["", "", ""]
            if measured:
                worst = max(worst, planned / measured - 1, key=abs)
                cells = [f"{measured:.4f} s", percent(first[1] / measured - 1), percent(planned / measured - 1)]
            print_row(row, transfers, f"{planned:.4f} s", percent(first[0] / planned - 1), *cells)
    if not predict:
        print(f"\nlargest difference: {percent(worst)}")
    print()


def without_unused(row, pipeline, data):
    """The row's section without sites that have no transfers on so few ranks."""
    compress, embedding_sync = row
    unused = [site for site, ranks in (("pipeline_backward", pipeline), ("data_gradient", data)) if ranks == 1]
    kept = {key: value for key, value in compress.items() if key not in unused}
    if kept["policy"] == "optimus_cc" and unused:
        kept = {**kept, "stages": 0} if pipeline > 1 else {"policy": "none"}
    return kept, embedding_sync


def scaling(place, name):
    print(f"GPT {name}, TP8, {GLOBAL // DATA} sequences a data rank, asynchronous transfers, predicted\n")
    names = ("baseline", "baseline, fused", "CB+FE", "CB+FE+SC, k = 3", "critical_path")
    print_header("GPUs", "stages", "data ranks", *names, "critical_path against baseline, fused")
    for pipeline, data in ((1, 1), (2, 1), (4, 1), (4, 2), (4, 4)):
        steps = {}
        for row in names:
            section = without_unused(ROWS[row], pipeline, data)
            job = config(place, MODELS[name], section, pipeline=pipeline, data=data)
            steps[row] = place.plan(job)["step_seconds"]
        gain = percent(steps[REFERENCES["critical_path"]] / steps["critical_path"] - 1)
        shown = [f"{step:.4f} s" for step in steps.values()]
        print_row(GPUS_OF_NODE * pipeline * data, pipeline, data, *shown, gain)
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
