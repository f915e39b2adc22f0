"""Fencing tokens are unique, and they grow (docs/fencing.md; R4, R5), also while a lock moves.

There is no clock: keys vanish at any moment, because they expire, are released, or were never
wanted any more. Messages are executed at any time after they were sent, several times or never.
Clients go on or stop at any time.

The clients of a move use the masters of one set, or of two (move.py). Tokens grow from one attempt
to the next if there is a set that both use. If there is none, they share no counter. Then they grow
if a third attempt was between the two, which has such a set with each.
"""

from theory import *


def theory():
    t = Theory("Fencing tokens are unique and grow", start, {
        "A1": "any two quorums share a master",
        "A5": "a master tells only numbers that its counter has",
        "A6": "no two attempts have the same token, so that a key has one owner",
        "A2, counters": "a master keeps its counter",
        "raise": "a grant raises the counter (mutant stays-at-end)",
        "agree": "a quorum returns exactly the token (mutants largest-grant, median-grant)",
        "ours": "a master certifies only where the key is the client's (mutant certifies-anywhere)",
        "hold": "a number counts only in a hold of its client (mutant earlier-number)",
        "joint": "a client that uses two sets needs a quorum of each that returns the token",
        "between": "between a lease and one on other masters was a third, which uses both sets",
    }, a1=quorums_of_a_set_meet)
    t.few.update({Set: sets("m1 m2 m3")})
    for clause in ("joint", "between"):
        t.few_without[clause] = {Set: sets("m1 m2 m3", "m3"), Quorum: sets("m1 m2", "m3")}
    t.relation("uses", Attempt, Set)
    t.relation("plain", Attempt)  # it wants no token, and raises no counter
    t.relation("asked", Attempt)
    t.relation("before", Attempt, Attempt)  # the first was returned when the second began
    t.relation("holds", Attempt, Master)
    t.relation("counter", Master, of=Int)
    t.relation("floor", Master, of=Int)  # the counter before the current hold began
    t.relation("told", Attempt, Master)  # the client has read a number of the master…
    t.relation("number", Attempt, Master, of=Int)  # …and this is the last one
    t.relation("won", Attempt)
    t.relation("token", Attempt, of=Int)
    t.relation("witness", Attempt, Master)  # the masters whose numbers made the token

    @t.action(a=Attempt)
    def ask(s, a):
        """{a} asks"""
        when = no(s.asked(a))
        return when, s.but(asked=(a, True), before=(ANY, a, lambda b, _: s.won(b)))

    @t.action(a=Attempt, n=Master, x=Int)
    def grant(s, a, n, x):
        """{n} grants {a}, and its counter becomes {x}"""
        free = every(Attempt, lambda b: no(s.holds(b, n)))
        when = both(s.asked(a), no(s.plain(a)), free, t.given("raise", x > s.counter(n), x >= s.counter(n)))
        after = s.but(holds=(a, n, True), counter=(n, x), floor=(n, s.counter(n)))
        return when, read(after, a, n, x)

    @t.action(a=Attempt, n=Master)
    def grant_plain(s, a, n):
        """{n} grants {a}, who wants no token"""
        free = every(Attempt, lambda b: no(s.holds(b, n)))
        return both(s.asked(a), s.plain(a), free), s.but(
            holds=(a, n, True), floor=(n, s.counter(n)))

    @t.action(a=Attempt, n=Master, x=Int)
    def certify(s, a, n, x):
        """{n} certifies {x} for {a}"""
        top = choose(x > s.counter(n), x, s.counter(n))
        same = t.given("A6", s.holds(a, n), some(Attempt, lambda b: s.holds(b, n)))
        when = both(s.asked(a), no(s.plain(a)), x > 0, t.given("ours", same))
        return when, read(s.but(counter=(n, top)), a, n, top)

    @t.action(a=Attempt, n=Master)
    def peek(s, a, n):
        """{a} reads the counter of {n}, and counts it"""
        return both(s.asked(a), no(s.plain(a)), t.given("hold", False)), read(s, a, n, s.counter(n))

    @t.action(a=Attempt, n=Master, x=Int)
    def lie(s, a, n, x):
        """{n} tells {a} the number {x}, which it does not have"""
        return both(s.asked(a), no(s.plain(a)), t.given("A5", False)), read(s, a, n, x)

    @t.action(a=Attempt, n=Master)
    def vanish(s, a, n):
        """the key of {a} on {n} vanishes"""
        return s.holds(a, n), s.but(holds=(a, n, False))

    @t.action(n=Master)
    def forget(s, n):
        """{n} forgets its counter"""
        return t.given("A2, counters", False), s.but(counter=(n, 0))

    @t.action(a=Attempt, q=Quorum, x=Int)
    def win(s, a, q, x):
        """{a} wins with {q} and gets the token {x}"""
        agree = every(Master, lambda n: implies(member(n, q), both(
            s.told(a, n), t.given("agree", s.number(a, n) == x, s.number(a, n) <= x))))
        some_ = some(Master, lambda n: both(member(n, q), s.number(a, n) == x))
        each = every(Set, lambda m: implies(s.uses(a, m), t.given("A1", of(q, m))))
        one = some(Set, lambda m: both(s.uses(a, m), of(q, m)))
        when = both(s.asked(a), no(s.won(a)), agree, some_, t.given("joint", each, one))
        return when, s.but(won=(a, True), token=(a, x),
                           witness=(a, ANY, lambda _, n: member(n, q)))

    def read(s, a, n, x):
        """A client reads a number, unless it has its token."""
        return s.but(told=(a, n, either(s.told(a, n), no(s.won(a)))),
                     number=(a, n, choose(s.won(a), s.number(a, n), x)))

    @t.invariant
    def key_has_one_owner(s):
        return every(Attempt, Attempt, Master, lambda a, b, n: implies(
            both(s.holds(a, n), s.holds(b, n)), a == b))

    @t.invariant
    def holder_has_asked(s):
        return every(Attempt, Master, lambda a, n: implies(
            either(s.holds(a, n), s.told(a, n), s.won(a)), both(
                s.asked(a), implies(either(s.told(a, n), s.won(a)), no(s.plain(a))))))

    @t.invariant
    def numbers_are_below_the_counter(s):
        return every(Attempt, Master, lambda a, n: both(s.floor(n) <= s.counter(n), implies(
            s.told(a, n), s.number(a, n) <= s.counter(n))))

    @t.invariant
    def numbers_of_others_are_below_the_hold(s):
        return every(Attempt, Attempt, Master, lambda a, b, n: implies(
            both(s.holds(a, n), s.told(b, n), a != b), s.number(b, n) <= s.floor(n)))

    @t.invariant
    def numbers_of_the_hold_are_above_its_floor(s):
        return every(Attempt, Master, lambda a, n: implies(
            both(s.holds(a, n), no(s.plain(a))), s.floor(n) < s.counter(n)))

    @t.invariant
    def no_number_is_told_to_two(s):
        return every(Attempt, Attempt, Master, lambda a, b, n: implies(
            both(s.told(a, n), s.told(b, n), s.number(a, n) == s.number(b, n)), a == b))

    @t.invariant
    def token_is_what_its_quorum_told(s):
        return every(Attempt, lambda a: implies(s.won(a), both(
            some(Quorum, lambda q: both(
                every(Master, lambda n: implies(member(n, q), s.witness(a, n))),
                every(Set, lambda m: implies(s.uses(a, m), of(q, m))))),
            every(Master, lambda n: implies(s.witness(a, n), both(
                s.told(a, n), s.number(a, n) == s.token(a)))))))

    @t.invariant
    def earlier_token_is_below_later_holds(s):
        return every(Attempt, Attempt, Master, lambda a, b, n: implies(
            both(s.before(a, b), s.witness(a, n)), both(
                a != b, s.won(a),
                implies(s.holds(b, n), s.token(a) <= s.floor(n)),
                implies(s.told(b, n), s.token(a) < s.number(b, n)))))

    @t.invariant
    def before_is_won(s):
        return every(Attempt, Attempt, lambda a, b: implies(
            s.before(a, b), both(s.won(a), s.asked(b), a != b)))

    @t.promise
    def tokens_are_unique(s):
        """two leases have the same token"""
        return every(Attempt, Attempt, lambda a, b: implies(
            both(s.won(a), s.won(b), meet(s, a, b), s.token(a) == s.token(b)), a == b))

    @t.promise
    def tokens_grow(s):
        """a later lease has a smaller token"""
        def between(a, b):
            return some(Attempt, lambda c: both(
                s.before(a, c), s.before(c, b), meet(s, a, c), meet(s, c, b)))
        return every(Attempt, Attempt, lambda a, b: implies(
            both(s.won(b), s.before(a, b), either(meet(s, a, b), t.given(
                "between", between(a, b)))), s.token(a) < s.token(b)))

    return t


def meet(s, a, b):
    return some(Set, lambda m: both(s.uses(a, m), s.uses(b, m)))


def start(s):
    return both(
        every(Attempt, lambda a: both(no(s.asked(a)), no(s.won(a)))),
        every(Attempt, Attempt, lambda a, b: no(s.before(a, b))),
        every(Attempt, Master, lambda a, n: both(
            no(s.holds(a, n)), no(s.told(a, n)), no(s.witness(a, n)))),
        every(Master, lambda n: both(s.counter(n) == 0, s.floor(n) == 0)))
