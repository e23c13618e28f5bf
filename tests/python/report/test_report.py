"""The command: charts, header, comparison, outputs and refusals."""
import contextlib
import io
import json
import os
import random
import re
import tempfile
import unittest
from unittest import mock

import report_samples as samples
from longstride.errors import Error
from longstride.report import command, main, page
from longstride.report.charts import all_charts
from longstride.report.facts import facts, status, tiles
from longstride.report.run import Run

CHARTS = {"loss", "by-position", "accuracy", "learning-rate", "gradient-norm", "speed", "step-time", "transfers",
          "hidden", "memory"}


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, *names):
        return os.path.join(self.folder.name, *names)

    def run_of(self, name="run", **more):
        return Run(samples.make_run(self.path(name), **more))


class Charts(WithFolder):
    def charts(self, *runs, evaluations=(), maps=()):
        charts, axes, unit = all_charts(list(runs), list(evaluations), list(maps))
        json.dumps(charts, allow_nan=False)
        self.assertEqual(len({chart["id"] for chart in charts}), len(charts))
        return {chart["id"]: chart for chart in charts}

    def test_all_are_there(self):
        self.assertEqual(set(self.charts(self.run_of())), CHARTS)

    def test_loss(self):
        chart = self.charts(self.run_of(steps=40, resumed_at=10))["loss"]
        training, evaluation = chart["traces"]
        self.assertEqual(training["xs"]["step"], list(range(1, 41)))
        self.assertEqual(training["xs"]["tokens"][-1], 40 * 4096)
        self.assertAlmostEqual(training["xs"]["time"][-1], 80, delta=1)
        self.assertEqual(evaluation["xs"]["step"], [0, 20, 40])
        self.assertEqual(evaluation["xs"]["tokens"], [0, 20 * 4096, 40 * 4096])
        self.assertEqual(evaluation["y"], [3, 2.8, 2.6])
        self.assertEqual(chart["marks"][0]["step"], [10])

    def test_extremes_of_a_long_run_are_drawn(self):
        os.mkdir(self.path("run"))
        samples.write_lines(self.path("run", "metrics.jsonl"),
                            (samples.step_line(step, 20_000, **({"loss": 99.0} if step == 7777 else {}))
                             for step in range(1, 20_001)))
        chart = self.charts(Run(self.path("run")))["loss"]
        raw = chart["traces"][0]
        self.assertLessEqual(len(raw["y"]), 2000)
        self.assertEqual(raw["xs"]["step"][raw["y"].index(99)], 7777)

    def test_unknown_values_are_gaps(self):
        os.mkdir(self.path("run"))
        samples.write_lines(self.path("run", "metrics.jsonl"),
                            [samples.step_line(1), samples.step_line(2, loss=None, gradient_norm=None, skipped=True),
                             samples.step_line(3)])
        charts = self.charts(Run(self.path("run")))
        self.assertIsNone(charts["loss"]["traces"][0]["y"][1])
        self.assertEqual(charts["loss"]["traces"][1]["name"], "skipped, not finite")
        self.assertEqual(charts["loss"]["traces"][1]["xs"]["step"], [2])

    def test_step_time(self):
        chart = self.charts(self.run_of(seconds_waiting=0.1))["step-time"]
        self.assertEqual([trace["name"] for trace in chart["traces"]],
                         ["forward", "recompute", "backward", "update", "waiting", "other"])
        self.assertEqual(chart["traces"][0]["caption"], "forward 25%")
        self.assertTrue(all(trace["y"][3] == 0.1 for trace in chart["traces"] if trace["name"] == "waiting"))
        self.assertAlmostEqual(sum(trace["y"][5] for trace in chart["traces"]), samples.step_line(6)["seconds"], 3)

    def test_memory(self):
        chart = self.charts(self.run_of(bytes_host_magic=samples.MIB))["memory"]
        self.assertEqual(chart["traces"][0]["y"], ["device", "host", "disk"])
        by_name = {trace["name"]: trace["x"] for trace in chart["traces"]}
        self.assertEqual(by_name["weights"], [20, 0, 0])
        self.assertEqual(by_name["pages"], [16, 64, 128])
        self.assertEqual(by_name["magic"], [0, 1, 0])
        self.assertEqual(chart["x"]["title"], "MiB")
        self.assertIn("device 90.0 MiB, host 105 MiB, disk 128 MiB; the device has 100 MiB", chart["note"])

    def test_nothing_moved_nothing_sparse(self):
        charts = self.charts(self.run_of(bytes_moved_in=0, bytes_moved_out=0))
        self.assertEqual(set(charts), CHARTS - {"transfers", "hidden"})

    def test_sparse(self):
        run = self.run_of(union_pages_mean=7.5, union_pages_most=11, selected_page_reuse=3.0)
        chart = self.charts(run)["selection"]
        self.assertEqual([trace["name"] for trace in chart["traces"]], ["mean", "most"])
        self.assertIn("serves 3.0 pages", chart["note"])

    def test_by_position(self):
        chart = self.charts(self.run_of(steps=200))["by-position"]
        names = [trace["name"] for trace in chart["traces"]]
        self.assertEqual((len(names), names[0], names[-1]), (7, "step 0", "step 200"))
        self.assertEqual(chart["traces"][0]["y"][0], 4)
        self.assertIn("1K to 2K tokens seen", chart["traces"][0]["text"][10])
        opacities = [trace["opacity"] for trace in chart["traces"]]
        self.assertEqual(opacities, sorted(opacities))

    def test_by_position_frame(self):
        """A bin of one target does not decide the range of the axis."""
        run = self.run_of()
        for line in run.metrics.evals:
            line["by_position"][0]["loss"] = 50.0
        chart = self.charts(run)["by-position"]
        self.assertLess(chart["y"]["range"][1], 10)
        self.assertIn("double-click", chart["note"])

    def test_several_runs(self):
        charts = self.charts(self.run_of("a"), self.run_of("b", steps=60, seconds_update=1.0))
        self.assertEqual(set(charts), CHARTS)
        named = [trace["name"] for trace in charts["loss"]["traces"] if trace.get("showlegend", True)]
        self.assertEqual(named, ["a", "b"])
        colours = [trace["line"]["color"] for trace in charts["learning-rate"]["traces"]]
        self.assertEqual(colours, ["@blue", "@orange"])
        self.assertEqual(charts["step-time"]["traces"][0]["y"], ["a", "b"])
        self.assertEqual([trace["name"] for trace in charts["by-position"]["traces"]], ["a, step 100", "b, step 60"])
        self.assertEqual(charts["memory"]["traces"][0]["y"][3], "b: device")

    def test_a_run_keeps_its_colour(self):
        still = self.run_of("a", bytes_moved_in=0, bytes_moved_out=0)
        charts = self.charts(still, self.run_of("b"))
        self.assertEqual([trace["line"]["color"] for trace in charts["transfers"]["traces"]], ["@orange", "@orange"])

    def test_single_step_and_only_evaluations(self):
        charts = self.charts(self.run_of("one", steps=1))
        self.assertEqual(charts["loss"]["traces"][0]["mode"], "markers")
        os.mkdir(self.path("evals"))
        samples.write_lines(self.path("evals", "metrics.jsonl"), [samples.eval_line(0)])
        run = Run(self.path("evals"))
        self.assertEqual(set(self.charts(run)), {"loss", "by-position", "accuracy"})
        self.assertEqual(status(run), ("0 steps", False))
        self.assertTrue(page.one_header(run))


