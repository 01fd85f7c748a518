"""Small token files in Megatron's and llm.c's layouts, written field by field.

Writes:

  tests/golden/megatron/tiny.{bin,idx}       u16 tokens (dtype code 8), documents of one or more
                                             sequences, one sequence of a single token
  tests/golden/megatron/tiny_i32.{bin,idx}   i32 tokens (code 4), ids above 65,535
  tests/golden/megatron/<name>.json          {"dtype", "lengths", "boundaries", "tokens"}: what
                                             read_idx.py prints for it
  tests/golden/llmc/tiny.bin, tiny.json      magic 20240520, version 1, u16; {"tokens": [...]}

The index starts with nine magic bytes, u64 version 1, u8 dtype code, u64 sequences, u64 boundaries
(documents + 1), then i32 lengths, i64 byte offsets and i64 boundaries; its arrays are not aligned.

The C++ tests read these files, and check files of ours byte for byte against the same layout.
"""

import struct

import numpy as np

from golden_io import golden_path, write_bytes, write_json
from read_idx import read_prefix

MAGIC = b"MMIDIDX\x00\x00"


def write_megatron(name, code, dtype, lengths, boundaries, tokens):
    assert sum(lengths) == len(tokens) and boundaries[0] == 0 and boundaries[-1] == len(lengths)
    item_bytes = np.dtype(dtype).itemsize
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]]) * item_bytes
    index = MAGIC + struct.pack("<QBQQ", 1, code, len(lengths), len(boundaries))
    index += np.array(lengths, "<i4").tobytes() + offsets.astype("<i8").tobytes()
    index += np.array(boundaries, "<i8").tobytes()
    assert len(index) == 34 + 12 * len(lengths) + 8 * len(boundaries)
    write_bytes(f"megatron/{name}.bin", np.array(tokens, dtype).tobytes())
    write_bytes(f"megatron/{name}.idx", index)
    content = read_prefix(golden_path(f"megatron/{name}"))
    assert [t for row in content["tokens"] for t in row] == list(tokens)
    assert content["lengths"] == lengths and content["boundaries"] == boundaries
    write_json(f"megatron/{name}.json", content)


def main():
    rng = np.random.RandomState(9)
    lengths = [5, 1, 12, 7, 33, 2, 64]
    tokens = rng.randint(0, 60000, size=sum(lengths)).tolist()
    tokens[:3] = [0, 65499, 256]
    write_megatron("tiny", 8, "<u2", lengths, [0, 2, 3, 6, 7], tokens)
    lengths = [10, 3, 21]
    tokens = rng.randint(0, 128256, size=sum(lengths)).tolist()
    tokens[:3] = [0, 128255, 65536]
    write_megatron("tiny_i32", 4, "<i4", lengths, [0, 1, 2, 3], tokens)

    tokens = rng.randint(0, 50257, size=300)
    tokens[0] = 50256
    header = np.zeros(256, "<i4")
    header[:3] = [20240520, 1, len(tokens)]
    write_bytes("llmc/tiny.bin", header.tobytes() + tokens.astype("<u2").tobytes())
    write_json("llmc/tiny.json", {"tokens": tokens.tolist()})


if __name__ == "__main__":
    main()
