"""Compares what two commits made of one configuration, bit for bit, and says what differs first.

A result is a folder with the files that tools/golden_bits lets a commit write: for each run
metrics.jsonl, plan.json and checkpoints, and beside them what subcommands printed. What depends on
time is left out.
"""

import json
from typing import NamedTuple

from golden.checkpoint_tensors import read_checkpoint

# Fields of a line of metrics.jsonl that no two runs have in common.
TIMES = {"time", "step_seconds", "tokens_per_second", "seconds", "exposed_seconds", "slowest",
         "round_seconds", "period_seconds", "wait_seconds"}
# Fields of a class in plan.json that a run does not measure.
PLANNED = ("raw_bytes", "sent_bytes", "codec")
MANIFEST_PARTS = ("step", "data", "rng", "codec")
PRINTED = ("sha256.txt", "evaluation.json", "generated.txt", "choice.json")
ONLY_IN_ONE = object()


class Difference(NamedTuple):
    quantity: str
    where: str
    a: str
    b: str

    def __str__(self):
        return f"{self.quantity}: {self.where}: {self.a} and {self.b}"


def compare_results(a, b):
    """The first difference of every quantity, and the set of fields that only one commit writes
    into metrics.jsonl and the manifest (which is no difference: later commits say more)."""
    differences, fields = [], set()
    for run in sorted({path.name for side in (a, b) for path in side.iterdir() if path.is_dir()}):
        compare_metrics(a / run, b / run, differences, fields)
        compare_checkpoints(a / run, b / run, differences, fields)
        compare_plans(a / run, b / run, differences)
    for name in PRINTED:
        texts = [(side / name).read_text() if (side / name).exists() else "" for side in (a, b)]
        if texts[0] != texts[1]:
            differences.append(first_line(name, *texts))
    first = {}
    for difference in differences:
        first.setdefault(difference.quantity, difference)
    return list(first.values()), fields


def first_line(name, a, b):
    lines_a, lines_b = a.splitlines(), b.splitlines()
    for number, (x, y) in enumerate(zip(lines_a, lines_b), start=1):
        if x != y:
            at = next((i for i, pair in enumerate(zip(x, y)) if pair[0] != pair[1]), 0)
            start = max(0, at - 40)
            return Difference(name, f"line {number}, column {at + 1}", x[start:at + 60],
                              y[start:at + 60])
    return Difference(name, "length", f"{len(lines_a)} lines", f"{len(lines_b)} lines")


def compare_metrics(a, b, differences, fields):
    rows = [metric_rows(side / "metrics.jsonl") for side in (a, b)]
    if list(rows[0]) != list(rows[1]):
        differences.append(Difference(f"{a.name}: lines of metrics", "kinds and steps",
                                      ", ".join(rows[0]), ", ".join(rows[1])))
    for name in rows[0]:
        values = rows[0][name], rows[1].get(name, {})
        for field in {**values[0], **values[1]}:
            pair = [row.get(field, ONLY_IN_ONE) for row in values]
            if ONLY_IN_ONE in pair:
                fields.add(field)
            elif pair[0] != pair[1]:
                differences.append(
                    Difference(f"{a.name}: {field}", name, str(pair[0]), str(pair[1])))


def metric_rows(path):
    """{"step 3": {"loss": ..., "axes.data.sent_bytes": ...}}: the line of a step, and of an
    evaluation likewise. A row of sampled messages is named by its class."""
    rows = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        # Python reads what is written with all its digits to the double that was written.
        document = json.loads(line)
        kind = "evaluation at step" if "eval_loss" in document else "step"
        rows[f"{kind} {document['step']}"] = dict(leaves(document))
    return rows


def leaves(value, path=""):
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in TIMES:
                yield from leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            of = class_name(item) if isinstance(item, dict) else i
            yield from leaves(item, f"{path} of {of}")
    else:
        yield path, value


def class_name(row):
    return " ".join(str(row.get(key)) for key in ("site", "stage", "phase"))


def compare_checkpoints(a, b, differences, fields):
    steps = [sorted(p.name for p in (side / "checkpoints").glob("step-*")) for side in (a, b)]
    if steps[0] != steps[1]:
        differences.append(Difference(f"{a.name}: checkpoints", "steps", str(steps[0]),
                                      str(steps[1])))
    for step in sorted(set(steps[0]) & set(steps[1])):
        folders = [side / "checkpoints" / step for side in (a, b)]
        compare_tensors(f"{a.name}: ", step, *map(read_checkpoint, folders), differences)
        manifests = [json.loads((folder / "manifest.json").read_text()) for folder in folders]
        for part in MANIFEST_PARTS:
            pair = [manifest.get(part) for manifest in manifests]
            if all(isinstance(document, dict) for document in pair):
                added = pair[1].keys() - pair[0].keys()
                fields.update(f"{part}.{key}" for key in added)
                pair[1] = {key: value for key, value in pair[1].items() if key not in added}
            if pair[0] != pair[1]:
                differences.append(Difference(f"{a.name}: {part} of the manifest", step, *[
                    json.dumps(document)[:200] for document in pair]))


def compare_tensors(run, step, a, b, differences):
    """A quantity is a group of tensors: weights, moments, residuals of one site."""
    for name in sorted({*a, *b}):
        quantity = run + name.rpartition("/")[0]
        if name not in a or name not in b:
            differences.append(Difference(quantity, f"{step}, {name}",
                                          "there" if name in a else "absent",
                                          "there" if name in b else "absent"))
        elif a[name] != b[name]:
            differences.append(element_difference(quantity, f"{step}, {name}", a[name], b[name]))


def element_difference(quantity, where, a, b):
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return Difference(quantity, where, f"{a.dtype} {a.shape}", f"{b.dtype} {b.shape}")
    pairs = list(zip(a.elements(), b.elements()))
    differing = [i for i, (x, y) in enumerate(pairs) if x != y]
    x, y = pairs[differing[0]]
    return Difference(
        quantity, f"{where}, {len(differing)} of {len(pairs)} elements, first [{differing[0]}]",
        "0x" + x[::-1].hex(), "0x" + y[::-1].hex())


def compare_plans(a, b, differences):
    plans = [planned_classes(side / "plan.json") for side in (a, b)]
    for name in {**plans[0], **plans[1]}:
        rows = [plan.get(name, "absent") for plan in plans]
        if rows[0] != rows[1]:
            differences.append(Difference(f"{a.name}: plan.json", name, *map(str, rows)))


def planned_classes(path):
    plans = json.loads(path.read_text()) if path.exists() else []
    return {f"from step {plan['from_step']}, {class_name(row)}": {key: row[key] for key in PLANNED}
            for plan in plans for row in plan["classes"]}
