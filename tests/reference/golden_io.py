"""Shared by the golden scripts: where golden files go, how they are written, seeded GPT-2 weights.

A golden file is written whole, must be the same bytes on every run, and stays below 300 kB.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
MAX_FILE_BYTES = 300_000


def golden_path(name):
    """Path of a golden file below tests/golden; its folder is created."""
    path = GOLDEN / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def report(path):
    """Checks the size of a file just written and names it on stdout."""
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise SystemExit(f"{path.name} has {size} bytes, more than {MAX_FILE_BYTES}")
    print(f"{path.relative_to(GOLDEN.parent.parent)}  {size} bytes")


def write_bytes(name, data):
    path = golden_path(name)
    path.write_bytes(data)
    report(path)


def write_json(name, value, ascii_only=False):
    text = json.dumps(value, indent=1, ensure_ascii=ascii_only, allow_nan=False)
    write_bytes(name, (text + "\n").encode("utf-8"))


def write_safetensors(name, tensors, metadata=None):
    path = golden_path(name)
    save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, path, metadata)
    report(path)


def random_gpt2_weights(names_and_shapes, seed):
    """fp32 weights for a small GPT-2, by name without the `transformer.` prefix.

    No bias is zero and no LayerNorm gain is one, so that a forgotten parameter changes the result.
    Drawn in name order from NumPy's legacy generator, whose stream never changes.
    """
    rng = np.random.RandomState(seed)
    weights = {}
    for name, shape in sorted(names_and_shapes.items()):
        noise = rng.standard_normal(shape)
        is_norm = ".ln_" in f".{name}"
        if is_norm and name.endswith(".weight"):
            value = 1.0 + 0.15 * noise
        elif name.endswith(".bias"):
            value = 0.05 * noise
        else:
            value = 0.1 * noise
        weights[name] = value.astype(np.float32)
    return weights
