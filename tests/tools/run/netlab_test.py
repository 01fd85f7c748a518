#!/usr/bin/env python3
"""tools/bench/netlab makes nodes, runs a command over them, and leaves nothing behind.

Exits with 77 where rights for a lab are missing and what needs none passes.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

BENCH = Path(__file__).resolve().parents[3] / "tools/bench"
NETLAB = BENCH / "netlab"
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))
import network_lab  # noqa: E402

SKIPPED = 77
LONGEST_WAIT = 60  # seconds
os.environ["PATH"] += ":/usr/sbin:/sbin"
os.environ["OMPI_MCA_odls_base_sigkill_timeout"] = "0"  # mpirun waits a second twice otherwise


def start(*arguments, before=(), **options):
    return subprocess.Popen([*before, sys.executable, str(NETLAB), *map(str, arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def call(*arguments, **options):
    """(exit code, output, messages)"""
    process = start(*arguments, **options)
    output, messages = process.communicate(timeout=LONGEST_WAIT)
    return process.returncode, output, messages


def reasons_for_no_lab():
    reasons = network_lab.missing()
    if not reasons:
        space = f"slackline-netlab-test-{os.getpid()}"
        try:
            network_lab.run("ip", "netns", "add", space)
            network_lab.run("ip", "netns", "del", space)
        except network_lab.Refusal as refusal:
            reasons.append(str(refusal))
    return ", ".join(reasons)


REASONS = reasons_for_no_lab()


class Arguments(unittest.TestCase):
    def assert_refused(self, arguments, *fragments):
        code, output, messages = call(*arguments)
        self.assertEqual((code, output), (2, ""), messages)
        self.assertEqual(messages.count("\n"), 1, messages)
        for fragment in fragments:
            self.assertIn(fragment, messages)

    def test_what_is_wrong_is_named_with_its_value(self):
        self.assert_refused([], "command after `--`")
        self.assert_refused(["--check", "--", "true"], "no command")
        self.assert_refused(["--nodes", "0", "--", "true"], "--nodes", "'0'", "1 to 64")
        self.assert_refused(["--ranks-per-node", "two", "--", "true"], "--ranks-per-node", "'two'")
        for rate in ("100", "0.5mbit", "11gbit", "-1mbit", "fast"):
            self.assert_refused([f"--rate={rate}", "--", "true"], "--rate", f"'{rate}'", "10gbit")
        self.assert_refused(["--counters", "/nowhere/x", "--", "true"], "--counters", "/nowhere/x")
        self.assert_refused(["--colour", "--", "true"], "--colour")


class Rights(unittest.TestCase):
    def assert_refused(self, before, reason):
        code, output, messages = call("--", "true", before=before)
        self.assertEqual((code, output), (2, ""), messages)
        self.assertIn(reason, messages)
        self.assertIn("network.links", messages)
        self.assertEqual(messages.count("\n"), 2, messages)

    def require(self, *command):
        try:
            done = subprocess.run([*command, "true"], capture_output=True, check=False)
        except FileNotFoundError:
            self.skipTest(f"no {command[0]} here")
        if done.returncode != 0:
            self.skipTest(f"{command[0]} is not allowed here")

    def test_other_users_than_root_are_told_what_serves_instead(self):
        before = ["unshare", "--user"] if os.geteuid() == 0 else []
        if before:
            self.require(*before)
        self.assert_refused(before, "not root")

    def test_root_without_rights_over_networks_is_told_so(self):
        before = ["setpriv", "--bounding-set=-net_admin"]
        self.require(*before)
        self.assert_refused(before, "no CAP_NET_ADMIN")

    def test_a_missing_command_is_named_with_its_package(self):
        with mock.patch("shutil.which", lambda name: None if name == "tc" else "/bin/" + name):
            self.assertIn("there is no tc command (package iproute2)", network_lab.missing())


@unittest.skipIf(REASONS, REASONS)
class Labs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.links = self.links_of_machine()
        self.started = []
        self.addCleanup(self.stop_all)

    def stop_all(self):
        for process in self.started:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=LONGEST_WAIT)

    @staticmethod
    def links_of_machine():
        listed = network_lab.run("ip", "-o", "link").splitlines()
        return sorted(line.split(":")[1] for line in listed)

    def labs_of(self, process):
        return [name for name in network_lab.names_of_labs() if f"-{process.pid}-" in name]

    def ranks(self):
        """Shells whose command names this test's folder."""
        found = []
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = place.read_text().split("\0")
            except OSError:
                continue
            if words[0] == "sh" and any(str(self.folder) in word for word in words):
                found.append(place.parent.name)
        return found

    def assert_clean(self, process):
        self.assertEqual(self.labs_of(process), [])
        self.assertEqual(self.ranks(), [])
        self.assertEqual(self.links_of_machine(), self.links)

    def wait_until(self, condition, what):
        end = time.monotonic() + LONGEST_WAIT
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.01)

    def start_waiting(self, name):
        """A lab whose ranks run until they are stopped, and end with 6 on SIGUSR1."""
        mark = self.folder / name
        script = f"trap 'exit 6' USR1; touch {mark}.$OMPI_COMM_WORLD_RANK; while :; do sleep 0.05; done"
        process = start("--", "sh", "-c", script)
        self.started.append(process)
        self.wait_until(lambda: len(list(self.folder.glob(f"{name}.*"))) == 2 or
                        process.poll() is not None, "ranks do not start")
        self.assertIsNone(process.poll())
        return process

    def test_ranks_of_a_node_share_its_name_and_memory_and_those_of_others_do_not(self):
        counters = self.folder / "counters.json"
        rank = "$OMPI_COMM_WORLD_RANK"
        script = (f"touch /dev/shm/{rank} {self.folder}/{rank}; "
                  f"while [ $(ls {self.folder} | wc -l) -lt 4 ]; do sleep 0.01; done; "
                  f"echo {rank} $(hostname) $(ls /dev/shm)")
        process = start("--nodes", 2, "--ranks-per-node", 2, "--counters", counters, "--", "sh", "-c", script)
        output, messages = process.communicate(timeout=LONGEST_WAIT)
        self.assertEqual(process.returncode, 0, messages)
        self.assertEqual(sorted(output.splitlines()),
                         ["0 node0 0 1", "1 node0 0 1", "2 node1 2 3", "3 node1 2 3"])
        report = json.loads(counters.read_text())
        self.assertEqual([node["node"] for node in report["nodes"]], ["node0", "node1"])
        for node in report["nodes"]:
            self.assertGreater(node["sent_bytes"], 66 * node["sent_packets"])
            self.assertGreater(node["received_bytes"], 66 * node["received_packets"])
        self.assert_clean(process)

    def test_the_exit_code_is_that_of_the_command(self):
        process = start("--rate", "none", "--", "sh", "-c", "exit $((7 * OMPI_COMM_WORLD_RANK))")
        process.communicate(timeout=LONGEST_WAIT)
        self.assertEqual(process.returncode, 7)
        self.assert_clean(process)

    def test_signals_end_a_run_and_its_lab(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process = self.start_waiting(number.name)
            process.send_signal(number)
            process.communicate(timeout=LONGEST_WAIT)
            self.assertEqual(process.returncode, 128 + number)
            self.assert_clean(process)

    def test_sigusr1_reaches_the_ranks(self):
        process = self.start_waiting("asked")
        process.send_signal(signal.SIGUSR1)
        process.communicate(timeout=LONGEST_WAIT)
        self.assertEqual(process.returncode, 6)
        self.assert_clean(process)

    def test_what_a_killed_run_leaves_is_removed_by_the_next_and_a_running_lab_is_not(self):
        running = self.start_waiting("running")
        killed = self.start_waiting("killed")
        killed.kill()
        killed.communicate(timeout=LONGEST_WAIT)
        self.assertNotEqual(self.labs_of(killed), [])
        code, _, messages = call("--", "true")
        self.assertEqual(code, 0, messages)
        self.assertIn(f"removed what process {killed.pid} left", messages)
        self.assertEqual(self.labs_of(killed), [])
        self.assertEqual(len(self.labs_of(running)), 1)
        self.assertGreaterEqual(len(self.ranks()), 2)  # and what they are just starting
        running.terminate()
        running.communicate(timeout=LONGEST_WAIT)
        self.assert_clean(running)

    def test_a_lab_that_cannot_be_finished_is_removed(self):
        tc = self.folder / "tc"
        tc.write_text("#!/bin/sh\necho no such qdisc >&2\nexit 1\n")
        tc.chmod(0o755)
        process = start("--", "true", env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"})
        _, messages = process.communicate(timeout=LONGEST_WAIT)
        self.assertEqual(process.returncode, 2)
        self.assertIn("no such qdisc", messages)
        self.assertIn("network.links", messages)
        self.assert_clean(process)

    # The check's own bound is narrower; other work on the machine may break that one.
    def test_the_check_measures_a_link_near_its_rate(self):
        process = start("--check", "--rate", "20mbit")
        output, messages = process.communicate(timeout=LONGEST_WAIT)
        self.assertIn("ok: host names of ranks: node0 node1", output, messages)
        found = re.findall(r"node\d to node\d: ([\d.]+) mbit/s", output)
        self.assertEqual(len(found), 2, output)
        for speed in found:
            self.assertTrue(5 < float(speed) < 50, output)
        self.assert_clean(process)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    if REASONS:
        print(f"SKIPPED: no lab was made and removed, because {REASONS}")
        sys.exit(SKIPPED)
