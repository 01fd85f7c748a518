#!/usr/bin/env python3
"""What `slackline report` draws, looked at in a headless browser, and how it refuses.

usage: report_page_test.py SLACKLINE

Trains one run, opens its report (with a sweep beside it) once, at the width of a phone and of a
printed page, and compares what is drawn with the run's files. Exits with 77 where there is no
browser and what needs none passes.
"""

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SKIPPED = 77
BINARY = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
PROBE = Path(__file__).with_name("report_probe.html")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
STEPS = 12
REPORT_START = "<!doctype html>\n<!-- slackline report -->\n"

# A name that is markup, an attribute's end and an entity where it is not escaped, and too long for
# any line.
HOSTILE = "\"run\" & 'it' <img src=x onerror=parent.ran=1> <script>parent.ran=2<!-- &lt;" + "w" * 90
REASON = "edited: </td></table><script>parent.ran=3</script>" + "r" * 120

CONFIG = {
    "run": {"steps": STEPS, "eval_every": 4, "eval_batches": 1},
    "precision": "fp32", "trace": True,
    "model": {"layers": 4, "hidden": 64, "heads": 4, "sequence": 32, "vocab": 257},
    "data": {"split": [0.8, 0.2, 0]},
    "batch": {"global": 16, "micro": 2},
    "parallel": {"tensor": 2, "pipeline": 2, "data": 2, "sequence_parallel": True,
                 "data_strategy": "zero1"},
    "compress": {"policy": "optimus_cc",
                 "pipeline_backward": {"codec": "low_rank", "rank": 4, "error_feedback": "lazy"},
                 "data_gradient": {"codec": "low_rank", "rank": 4, "error_feedback": "immediate"}},
    "network": {"links": "probe"},
}

SWEEP = [
    {"run": "run-000", "settings": {"optimizer.lr": 0.001, "data.train.0.path": "p" * 150},
     "status": "done", "exit_code": 0, "message": "", "loss": 3.5, "eval_loss": 3.25,
     "step_seconds": 0.5, "tokens_per_second": 1000, "exposed_seconds": 0.125,
     "axes": {"data": {"raw_bytes": 4000, "sent_bytes": 1000, "exposed_seconds": 0.0625}}},
    {"run": HOSTILE, "settings": {"<b>&key": "<i>value"}, "status": "failed", "exit_code": 5,
     "message": REASON, "loss": None, "eval_loss": None, "tokens_per_second": None, "axes": None},
    {"run": "run-002", "settings": {"optimizer.lr": 0.002}, "status": "done", "exit_code": 0,
     "message": "", "loss": 3.0, "eval_loss": 2.75, "tokens_per_second": 3000},
    {"run": "run-003", "settings": {"optimizer.lr": 0.003}, "status": "pending"},
]


def slackline(*arguments):
    return subprocess.run([str(BINARY), *map(str, arguments)], capture_output=True, text=True)


def train(folder):
    """A run directory with a hostile name and reason."""
    corpus = folder / "corpus.jsonl"
    text = " ".join(f"line {i % 7} of a document." for i in range(40))
    corpus.write_text("\n".join(json.dumps({"text": text}) for _ in range(60)))
    run = folder / HOSTILE
    config = json.loads(json.dumps(CONFIG))
    config["run"]["dir"] = str(run)
    config["data"]["train"] = [{"path": str(folder / "corpus")}]
    (folder / "config.json").write_text(json.dumps(config))
    for arguments in (["prepare", "--input", corpus, "--tokenizer", "byte", "--out", folder / "corpus"],
                      ["train", folder / "config.json", "--ranks", 8]):
        ended = slackline(*arguments)
        if ended.returncode != 0:
            raise RuntimeError(ended.stderr)
    plan = json.loads((run / "plan.json").read_text())
    plan[0]["classes"][0]["reason"] = REASON
    (run / "plan.json").write_text(json.dumps(plan))
    return run


def make_sweep(folder, run):
    sweep = folder / "sweep"
    for name in ("run-000", "run-002"):
        (sweep / name).mkdir(parents=True)
        shutil.copy(run / "metrics.jsonl", sweep / name)
    (sweep / "results.json").write_text(json.dumps(SWEEP))
    return sweep


