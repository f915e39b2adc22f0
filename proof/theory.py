"""Theories: transition systems that Z3 proves for any number of masters and clients.

A theory has relations over sorts, actions that change them, and invariants. It is written once,
with the operators of this file, and read in three ways:

* `Theory.prove` takes the sorts as unknown sets. It shows that every invariant holds at first, and
  that each action keeps it. So it holds after any number of steps, for sets of any size.
* `Theory.story` takes a few masters and clients, and leaves out one clause: an assumption, or a
  rule of the lock. It finds the shortest run that breaks the promise. If there is none, the clause
  does no work in the theory, and that is reported as a failure.
* `Run` takes the steps of a recorded run, one after the other.

To calculate with values that are known and to build terms from others is the same thing here:
`both(True, x)` is `x`.
"""

import itertools
import sys

try:
    import z3
except ImportError:
    print("Z3 is missing: pip install z3-solver", file=sys.stderr)
    sys.exit(3)

Int = "Int"
Reals = z3.Reals
MASTERS = ("m1", "m2", "m3")


class Sort:
    """A set of things: unknown while `elements` is None."""

    def __init__(self, name):
        self.name, self.elements, self.z3 = name, None, z3.DeclareSort(name)


Master, Attempt, Quorum = Sort("Master"), Sort("Attempt"), Sort("Quorum")
Set = Sort("Set")  # of masters: what the clients of a lock have a list of


def both(*parts):
    left = [it for it in parts if it is not True]
    if any(it is False for it in left):
        return False
    return z3.And(*left) if len(left) > 1 else left[0] if left else True


def either(*parts):
    left = [it for it in parts if it is not False]
    if any(it is True for it in left):
        return True
    return z3.Or(*left) if len(left) > 1 else left[0] if left else False


def no(part):
    return not part if isinstance(part, bool) else z3.Not(part)


def implies(condition, then):
    return either(no(condition), then)


def choose(condition, then, otherwise):
    if isinstance(condition, bool):
        return then if condition else otherwise
    return z3.If(condition, then, otherwise)


def every(*sorts_and_body):
    *sorts, body = sorts_and_body
    if all(it.elements is not None for it in sorts):
        return both(*(body(*args) for args in itertools.product(*(it.elements for it in sorts))))
    args = [z3.FreshConst(it.z3, it.name.lower()) for it in sorts]
    term = body(*args)
    return term if isinstance(term, bool) else z3.ForAll(args, term)


def some(*sorts_and_body):
    *sorts, body = sorts_and_body
    return no(every(*sorts, lambda *args: no(body(*args))))


_member = z3.Function("member", Master.z3, Quorum.z3, z3.BoolSort())


def member(n, q):
    """Whether a master is in a quorum. A known quorum is a set of masters."""
    return n in q if isinstance(q, frozenset) else _member(n, q)


_of = z3.Function("of", Quorum.z3, Set.z3, z3.BoolSort())


def of(q, s):
    """Whether a quorum is one of this set. A joint quorum is one of two sets."""
    return 2 * len(q & s) > len(s) if isinstance(q, frozenset) else _of(q, s)


def sets(*names):
    """Sets and quorums for stories: of the masters in each name."""
    return [frozenset(it.split()) for it in names]


def quorums_meet():
    """A1 and R3: the quorums of all clients are majorities of the same masters."""
    return every(Quorum, Quorum, share)


def quorums_of_a_set_meet():
    """The same for clients that have several sets of masters."""
    return every(Quorum, Quorum, Set, lambda q, r, s: implies(
        both(of(q, s), of(r, s)), share(q, r)))


def share(q, r):
    return some(Master, lambda n: both(member(n, q), member(n, r)))


class State:
    """The values of all relations: each a function of its arguments."""

    def __init__(self, values):
        self.__dict__.update(values)

    def but(self, **changes):
        """This state with changes: for each relation `(*arguments, value)`. An argument may be
        `ANY`; the value is then a function of all arguments. Or a function, for all arguments."""
        new = {it: _at(self.__dict__[it], to) for it, to in changes.items()}
        return State({**self.__dict__, **new})


