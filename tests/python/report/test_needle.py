"""Needle maps: cells, axes, and files that do not belong together."""
import json
import os
import tempfile
import unittest

import report_samples as samples
from longstride.errors import Error
from longstride.report.needle import find_needles, needle_map, read_eval, read_needles
from longstride.report.needle_chart import needle_chart


def document(tokens, correct=6, targets=6, **more):
    return {"tokens": tokens, "targets": targets, "correct": correct, "loss": 0.5} | more


class Needles(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, value, name="file.json"):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(value if isinstance(value, str) else json.dumps(value))
        return path

    def test_map(self):
        paths = samples.make_needles(self.folder.name)
        found = needle_map("run", read_eval(paths[0]), read_needles(paths[1]), "here")
        self.assertEqual(found.lengths, ["4K", "8K", "16K"])
        self.assertEqual(found.depths, ["0%", "50%", "100%"])
        self.assertEqual((found.found, found.documents), (33, 36))
        cell = found.cells[1, 2]
        self.assertEqual((cell.documents, cell.found, cell.targets, cell.correct), (4, 1, 24, 15))
        chart = needle_chart(found, 1)
        self.assertEqual(chart["traces"][0]["z"], [[100, 100, 100], [100, 100, 25], [100, 100, 100]])
        self.assertEqual(chart["traces"][0]["text"][1], ["100%", "100%", "25%"])
        self.assertIn("1 of 4 documents", chart["traces"][0]["customdata"][1][2])
        self.assertIn("62.5% of the targets", chart["traces"][0]["customdata"][1][2])
        self.assertIn("33 of 36", chart["note"])

    def test_missing_cells_are_gaps(self):
        found = needle_map("run", {"documents": [document(1000), document(2000)]},
                           [{"length": 1000, "depth": 0}, {"length": 2000, "depth": 1}], "here")
        self.assertEqual(needle_chart(found, 1)["traces"][0]["z"], [[100, None], [None, 100]])

    def test_percent_and_fewer_documents(self):
        """`eval --documents 2` evaluates the first two; depths above 1 are percent."""
        needles = [{"length": 100, "depth": d} for d in (0, 50, 100)]
        found = needle_map("run", {"documents": [document(100), document(100, correct=5)]}, needles, "here")
        self.assertEqual(found.depths, ["0%", "50%"])
        self.assertEqual(found.found, 1)

    def test_many_lengths_and_depths_are_grouped(self):
        needles = [{"length": 1000 + 100 * k, "depth": k / 99} for k in range(100)]
        found = needle_map("run", {"documents": [document(n["length"]) for n in needles]}, needles, "here")
        self.assertEqual(found.lengths, ["512+", "1K+", "2K+", "4K+", "8K+"])
        self.assertEqual(found.depths[0], "0–10%")
        self.assertEqual(len(found.depths), 10)
        self.assertEqual(sum(cell.documents for cell in found.cells.values()), 100)
        self.assertTrue(all(depth < 10 and length < 5 for depth, length in found.cells))

    def test_refused(self):
        one = [{"length": 100, "depth": 0}]
        for text, documents, needles in (("2 documents were evaluated, and there are 1", [document(100)] * 2, one),
                                         ("document 1 has 4096 tokens", [document(4096)], one)):
            with self.assertRaisesRegex(Error, text):
                needle_map("run", {"documents": documents}, needles, "here")
        for text, value in (("is not JSON", "{"), ("no list of documents", {"loss": 1}), ("no list of documents", []),
                            ("document 1 lacks", {"documents": [{"tokens": 5}]}),
                            ("document 1 lacks", {"documents": [3]})):
            with self.assertRaisesRegex(Error, text):
                read_eval(self.file(value))
        for text, value in (("is not a list", {}), ("is not a list", []), ("needle 2 has no", one + [{"length": 5}]),
                            ("needle 1 has no", [{"length": 0, "depth": 0}]),
                            ("needle 1 has no", [{"length": 5, "depth": -1}]),
                            ("needle 1 has no", '[{"length": 5, "depth": NaN}]'), ("is not JSON", "[" * 100000)):
            with self.assertRaisesRegex(Error, text):
                read_needles(self.file(value))
        with self.assertRaisesRegex(Error, "cannot read"):
            read_needles(os.path.join(self.folder.name, "absent"))

    def test_found_beside_evaluation_or_data(self):
        data = os.path.join(self.folder.name, "data")
        other = os.path.join(self.folder.name, "other")
        os.mkdir(data), os.mkdir(other)
        evaluation = os.path.join(other, "eval.json")
        self.assertIsNone(find_needles(evaluation, [data]))
        beside_data = self.file([], "data/needle.json")
        self.assertEqual(find_needles(evaluation, [data]), beside_data)
        self.assertEqual(find_needles(evaluation, [os.path.join(data, "tokens.bin")]), beside_data)
        beside = self.file([], "other/needle.json")
        self.assertEqual(find_needles(evaluation, [data]), beside)

    def manifest(self, documents=12, **options):
        options = {"kind": "needle", "lengths": [100, 200], "depths": [0.0, 0.5, 1.0], "count": 2} | options
        return {"format": "longstride data", "splits": {"train": {"documents": documents}}, "options": options}

    def test_manifest_of_prepared_needles(self):
        os.mkdir(os.path.join(self.folder.name, "data"))
        folder = os.path.join(self.folder.name, "data")
        path = self.file(self.manifest(), "data/manifest.json")
        wanted = [{"length": length, "depth": depth}
                  for length in (100, 200) for depth in (0, 0.5, 1) for _ in range(2)]
        for named in (folder, path, find_needles(os.path.join(self.folder.name, "eval.json"), [folder]),
                      find_needles(os.path.join(folder, "eval.json"), [])):
            self.assertEqual(read_needles(named), wanted)
        self.file(self.manifest(kind="text"), "data/manifest.json")
        self.assertIsNone(find_needles(os.path.join(folder, "eval.json"), [folder]))
        for text, named in (("holds no needles", folder), ("other data than needles", path)):
            with self.assertRaisesRegex(Error, text):
                read_needles(named)
        for broken in (self.manifest(documents=13), self.manifest(count=None), self.manifest(lengths=5),
                       self.manifest(depths=[]), self.manifest(documents=None), self.manifest(count=0, documents=0),
                       self.manifest(lengths=["a", "b"]), {**self.manifest(), "splits": []}):
            with self.assertRaises(Error):
                read_needles(self.file(broken, "data/manifest.json"))


if __name__ == "__main__":
    unittest.main()
