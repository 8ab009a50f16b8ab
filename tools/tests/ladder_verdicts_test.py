#!/usr/bin/env python3
"""Tests of bench/ladder_verdicts.py: what the drive ladder accepts and refuses."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import ladder_verdicts as verdicts  # noqa: E402


def read(percent, ahead=False, over=1.0, placement="striped", drives=4):
    return {"sum": 332e6, "drives": drives, "placement": placement, "ahead": ahead, "percent_of_limit": percent,
            "device_over_needed": over}


def answer(seed, ids, percent=99.0, over=1.0, ahead=False, drives=4):
    return {"sum": 332e6, "drives": drives, "seed": seed, "ids": ids, "percent_of_limit": percent, "device_over_needed": over,
            "ahead": ahead, "read_over_needed": over}


def times(**results):
    return [v["ok"] for v in verdicts.times(results)]


def facts(**results):
    return [v["ok"] for v in verdicts.facts(results)]


class Times(unittest.TestCase):
    def test_a_cell_without_read_ahead_needs_95_percent(self):
        self.assertEqual(times(reads=[read(95.0)]), [True])
        self.assertEqual(times(reads=[read(94.9)]), [False])
        self.assertEqual(times(engine=[answer(1, [5], percent=94.9)]), [False])

    def test_a_cell_with_read_ahead_needs_97_percent(self):
        self.assertEqual(times(reads=[read(97.0, ahead=True)]), [True])
        self.assertEqual(times(reads=[read(96.9, ahead=True)]), [False])
        self.assertEqual(times(engine=[answer(1, [5], percent=96.9, ahead=True)])[0], False)

    def test_a_cell_with_read_ahead_may_not_read_more_than_a_hundredth_in_vain(self):
        self.assertEqual(times(engine=[answer(1, [5], over=1.01, ahead=True)]), [True, True])
        self.assertEqual(times(engine=[answer(1, [5], over=1.011, ahead=True)]), [True, False])

    def test_the_median_of_the_seeds_counts(self):
        self.assertEqual(times(reads=[read(80.0), read(96.0), read(97.0)]), [True])
        self.assertEqual(times(reads=[read(94.0), read(94.5), read(100.0)]), [False])

    def test_cells_are_judged_one_by_one(self):
        self.assertEqual(times(reads=[read(99.0, drives=1), read(90.0, drives=2)]), [True, False])

    def test_mirrored_records_are_no_target(self):
        self.assertEqual(times(reads=[read(84.0, placement="mirrored")]), [])

    def test_a_prompt_may_take_its_arithmetic_and_little_more_than_its_reading(self):
        row = {"sum": 664e6, "drives": 4, "seconds_reading_bound": 4.0, "seconds_arithmetic": 10.0}
        self.assertEqual(times(prompt=[row | {"seconds": 14.6}]), [True])
        self.assertEqual(times(prompt=[row | {"seconds": 14.7}]), [False])

    def test_a_plain_disk_needs_95_percent_of_the_probe(self):
        self.assertEqual(times(plain=[{"name": "disk", "percent_of_probe": 95.0}]), [True])
        self.assertEqual(times(plain=[{"name": "disk", "percent_of_probe": 94.9}]), [False])


class Facts(unittest.TestCase):
    def test_no_seed_may_read_more_than_a_hundredth_in_vain(self):
        self.assertEqual(facts(reads=[read(50.0, over=1.01)]), [True])
        self.assertEqual(facts(reads=[read(50.0, over=1.0), read(50.0, over=1.011)]), [False])

    def test_answers_of_a_seed_are_the_same_for_any_number_of_drives(self):
        self.assertEqual(facts(engine=[answer(1, [5, 6]), answer(1, [5, 6], drives=1)])[-1], True)
        self.assertEqual(facts(engine=[answer(1, [5, 6]), answer(1, [5, 7], drives=1)])[-1], False)
        self.assertEqual(facts(engine=[answer(1, [])])[-1], False)
        self.assertEqual(facts(engine=[answer(1, [5]), answer(2, [6])])[-2:], [True, True])

    def test_a_prompt_passes_each_layer_once_and_reads_nothing_twice(self):
        row = {"sum": 664e6, "drives": 4, "layer_passes": 7, "layers": 7, "device_over_needed": 1.0}
        self.assertEqual(facts(prompt=[row]), [True, True])
        self.assertEqual(facts(prompt=[row | {"layer_passes": 14, "device_over_needed": 2.0}]), [False, False])

    def test_time_does_not_count(self):
        self.assertEqual(facts(reads=[read(1.0)]), [True])

    def test_a_fault_that_ended_otherwise_than_expected_is_bad(self):
        row = {"case": "fail", "exit_code": 0, "same_ids": False, "expected": "exit code 5", "ok": False}
        self.assertEqual(facts(faults=[row]), [False])


class All(unittest.TestCase):
    def test_nothing_measured_is_not_good(self):
        self.assertFalse(verdicts.all_good([]))
        self.assertIn("nothing", verdicts.table([]))

    def test_one_bad_verdict_is_enough(self):
        found = verdicts.times({"reads": [read(99.0, drives=1), read(90.0, drives=2)]})
        self.assertFalse(verdicts.all_good(found))
        self.assertTrue(verdicts.all_good(found[:1]))
        self.assertIn("FAILED", verdicts.table(found))


if __name__ == "__main__":
    unittest.main()
