#!/usr/bin/env python3
"""What bench/draft_ladder accepts: made rows, each with one thing wrong."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench"))
from draft_verdicts import bound_of, in_vain, speed_holds, union_fault  # noqa: E402


def row(drafts="3", **experts):
    good = {"wanted": 1000, "held": 300, "record_bytes": 10, "bytes_demand": 7000, "bytes_prefetch_useful": 0, "bytes_prefetch_wasted": 0}
    return {"drafts": drafts, "experts": good | experts}


class Verdicts(unittest.TestCase):
    def test_each_wanted_expert_that_is_not_held_is_read_once(self):
        self.assertEqual(union_fault(row()), "")
        self.assertIn("expected 700", union_fault(row(bytes_demand=7010)))
        # Less than all that was wanted, and still more than what was missing.
        self.assertIn("expected 700", union_fault(row(bytes_demand=8500)))
        self.assertIn("expected 700", union_fault(row(bytes_demand=6990)))

    def test_a_run_that_cannot_tell_is_no_proof(self):
        self.assertIn("--prefetch off", union_fault(row(bytes_prefetch_useful=10)))
        self.assertIn("--prefetch off", union_fault(row(bytes_prefetch_wasted=10)))
        self.assertIn("smaller cache", union_fault(row(held=1000, bytes_demand=0)))

    def test_a_controller_of_any_drafter_is_held_to_the_speed_of_plain_decoding(self):
        self.assertTrue(speed_holds(row("auto"), 0.97, 0.5))
        self.assertFalse(speed_holds(row("auto"), 0.96, 1.5))
        self.assertTrue(speed_holds(row("3"), 0.5, 0.95))
        self.assertFalse(speed_holds(row("3"), 1.5, 0.94))

    def test_the_bound_is_tokens_a_step_over_its_bytes_and_proposals(self):
        plain = {"payload_bytes_per_token": 100, "seconds_per_token": 2}
        drafted = {"tokens": 40, "tokens_per_step": 2, "payload_bytes_per_token": 75, "seconds_drafting": 20}
        # A step reads 1.5 times a plain one's bytes, its proposal takes half a plain one's time.
        self.assertAlmostEqual(bound_of(drafted, plain), 2 / (1.5 + 0.5))

    def test_what_is_read_in_vain_is_a_share_of_everything_read(self):
        self.assertAlmostEqual(in_vain(row(bytes_demand=600, bytes_prefetch_useful=300, bytes_prefetch_wasted=100)), 0.1)


if __name__ == "__main__":
    unittest.main()
