#!/usr/bin/env python3
"""Runs scenarios on the locks of other libraries, and writes docs/scoreboard.md.

`just scoreboard` installs the libraries into target/scoreboard, runs every scenario of `SCENARIOS`
on each, one library at a time, and writes the page, also as target/scoreboard/whole/scoreboard.html
beside the libraries' reports. With `--library` or `--scenario` it runs only these, and writes both
pages to target/scoreboard/part instead.
"""

import argparse
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVERS = pathlib.Path("harness/drivers")
WORK = pathlib.Path("target/scoreboard")
PYTHON = WORK / "venv/bin/python"
OLDER_PYTHON = WORK / "venv-pyredlock/bin/python"


def sh(*command, **options):
    return subprocess.run([str(word) for word in command], cwd=ROOT, check=True, **options)


def enter_environment():
    """Goes on in the private environment, with all that drivers and pages need."""
    if pathlib.Path(sys.prefix) == ROOT / WORK / "venv":
        return
    for python, requirements in [(PYTHON, "requirements.txt"),
                                 (OLDER_PYTHON, "requirements-pyredlock.txt")]:
        if not (ROOT / python).exists():
            venv.create(ROOT / python.parents[1], with_pip=True)
        sh(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
           "-r", DRIVERS / requirements)
    os.execv(ROOT / PYTHON, [str(ROOT / PYTHON), *sys.argv])


if __name__ == "__main__":
    enter_environment()

import scoreboard_page as page  # noqa: E402: it needs the environment

DEFAULTS = "defaults"
RUST = f"{WORK}/cargo/release"
TIMEOUTS = "connections with the node timeout of the scenario, and without retries"

# A name, the command of the driver, the settings, and further options of `run`.
LIBRARIES = [
    page.Library("rslock", f"{RUST}/rslock-driver", DEFAULTS),
    page.Library("redlock", f"{RUST}/redlock-driver", DEFAULTS),
    page.Library("pottery", f"{PYTHON} {DRIVERS}/pottery_driver.py", DEFAULTS),
    page.Library("pottery-timeouts", f"{PYTHON} {DRIVERS}/pottery_driver.py --timeouts", TIMEOUTS),
    page.Library("redlock-py", f"{PYTHON} {DRIVERS}/redlock_py_driver.py", DEFAULTS),
    page.Library("redlock-py-timeouts",
                 f"{PYTHON} {DRIVERS}/redlock_py_driver.py --timeouts", TIMEOUTS),
    page.Library("aioredlock", f"{PYTHON} {DRIVERS}/aioredlock_driver.py", DEFAULTS),
    page.Library("redis-py", f"{PYTHON} {DRIVERS}/redis_py_driver.py",
                 f"{DEFAULTS}, on one master", ["--quorum", "1"]),
    page.Library("pyredlock", f"{OLDER_PYTHON} {DRIVERS}/pyredlock_driver.py", DEFAULTS),
    page.Library("pyredlock-timeouts",
                 f"{OLDER_PYTHON} {DRIVERS}/pyredlock_driver.py --timeouts", TIMEOUTS),
    page.Library("python-redis-lock", f"{PYTHON} {DRIVERS}/python_redis_lock_driver.py",
                 f"{DEFAULTS}, on one master", ["--quorum", "1"]),
    page.Library("async-redis-lock", f"{RUST}/async-redis-lock-driver",
                 "extends at each third of the TTL, on one master; the harness does not understand "
                 "its scripts, so little can be found", ["--quorum", "1"]),
    page.Library("redquorum", None, DEFAULTS),
]

# The scenarios that check any lock whose drift allowance is that of the algorithm, 1 % and 2 ms.
# Left out: other drift allowances, masters that are listed twice, further faults that no Redlock
# tolerates. The last line has one scenario for each optional capability.
SCENARIOS = """
    calm client-wall-clock clock-back-in-acquire connections-reset duplicated-set even-masters
    split-votes token-reused ttl-of-a-fraction
    first-master majority-killed masters-full minority-killed minority-partitioned one-master-hung
    cancelled-acquire cancelled-connected
    pause-in-flight pause-then-check release-lost reply-lost slow-grant slow-replies zombie-set
    holder-dies
    extend-after-amnesia extend-needs-a-quorum extend-over-a-gap extend-too-late
    repair-beside-minority crash-restart-forgets
    fair-overtaken fenced-again reentry/waits several/one-taken watchdog/bound
""".split()


