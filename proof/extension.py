"""Extensions with repair: no success over a rival's lease, and no false alarm (R6).

Within the assumptions, exclusion.py covers extensions. This is about masters that forget. A lease
is extended in rounds. Only *members* vote: masters that have shown the key, and have not denied it
since. Other masters are asked to create the key again. They are members from then on, and vote in
the next round. A rival wins at one moment at which a quorum has the rival's key.

A *span* is the moment at which a round begins. Its masters are those that held the key then, as
far as the replies show. If a quorum of masters is missing in a span, the lease is *gone*: no later
round extends it. The theory follows the two spans around the rival's moment: `a` before it, `b`
after it. Commands of the acquire may still be under way at first. That the keys of a silent master
expire by themselves is left out. The names are those of docs/safety.md.
"""

from theory import *


def theory():
    t = Theory("Extension with repair", start, {
        "A1": "any two quorums share a master",
        "A5": "a master says only of a key that it has that it has it",
        "voters": "a key that a round creates counts from the next round on",
        "repair": "a repair is asked of no master that votes: it would hide the gap",
        "spans": "the spans of earlier rounds count, too",
        "flight": "no command that creates the key is on its way to the rival's masters then",
        "A2": "a rival's master keeps the rival's key until the rival has won",
    })
    for name in ("key", "rival_key", "counts", "voter", "due", "yes", "held_a", "open_a", "held_b",
                 "open_b", "rival", "replied", "first", "forgot", "steady"):
        t.relation(name, Master)
    for name in ("won", "begun", "later", "gone", "over"):
        t.relation(name)

    def gap(held):
        return some(Quorum, lambda q: every(Master, lambda n: implies(member(n, q), no(held(n)))))

    def look(s):
        """The client looks at both spans."""
        seen = either(both(t.given("spans", True, no(s.begun())), gap(s.held_a)),
                      both(s.begun(), t.given("spans", True, no(s.later())), gap(s.held_b)))
        return s.but(gone=lambda: either(s.gone(), seen))

    @t.action()
    def begin(s):
        """a round begins"""
        first, second = no(s.won()), both(s.won(), no(s.begun()))
        return no(s.gone()), look(s.but(
            voter=s.counts, due=lambda n: True, yes=lambda n: False, steady=s.key,
            held_a=lambda n: choose(first, s.counts(n), s.held_a(n)),
            open_a=lambda n: choose(first, s.counts(n), s.open_a(n)),
            held_b=lambda n: choose(second, s.counts(n), s.held_b(n)),
            open_b=lambda n: choose(second, s.counts(n), s.open_b(n)),
            begun=lambda: s.won(), later=lambda: s.begun()))

    def answer(s, n, key, **changes):
        """The client reads an answer to the command of this round."""
        return look(s.but(due=(n, False), key=(n, key), counts=(n, key), open_a=(n, False),
                          open_b=(n, False), replied=(n, either(s.replied(n), s.won())), **changes))

    def may_repair(s, n):
        return both(no(s.key(n)), no(s.rival_key(n)), t.given("repair", no(s.voter(n))))

    @t.action(n=Master)
    def confirm(s, n):
        """{n} confirms the key"""
        return both(s.due(n), s.key(n)), answer(s, n, True, yes=(n, t.given("voters", s.voter(n))))

    @t.action(n=Master)
    def create(s, n):
        """{n} creates the key again"""
        yes = t.given("voters", s.voter(n))
        return both(s.due(n), may_repair(s, n)), answer(s, n, True, yes=(n, yes))

    @t.action(n=Master)
    def deny(s, n):
        """{n} denies the key"""
        when = both(s.due(n), no(s.key(n)), either(s.voter(n), s.rival_key(n)))
        return when, answer(s, n, False, held_a=(n, both(s.held_a(n), no(s.open_a(n)))),
                            held_b=(n, both(s.held_b(n), no(s.open_b(n)))))

    @t.action(n=Master)
    def repair_unheard(s, n):
        """{n} creates the key again, and its answer is lost"""
        when = both(no(s.counts(n)), no(s.voter(n)), no(s.rival_key(n)))
        return when, s.but(key=(n, True), due=(n, False))

    @t.action(n=Master)
    def lie(s, n):
        """{n} says that it has the key"""
        return both(s.due(n), s.voter(n), t.given("A5", False)), s.but(
            due=(n, False), yes=(n, True), replied=(n, either(s.replied(n), s.won())),
            open_a=(n, False), open_b=(n, False))

    @t.action(n=Master)
    def forget(s, n):
        """{n} forgets the key"""
        steady = both(s.steady(n), no(s.due(n)))
        return s.key(n), s.but(key=(n, False), forgot=(n, True), steady=(n, steady))

    @t.action(n=Master)
    def rival_sets(s, n):
        """{n} grants the rival"""
        return no(s.key(n)), s.but(rival_key=(n, True))

    @t.action(n=Master)
    def rival_leaves(s, n):
        """the rival's key on {n} goes"""
        return True, s.but(rival_key=(n, False))

    @t.action(q=Quorum)
    def rival_wins(s, q):
        """the rival has a lease, with {q}"""
        has = every(Master, lambda n: implies(member(n, q), t.given("A2", s.rival_key(n))))
        flight = some(Master, lambda n: both(member(n, q), s.due(n), no(s.voter(n))))
        when = both(no(s.won()), has, t.given("flight", no(flight)))
        return when, s.but(won=lambda: True, rival=lambda n: member(n, q))

    @t.action(q=Quorum)
    def succeed(s, q):
        """the round succeeds with {q}"""
        all_ = every(Master, lambda n: implies(member(n, q), s.yes(n)))
        return both(no(s.gone()), all_), s.but(over=lambda: either(s.over(), both(s.won(), every(
            Master, lambda n: implies(s.rival(n), s.replied(n))))))

    @t.invariant
    def quorums(s):
        return both(
            implies(s.later(), s.begun()), implies(s.begun(), s.won()),
            implies(no(s.won()), every(Master, lambda n: no(s.replied(n)))),
            some(Quorum, lambda q: every(Master, lambda n: implies(member(n, q), s.first(n)))),
            implies(s.won(), some(Quorum, lambda q: every(
                Master, lambda n: implies(member(n, q), s.rival(n))))))

    @t.invariant
    def members_vote(s):
        return every(Master, lambda n: both(
            no(both(s.key(n), s.rival_key(n))),
            implies(s.due(n), both(s.voter(n) == s.counts(n), no(s.yes(n)))),
            implies(both(s.due(n), s.voter(n), s.key(n)), s.steady(n))))

    @t.invariant
    def gap_was_looked_for(s):
        return either(s.gone(), both(no(gap(s.held_a)), implies(s.begun(), no(gap(s.held_b)))))

    @t.invariant
    def silent_member_of_the_rivals_lacks_the_key(s):
        return every(Master, lambda n: implies(both(s.won(), s.rival(n), no(s.replied(n))), both(
            implies(s.counts(n), no(s.key(n))),
            implies(both(no(s.begun()), s.due(n)), both(
                s.voter(n), implies(s.held_a(n), s.open_a(n)))),
            implies(both(s.begun(), s.held_b(n)), both(s.open_b(n), s.counts(n))))))

    @t.invariant
    def reply_of_a_rivals_master_shows_the_gap(s):
        return every(Master, lambda n: implies(both(s.won(), s.rival(n), s.replied(n)), choose(
            s.begun(), no(s.held_b(n)), both(no(s.held_a(n)), no(s.counts(n)), no(s.due(n))))))

    @t.invariant
    def open_masters_held_the_key(s):
        return every(Master, lambda n: implies(
            both(no(s.won()), s.due(n), s.held_a(n)), s.open_a(n)))

    @t.invariant
    def master_that_forgot_nothing_holds_the_key(s):
        return every(Master, lambda n: implies(both(s.first(n), no(s.forgot(n))), both(
            s.key(n), s.counts(n), s.held_a(n), implies(s.begun(), s.held_b(n)))))

    @t.promise
    def success_means_that_no_rival_has_won(s):
        """the extension succeeds over a rival, all of whose masters have replied since"""
        return no(s.over())

    @t.promise
    def loss_means_that_masters_forgot(s):
        """the lease counts as gone, and no master has forgotten it"""
        return implies(s.gone(), some(Master, lambda n: both(s.first(n), s.forgot(n))))

    @t.promise
    def confirmation_means_no_gap(s):
        """a master counts that lacked the key when the round began, or since"""
        return every(Master, lambda n: implies(s.yes(n), s.steady(n)))

    return t


def start(s):
    return both(
        *map(no, (s.won(), s.begun(), s.later(), s.gone(), s.over())),
        some(Quorum, lambda q: every(Master, lambda n: implies(member(n, q), s.first(n)))),
        every(Master, lambda n: both(
            s.key(n) == s.first(n), s.counts(n) == s.first(n), s.held_a(n) == s.first(n),
            s.open_a(n) == s.first(n), no(both(s.due(n), s.first(n))),
            *map(no, (s.rival_key(n), s.voter(n), s.yes(n), s.held_b(n), s.open_b(n),
                      s.rival(n), s.replied(n), s.forgot(n), s.steady(n))))))
