"""Well-formed and malformed safetensors files, with what the reference package says of each.

Writes:

  tests/golden/safetensors/good_*.safetensors   written by the package, or by hand where it cannot
  tests/golden/safetensors/bad_*.safetensors    each malformed in one way
  tests/golden/safetensors/cases.json           [{"file", "why", "accepted", "error", "message",
                                                  "metadata"?, "tensors"?}]

`accepted`, `error` (the fault in the package's words, without its details; null where accepted)
and `message` (all of it) are recorded from safetensors.safe_open, not asserted. The package accepts
three of the bad_ files: a header that starts with a space and a name given twice, which the
format's description forbids, and an entry with an unknown field, of which it says nothing.
`tensors` maps each name to {"dtype", "shape", "hex"}: the little-endian bytes.

The C++ test reads every good_ file and compares names, shapes and bytes, and requires a FileError,
never a crash, for the bad_ ones (a reader may accept the unknown field).
"""

import json
import re
import struct

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save
from safetensors.torch import save as save_torch

from golden_io import golden_path, write_bytes, write_json

FOLDER = "safetensors"


def raw_file(header, buffer=b"", length=None):
    """A file by hand: header text or JSON value, declared header length, buffer."""
    if not isinstance(header, bytes):
        header = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    return struct.pack("<Q", len(header) if length is None else length) + header + buffer


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def good_files():
    numbers = np.array([[0, 1, -2], [3, 100, -128]])
    floats = np.array([[0.0, -0.0, 1.5], [np.inf, -np.inf, 2.0 ** -14]])
    yield "dtypes", "every common dtype, shape (2, 3)", save_torch({
        "f64": torch.tensor(floats), "f32": torch.tensor(floats, dtype=torch.float32),
        "f16": torch.tensor(floats, dtype=torch.float16),
        "bf16": torch.tensor(floats, dtype=torch.bfloat16),
        "i64": torch.tensor(numbers), "i32": torch.tensor(numbers, dtype=torch.int32),
        "i16": torch.tensor(numbers, dtype=torch.int16),
        "i8": torch.tensor(numbers, dtype=torch.int8),
        "u8": torch.tensor(np.abs(numbers), dtype=torch.uint8),
        "bool": torch.tensor(numbers > 0)})
    yield "unsigned", "the wider unsigned dtypes", save({
        "u64": np.array([0, 2 ** 64 - 1], np.uint64), "u32": np.array([0, 2 ** 32 - 1], np.uint32),
        "u16": np.array([0, 2 ** 16 - 1], np.uint16)})
    yield "float8", "8-bit floats, which our reader may refuse by name", save_torch({
        "e4m3": torch.tensor([0.5, -1.0]).to(torch.float8_e4m3fn),
        "e5m2": torch.tensor([0.5, -1.0]).to(torch.float8_e5m2)})
    yield "scalar", "0-d tensors", save({
        "f32": np.array(2.5, np.float32), "i64": np.array(-7, np.int64)})
    yield "empty_tensor", "tensors without elements beside one with", save({
        "none": np.zeros((0,), np.float32), "rows": np.zeros((0, 4), np.int32),
        "inner": np.zeros((2, 0, 3), np.float64), "one": np.ones((1,), np.float32)})
    yield "no_tensors", "no tensors at all", save({})
    # The package writes a metadata map in an order that changes from run to run, so by hand.
    yield "metadata", "a metadata map, a name outside ASCII, escapes", raw_file(
        {"__metadata__": {"format": "pt", "note": "two\nlines, \"quoted\", café", "": "empty key"},
         "weight/é\"\\\n": entry("F32", [3], 0, 12)}, struct.pack("<fff", 0.0, 1.0, 2.0))
    yield "metadata_only", "a metadata map and no tensor", save({}, {"format": "pt"})
    yield "odd_sizes", "three bytes before wider elements, so data is not aligned", raw_file(
        {"a": entry("U8", [3], 0, 3), "b": entry("F32", [2], 3, 11),
         "c": entry("F64", [1], 11, 19)},
        bytes([1, 2, 3]) + struct.pack("<ffd", 1.0, -2.0, 0.25))
    yield "any_order", "header order differs from buffer order", raw_file(
        {"z": entry("I32", [1], 4, 8), "a": entry("I32", [1], 8, 12), "m": entry("I32", [1], 0, 4)},
        struct.pack("<iii", 10, 20, 30))
    yield "padded_header", "spaces after the header's last brace", raw_file(
        b'{"a":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}}' + b" " * 42,
        struct.pack("<hh", 1, -1))


