"""Event files: names, steps, times, resumed runs, and what is refused."""
import contextlib
import importlib.util
import io
import os
import tempfile
import unittest
from unittest import mock

import report_samples as samples
from longstride import tensorboard
from longstride.callbacks import Callbacks, TensorBoard
from longstride.errors import Error
from longstride.scalars import scalars_of

MISSING = None if importlib.util.find_spec("tensorboard") else "the package tensorboard is missing"


class Scalars(unittest.TestCase):
    def test_step(self):
        found = scalars_of(samples.step_line(1, seconds_waiting=0.125))
        self.assertEqual(found["train/learning_rate"], 1e-5)
        self.assertEqual(found["time/forward"], 0.5)
        self.assertEqual(found["time/waiting"], 0.125)
        self.assertEqual(found["memory/host/pages_gib"], 64 / 1024)
        self.assertEqual(found["memory/device_gib"], 90 / 1024)
        self.assertEqual(found["transfers/in_gib"], 48 / 1024)
        self.assertNotIn("speed/mfu", found)  # null
        self.assertNotIn("memory/disk/optimizer_gib", found)  # none there
        self.assertNotIn("train/skipped", found)
        self.assertEqual(scalars_of(samples.step_line(1, skipped=True, loss=None)).get("train/skipped"), 1)

    def test_evaluation_and_others(self):
        found = scalars_of(samples.eval_line(20))
        self.assertEqual(found["eval/loss"], 2.8)
        self.assertEqual(found["eval_loss_by_position/from_0000001024"],
                         samples.eval_line(20)["by_position"][10]["loss"])
        self.assertFalse(any(name.startswith("train/") for name in found))
        self.assertEqual(scalars_of({"kind": "note", "step": 1, "loss": 1.0}), {})


class Missing(unittest.TestCase):
    def test_missing_package(self):
        with mock.patch.dict("sys.modules", {"tensorboard": None, "tensorboard.compat.proto": None}):
            with self.assertRaises(Error) as caught:
                TensorBoard()
        self.assertIn("longstride[tensorboard]", caught.exception.hint)


