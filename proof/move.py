"""A lock moves to other masters while its clients run, and they exclude each other all the time.

Clients are of *kinds*. Those of one kind use the masters of one set, or of two: then each of their
quorums has a majority of both, a joint quorum. Two kinds that share a set exclude each other, since
their quorums share a master. In a move from A to B the kinds are A, A>B and B, and only A and B are
*unrelated*: they share no set. The theorem knows no steps and no order of kinds. So it holds for
any number of moves, one after the other, forward and back.

The marker of a master *names* the kinds that the master serves. A *tool* changes the markers, one
by one, on the masters that it reaches. It may take away a name at any time. It may add a name when
all kinds that are unrelated to it are *closed*: a quorum does not name them, and all leases of
theirs are over. The other masters may be down, and come back with the marker that they had.

A master may lose its marker at any time. As guard.py shows, it then grants nothing until all that
it forgot is over, so here it keeps its keys. The question is whom its new marker names: a client
that has watched it for a quarantine marks it for its own kind.

An attempt is one round of commands, as in exclusion.py. Deadlines and clocks are there; here a key
stays until its attempt is over. The tool waits for as long as a quarantine, and guard.py has the
lemma that this outlasts all earlier leases.
"""

import z3

from theory import *

Kind = Sort("Kind")
_uses = z3.Function("uses", Kind.z3, Set.z3, z3.BoolSort())


def uses(k, s):
    """Whether clients of a kind use a set. In a story the name of the kind says so."""
    return "AB"[Set.elements.index(s)] in k if isinstance(k, str) else _uses(k, s)


def unrelated(k, l):
    return every(Set, lambda s: no(both(uses(k, s), uses(l, s))))


