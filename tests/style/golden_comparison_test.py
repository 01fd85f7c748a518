#!/usr/bin/env python3
"""The comparison of tools/golden_bits sees one changed bit, digit or byte of each quantity, names
the quantity and the place, and is silent about time."""

import importlib.machinery
import importlib.util
import json
import re
import shutil
import struct
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/scripts"))
from breaks import BREAKS  # noqa: E402
from golden.checkpoint_tensors import read_checkpoint  # noqa: E402
from golden.comparison import compare_results  # noqa: E402
from golden.configurations import ALL, BASE, nested  # noqa: E402
from scratch_tree import replace_once  # noqa: E402

ROWS, COLUMNS = 3, 4
WEIGHT = "weights/h.0.mlp.c_fc.weight"
RESIDUAL = "residual/data_gradient/h.0.mlp.c_fc.weight"


def write_safetensors(path, tensors):
    """`tensors`: {key: (shape, floats)}."""
    header, data = {}, b""
    for key, (shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}f", *values)
        header[key] = {"dtype": "F32", "shape": shape,
                       "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def matrix(offset):
    return [[offset + COLUMNS * row + column for column in range(COLUMNS)] for row in range(ROWS)]


def write_checkpoint(folder):
    """A weight that two files hold by columns, and a residual of each of two workers."""
    folder.mkdir(parents=True)
    weight = matrix(0)
    residuals = [[value for row in matrix(100 * worker) for value in row] for worker in (1, 2)]
    for half in (0, 1):
        columns = [value for row in weight for value in row[2 * half:2 * half + 2]]
        write_safetensors(folder / f"{half}.safetensors", {
            f"{WEIGHT}@0,{2 * half}": ([ROWS, 2], columns),
            f"{RESIDUAL}#{half}": ([ROWS, COLUMNS], residuals[half])})
    pieces = [{"file": f"{half}.safetensors", "start": [0, 2 * half], "shape": [ROWS, 2]}
              for half in (0, 1)]
    workers = [{"file": f"{worker}.safetensors", "start": [0, 0], "shape": [ROWS, COLUMNS],
                "worker": worker} for worker in (0, 1)]
    shape = {"shape": [ROWS, COLUMNS], "dtype": "F32"}
    (folder / "manifest.json").write_text(json.dumps({
        "step": 2, "data": {"consumed_sequences": 16}, "rng": None, "codec": None,
        "tensors": {WEIGHT: {**shape, "pieces": pieces}, RESIDUAL: {**shape, "pieces": workers}}}))


def step_line(step):
    return {"step": step, "loss": 5.5 - step / 3, "grad_norm": 1.25, "step_seconds": 0.1,
            "seconds": {"compute": 0.05}, "time": 1e9,
            "axes": {"data": {"raw_bytes": 1000, "sent_bytes": 10, "exposed_seconds": 0.2}},
            "outer": {"sent_step": 1, "round_seconds": 0.3, "period_seconds": 0.4, "wait_seconds": 0.6},
            "compression": [{"site": "data_gradient", "stage": 0, "phase": "step",
                             "relative_error": 0.25}]}


def write_result(folder):
    run = folder / "run"
    write_checkpoint(run / "checkpoints/step-00000002")
    lines = [step_line(1), step_line(2), {"step": 2, "eval_loss": 5.1}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "plan.json").write_text(json.dumps([{"from_step": 1, "predicted_step_seconds": 0.3,
                                                "classes": [{
        "site": "data_gradient", "stage": 0, "phase": "step", "raw_bytes": 96, "sent_bytes": 40,
        "encode_seconds": 1e-3, "codec": {"codec": "cast"}, "reason": "wins 3 ms"}]}]))
    (folder / "sha256.txt").write_text("abc123\n")
    (folder / "choice.json").write_text('{\n "codec": "cast"\n}\n')


class Comparison(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.a, self.b = Path(folder.name) / "a", Path(folder.name) / "b"
        write_result(self.a)
        shutil.copytree(self.a, self.b)

    def change(self, path, old, new):
        replace_once(self.b, path, old, new)

    def differences(self):
        return [str(difference) for difference in compare_results(self.a, self.b)[0]]

    def assert_only(self, *fragments):
        differences = self.differences()
        self.assertEqual(len(differences), 1, differences)
        for fragment in fragments:
            self.assertIn(fragment, differences[0])

    def flip_last_bit(self, name, offset_from_end):
        path = self.b / "run/checkpoints/step-00000002" / name
        content = bytearray(path.read_bytes())
        content[-offset_from_end] ^= 1
        path.write_bytes(content)

    def test_equal_results_are_equal(self):
        self.assertEqual(self.differences(), [])

    def test_pieces_make_the_logical_tensor(self):
        tensors = read_checkpoint(self.a / "run/checkpoints/step-00000002")
        values = [struct.unpack("<f", element)[0] for element in tensors[WEIGHT].elements()]
        self.assertEqual(values, [value for row in matrix(0) for value in row])
        self.assertIn(RESIDUAL + "#1", tensors)

    def test_what_takes_time_is_left_out(self):
        text = (self.b / "run/metrics.jsonl").read_text()
        for old, new in (('"step_seconds": 0.1', '"step_seconds": 0.2'),
                         ('"compute": 0.05', '"compute": 0.06'), ('"time": 1000000000.0', '"time": 2'),
                         ('"exposed_seconds": 0.2', '"exposed_seconds": 0.1'),
                         ('"round_seconds": 0.3', '"round_seconds": 0.7'),
                         ('"period_seconds": 0.4', '"period_seconds": 0.8'),
                         ('"wait_seconds": 0.6', '"wait_seconds": 0.9')):
            self.assertIn(old, text)
            text = text.replace(old, new)
        (self.b / "run/metrics.jsonl").write_text(text)
        self.change("run/plan.json", '"encode_seconds": 0.001', '"encode_seconds": 0.002')
        self.change("run/plan.json", "wins 3 ms", "wins 4 ms")
        self.assertEqual(self.differences(), [])

    def test_a_digit_of_a_loss_is_seen_with_its_step(self):
        self.change("run/metrics.jsonl", '"loss": 4.833333333333333,', '"loss": 4.833333333333334,')
        self.assert_only("run: loss: step 2", "4.833333333333333", "4.833333333333334")

    def test_a_digit_of_an_evaluation_is_seen(self):
        self.change("run/metrics.jsonl", '"eval_loss": 5.1', '"eval_loss": 5.100000000000001')
        self.assert_only("eval_loss: evaluation at step 2")

    def test_bytes_and_sampled_messages_are_seen_from_their_first_step_on(self):
        path = self.b / "run/metrics.jsonl"
        path.write_text(path.read_text().replace('"sent_bytes": 10', '"sent_bytes": 11'))
        self.assert_only("axes.data.sent_bytes: step 1: 10 and 11")
        path.write_text(path.read_text().replace('"sent_bytes": 11', '"sent_bytes": 10').replace(
            '"relative_error": 0.25', '"relative_error": 0.26'))
        self.assert_only("compression of data_gradient 0 step.relative_error: step 1")

    def test_a_step_that_is_missing_is_seen(self):
        path = self.b / "run/metrics.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        self.assert_only("lines of metrics", "evaluation at step 2")

    def test_a_field_that_one_commit_adds_is_told_apart(self):
        self.change("run/metrics.jsonl", '"loss": 4.833333333333333,',
                    '"loss": 4.833333333333333, "added": 1,')
        differences, fields = compare_results(self.a, self.b)
        self.assertEqual((differences, fields), ([], {"added"}))

    def test_a_bit_of_a_weight_is_seen_with_its_element(self):
        # The last value of a file is the residual's; the weight's six stand before its twelve.
        self.flip_last_bit("1.safetensors", 4 * ROWS * COLUMNS + 4)
        self.assert_only(f"run: weights: step-00000002, {WEIGHT}", "1 of 12 elements, first [11]",
                         "0x41300000 and 0x41300001")

    def test_a_bit_of_one_workers_residual_is_seen(self):
        self.flip_last_bit("0.safetensors", 4)
        self.assert_only("run: residual/data_gradient: ", f"{RESIDUAL}#0", "first [11]")

    def test_a_tensor_and_a_checkpoint_that_are_missing_are_seen(self):
        manifest = self.b / "run/checkpoints/step-00000002/manifest.json"
        document = json.loads(manifest.read_text())
        del document["tensors"][RESIDUAL]
        manifest.write_text(json.dumps(document))
        self.assert_only(f"{RESIDUAL}#0", "there and absent")
        shutil.rmtree(manifest.parent)
        self.assert_only("run: checkpoints: steps", "step-00000002")

    def test_consumed_data_of_the_manifest_is_seen(self):
        self.change("run/checkpoints/step-00000002/manifest.json", '"consumed_sequences": 16',
                    '"consumed_sequences": 17')
        self.assert_only("run: data of the manifest: step-00000002")

    def test_a_field_that_one_commit_adds_to_the_manifest_is_told_apart(self):
        self.change("run/checkpoints/step-00000002/manifest.json", '"consumed_sequences": 16',
                    '"consumed_sequences": 16, "added": 1')
        differences, fields = compare_results(self.a, self.b)
        self.assertEqual((differences, fields), ([], {"data.added"}))

    def test_a_planned_codec_and_planned_bytes_are_seen(self):
        self.change("run/plan.json", '{"codec": "cast"}', "null")
        self.assert_only("run: plan.json: from step 1, data_gradient 0 step", "None")
        shutil.copy(self.a / "run/plan.json", self.b / "run")
        self.change("run/plan.json", '"sent_bytes": 40', '"sent_bytes": 41')
        self.assert_only("run: plan.json: from step 1, data_gradient 0 step", "41")

    def test_what_subcommands_print_is_seen(self):
        self.change("sha256.txt", "abc123", "abc124")
        self.assert_only("sha256.txt: line 1, column 6")
        shutil.copy(self.a / "sha256.txt", self.b)
        self.change("choice.json", '"cast"', '"low_rank"')
        self.assert_only("choice.json: line 2")


# Defaults that nothing can depend on: max_skips and stop_seconds end runs, trainable leaves nothing out, and the
# others say how a device is driven. Commits before them do not know them.
MOVES_NO_BIT = {"cuda_graphs", "max_skips", "stop_seconds", "stream_waits", "trainable"}


class Configurations(unittest.TestCase):
    def test_names_differ_and_ranks_fill_the_mesh(self):
        self.assertEqual(len({configuration.name for configuration in ALL}), len(ALL))
        for configuration in ALL:
            values = {**BASE, **configuration.changes}
            self.assertEqual(configuration.ranks, values["parallel.tensor"] *
                             values["parallel.pipeline"] * values["parallel.data"],
                             configuration.name)

    def test_every_key_of_the_schema_is_set_or_has_no_default_that_moves_bits(self):
        """A key whose default changes must not change what is compared."""
        schema = json.loads((ROOT / "configs/schema.json").read_text())
        document = nested(BASE)
        for section in ("run", "model", "batch", "parallel", "optimizer"):
            keys = {key for key, rule in schema["properties"][section]["properties"].items()
                    if "default" in rule}
            missing = keys - set(document[section]) - MOVES_NO_BIT
            self.assertEqual(missing, set(), section)


class Breaks(unittest.TestCase):
    def test_every_break_has_its_one_place(self):
        for change in BREAKS:
            text = (ROOT / change.path).read_text(encoding="utf-8")
            self.assertEqual(text.count(change.old), 1,
                             f"{change.name} of tools/scripts/breaks.py in {change.path}: update its text")
            self.assertNotEqual(change.old, change.new)

    def test_programs_of_tests_are_known_by_how_cmake_runs_them(self):
        """With whatever filters it gives them behind the first."""
        path = str(ROOT / "tools/try_breaks")
        loader = importlib.machinery.SourceFileLoader("try_breaks", path)
        try_breaks = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("try_breaks", loader))
        loader.exec_module(try_breaks)
        cmake = (ROOT / "cmake/SlacklineTargets.cmake").read_text()
        added = re.search(r"add_test\(NAME \$\{name\} COMMAND \$\{name\} (.+)\)", cmake)
        filters = [word.strip('"') for word in added[1].split()]
        self.assertGreater(len(filters), 1)
        place = [{"name": "WORKING_DIRECTORY", "value": "/build"}]
        found = try_breaks.tests_in({"tests": [
            {"name": "a_tests", "command": ["/build/a_tests", *filters], "properties": place},
            {"name": "a_tests_slow", "command": ["/build/a_tests", "[slow]"], "properties": place},
            {"name": "not_built", "properties": place}]})
        self.assertEqual([(test.name, test.filters) for test in found],
                         [("a_tests", tuple(filters))])


class Replacement(unittest.TestCase):
    def test_a_place_that_is_gone_or_there_twice_fails(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "a.cpp").write_text("one\ntwo\ntwo\n")
            replace_once(folder, "a.cpp", "one", "three")
            self.assertEqual((folder / "a.cpp").read_text(), "three\ntwo\ntwo\n")
            for old in ("one", "two"):
                with self.assertRaises(LookupError):
                    replace_once(folder, "a.cpp", old, "four")


if __name__ == "__main__":
    unittest.main()
