"""What the history of a run says: the leases as their clients believed in them, the commands that
set and delete keys, and the faults that change what stamps and keys mean. The events are those of
crates/scenario/src/history.rs. `second_opinion.py` judges them."""
import re
from collections import defaultdict
from types import SimpleNamespace

MS, NEVER = 10**6, 10**18
UNITS = {"ns": 1, "us": 10**3, "ms": MS, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
FORGETS = {"kill", "stop", "restart", "power-loss", "failover", "flush", "evict"}
# From when on a command may be lost, and is lost, where a master forgets and no `kept` says more.
LOSES = {"none": (-NEVER, -NEVER), "aof-everysec": (-NEVER, NEVER), "aof-always": (NEVER, NEVER)}


def length(text):
    """A time of a scenario, such as `1s 500ms`, in nanoseconds."""
    return sum(int(n) * UNITS[unit] for n, unit in re.findall(r"(\d+)([a-z]+)", text or ""))


def after(other, one):
    """Whether a master certainly executed a command after another one."""
    if other["connection"] == one["connection"]:
        return other["number"] > one["number"]
    return other["sent"] > one.get("replied", NEVER)


class History:
    """One history. Times are in nanoseconds, lines are those of `history.jsonl`."""

    def __init__(self, header, records):
        scenario, self.records, self.end = header["scenario"], records, records[-1]["ns"]
        self.lock, cluster = scenario["lock"], scenario["cluster"]
        self.loses, nodes = LOSES[cluster["persistence"]], list(range(1, cluster["nodes"] + 1))
        clients = scenario["client"]
        self.process = {one["id"]: one.get("process", one["id"]) for one in clients}
        # The masters of each client: one list, or the two of a move, and all of them together.
        self.lists = {one["id"]: [one.get("nodes", nodes), *([one["moving-to"]] if
                      one.get("moving-to") else [])] for one in clients}
        self.list = {name: [*lists[0], *(node for one in lists[1:] for node in one
                                         if node not in lists[0])]
                     for name, lists in self.lists.items()}
        self.faults = [(group, *kind) for fault in scenario.get("fault", []) for group in fault
                       if isinstance(fault[group], dict) for kind in fault[group].items()]
        self.rates, self.wall, self.forgot = {}, {}, {}
        self.pauses, self.killed, self.kept = {}, {}, {}
        self.can, self.requests, self.answered, self.current = {}, {}, {}, {}
        self.leases, self.touches, self.extended, self.unpolled = [], [], set(), set()
        self.with_token, self.changes = defaultdict(list), defaultdict(list)
        for record in records:
            if record["event"] in ("clock", "kept", "struck", "healed", "broken"):
                self.fault(record["event"], record)
        for line, record in enumerate(records, 2):
            if record["event"] == "command":
                self.command(record)
            else:
                self.client_event(record["event"], record, line)

    def fault(self, event, record):
        """What changes what stamps and keys mean. A fault that failed may have hit a master."""
        if event == "clock":
            row = record["since"]["from"], record["ahead"], record["rate"]
            self.wall.setdefault(record["node"], [(-NEVER, 0, 1)]).append(row)
        elif event == "kept":
            self.kept[record["fault"], record["node"]] = tuple(record["until"].values())
        elif event == "broken":
            self.killed.setdefault(record["process"], (record["ns"], record["ns"]))
        else:
            number, at = record["fault"], record["at"]
            group, name, fields = self.faults[number - 1]
            for key in [key for key in self.pauses if event == "healed" and key[1] == number]:
                self.pauses[key][1] = at["to"]
            for node in record.get("nodes", []) if group == "node" and name in FORGETS else []:
                loses = self.kept.get((number, node), self.loses)
                loses = LOSES["none"] if name in ("flush", "evict") else loses
                self.forgot.setdefault(node, []).append((at["to"], *loses))
            hit = [process for process, rows in self.rates.items() if rows[-1][3] == number]
            for process in record.get("processes", hit) if group == "client" else []:
                if name == "kill":
                    self.killed[process] = at["from"], at["to"]
                elif name == "rate":
                    rows = self.rates.setdefault(process, [(-NEVER, 0, 1, 0)])
                    since, ahead, rate, _ = rows[-1]
                    ahead += (at["from"] - since) * (rate - 1) if rate != 1 else 0
                    factor = fields["factor"] if event == "struck" else 1
                    rows.append((at["from"], ahead, factor, number))
                elif name in ("pause", "suspend"):
                    self.pauses[process, number] = [at["from"], NEVER]

    def real(self, client, stamp):
        """The time of a stamp. The stamps of a client are by its lease clock."""
        rows = self.rates.get(self.process[client])
        if not rows or stamp is None:
            return stamp
        since, ahead, rate, _ = [row for row in rows if row[0] + row[1] <= stamp][-1]
        return stamp - int(ahead) if rate == 1 else int(since + (stamp - ahead - since) / rate)

    def command(self, one):
        if one.get("token"):
            self.with_token[one["token"]].append(one)
        elif one["act"] == "keep":
            self.with_token[one["process"], one["key"]].append(one)
        if one["result"] == "done" and one["act"] in ("set", "delete"):
            self.changes[one["key"], one["node"]].append(one)

    def client_event(self, event, record, line):
        if event == "ready":
            self.can[record["process"]] = record["can"]
        elif event == "unpolled":
            self.unpolled.add(record["id"])
        elif event == "touched":
            self.touches.append((record, line))
        elif event == "requested":
            self.requests[record["id"]] = record
            for resource in record.get("resources", [record.get("resource")]):
                lease = self.current.get((record["client"], resource))
                if lease and record["op"] in ("extend", "acquire"):
                    lease.ttl = max(lease.ttl, record["ttl_ms"] * MS)
                    lease.asked.append(record)
                if lease and record["op"].startswith("release") and not lease.releasing:
                    lease.handles -= 1
                    if lease.handles <= 0:
                        lease.released, lease.releasing = (record["ns"], NEVER), record["id"]
        elif event == "replied":
            self.answered[record["id"]] = record["ns"]
            self.replied(self.requests[record["id"]], record, line)
        elif event in ("lost", "extended"):
            lease = self.current.get((record["client"], record["resource"]))
            if lease and event == "lost":
                lease.lost = min(lease.lost, self.real(lease.client, record["at"]))
            elif lease:
                self.step(lease, record["ns"], self.real(lease.client, record["deadline"]), line)

    def step(self, lease, at, deadline, line, called=NEVER):
        """The client is told of a deadline: when, the deadline, the line, the longest TTL that it
        had asked for, since when masters may have voted for it, whether the lease was lost."""
        if not lease.steps or deadline != lease.steps[-1][1]:
            since = [one[0] for one in lease.steps if one[0] < min(at, called)] or [lease.called]
            # A notice has no stamp, and a caller that did not poll learns of an extension late.
            unpolled = self.records[line - 2].get("id") in self.unpolled
            done = 0 if called == NEVER else called if unpolled else at
            row = at, deadline, line, lease.ttl, since[-1], at > lease.lost, done
            lease.steps.append(row)

    def replied(self, asked, reply, line):
        client, op = asked["client"], asked["op"]
        called, at = (self.real(client, reply.get(name)) for name in ("from_ns", "at_ns"))
        called, at = asked["ns"] if called is None else called, reply["ns"] if at is None else at
        resources = asked.get("resources", [asked.get("resource")])
        for place, resource in enumerate([reply["resource"]] if "resource" in reply else resources):
            lease = self.current.get((client, resource))
            if op.startswith("release") and lease and lease.releasing == asked["id"]:
                lease.released = called, called
            elif op == "extend" and lease and reply.get("why") == "lost":
                lease.lost = min(lease.lost, at)
            if not reply["ok"] or not op.startswith(("extend", "acquire")):
                continue
            grant = {**reply, **(reply["each"][place] if reply.get("each") else {})}
            deadline = self.real(client, grant.get("deadline_ns"))
            if deadline is None:
                deadline = at + grant["valid_ms"] * MS if "valid_ms" in grant else NEVER
            again = lease and asked.get("again") and reply.get("handles", 1) > 1
            if again:
                lease.again.append((grant.get("fence"), at, lease.steps[-1][1], line))
                lease.handles = reply["handles"]
            elif op != "extend":
                if lease:
                    lease.replaced = reply["ns"]  # by then, its client has dropped it
                ttl = (asked["ttl_ms"] or length(self.lock["ttl"]) // MS) * MS
                lease = self.current[client, resource] = SimpleNamespace(
                    client=client, resource=resource, shared=asked.get("shared"), called=called,
                    permits=len(resources) if op == "acquire_any" else 0, ttl=ttl, start=at,
                    token=grant.get("token") or "", fence=grant.get("fence"), handles=1, line=line,
                    steps=[], again=[], asked=[], lost=NEVER, replaced=NEVER, releasing=None,
                    released=(NEVER, NEVER))
                self.leases.append(lease)
            if lease:
                self.extended.add(asked["id"])
                self.step(lease, at, deadline, line, called)

    def holds(self, lease):
        """When the client believes that it holds: from, certainly to, possibly to, line."""
        asked, called = lease.released
        if lease.releasing and called == NEVER:  # its deletes show a release without a reply
            deletes = [one["sent"] for one in self.with_token.get(self.token(lease), ())
                       if one["act"] == "delete" and one["sent"] >= asked]
            called = min(deletes, default=NEVER)
        ends = zip(self.killed.get(self.process[lease.client], (NEVER, NEVER)), (asked, called))
        low, high = (min(*end, lease.lost, lease.replaced, self.end) for end in ends)
        for one in lease.asked:  # a shorter TTL binds the client at once, whatever the reply
            rates = [row[2] for row in self.rates.get(self.process[lease.client], [])]
            if one["op"] == "extend" and one["id"] not in self.extended:
                low = min(low, one["ns"] + int(self.valid(one["ttl_ms"] * MS) / max(rates + [1])))
        for step, following in zip(lease.steps, lease.steps[1:] + [(NEVER,)]):
            until = min(step[1], following[0])
            if step[0] < min(until, high):
                yield step[0], min(until, low), min(until, high), step[2], lease

    def token(self, lease):
        """The token of a lease. If it is untold, it is that of the most grants."""
        process, token = self.process[lease.client], lease.token
        if token.endswith("…"):
            token = next((one for one in self.with_token if one[:4] + token[:-1] in one), "")
        if not token:
            sets = defaultdict(set)
            for node in set(self.list[lease.client]):
                for one in self.changes[lease.resource, node]:
                    if one["act"] == "set" and one["process"] == process \
                            and lease.called <= one["sent"] <= lease.start:
                        sets[one["token"]].add(node)
            token = max(sets, key=lambda token: len(sets[token]), default="")
        return token

    def commands(self, lease, until):
        """The SETs and extensions of a lease, until a time, and what changed its key."""
        own = [one for one in self.with_token.get(self.token(lease), ())
               if lease.called <= one["sent"]]
        # Commands without a token may have extended it, too.
        own += [one for one in self.with_token.get((self.process[lease.client], lease.resource), ())
                if lease.start <= one["sent"]]
        changes = {node: [one for one in self.changes[lease.resource, node]
                          if lease.called <= one["sent"] <= until]
                   for node in self.list[lease.client]}
        return [one for one in own if one["sent"] <= until and one["act"] in ("set", "keep")
                and one["key"] == lease.resource], changes

    def valid(self, ttl):
        """A TTL less the drift."""
        return ttl - length(self.lock["drift"]) - ttl * self.lock["drift-ppm"] // 10**6

    def lasts(self, node, at, ttl):
        """When the wall clock of a master shows `ttl` more than at a time."""
        rows = self.wall.get(node, [(-NEVER, 0, 1)])
        since, ahead, rate = [row for row in rows if row[0] <= at][-1]
        shown = at + ahead + ((at - since) * (rate - 1) if rate != 1 else 0)
        rows = [(at, shown - at, rate)] + [row for row in rows if row[0] > at]
        for since, ahead, rate in reversed(rows):
            end = since + (shown + ttl - since - ahead) / rate
            if end >= since:
                return int(end)
        return at