@unittest.skipIf(MISSING, MISSING or "")
class Events(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.run_path = os.path.join(self.folder.name, "run")

    def read(self, directory):
        """{name: [(step, value)]} as TensorBoard reads a directory."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        accumulator = EventAccumulator(directory, size_guidance={"scalars": 0})
        with mock.patch("logging.Logger.warning"):  # it tells that it dropped repeated steps
            accumulator.Reload()
        return {name: [(event.step, event.value, event.wall_time) for event in accumulator.Scalars(name)]
                for name in accumulator.Tags()["scalars"]}

    def convert(self, *arguments):
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(tensorboard.main(list(arguments)), 0)

    def test_convert(self):
        samples.make_run(self.run_path)
        self.convert(self.run_path)
        found = self.read(os.path.join(self.run_path, "tensorboard"))
        self.assertEqual([step for step, *_ in found["train/loss"]], list(range(1, 101)))
        for step, value, when in found["train/loss"]:
            line = samples.step_line(step)
            self.assertAlmostEqual(value, line["loss"], 5)
            self.assertEqual(when, 1769860800 + 2 * step)
        self.assertEqual([step for step, *_ in found["eval/loss"]], [0, 20, 40, 60, 80, 100])
        self.assertEqual(sorted(os.listdir(self.run_path)), ["metrics.jsonl", "step-100", "tensorboard"])

    def test_memory_is_written_where_it_changes(self):
        os.mkdir(self.run_path)
        samples.write_lines(os.path.join(self.run_path, "metrics.jsonl"), [
            samples.step_line(step, bytes_weights=(20 if step < 4 else 30) << 20) for step in range(1, 6)])
        self.convert(self.run_path)
        found = self.read(os.path.join(self.run_path, "tensorboard"))
        self.assertEqual([one[:2] for one in found["memory/device/weights_gib"]], [(1, 20 / 1024), (4, 30 / 1024)])
        self.assertEqual([one[0] for one in found["memory/host/pages_gib"]], [1])
        self.assertEqual(len(found["time/forward"]), 5)

    def test_converting_again_replaces(self):
        samples.make_run(self.run_path)
        out = os.path.join(self.folder.name, "out")
        for _ in range(2):
            self.convert(self.run_path, "--out", out)
        self.assertEqual(len(os.listdir(out)), 1)
        self.assertEqual(len(self.read(out)["train/loss"]), 100)

    def test_repeated_steps_and_unfinished_line(self):
        os.mkdir(self.run_path)
        lines = [samples.step_line(step, loss=float(step)) for step in range(1, 6)]
        lines += [samples.eval_line(5), samples.step_line(3, loss=33.0), {"kind": "note"},
                  samples.step_line(4, loss=44.0), samples.eval_line(4, loss=4.0), samples.eval_line(4, loss=5.0),
                  '{"ti']
        samples.write_lines(os.path.join(self.run_path, "metrics.jsonl"), lines)
        self.convert(self.run_path)
        found = self.read(os.path.join(self.run_path, "tensorboard"))
        self.assertEqual([one[:2] for one in found["train/loss"]], [(1, 1), (2, 2), (3, 33), (4, 44)])
        self.assertEqual([one[:2] for one in found["eval/loss"]], [(4, 5)])

    def test_refused(self):
        out = os.path.join(self.folder.name, "out")
        os.mkdir(self.run_path)
        path = os.path.join(self.run_path, "metrics.jsonl")
        for text, lines in (("no finished step", []), (":1: not a record", [{"step": -1, "loss": 1}]),
                            (":1: not a record", ["what\n"])):
            samples.write_lines(path, lines)
            with self.assertRaisesRegex(Error, text):
                tensorboard.main([self.run_path, "--out", out])
            self.assertFalse(os.path.exists(out))
        samples.write_lines(path, [samples.step_line(1)])
        os.mkdir(out)
        open(os.path.join(out, "events.out.tfevents.1.other"), "wb").close()
        with self.assertRaisesRegex(Error, "holds event files already"):
            tensorboard.main([self.run_path, "--out", out])
        with self.assertRaisesRegex(Error, "cannot write"):
            tensorboard.main([self.run_path, "--out", os.path.join(path, "below")])

    def test_callback_and_resumed_run(self):
        """A run that did 5 steps and is resumed after 3: TensorBoard shows repeated steps once, as they were last."""
        def process(done, last, loss):
            callbacks = Callbacks([TensorBoard()])
            callbacks.start({"directory": self.run_path, "config": {}, "step": done, "total_steps": 6})
            for step in range(done + 1, last + 1):
                callbacks.progress({"step": step, "done": 0.5})
                callbacks.step(samples.step_line(step, 6, loss=loss + step))
            callbacks.eval(samples.eval_line(last))
            callbacks.save({"step": last, "path": "step"})
            return callbacks

        process(0, 5, 0.0).end({"step": 5})
        process(3, 6, 100.0).end({"step": 6})
        found = self.read(os.path.join(self.run_path, "tensorboard"))
        self.assertEqual([one[:2] for one in found["train/loss"]],
                         [(1, 1), (2, 2), (3, 3), (4, 104), (5, 105), (6, 106)])
        self.assertEqual([one[0] for one in found["eval/loss"]], [6])

    def test_callback_without_end(self):
        """A killed process has written what it did: here its last step, which is flushed at once."""
        directory = os.path.join(self.folder.name, "events")
        callback = TensorBoard(directory)
        callback.start({"directory": self.run_path, "step": 0, "total_steps": 3})
        for step in (1, 2, 3):
            callback.step(samples.step_line(step, 3))
        self.assertEqual(len(self.read(directory)["train/loss"]), 3)
        callback.end({"step": 3})


if __name__ == "__main__":
    unittest.main()
