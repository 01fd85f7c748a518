"""Nodes on one machine: network namespaces with host names of their own, joined by a bridge through links that
token buckets slow down. See netlab, the script."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PREFIX = "slackline-netlab"
SPACES = Path("/var/run/netns")  # where `ip netns` keeps names
FILES = Path("/run")  # only root writes here: names that can be guessed do no harm
INTERFACE = "lab0"
HUB = "hub"  # the namespace of the bridge and of mpirun
MOST_NODES = 64
SECONDS_TO_END = 5  # after SIGTERM

FRAME_BYTES = 1514  # Ethernet, IP and TCP headers and data
FRAME_HEADER_BYTES = 66  # Ethernet 14, IP 20, TCP 20 and its time stamps 12
LARGEST_PIECE_BYTES = 65536  # that the kernel sends under one header, to be cut into frames by the interface

# A bucket sends what it holds at once: above the rate, after every pause. So it has to be small against
# messages, yet large against the lateness of timers, or the rate is not reached: of 1 gbit/s on a busy
# machine half a millisecond's worth lost 5 to 20 %, a whole one's 0 to 10 %. Below 25 mbit/s two frames
# are more.
BURST_SECONDS = 0.001
# What may wait in front of a bucket. Acknowledgements wait there too, so a long queue slows the other direction
# down: one of 200 ms took a third of 10 mbit/s. A short one loses frames where several nodes send to one, and
# those are sent and counted again. What is refused by the queue of the sending node was never sent.
QUEUE_SECONDS = 0.02
LEAST_QUEUE_FRAMES = 16

# Runs a line for a shell on a node, as ssh would: Open MPI calls it, and so does this script. The
# process id stays the same, so signals arrive. `ip netns exec` has made mounts private.
AGENT = """node=$1
shift
exec ip netns exec {name}-"$node" unshare --uts --ipc sh -c '
  hostname "$1" && mount -t tmpfs netlab /dev/shm && exec sh -c "$2"' sh "$node" "$*"
"""
# No IPv6: its announcements would be counted. Cubic, a way to control congestion, sends until frames
# queue up; others, as bbr, keep to speeds that they have measured themselves.
SETTINGS = """set -e
for name in all default; do
  [ ! -e /proc/sys/net/ipv6/conf/$name ] || echo 1 > /proc/sys/net/ipv6/conf/$name/disable_ipv6
done
echo cubic 2> /dev/null > /proc/sys/net/ipv4/tcp_congestion_control || true
ip link set lo up"""
# Cores take turns at a link, frames overtake each other, and the receiver asks again for those that it thinks
# lost. This keeps a connection on one core, where the kernel can.
KEEP_ORDER = f"""for queue in /sys/class/net/$1/queues/rx-*; do
  echo {(1 << min(os.cpu_count(), 32)) - 1:x} 2> /dev/null > $queue/rps_cpus || true
done"""
# Lets root start mpirun, which refuses that otherwise.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
COUNTERS = f"cd /sys/class/net/{INTERFACE}/statistics && cat tx_bytes tx_packets rx_bytes rx_packets"


class Refusal(Exception):
    """Why there can be no lab."""


def run(*command):
    """Runs a command of the setup and returns what it prints."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip() or f"ended with {done.returncode}"
        raise Refusal(f"{shlex.join(command)}: {reason}")
    return done.stdout


def missing():
    """What a lab needs and this process has not."""
    packages = {
        "ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "setpriv": "util-linux",
        "mount": "mount", "hostname": "hostname", "mpirun": "openmpi-bin",
    }
    lacks = [f"there is no {name} command (package {package})"
             for name, package in packages.items() if not shutil.which(name)]
    if os.geteuid() != 0:
        return ["this user is not root", *lacks]
    capabilities = int(re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[1], 16)
    for name, bit in (("CAP_NET_ADMIN", 12), ("CAP_SYS_ADMIN", 21)):
        if not capabilities >> bit & 1:
            lacks.append(f"root has no {name} (as in most containers)")
    return lacks


def start_time(process):
    """Tells a process from a later one with the same id. None where there is none."""
    try:
        after_name = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2]
    except OSError:
        return None
    return after_name.split()[19]


def own_name():
    return f"{PREFIX}-{os.getpid()}-{start_time(os.getpid())}"


def names_of_labs():
    places = [place for folder in (SPACES, FILES) if folder.is_dir() for place in folder.iterdir()]
    matches = [re.match(PREFIX + r"-\d+-\d+", place.name) for place in places]
    return {match[0] for match in matches if match}


def processes_in(space):
    listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
    return [int(process) for process in listed.stdout.split()]


def remove(name):
    """Ends every process of a lab, then deletes its namespaces, links with them, and its files. What is gone
    already is no failure: another lab may remove the same leftovers."""
    spaces = [place.name for place in SPACES.glob(f"{name}-*")]
    end = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < end:
        processes = [process for space in spaces for process in processes_in(space)]
        if not processes:
            break
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    for space in spaces:
        subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
    shutil.rmtree(FILES / name, ignore_errors=True)


def remove_leftovers():
    """Removes what runs that were killed left behind."""
    for name in names_of_labs():
        process, started = name.split("-")[-2:]
        if start_time(process) != started:
            remove(name)
            print(f"netlab: removed what process {process} left behind", file=sys.stderr)


