"""The examples, with small settings: they run as they are, learn, and tell what is wrong with their input."""
import gzip
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"


def run(name, *arguments, **environment):
    """(status, stdout and stderr) of an example."""
    done = subprocess.run([sys.executable, "-W", "ignore", EXAMPLES / name, *map(str, arguments)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | environment, check=False)
    return done.returncode, done.stdout


def pages(count):
    """Texts that are always the same, so that the same ones are held out."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnoprstu", k=chance.randrange(2, 9))) for _ in range(300)]
    for _ in range(count):
        yield "\n".join(" ".join(chance.choices(words, range(300, 0, -1), k=12)) + "." for _ in range(60))


class PolicyGradient(unittest.TestCase):
    def test_raises_its_reward(self):
        status, output = run("policy_gradient.py", "--length", 256, "--iterations", 8, "--goal", 0.45, "--threads", 1)
        self.assertEqual(status, 0, output)
        first, last = map(float, re.search(r"reward ([\d.]+) at first, ([\d.]+) in the last", output).groups())
        self.assertLess(first, 0.3)
        self.assertGreater(last, first + 0.2)

    def test_tells_that_it_did_not(self):
        """Without a learning rate nothing is learnt."""
        status, output = run("policy_gradient.py", "--length", 256, "--iterations", 1, "--lr", 0, "--threads", 1)
        self.assertEqual(status, 1, output)
        self.assertIn("the reward did not reach the goal", output)

    def test_bad_input(self):
        for arguments, told in ((["--length", 300], "must divide 4096"), (["--length", 64], "at least 80"),
                                (["--iterations", 0], "must be at least 1"), (["--threads", -1], "device.threads")):
            status, output = run("policy_gradient.py", *arguments)
            self.assertNotEqual(status, 0)
            self.assertIn(told, output)
            self.assertNotIn("Traceback", output)


class DebianDocs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.docs, self.out = self.folder / "doc", self.folder / "out"

    def test_end_to_end(self):
        """Documentation as Debian has it: by package, some of it packed, some of it twice, some of it not text."""
        for number, text in enumerate(pages(40)):
            package = self.docs / ("prepare" if number == 0 else f"package{number}")
            package.mkdir(parents=True)
            if number % 2:
                (package / "page.md").write_text(text)
            else:
                (package / "page.md.gz").write_bytes(gzip.compress(text.encode()))
            (package / "copyright").write_text("May be copied. " * 50)
        (self.docs / "prepare" / "README.latin").write_bytes("Übung ".encode("latin-1") * 1000)
        (self.docs / "prepare" / "changelog.gz").write_bytes(b"not packed" * 1000)
        (self.docs / "prepare" / "NEWS.gz").write_bytes(gzip.compress(b"cut off" * 1000)[:-20])
        (self.docs / "prepare" / "README.d").mkdir()
        (self.docs / "prepare" / "README.gone").symlink_to("nowhere")
        status, output = run("debian_docs.py", self.out, "--docs", self.docs, "--steps", 12)
        self.assertEqual(status, 0, output)
        copied = [path.name for path in self.out.glob("texts/*/*")]
        self.assertEqual(copied.count("copyright"), 1)
        self.assertFalse([name for name in copied if name.startswith(("README", "changelog", "NEWS"))])
        for command in ("prepare", "prepare needle", "plan", "train", "eval", "report"):
            self.assertIn(f"$ longstride {command} ", output)
        report = (self.out / "run" / "report.html").read_text()
        self.assertIn("Needle map", report)
        self.assertNotIn("Left out", report)

    def test_no_documents(self):
        (self.docs / "little").mkdir(parents=True)
        (self.docs / "little" / "copyright").write_text("May be copied. " * 50)
        for docs in (self.docs, self.folder / "absent"):
            status, output = run("debian_docs.py", self.out, "--docs", docs)
            self.assertEqual(status, 1)
            self.assertTrue(output.startswith(f"error: {docs} "), output)
            self.assertIn("--docs DIR", output)
            self.assertFalse(self.out.exists())

    def test_existing_directory(self):
        self.out.mkdir()
        status, output = run("debian_docs.py", self.out, "--docs", ROOT)
        self.assertEqual((status, output.splitlines()[0]), (1, f"error: {self.out} exists"))

    def test_missing_package(self):
        """Told before anything is written, though it is needed last."""
        (self.folder / "sitecustomize.py").write_text("import sys; sys.modules['plotly'] = None")
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        status, output = run("debian_docs.py", self.out, "--docs", ROOT, PYTHONPATH=path)
        self.assertEqual((status, output.splitlines()), (1, [
            "error: the package plotly is missing", "  hint: pip install 'longstride[prepare,report]'"]))
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main()
