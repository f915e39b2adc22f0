"""Checks that recorded runs are runs of the theories: the machines that ship take no other steps.

    python3 proof/refinement.py target/chaos                   # folders of `redquorum-chaos run`
    redquorum-chaos search --histories - | python3 proof/refinement.py -

Each resource of a run in virtual time is played through exclusion.py and fencing.py. A command
that a master executed is a grant, a certification or a clean-up there; a lease that a client was
given is a win. What a history does not record is inferred where a later event shows it: a command
whose reply was lost, the expiry of a key. If a fault breaks an assumption, masters may also lose
keys and counters. Then a run may have other steps only if its recorded verdict is a violation.

Exit codes: 0 all are, 1 one is not, 3 nothing to check, 64 wrong usage.
"""

import argparse
import collections
import json
import sys

import exclusion
import fencing
from history import length
from second_opinion import Tally, parse
from theory import Attempt, Master, Run, Set

MS, NEVER = 10**6, 10**18
EXCLUSION, FENCING = exclusion.theory(), fencing.theory()


class Stray(Exception):
    """A step that the theories do not have."""


class Resource:
    """The part of a run that is about one resource."""

    def __init__(self, run, name):
        self.run, self.name, self.live = run, name, []
        self.deadlines, self.largest = {}, None
        self.locks = Run(EXCLUSION, one=lambda a, b: a[0] == b[0],
                         shared=lambda a: a[0] in run.shared)
        self.tokens = Run(FENCING, plain=lambda a: a[0] not in run.fenced,
                          uses=lambda a, m: m == run.uses.get(a[0]))

    def step(self, run, action, *args):
        if not run.step(action, *args):
            raise Stray(f"{self.name}: no {action} of {', '.join(map(str, args))}")

    def play(self, events):
        for at, _, kind, args in sorted(events, key=lambda it: it[:2]):
            self.now = at
            Attempt.elements = self.live
            getattr(self, kind)(*args)

    def ask(self, a):
        if a not in self.live:
            self.retire()
            self.live.append(a)
        if not self.locks.state.asked(a):
            if self.locks.state.ended((a[0], 0)):
                # A round that was begun before the lease ended.
                self.locks.tables["asked"][a,] = self.locks.tables["ended"][a,] = True
            else:
                self.step(self.locks, "ask", a)
            if a[1] == 0:
                self.step(self.tokens, "ask", a)

    def retire(self):
        """Leaves out attempts that can take no step any more, to keep the checks short."""
        locks = self.locks.state
        for a in list(self.live):
            over = locks.ended(a) or locks.lost(a)
            keys = any(locks.key(a, n) or self.tokens.state.holds(a, n) for n in Master.elements)
            if over and not keys and a != self.largest:
                self.live.remove(a)

    def make_room(self, a, n):
        """The keys of others on a master are gone when it grants one: cleaned up, or expired."""
        locks = self.locks.state
        for b in list(self.live):
            if locks.key(b, n) and b[0] != a[0] and not (locks.shared(a) and locks.shared(b)):
                self.leave(b, n)
        for b in list(self.live):
            if self.tokens.state.holds(b, n) and b[0] != a[0]:
                self.step(self.tokens, "vanish", b, n)

    def leave(self, a, n):
        locks = self.locks.state
        if locks.ended(a):
            self.step(self.locks, "clean_up", a, n)
        elif self.now >= self.deadlines.get(a, 0) or locks.passed(a):
            if not locks.passed(a):
                self.step(self.locks, "deadline", a)
            self.step(self.locks, "expire", a, n)
        elif self.run.forgets:
            self.locks.tables["key"][a, n] = False
        else:
            raise Stray(f"{self.name}: the key of {a} is gone from {n} before its deadline")

    def grant(self, a, n, number, read):
        self.ask(a)
        self.make_room(a, n)
        self.step(self.locks, "grant", a, n)
        first, tokens = (a[0], 0), self.tokens
        if tokens.state.holds(first, n) or first not in self.live:
            return
        if self.locks.state.shared(a):
            return
        if tokens.state.plain(first):
            return self.step(tokens, "grant_plain", first, n)
        counter = tokens.state.counter(n)
        if number is not None and number <= counter and self.run.forgets:
            tokens.tables["counter"][n,] = 0
        number = counter + 1 if number is None else number
        self.count("grant", first, n, number, read)

    def certify(self, a, n, number, read):
        if not self.tokens.state.holds(a, n):
            self.grant(a, n, None, False)
        if number < self.tokens.state.counter(n) and self.run.forgets:
            self.tokens.tables["counter"][n,] = 0
        self.count("certify", a, n, number, read)
        if self.tokens.state.counter(n) != number:
            raise Stray(f"{self.name}: {n} certifies {number} to {a}, below its counter")

    def count(self, action, a, n, number, read):
        """A master counts. The client may read its reply later, or never."""
        tables = self.tokens.tables
        before = self.tokens.state.told(a, n), self.tokens.state.number(a, n)
        self.step(self.tokens, action, a, n, number)
        if not read and not self.tokens.state.won(a):
            tables["told"][a, n], tables["number"][a, n] = before

    def win(self, a, masters, quorum, deadline, fence):
        self.ask(a)
        self.deadlines[a] = deadline
        if len(masters) < quorum:
            raise Stray(f"{self.name}: {a} wins with {len(masters)} masters of {quorum}")
        self.step(self.locks, "win", a, frozenset(masters))
        if not self.locks.holds():
            raise Stray(f"{self.name}: {a} wins beside another")
        if fence is not None:
            told = [n for n in masters if self.tokens.state.number(a, n) == fence]
            if len(told) < quorum:
                raise Stray(f"{self.name}: {len(told)} masters told {a} the token {fence}")
            self.step(self.tokens, "win", a, frozenset(told), fence)
            if not self.tokens.holds():
                raise Stray(f"{self.name}: token {fence} of {a} is not new, or not larger")
            if self.largest is None or self.tokens.state.token(self.largest) < fence:
                self.largest = a

    def deadline(self, a):
        if a in self.live and not self.locks.state.passed(a):
            self.step(self.locks, "deadline", a)

    def end(self, lease):
        a = (lease, 0)
        self.ask(a)
        if not self.locks.state.ended(a):
            self.step(self.locks, "end", a)

    def delete_any(self, n):
        """A delete that compares nothing."""
        for a in list(self.live):
            if self.locks.state.key(a, n):
                self.clean_up(a, n)

    def clean_up(self, a, n):
        for b in self.live:
            if b[0] == a[0] and self.locks.state.key(b, n):
                if not self.locks.state.ended(b) and not self.locks.state.passed(b):
                    raise Stray(f"{self.name}: the key of {b} is deleted on {n} while it is needed")
                self.leave(b, n)
        if (a[0], 0) in self.live and self.tokens.state.holds((a[0], 0), n):
            self.step(self.tokens, "vanish", (a[0], 0), n)


