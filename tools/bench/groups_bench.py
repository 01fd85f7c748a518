#!/usr/bin/env python3
"""Ways of an all-reduce over groups of ranks, beside a flat ring: what build/cpu/collectives_bench measures, as tables.

--lab RATE...: nodes of four ranks as processes, over a really shaped link (tools/bench/netlab), beside plain Open MPI.
--rehearse: 16 to 128 ranks as threads over emulated links, eight in a group that is a node, or a switch with eight
nodes. Bytes are a 1,024th and time runs SLOWER times slower, so that two cores can follow: a row says what its GPUs
would take. `formula` is what a plan foresees of the overlapped way.

usage: tools/bench/groups_bench.py [--nodes N] --lab RATE...
       tools/bench/groups_bench.py --rehearse
"""

import argparse
import subprocess
import sys

import clusters
from runs import REPOSITORY, Workplace, cores_awake, lab_launch, mpi_environment, print_header, print_row

BENCH = REPOSITORY / "build/cpu/collectives_bench"
COLUMNS = ("mpi", "direct", "ring", "sequential", "overlapped", "formula")
MIB = 1 << 20
RANKS = 4  # of a node in the lab
OF_GROUP = 8
SCALE = 1024  # of bytes
SLOWER = 50
LARGEST = {"nodes": 1024, "switches": 256}  # MiB; over switches a round of 1,024 takes half a minute
NODE, NETWORK = 200e9, 50e9  # bytes a second of a pair of GPUs in a node, and of a node's adapter
SWITCH, UPLINK = 25e9, 6.25e9  # of a node of one GPU at its switch, and of its share of the way to others
INSIDE, BETWEEN = 5e-6, 20e-6  # latencies


def sums(command):
    """Of each size: milliseconds of an all-reduce in each column, none where there is none."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=mpi_environment())
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: ended with {done.returncode}\n{done.stderr}")
    rows = (line.split() for line in done.stdout.splitlines() if line.startswith("all_reduce"))
    return {int(row[1]): {name: None if cell == "-" else float(cell) for name, cell in zip(COLUMNS, row[2:])}
            for row in rows}


def measured(took, scale=1.0):
    """The cells of a row: milliseconds, the formula's error, and how much shorter overlapping is than the ring."""
    times = [f"{took[name] / scale:.4g}" if took[name] else "" for name in COLUMNS]
    off = 100 * (took["formula"] / took["overlapped"] - 1)
    return [*times, f"{off:.1f} %", f"{100 * (1 - took['overlapped'] / took['ring']):.1f} %"]


def header(*cells):
    print_header(*cells, "plain Open MPI", *COLUMNS[1:], "off by", "shorter than the ring")


def lab(rates, nodes):
    header("link of a node", "MiB")
    for rate in rates:
        command = [*lab_launch(rate, ranks_per_node=RANKS, nodes=nodes), str(BENCH), "--groups", str(nodes), "--ranks", str(RANKS),
                   "--min", str(MIB), "--max", str(64 * MIB), "--rounds", "3"]
        for size, took in sums(command).items():
            print_row(rate, size // MIB, *measured(took))


def emulated(scope, groups):
    """A cluster in which eight ranks are a node, or eight nodes stand at a switch."""
    def link(name, latency, bytes_per_second, shared_by):
        return clusters.link(name, SLOWER * latency, bytes_per_second / SCALE / SLOWER, duplex=True, shared_by=shared_by)

    if scope == "nodes":
        return clusters.cluster(groups, OF_GROUP, link("node", INSIDE, NODE, "pair"),
                                link("network", BETWEEN, NETWORK, "node"))
    return {**clusters.cluster(groups * OF_GROUP, 1, link("switch", INSIDE, SWITCH, "node"),
                               link("network", BETWEEN, UPLINK, "node")), "nodes_per_switch": OF_GROUP}


def rehearse(place):
    header("groups", "ranks", "MiB")
    for scope in ("nodes", "switches"):
        for groups in (2, 4, 8, 16):
            links = place.write("links.json", emulated(scope, groups))
            command = [str(BENCH), "--groups", str(groups), "--ranks", str(OF_GROUP), "--links", links,
                       "--min", str(64 * MIB // SCALE), "--max", str(LARGEST[scope] * MIB // SCALE), "--rounds", "2"]
            for size, took in sums(command).items():
                print_row(f"{groups} {scope}", groups * OF_GROUP, size * SCALE // MIB, *measured(took, SLOWER))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4, help="of the lab")
    parser.add_argument("--lab", nargs="+", metavar="RATE")
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    if not BENCH.exists():
        sys.exit(f"{BENCH}: not there; build it first")
    if arguments.lab:
        lab(arguments.lab, arguments.nodes)
    if arguments.rehearse:
        with cores_awake():
            rehearse(Workplace())


if __name__ == "__main__":
    main()
