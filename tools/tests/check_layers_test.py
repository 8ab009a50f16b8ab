#!/usr/bin/env python3
"""Tests of tools/check_layers.py: every kind of fault is found, and a clean tree passes."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import check_layers  # noqa: E402

TABLE = """
set(DELTAFIN_LAYERS
  "base:"
  "io: base"
  "backend: base"
  "backend/cpu: backend base"
)
"""


class CheckLayers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.write("cmake/layers.cmake", TABLE)
        self.write("src/base/a.h", "#pragma once\n#include <vector>\n#include <sys/stat.h>\n")
        self.write("src/io/b.h", '#include "base/a.h"\n')
        self.write("src/backend/c.h", '#include "base/a.h"\n')

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def only_fault(self):
        faults = check_layers.check(self.root)
        self.assertEqual(len(faults), 1, faults)
        return faults[0]

    def test_clean_tree_passes(self):
        self.assertEqual(check_layers.check(self.root), [])

    def test_include_against_the_table(self):
        self.write("src/base/d.cc", '#include "io/b.h"\n')
        self.assertIn("src/base/d.cc:1: base may not include io", self.only_fault())

    def test_nested_folder_has_its_own_row(self):
        self.write("src/backend/cpu/d.cc", '#include "backend/c.h"\n')
        self.assertEqual(check_layers.check(self.root), [])
        self.write("src/backend/cpu/e.h", "\n")
        self.write("src/backend/f.cc", '#include "backend/cpu/e.h"\n')
        self.assertIn("backend may not include backend/cpu", self.only_fault())

    def test_file_that_does_not_exist(self):
        self.write("src/io/d.cc", '#include "base/gone.h"\n')
        self.assertIn("base/gone.h does not exist", self.only_fault())

    def test_include_that_is_not_relative_to_src(self):
        self.write("src/io/d.cc", '#include "b.h"\n')
        self.assertIn("not relative to src/", self.only_fault())

    def test_folder_without_a_row(self):
        self.write("src/extra/d.cc", "\n")
        self.assertIn("not in cmake/layers.cmake", self.only_fault())

    def test_third_party_header_outside_its_wrapper(self):
        self.write("src/io/d.cc", "#include <simdjson.h>\n")
        self.assertIn("may be included only by checkpoint/safetensors.cc", self.only_fault())

    def test_third_party_header_in_its_wrapper(self):
        self.write("src/base/result.h", "#include <tl/expected.hpp>\n")
        self.assertEqual(check_layers.check(self.root), [])

    def test_json_type_in_a_header(self):
        self.write("src/io/d.h", "#include <nlohmann/json.hpp>\n")
        self.assertIn("<nlohmann/json.hpp>", self.only_fault())

    def test_library_that_nobody_listed(self):
        self.write("src/io/d.cc", "#include <boost/any.hpp>\n")
        self.assertIn("does not know", self.only_fault())

    def test_circle_of_includes(self):
        self.write("src/base/x.h", '#include "base/y.h"\n')
        self.write("src/base/y.h", '#include "base/z.h"\n')
        self.write("src/base/z.h", '#include "base/x.h"\n')
        self.assertIn("base/x.h -> base/y.h -> base/z.h -> base/x.h", self.only_fault())

    def test_unreadable_table(self):
        self.write("cmake/layers.cmake", "set(SOMETHING_ELSE)\n")
        with self.assertRaises(ValueError):
            check_layers.check(self.root)


if __name__ == "__main__":
    unittest.main()