class Trace:
    """One run: the steps of each resource."""

    def __init__(self, header, records):
        scenario = header["scenario"]
        self.lock = scenario["lock"]
        count = scenario.get("cluster", {}).get("nodes", 5)
        Master.elements = range(1, count + 1)
        self.masters = {it["id"]: it.get("nodes", Master.elements) for it in scenario["client"]}
        Set.elements = list({frozenset(it) for it in self.masters.values()})
        self.process = {it["id"]: it.get("process", it["id"]) for it in scenario["client"]}
        faults = scenario.get("fault", [])
        self.paced = any("rate" in it.get("client", {}) for it in faults)
        # Faults by which masters may lose keys and counters before their time.
        self.forgets = self.paced or any("node" in it or "clock" in it for it in faults)
        self.shared, self.fenced = set(), set()
        self.events, self.commands = collections.defaultdict(list), collections.defaultdict(list)
        self.current, self.rounds, self.latest, cleaned = {}, {}, {}, {}
        self.uses = {}  # the set of masters of each token
        replies = {it["id"]: it for it in records if it["event"] == "replied"}
        requests = {}
        for place, it in enumerate(records):
            if it["event"] == "command":
                self.note(place, it, cleaned)
        for place, it in enumerate(records):
            if it["event"] == "requested":
                requests[it["id"]] = it
                if it["op"].startswith("release") and not replies.get(it["id"], {}).get("handles"):
                    for resource in it.get("resources") or [it["resource"]]:
                        self.end(place, it["ns"], it["client"], resource)
            elif it["event"] == "replied":
                self.replied(place, requests[it["id"]], it)
            elif it["event"] == "extended":
                self.extended(place, it["ns"], it["client"], it["resource"], it["deadline"])
            elif it["event"] == "lost":
                self.end(place, min(it["at"], it["ns"]), it["client"], it["resource"])
            elif it["event"] == "struck" and "kill" in faults[it["fault"] - 1].get("client", {}):
                for client, resource in list(self.current):
                    if self.process[client] in it.get("processes", []):
                        self.end(place, it["at"]["from"], client, resource)
        for (key, token), (at, place) in cleaned.items():
            if token not in self.rounds:
                self.add(key, at, place, "end", token)
        for token, all_ in self.commands.items():
            for place, it in all_:
                self.command(token, place, it)

    def note(self, place, it, cleaned):
        """Commands by their tokens; and when the first clean-up of each token was sent."""
        token = it.get("token")
        if token:
            self.commands[token].append((place, it))
            if it.get("shared"):
                self.shared.add(token)
            if it.get("fence"):
                self.fenced.add(token)
            if it["act"] == "delete":
                at = cleaned.setdefault((it["key"], token), (it["sent"], place))
                cleaned[it["key"], token] = min(at, (it["sent"], place))
        elif it["act"] == "delete" and it["result"] == "done":
            self.add(it["key"], it["replied"], place, "delete_any", it["node"])

    def add(self, resource, at, place, kind, *args):
        self.events[resource].append((at, place, kind, args))

    def validity(self, key_ttl):
        """What is left of a TTL: R1."""
        ttl = key_ttl - length(self.lock.get("lock-delay", "0s"))
        drift = -(-ttl * self.lock["drift-ppm"] // 10**6) + length(self.lock["drift"])
        return ttl - drift - length(self.lock.get("clock-guard", "0s"))

    def votes(self, act, token, at, deadline, client):
        """The masters that confirmed a round, by what the client had read."""
        return {it["node"] for _, it in self.commands[token]
                if it["act"] == act and it["result"] == "done" and it["node"] in self.masters[client]
                and it.get("delivered", NEVER) <= at and self.is_of(it, token, at, deadline)}

    def is_of(self, it, token, at, deadline):
        """Whether a command can be of the round that had this deadline, and ended then. It was not
        executed before the client's clock read t0. If that clock has a rate of its own, t0 is not
        known: then not before the last round ended."""
        begun = deadline - self.validity(it["ttl_ms"] * MS)
        if self.paced:
            begun = max((by for by, _ in self.rounds[token] if by < at), default=-NEVER)
        return begun <= it["sent"] <= at

    def win(self, place, at, client, resource, token, deadline, fence, act):
        rounds = self.rounds.setdefault(token, [])
        masters, a = self.votes(act, token, at, deadline, client), (token, len(rounds))
        rounds.append((at, deadline))
        self.latest[token] = deadline
        self.uses[token] = frozenset(self.masters[client])
        quorum = len(self.masters[client]) // 2 + 1
        self.add(resource, at, place, "win", a, masters, quorum, deadline, fence)
        self.add(resource, deadline, place, "deadline", a)
        self.current[client, resource] = token

    def replied(self, place, asked, it):
        op, client = asked["op"], asked["client"]
        at = it["ns"] if self.paced else it.get("at_ns", it["ns"])
        if op == "extend" and it["ok"] and it.get("deadline_ns"):
            self.extended(place, at, client, asked["resource"], it["deadline_ns"])
        elif op.startswith("acquire") and it["ok"]:
            resources = asked.get("resources") or [asked["resource"]]
            if op == "acquire_any":
                resources = [it["resource"]]
            for resource, each in zip(resources, it.get("each") or [{}] * len(resources)):
                got = {**it, **each}
                if asked.get("again") and it.get("handles", 1) > 1:
                    self.extended(place, at, client, resource, got["deadline_ns"])
                elif got.get("token") and got.get("deadline_ns"):
                    self.win(place, at, client, resource, got["token"],
                             got["deadline_ns"], got.get("fence"), "set")

    def extended(self, place, at, client, resource, deadline):
        token = self.current.get((client, resource))
        if token and deadline < self.latest[token]:
            # A shorter TTL binds the client at once, whether or not the round succeeds (R6).
            self.add(resource, deadline, place, "deadline", (token, len(self.rounds[token]) - 1))
        elif token and deadline > self.latest[token]:
            self.win(place, at, client, resource, token, deadline, None, "keep")
        if token:
            self.latest[token] = deadline

    def end(self, place, at, client, resource):
        token = self.current.get((client, resource))
        if token:
            self.add(resource, at, place, "end", token)

    def command(self, token, place, it):
        key, n, done = it["key"], it["node"], it["result"] == "done"
        number, by = it.get("fence"), self.rounds.get(token, [(0, 0)])[0][0]
        read = it.get("delivered", NEVER) <= by
        if it["act"] == "set" and done:
            self.add(key, it["replied"], place, "grant", (token, 0), n, number, read)
        elif it["act"] == "certify" and done:
            self.add(key, it["replied"], place, "certify", (token, 0), n, number, read)
        elif it["act"] == "delete" and done:
            self.add(key, it["replied"], place, "clean_up", (token, 0), n)
        elif it["act"] == "keep" and it["result"] in ("done", "created"):
            of = [at for at, (by, deadline) in enumerate(self.rounds.get(token, []))
                  if at and self.is_of(it, token, by, deadline)]
            for at in of or [-1] * (it["result"] == "created"):
                self.add(key, it["replied"], place, "grant", (token, at), n, None, False)

    def check(self):
        """Plays all resources."""
        for name, events in self.events.items():
            Resource(self, name).play(events)


class Traces(Tally):
    """Compares what the theories say with the recorded verdicts."""

    def __init__(self, keep):
        super().__init__(keep)
        self.leases = self.strays = 0

    def compare(self, lines, recorded, name):
        header, *records = map(json.loads, lines)
        trace, stray = Trace(header, records), None
        try:
            trace.check()
        except Stray as why:
            stray = str(why)
        self.runs += 1
        self.leases += sum(map(len, trace.rounds.values()))
        self.strays += stray is not None
        violated = [it for it in ("mutual-exclusion", "fenced-resource")
                    if recorded.get(it) == "violated"]
        if bool(stray) == bool(violated) or trace.paced and not stray:
            return []
        text = stray or f"only steps of the theories, although {violated[0]} is violated"
        self.differences.append(f"{name}: {text}")
        return [text]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="+", help="folders with a result.json; -: a stream")
    options = parse(parser)
    traces = Traces(options.keep)
    for path in options.paths:
        traces.stream(sys.stdin.buffer) if path == "-" else traces.folder(path)
    sys.stdout.writelines(f"{it}\n" for it in traces.differences)
    print(f"{traces.runs} runs with {traces.leases} leases and extensions: {traces.strays} take "
          f"steps that the theories do not have, {len(traces.differences)} against the verdict")
    return 3 if not traces.runs else 1 if traces.differences else 0


if __name__ == "__main__":
    sys.exit(main())
