"""Checkouts under build/ that are built apart from the working tree: shared by tools/golden_bits
and tools/try_breaks."""

import filecmp
import io
import os
import shutil
import subprocess
import tarfile

from source_tree import ROOT, git, list_files

WORKING_TREE = "."


class BuildFailed(Exception):
    """Holds the end of what the build printed."""


def commit_of(name):
    """The full hash of a commit, or None if there is no such commit."""
    try:
        return git(ROOT, "rev-parse", "--verify", "--quiet", name + "^{commit}").strip()
    except subprocess.CalledProcessError:
        return None


def check_out(commit, folder):
    """Writes the files of a commit into `folder`, unless they are there. A folder that exists is
    whole, because it is renamed into place."""
    if folder.exists():
        return
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "archive", "--format=tar", commit]
    archive = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(partial)
    partial.rename(folder)


def copy_working_tree(folder):
    """Makes `folder` hold the files of the working tree. Files that are equal already keep their
    time, so that a build goes on from what it has; files that are gone are removed."""
    names = set(list_files(ROOT))
    for name in names:
        source, target = ROOT / name, folder / name
        if target.is_file() and filecmp.cmp(source, target, shallow=False):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and name.parts[0] != "build" and name not in names:
            path.unlink()


def replace_once(folder, path, old, new):
    """Replaces the one place of a file that reads `old`. Fails if there is none or more than one,
    so that a change whose place has moved is noticed."""
    text = (folder / path).read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise LookupError(f"{path}: found {text.count(old)} times instead of once:\n{old}")
    (folder / path).write_text(text.replace(old, new), encoding="utf-8")


def configure(folder):
    """Configures preset cpu, once. CMake takes a compiler launcher from the environment
    (CMAKE_CXX_COMPILER_LAUNCHER)."""
    if not (folder / "build/cpu/build.ninja").exists():
        run_quietly(folder, ["cmake", "--preset", "cpu"])


def has_target(folder, target):
    rules = (folder / "build/cpu/build.ninja").read_text(encoding="utf-8")
    return f"build {target}:" in rules


def build(folder, targets):
    run_quietly(folder, ["cmake", "--build", "--preset", "cpu", "--target", *targets])


def run_quietly(folder, command):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    run = subprocess.run(command, cwd=folder, env=environment, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode != 0:
        raise BuildFailed(f"{' '.join(command)} in {folder} failed:\n{run.stdout[-4000:]}")
