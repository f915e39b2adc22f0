"""Semaphores: there are never more believed permits than slots (docs/safety.md, "Semaphores").

A permit is an exclusive lease on a slot. The theorem is that no two permits are of the same slot.
So each has a slot of its own, and there are no more permits than slots. Deadlines and clocks are in
the theorem of mutual exclusion. Here a key stays while its permit lasts.
"""

import z3

from theory import *

Slot = Sort("Slot")


def theory():
    t = Theory("A semaphore has no more holders than permits", start, {
        "A1": "any two quorums share a master",
        "A2": "a master keeps a key while its permit lasts",
        "R2": "silence and errors are no grants (mutant error-is-yes)",
        "R3": "a majority grants (mutant small-quorum)",
        "slots": "a master grants a slot to one, and does not count (mutant counts-permits)",
        "one slot": "a permit has a quorum for one slot",
    })
    t.few.update({Slot: ("the permit",)})
    for clause in ("slots", "one slot"):
        t.few_without[clause] = {Attempt: ("A", "B", "C"), Slot: ("permit:1", "permit:2")}
    t.relation("key", Attempt, Slot, Master)
    t.relation("voted", Attempt, Slot, Master)  # the client has read a yes
    t.relation("won", Attempt, Slot)
    t.relation("witness", Attempt, Slot, Master)  # the masters whose votes won it
    t.relation("ended", Attempt)  # given back, or over

    def is_free(s, k, n):
        return every(Attempt, lambda b: no(s.key(b, k, n)))

    def is_below_the_count(s, n):
        """As if each master handed out all permits. Only for stories."""
        keys = [s.key(b, k, n) for b in Attempt.elements for k in Slot.elements]
        return z3.AtMost(*keys, len(Slot.elements) - 1)

    @t.action(a=Attempt, k=Slot, n=Master)
    def grant(s, a, k, n):
        """{n} grants {a} {k}"""
        counts = t.dropped == "slots"
        when = t.given("slots", is_free(s, k, n), counts and is_below_the_count(s, n))
        return both(no(s.ended(a)), when), s.but(key=(a, k, n, True), voted=(a, k, n, True))

    @t.action(a=Attempt, k=Slot, n=Master)
    def guess(s, a, k, n):
        """{a} hears nothing of {n}, and takes that for {k}"""
        return t.given("R2", False), s.but(voted=(a, k, n, True))

    @t.action(a=Attempt, k=Slot, q=Quorum)
    def win(s, a, k, q):
        """{a} has {k}, by {q}"""
        def yes(n):
            return t.given("one slot", s.voted(a, k, n), some(Slot, lambda x: s.voted(a, x, n)))
        all_ = every(Master, lambda n: implies(member(n, q), yes(n)))
        one = some(Master, lambda n: both(member(n, q), yes(n)))
        return both(no(s.ended(a)), t.given("R3", all_, one)), s.but(
            won=(a, k, True), witness=lambda b, x, n: choose(
                both(a == b, k == x), member(n, q), s.witness(b, x, n)))

    @t.action(a=Attempt)
    def end(s, a):
        """{a} ends"""
        return True, s.but(ended=(a, True))

    @t.action(a=Attempt, k=Slot, n=Master)
    def vanish(s, a, k, n):
        """the key of {a} for {k} on {n} vanishes"""
        return t.given("A2", s.ended(a)), s.but(key=(a, k, n, False))

    @t.invariant
    def key_of_a_slot_has_one_owner(s):
        return every(Attempt, Attempt, Slot, Master, lambda a, b, k, n: implies(
            both(s.key(a, k, n), s.key(b, k, n)), a == b))

    @t.invariant
    def key_stays_while_the_permit_lasts(s):
        return every(Attempt, Slot, Master, lambda a, k, n: implies(
            both(s.voted(a, k, n), no(s.ended(a))), s.key(a, k, n)))

    @t.invariant
    def permit_has_a_quorum(s):
        return every(Attempt, Slot, lambda a, k: implies(s.won(a, k), both(
            some(Quorum, lambda q: every(Master, lambda n: implies(
                member(n, q), s.witness(a, k, n)))),
            every(Master, lambda n: implies(s.witness(a, k, n), s.voted(a, k, n))))))

    @t.promise
    def permits_have_slots_of_their_own(s):
        """there are more holders than permits"""
        def believed(a, k):
            return both(s.won(a, k), no(s.ended(a)))
        if Slot.elements is not None:  # in a story
            holders = [some(Slot, lambda k: believed(a, k)) for a in Attempt.elements]
            return z3.AtMost(*holders, len(Slot.elements))
        return every(Attempt, Attempt, Slot, lambda a, b, k: implies(
            both(believed(a, k), believed(b, k)), a == b))

    @t.lemma("slots")
    def one_permit_may_be_counted():
        """{masters} masters that count to {permits}, quorums of {quorum}: {holders} holders"""
        masters, permits, quorum, holders = z3.Ints("masters permits quorum holders")
        # Each master grants all permits, and a holder takes a quorum of these grants.
        return implies(both(
            0 < quorum, quorum <= masters, masters < 2 * quorum, holders >= 0,
            holders * quorum <= permits * masters,
            t.given("slots", permits == 1, both(permits == 2, masters == 3))), holders <= permits)

    return t


def start(s):
    return both(
        every(Attempt, Slot, lambda a, k: no(s.won(a, k))),
        every(Attempt, Slot, Master, lambda a, k, n: both(
            no(s.key(a, k, n)), no(s.voted(a, k, n)), no(s.witness(a, k, n)))))
