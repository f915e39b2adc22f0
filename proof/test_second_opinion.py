"""The second opinion can disagree: a wrong verdict on a hand-made history is reported, and so is a
history that was changed behind the back of its verdict."""
import json
import unittest

from second_opinion import PROPERTIES, Opinion, Tally

SAFE = dict.fromkeys(PROPERTIES, "safe")
UNFENCED = {**SAFE, "fenced-resource": "not-used"}
LIST = [1, 2, 3]


def header(**of_lock):
    lock = {"ttl": "1s", "drift-ppm": 10000, "drift": "2ms", **of_lock}
    clients = [{"id": "c1", "script": []}, {"id": "c2", "script": []}]
    scenario = {"name": "x", "cluster": {"nodes": 3, "persistence": "none"}, "lock": lock}
    return {"schema": 4, "scenario": {**scenario, "client": clients}, "seed": 1, "backend": "sim"}


def grant(id, client, ms, until_ms, masters=LIST, **reply):
    """A request for L at a time in milliseconds, and its grant a millisecond later."""
    at, token = ms * 10**6, f"t{id}"
    yield {"ns": at, "event": "requested", "id": id, "client": client, "op": "acquire",
           "resource": "L", "ttl_ms": 1000, "wait_ms": 0}
    for node in masters:
        yield {"ns": at + 5 * 10**5, "event": "command", "process": client, "node": node,
               "connection": id, "number": node, "act": "set", "key": "L", "token": token,
               "ttl_ms": 1000, "sent": at, "replied": at + 10**5, "delivered": at + 5 * 10**5,
               "result": "done"}
    yield {"ns": at + 10**6, "event": "replied", "client": client, "id": id, "ok": True,
           "token": token, "from_ns": at, "at_ns": at + 10**6, "deadline_ns": until_ms * 10**6,
           **reply}


def release(id, client, ms):
    at = ms * 10**6
    yield {"ns": at, "event": "requested", "id": id, "client": client, "op": "release",
           "resource": "L"}
    yield {"ns": at + 1, "event": "replied", "client": client, "id": id, "ok": True, "from_ns": at,
           "at_ns": at + 1}


def touch(client, ms, way, seen, version, **fence):
    return {"ns": ms * 10**6, "event": "touched", "client": client, "register": "R", "way": way,
            "seen": seen, "version": version, **fence}


def ready(client, *can):
    return {"ns": 0, "event": "ready", "process": client, "can": list(can)}


END = {"ns": 9 * 10**9, "event": "phase", "phase": "end"}
# c2 is granted L on a master that c1 shares, while c1 holds: no fault explains that.
RIVALS = [*grant(1, "c1", 0, 900, [1, 2]), *grant(2, "c2", 100, 900, [2, 3])]
CLEAN = [*grant(1, "c1", 0, 900), *release(2, "c1", 50), *grant(3, "c2", 100, 900),
         *release(4, "c2", 150)]


class SecondOpinion(unittest.TestCase):
    def verdicts(self, *records, **of_lock):
        opinion = Opinion(header(**of_lock), [*records, END]).judge()
        return {name: verdict for name, (verdict, _) in opinion.items()}

    def differs(self, of, *records):
        return {name for name, verdict in self.verdicts(*records).items() if verdict != of[name]}

    def test_a_wrong_verdict_is_reported_with_its_lines(self):
        lines = [json.dumps(line).encode() for line in [header(), *RIVALS, END]]
        tally = Tally("nowhere")
        self.assertTrue(tally.compare(lines, UNFENCED, "a.jsonl"))
        text = tally.differences[0]
        self.assertIn("mutual-exclusion: violated here, safe there; c1, c2 hold L", text)
        self.assertIn("(lines 5, 9)", text)

    def test_the_right_verdict_agrees(self):
        lines = [json.dumps(line).encode() for line in [header(), *CLEAN, END]]
        tally = Tally("nowhere")
        self.assertEqual(tally.compare(lines, UNFENCED, "a.jsonl"), [])
        self.assertEqual((tally.runs, tally.differences), (1, []))

    def test_a_violation_that_is_not_there_is_reported_too(self):
        wrong = {**UNFENCED, "mutual-exclusion": "violated"}
        self.assertEqual(self.differs(wrong, *CLEAN), {"mutual-exclusion"})

    def test_each_property_can_be_violated(self):
        one = list(grant(1, "c1", 0, 900))
        lost = [touch("c1", 2, "read", 0, 0), touch("c2", 3, "write", 0, 1),
                touch("c1", 4, "write", 0, 2)]
        self.assertEqual(self.differs(UNFENCED, *CLEAN, *lost), {"unfenced-resource"})
        again = [touch("c1", 4, "write", 0, 1), touch("c1", 5, "write", 0, 2)]
        self.assertEqual(self.differs(UNFENCED, *CLEAN, *again), set())
        fenced = [dict(record, fence=7) for record in lost]
        self.assertEqual(self.differs(SAFE, *CLEAN, *fenced), {"fenced-resource"})
        shrinks = [*grant(1, "c1", 0, 900, fence=7), *release(2, "c1", 50),
                   *grant(3, "c2", 100, 900, fence=6), *release(4, "c2", 150)]
        self.assertEqual(self.differs(SAFE, *shrinks), {"fenced-resource"})
        bad = {
            "late": grant(1, "c1", 0, 1),
            "two of three are a quorum": grant(1, "c1", 0, 900, [1, 2]),
            "no quorum": grant(1, "c1", 0, 900, [1]),
            "too long": grant(1, "c1", 0, 1003),
            "never told": [ready("c1", "lost"), *one],
        }
        for name, records in bad.items():
            good = name == "two of three are a quorum"
            records = [*records, *release(9, "c1", 5)] if "told" not in name else records
            want = set() if good else {"validity"}
            self.assertEqual(self.differs(UNFENCED, *records), want, name)

    def test_a_gap_needs_a_fault(self):
        gone = {"ns": 10**7, "event": "command", "process": "c2", "node": 1, "connection": 9,
                "act": "delete", "key": "L", "token": None, "sent": 10**7, "replied": 10**7,
                "delivered": 10**7, "result": "done"}
        deleted = [*grant(1, "c1", 0, 900), *[dict(gone, node=node, number=node) for node in LIST]]
        self.assertEqual(self.differs(UNFENCED, *deleted), {"validity"})

    def test_doubt_is_neither(self):
        asked = {"ns": 10**8, "event": "requested", "id": 2, "client": "c1", "op": "release",
                 "resource": "L"}
        # c1 may have begun its release at any time after it was asked to.
        records = [*grant(1, "c1", 0, 900), asked, *grant(3, "c2", 200, 900)]
        self.assertEqual(self.verdicts(*records)["mutual-exclusion"], "inconclusive")


if __name__ == "__main__":
    unittest.main()
