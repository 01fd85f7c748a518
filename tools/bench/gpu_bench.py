#!/usr/bin/env python3
"""What a GPU does with this tree, in one table: whole steps of GPT-2 124M and 1.5B with their share of the card's peak by
three formulas and of what a large product reaches here, peak memory against the plan, the same model under PyTorch where
that is installed, ranks that share the card over emulated links, every op and codec against what bounds it (cuda_bench),
and some of them against PyTorch's.

usage: tools/bench/gpu_bench.py [--binary BINARY] [--python PYTHON] [--ops-only | --steps-only] [--small]

--python: one with PyTorch, for the comparison; by default this one. --small: models of a few layers, to try the
command itself.
"""

import argparse
import ctypes
import functools
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

import runs
from clusters import OF_PAIRS, cluster, link
from codec_settings import cast, low_rank
from runs import REPOSITORY, Workplace, percent, print_header, print_row, read_metrics

STEPS, WARMUP, RATE = 12, 4, 1e-4
MODELS = {
    "GPT-2 124M": {"layers": 12, "hidden": 768, "heads": 12, "sequence": 1024, "vocab": 50257, "micro": 64, "global": 64},
    "GPT-2 1.5B": {"layers": 48, "hidden": 1600, "heads": 25, "sequence": 1024, "vocab": 50257, "micro": 16, "global": 64},
}
SMALL = {"a few layers": {"layers": 2, "hidden": 64, "heads": 2, "sequence": 64, "vocab": 257, "micro": 4, "global": 8}}
# As cuda_bench's defaults; `gradients` are GPT-2 124M's.
OPS = {"tokens": 16384, "hidden": 768, "vocab": 50257, "gradients": 124439808}
SMALL_OPS = {"tokens": 256, "hidden": 128, "vocab": 509, "gradients": 1 << 20}
CEILING_EDGE, SMALL_CEILING_EDGE = 8192, 256
LINKS = [10**10, 10**11, 4 * 10**11]  # bits a second


def query(what):
    if not shutil.which("nvidia-smi"):
        return "unknown"
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else "unknown"


def header():
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    print(f"{query('name')}, driver {query('driver_version')}, clocks {query('clocks.sm')} and {query('clocks.mem')} MHz, "
          f"commit {commit.stdout.strip() or 'unknown'}\n")


@functools.cache
def driver():
    """The driver's library and a context of the first device; None where there are none. No nvidia-smi is needed."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return None
    return None if cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) else (cuda, context)


def used_bytes():
    """Bytes of the card that all programs use; None where nobody can tell."""
    if driver() is None:
        return None
    cuda, context = driver()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if cuda.cuCtxSetCurrent(context) or cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)):
        return None
    return total.value - free.value


class PeakMemory:
    """The most that is in use on the card while a block runs, beyond what was in use before: what a run allocates, and
    some hundreds of MiB that the driver takes for its context and kernels."""

    def __enter__(self):
        self.before, self.most, self.ended = used_bytes(), 0, False
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()

    def watch(self):
        while not self.ended and self.before is not None:
            self.most = max(self.most, used_bytes() - self.before)
            time.sleep(0.05)

    def text(self):
        return "unknown" if self.before is None else gibibytes(self.most)


def config(place, model, name, **sections):
    shape = {key: value for key, value in model.items() if key not in ("micro", "global")}
    return {
        "run": {"dir": str(place.path / name), "steps": STEPS},
        "device": "cuda",
        "precision": "bf16",
        "model": shape,
        "data": {"train": [{"path": str(place.path / "corpus")}]},
        "batch": {"global": model["global"], "micro": model["micro"]},
        "optimizer": {"lr": RATE, "schedule": "constant"},
        **sections,
    }


def train(place, job, ranks=1):
    """The median seconds of a step, the losses of all, and what the run said."""
    said = place.launch([str(runs.BINARY), "train", place.write("job.json", job),
                         *(["--ranks", str(ranks)] if ranks > 1 else [])])
    steps = [line for line in read_metrics(pathlib.Path(job["run"]["dir"])) if "step_seconds" in line]
    seconds = statistics.median(step["step_seconds"] for step in steps[WARMUP:])
    return seconds, [step["loss"] for step in steps], said


def pool_use(said):
    """The most that a run of one rank had in use of its pool, and the most that it took apart from it, as it said."""
    return re.search(r"a pool of .+?, of which at most (.+?) were in use; at most (.+?) apart", said).groups()


def ask_peer(python, what, sizes):
    """What gpu_peer.py prints; None, having said why, where it cannot."""
    peer = REPOSITORY / "tools/bench/gpu_peer.py"
    done = subprocess.run([python, str(peer), what, json.dumps(sizes)], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout.strip().splitlines()[-1])
    reason = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
    print(f"gpu_peer.py {what}: {reason[-1]}", file=sys.stderr)
    return None


def require_programs():
    for program in (runs.BINARY, runs.BINARY.parent / "cuda_bench"):
        if not program.exists():
            sys.exit(f"{program}: not there; build it first: cmake --preset cuda && cmake --build --preset cuda")


def bf16_flops(*arguments):
    """What cuda_bench says of the card. Ends this program where there is none."""
    ops = runs.BINARY.parent / "cuda_bench"
    done = subprocess.run([str(ops), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr + done.stdout).strip().splitlines() or [f"{ops} ended with {done.returncode}"]
        sys.exit(f"gpu_bench.py needs a GPU: {reason[-1]}")
    return float(done.stdout)


def gibibytes(value):
    return f"{value / 2**30:.2f} GiB"


def whole_steps(place, models, python, peak, edge):
    """The ceiling is measured right before each model's run. Planned is the pool; what is taken apart from it and the
    driver's own memory come on top."""
    print_header("model", "step", "tokens/s", "MFU causal", "6N + 12LCT", "hardware", "causal, of the ceiling", "ceiling",
                 "PyTorch", "by it", "its micro-batch", "losses differ by at most", "memory of the card", "in use of the pool",
                 "apart", "planned")
    for name, model in models.items():
        job = config(place, model, name.replace(" ", "_"))
        plan = json.loads(place.call(["plan", place.write("plan.json", job), "--json"]))
        ceiling = bf16_flops("--ceiling", str(edge))
        with PeakMemory() as memory:
            seconds, losses, said = train(place, job)
        in_use, apart = pool_use(said)
        tokens = model["global"] * model["sequence"] / seconds
        shares = [f"{100 * tokens * flops / peak:.1f} %" if peak else "n/a" for flops in plan["flops_per_token"].values()]
        of_ceiling = tokens * plan["flops_per_token"]["causal"] / ceiling
        peer = ask_peer(python, "step", {**model, "steps": STEPS, "warmup": WARMUP, "lr": RATE,
                                         "tokens": str(place.path / "corpus.bin")})
        apart_by = max(abs(a / b - 1) for a, b in zip(losses, peer["losses"])) if peer else 0
        print_row(name, f"{seconds:.4f} s", f"{tokens:.0f}", *shares, f"{100 * of_ceiling:.1f} %",
                  f"{1e-12 * ceiling:.1f} TFLOP/s",
                  *((f"{peer['seconds']:.4f} s", f"{peer['seconds'] / seconds:.2f} x", peer["micro"], percent(apart_by))
                    if peer else ("not there", "", "", "")),
                  memory.text(), in_use, apart, gibibytes(plan["memory_bytes"]))
    print()