def open_page(folder, report):
    """What the probe saw of the report."""
    probe = folder / "probe.html"
    probe.write_text(PROBE.read_text().replace("REPORT", report.name))
    environment = {**os.environ, "HOME": str(folder), "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
    shown = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--hide-scrollbars", "--allow-file-access-from-files", f"--user-data-dir={folder / 'browser'}",
         "--virtual-time-budget=20000", "--dump-dom", probe.as_uri()],
        capture_output=True, text=True, env=environment, timeout=120)
    found = re.search(r'<pre id="result">(.*?)</pre>', shown.stdout, re.DOTALL)
    if not found or not found[1]:
        raise RuntimeError(f"the page said nothing: {shown.stderr[-2000:]}")
    seen = json.loads(html.unescape(found[1]))
    if "error" in seen:
        raise RuntimeError(seen["error"])
    return seen


def setUpModule():
    global FOLDER, RUN, SWEEP_DIR, REPORT
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    FOLDER = Path(folder.name)
    RUN = train(FOLDER)
    SWEEP_DIR = make_sweep(FOLDER, RUN)
    REPORT = FOLDER / "report.html"
    made = slackline("report", RUN, SWEEP_DIR, "--out", REPORT)
    if made.returncode != 0 or made.stderr:
        raise RuntimeError(made.stderr)


def metrics():
    lines = [json.loads(line) for line in (RUN / "metrics.jsonl").read_text().splitlines()]
    return ([line for line in lines if "loss" in line], [line for line in lines if "eval_loss" in line])


def value_at(ticks, axis, pixel):
    """The value that a pixel stands for, from the first and last tick."""
    first, last = ticks[0], ticks[-1]
    return first["value"] + (pixel - first[axis]) * (last["value"] - first["value"]) / (
        last[axis] - first[axis])


LEFT, RIGHT = 104.0, 746.0  # of a timeline's bars
TEXT_OFFSET = 4  # a tick's text stands so much below its line


def y_value(chart, pixel):
    return value_at(chart["y_ticks"], "y", pixel + TEXT_OFFSET)