ANY = object()


def _at(old, change):
    if callable(change):
        return change
    *point, value = change

    def new(*args):
        here = both(*(x == y for x, y in zip(args, point) if y is not ANY))
        return choose(here, value(*args) if callable(value) else value, old(*args))
    new.old, new.point = old, point
    return new


class Theory:
    """A transition system. Its promises are the invariants that users rely on."""

    def __init__(self, title, start, clauses, a1=quorums_meet):
        self.title, self.start, self.clauses, self.dropped = title, start, clauses, None
        self.a1 = a1
        self.relations, self.actions, self.lemmas = {}, [], []
        self.invariants, self.promises = [], []
        # The few of each sort with which stories are told, and those of single clauses; the steps.
        self.few, self.few_without = {Master: MASTERS, Attempt: ("A", "B")}, {}
        self.most = 14

    def relation(self, name, *sorts, of=bool):
        self.relations[name] = (sorts, of)

    def given(self, clause, term, otherwise=True):
        """What a clause demands; `otherwise` once it is left out."""
        assert clause in self.clauses, f"{self.title} has no clause {clause}"
        return otherwise if clause == self.dropped else term

    def action(self, **sorts):
        """Adds a function from a state and arguments to the condition and the next state. Its
        documentation is the sentence that tells a story."""
        def add(function):
            self.actions.append((function, sorts))
            return function
        return add

    def invariant(self, function):
        self.invariants.append(function)
        return function

    def promise(self, function):
        """Adds an invariant. Its documentation says how a story ends that breaks it."""
        self.promises.append(function)
        return self.invariant(function)

    def lemma(self, *clauses):
        """Adds a claim about numbers, and the clauses without which it is false."""
        def add(function):
            self.lemmas.append((function, clauses))
            return function
        return add

    # For sets of any size.

    def prove(self):
        """Returns what cannot be proved, and the number of proofs."""
        values = {it: z3.Function(f"old_{it}", *map(_z3, (*sorts, of)))
                  for it, (sorts, of) in self.relations.items()}
        old = State(values)
        axioms = [self.given("A1", self.a1())] if "A1" in self.clauses else []
        claims = [(f"lemma {it.__name__}", [], it()) for it, _ in self.lemmas]
        known = [it(old) for it in self.invariants]
        for goal in self.invariants:
            claims.append((f"{goal.__name__}, at first", [self.start(old)], goal(old)))
            for action, sorts in self.actions:
                when, new = action(old, *(z3.FreshConst(_z3(it), name)
                                          for name, it in sorts.items()))
                name = f"{goal.__name__}, after {action.__name__}"
                claims.append((name, [*known, when], goal(new)))
        failed = [name for name, given, claim in claims if _refute([*axioms, *given], claim)]
        return failed, len(claims)

    # For a few of each.

    def without(self, clause):
        """What goes wrong without a clause: numbers for which a lemma is false, and a story."""
        self.dropped = clause
        few = {Quorum: [frozenset(it) for it in itertools.combinations(MASTERS, 2)], **self.few}
        if clause == "A1":
            few[Master] = [*MASTERS, "m4"]
            few[Quorum] = [frozenset(MASTERS[:2]), frozenset(few[Master][2:])]
        few.update(self.few_without.get(clause, {}))
        for sort, elements in few.items():
            sort.elements = elements
        try:
            return list(self._numbers()), self._story()
        finally:
            self.dropped = None
            for sort in few:
                sort.elements = None

    def _story(self):
        """The steps of the shortest run that breaks a promise, or None."""
        points = {name: list(itertools.product(*(it.elements for it in sorts)))
                  for name, (sorts, _) in self.relations.items()}
        steps = [(action, args) for action, sorts in self.actions for args in itertools.product(
            *([name] if it is Int else it.elements for name, it in sorts.items()))]
        solver = z3.Solver()

        def state(at):
            values = {name: {it: z3.Const(f"{name}{it}@{at}", _z3(of)) for it in points[name]}
                      for name, (_, of) in self.relations.items()}
            return State({name: lambda *args, of=of: of[args] for name, of in values.items()})

        now = state(0)
        solver.add(self.start(now))
        for at in range(1, self.most + 1):
            chosen, new, before = z3.Int(f"step@{at}"), state(at), now
            solver.add(0 <= chosen, chosen < len(steps))
            after = []
            for number, (action, args) in enumerate(steps):
                ints = [z3.Int(f"{it}@{at}") if of is Int else it
                        for it, of in zip(args, dict(self.actions)[action].values())]
                when, then = action(before, *ints)
                solver.add(z3.Implies(chosen == number, when))
                after.append(then)
            for name, of in self.relations.items():
                changing = [(number, then.__dict__[name]) for number, then in enumerate(after)
                            if then.__dict__[name] is not before.__dict__[name]]
                for point in points[name]:
                    term = old = before.__dict__[name](*point)
                    for number, then in changing:
                        value = then(*point)
                        if not (z3.is_expr(value) and value.eq(old)):
                            term = z3.If(chosen == number, value, term)
                    solver.add(new.__dict__[name](*point) == term)
            now = new
            solver.push()
            solver.add(no(both(*(it(now) for it in self.promises))))
            if solver.check() == z3.sat:
                model = solver.model()
                broken = [it.__doc__ for it in self.promises if model.eval(no(it(now)))]
                return [*(self._tell(steps, model, it) for it in range(1, at + 1)), broken[0]]
            solver.pop()
        return None

    def _numbers(self):
        """Numbers for which a lemma is false, for each that needs the clause that is left out; None
        where it holds without the clause."""
        for lemma, clauses in self.lemmas:
            if self.dropped in clauses:
                solver = z3.Solver()
                solver.add(no(lemma()))
                if solver.check() != z3.sat:
                    yield None
                    continue
                model = solver.model()
                values = {it.name(): model[it] for it in model}
                yield " ".join(lemma.__doc__.format(**values).split())

    def _tell(self, steps, model, at):
        action, args = steps[model[z3.Int(f"step@{at}")].as_long()]
        names = dict(self.actions)[action]
        told = {name: model.eval(z3.Int(f"{it}@{at}")) if of is Int else
                "+".join(sorted(it)) if of is Quorum else it
                for (name, of), it in zip(names.items(), args)}
        return action.__doc__.format(**told)