class Lab:
    """Nodes: made by make(), removed by remove(name)."""

    def __init__(self, name, nodes, rate):
        self.name = name
        self.files = FILES / name
        self.agent = self.files / "agent"  # run by sh: /run may forbid to execute files
        self.nodes = [f"node{i}" for i in range(nodes)]
        self.rate = rate  # bits a second, or None

    def space(self, node):
        return f"{self.name}-{node}"

    def address(self, node):
        return f"10.0.0.{self.nodes.index(node) + 1}"

    def make(self):
        try:
            self.files.mkdir(mode=0o700)
            self.agent.write_text(AGENT.format(name=self.name))
        except OSError as error:
            raise Refusal(str(error)) from error
        self._add_space(HUB)
        hub = ("ip", "-n", self.space(HUB), "link")
        run(*hub, "add", INTERFACE, "type", "bridge")
        self._raise(HUB, INTERFACE, f"10.0.0.{MOST_NODES + 1}")
        for node in self.nodes:
            self._add_space(node)
            run(*hub, "add", node, "type", "veth", "peer", "name", INTERFACE, "netns", self.space(node))
            run(*hub, "set", node, "master", INTERFACE)
            self._raise(HUB, node)
            self._raise(node, INTERFACE, self.address(node))
            self._shape(node, INTERFACE)  # what the node sends
            self._shape(HUB, node)  # what all others send to it

    def change_rate(self, rate):
        """Changes the rate of a lab that has one; also while ranks run."""
        self.rate = rate
        for node in self.nodes:
            self._shape(node, INTERFACE)
            self._shape(HUB, node)

    def _add_space(self, node):
        run("ip", "netns", "add", self.space(node))
        run("ip", "netns", "exec", self.space(node), "sh", "-c", SETTINGS)

    def _raise(self, node, interface, address=None):
        ip = ("ip", "-n", self.space(node))
        if address:
            run(*ip, "address", "add", f"{address}/24", "dev", interface)
        run(*ip, "link", "set", interface, "up")
        run("ip", "netns", "exec", self.space(node), "sh", "-c", KEEP_ORDER, "sh", interface)

    def _shape(self, node, interface):
        if self.rate is None:
            return
        bytes_per_second = self.rate / 8
        burst = max(2 * FRAME_BYTES, int(bytes_per_second * BURST_SECONDS))
        # The kernel sends pieces of several frames. Those that a bucket cannot hold would be cut on their way,
        # and lost in part where the queue is full.
        piece = min(burst * (FRAME_BYTES - FRAME_HEADER_BYTES) // FRAME_BYTES, LARGEST_PIECE_BYTES)
        run("ip", "-n", self.space(node), "link", "set", interface, "gso_max_size", str(piece))
        limit = max(LEAST_QUEUE_FRAMES * FRAME_BYTES, int(bytes_per_second * QUEUE_SECONDS))
        run("tc", "-n", self.space(node), "qdisc", "replace", "dev", interface, "root", "tbf",
            "rate", f"{self.rate}bit", "burst", str(burst), "limit", str(limit))

    def start(self, node, command, **options):
        """Starts a command on a node. It is told to end when this process ends."""
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "sh", self.agent, node, shlex.join(["exec", *command])],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's signals come through this process only
            **options)

    def start_ranks(self, ranks_per_node, command, **options):
        """Starts mpirun, which takes ranks with one host name to be on one host."""
        settings = {
            "plm": "rsh",
            "plm_rsh_agent": f"sh {self.agent}",
            "plm_rsh_no_tree_spawn": 1,  # only the hub starts daemons
            "orte_tmpdir_base": self.files,  # gets a directory for each host name
            # Other ways to send ask the kernel who is near, which would find everybody near.
            "pml": "ob1",
            "btl": "self,vader,tcp",
            "btl_tcp_if_include": INTERFACE,
            "oob_tcp_if_include": INTERFACE,
            "mpi_yield_when_idle": 1,  # a node does not know that others use its cores
        }
        ranks = ranks_per_node * len(self.nodes)
        environment = {
            "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // ranks)),  # for the same reason
            **os.environ,
            **AS_ROOT,
        }
        hosts = ",".join(f"{node}:{ranks_per_node}" for node in self.nodes)
        mca = [str(word) for key, value in settings.items() for word in ("--mca", key, value)]
        launch = ["mpirun", *mca, "--oversubscribe", "--bind-to", "none", "--map-by", "slot",
                  "--host", hosts, "-np", str(ranks)]
        return self.start(HUB, [*launch, *command], env=environment, **options)

    def counters(self):
        """What the interface of each node has carried. Bytes are those of Ethernet frames without check
        sums: the command's data and MPI's own words, frames that were lost and sent again, mpirun's
        messages to its daemons and the ranks' output, and 66 bytes of headers to a packet, also to those
        that only acknowledge. A packet is what the kernel passes on under one header: few frames at low
        rates, up to 64 kB at high ones, where a wire would carry 66 bytes with each 1448 of data. Bytes -
        66 x packets are free of headers at any rate. What ranks of one node tell each other is not in it."""
        names = ("sent_bytes", "sent_packets", "received_bytes", "received_packets")
        texts = [run("ip", "netns", "exec", self.space(node), "sh", "-c", COUNTERS) for node in self.nodes]
        return [dict(zip(names, map(int, text.split()))) for text in texts]
