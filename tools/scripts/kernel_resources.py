#!/usr/bin/env python3
"""What CUDA kernels take of a multiprocessor, from the compiler's own words in the output of a build, and whether it is
within bounds: no spills, little stack but for the kernels named below, and shared memory that needs no asking.

usage: tools/scripts/kernel_resources.py BUILD.log...    (looks at the kernels that were compiled in it)
"""

import re
import shutil
import subprocess
import sys

MOST_SHARED = 48 << 10  # bytes a block, of those known when it is compiled
# Bytes a thread. Attention keeps words that decide its dropout in memory, for want of a register that is named at run time.
MOST_STACK = {"": 64, "forward_kernel": 136, "key_value_kernel": 136, "query_kernel": 136}

KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '(?P<card>\w+)'\n"
    r"(?:ptxas info\s*: )?Function properties for \S+\n"
    r"\s*(?P<stack>\d+) bytes stack frame, (?P<spills>\d+) bytes spill stores, \d+ bytes spill loads\n"
    r"ptxas info\s*: Used (?P<registers>\d+) registers(?P<rest>[^\n]*)"
)


def readable(names):
    if not shutil.which("c++filt"):
        return names
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    short = []
    for line in done.stdout.splitlines():
        line = line.replace("slackline::cuda::", "").replace("(anonymous namespace)::", "").removeprefix("void ")
        short.append(line.split("(")[0])
    return short


def main(paths):
    text = "".join(open(path, encoding="utf-8", errors="replace").read() for path in paths)
    found = [match.groupdict() for match in KERNEL.finditer(text)]
    if not found:
        print("no kernel was compiled anew in this build: nothing to look at")
        return 0
    for kernel, name in zip(found, readable([kernel["name"] for kernel in found])):
        kernel["name"] = name
        shared = re.search(r"(\d+) bytes smem", kernel["rest"])
        kernel["shared"] = int(shared.group(1)) if shared else 0
    print(f"{'registers':>9} {'stack':>6} {'spills':>6} {'shared':>6}  card     kernel")
    beyond = []
    for kernel in sorted(found, key=lambda one: (-int(one["registers"]), one["name"], one["card"])):
        print(f"{kernel['registers']:>9} {kernel['stack']:>6} {kernel['spills']:>6} {kernel['shared']:>6}  "
              f"{kernel['card']:<8} {kernel['name']}")
        stack = max(most for name, most in MOST_STACK.items() if name in kernel["name"])
        if int(kernel["spills"]) > 0 or int(kernel["stack"]) > stack or kernel["shared"] > MOST_SHARED:
            beyond.append(kernel)
    print(f"{len(found)} kernels, {len(beyond)} beyond bounds")
    for kernel in beyond:
        print(f"error: {kernel['name']} for {kernel['card']}: {kernel['stack']} bytes of stack, {kernel['spills']} of "
              f"spills, {kernel['shared']} of shared memory", file=sys.stderr)
    return 1 if beyond else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
