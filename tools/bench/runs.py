"""Runs of the slackline binary for the benchmarks beside this file: config in, measured steps out."""

import argparse
import contextlib
import itertools
import json
import math
import os
import pathlib
import random
import resource
import signal
import statistics
import struct
import subprocess
import sys
import tempfile

from network_lab import AS_ROOT

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARY = REPOSITORY / "build/cpu/slackline"
NETLAB = REPOSITORY / "tools/bench/netlab"

# A bench that is asked to end leaves no process behind that would disturb the next one.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def require_binary():
    if not BINARY.exists():
        sys.exit(f"{BINARY}: not there; build it first: cmake --preset cpu && cmake --build --preset cpu")


@contextlib.contextmanager
def cores_awake():
    """Keeps every core busy with a process that gives way to all others. A virtual machine whose cores halt
    wakes them some milliseconds late, which sleeps of rehearsed ops then take longer."""
    spin = [sys.executable, "-c", "while True: pass"]
    spinners = []
    for core in sorted(os.sched_getaffinity(0)):
        spinners.append(subprocess.Popen(spin))
        os.sched_setaffinity(spinners[-1].pid, {core})
        os.sched_setscheduler(spinners[-1].pid, os.SCHED_IDLE, os.sched_param(0))
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def mpi_environment(**more):
    """This process's environment with what lets root start mpirun, and with `more` variables."""
    return {**os.environ, **AS_ROOT, **more}


def lab_launch(rate, ranks_per_node=1, counters=None, nodes=2):
    """The first part of a command line whose rest runs on nodes of a network lab, over links of a rate as netlab takes
    it. The file `counters` gets what the nodes' interfaces carried."""
    ranks = ["--ranks-per-node", str(ranks_per_node)] if ranks_per_node > 1 else []
    counted = ["--counters", str(counters)] if counters else []
    return [str(NETLAB), "--nodes", str(nodes), *ranks, "--rate", rate, *counted, "--"]


def ranks_of(parallel):
    """How many ranks the `parallel` section of a config has."""
    return math.prod(parallel.get(axis, 1) for axis in ("tensor", "pipeline", "data"))


def layout_name(parallel):
    """Names a layout by its `parallel` section in a table."""
    return ", ".join(f"{key} {value}" for key, value in parallel.items())


def corpus_job(corpus, steps, run, warmup=None, **sections):
    """A config that trains a GPT of 2.2 million parameters on a corpus. `run` and `sections` hold what differs between
    benches. The learning rate rises for `warmup` steps, by default a tenth of all."""
    return {
        "run": {"dir": "unused", "steps": steps, **run},
        "model": {"layers": 4, "hidden": 208, "heads": 4, "sequence": 128, "vocab": 257},
        "data": {"train": [{"path": str(corpus / "train")}], "valid": [{"path": str(corpus / "valid")}]},
        "optimizer": {
            "lr": 3e-3, "min_lr": 1e-4, "schedule": "cosine",
            "warmup_steps": steps // 10 if warmup is None else warmup, "decay_embeddings": False,
        },
        **sections,
    }


def parser_of_kept(description):
    """The arguments of every bench over a corpus that keeps finished runs in OUT; it adds its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--table", action="store_true", help="print what is in OUT, run nothing")
    return parser


def commit():
    """What the tree is, with a + where it has changes."""
    git = ["git", "-C", str(REPOSITORY)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changes = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False)
    return head.stdout.strip() + ("+" if changes.stdout else "")


class KeptResults:
    """Results of finished runs, a JSON file each, by names: a bench may be stopped, called again, and go on. The
    directory knows by which arguments and on what corpus it was made, and each result of which commit it is: those
    of others are not taken for these."""

    def __init__(self, directory, corpus, **arguments):
        self.directory = directory
        tokens = corpus / "train.bin"
        made = {**arguments, "corpus_bytes": tokens.stat().st_size if tokens.exists() else None}
        stamp = directory / "made_with"
        if not stamp.exists():
            if next(directory.glob("*.json"), None):
                sys.exit(f"{directory}: holds results of unknown arguments; give another OUT")
            stamp.write_text(json.dumps(made))
        elif (stored := json.loads(stamp.read_text())) != made:
            sys.exit(f"{directory}: holds results of other arguments, {stored}; give another OUT than for {made}")

    def path(self, *names):
        text = "-".join(str(name) for name in names)
        return self.directory / ("".join(letter if letter.isalnum() else "-" for letter in text) + ".json")

    def has(self, *names):
        return self.path(*names).exists()

    def read(self, *names):
        """None where there is none."""
        return json.loads(self.path(*names).read_text())["result"] if self.has(*names) else None

    def print_commits(self):
        stored = {json.loads(path.read_text())["commit"] for path in self.directory.glob("*.json")}
        print(f"\ncommits: {', '.join(sorted(stored))}", flush=True)

    def write(self, result, *names):
        path = self.path(*names)
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps({"commit": commit(), "result": result}))
        os.replace(temporary, path)


def read_metrics(directory):
    """The lines of a run's metrics.jsonl, none before it is there. Leaves out a line that the run is still writing."""
    path = directory / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


