"""Reads checkpoints as logical tensors, without the program that wrote them."""

import json
import math
import struct
from typing import NamedTuple

ELEMENT_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2,
                 "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1}


class LogicalTensor(NamedTuple):
    dtype: str
    shape: tuple
    data: bytes

    def elements(self):
        size = len(self.data) // max(1, math.prod(self.shape))
        return [self.data[i:i + size] for i in range(0, len(self.data), size)] if size else []


def read_checkpoint(folder):
    """All tensors of a checkpoint by name. What differs from worker to worker is named `name#3`."""
    manifest = json.loads((folder / "manifest.json").read_text())
    files = {}
    tensors = {}
    for name, entry in manifest["tensors"].items():
        for piece in entry["pieces"]:
            if piece["file"] not in files:
                files[piece["file"]] = read_safetensors(folder / piece["file"])
            worker = f"#{piece['worker']}" if "worker" in piece else ""
            dtype, values = files[piece["file"]][piece_key(name, entry["shape"], piece) + worker]
            size = math.prod(entry["shape"]) * ELEMENT_BYTES[dtype]
            tensor = tensors.setdefault(
                name + worker, LogicalTensor(dtype, tuple(entry["shape"]), bytearray(size)))
            place(tensor, piece, values)
    return tensors


def piece_key(name, shape, piece):
    whole = piece["shape"] == shape and not any(piece["start"])
    return name if whole else name + "@" + ",".join(map(str, piece["start"]))


def read_safetensors(path):
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + length])
    data = memoryview(content)[8 + length:]
    return {name: (entry["dtype"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def place(tensor, piece, values):
    """Copies a piece's elements to where they belong, one run of the innermost dimension at a
    time."""
    if not piece["shape"]:
        tensor.data[:] = values
        return
    *outer, inner = piece["shape"]
    run = inner * ELEMENT_BYTES[tensor.dtype]
    for row in range(math.prod(outer)):
        offset, rest, stride = piece["start"][-1], row, tensor.shape[-1]
        for dim in reversed(range(len(outer))):
            rest, index = divmod(rest, outer[dim])
            offset += (piece["start"][dim] + index) * stride
            stride *= tensor.shape[dim]
        start = offset * ELEMENT_BYTES[tensor.dtype]
        tensor.data[start:start + run] = values[row * run:(row + 1) * run]
