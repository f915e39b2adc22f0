#!/usr/bin/env python3
"""Plays runs, and has second_opinion.py judge each of them:

    python3 proof/play_all.py target/debug --runs 100000

all scenarios on each backend, all mutants in all scenarios, and random runs, half of them with
faults that no lock survives. The folder has the programs: `redquorum-chaos` and `examples/mutants`.

Exit codes: 0 all agree, 1 something differs, 3 nothing was judged or a program failed, 64 usage.
"""
import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile

from second_opinion import Tally, parse, report

BATCH = 2500


def play(job):
    """Plays runs with a command, and judges them. The last word of `run` is a folder for them."""
    kind, command, keep = job
    tally = Tally(keep)
    if command[1] == "run":
        with tempfile.TemporaryDirectory() as out:
            code = subprocess.run([*command, "--out", out], stdout=subprocess.DEVNULL).returncode
            tally.folder(out)
    else:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            tally.stream(process.stdout)
        code = process.returncode
    # Runs that are not as expected are the checker's business.
    return kind, tally, code if code not in (1, 2) else 0


def jobs(options):
    """All scenarios on each backend, all mutants, and random runs inside and outside."""
    chaos = os.path.join(options.programs, "redquorum-chaos")
    for backend in options.backends.split(","):
        yield f"scenarios, {backend}", [chaos, "run", "--backend", backend, "--seed", "1"]
    wrong = [chaos, "search", "--mutant", "?"]
    names = subprocess.run(wrong, stderr=subprocess.PIPE, text=True).stderr
    for mutant in names.split("there are ", 1)[1].split("\n")[0].split(", "):
        if mutant != "none":
            program = os.path.join(options.programs, "examples", "mutants")
            yield "mutants", [program, "--histories", mutant]
    for first in range(0, options.runs, BATCH):
        runs = str(min(BATCH, options.runs - first))
        search = [chaos, "search", "--jobs", "1", "--runs", runs]
        search += ["--seed", str(options.seed + first), "--histories", "-"]
        outside = ["--outside"] if first // BATCH % 2 else []
        kind = "random, all faults" if outside else "random, faults to survive"
        yield kind, [*search, *outside]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("programs", metavar="DIR", help="the folder of the programs")
    parser.add_argument("--backends", default="sim,library,process", help="for the scenarios")
    parser.add_argument("--runs", type=int, default=100_000, help="how many random runs")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first random run")
    options = parse(parser)
    tallies, failed = {}, False
    with multiprocessing.Pool() as pool:
        work = [(*job, options.keep) for job in jobs(options)]
        for kind, part, code in pool.imap_unordered(play, work):
            tallies.setdefault(kind, Tally(options.keep)).add(part)
            failed |= code != 0
    code = report(tallies)
    sys.exit(3 if failed else code)


if __name__ == "__main__":
    main()
