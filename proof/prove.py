"""Proves the theorems, and shows what goes wrong when an assumption or a rule is left out.

    python3 proof/prove.py               all: `just proof`
    python3 proof/prove.py fencing       one

Exit codes: 0 proved, and every clause does work; 1 not so; 3 Z3 is missing; 64 no such theorem.
"""

import importlib
import multiprocessing
import sys
import time

from theory import z3

THEOREMS = ("exclusion", "extension", "fencing", "guard", "move", "semaphore")


def examine(name):
    """Proves one theorem and tells its stories. Returns the text, and whether all is well."""
    theory = importlib.import_module(name).theory()
    begun = time.monotonic()
    failed, claims = theory.prove()
    lines = [f"{theory.title} (proof/{name}.py): {claims - len(failed)} of {claims} claims proved, "
             f"for any number of masters and clients, in {time.monotonic() - begun:.1f} s"]
    lines += [f"  NOT PROVED: {claim}" for claim in failed]
    for clause, text in theory.clauses.items():
        lines.append(f"  Without {clause}: {text}")
        numbers, story = theory.without(clause)
        told = [*numbers, story and "; ".join(story) + "."]
        if None in told:
            failed.append(clause)
        lines += [f"    {it or 'NO STORY: nothing goes wrong without this clause'}" for it in told]
    return "\n".join(lines), not failed


def main(names):
    unknown = [it for it in names if it not in THEOREMS]
    if unknown:
        print(f"there is no theorem {unknown[0]}; there are {', '.join(THEOREMS)}", file=sys.stderr)
        return 64
    begun = time.monotonic()
    print(f"Z3 {z3.get_version_string()}\n")
    results = []
    with multiprocessing.Pool() as pool:
        for text, is_well in pool.imap(examine, names or THEOREMS):
            print(text + "\n", flush=True)
            results.append(is_well)
    print(f"{sum(results)} of {len(results)} theorems as they should be, in "
          f"{time.monotonic() - begun:.0f} s")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
