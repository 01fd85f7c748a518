#!/usr/bin/env python3
"""Checks the direction of dependencies between folders, and what headers may include.

usage: tools/scripts/check_layers.py [--root DIR]

Prints one `file:line: message` per offence and exits with 1 if there is any.
"""

import argparse
import re
import sys
from pathlib import Path

from source_tree import CPP_SUFFIXES, HEADER_SUFFIXES, ROOT, blank_comments, list_files

MACHINE = {"core", "core/cuda", "core/tensor", "core/kernels", "core/comm", "core/checkpoint"}
VALUES = {"parallel/schedule", "parallel/mesh", "parallel/sync", "parallel/plan"}
STEP = {"parallel/channel", "parallel/step"}
FORESIGHT = {"parallel/predict", "parallel/predict/timeline", "parallel/choose"}
TRAINING = MACHINE | VALUES | {"model", "model/cost", "compress", "optim"}
# A room is a folder with what is below it, but for the rooms there. It may include itself and these.
ALLOWED = {
    "core": {"core/cuda"},
    "core/cuda": {"core", "core/tensor"},
    "core/tensor": {"core", "core/cuda"},
    "core/kernels": {"core", "core/cuda", "core/tensor"},
    "core/comm": {"core", "core/cuda", "core/tensor"},
    "core/checkpoint": {"core", "core/tensor"},
    "data": {"core"},
    "model": MACHINE,
    "model/cost": MACHINE | {"model"},
    "compress": MACHINE,
    "optim": MACHINE | {"compress"},
    "parallel/schedule": set(),  # pure data: it may not even use core
    "parallel/mesh": MACHINE | {"model", "model/cost", "parallel/schedule"},
    "parallel/sync": MACHINE | {"model", "parallel/schedule", "parallel/mesh"},
    "parallel/plan": MACHINE | {"model", "model/cost", "compress", "parallel/schedule",
                                "parallel/mesh", "parallel/sync"},
    # What runs a step and what foresees it do not know each other.
    "parallel/channel": MACHINE | VALUES | {"model", "compress"},
    "parallel/step": TRAINING | STEP,
    "parallel/predict/timeline": {"core", "parallel/schedule", "parallel/plan"},
    "parallel/predict": TRAINING | {"parallel/predict/timeline"},
    "parallel/choose": TRAINING | FORESIGHT,
    "tools/plan": TRAINING | FORESIGHT | {"data"},
    "tools/config": TRAINING | {"data", "tools/plan"},
    "tools/record": MACHINE | VALUES | {"tools/plan"},
    "tools/infer": TRAINING | STEP | {"data"},
    "tools/interop": MACHINE | {"data", "model"},
    "tools/run": TRAINING | STEP | FORESIGHT
    | {"data", "tools/config", "tools/infer", "tools/plan", "tools/record"},
    "tools/report/charts": MACHINE | VALUES | FORESIGHT | {"tools/plan"},
    "tools/report": MACHINE | VALUES | FORESIGHT
    | {"tools/config", "tools/plan", "tools/record", "tools/report/charts", "tools/run"},
    "tools/sweep": MACHINE | FORESIGHT | {"tools/config", "tools/plan", "tools/record", "tools/run"},
    "tools/cli": TRAINING | {"data", "tools/config", "tools/infer", "tools/interop", "tools/plan",
                             "tools/record", "tools/report", "tools/run", "tools/sweep"},
}
ALLOWED["tools/bench"] = ALLOWED["tests"] = set(ALLOWED)

# Costly to parse or unreadable for nvcc: a header that includes one stays private to its folder.
HEAVY = re.compile(r"(nlohmann/json\.hpp|spdlog/|fmt/|CLI/|iostream$)")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
USING = re.compile(r"\busing\s+namespace\b")


def room_of(path):
    """The nearest folder around `path` that is a room, or None."""
    return next((str(f) for f in Path(path).parents if str(f) in ALLOWED), None)


def check_quoted(path, target, files):
    """Why `#include "target"` is wrong in `path`, or None."""
    if Path(target) not in files:
        return f'"{target}" is no file of this tree: write includes from the root'
    source, destination = room_of(path), room_of(target)
    if source == destination or destination in ALLOWED[source]:
        return None
    allowed = ", ".join(sorted(ALLOWED[source] - {"tests"})) or "nothing"
    return f'"{target}": {source} may include {source} and {allowed}'


def scan(root, files):
    """(offences, heavy headers with their first heavy include, includers of each header)."""
    offences, heavy, includers = [], {}, {}
    for path in sorted(files):
        if path.suffix not in CPP_SUFFIXES or room_of(path) is None:
            continue
        text = blank_comments((root / path).read_text(encoding="utf-8"))
        for number, line in enumerate(text.splitlines(), start=1):
            include = INCLUDE.match(line)
            if include and include[1]:
                includers.setdefault(Path(include[1]), []).append((path, number))
                reason = check_quoted(path, include[1], files)
                if reason:
                    offences.append((path, number, reason))
            elif path.suffix not in HEADER_SUFFIXES:
                continue
            elif include and HEAVY.match(include[2]):
                heavy.setdefault(path, include[2])
            elif USING.search(line):
                offences.append((path, number, "using-directive in a header"))
    return offences, heavy, includers


def check_heavy(heavy, includers):
    """A header with a heavy include serves the .cpp files (and tests) of its own folder only."""
    for header, library in heavy.items():
        for path, number in includers.get(header, []):
            at_home = path.parent in (header.parent, Path("tests") / header.parent)
            if path.suffix != ".cpp" or not at_home:
                yield path, number, (
                    f'"{header}" includes <{library}>: only .cpp files of {header.parent} may '
                    "include it (or hide the library in a .cpp)"
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT)
    root = parser.parse_args().root.resolve()
    files = set(list_files(root))
    offences, heavy, includers = scan(root, files)
    offences += check_heavy(heavy, includers)
    for path, number, reason in sorted(offences):
        print(f"{path}:{number}: {reason}")
    checked = sum(1 for path in files if path.suffix in CPP_SUFFIXES and room_of(path))
    print(f"check_layers: {checked} files, {len(offences)} offences")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
