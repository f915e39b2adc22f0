import sys, time
import theory
from theory import *
from itertools import combinations
import importlib
for name in sys.argv[1:]:
    mod = importlib.import_module(name)
    t = mod.theory()
    t0 = time.time()
    print(t.title, t.prove(), round(time.time()-t0, 2), flush=True)
    for clause in t.clauses:
        t.dropped = clause
        Master.elements = ("m1","m2","m3"); Attempt.elements=("A","B")
        Quorum.elements = [frozenset(it) for it in combinations(Master.elements, 2)]
        if clause == "A1":
            Master.elements = ("m1","m2","m3","m4"); Quorum.elements=[frozenset(("m1","m2")),frozenset(("m3","m4"))]
        t0 = time.time()
        s = t.story()
        print(f"  without {clause} ({t.clauses[clause]}):", "; ".join(s) if s else s, round(time.time()-t0, 2), flush=True)
    t.dropped=None; Master.elements=Attempt.elements=Quorum.elements=None
