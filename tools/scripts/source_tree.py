"""Which files the style checks look at, and how they read C++: shared by tools/check_*."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPP_SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
HEADER_SUFFIXES = {".h", ".cuh"}
GENERATED_FOLDERS = {"build", "runs", "quickstart-run"}


def list_files(root):
    """Files below `root`, as sorted paths relative to it: those git tracks or would track, or all
    but hidden and generated ones where `root` is no git checkout (a release archive)."""
    try:
        names = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = walk(root)
    # An entry can be tracked and yet deleted from the working tree.
    return sorted(Path(name) for name in names if name and (Path(root) / name).is_file())


def git(root, *arguments):
    # A clone owned by someone else (a container's mount) is as good to read as our own.
    command = ["git", "-c", "safe.directory=*", "-C", str(root), *arguments]
    # `root` itself has to be the checkout: neither a folder around it that happens to be one, nor
    # what GIT_DIR and the like name inside a git hook.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment["GIT_CEILING_DIRECTORIES"] = str(Path(root).resolve().parent)
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return run.stdout


def walk(root):
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in GENERATED_FOLDERS]
        for name in files:
            yield os.path.relpath(os.path.join(folder, name), root)


_COMMENT_OR_LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|"""
    r"""(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)


def blank_comments(text, literals=False):
    """`text` with comments (and string literals on request) replaced by spaces; lines stay."""

    def blank(match):
        token = match.group(0)
        if token.startswith("/") or literals:
            return re.sub(r"[^\n]", " ", token)
        return token

    return _COMMENT_OR_LITERAL.sub(blank, text)
