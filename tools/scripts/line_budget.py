#!/usr/bin/env python3
"""Reports lines per folder, and files and functions over the size budget.

usage: tools/scripts/line_budget.py [--root DIR] [--against REF]

Over budget is a remark; over 500 lines fails (exit code 1). `--against main` adds the lines that
the working tree gained and lost per folder since that commit.
"""

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from source_tree import CPP_SUFFIXES, HEADER_SUFFIXES, ROOT, blank_comments, git, list_files

FILE_BUDGET = {"header": 150, "source": 400, "kernel": 300, "test": 400, "script": 400}
FILE_LIMIT = 500
FUNCTION_BUDGET = 40
LAYER_FUNCTION_BUDGET = 80  # forward and backward of a layer
SCRIPT_SUFFIXES = {"", ".py", ".sh"}
SCRIPT_FOLDERS = {"tools", "tests", ".ci"}


def kind_of(path):
    """The budget a file falls under, or None where it has none (documents, data, build files)."""
    if path.suffix not in CPP_SUFFIXES:
        is_script = path.parts[0] in SCRIPT_FOLDERS and path.suffix in SCRIPT_SUFFIXES
        return "script" if is_script and "golden" not in path.parts else None
    if path.parts[0] == "tests":
        return "test"
    if path.suffix in HEADER_SUFFIXES:
        return "header"
    is_kernel = path.parts[:2] in (("core", "kernels"), ("compress", "kernels")) or path.suffix == ".cu"
    return "kernel" if is_kernel else "source"


def folder_of(path):
    return "/".join(path.parts[:-1][:2]) or "."


# What stands before the brace of a function: a name, its parameters, then qualifiers, a trailing
# return type or member initialisers. Control flow and lambdas only occur inside functions.
FUNCTION = re.compile(r"([~\w:]+|operator\W{1,3})\s*\(.*\)", re.DOTALL)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$")
# Member initialisers and default arguments hold braces of their own: the head does not end there.
HEAD_GOES_ON = re.compile(r"\s*[,{)]")
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)


def functions_in(text):
    """(name, first line, number of lines) of every outermost function of C++ `text`."""
    text = PREPROCESSOR.sub(lambda match: re.sub(r"[^\n]", " ", match[0]),
                            blank_comments(text, literals=True))
    open_braces = []  # (where its head starts, (name, first line) of a function or None)
    inside = False  # of a function
    start = 0
    for match in re.finditer(r"[{};]", text):
        if match[0] == "{":
            head = text[start:match.start()]
            function = None if inside or SCOPE.search(head) else FUNCTION.search(head)
            if function:
                inside = True
                first = start + len(head) - len(head.lstrip())
                function = (function[1], text.count("\n", 0, first) + 1)
            open_braces.append((start, function))
        elif match[0] == "}" and open_braces:
            head_start, function = open_braces.pop()
            if function:
                inside = False
                yield *function, text.count("\n", 0, match.start()) + 2 - function[1]
            if HEAD_GOES_ON.match(text, match.end()):
                start = head_start
                continue
        start = match.end()


def function_budget(path, name):
    is_layer = path.parts[0] == "model" and re.search(r"(forward|backward)$", name)
    return LAYER_FUNCTION_BUDGET if is_layer else FUNCTION_BUDGET


def report(root):
    """Prints the table and the remarks; returns the files over the hard limit."""
    lines, files, remarks, failures = defaultdict(int), defaultdict(int), [], []
    for path in list_files(root):
        kind = kind_of(path)
        if kind is None:
            continue
        text = (root / path).read_text(encoding="utf-8")
        count = text.count("\n")
        lines[folder_of(path)] += count
        files[folder_of(path)] += 1
        if count > FILE_LIMIT:
            failures.append(f"{path}: {count} lines, no file may pass {FILE_LIMIT}: split it")
        elif count > FILE_BUDGET[kind]:
            remarks.append(f"{path}: {count} lines, budget of a {kind} is {FILE_BUDGET[kind]}")
        if path.suffix in CPP_SUFFIXES:
            for name, line, length in functions_in(text):
                if length > function_budget(path, name):
                    remarks.append(f"{path}:{line}: {name} has {length} lines, "
                                   f"budget {function_budget(path, name)}")
    for folder in sorted(lines):
        print(f"{folder:24} {files[folder]:5} files {lines[folder]:7} lines")
    print(f"{'total':24} {sum(files.values()):5} files {sum(lines.values()):7} lines")
    for remark in remarks:
        print(f"over budget: {remark}")
    return failures


def report_difference(root, reference):
    try:
        table = git(root, "diff", "--numstat", "--no-renames", reference, "--")
    except subprocess.CalledProcessError as error:
        sys.exit(f"line_budget: git cannot compare with {reference}: {error.stderr.strip()}")
    change = defaultdict(lambda: [0, 0])
    for row in table.splitlines():
        added, removed, name = row.split("\t")
        if added != "-" and kind_of(Path(name)):
            change[folder_of(Path(name))][0] += int(added)
            change[folder_of(Path(name))][1] += int(removed)
    print(f"against {reference} (files git does not know yet are not counted):")
    for folder, (added, removed) in sorted(change.items()):
        print(f"{folder:24} +{added} -{removed}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--against", metavar="REF", help="branch or commit to compare with")
    arguments = parser.parse_args()
    failures = report(arguments.root.resolve())
    if arguments.against:
        report_difference(arguments.root.resolve(), arguments.against)
    for failure in failures:
        print(f"error: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
