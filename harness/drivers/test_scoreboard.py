"""The pages of the scoreboard; `.ci/drivers` runs these tests."""

import unittest

from scoreboard_page import Library, cell, findings, missing, render, render_html

LOCK = Library("lock", None, "defaults")


def run(name, *found, outcome="differs", why=()):
    """A run in `result.json`. Each finding is a property, a cause and a sentence."""
    return {"name": name, "file": None, "outcome": outcome, "differences": list(why),
            "observed": {} if outcome == "skipped" else {"validity": "safe"},
            "findings": [{"property": property, "seen": "violated", "causes": [cause],
                          "explanation": [text]}
                         for property, cause, text in found]}


def result(*runs):
    return {"scenarios": list(runs), "finished": True, "runs": len(runs), "masters": "redis (x)",
            "lock": "a lock 1.2"}


def cell_of(property, *runs):
    return str(cell(findings(result(*runs)), result(*runs), property))


class Cells(unittest.TestCase):
    slow = ("progress", "bug", "c1 asked for L at 1 ms, and got it only at 400 ms")

    def test_a_violation_counts_when_three_repetitions_show_it(self):
        self.assertEqual(cell_of("progress", *[run("a", self.slow)] * 3), "**violated**: 1")
        self.assertEqual(cell_of("progress", *[run("a", self.slow)] * 2, run("a")), "unsteady: 1")
        self.assertEqual(cell_of("progress", run("a")), "holds")

    def test_a_fault_outside_the_assumptions_is_no_finding(self):
        step = ("mutual-exclusion", "clock.step", "two clients hold L")
        self.assertEqual(findings(result(run("a", step))), [])
        self.assertEqual(cell_of("mutual-exclusion", run("a", step)), "holds (1 by design)")

    def test_an_unknown_cause_is_a_finding(self):
        lost = ("unfenced-resource", "unknown", "what came between is lost")
        self.assertEqual(cell_of("unfenced-resource", *[run("a", lost)] * 3), "**violated**: 1")

    def test_what_the_harness_cannot_tell_never_holds(self):
        open_ = [{**run(name), "observed": {"validity": "inconclusive"}} for name in "ab"]
        self.assertEqual(cell_of("validity", *open_), "undecided")
        self.assertEqual(cell_of("validity", *open_, run("c")), "holds (2 undecided)")
        self.assertEqual(cell_of("validity", *open_, run("b"), run("c")), "holds (1 undecided)")

    def test_what_a_driver_cannot_do_never_holds(self):
        skipped = run("fenced-again", outcome="skipped", why=["the client cannot `fence`"])
        self.assertEqual(cell_of("fenced-resource", run("a"), skipped), "not offered")
        self.assertEqual(dict(missing(result(skipped))), {"fence": {"fenced-again"}})
        self.assertEqual(cell_of("fenced-resource", run("a")), "not run")
        self.assertEqual(cell_of("fenced-resource", run("fenced-again")), "holds")
        self.assertEqual(cell_of("progress", skipped), "not run")

    def test_findings_are_folded_by_kind(self):
        later = ("progress", "bug", "c2 asked for M at 7 ms, and got it only at 900 ms")
        kinds = findings(result(run("a", self.slow, later), run("b", later)))
        self.assertEqual([dict(kind.runs) for kind in kinds], [{"a": 1, "b": 1}])

    def test_the_page_names_the_command_and_what_is_not_complete(self):
        whole = result(*[run("a", self.slow)] * 3)
        page = render([LOCK], {"lock": whole}, ["a"], "today")
        self.assertIn("`just scoreboard --library lock --scenario a`", page)
        self.assertIn("\na lock 1.2; defaults. ", page)
        self.assertNotIn("Not complete", page)
        page = render([LOCK], {"lock": {**whole, "finished": False, "runs": 9}}, ["a"], "today")
        self.assertIn("Not complete: 3 of 9 runs", page)

    def test_each_cell_of_the_html_page_leads_to_its_reason(self):
        step = ("mutual-exclusion", "clock.step", "two <clients> hold L")
        skipped = run("fenced-again", outcome="skipped", why=["the client cannot `fence`"])
        whole = result(run("a", self.slow), run("b", step), skipped)
        page = render_html([LOCK], {"lock": whole}, "today")
        for part in ["An acquire is slow although a majority replies", self.slow[2],
                     "just scoreboard --library lock --scenario a", "lock/report.html#run-1",
                     "b, by design: clock.step", "two &lt;clients&gt; hold L",
                     "lock/report.html#run-2", "<code>fence</code>: fenced-again",
                     'id="lock-fenced-resource"']:
            self.assertIn(part, page)
        self.assertIn('<b>–</b> <a href="#lock-fenced-resource">not offered</a>', page)


if __name__ == "__main__":
    unittest.main()