def theory():
    t = Theory("A move to other masters", start, {
        "A1": "any two quorums of one set share a master",
        "A2": "a master keeps a key until its attempt is over",
        "joint": "a client that uses two sets needs a quorum of each (mutant counts-union)",
        "grant": "a master grants only while its marker names the kind of the client",
        "extend": "a master extends only while its marker names the kind of the client (mutant "
                  "extends-unadmitted)",
        "quorum": "a kind is closed only when a quorum of one of its sets does not name it",
        "wait": "a kind is closed only when all leases are over that it had by then",
        "look": "the tool sees that quorum within one quarantine",
        "one tool": "what a tool found is void once another one adds the name of an unrelated kind",
        "mark": "a client marks a master only while a quorum of each of its sets names its kind",
    }, a1=quorums_of_a_set_meet)
    t.few.update({
        Kind: ("A", "A>B", "B"), Attempt: ("X", "Y"), Set: sets("m1 m2 m3", "m3"),
        Quorum: sets("m1 m2", "m1 m3", "m2 m3", "m3")})
    t.few_without["extend"] = {
        Kind: ("A", "B"), Attempt: ("X", "X2", "Y"), Master: ("m1", "m2"),
        Set: sets("m1", "m2"), Quorum: sets("m1", "m2")}
    t.relation("of", Attempt, Kind)
    t.relation("one", Attempt, Attempt)  # both are for one lease
    t.relation("asked", Attempt)
    t.relation("key", Attempt, Master)
    t.relation("voted", Attempt, Master)  # the client has read a yes
    t.relation("won", Attempt)
    t.relation("witness", Attempt, Master)  # the masters whose votes won it
    t.relation("over", Attempt)  # its deadline has passed, or it was given up
    t.relation("names", Master, Kind)  # by its marker
    t.relation("seen", Kind, Master)  # a tool has seen that the master does not name the kind
    t.relation("shut", Kind)  # a tool has seen a quorum of such masters
    t.relation("early", Attempt)  # it asked before its kind was shut
    t.relation("may_open", Kind)  # a tool found that all unrelated kinds are closed

    def closed(s, k):
        return both(s.shut(k), t.given("wait", every(Attempt, lambda a: implies(
            both(s.of(a, k), s.early(a)), s.over(a)))))

    @t.action(a=Attempt, k=Kind)
    def ask(s, a, k):
        """{a} asks, a client of {k}"""
        return both(no(s.asked(a)), s.of(a, k)), s.but(asked=(a, True))

    @t.action(a=Attempt, n=Master)
    def grant(s, a, n):
        """{n} grants {a}"""
        free = every(Attempt, lambda b: implies(s.key(b, n), s.one(a, b)))
        named = every(Kind, lambda k: implies(s.of(a, k), s.names(n, k)))
        return both(s.asked(a), free, t.given("grant", named)), s.but(
            key=(a, n, True), voted=(a, n, True))

    @t.action(a=Attempt, n=Master)
    def extend_unnamed(s, a, n):
        """{n} extends the lease of {a}, whose kind it does not name"""
        has = some(Attempt, lambda b: both(s.one(a, b), s.key(b, n)))
        return both(s.asked(a), has, t.given("extend", False)), s.but(
            key=(a, n, True), voted=(a, n, True))

    @t.action(a=Attempt, q=Quorum)
    def win(s, a, q):
        """{a} wins with {q}"""
        def is_of(m):
            return t.given("A1", of(q, m))
        one = some(Kind, Set, lambda k, m: both(s.of(a, k), uses(k, m), is_of(m)))
        each = every(Kind, Set, lambda k, m: implies(both(s.of(a, k), uses(k, m)), is_of(m)))
        all_ = every(Master, lambda n: implies(member(n, q), s.voted(a, n)))
        when = both(s.asked(a), no(s.won(a)), no(s.over(a)), all_,
                    t.given("joint", each, one))
        return when, s.but(won=(a, True), witness=(a, ANY, lambda _, n: member(n, q)))

    @t.action(a=Attempt)
    def end(s, a):
        """{a} is over"""
        return s.asked(a), s.but(over=(a, True))

    @t.action(a=Attempt, n=Master)
    def vanish(s, a, n):
        """the key of {a} on {n} vanishes"""
        return t.given("A2", s.over(a)), s.but(key=(a, n, False))

    @t.action(n=Master, k=Kind)
    def take_away(s, n, k):
        """the marker of {n} names {k} no more"""
        return s.names(n, k), s.but(names=(n, k, False))

    @t.action(k=Kind, n=Master)
    def see(s, k, n):
        """a tool sees that {n} does not name {k}"""
        return both(no(s.names(n, k)), no(s.shut(k))), s.but(seen=(k, n, True))

    @t.action(k=Kind, q=Quorum)
    def shut(s, k, q):
        """a quorum of {k} is seen without it"""
        quorum = both(some(Set, lambda m: both(uses(k, m), of(q, m))),
                      every(Master, lambda n: implies(member(n, q), s.seen(k, n))))
        one = some(Master, lambda n: s.seen(k, n))
        return both(no(s.shut(k)), t.given("quorum", quorum, one)), s.but(
            shut=(k, True),
            early=lambda a: choose(s.of(a, k), s.asked(a), s.early(a)))

    @t.action(k=Kind)
    def find(s, k):
        """a tool finds that it may open {k}"""
        return every(Kind, lambda l: implies(unrelated(k, l), closed(s, l))), s.but(
            may_open=(k, True))

    @t.action(n=Master, k=Kind)
    def add(s, n, k):
        """the marker of {n} names {k} now"""
        void = t.given("one tool", lambda l: both(s.may_open(l), no(unrelated(k, l))), s.may_open)
        return s.may_open(k), s.but(
            names=(n, k, True), shut=(k, False), may_open=void,
            seen=(k, ANY, lambda *_: False))

    @t.action(n=Master)
    def lose(s, n):
        """{n} loses its marker"""
        return True, s.but(names=(n, ANY, lambda *_: False))

    @t.action(k=Kind, n=Master, q=Quorum)
    def mark(s, k, n, q):
        """a client of {k} marks {n}, while it sees {q}"""
        def is_blank(m):
            return every(Kind, lambda l: no(s.names(m, l)))
        own = every(Master, lambda m: implies(member(m, q), either(
            s.names(m, k), t.given("mark", False, is_blank(m)))))
        enough = every(Set, lambda m: implies(uses(k, m), of(q, m)))
        # The marker was there when the tool saw it. The client has watched for a quarantine since.
        quick = either(s.shut(k), no(s.seen(k, n)))
        return both(is_blank(n), own, enough, t.given("look", quick)), s.but(names=(n, k, True))

    @t.invariant
    def attempts_are_of_one_kind(s):
        return both(
            every(Attempt, lambda a: both(s.one(a, a), some(Kind, lambda k: s.of(a, k)))),
            every(Attempt, Attempt, Kind, Kind, lambda a, b, k, l: implies(
                both(s.one(a, b), s.of(a, k), s.of(b, l)), k == l)),
            every(Attempt, Attempt, Attempt, lambda a, b, c: implies(s.one(a, b), both(
                s.one(b, a), implies(s.one(b, c), s.one(a, c))))))

    @t.invariant
    def keys_on_a_master_are_of_one_lease(s):
        return every(Attempt, Attempt, Master, lambda a, b, n: implies(
            both(s.key(a, n), s.key(b, n)), s.one(a, b)))

    @t.invariant
    def key_stays_until_its_attempt_is_over(s):
        return every(Attempt, Master, lambda a, n: implies(s.voted(a, n), both(
            s.asked(a), implies(no(s.over(a)), s.key(a, n)))))

    @t.invariant
    def lease_has_a_quorum_of_each_set(s):
        return every(Attempt, lambda a: implies(s.won(a), both(
            every(Master, lambda n: implies(s.witness(a, n), s.voted(a, n))),
            some(Quorum, lambda q: both(
                every(Master, lambda n: implies(member(n, q), s.witness(a, n))),
                every(Kind, Set, lambda k, m: implies(
                    both(s.of(a, k), uses(k, m)), of(q, m))))))))

    @t.invariant
    def seen_masters_do_not_name(s):
        return every(Kind, Master, lambda k, n: implies(s.seen(k, n), no(s.names(n, k))))

    @t.invariant
    def shut_kind_has_lost_a_quorum(s):
        return every(Kind, lambda k: implies(s.shut(k), some(Set, Quorum, lambda m, q: both(
            uses(k, m), of(q, m), every(Master, lambda n: implies(member(n, q), s.seen(k, n)))))))

    @t.invariant
    def seen_masters_voted_before(s):
        return every(Attempt, Kind, Master, lambda a, k, n: implies(
            both(s.of(a, k), s.shut(k), s.seen(k, n), s.voted(a, n)), s.early(a)))

    @t.invariant
    def kind_unrelated_to_an_open_one_is_closed(s):
        return every(Kind, Kind, lambda k, l: implies(unrelated(k, l), both(
            either(closed(s, k), closed(s, l)), implies(s.may_open(k), closed(s, l)))))

    @t.promise
    def leases_exclude_each_other(s):
        """two hold that exclude each other"""
        def believed(a):
            return both(s.won(a), no(s.over(a)))
        return every(Attempt, Attempt, lambda a, b: implies(
            both(believed(a), believed(b)), s.one(a, b)))

    return t


