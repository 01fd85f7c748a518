#!/usr/bin/env python3
"""Each style check passes a clean tree and fails a bad sample, for the stated reason."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
sys.path.insert(0, str(TOOLS / "scripts"))
from line_budget import functions_in  # noqa: E402
from source_tree import blank_comments  # noqa: E402

SKIPPED = 77


class StyleCheckCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write(".clang-format", (ROOT / ".clang-format").read_text())

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def run_check(self, tool):
        command = [sys.executable, str(TOOLS / tool), "--root", str(self.root)]
        run = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(run.stderr, "")
        return run.returncode, run.stdout

    def assert_passes(self, tool):
        code, output = self.run_check(tool)
        self.assertEqual(code, 0, output)

    def assert_fails(self, tool, *fragments):
        code, output = self.run_check(tool)
        self.assertEqual(code, 1, output)
        for fragment in fragments:
            self.assertIn(fragment, output)


class Layers(StyleCheckCase):
    def setUp(self):
        super().setUp()
        self.write("core/tensor/tensor.h", "#pragma once\n")
        self.write("model/block.h", '#pragma once\n#include "core/tensor/tensor.h"\n')

    def test_includes_down_the_table_pass(self):
        self.write("tests/model/block_test.cpp", '#include "model/block.h"\n')
        self.write("tools/run/trainer.cpp", '#include "model/block.h"\n// #include "gone.h"\n')
        self.assert_passes("scripts/check_layers.py")

    def test_an_include_up_the_table_fails_with_file_and_line(self):
        self.write("core/log.cpp", '#include "core/log.h"\n#include "model/block.h"\n')
        self.write("core/log.h", "#pragma once\n")
        self.assert_fails("scripts/check_layers.py", "core/log.cpp:2:", "core may include core")

    def test_what_runs_a_step_and_what_foresees_it_do_not_know_each_other(self):
        self.write("parallel/step/groups.h", "#pragma once\n")
        self.write("parallel/predict/axis.h", "#pragma once\n")
        self.write("parallel/choose/a.cpp", '#include "parallel/step/groups.h"\n')
        self.write("parallel/step/a.cpp", '#include "parallel/predict/axis.h"\n')
        self.assert_fails("scripts/check_layers.py", "parallel/choose/a.cpp:1:",
                          "parallel/step/a.cpp:1:")

    def test_the_schedule_may_include_nothing_of_ours(self):
        self.write("parallel/schedule/ops.h", '#include "core/tensor/tensor.h"\n')
        self.assert_fails("scripts/check_layers.py", "parallel/schedule/ops.h:1:", "and nothing")

    def test_sources_may_not_include_tests(self):
        self.write("tests/support/oracle.h", "#pragma once\n")
        self.write("tools/run/trainer.cpp", '#include "tests/support/oracle.h"\n')
        self.assert_fails("scripts/check_layers.py", "tools/run/trainer.cpp:1:")

    def test_an_include_that_does_not_start_at_the_root_fails(self):
        self.write("model/block.cpp", '#include "block.h"\n#include "../core/tensor/tensor.h"\n')
        self.assert_fails("scripts/check_layers.py", "model/block.cpp:1:", "model/block.cpp:2:", "the root")

    def test_a_using_directive_fails_in_a_header_and_passes_in_a_source(self):
        self.write("model/block.cpp", "using namespace slackline;\n")
        self.assert_passes("scripts/check_layers.py")
        self.write("model/mlp.h", "/* using namespace a; */\nusing namespace std;\n")
        self.assert_fails("scripts/check_layers.py", "model/mlp.h:2: using-directive")

    def test_a_header_with_a_heavy_library_is_private_to_the_sources_of_its_folder(self):
        self.write("core/rules.h", "#include <nlohmann/json.hpp>\n")
        self.write("core/rules.cpp", '#include "core/rules.h"\n')
        self.write("tests/core/rules_test.cpp", '#include "core/rules.h"\n')
        self.assert_passes("scripts/check_layers.py")
        self.write("core/config.h", '#include "core/rules.h"\n')
        self.write("model/block.cpp", '#include "core/rules.h"\n')
        self.assert_fails("scripts/check_layers.py", "core/config.h:1:", "model/block.cpp:1:", "nlohmann")


class Doors(StyleCheckCase):
    def test_what_is_printed_through_the_doors_passes(self):
        self.write("core/terminal.cpp", "void print() { std::fwrite(a, 1, n, stdout); }\n")
        self.write("core/log.cpp", "#include <spdlog/spdlog.h>\n")
        self.write("core/file_io.cpp", "bool a = std::filesystem::exists(path);\n")
        self.write("tools/a.cpp", '// std::puts(x)\nauto a = "printf(";\nsnprintf(b, 1, "");\n')
        self.write("data/a.cpp", "std::filesystem::path a = fs::path(b);\n")
        self.write("tools/bench/a.cpp", "fmt::print(x);\n")
        self.write("tests/a.cpp", "fmt::print(x);\n")
        self.assert_passes("scripts/check_doors.py")

    def test_what_is_printed_past_them_fails_with_file_and_line(self):
        for line in (
            "std::printf(x);",
            "fprintf(file, x);",
            "::puts(x);",
            "std::cout << x;",
            "fmt::print(x);",
            "fwrite(x, 1, 1, stderr);",
            "spdlog::info(x);",
            "#include <spdlog/spdlog.h>",
            "perror(x);",
        ):
            self.write("tools/a.cpp", f"int a;\n{line}\n")
            self.assert_fails("scripts/check_doors.py", "tools/a.cpp:2: ", "core/log.h logs")

    def test_looking_up_files_past_file_io_fails(self):
        for line in ("std::filesystem::exists(a);", "fs::file_size(a);"):
            self.write("data/a.cpp", f"namespace fs = std::filesystem;\n{line}\n")
            self.assert_fails("scripts/check_doors.py", "data/a.cpp:2: ", "core/file_io.h")


class Format(StyleCheckCase):
    def test_a_clean_tree_passes(self):
        self.write("core/a.cpp", "int main() {\n  return 0;\n}\n")
        code, output = self.run_check("check_format")
        self.assertIn(code, (0, SKIPPED), output)

    def test_bad_indentation_fails_where_clang_format_is_present(self):
        self.write("core/a.cpp", "int main() {\n     return 0;\n}\n")
        code, output = self.run_check("check_format")
        if code == SKIPPED:
            self.skipTest("no clang-format 14")
        self.assertEqual(code, 1, output)
        self.assertIn("core/a.cpp:1: not as clang-format writes it", output)

    def test_white_space_at_line_ends_fails(self):
        self.write("README.md", "one\ntwo \nthree\r\n")
        self.assert_fails("check_format", "README.md:2:", "README.md:3:")

    def test_a_missing_or_doubled_final_newline_fails(self):
        self.write("a.md", "one")
        self.write("b.md", "one\n\n")
        self.assert_fails("check_format", "a.md: no newline", "b.md: blank lines")

    def test_a_large_file_fails_and_golden_bytes_are_left_alone(self):
        self.write("tests/golden/tokens.txt", "spaces  \n\n")
        self.write("image.bin", b"\0  \n" * 100)
        self.assertIn(self.run_check("check_format")[0], (0, SKIPPED))
        self.write("tests/golden/tokens.txt", b"x" * 500_001)
        self.assert_fails("check_format", "tokens.txt: 500001 bytes")


class LineBudget(StyleCheckCase):
    def test_a_file_over_budget_is_named_and_one_over_the_limit_fails(self):
        self.write("core/a.h", "int a();\n" * 151)
        self.assert_passes("scripts/line_budget.py")
        self.assertIn("core/a.h: 151 lines, budget of a header is 150",
                      self.run_check("scripts/line_budget.py")[1])
        self.write("core/a.h", "int a();\n" * 601)
        self.assert_fails("scripts/line_budget.py", "core/a.h: 601 lines")

    def test_a_long_function_is_named_and_a_layers_forward_may_be_longer(self):
        body = "  f();\n" * 50
        self.write("core/a.cpp", "void forward() {\n" + body + "}\n")
        self.write("model/a.cpp", "void A::forward() {\n" + body + "}\n")
        output = self.run_check("scripts/line_budget.py")[1]
        self.assertIn("core/a.cpp:1: forward has 52 lines, budget 40", output)
        self.assertNotIn("model/a.cpp", output)

    def test_functions_are_found_in_every_form(self):
        text = """#define F(a) { \\
  a }
namespace n {
struct S {
  S(int a = {})
      : a_{1}, b_{2} {
  }
  const char* text = "}{;";
};
template <typename T>
auto twice(std::span<T> x = {}) -> int {
  auto f = [&](int i) { if (i) { } };
  return 2;
}
}
"""
        found = {name: (line, length) for name, line, length in functions_in(text)}
        self.assertEqual(found, {"S": (5, 3), "twice": (10, 5)})


class Comments(unittest.TestCase):
    def test_comments_go_and_strings_and_line_numbers_stay(self):
        text = 'a /* x\n y */ b // c\n"//s" R"(//\n)" 1\'000 \'"\' d\n'
        blanked = blank_comments(text)
        self.assertEqual(blanked.split(), ["a", "b", '"//s"', 'R"(//', ')"', "1'000", "'\"'", "d"])
        self.assertEqual(blanked.count("\n"), text.count("\n"))


if __name__ == "__main__":
    unittest.main()
