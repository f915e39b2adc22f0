"""The restart guard restores A2: of two leases that a master grants, one is over before the other
(docs/safety.md, "Why the guard is enough"). That is what mutual exclusion needs of a master.

There is one master and one resource, since the promise holds for each by itself. All clients have
the guard. A lease is over when its deadline has passed, or its client gave it up. A quarantine can
end once every lease is over that was last granted or extended before it; the lemma has the times.
"""

from guarded_master import *
from theory import *


def theory():
    t = Theory("A guarded master grants one lease after the other", start, {
        "A2, file": "a master that syncs every write starts from its newest file, or all clients "
                    "have seen that the marker of the older one was replaced",
        "A2, settings": "between two processes that sync every write is none that does not…",
        "A2, replica": "…or that was promoted",
        "A3": "no master's clock steps",
        "A4": "clocks run alike, to within the drift",
        "A5": "a master that says yes has set the key",
        "A6, run_id": "no two processes have the same run_id",
        "A6, names": "a probation name is set once",
        "initialize": "no master that is initialized has forgotten a lease that is not over",
        "process": "the marker names the process",
        "always": "another process counts if the marker has the word `always`…",
        "report": "…and the process reports that it syncs every write…",
        "promoted": "…and that it was never promoted",
        "replaced": "a marker that was seen replaced counts for no other process",
        "grant": "a grant compares the marker in its own command",
        "repair": "a repair compares the marker, too (mutant repairs-unmarked)",
        "same process": "a quarantine has one process",
        "same name": "the master is marked only if the name is still there",
        "quarantine": "a quarantine is as long as the longest lease",
    })
    t.few.update({Client: ("C", "D"), Name: ("n1",), Process: ("everysec-1", "everysec-2")})
    for clause, processes in {
        "A2, file": ("always-1", "always-2"),
        "A2, settings": ("always-1", "everysec-1", "always-2"),
        "A2, replica": ("always-1", "replica-1", "always-2"),
        "always": ("everysec-1", "always-1"),
        "report": ("always-1", "everysec-1"),
        "promoted": ("always-1", "replica-1"),
        "replaced": ("always-1", "always-2"),
    }.items():
        t.few_without[clause] = {Process: processes}
    add_master(t)
    t.relation("trusts", Client, Process)  # the client trusts this marker, on this connection
    t.relation("seen", Client, Process)  # the client has seen this marker…
    t.relation("replaced", Client, Process)  # …and later that it was not there
    t.relation("watches", Client, Name)
    t.relation("older", Attempt, Client)  # not granted or extended since the quarantine began

    def counts(s, c, m):
        """Whether the client trusts the master that shows this marker."""
        other = both(t.given("always", syncs(m)), t.given("replaced", no(s.replaced(c, m))),
                     every(Process, lambda p: implies(s.runs(p), both(
                         t.given("report", syncs(p)), t.given("promoted", no(promoted(p)))))))
        return t.given("process", either(s.runs(m), other))

    def acknowledge(s, a):
        return s.but(key=(a, True), acked=(a, True), over=(a, False),
                     older=lambda b, c: both(s.older(b, c), b != a))

    def free(s, a):
        return both(no(s.ended(a)), every(Attempt, lambda b: no(s.key(b))))

    @t.action(a=Attempt, c=Client, m=Process)
    def grant(s, a, c, m):
        """the master grants {a} to {c}, which trusts the marker of {m}"""
        when = both(no(s.acked(a)), s.trusts(c, m), t.given("grant", s.marker(m)))
        return both(when, free(s, a)), acknowledge(s, a)

    @t.action(a=Attempt, c=Client, m=Process)
    def lie(s, a, c, m):
        """the master says that it grants {a} to {c}, and sets nothing"""
        when, _ = grant(s, a, c, m)
        return both(when, t.given("A5", False)), s.but(acked=(a, True))

    @t.action(a=Attempt, c=Client, m=Process)
    def repair(s, a, c, m):
        """the master creates the key of {a} at an extension, and confirms it at the next"""
        # For a lease that the master has not granted before, that is the same as a grant.
        when = both(s.acked(a), s.trusts(c, m), s.marker(m))
        return both(t.given("repair", when), free(s, a)), acknowledge(s, a)

    @t.action(a=Attempt)
    def extend(s, a):
        """the master extends {a}"""
        return both(s.key(a), no(s.ended(a))), acknowledge(s, a)

    @t.action(c=Client)
    def look(s, c):
        """{c} reads the marker"""
        return True, s.but(
            trusts=lambda d, m: choose(c == d, both(s.marker(m), counts(s, c, m)), s.trusts(d, m)),
            seen=lambda d, m: either(s.seen(d, m), both(c == d, s.marker(m))),
            replaced=lambda d, m: either(s.replaced(d, m), both(
                c == d, s.seen(d, m), no(s.marker(m)))))

    def marked(s):
        return some(Process, lambda p: both(s.runs(p), s.marker(p)))

    @t.action(c=Client, n=Name)
    def watch(s, c, n):
        """{c} begins a quarantine, with the name {n}"""
        unused = both(every(Name, lambda x: no(s.name(x))), t.given("A6, names", no(s.used(n))))
        return both(no(marked(s)), either(s.name(n), unused)), s.but(
            name=(n, True), used=(n, True),
            older=lambda a, d: choose(c == d, s.acked(a), s.older(a, d)),
            watches=lambda d, x: choose(c == d, x == n, s.watches(d, x)))

    @t.action(c=Client, n=Name, p=Process)
    def mark(s, c, n, p):
        """the quarantine of {c} ends with {n}, and it marks the master as {p}"""
        over = every(Attempt, lambda a: implies(s.older(a, c), s.over(a)))
        when = both(s.runs(p), s.watches(c, n), no(marked(s)), t.given("same name", s.name(n)),
                    t.given("A4", t.given("quarantine", over)))
        return when, s.but(marker=lambda q: q == p, was=(p, True), name=lambda x: False,
                           watches=lambda d, x: both(s.watches(d, x), d != c))

    @t.invariant
    def data_have_a_past(s):
        return both(
            every(Process, lambda p: both(
                implies(either(s.runs(p), s.was(p)), s.booted(p)), implies(s.marker(p), s.was(p)))),
            every(Name, lambda n: implies(s.name(n), s.used(n))),
            every(Client, Name, lambda c, n: implies(s.watches(c, n), s.used(n))),
            every(Attempt, lambda a: implies(s.ended(a), s.over(a))))

    @t.invariant
    def one_of_each(s):
        return both(some(Process, s.runs), *(
            every(sort, sort, lambda x, y, of=of: implies(both(of(x), of(y)), x == y))
            for sort, of in ((Process, s.runs), (Process, s.marker), (Attempt, s.key))))

    @t.invariant
    def key_excludes_leases_of_others(s):
        return every(Attempt, Attempt, lambda a, b: implies(
            both(s.key(a), lives(s, b)), either(a == b, s.ended(a))))

    def trusted(s, c, m, r):
        return either(m == r, both(syncs(m), durable(r), no(s.replaced(c, m))))

    @t.invariant
    def client_trusts_what_counts(s):
        return every(Client, Process, Process, lambda c, m, r: implies(
            both(s.trusts(c, m), s.runs(r)), trusted(s, c, m, r)))

    @t.invariant
    def trusted_master_has_all_leases(s):
        return every(Client, Process, Process, Attempt, lambda c, m, r, a: implies(
            both(s.marker(m), s.runs(r), trusted(s, c, m, r), lives(s, a)), s.key(a)))

    @t.invariant
    def watched_master_has_all_leases_since(s):
        return every(Client, Name, Attempt, lambda c, n, a: implies(
            both(s.watches(c, n), s.name(n), lives(s, a), no(s.older(a, c))), s.key(a)))

    @t.promise
    def leases_follow_each_other(s):
        """the master has acknowledged both, and neither is over"""
        return every(Attempt, Attempt, lambda a, b: implies(both(lives(s, a), lives(s, b)), a == b))

    @t.lemma("A4", "quarantine")
    def quarantine_outlasts_earlier_leases():
        """longest TTL {ttl}, drift {drift}, clocks to within {rate}: {real} after its beginning,
        the quarantine has lasted {quarantine}, and a holder's clock shows {holder}"""
        ttl, drift, rate, real, quarantine, holder = Reals("ttl drift rate real quarantine holder")
        return implies(both(
            ttl > 0, 0 <= rate, rate < 1, real >= 0, holder >= 0, quarantine >= 0,
            (ttl - drift) * (1 + rate) <= ttl * (1 - rate),
            t.given("A4", both(holder >= (1 - rate) * real, quarantine <= (1 + rate) * real)),
            t.given("quarantine", quarantine >= ttl + drift)), holder >= ttl - drift)

    return t


def start(s):
    return both(
        master_at_first(s),
        every(Client, Process, lambda c, p: both(
            no(s.trusts(c, p)), no(s.seen(c, p)), no(s.replaced(c, p)))),
        every(Client, Name, lambda c, n: no(s.watches(c, n))))