@unittest.skipIf(BROWSER is None, "no chromium")
class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.seen = open_page(FOLDER, REPORT)
        cls.page = cls.seen["page"]

    def test_loss_lines_have_the_points_of_the_metrics(self):
        steps, evaluations = metrics()
        self.assertEqual((len(steps), len(evaluations)), (STEPS, STEPS // 4))
        chart, = self.page["loss"]
        for line, expected, key in zip(chart["lines"], (steps, evaluations), ("loss", "eval_loss"), strict=True):
            self.assertEqual(len(line), len(expected))
            for (x, y), metric in zip(line, expected):
                self.assertAlmostEqual(value_at(chart["x_ticks"], "x", x), metric["step"], delta=0.01)
                self.assertAlmostEqual(y_value(chart, y), metric[key], delta=0.01)

    def test_bars_add_up_to_step_seconds(self):
        steps, _ = metrics()
        chart, = self.page["step_time"]
        per_second = {"s": 1, "ms": 1e3, "µs": 1e6}[chart["labels"][1]]
        self.assertEqual(len(chart["stacks"]), len(steps))
        ticks = chart["y_ticks"]
        per_pixel = (ticks[-1]["value"] - ticks[0]["value"]) / (ticks[0]["y"] - ticks[-1]["y"])
        for parts, step in zip(chart["stacks"], steps):
            self.assertGreater(len(parts), 3)
            height = sum(part["height"] for part in parts)
            expected = step["step_seconds"] * per_second
            self.assertAlmostEqual(height * per_pixel, expected, delta=0.01 * expected)
            # They stand on each other, the lowest on the axis.
            bottom = max(part["y"] + part["height"] for part in parts)
            top = min(part["y"] for part in parts)
            self.assertAlmostEqual(bottom - top, height, delta=0.1)
            self.assertAlmostEqual(y_value(chart, bottom), 0, delta=0.01 * expected)

    def bars(self, which, *classes):
        timeline, = self.page[which]
        return [bar for bar in timeline["bars"] if set(classes) <= set(bar["classes"])]

    def test_the_predicted_timeline_stands_above_the_measured_one(self):
        self.assertLess(self.page["predicted"][0]["top"], self.page["measured"][0]["top"])
        self.assertIn("measured costs", self.page["predicted"][0]["caption"])
        self.assertIn("in step 3", self.page["measured"][0]["caption"])
        micro_batches = 4
        for which, ranks in (("predicted", 2), ("measured", 8)):
            for kind in ("forward", "backward"):
                self.assertEqual(len(self.bars(which, kind)), ranks * micro_batches)
            for bar in self.bars(which):
                self.assertTrue(bar["seen"])
                self.assertGreaterEqual(bar["x"], LEFT)
                self.assertLessEqual(bar["x"] + bar["width"], RIGHT + 1)
            first = min(bar["x"] for bar in self.bars(which, "forward"))
            self.assertLess(first, LEFT + 0.2 * (RIGHT - LEFT))

    def test_the_critical_path_is_marked_and_spans_the_step(self):
        critical = self.bars("predicted", "critical")
        plain = [bar for bar in self.bars("predicted") if "critical" not in bar["classes"]]
        self.assertGreater(len(critical), 5)
        self.assertGreater(len(plain), 5)
        self.assertTrue(all(bar["stroke"] != "none" for bar in critical))
        self.assertTrue(all(bar["stroke"] == "none" for bar in plain))
        covered, end = 0.0, LEFT
        for bar in sorted(critical, key=lambda bar: bar["x"]):
            covered += max(0.0, bar["x"] + bar["width"] - max(bar["x"], end))
            end = max(end, bar["x"] + bar["width"])
        longest = max(bar["x"] + bar["width"] for bar in self.bars("predicted"))
        self.assertGreater(covered, 0.8 * (longest - LEFT))
        # The same ops of all replicas are outlined below.
        passes = lambda which: sum("forward" in bar["classes"] or "backward" in bar["classes"]
                                   for bar in self.bars(which, "critical"))
        self.assertEqual(passes("measured"), 4 * passes("predicted"))
        self.assertIn("outlined: on the critical path", self.page["predicted"][0]["legend"])

    def test_compressed_transfers_are_hatched_and_no_others(self):
        plan = json.loads((RUN / "plan.json").read_text())[-1]
        compressed = {(row["site"], row["stage"], row["phase"]) for row in plan["classes"] if row["codec"]}
        self.assertEqual(compressed, {("pipeline_backward", 1, "cooldown"), ("data_gradient", 0, "tail"),
                                      ("data_gradient", 1, "tail")})
        self.assertTrue(self.page["hatch"])
        for which, replicas in (("predicted", 1), ("measured", 4)):
            # The cool-down of the last of two stages is its last message.
            messages = self.bars(which, "compressed", "gradients")
            self.assertEqual(len(messages), replicas)
            self.assertEqual(len(self.bars(which, "gradients")), 4 * replicas)
            last = max(bar["x"] for bar in self.bars(which, "gradients"))
            self.assertIn(last, [bar["x"] for bar in messages])
            self.assertEqual(self.bars(which, "compressed", "activations"), [])
            self.assertGreaterEqual(len(self.bars(which, "compressed", "data")), 2)
            self.assertGreater(len(self.bars(which, "data")), len(self.bars(which, "compressed", "data")))
            timeline, = self.page[which]
            place = lambda bar: (bar["x"], bar["y"])
            self.assertEqual(sorted(map(place, timeline["hatches"])),
                             sorted(map(place, self.bars(which, "compressed"))))
            self.assertTrue(all("#hatch" in hatch["fill"] for hatch in timeline["hatches"]))
            self.assertIn("hatched: compressed", timeline["legend"])

    def test_bytes_are_those_of_the_metrics(self):
        steps, _ = metrics()
        chart, = self.page["bytes"]
        self.assertEqual(chart["names"], [f"{axis}, {which}"
                                          for axis in ("tensor", "pipeline", "data", "embedding")
                                          for which in ("raw", "sent")])
        mean = [sum(step["axes"][name.split(", ")[0]][name.split(", ")[1] + "_bytes"] for step in steps)
                / len(steps) for name in chart["names"]]
        scale = chart["bars"][0]["width"] / mean[0]
        for bar, expected in zip(chart["bars"], mean):
            self.assertAlmostEqual(bar["width"], expected * scale, delta=0.1)
        raw, sent = (mean[chart["names"].index(f"data, {which}")] for which in ("raw", "sent"))
        self.assertLess(sent, raw)

    def test_a_sweep_is_a_table_and_points_of_speed_against_loss(self):
        scatter, = self.page["scatter"]
        self.assertEqual(scatter["point_labels"], ["1", "3"])
        for point, row in zip(scatter["points"], (SWEEP[0], SWEEP[2]), strict=True):
            self.assertAlmostEqual(value_at(scatter["x_ticks"], "x", point["cx"]),
                                   row["tokens_per_second"], delta=5)
            self.assertAlmostEqual(y_value(scatter, point["cy"]), row["eval_loss"], delta=0.01)
        for text in ("done", "failed", "pending", "run-000", "optimizer.lr = 0.002", "<b>&key = <i>value"):
            self.assertIn(text, self.page["cells"])
        curves, = self.page["sweep_loss"]
        self.assertEqual([len(line) for line in curves["lines"]], [STEPS, STEPS])

    def test_names_from_files_are_shown_and_nothing_of_them_runs(self):
        self.assertIsNone(self.seen["ran"])
        self.assertEqual(self.page["foreign"], [])
        self.assertIn(f"Run {RUN}", self.page["headings"])
        self.assertIn(REASON, self.page["cells"])
        self.assertIn(HOSTILE, self.page["cells"])

    def test_nothing_is_wider_than_a_phone(self):
        self.assertIn("width=device-width", self.page["viewport"])
        self.assertEqual(self.seen["phone"], {"width": 360, "page": 360, "wide": []})

    def test_nothing_is_wider_than_paper(self):
        self.assertEqual(self.seen["paper"], {"width": 718, "page": 718, "wide": []})

    def test_a_whole_run_has_no_remarks_but_that_of_its_scales(self):
        for notice in self.page["notices"]:
            self.assertIn("time scales of their own", notice)


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.run = self.folder / "run"
        shutil.copytree(RUN, self.run, ignore=shutil.ignore_patterns("checkpoints"))

    def assert_refused(self, code, message, *arguments):
        before = sorted(self.folder.rglob("*"))
        ended = slackline("report", *arguments)
        self.assertEqual(ended.returncode, code, ended.stderr)
        self.assertIn(message, ended.stderr)
        self.assertEqual(len(ended.stderr.strip().splitlines()), 1, ended.stderr)
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_it_asks_for_nothing_outside_the_file(self):
        text = REPORT.read_text()
        self.assertTrue(text.startswith(REPORT_START))
        self.assertNotRegex(text, r"https?://|@import|url\((?!#hatch\))")
        self.assertNotRegex(text, r"<(script|link|img|iframe)\b")

    def test_the_same_files_give_the_same_report_in_the_first_directory(self):
        for _ in range(2):
            ended = slackline("report", self.run)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""))
            self.assertEqual(ended.stdout, f"{self.run}/report.html\n")
        first = (self.run / "report.html").read_text()
        self.assertEqual(slackline("report", self.run, "--out", self.folder / "b").returncode, 0)
        self.assertEqual((self.folder / "b").read_text(), first)

    def test_a_cut_last_line_is_told_and_left_out(self):
        path = self.run / "metrics.jsonl"
        path.write_text(path.read_text() + '{"step": 13, "loss": 3.')
        ended = slackline("report", self.run)
        self.assertEqual(ended.returncode, 0)
        self.assertIn("metrics.jsonl: the last line is cut", ended.stderr)
        text = (self.run / "report.html").read_text()
        self.assertIn("The last line of metrics.jsonl is cut", text)
        self.assertIn("<td>12 of 12</td>", text)

    def test_bytes_between_groups_have_a_column_where_a_run_has_groups(self):
        self.assertEqual(slackline("report", self.run).returncode, 0)
        self.assertNotIn("between groups", (self.run / "report.html").read_text())
        path = self.run / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            for name, axis in line.get("axes", {}).items():
                axis["across_bytes"] = 5123 if name == "data" else 0
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual(slackline("report", self.run).returncode, 0)
        text = (self.run / "report.html").read_text()
        self.assertIn("between groups a step", text)
        self.assertEqual(text.count("5.123 kB"), 2)  # of the data axis, and of all

    def test_outer_rounds_have_a_section_where_a_run_has_them(self):
        self.assertEqual(slackline("report", self.run).returncode, 0)
        self.assertNotIn("Outer rounds", (self.run / "report.html").read_text())
        path = self.run / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        travels = {3: {}, 6: {"sent_step": 3, "round_seconds": 3.25, "period_seconds": 4.5, "wait_seconds": 0},
                   9: {"sent_step": 6, "round_seconds": 5.125, "period_seconds": 4.0, "wait_seconds": 1.125},
                   12: {}}
        for line in lines:
            if "loss" in line and line["step"] in travels:
                line["step_seconds"] = 2.25
                line["worker_losses"] = [3.0625, 3.5, 3.25]
                line["outer"] = {"penalty": 1.75, "distance": 0.0375, "period": 4,
                                 "left_out": line["step"] == 12, **travels[line["step"]]}
            elif "loss" in line:
                line["step_seconds"] = 0
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        ended = slackline("report", self.run)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        text = (self.run / "report.html").read_text()
        self.assertIn("3 workers; 4 rounds ended, 1 left out. Of 2 rounds that arrived, 1 hid behind "
                      "steps; training waited 1.125 s for rounds, 12.5 % of the seconds of its steps.",
                      text)
        rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)]
        shared = ["4", "1.75", "0.0375", "3.062", "3.5"]
        for row in (["3", "-", "-", "-", "-", "-", *shared, ""],
                    ["6", "3", "3.25 s", "4.5 s", "1.25 s", "0 s", *shared, ""],
                    ["9", "6", "5.125 s", "4 s", "0 s", "1.125 s", *shared, ""],
                    ["12", "-", "-", "-", "-", "-", *shared, "left out: not finite"]):
            self.assertIn(row, rows)
        for kind, curves in (("round-times", 3), ("worker-losses", 2), ("worker-distance", 1)):
            figure = re.search(rf'<figure class="[^"]*{kind}".*?</figure>', text, re.DOTALL)
            self.assertEqual(figure[0].count("<polyline"), curves)

    def test_rounds_that_a_resume_began_are_counted_and_not_predicted(self):
        path = self.run / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            for axis in line.get("axes", {}).values():
                axis.update(raw_bytes=0, sent_bytes=0, exposed_seconds=0)
            if "axes" in line and line["step"] > STEPS - 2:
                line["axes"]["outer"] = {"raw_bytes": 7000, "sent_bytes": 3500, "exposed_seconds": 0.125}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual(slackline("report", self.run).returncode, 0)
        text = (self.run / "report.html").read_text()
        rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)]
        bytes_of = {row[0]: row[3:6] for row in rows if len(row) > 5}
        self.assertEqual(bytes_of["outer"], ["14 kB", "7 kB", "50.0 %"])
        self.assertEqual(bytes_of["all"], ["14 kB", "7 kB", "50.0 %"])
        predicted, = [row[-1] for row in rows if row and row[0] == "exposed: outer rounds"]
        self.assertEqual(predicted, "-")

    def test_a_sweeps_points_are_those_of_runs_that_ended(self):
        row = {"settings": {}, "message": "", "loss": 3.5, "tokens_per_second": 1000}
        rows = [{**row, "run": "short", "status": "done", "steps": 20},
                {**row, "run": "broken", "status": "failed", "exit_code": 4, "steps": 10},
                {**row, "run": "long", "status": "done", "steps": 40}]
        (self.folder / "results.json").write_text(json.dumps(rows))
        self.assertEqual(slackline("report", self.folder).returncode, 0)
        figure = re.search(r'<figure class="[^"]*scatter".*?</figure>',
                           (self.folder / "report.html").read_text(), re.DOTALL)[0]
        self.assertEqual(figure.count("<circle"), 2)
        self.assertIn("losses are of different numbers of steps", figure)
        self.assertIn("short: -, 20 steps", figure)
        self.assertNotIn("broken", figure)
        self.assertIn("1 of 3 runs have no such point", (self.folder / "report.html").read_text())

    def test_a_sweep_tells_which_of_its_runs_has_a_cut_line(self):
        sweep = self.folder / "sweep"
        shutil.copytree(SWEEP_DIR, sweep)
        with (sweep / "run-002" / "metrics.jsonl").open("a") as file:
            file.write('{"step": 13, "lo\n')
        ended = slackline("report", sweep)
        self.assertEqual(ended.returncode, 0)
        self.assertIn("run-002/metrics.jsonl: the last line is cut", ended.stderr)
        self.assertNotIn("run-000", ended.stderr)
        self.assertIn("run-002: the last line of metrics.jsonl is cut", (sweep / "report.html").read_text())

    def test_a_run_without_trace_or_costs_says_how_to_get_them(self):
        (self.run / "trace.json").unlink()
        (self.run / "costs.json").unlink()
        self.assertEqual(slackline("report", self.run).returncode, 0)
        text = (self.run / "report.html").read_text()
        self.assertIn("--set trace=true", text)
        self.assertIn("no costs.json", text)
        self.assertNotIn("measured-timeline", text.split("</style>")[1])

    def test_links_that_are_gone_leave_the_rest(self):
        path = self.run / "config.resolved.json"
        config = json.loads(path.read_text())
        config["network"]["links"] = "gone/cluster.json"
        path.write_text(json.dumps(config))
        self.assertEqual(slackline("report", self.run).returncode, 0)
        text = (self.run / "report.html").read_text().split("</style>")[1]
        self.assertRegex(text, r"No predicted timeline: .*gone/cluster.json")
        self.assertNotIn("predicted-timeline", text)
        self.assertIn("measured-timeline", text)

    def test_a_directory_that_is_no_run_is_refused(self):
        (self.folder / "empty").mkdir()
        self.assert_refused(3, "is no run and no sweep", self.folder / "empty")
        self.assert_refused(3, "is no run and no sweep", self.run, self.folder / "absent")
        self.assert_refused(3, "is no run and no sweep", self.run, self.run / "metrics.jsonl")

    def test_missing_and_corrupt_files_are_named(self):
        for name in ("config.resolved.json", "plan.json", "costs.json", "trace.json", "metrics.jsonl"):
            with self.subTest(name):
                path = self.run / name
                whole = path.read_text()
                path.write_text('{"corrupt": [1,\n' + whole)
                self.assert_refused(3, f"{path}: ", self.run)
                path.unlink()
                if name in ("plan.json", "metrics.jsonl"):
                    self.assert_refused(3, f"{path}: cannot", self.run)
                path.write_text(whole)

    def test_wrong_command_lines_end_with_2(self):
        self.assertEqual(slackline("report").returncode, 2)
        self.assertEqual(slackline("report", self.run, "--oout", "x").returncode, 2)
        self.assertIn("Example: slackline report", slackline("report", "--help").stdout)

    def test_what_is_no_report_is_not_overwritten(self):
        other = self.folder / "thesis.html"
        other.write_text("<!doctype html>\nmine")
        self.assert_refused(3, "is no report and is not overwritten", self.run, "--out", other)
        self.assertEqual(other.read_text(), "<!doctype html>\nmine")
        self.assert_refused(3, "is no report", self.run, "--out", self.folder)
        self.assert_refused(3, "cannot", self.run, "--out", self.folder / "absent" / "report.html")
        self.assert_refused(3, "cannot", self.run, "--out", "/dev/full/report.html")


if __name__ == "__main__":
    ran = unittest.main(argv=sys.argv[:1], exit=False).result
    if not ran.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if ran.skipped else 0)