class Header(WithFolder):
    def test_facts(self):
        run = self.run_of()
        told = dict(facts(run))
        self.assertEqual(told["Model"], "tiny-qwen2, qwen2, 2 layers, hidden size 64")
        self.assertEqual(told["Parameters"], "96, all trained")
        self.assertEqual(told["Context"], "4K tokens")
        self.assertEqual(told["Chunk"], "512 tokens, pages of 64")
        self.assertIn("in host memory: optimizer 40.0 MiB, pages 64.0 MiB; on disk: pages 128 MiB", told["Plan"])
        self.assertEqual(told["Data"], "tokens.bin: 2.00 epochs")
        self.assertEqual(told["Time"], "31 Jan 2026, 11:59 to 12:03 UTC, resumed once")
        self.assertEqual(status(run), ("finished, 100 steps", True))
        numbers = {label: number for label, number, _ in tiles(run)}
        self.assertEqual(numbers["Evaluation loss"], "2.000")
        self.assertEqual(numbers["Training time"], "3 min 20 s")

    def test_adapters_and_unfinished(self):
        samples.make_run(self.path("run"), steps=50, checkpoint=False, total_steps=80)
        samples.write_checkpoint(self.path("run"), 50, lora={"rank": 8}, model={"path": "runs/first/step-60"})
        os.unlink(self.path("run", "step-50", "model.safetensors"))
        run = Run(self.path("run"))
        self.assertEqual(dict(facts(run))["Parameters"], "96, trained (adapters of rank 8)")
        self.assertEqual(dict(facts(run))["Model"].split(",")[0], "first/step-60")
        self.assertEqual(status(run), ("step 50 of 80", False))

    def test_damaged_checkpoints_are_passed_over(self):
        samples.make_run(self.path("run"))
        samples.write_checkpoint(self.path("run"), 200)
        for broken in ("{", "[]", "[" * 100_000):
            with open(self.path("run", "step-200", "state", "state.json"), "w", encoding="utf-8") as file:
                file.write(broken + "\n0123456789abcdef\n")
            self.assertEqual(os.path.basename(Run(self.path("run")).checkpoint), "step-100")
        with open(self.path("run", "step-100", "model.safetensors"), "wb") as file:
            file.write(b"\xff" * 64)
        self.assertIsNone(Run(self.path("run")).parameters())

    def test_strange_configurations(self):
        """Whatever a state.json holds, a report is made."""
        for k, value in enumerate((None, 7, "x", [1], {"a": 1})):
            samples.make_run(self.path(f"run{k}"), checkpoint=False)
            sections = ("model", "data", "training", "attention", "optimizer", "schedule", "memory", "lora")
            samples.write_checkpoint(self.path(f"run{k}"), **{section: value for section in sections})
            run = Run(self.path(f"run{k}"))
            all_charts([run], [], [])
            self.assertTrue(facts(run))


