"""Mutual exclusion: believed holds of a resource never overlap, unless all are shared.

An attempt is one round of commands for a lease, and has a deadline of its own: a round of
acquiring, which has a fresh token (R4), or one of extending, which has the token of its lease.
`key(a, n)` says that on master n the key with the token of a is there, and lives on as attempt a
has asked for. A key may be set at any time after its command was sent, also again, and long after
its client gave up.

Time is in the lemma. It says that no master's clock reaches the end of a key before the deadline
of its attempt has passed by the client's clock. So a key expires only after that. The names are
those of docs/safety.md.
"""

from theory import *


def theory():
    t = Theory("Mutual exclusion", start, {
        "A1": "any two quorums share a master (mutant server-twice)",
        "A2": "a master keeps a key for its TTL (mutant newest-end)",
        "A3": "no clock steps (mutant wall-clock)",
        "A4": "clocks run alike, to within the drift (mutant forgets-suspend)",
        "A5": "a master that says yes has set the key",
        "A6": "no two attempts have the same token (mutant one-token)",
        "R1": "a lease is handed out before its deadline (mutant no-deadline-check)",
        "R1, t0": "the TTL counts from before the first command (mutants "
                  "t0-after-first-reply, extends-from-reply)",
        "R1, drift": "the deadline leaves room for the drift (mutants drift-ignored, drift-short)",
        "R5": "a clean-up comes when its attempt has failed or its lease has ended",
        "R2": "silence and errors are no grants (mutant error-is-yes)",
        "R3": "a majority grants (mutants small-quorum, extend-counts-minority)",
        "R6, rounds": "the reply to an older round does not count (mutant mixes-rounds)",
        "R6, token": "a lease extends its own key only (mutant extend-without-token-check)",
        "R7": "a lease ends at its deadline (mutants silent-loss, revives-lost)",
        "R8": "a clean-up deletes the client's own key only (mutant plain-del)",
        "shared": "a master shares a key only among readers (mutant evicts)",
    })
    for clause in ("A6", "R6, rounds", "R8"):
        t.few_without[clause] = {Attempt: ("A", "B", "C")}
    t.relation("shared", Attempt)
    t.relation("one", Attempt, Attempt)  # both are for one lease
    t.relation("asked", Attempt)
    t.relation("key", Attempt, Master)
    t.relation("voted", Attempt, Master)  # the client has read a yes
    t.relation("won", Attempt)
    t.relation("witness", Attempt, Master)  # the masters whose votes won it
    t.relation("passed", Attempt)  # its deadline has passed, by the client's clock
    t.relation("ended", Attempt)  # it failed, or its lease was released or dropped
    t.relation("lost", Attempt)  # its holder knows that its deadline has passed

    def conflict(s, a, b):
        return both(no(s.one(a, b)), t.given("shared", no(both(s.shared(a), s.shared(b))),
                                    no(either(s.shared(a), s.shared(b)))))

    def needed(s, a):
        return both(no(s.passed(a)), no(s.ended(a)))

    @t.action(a=Attempt)
    def ask(s, a):
        """{a} asks"""
        ended = some(Attempt, lambda b: both(s.one(a, b), s.ended(b)))
        return both(no(s.asked(a)), no(ended)), s.but(asked=(a, True))

    @t.action(a=Attempt, n=Master)
    def grant(s, a, n):
        """{n} grants {a}"""
        free = every(Attempt, lambda b: implies(s.key(b, n), no(conflict(s, a, b))))
        return both(s.asked(a), free), s.but(key=(a, n, True), voted=(a, n, True))

    @t.action(a=Attempt, n=Master)
    def lie(s, a, n):
        """{n} says yes to {a}, and sets nothing"""
        return both(s.asked(a), t.given("A5", False)), s.but(voted=(a, n, True))

    @t.action(a=Attempt, n=Master)
    def guess(s, a, n):
        """{a} hears nothing of {n}, and takes that for a yes"""
        return both(s.asked(a), t.given("R2", False)), s.but(voted=(a, n, True))

    @t.action(a=Attempt, b=Attempt, n=Master)
    def mix(s, a, b, n):
        """{a} counts the yes of {n} to {b}, an older round of its lease"""
        when = both(s.one(a, b), s.voted(b, n), s.asked(a), t.given("R6, rounds", False))
        return when, s.but(voted=(a, n, True))

    @t.action(a=Attempt, n=Master)
    def extend_any(s, a, n):
        """{n} extends the key of another client for {a}"""
        when = both(s.asked(a), some(Attempt, lambda b: s.key(b, n)), t.given("R6, token", False))
        return when, s.but(voted=(a, n, True))

    @t.action(a=Attempt, q=Quorum)
    def win(s, a, q):
        """{a} wins with {q}"""
        all_ = every(Master, lambda n: implies(member(n, q), s.voted(a, n)))
        yes = t.given("R3", all_, some(Master, lambda n: both(member(n, q), s.voted(a, n))))
        when = both(s.asked(a), no(s.ended(a)), no(s.won(a)), yes,
                    t.given("R1", no(s.passed(a))))
        return when, s.but(won=(a, True), witness=(a, ANY, lambda _, n: member(n, q)))

    @t.action(a=Attempt)
    def deadline(s, a):
        """the deadline of {a} passes"""
        return s.asked(a), s.but(passed=(a, True), lost=(a, t.given("R7", s.won(a), False)))

    @t.action(a=Attempt)
    def end(s, a):
        """{a} gives up, or gives its lease back"""
        return s.asked(a), s.but(ended=(ANY, lambda b: either(s.ended(b), s.one(a, b))))

    @t.action(a=Attempt, n=Master)
    def clean_up(s, a, n):
        """{n} cleans up the key of {a}"""
        when = t.given("R5", s.ended(a), s.asked(a))
        any_ = either(t.given("A6", False, True), t.given("R8", False, True))
        return when, s.but(key=(ANY, n, lambda b, _: both(
            s.key(b, n), no(either(s.one(a, b), any_)))))

    @t.action(a=Attempt, n=Master)
    def expire(s, a, n):
        """the key of {a} on {n} expires"""
        early = either(*(t.given(it, False, True) for it in ("A3", "A4", "R1, t0", "R1, drift")))
        return either(s.passed(a), early), s.but(key=(a, n, False))

    @t.action(a=Attempt, n=Master)
    def forget(s, a, n):
        """{n} forgets the key of {a}"""
        return t.given("A2", False), s.but(key=(a, n, False))

    @t.invariant
    def keys_on_a_master_share(s):
        return every(Attempt, Attempt, Master, lambda a, b, n: implies(
            both(s.key(a, n), s.key(b, n)), no(conflict(s, a, b))))

    @t.invariant
    def key_was_asked_for(s):
        return every(Attempt, Master, lambda a, n: implies(
            either(s.key(a, n), s.voted(a, n)), s.asked(a)))

    @t.invariant
    def key_stays_while_it_is_needed(s):
        return every(Attempt, Master, lambda a, n: implies(
            both(s.voted(a, n), needed(s, a)), s.key(a, n)))

    @t.invariant
    def lease_has_a_quorum(s):
        return every(Attempt, lambda a: implies(s.won(a), both(
            some(Quorum, lambda q: every(Master, lambda n: implies(
                member(n, q), s.witness(a, n)))),
            every(Master, lambda n: implies(s.witness(a, n), s.voted(a, n))))))

    @t.invariant
    def holder_learns_of_its_deadline(s):
        return every(Attempt, lambda a: implies(
            both(s.won(a), s.passed(a)), either(s.lost(a), s.ended(a))))

    @t.invariant
    def rounds_are_of_one_lease(s):
        return both(every(Attempt, lambda a: s.one(a, a)), every(
            Attempt, Attempt, Attempt, lambda a, b, c: implies(s.one(a, b), both(
                s.one(b, a), s.shared(a) == s.shared(b), s.ended(a) == s.ended(b),
                implies(s.one(b, c), s.one(a, c))))))

    @t.promise
    def believed_holds_exclude_each_other(s):
        """two hold that exclude each other"""
        def believed(a):
            return both(s.won(a), no(s.ended(a)), no(s.lost(a)))
        return every(Attempt, Attempt, lambda a, b: implies(
            both(believed(a), believed(b), no(s.one(a, b))), both(s.shared(a), s.shared(b))))

    @t.lemma("A3", "A4", "R1, t0", "R1, drift")
    def no_key_ends_before_its_deadline():
        """TTL {ttl} s, drift {drift} s, rates to within {rate}. The client starts its clock at 0 s,
        the key is set at {sent} s. At {real} s the client's clock has measured {client} s, and the
        master's {master} s since it set the key, of which {step} s were a step."""
        ttl, drift, rate, sent, real, client, master, step = Reals(
            "ttl drift rate sent real client master step")
        # The client's clock begins at t0, the master's TTL when it executes the command.
        early = t.given("R1, t0", sent >= 0, sent >= -1000)
        return implies(both(
            ttl > 0, 0 <= rate, rate < 1, early, real >= 0, real >= sent,
            t.given("A4", client >= (1 - rate) * real, client >= 0),
            t.given("A4", master <= (1 + rate) * (real - sent) + step),
            t.given("A3", step == 0),
            t.given("R1, drift", (ttl - drift) * (1 + rate) <= ttl * (1 - rate), drift == 0),
            client < ttl - drift), master < ttl)

    return t


def start(s):
    return both(
        every(Attempt, lambda a: both(
            s.one(a, a), *map(no, (s.asked(a), s.won(a), s.passed(a), s.ended(a), s.lost(a))))),
        every(Attempt, Attempt, Attempt, lambda a, b, c: implies(s.one(a, b), both(
            s.one(b, a), s.shared(a) == s.shared(b), implies(s.one(b, c), s.one(a, c))))),
        every(Attempt, Master, lambda a, n: both(
            no(s.key(a, n)), no(s.voted(a, n)), no(s.witness(a, n)))))