class Run:
    """One finished run: its steps' lines of metrics.jsonl, its CPU seconds and its messages."""

    def __init__(self, steps, cpu_seconds, messages):
        self.steps = steps
        self.cpu_seconds = cpu_seconds
        self.messages = messages

    def settled(self):
        """Without the first step, which is slower."""
        return self.steps[1:]

    def median(self, value):
        return statistics.median(value(step) for step in self.settled())

    def step_seconds(self):
        return self.median(lambda step: step["step_seconds"])

    def last_eval_loss(self):
        """The validation loss at the end of a run that validates."""
        return next(line["eval_loss"] for line in reversed(self.steps) if "eval_loss" in line)

    def bubble_share(self):
        return self.median(lambda step: step["seconds"]["bubble"] / step["step_seconds"])


class Workplace:
    """A directory for configs and runs, removed at the end."""

    def __init__(self):
        self._directory = tempfile.TemporaryDirectory(prefix="slackline-bench-")
        self.path = pathlib.Path(self._directory.name)
        self._runs = 0

    def write(self, name, content):
        path = self.path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def call(self, arguments):
        done = subprocess.run([str(BINARY), *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(arguments)}: ended with {done.returncode}\n{done.stderr}")
        return done.stdout

    def prepare_text(self, name, text):
        """Makes a corpus of a text, each byte a token."""
        source = self.write(f"{name}.txt", text)
        self.call(["prepare", "--input", source, "--tokenizer", "byte", "--out", str(self.path / name)])

    def prepare_letters(self, name, count):
        """A corpus of letters in an order that repeats late."""
        self.prepare_text(name, "".join("abcdefghijklmnopqrstuvwxyz "[i * i * 7 % 27] for i in range(count)))

    def prepare_tokens(self, name, count, vocab):
        """A corpus of one document, whose tokens come as often as words do: the r-th one with a weight of 1 / r."""
        weights = itertools.accumulate(1 / (rank + 1) for rank in range(vocab))
        tokens = random.Random(1).choices(range(vocab), cum_weights=list(weights), k=count)
        self.write_tokens(name, struct.pack(f"<{count}H", *tokens))

    def write_tokens(self, name, tokens):
        """A data set of one sequence of unsigned 16-bit tokens, given as bytes (data/formats/megatron_format.h)."""
        (self.path / f"{name}.bin").write_bytes(tokens)
        index = b"MMIDIDX\0\0" + struct.pack("<QBQQiqqq", 1, 8, 1, 2, len(tokens) // 2, 0, 0, 1)
        (self.path / f"{name}.idx").write_bytes(index)

    def launch(self, command):
        """Runs a command as a user who may be root, and returns what it said."""
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=mpi_environment())
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: ended with {done.returncode}\n{done.stderr}")
        return done.stderr

    def plan(self, config, costs=None, cluster=None):
        """What `slackline plan` says of a config."""
        path = self.write("plan-config.json", config)
        return json.loads(self.call(["plan", path, "--json", *(["--costs", costs] if costs else []),
                                     *(["--cluster", cluster] if cluster else [])]))

    def slowed(self, config, times):
        """A rehearsal whose ops and links take so many times as long, so that few cores can follow it."""
        links = json.loads(pathlib.Path(config["network"]["links"]).read_text())
        for link in links["links"]:
            link["bytes_per_second"] /= times
            link["latency_seconds"] *= times
        costs = json.loads(pathlib.Path(config["rehearsal"]["costs"]).read_text())
        for op in costs["ops"]:
            op["seconds"] *= times
        return {
            **config,
            "network": {**config["network"], "links": self.write("slow_links.json", links)},
            "rehearsal": {**config["rehearsal"], "costs": self.write("slow_costs.json", costs)},
        }

    def train(self, config, launch=(), ranks=1):
        """Runs a config: `launch` stands before the binary, as `mpirun -np 2` or `taskset -c 0`; else
        `ranks` run as threads."""
        self._runs += 1
        directory = self.path / f"run-{self._runs}"
        config = {**config, "run": {**config["run"], "dir": str(directory)}}
        path = self.write(f"config-{self._runs}.json", config)
        command = [*launch, str(BINARY), "train", path]
        if ranks > 1:
            command += ["--ranks", str(ranks)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        messages = self.launch(command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
        run = Run(read_metrics(directory), cpu, messages)
        run.directory = directory
        return run


def percent(value):
    return f"{100 * value:.2f} %"


def print_row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def print_header(*cells):
    print_row(*cells)
    print_row(*("---" for _ in cells))