def file_of(name):
    """A scenario's file if it is beside the drivers, else its name."""
    file = DRIVERS / f"scenarios/{name}.toml"
    return file if (ROOT / file).exists() else name


def run(library, chaos, scenarios, options, out):
    """Runs the scenarios on a library, and returns its results, whole or not."""
    command = [chaos, "run", *map(file_of, scenarios), "--backend", "process",
               "--repeat", options.repeat, "--jobs", options.jobs, "--ready-timeout", "60s",
               "--out", out, *library.options]
    if library.command:
        command += ["--client", library.command]
    print(f"{library.name}: {out}/report.html", flush=True)
    result = ROOT / out / "result.json"
    result.unlink(missing_ok=True)
    with open(ROOT / f"{out}.txt", "w", encoding="utf-8") as log:
        process = subprocess.Popen([str(word) for word in command], cwd=ROOT, stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(options.limit * 60)
        except BaseException as error:
            # The first signal ends the run in order, and keeps the results so far.
            process.send_signal(signal.SIGINT)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
    if not result.exists():
        return {"scenarios": [], "finished": False, "masters": "", "runs": 0, "lock": None}
    return json.loads(result.read_text())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    names = [library.name for library in LIBRARIES]
    parser.add_argument("--library", action="append", choices=names, help="only this one")
    parser.add_argument("--scenario", action="append", help="only this one, or a variant of it")
    parser.add_argument("--repeat", type=int, default=5, help="how often to run each (5)")
    parser.add_argument("--jobs", type=int, default=3, help="how many runs at once (3)")
    parser.add_argument("--limit", type=int, default=30, help="minutes for each library (30)")
    parser.add_argument("--chaos", help="the program redquorum-chaos, if it is built already")
    parser.add_argument("--note", help="a sentence about the machine, for the page")
    parser.add_argument("--results", action="store_true",
                        help="run nothing, and write the page from the results that are there")
    return parser.parse_args()


def main():
    options = arguments()
    chosen = [one for one in LIBRARIES if not options.library or one.name in options.library]
    scenarios = options.scenario or SCENARIOS
    is_whole = not options.library and not options.scenario
    folder = WORK / ("whole" if is_whole else "part")
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    chaos = options.chaos or "target/debug/redquorum-chaos"
    if not options.results:
        if any(RUST in (library.command or "") for library in chosen):
            sh("cargo", "build", "--release", "--quiet", "--locked", "--bins",
               "--features", "others", "--manifest-path", DRIVERS / "rust/Cargo.toml",
               "--target-dir", WORK / "cargo")
        if not options.chaos:
            sh("cargo", "build", "--quiet", "-p", "redquorum-harness", "--bin", "redquorum-chaos")
    else:
        chosen = [one for one in chosen if (ROOT / folder / one.name / "result.json").exists()]
    results = {}
    for library in chosen:
        out = folder / library.name
        results[library.name] = (json.loads((ROOT / out / "result.json").read_text())
                                 if options.results
                                 else run(library, chaos, scenarios, options, out))
    target = pathlib.Path("docs/scoreboard.md") if is_whole else folder / "scoreboard.md"
    date = datetime.date.today().isoformat()
    text = page.render(chosen, results, scenarios, date, options.note)
    text += page.SINCE if is_whole else ""
    (ROOT / target).write_text(text, encoding="utf-8")
    html = folder / "scoreboard.html"
    text_of_html = page.render_html(chosen, results, date, options.note)
    (ROOT / html).write_text(text_of_html, encoding="utf-8")
    print(target if is_whole else text, html, sep="\n")


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
