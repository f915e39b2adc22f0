"""The mistakes of `liars.py`, on real masters; `.ci/drivers` runs these tests.

They need the program `redquorum-chaos`: its path is in REDQUORUM_CHAOS. Without it, they are
skipped.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("REDQUORUM_OPTIONS", "{}")

from liars import CHECK, CLOCK_BACK, MISTAKES, REUSED, Redlock, liar  # noqa: E402

CHAOS = os.environ.get("REDQUORUM_CHAOS")
HERE = Path(__file__).resolve().parent
JOBS = 4  # they wait for most of their time
TRIES = 3  # on a busy machine
WITHIN = 120  # seconds for one run


def client(*name):
    return shlex.join([sys.executable, str(HERE / "liars.py"), *name])


def check(*name):
    """Runs `client-check`: the exit code, and the output."""
    done = subprocess.run([CHAOS, CHECK, client(*name)], capture_output=True, text=True,
                          timeout=WITHIN)
    return done.returncode, done.stdout + done.stderr


def run(scenarios, *name, jobs=1, options=()):
    """Runs scenarios: the exit code, the runs by their names, and the output."""
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [CHAOS, "run", "--backend", "process", "--jobs", str(jobs), "--out", out,
             "--ready-timeout", "60s", "--client", client(*name), *options,
             *scenarios],
            capture_output=True, text=True, timeout=WITHIN, env={**os.environ, "TMPDIR": out})
        result = Path(out, "result.json")
        runs = json.loads(result.read_text())["scenarios"] if result.exists() else []
    return done.returncode, {it["name"]: it for it in runs}, done.stdout + done.stderr


def missed(name, where, shown, *options):
    """Why a mistake counts as not found, or `None`."""
    if where == CHECK:
        code, text = check(name)
        found = any(line.startswith("wrong") and f" {shown}:" in line for line in text.split("\n"))
    else:
        code, runs, text = run([where], name, options=options)
        differences = runs[where]["differences"] if where in runs else []
        found = any(line.startswith(f"{shown}:") for line in differences)
    return None if code == 1 and found else f"{name}: exit code {code}, no {shown}\n{text}"


def finds(mistake):
    """Why a mistake was not found, or `None`. A busy machine can prevent what it takes."""
    name, _, where, shown = mistake
    for _ in range(TRIES):
        why = missed(name, where, shown)
        if why is None:
            return None
    return why


def is_slowness(it):
    """Whether a busy machine can be the reason why a run is not as expected."""
    safety = set(it["observed"].items()) - {("progress", "violated"), ("liveness", "violated")}
    return all(f"{name}: expected safe, observed {seen}" not in it["differences"]
               for name, seen in safety)


class Table(unittest.TestCase):
    def test_each_mistake_is_a_lock_and_has_a_row(self):
        import liars
        named = {liar(name) for name, *_ in MISTAKES}
        self.assertEqual(len(named), len(MISTAKES))
        locks = {lock for lock in vars(liars).values()
                 if isinstance(lock, type) and issubclass(lock, Redlock)}
        self.assertEqual(locks, named | {Redlock})


@unittest.skipUnless(CHAOS, "REDQUORUM_CHAOS names no program")
class OnRealMasters(unittest.TestCase):
    maxDiff = None

    def test_a_lock_without_a_mistake_is_as_expected(self):
        for _ in range(TRIES):
            code, text = check()
            if code == 0:
                break
        self.assertEqual(code, 0, text)
        scenarios = sorted({where for _, _, where, _ in MISTAKES} - {CHECK})
        code, runs, text = run(scenarios, jobs=JOBS)
        self.assertEqual(set(scenarios) - set(runs), set(), text)
        for _ in range(1, TRIES):
            again = [name for name, it in runs.items()
                     if it["outcome"] in ("differs", "not-seen", "inconclusive")
                     and is_slowness(it)]
            if again:
                _, repeated, text = run(again)
                runs.update((name, repeated[name]) for name in again)
        outcomes = {name: it["outcome"] for name, it in runs.items()}
        self.assertEqual(outcomes, dict.fromkeys(runs, "as-expected"), text)

    def test_each_mistake_is_found(self):
        with ThreadPoolExecutor(JOBS) as pool:
            found = list(pool.map(finds, MISTAKES))
        self.assertEqual([why for why in found if why], [])

    def test_a_mistake_is_not_found_without_the_fault_that_shows_it(self):
        for name, where, shown, fault in [
            ("retries-with-its-token", REUSED, "mutual-exclusion", 2),
            ("wall-clock-attempt", CLOCK_BACK, "validity", 1),
        ]:
            why = missed(name, where, shown, "--without-fault", str(fault))
            self.assertIsNotNone(why, f"{name} is found without fault {fault}")


if __name__ == "__main__":
    unittest.main()
