"""The page in Chromium: every plot is drawn, nothing is logged, nothing is requested.

Needs Debian's chromium and chromium-driver, and the packages selenium and plotly; else it is skipped. With
REPORT_PICTURES=DIR it leaves pictures of the pages there.
"""
import base64
import contextlib
import importlib.util
import io
import json
import os
import shutil
import tempfile
import time
import unittest

import report_samples as samples
from longstride.report import main

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = [name for name, found in (
    ("chromium", BROWSER), ("chromium-driver", DRIVER), ("selenium", importlib.util.find_spec("selenium")),
    ("plotly", importlib.util.find_spec("plotly"))) if not found]
DESKTOP, PHONE = (1280, 900), (390, 844)


@unittest.skipIf(MISSING, f"the report is not looked at: {', '.join(MISSING)} missing")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from selenium import webdriver
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        options = webdriver.ChromeOptions()
        options.binary_location = BROWSER
        arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        for argument in arguments + (["--no-sandbox"] if os.geteuid() == 0 else []):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        cls.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
        cls.addClassCleanup(cls.driver.quit)

        def path(name):
            return os.path.join(cls.folder.name, name)

        one = samples.make_run(path("one"), union_pages_mean=7.5, union_pages_most=11, selected_page_reuse=3.0)
        samples.make_needles(one)
        two = samples.make_run(path("<i>two & \"more\""), steps=70)
        cls.single, cls.several = path("single.html"), path("several.html")
        with contextlib.redirect_stdout(io.StringIO()):
            main([one, "--out", cls.single])
            main([one, two, "--out", cls.several])

    def open(self, path, size, theme="light"):
        width, height = size
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": theme}]})
        self.driver.get_log("performance")
        self.driver.get("file://" + path)
        self.wait_for("return document.documentElement.dataset.drawn === 'all'")

    def wait_for(self, script):
        end = time.monotonic() + 60
        while not self.driver.execute_script(script):
            self.assertLess(time.monotonic(), end, f"{script}: {self.driver.get_log('browser')}")
            time.sleep(0.05)

    def check(self, page):
        """Every plot has what its traces need, the browser logged nothing, and only the page itself was loaded."""
        charts = self.driver.execute_script("return JSON.parse(document.getElementById('report').textContent).charts")
        self.assertGreaterEqual(len(charts), 10)
        for chart in charts:
            with self.subTest(chart=chart["id"]):
                self.check_chart(chart)
        self.assertEqual(self.driver.get_log("browser"), [])
        requests = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = {one["params"]["request"]["url"] for one in requests if one["method"] == "Network.requestWillBeSent"}
        self.assertEqual({url for url in urls if not url.startswith(("data:", "blob:"))} - {page_url(page)}, set())
        width = self.driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(*width)

    def check_chart(self, chart):
        drawn = self.driver.execute_script("""
            const plot = document.getElementById('plot-' + arguments[0]);
            const full = (selector) => [...plot.querySelectorAll(selector)].filter(
                (one) => (one.getAttribute('d') || '').length > 8).length;
            return {lines: full('.scatterlayer .js-line'), points: full('.scatterlayer .point'),
                    fills: full('.scatterlayer .js-fill'), bars: full('.barlayer .point path'),
                    maps: plot.querySelectorAll('.heatmaplayer image').length,
                    ticks: plot.querySelectorAll('.xtick').length, height: plot.getBoundingClientRect().height,
                    error: plot.querySelector('.plotly-notifier') !== null};
            """, chart["id"])
        traces = chart["traces"]
        scatter = [trace for trace in traces if trace["type"] == "scatter"]
        self.assertGreaterEqual(drawn["lines"], sum("lines" in t["mode"] and "stackgroup" not in t for t in scatter))
        self.assertEqual(drawn["points"], sum(len(t["y"]) for t in scatter if "markers" in t["mode"]))
        self.assertEqual(drawn["fills"], sum("stackgroup" in trace for trace in scatter))
        self.assertEqual(drawn["bars"] > 0, any(trace["type"] == "bar" for trace in traces))
        self.assertEqual(drawn["maps"], sum(trace["type"] == "heatmap" for trace in traces))
        self.assertGreater(drawn["ticks"], 1)
        self.assertGreater(drawn["height"], 80)
        self.assertFalse(drawn["error"])

    def picture(self, name, size):
        directory = os.environ.get("REPORT_PICTURES")
        if directory:
            height = self.driver.execute_script("return document.documentElement.scrollHeight")
            made = self.driver.execute_cdp_cmd("Page.captureScreenshot", {
                "captureBeyondViewport": True,
                "clip": {"x": 0, "y": 0, "width": size[0], "height": height, "scale": 1}})
            with open(os.path.join(directory, name + ".png"), "wb") as file:
                file.write(base64.b64decode(made["data"]))

    def test_one_run(self):
        for size, theme, name in ((DESKTOP, "light", "desktop"), (PHONE, "dark", "phone")):
            self.open(self.single, size, theme)
            self.check(self.single)
            self.picture("one-" + name, size)

    def test_several_runs(self):
        for size, theme, name in ((DESKTOP, "dark", "desktop"), (PHONE, "light", "phone")):
            self.open(self.several, size, theme)
            self.check(self.several)
            self.picture("several-" + name, size)
        heads = [head.text for head in self.driver.find_elements("css selector", "thead th")]
        self.assertEqual(heads, ["", "one", "<i>two & \"more\""])
        legend = [key.text for key in self.driver.find_elements("css selector", "[data-legend=loss] button")]
        self.assertEqual(legend, ["one", "<i>two & \"more\""])

    def test_controls(self):
        self.open(self.single, DESKTOP)

        def click(selector):
            element = self.driver.find_element("css selector", selector)
            self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()

        def range_of(chart, axis="xaxis"):
            return self.driver.execute_script(
                f"return document.getElementById('plot-{chart}')._fullLayout.{axis}.range")

        steps = range_of("loss")
        for unit, most in (("tokens", 100 * 4096), ("time", 200 / 60)):
            click(f"[data-over={unit}]")
            self.wait_for("return [...document.querySelectorAll('.plot')]"
                          f".every((plot) => plot.dataset.drawn === '{unit}')")
            self.assertAlmostEqual(range_of("speed")[1] / most, 1, delta=0.2)
            self.check(self.single)
        click("[data-over=step]")
        self.wait_for("return document.getElementById('plot-loss').dataset.drawn === 'step'")
        self.assertEqual(range_of("loss"), steps)
        click("[data-log=loss]")
        self.wait_for("return document.getElementById('plot-loss')._fullLayout.yaxis.type === 'log'")
        before = self.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        click(".theme")
        self.wait_for(f"return getComputedStyle(document.body).backgroundColor !== '{before}'")
        click("[data-legend=memory] button")
        self.wait_for("return document.getElementById('plot-memory')._fullData[0].visible === false")
        self.assertEqual(self.driver.get_log("browser"), [])

    def test_the_check_sees_a_page_that_asks_for_something(self):
        """The policy in the page would stop a request, and the check would see both."""
        with open(self.single, encoding="utf-8") as file:
            text = file.read()
        asking = os.path.join(self.folder.name, "asking.html")
        with open(asking, "w", encoding="utf-8") as file:
            file.write(text.replace('<div class="top">', '<img src="http://127.0.0.1:9/a.png"><div class="top">', 1))
        self.open(asking, DESKTOP)
        with self.assertRaises(AssertionError):
            self.check(asking)


def page_url(path):
    return "file://" + path


if __name__ == "__main__":
    unittest.main()