def bad_files():
    one = {"a": entry("F32", [2], 0, 8)}
    data = struct.pack("<ff", 1.0, 2.0)
    good = raw_file(one, data)
    text = good[8:-8]
    yield "empty_file", "no byte at all", b""
    yield "seven_bytes", "shorter than the length field", good[:7]
    yield "header_over_limit", "declares a header of 100,000,001 bytes", raw_file(
        one, data, 100_000_001)
    yield "header_length_max", "declares a header of 2^64 - 1 bytes", raw_file(
        one, data, 2 ** 64 - 1)
    yield "header_beyond_file", "declares a header longer than the file", raw_file(one, data, 200)
    yield "header_length_zero", "declares an empty header", struct.pack("<Q", 0)
    yield "header_start", "header starts with a space, not a brace", raw_file(b" " + text, data)
    yield "header_array", "header is a JSON array", raw_file(b"[1,2]")
    yield "invalid_json", "header lacks its last brace", raw_file(text[:-1], data)
    yield "json_trailing", "text follows the header's last brace", raw_file(text + b"x", data)
    yield "nul_padding", "NUL bytes follow the header's last brace", raw_file(text + b"\0\0", data)
    yield "invalid_utf8", "a tensor name holds the byte FF", raw_file(
        b'{"\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', data)
    yield "duplicate_key", "one name twice, same entry", raw_file(
        text[:-1] + b"," + text[1:], data)
    yield "duplicate_key_differs", "one name twice, different halves of the buffer", raw_file(
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', data)
    yield "duplicate_field", "one entry gives its shape twice", raw_file(
        b'{"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}}', data)
    yield "unknown_field", "an entry has a field nobody knows", raw_file(
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"stride":[1]}}', data)
    yield "missing_field", "an entry has no shape", raw_file(
        b'{"a":{"dtype":"F32","data_offsets":[0,8]}}', data)
    yield "hole", "four bytes between two tensors belong to none", raw_file(
        {"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 8, 12)}, data + bytes(4))
    yield "hole_at_start", "the first tensor starts at byte 4", raw_file(
        {"a": entry("F32", [1], 4, 8)}, data)
    yield "overlap", "two tensors share four bytes", raw_file(
        {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, data + bytes(4))
    yield "same_bytes", "two tensors share all their bytes", raw_file(
        {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 0, 8)}, data)
    yield "shape_overflow", "the product of the shape is 2^64", raw_file(
        {"a": entry("F32", [2 ** 32, 2 ** 32], 0, 8)}, data)
    yield "shape_wraps", "the product of the shape wraps to the right size modulo 2^64", raw_file(
        {"a": entry("F32", [2 ** 63, 2, 2], 0, 0)})
    yield "bytes_overflow", "elements fit 64 bits, their bytes wrap to 8", raw_file(
        {"a": entry("F32", [2 ** 62 + 2], 0, 8)}, data)
    yield "size_mismatch", "three elements in eight bytes", raw_file(
        {"a": entry("F32", [3], 0, 8)}, data)
    yield "size_mismatch_scalar", "a 0-d F32 in eight bytes", raw_file(
        {"a": entry("F32", [], 0, 8)}, data)
    yield "trailing_bytes", "five bytes after the last tensor", good + bytes(5)
    yield "truncated", "the last byte of the buffer is missing", good[:-1]
    yield "no_buffer", "the file ends after the header", good[:-8]
    yield "offsets_reversed", "end before begin", raw_file({"a": entry("F32", [2], 8, 0)}, data)
    yield "offset_negative", "begin is -8", raw_file({"a": entry("F32", [2], -8, 0)}, data)
    yield "offset_float", "begin is 0.0", raw_file({"a": entry("F32", [2], 0.0, 8)}, data)
    yield "offset_huge", "end is 2^64", raw_file({"a": entry("F32", [2], 0, 2 ** 64)}, data)
    yield "offsets_three", "three offsets", raw_file(
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}', data)
    yield "shape_negative", "a dimension of -2", raw_file({"a": entry("F32", [-2], 0, 8)}, data)
    yield "unknown_dtype", "dtype F33", raw_file({"a": entry("F33", [2], 0, 8)}, data)
    yield "dtype_lower_case", "dtype f32", raw_file({"a": entry("f32", [2], 0, 8)}, data)
    yield "metadata_number", "a metadata value is a number", raw_file(
        {"__metadata__": {"step": 3}} | one, data)
    yield "deep_nesting", "20,000 opening brackets in a metadata value", raw_file(
        b'{"__metadata__":{"a":' + b"[" * 20_000 + b"}}")


def tensors_of(data):
    """What a file holds, decoded by hand from a header that the package has accepted."""
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, item in sorted(header.items()):
        begin, end = (8 + length + offset for offset in item["data_offsets"])
        tensors[name] = {"dtype": item["dtype"], "shape": item["shape"],
                         "hex": data[begin:end].hex()}
    return tensors


def observe(file, why, data):
    """One case, with the package's verdict from opening the file and reading every tensor."""
    write_bytes(f"{FOLDER}/{file}", data)
    case = {"file": file, "why": why, "accepted": True, "error": None, "message": None}
    try:
        with safe_open(golden_path(f"{FOLDER}/{file}"), framework="pt") as opened:
            metadata = opened.metadata()
            for name in opened.keys():
                opened.get_tensor(name)
    except Exception as error:  # whatever the package raises is what we record
        message = str(error)
        fault = message.removeprefix("Error while deserializing header: ")
        name = re.split(r"[:`]", fault)[0].strip()
        return case | {"accepted": False, "error": name, "message": message}
    if metadata:
        case["metadata"] = dict(sorted(metadata.items()))
    return case | {"tensors": tensors_of(data)}


def main():
    for old in golden_path(f"{FOLDER}/cases.json").parent.glob("*.safetensors"):
        old.unlink()
    cases = [observe(f"good_{name}.safetensors", why, data) for name, why, data in good_files()]
    assert all(case["accepted"] for case in cases), cases
    cases += [observe(f"bad_{name}.safetensors", why, data) for name, why, data in bad_files()]
    write_json(f"{FOLDER}/cases.json", cases, ascii_only=True)
    for case in cases:
        print("accepts" if case["accepted"] else "refuses", case["file"], case["message"] or "")


if __name__ == "__main__":
    main()
