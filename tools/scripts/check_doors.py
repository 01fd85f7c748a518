#!/usr/bin/env python3
"""Checks that text leaves, and files are looked up, through the doors that are made for it.

usage: tools/scripts/check_doors.py [--root DIR]

What is printed or logged goes through core/terminal and core/log, which escape what a terminal
would obey. What asks the file system goes through core/file_io, whose failures are errors of ours
with an exit code of their own. Prints one `file:line: message` per offence and exits with 1 if there
is any. Benchmarks and tests are left out.
"""

import argparse
import re
import sys
from pathlib import Path

from source_tree import CPP_SUFFIXES, ROOT, blank_comments, list_files

FOLDERS = {"core", "data", "model", "compress", "optim", "parallel", "tools"}

# What a door is, its only files, and what to call instead.
DOORS = [
    (
        re.compile(
            r"\b(?:v?f?printf|f?puts|f?putc|putchar|perror|psignal|v?dprintf)\s*\("
            r"|\bfmt::print(?:ln)?\b|\bstd::w?(?:cout|cerr|clog)\b|\b(?:stdout|stderr)\b"
        ),
        {"core/terminal.cpp"},
        "core/terminal.h prints and core/log.h logs",
    ),
    (
        re.compile(r"\bspdlog(?:::|/)"),
        {"core/log.cpp"},
        "core/log.h logs",
    ),
    (
        re.compile(r"\b(?:std::filesystem|fs)::(?!path\b)\w+"),
        {"core/file_io.cpp"},
        "core/file_io.h looks files up; std::filesystem throws errors without an exit code",
    ),
]
ALIAS = re.compile(r"\bnamespace\s+fs\s*=\s*std::filesystem\b")


def offences_in(path, text):
    text = ALIAS.sub("", blank_comments(text, literals=True))
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, homes, instead in DOORS:
            if path.as_posix() in homes:
                continue
            for match in pattern.finditer(line):
                yield number, f"{match[0].rstrip('( ')}: {instead}"


def is_checked(path):
    parts = path.parts
    return path.suffix in CPP_SUFFIXES and parts[0] in FOLDERS and "bench" not in parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT)
    root = parser.parse_args().root.resolve()
    checked, failed = 0, 0
    for path in filter(is_checked, list_files(root)):
        checked += 1
        for number, reason in offences_in(path, (root / path).read_text(encoding="utf-8")):
            failed += 1
            print(f"{path}:{number}: {reason}")
    print(f"check_doors: {checked} files, {failed} offences")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
