"""Needles from end to end, by the commands of docs/report.md: prepare, train, eval, report.

The model learns the short documents by heart and never sees the long ones, so it finds the needles of the former."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

RUN = """
[model]
preset = "tiny-qwen2"
[data]
path = "needles"
pack = false
long = "drop"
[training]
context = 256
chunk = 64
page = 16
steps = 60
batch = 3
[optimizer]
learning_rate = 0.01
[checkpoint]
directory = "RUN"
[device]
name = "cpu"
threads = 1
"""
NEEDED = ("tokenizers", "transformers", "xxhash", "plotly")


def installed():
    """Whether the commands that are started here have what they need; this process may see the sources alone."""
    if not all(importlib.util.find_spec(name) for name in NEEDED):
        return False
    return subprocess.run([sys.executable, "-c", "from longstride import _core, program; program.program()"],
                          cwd=tempfile.gettempdir(), stderr=subprocess.DEVNULL, check=False).returncode == 0


@unittest.skipUnless(installed(), "the package is not built, or tokenizers, transformers, xxhash or plotly is missing")
class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write_tokenizer()
        with open(self.path("run.toml"), "w", encoding="utf-8") as file:
            file.write(RUN)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write_tokenizer(self):
        """Bytes, so that a number has six tokens and the model's vocabulary of 320 suffices."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE(vocab={one: k for k, one in enumerate(alphabet)}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        os.mkdir(self.path("model"))
        tokenizer.save(self.path("model", "tokenizer.json"))
        with open(self.path("model", "tokenizer_config.json"), "w", encoding="utf-8") as file:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, file)

    def command(self, line, out=None):
        done = subprocess.run([sys.executable, "-m", "longstride", *line.split()], cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}")
        if out:
            with open(self.path(out), "w", encoding="utf-8") as file:
                file.write(done.stdout)

    def charts(self):
        with open(self.path("RUN", "report.html"), encoding="utf-8") as file:
            text = file.read()
        found = json.loads(re.search(r'id="report">(.*?)</script>', text, re.S).group(1))["charts"]
        return {chart["id"]: chart for chart in found}

    def test_prepare_eval_report(self):
        self.command("prepare needle --lengths 256,512 --depths 0,0.5,1 --count 1 --tokenizer model/ --out needles/"
                     " --workers 1")
        self.command("train run.toml")
        self.command("eval --model RUN/step-60 --tokens needles/ --json", out="RUN/eval.json")
        with open(self.path("RUN", "eval.json"), encoding="utf-8") as file:
            documents = json.load(file)["documents"]
        self.assertEqual([(one["tokens"], one["targets"]) for one in documents], [(256, 6)] * 3 + [(512, 6)] * 3)
        self.command("report RUN --needle needles/")
        needles = self.charts()["needle-1"]
        trace = needles["traces"][0]
        self.assertEqual((trace["x"], trace["y"]), (["256", "512"], ["0%", "50%", "100%"]))
        self.assertEqual(trace["z"], [[100, 0]] * 3)
        self.assertEqual(trace["z"], [[100 * one["all_correct"] for one in documents[row::3]] for row in range(3)])
        self.assertIn("Found in 3 of 6 documents", needles["note"])
        # The run's data are these needles, so they are found without being named.
        self.command("report RUN")
        self.assertEqual(self.charts()["needle-1"], needles)
        # So are they beside an evaluation.
        os.rename(self.path("RUN", "eval.json"), self.path("needles", "eval.json"))
        self.command("report RUN")
        self.assertNotIn("needle-1", self.charts())
        self.command("report RUN --eval needles/eval.json")
        self.assertEqual(self.charts()["needle-1"], needles)


if __name__ == "__main__":
    unittest.main()
