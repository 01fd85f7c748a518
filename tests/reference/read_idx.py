"""Reads PREFIX.idx and PREFIX.bin in Megatron's layout and prints them as JSON.

  python tests/reference/read_idx.py PREFIX [--summary]

Prints {"dtype", "lengths", "boundaries", "tokens": one list per sequence}; with --summary the
counts, the largest token and the SHA-256 of the .bin file instead of the tokens. Exits with 1 and a
sentence if anything about the files is wrong. Independent of Slackline: it checks what
`slackline prepare` writes. Writes nothing.
"""

import argparse
import hashlib
import json
import struct
import sys
from pathlib import Path

CODES = {4: ("i32", "i", 4), 5: ("i64", "q", 8), 8: ("u16", "H", 2)}
HEADER = struct.Struct("<9sQBQQ")


def require(condition, sentence):
    if not condition:
        sys.exit(sentence)


def read_prefix(prefix):
    index = Path(f"{prefix}.idx").read_bytes()
    data = Path(f"{prefix}.bin").read_bytes()
    require(len(index) >= HEADER.size, f"the index has {len(index)} bytes, fewer than its header")
    magic, version, code, sequences, bounds = HEADER.unpack_from(index)
    require(magic == b"MMIDIDX\x00\x00", f"the magic bytes are {magic}")
    require(version == 1, f"the version is {version}")
    require(code in CODES, f"the dtype code is {code}")
    expected = HEADER.size + 12 * sequences + 8 * bounds
    require(len(index) in (expected, expected + sequences),
            f"the index has {len(index)} bytes, its counts ask for {expected}")
    name, letter, item_bytes = CODES[code]

    place = HEADER.size
    lengths = struct.unpack_from(f"<{sequences}i", index, place)
    offsets = struct.unpack_from(f"<{sequences}q", index, place + 4 * sequences)
    boundaries = struct.unpack_from(f"<{bounds}q", index, place + 12 * sequences)
    end = 0
    for sequence, (length, offset) in enumerate(zip(lengths, offsets)):
        require(length >= 0, f"sequence {sequence} has length {length}")
        require(offset == end, f"sequence {sequence} starts at byte {offset}, expected {end}")
        end += length * item_bytes
    require(end == len(data), f"the .bin file has {len(data)} bytes, the index covers {end}")
    require(bounds > 0 and boundaries[0] == 0 and boundaries[-1] == sequences,
            "the document boundaries do not run from 0 to the number of sequences")
    require(all(a <= b for a, b in zip(boundaries, boundaries[1:])), "a boundary goes backward")
    tokens = [list(struct.unpack_from(f"<{length}{letter}", data, offset))
              for length, offset in zip(lengths, offsets)]
    require(all(token >= 0 for row in tokens for token in row), "a token id is negative")
    return {"dtype": name, "lengths": list(lengths), "boundaries": list(boundaries),
            "tokens": tokens}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix", metavar="PREFIX")
    parser.add_argument("--summary", action="store_true", help="counts instead of tokens")
    args = parser.parse_args()
    content = read_prefix(args.prefix)
    if args.summary:
        content = {
            "dtype": content["dtype"], "sequences": len(content["lengths"]),
            "documents": len(content["boundaries"]) - 1, "tokens": sum(content["lengths"]),
            "largest_token": max((max(row) for row in content["tokens"] if row), default=None),
            "sha256": hashlib.sha256(Path(f"{args.prefix}.bin").read_bytes()).hexdigest()}
    print(json.dumps(content))


if __name__ == "__main__":
    main()