def shared_card(place, model):
    """Two stages of two replicas each, sharing the card, over links as slow as these."""
    print_header("link", "none", "all", "critical_path", "critical_path by the best other")
    for rate in LINKS:
        between = link("network", 1e-5, rate / 8, **OF_PAIRS)
        links = place.write("cluster.json", cluster(4, 1, between, memory_bytes=2**37))
        seconds = {}
        for policy in ("none", "all", "critical_path"):
            codecs = {} if policy == "none" else {
                "pipeline_forward": cast(),
                "pipeline_backward": low_rank(16, "lazy"),
                "data_gradient": low_rank(16, "immediate"),
            }
            job = config(place, model, f"shared-{rate}-{policy}", parallel={"pipeline": 2, "data": 2},
                         compress={"policy": policy, **codecs}, network={"links": links})
            job["batch"] = {"global": 16, "micro": 2}
            job["run"]["steps"] = 30
            seconds[policy] = train(place, job, ranks=4)[0]
        print_row(f"{rate / 1e9:g} Gb/s", *(f"{value:.4f} s" for value in seconds.values()),
                  f"{min(seconds['none'], seconds['all']) / seconds['critical_path']:.2f} x")
    print()


def ops(sizes, pairs, python):
    """Every op and codec against its bound, then those that PyTorch has too against it."""
    arguments = [text for name, size in {**sizes, "pairs": pairs}.items() for text in (f"--{name}", str(size))]
    own = {}
    with subprocess.Popen(
        [str(runs.BINARY.parent / "cuda_bench"), *arguments], stdout=subprocess.PIPE, text=True
    ) as bench:
        for line in bench.stdout:
            print(line, end="", flush=True)
            if found := re.match(r"(\S.*?) +([0-9.]+) ms ", line):
                own[found[1]] = 1e-3 * float(found[2])
    if bench.returncode != 0:
        sys.exit(f"cuda_bench: ended with {bench.returncode}")
    peer = ask_peer(python, "ops", {**sizes, "times": pairs})
    if peer is None:
        return
    print()
    print_header("op", "here", "PyTorch", "by it")
    for name, seconds in peer.items():
        print_row(name, f"{1e3 * own[name]:.4f} ms", f"{1e3 * seconds:.4f} ms", f"{seconds / own[name]:.2f} x")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=str(REPOSITORY / "build/cuda/slackline"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ops-only", action="store_true")
    parser.add_argument("--steps-only", action="store_true")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    runs.BINARY = pathlib.Path(options.binary).absolute()
    require_programs()
    peak = bf16_flops("--peak")
    header()
    place = Workplace()
    models = SMALL if options.small else MODELS
    first = next(iter(models.values()))
    place.prepare_tokens("corpus", STEPS * first["global"] * first["sequence"] + 1, first["vocab"])
    if not options.ops_only:
        whole_steps(place, models, options.python, peak, SMALL_CEILING_EDGE if options.small else CEILING_EDGE)
        shared_card(place, first)
    if not options.steps_only:
        ops(SMALL_OPS if options.small else OPS, 1 if options.small else 9, options.python)


if __name__ == "__main__":
    main()
