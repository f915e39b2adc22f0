"""Proves the theorems, and shows what goes wrong when an assumption or a rule is left out.

    python3 proof/prove.py               all: `just proof`
    python3 proof/prove.py fencing       one

Exit codes: 0 proved, and every clause does work; 1 not so; 3 Z3 is missing; 64 no such theorem.
"""

import importlib
import sys
import time

THEOREMS = ("exclusion", "extension", "fencing", "guard", "semaphore")


def examine(name):
    """Proves one theorem and tells its stories. Returns whether all is as it should be."""
    theory = importlib.import_module(name).theory()
    begun = time.monotonic()
    failed, claims = theory.prove()
    print(f"{theory.title} (proof/{name}.py): {claims - len(failed)} of {claims} claims proved, "
          f"for any number of masters and clients, in {time.monotonic() - begun:.1f} s")
    for claim in failed:
        print(f"  NOT PROVED: {claim}")
    for clause, text in theory.clauses.items():
        print(f"  Without {clause}: {text}")
        numbers, story = theory.without(clause)
        for text in numbers:
            print(f"    {text}")
        if story is None:
            failed.append(clause)
            print("    NO STORY: nothing goes wrong without this clause")
        else:
            print(f"    {'; '.join(story)}.")
    print(flush=True)
    return not failed


def main(names):
    unknown = [it for it in names if it not in THEOREMS]
    if unknown:
        print(f"there is no theorem {unknown[0]}; there are {', '.join(THEOREMS)}", file=sys.stderr)
        return 64
    try:
        import z3
    except ImportError:
        print("Z3 is missing: pip install z3-solver", file=sys.stderr)
        return 3
    begun = time.monotonic()
    print(f"Z3 {z3.get_version_string()}\n")
    results = [examine(it) for it in names or THEOREMS]
    print(f"{sum(results)} of {len(results)} theorems as they should be, in "
          f"{time.monotonic() - begun:.0f} s")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
