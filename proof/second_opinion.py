#!/usr/bin/env python3
"""A second opinion on recorded runs: judges histories from the documents alone, and compares.

    python3 proof/second_opinion.py target/chaos             # what `redquorum-chaos run` left there
    redquorum-chaos search --histories - | python3 proof/second_opinion.py -

`play_all.py` plays all scenarios, mutants and random runs, and judges them. The program shares no
code with the checker. It judges mutual exclusion, permits, validity, and registers with fencing
tokens and without, by docs/scenarios.md, safety.md and fencing.md. For each difference it prints
both opinions, and the lines of the history on which its own rests.

Exit codes: 0 all agree, 1 something differs, 3 nothing was judged, 64 wrong usage.
"""
import argparse
import json
import os
import sys
from collections import Counter, defaultdict

from history import MS, NEVER, History, after, length

PROPERTIES = "mutual-exclusion", "unfenced-resource", "fenced-resource", "validity"


class Opinion(History):
    """The opinion on a run: for each property the verdict, and the reason."""

    def __init__(self, header, records):
        super().__init__(header, records)
        self.seen = {name: ("safe", "") for name in PROPERTIES}

    def mark(self, name, verdict, why, *lines):
        """Keeps the worst verdict on a property: a violation, or else a doubt."""
        if self.seen[name][0] not in ("violated", verdict):
            self.seen[name] = verdict, f"{why} (lines {', '.join(map(str, sorted(lines)))})"

    def judge(self):
        groups = defaultdict(list)
        for lease in self.leases:
            for hold in self.holds(lease):
                groups[lease.resource, 0].append(hold)
                if lease.permits and not lease.shared:
                    groups[lease.resource.rsplit(":permit:", 1)[0], 1].append(hold)
            self.validity(lease)
        for (resource, is_semaphore), holds in groups.items():
            most = max(hold[4].permits for hold in holds) if is_semaphore else 1
            self.overlaps(resource, sorted(holds, key=lambda hold: hold[0]), most)
        self.registers()
        self.fencing()
        self.repeated()
        return self.seen

    def overlaps(self, resource, holds, most):
        """More than `most` leases are believed at once, and not all of them are shared."""
        still = []
        for hold in holds:
            start, lease = hold[0], hold[4]
            still = [one for one in still if one[2] > start]
            for end, verdict in ((1, "violated"), (2, "inconclusive")):
                beside = {id(one[4]): one for one in still
                          if min(one[end], hold[end]) > start and one[4] is not lease
                          and not (one[4].shared and lease.shared)}.values()
                if len(beside) >= most:
                    who = ", ".join(sorted(one[4].client for one in [*beside, hold]))
                    self.mark("mutual-exclusion", verdict, f"{who} hold {resource} at {start} ns",
                              *(one[3] for one in [*beside, hold]))
            still.append(hold)

    def registers(self):
        """A write loses the updates of other clients since the version that it is based on."""
        writers = defaultdict(list)
        for one, line in self.touches:
            if one["way"] == "write" and not one.get("refused"):
                written = writers[one["register"]]
                if any(client != one["client"] for client in written[one["seen"]:]):
                    name = "unfenced-resource" if one.get("fence") is None else "fenced-resource"
                    self.mark(name, "violated", f"{one['client']} writes {one['register']} over "
                              f"version {len(written)}, and knows {one['seen']}", line)
                written.append(one["client"])

    def fencing(self):
        """Tokens are unique and grow, and each handle of a lease has the same one."""
        fenced = [lease for lease in self.leases if lease.fence is not None]
        if not fenced and not any(one.get("fence") is not None for one, _ in self.touches):
            self.seen["fenced-resource"] = "not-used", "no fencing token occurs"
        for lease in self.leases:
            sets = [one["sent"] for one in self.commands(lease, lease.start)[0]] if fenced else []
            begun = max(lease.called, min(sets, default=0))  # the attempt that was granted
            wrong = [("has another handle with", fence, line) for fence, _, _, line in lease.again
                     if fence != lease.fence]
            wrong += [("is not larger than", one.fence, one.line) for one in fenced
                      if lease.fence is not None and one.resource == lease.resource
                      and (one.start < begun and one.fence >= lease.fence
                           or one.fence == lease.fence and one is not lease)]
            for how, other, line in wrong:
                self.mark("fenced-resource", "violated", f"token {lease.fence} {how} {other}",
                          line, lease.line)

    def validity(self, lease):
        """The numbers are those of docs/scenarios.md#valid-leases."""
        client, process = lease.client, self.process[lease.client]
        holds, paced = list(self.holds(lease)), process in self.rates
        over = max([lease.start, *(one[2] for one in holds)])
        commands, changes = self.commands(lease, max(over, lease.steps[-1][0]) + MS)
        known, lists = set(changes), [set(one) for one in self.lists[client]]
        needed = [len(one) // 2 + 1 for one in self.lists[client]]

        def in_each(nodes):
            """How a client counts: for each of its lists, whether a majority is among these."""
            return [len(one & nodes) >= least for one, least in zip(lists, needed)]

        def bad(why, *lines):
            self.mark("validity", "violated", f"{client}, {lease.resource}: {why}", *lines)

        for _, at, deadline, line in lease.again:
            if at >= deadline or at > lease.lost:
                bad("1, it is over when the client enters it again", line)
        before = NEVER
        for place, (at, deadline, line, ttl, since, lost, done) in enumerate(lease.steps):
            if at >= deadline or done >= before or lost:
                bad("1, it is over when the client returns or extends it", line)
            # The stamps of proxies and clients may differ by a millisecond.
            votes = {one["node"] for one in commands if one["result"] == "done"
                     and one["act"] == ("keep" if place else "set") and since <= one["sent"] + paced
                     and one.get("delivered", NEVER) <= at + MS and one["sent"] <= over} & known
            if not all(in_each(votes)) and (not place or deadline > before):
                bad(f"2, {len(votes)} masters had granted or confirmed it, of {needed}", line)
            for denial in commands if place and deadline > before else []:
                if denial["act"] != "keep" or denial["result"] not in ("refused", "created"):
                    continue
                lack = {node for node in known if self.lacks(commands, node, denial, at)}
                if any(in_each(lack)) and denial.get("delivered", NEVER) <= at:
                    bad(f"3, masters {lack} had lacked the key at {denial['replied']} ns", line)
            if deadline - at > ttl + MS and not paced and deadline < NEVER:
                bad("7, it is promised for longer than its TTL", line)
            before = deadline
        self.backed(lease, holds, commands, changes, in_each, bad)
        limit = before + 250 * MS
        for start, stop in sorted(span for (who, _), span in self.pauses.items() if who == process):
            limit = max(limit, stop + 250 * MS) if start <= limit and stop >= before else limit
        for one in lease.asked:  # may have moved the deadline, and its caller does not look
            if one["ns"] <= before < self.answered.get(one["id"], NEVER):
                limit = max(limit, one["ns"] + (one["ttl_ms"] + 250) * MS)
        dropped = lease.replaced if lease.replaced < before else NEVER
        told = lease.released[0], lease.lost, dropped, self.killed.get(process, (NEVER,))[0]
        if "lost" in self.can.get(process, ()) and min(*told, self.end) > limit:
            bad("5, the client is not told that it ended", lease.steps[-1][2])

    def lacks(self, commands, node, denial, at):
        """3: whether replies that came by `at` show that a master lacked the key at a denial."""
        now = denial["replied"]
        told = [one for one in commands if one["node"] == node and one["result"] != "error"
                and one.get("delivered", NEVER) <= at]
        before = [one for one in told if one["sent"] <= now]
        if node == denial["node"] or not before or before[-1]["result"] == "refused":
            return True
        end = self.lasts(node, before[-1]["replied"], before[-1]["ttl_ms"] * MS)
        return end < now and not any(one["result"] == "done" and one["sent"] > now for one in told)

    def backed(self, lease, holds, commands, changes, in_each, bad):
        """4: a quorum has the key while the client believes, or a fault explains why not. Masters
        count whole milliseconds, and a shorter gap is none."""
        had, gap = [], NEVER
        paces = [row[2] for row in self.rates.get(self.process[lease.client], [])]
        delay = length(self.lock.get("lock-delay"))
        for one in commands:
            if one["result"] in ("refused", "error"):
                continue
            ttl, node, end, deleted = one["ttl_ms"] * MS, one["node"], NEVER, False
            if one["result"] != "silent":
                end = self.lasts(node, one["replied"], ttl + MS)
            for other in changes.get(node, ()):
                if other["sent"] >= one["sent"] and other["replied"] < end and after(other, one):
                    if other["act"] == "delete" and other.get("token") in (None, one["token"]):
                        end, deleted = other["replied"], True
                    elif other["act"] == "set" and other["token"] != one["token"] and not (
                            other.get("shared") and one.get("shared")):
                        end, deleted = other["replied"], False
            for at, _, loses in self.forgot.get(node, ()):
                if one["sent"] >= loses and one.get("replied", NEVER) <= at < end:
                    end, deleted = at, False
            # Until when a client believes that deducts the drift.
            honest = one["sent"] + self.valid(ttl - delay) / min(paces, default=1) + MS
            had.append((one["sent"], end, node, honest, deleted))
        for at in sorted({time for row in had for time in (row[1], row[3])} | {lease.start}):
            first = at == lease.start
            hold = [one for one in holds if one[0] <= at < one[1] - (0 if first else MS)]
            soon = min(at + MS, holds[0][1]) if first and holds else at + MS
            there, later = ({row[2] for row in had if row[0] <= now < row[1]} & changes.keys()
                            for now in (at, soon))
            if not hold or all(in_each(there)) or all(in_each(later)):
                gap = NEVER
                continue
            lost = [row for row in had if row[1] <= at and row[2] not in there]
            for start, end, node, honest, deleted in lost:
                forgot = any(may <= start <= to for to, may, _ in self.forgot.get(node, ()))
                if forgot or at < honest and (not deleted or end > gap):
                    there.add(node)
            backed = all(in_each(there & changes.keys()))
            if not backed or gap == NEVER and any(row[4] for row in lost):
                bad(f"4, too few masters have its key at {at} ns", hold[0][3])
            gap = min(gap, at)

    def repeated(self):
        """6: two attempts set the same token. A copy that the network made has the same number."""
        for token, commands in self.with_token.items():
            sets = defaultdict(set)
            for one in commands:
                if one["act"] == "set" and one["result"] != "error":
                    sets[one["node"]].add((one["connection"], one["number"]))
            for node, found in sets.items():
                own = (id for id, name in self.process.items() if name == commands[0]["process"])
                if len(found) > self.list[next(own)].count(node):
                    self.mark("validity", "violated", f"6, {token} is set twice on master {node}")


class Tally:
    """How many runs were judged, how often each verdict came, and the differences."""

    def __init__(self, keep):
        self.keep, self.runs, self.verdicts, self.differences = keep, 0, Counter(), []

    def add(self, other):
        """Adds the runs of another one."""
        self.runs += other.runs
        self.verdicts += other.verdicts
        self.differences += other.differences

    def compare(self, lines, recorded, name):
        """Judges a history, and compares the opinion with the recorded verdict."""
        header, *records = json.loads(b"[" + b",".join(lines) + b"]")
        self.runs += 1
        opinion = Opinion(header, records).judge()
        self.verdicts.update((prop, verdict) for prop, (verdict, _) in opinion.items())
        differs = [f"  {prop}: {verdict} here, {recorded.get(prop)} there; {why}"
                   for prop, (verdict, why) in opinion.items() if verdict != recorded.get(prop)]
        self.differences += ["\n".join([name, *differs])] if differs else []
        return differs

    def folder(self, path):
        """What `run` left in a folder, and in folders in it."""
        for where, _, files in os.walk(path):
            results = []
            if "result.json" in files:
                with open(os.path.join(where, "result.json"), "rb") as file:
                    results = json.load(file)["scenarios"]
            for result in results:
                if result["history"] and result["observed"]:
                    name = os.path.join(where, result["history"])
                    with open(name, "rb") as file:
                        self.compare(file.read().splitlines(), result["observed"], name)

    def stream(self, lines):
        """Histories one after the other, each followed by its verdict."""
        history = []
        for line in lines:
            if not line.startswith(b'{"verdict"'):
                history.append(line)
                continue
            head = json.loads(history[0])
            name = [head["scenario"]["name"].replace("/", "."), head["backend"], str(head["seed"])]
            name += (head.get("client") or "").split()[2:]
            name = os.path.join(self.keep, "-".join(name) + ".jsonl")
            if self.compare(history, json.loads(line)["verdict"], name):
                os.makedirs(self.keep, exist_ok=True)
                with open(name, "wb") as file:
                    file.writelines(history)
            history = []


def report(tallies):
    """Prints differences and numbers, and returns the exit code."""
    for kind, tally in tallies.items():
        sys.stdout.writelines(text + "\n" for text in tally.differences)
        bad = [f", {prop} violated in {count}" for (prop, verdict), count
               in sorted(tally.verdicts.items()) if verdict == "violated"]
        print(f"{kind}: {tally.runs} runs, {len(tally.differences)} differ{''.join(bad)}")
    if not any(tally.runs for tally in tallies.values()):
        return 3
    return 1 if any(tally.differences for tally in tallies.values()) else 0


def parse(parser):
    """The options; wrong ones end the program with 64."""
    parser.add_argument("--keep", default="target/second-opinion", metavar="DIR",
                        help="where to keep the histories of a stream that differ")
    try:
        return parser.parse_args()
    except SystemExit as end:
        sys.exit(64 if end.code else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="+", help="folders with a result.json; -: a stream")
    options, tallies = parse(parser), {}
    for path in options.paths:
        tally = tallies[path] = Tally(options.keep)
        tally.stream(sys.stdin.buffer) if path == "-" else tally.folder(path)
    sys.exit(report(tallies))


if __name__ == "__main__":
    main()
