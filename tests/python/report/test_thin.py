"""Thinning keeps extremes, ends and gaps."""
import math
import random
import unittest
from array import array

import report_samples  # noqa: F401 (finds the package)
from longstride.report.sizes import bytes_text, count_text, digits, duration_text, tokens_text
from longstride.report.thin import even_stretches, kept_rows, mean, smoothed

NAN = math.nan


class Thinning(unittest.TestCase):
    def test_few_points_stay(self):
        self.assertEqual(list(kept_rows(array("d", range(2000)))), list(range(2000)))

    def test_extremes_of_every_stretch_stay(self):
        draw = random.Random(1)
        values = array("d", (draw.gauss(0, 1) for _ in range(200_000)))
        values[123_456], values[77] = 1000.0, -1000.0
        rows = kept_rows(values, 500)
        self.assertLessEqual(len(rows), 500)
        self.assertEqual(rows, sorted(set(rows)))
        self.assertEqual((rows[0], rows[-1]), (0, len(values) - 1))
        self.assertTrue({123_456, 77} <= set(rows))
        for k in range(249):
            begin, end = len(values) * k // 249, len(values) * (k + 1) // 249
            kept = [values[row] for row in rows if begin <= row < end]
            self.assertEqual((min(kept), max(kept)), (min(values[begin:end]), max(values[begin:end])))

    def test_gaps_stay_and_do_not_hide_extremes(self):
        values = array("d", [1.0] * 30_000)
        values[10_000:20_000] = array("d", [NAN]) * 10_000
        values[10_500], values[5_000] = 50.0, NAN
        rows = kept_rows(values, 100)
        self.assertIn(10_500, rows)
        self.assertTrue(any(math.isnan(values[row]) for row in rows if row > 12_000))

    def test_nothing_known(self):
        self.assertTrue(kept_rows(array("d", [NAN]) * 5000, 100))

    def test_smoothed(self):
        values = array("d", [0, 3, 6, NAN, 0, 6])
        self.assertEqual(list(smoothed(values, 1)), [0, 3, 4.5, 3, 3, 3])
        self.assertTrue(math.isnan(smoothed(array("d", [NAN]), 3)[0]))

    def test_smoothed_straight_line_stays(self):
        line = array("d", range(50))
        for x, y in zip(line[:40], smoothed(line, 8)):
            self.assertAlmostEqual(x, y)

    def test_stretches(self):
        self.assertEqual(even_stretches(5, 10), [(k, k + 1) for k in range(5)])
        self.assertEqual(even_stretches(10, 3), [(0, 3), (3, 6), (6, 10)])

    def test_mean(self):
        self.assertEqual(mean(array("d", [1, NAN, 3])), 2)
        self.assertTrue(math.isnan(mean(array("d", [NAN]))))


class Texts(unittest.TestCase):
    def test_texts(self):
        self.assertEqual([tokens_text(n) for n in (1, 1000, 4096, 131072, 1 << 20, 50000)],
                         ["1", "1000", "4K", "128K", "1M", "50,000"])
        self.assertEqual([count_text(n) for n in (7, 107072, 7.6e9, 999_999, 203_000)],
                         ["7", "107K", "7.60B", "1.00M", "203K"])
        self.assertEqual([bytes_text(n) for n in (5, 1536, 138.4 * 2**30)], ["5 B", "1.50 KiB", "138 GiB"])
        self.assertEqual([duration_text(s) for s in (0.41, 41, 59.9, 70, 3599.9, 11_100, 273_600, NAN)],
                         ["0.410 s", "41 s", "1 min 00 s", "1 min 10 s", "1 h 00 min", "3 h 05 min", "3 d 4 h", "–"])
        self.assertEqual([digits(x) for x in (0, 1234, 0.0123, 1e-7, -2.5)],
                         ["0", "1,234", "0.0123", "1.00e-07", "-2.50"])


if __name__ == "__main__":
    unittest.main()
