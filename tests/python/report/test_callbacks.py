"""The protocol of callbacks, and W&B against a stand-in for its package."""
import sys
import types
import unittest
from unittest import mock

import report_samples as samples
from longstride.callbacks import Callback, Callbacks, WeightsAndBiases
from longstride.errors import Error


class Recorder(Callback):
    def __init__(self, calls, name="", fails=()):
        self.calls, self.name, self.fails = calls, name, fails

    def note(self, method, record):
        self.calls.append((self.name, method, record["step"]))
        if method in self.fails:
            raise ValueError(f"{self.name} {method}")

    def start(self, record):
        self.note("start", record)

    def progress(self, record):
        self.note("progress", record)

    def step(self, record):
        self.note("step", record)

    def eval(self, record):
        self.note("eval", record)

    def save(self, record):
        self.note("save", record)

    def end(self, record):
        self.note("end", record)


METHODS = ("start", "progress", "step", "eval", "save", "end")


class Protocol(unittest.TestCase):
    def test_order(self):
        calls = []
        callbacks = Callbacks([Recorder(calls, "a"), Recorder(calls, "b")])
        for number, method in enumerate(METHODS):
            getattr(callbacks, method)({"step": number})
        self.assertEqual(calls, [(name, method, number) for number, method in enumerate(METHODS) for name in "ab"])

    def test_the_base_class_does_nothing(self):
        callbacks = Callbacks([Callback()])
        for method in METHODS:
            self.assertIsNone(getattr(callbacks, method)({}))
        self.assertEqual(len(Callbacks(None)), 0)

    def test_exceptions(self):
        calls = []
        callbacks = Callbacks([Recorder(calls, "a", ("step", "end")), Recorder(calls, "b", ("end",)),
                               Recorder(calls, "c")])
        with self.assertRaisesRegex(ValueError, "a step"):
            callbacks.step({"step": 1})
        self.assertEqual(len(calls), 1)
        with self.assertRaisesRegex(ValueError, "a end"):
            callbacks.end({"step": 1})
        self.assertEqual([call[0] for call in calls[1:]], ["a", "b", "c"])

    def test_refused(self):
        for text, value in (("is a class", [Callback]), ("has no method start", [object()]), ("is no list", 7),
                            ("is no list", Callback()), ("has no method start", [lambda record: None])):
            with self.assertRaisesRegex(Error, text):
                Callbacks(value)


def stand_in():
    """A module wandb that records what it is asked for."""
    module = types.ModuleType("wandb")
    module.asked, module.logged, module.metrics, module.finished = [], [], [], 0

    class Run:
        def __init__(self):
            self.summary = {}

        def define_metric(self, name, step_metric=None):
            module.metrics.append((name, step_metric))

        def log(self, values):
            module.logged.append(values)

        def finish(self):
            module.finished += 1

    def init(**options):
        module.asked.append(options)
        module.run = Run()
        return module.run

    module.init = init
    return module


class WandB(unittest.TestCase):
    def setUp(self):
        self.wandb = stand_in()
        patch = mock.patch.dict(sys.modules, {"wandb": self.wandb})
        patch.start()
        self.addCleanup(patch.stop)

    def test_run(self):
        callbacks = Callbacks([WeightsAndBiases(project="mine", mode="offline", config={"note": "x"})])
        self.assertEqual(self.wandb.asked, [])
        config = {"training": {"steps": 2}}
        callbacks.start({"directory": "runs/first", "config": config, "step": 0, "total_steps": 2})
        self.assertEqual(self.wandb.asked, [{"project": "mine", "name": "first", "mode": "offline",
                                             "config": {"training": {"steps": 2}, "note": "x"}}])
        self.assertEqual(config, {"training": {"steps": 2}})
        self.assertIn(("*", "step"), self.wandb.metrics)
        callbacks.progress({"step": 1, "done": 0.5})
        callbacks.step(samples.step_line(1))
        callbacks.eval(samples.eval_line(1))
        callbacks.save({"step": 1, "path": "runs/first/step-1"})
        self.assertEqual([values["step"] for values in self.wandb.logged], [1, 1])
        self.assertEqual(self.wandb.logged[0]["train/loss"], samples.step_line(1)["loss"])
        self.assertEqual(self.wandb.logged[1]["eval/loss"], 2.99)
        self.assertEqual(self.wandb.run.summary, {"checkpoint": "runs/first/step-1", "checkpoint_step": 1})
        callbacks.end({"step": 1})
        callbacks.end({"step": 1})
        self.assertEqual(self.wandb.finished, 1)

    def test_defaults(self):
        WeightsAndBiases().start({"directory": "runs/second/"})
        self.assertEqual(self.wandb.asked[0], {"project": "longstride", "name": "second", "config": {}})

    def test_missing_package(self):
        with mock.patch.dict(sys.modules, {"wandb": None}):
            with self.assertRaises(Error) as caught:
                WeightsAndBiases()
        self.assertIn("pip install wandb", caught.exception.hint)


class Imports(unittest.TestCase):
    def test_nothing_heavy(self):
        """Importing the modules brings in none of the packages that only some of their classes need."""
        import subprocess
        code = ("import sys, longstride.callbacks, longstride.tensorboard, longstride.report; "
                "print([m for m in ('plotly', 'tensorboard', 'wandb', 'torch', 'numpy') if m in sys.modules])")
        made = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True,
                              env={"PYTHONPATH": samples.ROOT + "/python", "PATH": ""})
        self.assertEqual(made.stdout.strip(), "[]")


if __name__ == "__main__":
    unittest.main()
