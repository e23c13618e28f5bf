"""Reading metrics files: resumed runs, cut lines, unknown lines, damaged files."""
import math
import os
import tempfile
import unittest

import report_samples as samples
from longstride.errors import Error
from longstride.report.metrics import read_metrics


class Reading(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "metrics.jsonl")

    def read(self, *lines):
        samples.write_lines(self.path, lines)
        return read_metrics(self.path)

    def test_columns(self):
        metrics = self.read(samples.eval_line(0), samples.step_line(1), samples.step_line(2, loss=None, mfu=0.5))
        self.assertEqual(list(metrics.steps), [1, 2])
        self.assertAlmostEqual(metrics.column("loss")[0], 2 + 4 * math.exp(-1 / 20))
        self.assertTrue(math.isnan(metrics.column("loss")[1]))
        self.assertTrue(math.isnan(metrics.column("mfu")[0]))
        self.assertEqual(metrics.column("mfu")[1], 0.5)
        self.assertEqual([line["step"] for line in metrics.evals], [0])
        self.assertEqual(metrics.times[0], 1769860802.0)
        self.assertEqual(len(metrics.memory), 1)

    def test_unfinished_last_line(self):
        metrics = self.read(samples.step_line(1), '{"time":"2026-01-31T12:00:00.123Z","step":2,"lo')
        self.assertEqual(list(metrics.steps), [1])
        self.assertTrue(metrics.unfinished)

    def test_last_line_without_newline_counts(self):
        metrics = self.read(samples.step_line(1), '{"step": 2, "loss": 1.5}')
        self.assertEqual(list(metrics.steps), [1, 2])
        self.assertFalse(metrics.unfinished)

    def test_repeated_steps(self):
        """A run that went on to 5 and was resumed after 2: its lines from 3 on take the place of the earlier ones."""
        first = [samples.step_line(step, loss=10.0 + step) for step in range(1, 6)]
        again = [samples.step_line(step, loss=20.0 + step, resumed_at=2) for step in (3, 4)]
        metrics = self.read(*first[:3], samples.eval_line(3, loss=1.0), *first[3:], samples.eval_line(5), again[0],
                            samples.eval_line(3, loss=2.0), again[1])
        self.assertEqual(self.read(*first, samples.eval_line(5), again[0]).evals, [])
        self.assertEqual(list(metrics.steps), [1, 2, 3, 4])
        self.assertEqual(list(metrics.column("loss")), [11, 12, 23, 24])
        self.assertEqual([(line["step"], line["loss"]) for line in metrics.evals], [(3, 2.0)])
        self.assertEqual(metrics.resumes(), [3])
        self.assertEqual(len(metrics.times), 4)

    def test_repeated_step_keeps_memory_and_skips_right(self):
        metrics = self.read(samples.step_line(1), samples.step_line(2, skipped=True, bytes_weights=7),
                            samples.step_line(2))
        self.assertEqual(metrics.skipped, [])
        self.assertEqual([step for step, _ in metrics.memory], [1, 2])
        self.assertEqual(metrics.memory[-1][1]["bytes_weights"], 20 * samples.MIB)

    def test_unknown_kinds_and_keys(self):
        metrics = self.read(samples.step_line(1, seconds_waiting=0.25, colour="blue"),
                            {"kind": "note", "text": "hello"}, {"kind": "note"}, samples.step_line(2))
        self.assertEqual(metrics.unknown, {"note": 2})
        self.assertEqual(list(metrics.steps), [1, 2])
        self.assertIn("seconds_waiting", metrics.time_parts())
        self.assertEqual(metrics.column("seconds_waiting")[0], 0.25)
        self.assertTrue(math.isnan(metrics.column("seconds_waiting")[1]))

    def test_time_part_that_appears_later(self):
        metrics = self.read(samples.step_line(1), samples.step_line(2, seconds_waiting=0.5))
        self.assertEqual(len(metrics.column("seconds_waiting")), 2)
        self.assertEqual(metrics.column("seconds_waiting")[1], 0.5)

    def test_memory_changes(self):
        metrics = self.read(samples.step_line(1), samples.step_line(2), samples.step_line(3, bytes_weights=5))
        self.assertEqual([step for step, _ in metrics.memory], [1, 3])

    def refused(self, text, *lines):
        with self.assertRaises(Error) as caught:
            self.read(*lines)
        self.assertIn(text, caught.exception.message)
        self.assertTrue(caught.exception.hint)

    def test_refused(self):
        self.refused("has no finished step", "")
        self.refused("has no finished step", "\n\n")
        self.refused("has no finished step", {"kind": "note"})
        self.refused("has no finished step", '{"time": "20')
        self.refused(":1: not a record", "Lorem ipsum\n")
        self.refused(":1: not a record", "Lorem ipsum")
        self.refused(":1: not a record", "[1, 2]\n")
        self.refused(":2: not a record", samples.step_line(1), "{broken}\n", samples.step_line(2))
        self.refused(":1: not a record", {"loss": 1.0})
        self.refused(":1: not a record", {"step": 1})
        self.refused(":1: not a record", {"step": "1", "loss": 1.0})
        self.refused(":1: not a record", {"step": True, "loss": 1.0})
        self.refused(":1: not a record", {"step": 1 << 80, "loss": 1.0})
        self.refused(":1: not a record", "[" * 100000 + "\n")

    def test_values_of_wrong_types(self):
        metrics = self.read(samples.step_line(1, loss="low", accuracy=True, tokens=10**400, bytes_weights="much",
                                              time=5, total_steps="ten"))
        self.assertTrue(all(math.isnan(metrics.column(key)[0]) for key in ("loss", "accuracy", "tokens")))
        self.assertTrue(math.isnan(metrics.times[0]))
        self.assertNotIn("bytes_weights", metrics.memory[0][1])


if __name__ == "__main__":
    unittest.main()