class Command(WithFolder):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(page, "plotly_source", lambda: "/* plotly */")
        patch.start()
        self.addCleanup(patch.stop)

    def report(self, *arguments):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(main(list(arguments)), 0)
        path = out.getvalue().removeprefix("wrote ").strip()
        with open(path, encoding="utf-8") as file:
            return path, file.read()

    def data(self, text):
        return json.loads(re.search(r'id="report">(.*?)</script>', text, re.S).group(1))

    def refused(self, text, *arguments):
        with self.assertRaises(Error) as caught:
            main(list(arguments))
        self.assertIn(text, caught.exception.message)
        self.assertTrue(caught.exception.hint)

    def test_page(self):
        run = samples.make_run(self.path("run"))
        path, text = self.report(run)
        self.assertEqual(path, os.path.join(run, "report.html"))
        self.assertEqual({chart["id"] for chart in self.data(text)["charts"]}, CHARTS)
        self.assertIn("<h1>run</h1>", text)
        self.assertIn("default-src 'none'", text)
        self.assertNotIn("$", text.split("<script")[0].split("</style>")[1])
        for name in CHARTS:
            self.assertIn(f'id="plot-{name}"', text)
        self.assertEqual(sorted(os.listdir(run)), ["metrics.jsonl", "report.html", "step-100"])

    def test_out_and_metrics_file(self):
        run = samples.make_run(self.path("run"))
        path, text = self.report(os.path.join(run, "metrics.jsonl"), "--out", self.path("a.html"))
        self.assertEqual(path, self.path("a.html"))
        self.assertIn("<h1>run</h1>", text)

    def test_metrics_elsewhere(self):
        os.mkdir(self.path("run"))
        elsewhere = self.path("elsewhere.jsonl")
        samples.write_lines(elsewhere, [samples.step_line(1)])
        samples.write_checkpoint(self.path("run"), metrics={"file": elsewhere})
        self.assertIn("elsewhere.jsonl", self.report(self.path("run"))[1])

    def test_names_are_escaped(self):
        run = samples.make_run(self.path("<b>&amp; <script>alert(1)"))
        other = samples.make_run(self.path("@blue $data"))
        evaluation, _ = samples.make_needles(run)
        os.rename(evaluation, os.path.join(run, "eval <script>alert(2).json"))
        for text in (self.report(run)[1], self.report(run, other, "--out", self.path("a.html"))[1]):
            self.assertNotIn("<script>alert", text)
            self.assertEqual(text.count("</script>"), 3)
        charts = {chart["id"]: chart for chart in self.data(text)["charts"]}
        names = {trace["name"] for trace in charts["loss"]["traces"] if trace.get("showlegend", True)}
        self.assertEqual(names, {"&lt;b&gt;&amp;amp; &lt;script&gt;alert(1)", "@blue $data"})
        self.assertTrue(charts["needle-1"]["title"].endswith("eval <script>alert(2)"))

    def test_runs_of_one_name(self):
        os.mkdir(self.path("x")), os.mkdir(self.path("y"))
        one, two = samples.make_run(self.path("x", "run")), samples.make_run(self.path("y", "run"))
        text = self.report(one, two, "--out", self.path("a.html"))[1]
        self.assertIn("x/run</th>", text)
        self.assertIn("y/run</th>", text)
        self.refused("are the same run", one, os.path.join(one, "metrics.jsonl"))

    def test_needles(self):
        run = samples.make_run(self.path("run"))
        evaluation, needles = samples.make_needles(run)
        charts = {chart["id"]: chart for chart in self.data(self.report(run)[1])["charts"]}
        self.assertEqual(charts["needle-1"]["title"], "Needle map: eval")
        self.assertEqual(charts["by-position"]["traces"][-1]["name"], "eval")
        moved = self.path("moved.json"), self.path("n.json")
        os.rename(evaluation, moved[0]), os.rename(needles, moved[1])
        self.assertNotIn("needle-1", self.report(run)[1])
        self.assertNotIn("needle-1", self.report(run, "--eval", moved[0])[1])
        self.assertIn("needle-1", self.report(run, "--eval", moved[0], "--needle", moved[1])[1])
        self.refused("there is none", run, "--needle", moved[1])

    def test_other_files_in_the_run(self):
        run = samples.make_run(self.path("run"))
        with open(os.path.join(run, "eval-settings.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        self.assertIn("Left out: " + os.path.join(run, "eval-settings.json"), self.report(run)[1])
        self.refused("no list of documents", run, "--eval", os.path.join(run, "eval-settings.json"))

    def test_notes(self):
        run = self.path("run")
        os.mkdir(run)
        samples.write_lines(os.path.join(run, "metrics.jsonl"), [samples.step_line(1), {"kind": "note"}, '{"ti'])
        text = self.report(run)[1]
        for note in ("is unfinished and was left out", "unknown kind, note", "no checkpoint yet"):
            self.assertIn(note, text)

    def test_refused(self):
        os.mkdir(self.path("empty"))
        self.refused("has no metrics.jsonl", self.path("empty"))
        self.refused("there is no run", self.path("absent"))
        samples.write_lines(self.path("empty", "metrics.jsonl"), [])
        self.refused("has no finished step", self.path("empty"))
        run = samples.make_run(self.path("run"))
        with self.assertRaisesRegex(Error, "the directory above it has one"):
            main([os.path.join(run, "step-100")])
        self.refused("cannot write", run, "--out", self.path("absent", "a.html"))
        self.refused("cannot read", run, "--eval", self.path("absent.json"))

    def test_a_failed_write_leaves_the_old_page(self):
        target = self.path("a.html")
        command.write_whole(target, "old")
        with mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")):
            with self.assertRaisesRegex(Error, "No space left"):
                command.write_whole(target, "new")
        with open(target, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")
        self.assertEqual(os.listdir(self.folder.name), ["a.html"])


class Damaged(WithFolder):
    """Files with values that do not belong there: a report, or an Error; never another exception."""

    VALUES = (None, True, 0, -1, 2**70, 10**400, 1e308, float("nan"), float("inf"), "x", [], {}, [1], {"a": 1}, 5e-324)

    def altered(self, value, draw):
        """A copy with one to three values replaced or left out, anywhere in it."""
        value = json.loads(json.dumps(value))
        for _ in range(draw.randint(1, 3)):
            place = value
            while place:
                key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
                if isinstance(place[key], (dict, list)) and draw.random() < 0.8:
                    place = place[key]
                    continue
                if isinstance(place, dict) and draw.random() < 0.2:
                    del place[key]
                else:
                    place[key] = draw.choice(self.VALUES)
                break
        return value

    def alter_file(self, path, draw, tail=0):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        value = self.altered(json.loads(text[:len(text) - tail]), draw)
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(value) + text[len(text) - tail:])

    def test_altered_files(self):
        outcomes = {"made": 0, "refused": 0}
        with mock.patch.object(page, "plotly_source", lambda: ""), contextlib.redirect_stdout(io.StringIO()):
            for seed in range(150):
                draw, run = random.Random(seed), self.path(f"run{seed}")
                os.mkdir(run)
                lines = [samples.step_line(step, 8) for step in range(1, 6)] + [samples.eval_line(5)]
                if seed % 3 == 0:
                    place = draw.randrange(len(lines))
                    lines[place] = self.altered(lines[place], draw)
                samples.write_lines(os.path.join(run, "metrics.jsonl"), lines)
                saved = samples.write_checkpoint(run, 5, lora={"rank": 8}, metrics={"file": "metrics.jsonl"})
                evaluation, needles = samples.make_needles(run, 1)
                if seed % 3 == 1:
                    self.alter_file(os.path.join(saved, "state", "state.json"), draw, 18)
                    self.alter_file(os.path.join(saved, "config.json"), draw)
                if seed % 3 == 2:
                    self.alter_file(draw.choice((evaluation, needles)), draw)
                with self.subTest(seed=seed):
                    try:
                        main([run, "--eval", evaluation])
                        outcomes["made"] += 1
                    except Error:
                        outcomes["refused"] += 1
        self.assertGreater(outcomes["made"], 75)
        self.assertGreater(outcomes["refused"], 5)


class Plotly(unittest.TestCase):
    def test_missing_package(self):
        with mock.patch.dict("sys.modules", {"plotly": None, "plotly.offline": None}):
            with self.assertRaises(Error) as caught:
                page.plotly_source()
        self.assertIn("longstride[report]", caught.exception.hint)


if __name__ == "__main__":
    unittest.main()
