"""Whole runs from Python: the same bytes as the program's, callbacks, interruptions, plans."""
import os
import subprocess
import tempfile
import unittest

import numpy

import longstride
from longstride.callbacks import Callback
from longstride.program import program


class Recorder(Callback):
    def __init__(self, fail_at=None):
        self.events, self.fail_at = [], fail_at

    def start(self, event):
        self.events.append(("start", event["trainable_parameters"]))
        self.directory, self.total = event["directory"], event["total_steps"]

    def step(self, event):
        self.events.append(("step", event["step"]))
        if event["step"] == self.fail_at:
            raise ValueError("enough")

    def eval(self, event):
        self.events.append(("eval", event["step"]))

    def save(self, event):
        self.events.append(("save", os.path.basename(event["path"])))
        assert event["path"].endswith(f"step-{event['step']}")

    def end(self, event):
        self.events.append(("end", event["step"]))


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.data = os.path.join(self.folder.name, "tokens.bin")
        numpy.random.default_rng(0).integers(0, 320, 16 * 256 + 1).astype("<u4").tofile(self.data)

    def settings(self, name="out", steps=4):
        return {"model": {"preset": "tiny-qwen2"}, "data": {"path": self.data},
                "training": {"context": 256, "chunk": 64, "page": 16, "steps": steps},
                "checkpoint": {"directory": os.path.join(self.folder.name, name), "every": 2},
                "eval": {"path": [self.data], "samples": 1}, "device": {"name": "cpu"}}

    def files(self, step="step-4"):
        found = {}
        for folder, _, names in os.walk(os.path.join(self.folder.name, "out", step)):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    found[os.path.relpath(os.path.join(folder, name), self.folder.name)] = file.read()
        return found

    def test_writes_what_the_program_writes(self):
        recorder = Recorder()
        self.assertTrue(longstride.train(self.settings(), callbacks=[recorder]))
        self.assertEqual([e for e in recorder.events if e[0] != "save"],
                         [("start", 107072), ("step", 1), ("step", 2), ("step", 3), ("step", 4), ("eval", 4), ("end", 4)])
        self.assertEqual((recorder.directory, recorder.total), (os.path.join(self.folder.name, "out"), 4))
        self.assertEqual({e[1] for e in recorder.events if e[0] == "save"}, {"step-2", "step-4"})
        ours = self.files()
        os.rename(os.path.join(self.folder.name, "out"), os.path.join(self.folder.name, "before"))
        toml = os.path.join(self.folder.name, "run.toml")
        with open(toml, "w", encoding="utf-8") as file:
            for section, values in self.settings().items():
                file.write(f"[{section}]\n")
                for key, value in values.items():
                    file.write(f"{key} = {value if isinstance(value, int) else repr(value)}\n")
        subprocess.run([program(), "train", toml], check=True, stderr=subprocess.DEVNULL)
        self.assertEqual(ours, self.files())
        self.assertGreater(len(ours), 3)

    def test_what_a_callback_raises_ends_the_run_and_loses_nothing(self):
        failing = Recorder(fail_at=3)
        with self.assertRaisesRegex(ValueError, "enough"):
            longstride.train(self.settings(), callbacks=[failing])
        self.assertEqual(failing.events[-1], ("end", 3))
        self.assertIn("step-3", os.listdir(os.path.join(self.folder.name, "out")))
        recorder = Recorder()
        self.assertTrue(longstride.train(self.settings(), resume=True, callbacks=[recorder]))
        self.assertIn(("step", 4), recorder.events)
        self.assertNotIn(("step", 3), recorder.events)

    def test_errors(self):
        with self.assertRaisesRegex(longstride.Error, "did you mean training.steps"):
            longstride.train({**self.settings(), "training": {"stepz": 4}})
        with self.assertRaisesRegex(longstride.Error, "no such file|cannot open|does not exist"):
            longstride.train(os.path.join(self.folder.name, "missing.toml"))
        with self.assertRaisesRegex(longstride.Error, "dict of sections"):
            longstride.train({"training": 4})

    def test_plan(self):
        plan = longstride.plan(preset="tiny-qwen2", context=[1024, "4K"], device="cpu")
        self.assertEqual([row["context"] for row in plan["plans"]], [1024, 4096])
        with self.assertRaisesRegex(longstride.Error, "preset"):
            longstride.plan(preset="no-such", context=1024)


if __name__ == "__main__":
    unittest.main()