def start(s):
    """All masters name one kind, or none. In a story that is A."""
    first = some(Kind, lambda k: both(
        k == "A" if isinstance(k, str) else True,
        every(Master, Kind, lambda n, l: implies(s.names(n, l), k == l)),
        every(Kind, lambda l: s.shut(l) == (k != l))))
    return both(
        every(Attempt, lambda a: both(
            s.one(a, a), some(Kind, lambda k: s.of(a, k)),
            *map(no, (s.asked(a), s.won(a), s.over(a), s.early(a))))),
        every(Attempt, Attempt, Kind, Kind, lambda a, b, k, l: implies(
            both(s.one(a, b), s.of(a, k), s.of(b, l)), k == l)),
        every(Attempt, Attempt, Attempt, lambda a, b, c: implies(s.one(a, b), both(
            s.one(b, a), implies(s.one(b, c), s.one(a, c))))),
        every(Attempt, Master, lambda a, n: both(
            no(s.key(a, n)), no(s.voted(a, n)), no(s.witness(a, n)))),
        first,
        every(Kind, lambda k: both(no(s.may_open(k)), some(
            Set, Quorum, lambda m, q: both(uses(k, m), of(q, m))))),
        every(Kind, Master, lambda k, n: s.seen(k, n) == s.shut(k)))
