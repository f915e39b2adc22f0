"""What can happen to the master of proof/guard.py, and what its operator does.

It restarts at any moment, as another process, with any older data. In one process it loses all its
data or none: docs/reference.md ("Masters that forget keys") has the faults that no guard detects.
"""

import z3

from theory import *

Process, Client, Name = Sort("Process"), Sort("Client"), Sort("Name")
_syncs = z3.Function("syncs", Process.z3, z3.BoolSort())
_promoted = z3.Function("promoted", Process.z3, z3.BoolSort())


def syncs(p):
    """Whether a process reports that it syncs every write. In a story its name says so."""
    return not p.startswith("everysec") if isinstance(p, str) else _syncs(p)


def promoted(p):
    """Whether a process reports that it was a replica."""
    return p.startswith("replica") if isinstance(p, str) else _promoted(p)


def durable(p):
    return both(syncs(p), no(promoted(p)))


def lives(s, a):
    """Whether the master acknowledged a lease that is not over."""
    return both(s.acked(a), no(s.over(a)))


def add_master(t):
    t.relation("key", Attempt)
    t.relation("acked", Attempt)  # granted or extended
    t.relation("over", Attempt)
    t.relation("ended", Attempt)  # its client gave it up, or returned it
    t.relation("booted", Process)
    t.relation("runs", Process)
    t.relation("marker", Process)  # the marker names this process, and `always` if that syncs
    t.relation("was", Process)  # there was such a marker
    t.relation("name", Name)  # of the probation key
    t.relation("used", Name)

    @t.action(p=Process)
    def initialize(s, p):
        """an operator initializes the master, {p}"""
        knows = every(Attempt, lambda a: implies(lives(s, a), s.key(a)))
        when = both(s.runs(p), every(Process, lambda q: no(s.marker(q))))
        return both(when, t.given("initialize", knows)), s.but(marker=(p, True), was=(p, True))

    @t.action(a=Attempt)
    def end(s, a):
        """{a} is over"""
        return s.acked(a), s.but(over=(a, True))

    @t.action(a=Attempt)
    def give_up(s, a):
        """{a} is given up"""
        return True, s.but(over=(a, True), ended=(a, True))

    @t.action(a=Attempt)
    def expire(s, a):
        """the key of {a} expires, or is deleted"""
        early = either(t.given("A3", False), t.given("A4", False))
        return either(s.over(a), early), s.but(key=(a, False))

    @t.action(n=Name)
    def lose_name(s, n):
        """the name {n} expires"""
        return s.name(n), s.but(name=(n, False))

    @t.action(p=Process)
    def lose_marker(s, p):
        """the marker of {p} is deleted"""
        return s.marker(p), s.but(marker=(p, False))

    @t.action()
    def flush(s):
        """the master is flushed"""
        return True, s.but(key=lambda a: False, marker=lambda p: False, name=lambda n: False)

    def all_saw_replaced(s, m):
        return every(Client, lambda c: s.replaced(c, m))

    def new(s, p):
        return both(no(s.runs(p)), t.given("A6, run_id", no(s.booted(p))))

    def boot(s, p, **data):
        """No connection outlives the process before."""
        watches = t.given("same process", lambda c, n: False, s.watches)
        return s.but(runs=lambda q: q == p, booted=(p, True), trusts=lambda c, m: False,
                     watches=watches, **data)

    @t.action(p=Process)
    def restart(s, p):
        """the master restarts as {p}, with all its data"""
        may = every(Process, Process, lambda m, r: implies(
            both(s.marker(m), syncs(m), durable(p), s.runs(r)),
            either(m == r, all_saw_replaced(s, m), both(
                t.given("A2, settings", syncs(r)), t.given("A2, replica", no(promoted(r)))))))
        return both(new(s, p), may), boot(s, p)

    @t.action(p=Process, m=Process, n=Name, a=Attempt)
    def restart_older(s, p, m, n, a):
        """the master restarts as {p}, with older data: the marker of {m} and no key but of {a}"""
        file = implies(both(syncs(m), durable(p)), all_saw_replaced(s, m))
        when = both(new(s, p), s.was(m), s.used(n), t.given("A2, file", file))
        # A file has absolute times. So a key comes back that was deleted before its time, and none
        # that has expired (A3).
        comes = either(s.key(a), lives(s, a), both(s.acked(a), s.ended(a)))
        return when, boot(s, p, marker=lambda q: q == m, name=lambda x: x == n,
                          key=lambda b: both(b == a, comes))


def master_at_first(s):
    """No lease and no marker. Older data may have markers of earlier processes."""
    return both(
        every(Attempt, lambda a: both(no(s.key(a)), no(s.acked(a)), no(s.ended(a)))),
        some(Process, s.runs),
        every(Process, Process, lambda p, q: implies(both(s.runs(p), s.runs(q)), p == q)),
        every(Process, lambda p: both(
            no(s.marker(p)), implies(either(s.runs(p), s.was(p)), s.booted(p)))),
        every(Name, lambda n: no(s.name(n))))