class Run:
    """A run of a theory, step by step, with known values."""

    def __init__(self, theory, **values):
        self.theory, self.tables = theory, {it: {} for it in theory.relations}
        self.actions = {it.__name__: it for it, _ in theory.actions}
        self.state = State({**{it: self._relation(it) for it in theory.relations}, **values})

    def _relation(self, name):
        table, none = self.tables[name], 0 if self.theory.relations[name][1] is Int else False
        return lambda *args: table.get(args, none)

    def step(self, action, *args):
        """Takes a step. Returns whether the theory has it."""
        when, after = self.actions[action](self.state, *args)
        changed = []
        for name, (sorts, _) in self.theory.relations.items():
            new = after.__dict__[name]
            while new is not self.state.__dict__[name]:
                point = getattr(new, "point", [ANY] * len(sorts))
                points = itertools.product(*(
                    it.elements if at is ANY else [at] for it, at in zip(sorts, point)))
                changed += [(name, it, after.__dict__[name](*it)) for it in points]
                new = getattr(new, "old", self.state.__dict__[name])
        if when is True:
            for name, point, value in changed:
                self.tables[name][point] = value
        return when is True

    def holds(self):
        """Whether the promises hold."""
        return all(it(self.state) is True for it in self.theory.promises)


def _z3(sort):
    return {Int: z3.IntSort(), bool: z3.BoolSort()}[sort] if sort in (Int, bool) else sort.z3


def _refute(given, claim):
    """Whether the claim does not follow."""
    solver = z3.Solver()
    # In steps of the solver, so that the result does not depend on the machine.
    solver.set("rlimit", 100_000_000)
    solver.add(*given, no(claim))
    return solver.check() != z3.unsat
