"""Runs: any number of workers, kills at any moment, and what is left of earlier runs."""
import errno
import fcntl
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(__file__))
import prepare_support as support  # noqa: E402

KILLS = int(os.environ.get("LONGSTRIDE_TEST_KILLS", "10"))


def kept(files):
    """What of an unfinished run is worth keeping."""
    return {name: data for name, data in files.items() if not name.endswith(("lock", ".tmp"))}


class Runs(support.Case):
    def setUp(self):
        super().setUp()
        self.source = support.write_lines(self.path("a.jsonl"), [{"messages": support.chat(i)} for i in range(1200)])
        self.options = ["--messages-column", "messages", "--eval-fraction", "0.2", "--shard-tokens", "7000"]

    def run_all(self, out, *arguments, workers=1, piece=16000):
        return self.prepare(self.source, *self.options, "--workers", workers, "--piece-bytes", piece, *arguments,
                            out=out)

    def reference(self):
        self.run_all(self.path("reference"))
        found = support.contents(self.path("reference"))
        self.assertGreater(len(found), 15)
        return found

    def unfinished(self, out, workers=1):
        """A run that fails when all parts are there and some shards are finished."""
        stop = mock.patch("longstride.prepare.run.Run.finish", side_effect=OSError("stopped"))
        with stop, self.assertRaises(OSError):
            self.run_all(out, workers=workers)
        folder, = (name for name in os.listdir(os.path.join(out, ".prepare")) if "." not in name and name != "lock")
        return os.path.join(out, ".prepare", folder)

    def test_workers_and_pieces_do_not_matter(self):
        wanted = self.reference()
        for workers, piece in ((2, 16000), (8, 3000), (2, 1 << 20)):
            with self.subTest(workers=workers, piece=piece):
                out = self.path(f"out-{workers}-{piece}")
                self.run_all(out, workers=workers, piece=piece)
                self.assertEqual(support.contents(out), wanted)

    def test_kills(self):
        wanted = self.reference()
        chance, done, finished = random.Random(KILLS), 0, 0
        context = multiprocessing.get_context("fork")
        begin = time.monotonic()
        self.run_all(self.path("timed"), workers=2)
        full = time.monotonic() - begin
        while done < KILLS or not finished:
            process = context.Process(target=self.run_all, args=(self.out,), kwargs={"workers": 1 + done % 2})
            process.start()
            process.join(chance.uniform(0, full) if done < KILLS else None)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                done += 1
            process.join()
            if process.exitcode == 0:
                self.assertEqual(support.contents(self.out), wanted)
                finished += 1
                shutil.rmtree(self.out)
            else:
                self.assertEqual(process.exitcode, -signal.SIGKILL)

    def test_killed_before_every_rename_and_removal(self):
        support.write_lines(self.source, [{"messages": support.chat(i)} for i in range(40)])
        self.options[-1] = "4000"
        self.run_all(self.path("reference"))
        wanted = support.contents(self.path("reference"))
        self.assertEqual(sum(name.endswith(".tokens") for name in wanted), 2)

        def run_and_die(step):
            left = [step]

            def counted(function):
                def call(*arguments, **options):
                    left[0] -= 1
                    if not left[0]:
                        os._exit(9)
                    return function(*arguments, **options)

                return call

            with mock.patch("os.replace", counted(os.replace)), mock.patch("os.unlink", counted(os.unlink)):
                self.run_all(self.out)

        step, status = 0, 9
        while status == 9:
            step += 1
            process = multiprocessing.get_context("fork").Process(target=run_and_die, args=(step,))
            process.start()
            process.join()
            status = process.exitcode
            self.run_all(self.out)
            self.assertEqual(support.contents(self.out), wanted, f"step {step}")
            shutil.rmtree(self.out)
        self.assertEqual(status, 0)
        self.assertGreater(step, 10)

    def test_parts_and_shards_are_used_again(self):
        wanted = self.reference()
        self.unfinished(self.out)
        with mock.patch("longstride.prepare.pool.Pool.receive", side_effect=AssertionError("worked again")):
            self.run_all(self.out)
        self.assertEqual(support.contents(self.out), wanted)

    def test_a_broken_part_is_made_again(self):
        wanted = self.reference()
        folder = self.unfinished(self.out)
        broken = sorted(name for name in os.listdir(folder) if name.endswith(".train"))[-1]
        with open(os.path.join(folder, broken), "r+b") as file:
            file.write(b"\xff")
        self.run_all(self.out)
        self.assertEqual(support.contents(self.out), wanted)

    def test_altered_shards_are_refused(self):
        folder = self.unfinished(self.out)
        self.assertTrue(os.path.exists(os.path.join(self.out, "train-00000.tokens")))
        self.alter("train-00000.mask")
        self.refused("train-00000.mask is not as it was written", self.source, *self.options)
        self.assertTrue(os.path.exists(folder))
        self.out = self.path("finished")
        self.run_all(self.out)
        self.assertIn("is complete already", self.run_all(self.out, workers=2))
        self.alter("eval-00000.tokens")
        self.refused("eval-00000.tokens is not as it was written", self.source, *self.options)
        os.unlink(os.path.join(self.out, "eval-00000.tokens"))
        self.refused("eval-00000.tokens is not as it was written", self.source, *self.options)

    def alter(self, name):
        with open(os.path.join(self.out, name), "r+b") as file:
            first = file.read(1)[0]
            file.seek(0)
            file.write(bytes([first ^ 1]))

    def test_other_tokenizers_options_and_inputs_are_refused(self):
        other = support.train_tokenizer(self.path("other"), support.CHATML, vocabulary=600)
        template = support.with_template(self.path("template"), self.tokenizer, support.TAGGED)
        for verb in ("begun", "made"):
            self.unfinished(self.out) if verb == "begun" else self.run_all(self.out)
            before = support.contents(self.out)
            for tokenizer in (other, template):
                self.refused(f"was {verb} with another tokenizer", self.source, *self.options, tokenizer=tokenizer)
            self.refused(f"was {verb} with other options: shard_tokens 7000, not 8192", self.source, *self.options,
                         "--shard-tokens", "8K")
            shutil.copy(self.source, self.path("kept"))
            support.write_lines(self.source, [{"messages": support.chat(i + 1)} for i in range(1200)])
            self.refused("a.jsonl differs" if verb == "begun" else "was made from other files", self.source,
                         *self.options)
            os.replace(self.path("kept"), self.source)
            self.assertEqual(kept(support.contents(self.out)), kept(before))

    def test_foreign_directories_and_second_runs_are_refused(self):
        support.write(os.path.join(self.out, "thesis.txt"), "mine")
        self.refused("is not empty: it holds thesis.txt", self.source, *self.options)
        self.out = self.path("taken")
        lock = support.write(os.path.join(self.out, ".prepare", "lock"), "")
        with open(lock, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.refused("another run is writing", self.source, *self.options)
        support.write(self.path("manifest", "manifest.json"), "{}")
        self.refused("is not a manifest of prepared data", self.source, *self.options, out=self.path("manifest"))

    def test_full_disk(self):
        wanted = self.reference()
        for limit in (2000, 9000):  # of a file's size: for parts, which workers write; for shards
            code = (f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
                    "import sys; sys.path[:0] = sys.argv[1:2]; from longstride.prepare import main\n"
                    "try: main(sys.argv[2:])\nexcept RuntimeError as error: print(type(error).__name__, error)")
            result = subprocess.run(
                [sys.executable, "-B", "-c", code, os.path.join(support.ROOT, "python"), self.source, *self.options,
                 "--tokenizer", self.tokenizer, "--out", self.out, "--workers", "1", "--piece-bytes", "4000"],
                capture_output=True, text=True, check=False)
            self.assertIn("Error a file grew too large for " + self.out, result.stdout)
            self.assertIn("run the same command again", result.stdout)
            self.assertFalse(os.path.exists(os.path.join(self.out, "manifest.json")))
        self.run_all(self.out, piece=4000)
        self.assertEqual(support.contents(self.out), wanted)

    def test_no_space_is_told(self):
        for name in ("longstride.prepare.files.os.fsync", "longstride.prepare.shards.os.replace"):
            with mock.patch(name, side_effect=OSError(errno.ENOSPC, "No space left on device")):
                self.refused(f"no space is left for {self.out}", self.source, *self.options, "--workers", 1)
        self.run_all(self.out)

    def test_memory_does_not_grow_with_the_input(self):
        peaks = []
        for copies in (1, 12):
            with open(self.source, "rb") as file:
                support.write(self.path("b.jsonl"), file.read() * copies, "wb")
            code = ("import os, resource, sys; sys.path[:0] = sys.argv[1:2]; from longstride.prepare import main\n"
                    "main(sys.argv[2:])\n"
                    "print('peak', *(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, "
                    "resource.RUSAGE_CHILDREN)))")
            result = subprocess.run([sys.executable, "-B", "-c", code, os.path.join(support.ROOT, "python"),
                                     self.path("b.jsonl"),
                                     *self.options, "--tokenizer", self.tokenizer, "--out", self.path(f"out-{copies}"),
                                     "--workers", "1", "--piece-bytes", "60000"], capture_output=True, text=True,
                                     check=True)
            peaks.append([int(kib) for kib in result.stdout.split("peak")[1].split()])
        for small, large in zip(*peaks, strict=True):
            self.assertLess(large, small + 8 * 1024)  # of 5 MB of input


class BadInput(support.Case):
    def test_named_with_file_and_line(self):
        good = '{"text": "fine"}\n'
        for text, pattern in [
                (good * 300 + "{'text': 1}\n" + good, "a.jsonl, line 301: broken JSON: "),
                (good + "\n" + '{"text": "x"', "a.jsonl, line 3: broken JSON: "),
                (good + "[1]\n", "a.jsonl, line 2: not a JSON object"),
                (good + '{"content": "x"}\n', "a.jsonl, line 2: no value for 'text'"),
                (good + '{"text": 5}\n', "a.jsonl, line 2: 'text' is not a string"),
                (good + '{"text": "\\ud800"}\n', "a.jsonl, line 2: half a surrogate pair at character 0"),
                ("", "holds no documents"), ("\n\n", "holds no documents")]:
            with self.subTest(pattern):
                support.write(self.path("a.jsonl"), text)
                self.refused(pattern, self.path("a.jsonl"), "--workers", 2, "--piece-bytes", 500)
        support.write(self.path("a.jsonl"), good.encode() + b'{"text": "\xff"}\n', "wb")
        self.refused("a.jsonl, line 2: not UTF-8 at byte 10", self.path("a.jsonl"))
        support.write(self.path("a.txt"), b"abc\xff", "wb")
        self.refused("a.txt: not UTF-8 at byte 3", self.path("a.txt"))

    def test_the_first_error_is_told_whatever_the_workers_do(self):
        lines = ['{"text": "fine"}'] * 400
        lines[100], lines[399] = "first", "second"
        support.write(self.path("a.jsonl"), "\n".join(lines))
        for workers in (1, 4):
            self.refused("a.jsonl, line 101: broken JSON", self.path("a.jsonl"), "--workers", workers, "--piece-bytes",
                         300)
            shutil.rmtree(self.out)

    def test_broken_files(self):
        import gzip

        import zstandard

        data = b'{"text": "fine"}\n' * 100000
        for name, packed in (("gz", gzip.compress(data)), ("zst", zstandard.ZstdCompressor().compress(data))):
            for cut in (len(packed) // 2, len(packed) - 3):
                path = support.write(self.path("a.jsonl." + name), packed[:cut], "wb")
                self.refused("is not a whole " + ("gzip" if name == "gz" else "zstd"), path, "--workers", 1)
            support.write(path, b"no such thing", "wb")
            self.refused("a.jsonl." + name + " is not a ", path, "--workers", 1)
            shutil.rmtree(self.out, ignore_errors=True)
        for name in ("parquet", "arrow"):
            path = support.write(self.path("a." + name), b"no such thing at all", "wb")
            self.refused(f"a.{name} is not a {name} file", path)
        self.refused("/missing does not exist", self.path("missing"))
        os.makedirs(self.path("empty"))
        self.refused("holds no files to read", self.path("empty"))

    def test_command_line(self):
        text = support.write(self.path("a.txt"), "A text.")
        self.refused("holds no tokenizer.json", text, tokenizer=self.directory)
        self.refused("has no token 'END'", text, "--end-token", "END")
        for arguments, pattern in ((["--workers", "0"], "'0' is not a positive number"),
                                   (["--eval-fraction", "2"], "'2' is not a number from 0 to 1"),
                                   (["--shard-tokens", "0K"], "'0K' is not a positive size"),
                                   (["--template-arg", "x"], "'x' is not like name=value"),
                                   (["--date", "today"], "'today' is not a date"), (["--colour"], "unrecognized")):
            self.refused(pattern, text, *arguments)
        broken = support.write(self.path("broken", "tokenizer.json"), "{}")
        self.refused("cannot be loaded", text, tokenizer=os.path.dirname(broken))
        self.refused("no document is in the split 'eval'", text, "--eval-fraction", "1e-9")


if __name__ == "__main__":
    unittest.main()
