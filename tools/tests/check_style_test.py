#!/usr/bin/env python3
"""Tests of tools/check_style.py: every kind of fault is found, and a clean tree passes."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import check_style  # noqa: E402

HEADER = "// One.\n// Two.\n// Three.\n#pragma once\n"


def function(lines, opening="int F(int a) {"):
    return "\n".join([opening] + ["  ++a;"] * (lines - 2) + ["}"]) + "\n"


class CheckStyle(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.write("src/base/a.h", HEADER)
        self.write("tests/base/a_test.cc", "TEST(A, B) {}\n")
        self.write("tests/base/CMakeLists.txt", "deltafin_test(base SOURCES a_test.cc)\n")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def assert_fault(self, text):
        faults, _ = check_style.check(self.root)
        self.assertEqual(len(faults), 1, faults)
        self.assertIn(text, faults[0])

    def assert_clean(self):
        self.assertEqual(check_style.check(self.root), ([], []))

    def test_clean_tree_passes(self):
        self.assert_clean()

    def test_long_file(self):
        self.write("src/base/b.cc", "int a;\n" * 601)
        self.assert_fault("601 lines")

    def test_file_that_is_nearly_too_long_is_a_warning(self):
        self.write("src/base/b.cc", "int a;\n" * 451)
        faults, warnings = check_style.check(self.root)
        self.assertEqual((len(faults), len(warnings)), (0, 1))

    def test_long_function(self):
        self.write("src/base/b.cc", "namespace n {\n" + function(61) + "}\n")
        self.assert_fault("src/base/b.cc:2: int F(int a) {: 61 lines")

    def test_function_of_the_greatest_length(self):
        self.write("src/base/b.cc", function(60))
        self.assertEqual(check_style.check(self.root)[0], [])

    def test_long_member_function_in_a_class(self):
        self.write("src/base/b.cc", "class C : public B {\n" + function(61, "  int F() const override {") + "};\n")
        self.assert_fault("61 lines")

    def test_long_constructor_with_initialisers(self):
        self.write("src/base/b.cc", function(61, "C::C(int a) : a_(a), b_{a} {"))
        self.assert_fault("lines, at most 60")

    def test_braces_in_strings_and_comments_do_not_count(self):
        self.write("src/base/b.cc", 'void F() {\n  g("{{{");  // {{{\n  h(\'{\', R"({{{)");\n}\n' + function(30))
        self.assert_clean()

    def test_long_table_is_not_a_function(self):
        self.write("src/base/b.cc", "constexpr int kTable[] = {\n" + "  1,\n" * 100 + "};\n")
        self.assert_clean()

    def test_conditional_compilation(self):
        self.write("src/base/b.cc", "#if defined(__linux__)\n#endif\n")
        self.assert_fault("#if outside")

    def test_conditional_compilation_where_allowed(self):
        self.write("src/base/platform.h", HEADER + "#ifdef __linux__\n#endif\n")
        self.write("src/backend/cpu/k.cc", "#if HWY_ONCE\n#endif\n")
        self.assert_clean()

    def test_getenv(self):
        self.write("src/base/b.cc", 'const char* a = getenv("A");\n')
        self.assert_fault("getenv outside")

    def test_getenv_in_the_program(self):
        self.write("src/app/b.cc", 'const char* a = getenv("A");\n')
        self.assert_clean()

    def test_forbidden_word(self):
        self.write("src/base/b.cc", "int slab_count;\n")
        self.assert_fault("'slab'")

    def test_forbidden_word_inside_a_type(self):
        self.write("src/base/b.cc", "class ExpertTickets;\n")
        self.assert_fault("'tickets'")

    def test_word_that_only_contains_a_forbidden_one(self):
        self.write("src/base/b.cc", "void Release();  // the release\n")
        self.assert_clean()

    def test_size_of_k3(self):
        self.write("src/base/b.cc", "int hidden = 7168;\n")
        self.assert_fault("7168 is a size of K3")

    def test_size_of_k3_where_allowed_and_other_numbers(self):
        self.write("src/spec/b.cc", "int hidden = 7168;\n")
        self.write("src/base/b.cc", "int a = 71680;  // unlike 7168\nfloat b = 0.896f;\n")
        self.assert_clean()

    def test_header_without_comment(self):
        self.write("src/base/b.h", "// One.\n#pragma once\n")
        self.assert_fault("1 comment lines")

    def test_header_without_pragma_once(self):
        self.write("src/base/b.h", "// One.\n// Two.\n// Three.\n")
        self.assert_fault("no #pragma once")

    def test_unfinished_work(self):
        self.write("src/base/b.cc", "// TO" "DO: later\n")
        self.assert_fault("unfinished work")

    def test_unfinished_work_in_tests(self):
        self.write("tests/base/helper.cc", "// good enough for" " now\n")
        self.assert_fault("unfinished work")

    def test_test_that_nobody_runs(self):
        self.write("tests/base/b_test.cc", "TEST(A, B) {}\n")
        self.assert_fault("tests/base/b_test.cc: not listed")

    def test_test_that_is_only_mentioned_in_a_comment(self):
        self.write("tests/base/b_test.cc", "TEST(A, B) {}\n")
        self.write("tests/base/CMakeLists.txt", "deltafin_test(base SOURCES a_test.cc)  # not b_test.cc\n")
        self.assert_fault("not listed")

    def test_test_whose_name_is_the_end_of_another(self):
        self.write("tests/base/extra_a_test.cc", "TEST(A, B) {}\n")
        self.write("tests/base/CMakeLists.txt", "deltafin_test(base SOURCES extra_a_test.cc)\n")
        self.assert_fault("tests/base/a_test.cc: not listed")


if __name__ == "__main__":
    unittest.main()
