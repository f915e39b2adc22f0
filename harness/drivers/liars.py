"""A Redlock on plain sockets, and a collection of mistakes: each must be found by the checks.

    liars.py              the lock without a mistake
    liars.py NAME         the lock with this mistake
    liars.py --list       the mistakes, and what finds each

`test_liars.py` runs all of them on real masters.
"""

import asyncio
import collections
import fcntl
import os
import random
import secrets
import sys
import tempfile
import threading
import time
from urllib.parse import urlsplit

import driver
from driver import NODES, OPTIONS, Lease, Library, Refused, now_ns, serve

CHECK = "client-check"  # the command, in place of a scenario
FRACTION, CLOCK_BACK, REUSED = "ttl-of-a-fraction", "clock-back-in-acquire", "token-reused"

# The name of a mistake, what it does wrong, the scenario that shows it, and the property or other
# expectation that differs. With `client-check`, that is the name of the check.
MISTAKES = [
    ("asks-none", "grants without a command to any master", "calm", "validity"),
    ("asks-none-secretly", "likewise, and names no token", "calm", "validity"),
    ("asks-one", "asks one master only", "calm", "validity"),
    ("asks-one-secretly", "likewise, and names no token", "calm", "validity"),
    ("asks-three", "asks three of five masters only", "one-master-hung", "progress"),
    ("asks-later", "asks the masters after it has granted", "calm", "validity"),
    ("asks-a-file", "locks a file on its machine instead of masters", "calm", "validity"),
    ("only-reads", "grants if no master has the key, and sets none", "calm", "validity"),
    ("other-token", "names another token than the one that it sets", CHECK, "token"),
    ("one-token", "uses one token for all attempts", "calm", "validity"),
    ("retries-with-its-token", "has one token, and a connection for each command", REUSED,
     "mutual-exclusion"),
    ("ignores-refusals", "takes refusals for grants, and names no token", "calm",
     "mutual-exclusion"),
    ("errors-are-grants", "takes errors for grants", "masters-full", "validity"),
    ("silence-is-a-grant", "takes a master that does not reply for a grant", "reply-lost",
     "validity"),
    ("minority", "grants with two of five masters", "masters-full", "validity"),
    ("waits-for-all", "grants only when all masters have granted", "one-master-hung", "progress"),
    ("refuses", "refuses every request", "one-master-hung", "progress"),
    ("never-reconnects", "does not open a connection again", CHECK, "recovery"),
    ("endless-deadline", "promises 584 million years", "calm", "validity"),
    ("double-deadline", "promises twice the TTL", "calm", "validity"),
    ("deadline-from-grant", "counts the TTL from its grant", "slow-replies", "validity"),
    ("extends-from-reply", "counts the TTL of an extension from its replies",
     "slow-replies/extended", "validity"),
    ("no-drift", "leaves out the drift", "clock-within-drift/by-a-hair", "validity"),
    ("wall-clock", "compares the deadline with the wall clock", "client-wall-clock",
     "unfenced-resource"),
    ("wall-clock-attempt", "measures its attempt by the wall clock", CLOCK_BACK, "validity"),
    ("grants-late", "waits for replies, and grants whenever they come", "pause-in-flight",
     "validity"),
    ("whole-seconds", "cuts the TTL on the masters to whole seconds", FRACTION, "validity"),
    ("no-ttl", "sets keys that never expire", CHECK, "keys"),
    ("tenfold-ttl", "sets keys for ten times the TTL", CHECK, "keys"),
    ("releases-nothing", "answers a release that it never sends", CHECK, "release"),
    ("releases-once", "does not send a release again that was lost", "release-repeated",
     "progress"),
    ("releases-acknowledged", "cleans up only masters that replied with a grant", "reply-lost",
     "progress"),
    ("no-clean-up", "keeps the keys of an attempt that failed", "reply-lost", "progress"),
    ("plain-del", "releases and cleans up with a plain DEL", "pause-then-check", "hygiene"),
    ("plain-pexpire", "extends without a look at the token", "extend-after-amnesia", "hygiene"),
    ("extends-minority", "extends with two of five masters", "extend-needs-a-quorum", "validity"),
    ("extends-unasked", "extends without a command to any master", "extend-needs-a-quorum",
     "validity"),
    ("revives", "extends a lease that is over, and sets its keys anew", "extend-too-late",
     "validity"),
    ("always-held", "says that it holds a lease that is over", "client-wall-clock",
     "unfenced-resource"),
    ("silent-loss", "does not report a loss", "client-wall-clock", "validity"),
    ("late-loss", "reports a loss half a second late", "client-wall-clock", "validity"),
    ("shares", "grants to every client of a process what one of them holds", CHECK, "taken"),
    ("grants-when-down", "grants if a majority is down", CHECK, "no quorum"),
]

TIMEOUT = 2 * OPTIONS.get("node_timeout_ms", 50) / 1000  # for two trips to a slow master
COMPARED = 'if redis.call("get", KEYS[1]) == ARGV[1] then return {} end return 0'
DELETE = COMPARED.format('redis.call("del", KEYS[1])')
EXTEND = COMPARED.format('redis.call("pexpire", KEYS[1], ARGV[2])')
REVIVE = ('if redis.call("get", KEYS[1]) == ARGV[1] then '
          'return redis.call("pexpire", KEYS[1], ARGV[2]) end '
          'if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return 2 end return 0')
LOOP = asyncio.new_event_loop()


class ServerError(Exception):
    """A reply of a master that is an error."""


class Master:
    """A connection to a master, opened when it is needed. Commands are executed in their order."""

    def __init__(self, url):
        parts = urlsplit(url)
        self.address = parts.hostname, parts.port
        self.opening, self.writer, self.waiting = asyncio.Lock(), None, collections.deque()

    async def ask(self, *words):
        """Sends a command, and waits for its reply however long it takes."""
        async with self.opening:
            if self.writer is None:
                await self.open()
            words = [str(word).encode() for word in words]
            parts = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
            self.writer.write(b"*%d\r\n%s" % (len(words), parts))
            reply = LOOP.create_future()
            self.waiting.append(reply)
        return await reply

    async def open(self):
        reader, self.writer = await asyncio.open_connection(*self.address)
        self.reading = LOOP.create_task(self.read(reader))

    async def read(self, reader):
        try:
            while True:
                line = (await reader.readuntil(b"\r\n"))[:-2].decode()
                kind, reply = line[0], line[1:]
                if kind == "$":
                    size = int(reply)
                    reply = None if size < 0 else (await reader.readexactly(size + 2))[:-2].decode()
                elif kind == ":":
                    reply = int(reply)
                waiting = self.waiting.popleft()
                if waiting.cancelled():
                    continue
                if kind == "-":
                    waiting.set_exception(ServerError(reply))
                else:
                    waiting.set_result(reply)
        except (OSError, EOFError) as error:
            self.writer.close()
            self.writer, waiting = None, list(self.waiting)
            self.waiting.clear()
            for reply in waiting:
                if not reply.cancelled():
                    reply.set_exception(ConnectionError(repr(error)))


class Redlock(Library):
    """The lock without a mistake. Each mistake overrides a method."""

    name = "Redlock"
    can = ["deadline", "extend", "fresh_tokens", "keep_alive", "lost", "several", "wait"]

    def __init__(self):
        self.masters = [self.master(url) for url in NODES]
        self.quorum = len(self.masters) // 2 + 1
        self.run(self.connect())

    async def connect(self):
        """Opens the connections before the first request, where that takes no longer than that."""
        pings = [LOOP.create_task(master.ask("PING")) for master in self.masters]
        await asyncio.wait(pings, timeout=1)
        for ping in pings:
            ping.add_done_callback(lambda reply: reply.exception())

    def master(self, url):
        return Master(url)

    # What a client does.

    def acquire(self, resource, ttl):
        return self.acquire_all([resource], ttl)[0]

    def acquire_all(self, resources, ttl):
        end = LOOP.time() + driver.wait_ms() / 1000
        while True:
            leases = []
            try:
                for resource in resources:
                    leases.append(self.run(self.attempt(resource, ttl)))
                    leases[-1].ttl = ttl
                if len(leases) > 1 and leases[0].is_over():
                    raise Refused("late")
                return leases
            except Refused:
                self.release_all(leases)
                pause = random.uniform(0.005, 0.05)
                if LOOP.time() + pause >= end:
                    raise
            time.sleep(pause)

    def extend(self, lease, ttl):
        return self.run(self.extension(lease, ttl))

    def keep_alive(self, lease, most):
        lease.kept_until = LOOP.time() + most / 1000
        LOOP.call_soon_threadsafe(lambda: LOOP.create_task(self.keep(lease)))

    async def keep(self, lease):
        """Extends a lease at each third of its TTL, until it is released, lost, or kept enough."""
        while True:
            await asyncio.sleep(lease.ttl / 3000)
            left = int((lease.kept_until - LOOP.time()) * 1000)
            if left <= 0 or lease.is_over():
                return
            try:
                driver.extended(await self.extension(lease, min(left, lease.ttl)))
            except Refused:
                pass  # The next round may succeed, or the lease ends.

    def release(self, lease):
        lease.kept_until = 0
        self.run(self.removal(*lease.lock))

    def is_held(self, lease):
        return not lease.is_over()

    def run(self, task):
        return asyncio.run_coroutine_threadsafe(task, LOOP).result()

    async def attempt(self, resource, ttl):
        start, token = now_ns(), self.token()
        why = await self.vote(self.set_command(resource, token, ttl))
        deadline = self.deadline(start, ttl)
        if why is None and self.is_late(deadline):
            why = "late"
        if why is not None:
            await self.clean_up(resource, token)
            raise Refused(why)
        return self.grant(resource, token, deadline)

    def grant(self, resource, token, deadline):
        lease = Lease((resource, token), token=self.named(token), deadline_ns=deadline)
        self.watch(lease)
        return lease

    async def extension(self, lease, ttl):
        start = now_ns()
        why = "lost" if lease.is_over() else await self.vote(
            self.extend_command(*lease.lock, ttl), self.extension_quorum())
        if why is None and lease.is_over():
            why = "lost"
        if why is not None:
            raise Refused("lost" if why == "taken" else why)
        lease.deadline_ns = max(lease.deadline_ns, self.extended(start, ttl))
        lease.at_ns = now_ns()
        return lease

    async def removal(self, resource, token):
        """Deletes a key everywhere: waits for a quorum, and goes on until all have replied."""
        removals = [LOOP.create_task(self.remove(master, resource, token))
                    for master in self.masters]
        end = LOOP.time() + TIMEOUT
        while sum(removal.done() for removal in removals) < self.quorum:
            left = end - LOOP.time()
            pending = [removal for removal in removals if not removal.done()]
            if left <= 0:
                break
            await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def remove(self, master, resource, token):
        while True:
            try:
                return await master.ask(*self.delete_command(resource, token))
            except (OSError, ServerError):
                await asyncio.sleep(TIMEOUT)

    async def vote(self, command, quorum=None):
        """Asks all masters. Returns `None` as soon as a quorum has granted, or else the reason."""
        quorum, masters = quorum or self.needed(), self.voters()
        pending = {LOOP.create_task(master.ask(*command)) for master in masters}
        end, yes, no = LOOP.time() + self.patience(), 0, 0
        while pending and yes < quorum and no <= len(masters) - quorum:
            left = max(0, end - LOOP.time())
            done, pending = await asyncio.wait(
                pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            votes = [self.is_grant(reply) for reply in done]
            yes, no = yes + votes.count(True), no + votes.count(False)
        for late in pending:
            late.add_done_callback(lambda reply: reply.exception())
        yes += self.votes_of_silence(len(pending))
        if yes >= quorum:
            return None
        return "taken" if no > len(masters) - quorum else "no-quorum"

    def watch(self, lease):
        """Reports the loss of a lease at its deadline."""
        left = (lease.deadline_ns - now_ns()) / 1e9
        if left > 0:
            LOOP.call_later(left, self.watch, lease)
        else:
            self.report(lease)

    # What a mistake overrides.

    def token(self):
        return secrets.token_hex(10)

    def named(self, token):
        """The token that the driver names to the harness."""
        return token

    def voters(self):
        return self.masters

    def needed(self):
        return self.quorum

    def extension_quorum(self):
        return self.quorum

    def is_grant(self, reply):
        """Whether a reply is a grant (`True`), a refusal (`False`), or neither (`None`)."""
        if reply.exception():
            return None
        return reply.result() in ("OK", 1, 2)

    def patience(self):
        """How many seconds an attempt waits for replies."""
        return TIMEOUT

    def votes_of_silence(self, _masters):
        return 0

    def set_command(self, resource, token, ttl):
        return "SET", resource, token, "NX", "PX", ttl

    def extend_command(self, resource, token, ttl):
        return "EVAL", EXTEND, 1, resource, token, ttl

    def delete_command(self, resource, token):
        return "EVAL", DELETE, 1, resource, token

    async def clean_up(self, resource, token):
        await self.removal(resource, token)

    def deadline(self, start, ttl):
        return driver.deadline(start, ttl, OPTIONS["drift_ppm"] / 1e6, OPTIONS["drift_ms"])

    def extended(self, start, ttl):
        return self.deadline(start, ttl)

    def is_late(self, deadline):
        return now_ns() >= deadline

    def report(self, lease):
        driver.lost(lease)


class AsksNone(Redlock):
    async def vote(self, *_):
        return None


class AsksNoneSecretly(AsksNone):
    def named(self, _token):
        return None


class AsksOne(Redlock):
    async def attempt(self, resource, ttl):
        start, token = now_ns(), self.token()
        if await self.masters[0].ask(*self.set_command(resource, token, ttl)) != "OK":
            raise Refused("taken")
        return self.grant(resource, token, self.deadline(start, ttl))


class AsksOneSecretly(AsksOne):
    def named(self, _token):
        return None


class AsksThree(Redlock):
    def voters(self):
        return self.masters[:3]


class AsksLater(Redlock):
    async def attempt(self, resource, ttl):
        token = self.token()
        LOOP.call_later(0.005, lambda: LOOP.create_task(
            self.vote(self.set_command(resource, token, ttl))))
        return self.grant(resource, token, self.deadline(now_ns(), ttl))


class AsksAFile(Redlock):
    files = {}

    async def attempt(self, resource, ttl):
        file = open(os.path.join(tempfile.gettempdir(), f"lock-of-{resource}"), "w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("taken") from None
        lease = self.grant(resource, None, self.deadline(now_ns(), ttl))
        self.files[lease] = file
        return lease

    def release(self, lease):
        self.files.pop(lease).close()


class OnlyReads(Redlock):
    async def attempt(self, resource, ttl):
        start = now_ns()
        for master in self.masters:
            if await master.ask("GET", resource) is not None:
                raise Refused("taken")
        return self.grant(resource, None, self.deadline(start, ttl))


class OtherToken(Redlock):
    def named(self, token):
        return token[::-1]


class OneToken(Redlock):
    def token(self):
        return "one-token-for-all"


class RetriesWithItsToken(Redlock):
    can = [can for can in Redlock.can if can != "fresh_tokens"]
    own = secrets.token_hex(10)

    class Reconnecting(Master):
        def __init__(self, url):
            self.url = url

        async def ask(self, *words):
            once = Master(self.url)
            try:
                return await once.ask(*words)
            finally:
                if once.writer is not None:
                    once.writer.close()

    def master(self, url):
        return self.Reconnecting(url)

    def token(self):
        return self.own


class IgnoresRefusals(Redlock):
    def named(self, _token):
        return None

    def is_grant(self, _reply):
        return True


class ErrorsAreGrants(Redlock):
    def is_grant(self, reply):
        return bool(reply.exception()) or super().is_grant(reply)


class SilenceIsAGrant(Redlock):
    def votes_of_silence(self, masters):
        return masters


class Minority(Redlock):
    def needed(self):
        return self.quorum - 1


class WaitsForAll(Redlock):
    def needed(self):
        return len(self.masters)


class Refuses(Redlock):
    async def attempt(self, resource, ttl):
        raise Refused("taken")


class NeverReconnects(Redlock):
    class OneConnection(Master):
        async def open(self):
            self.open = self.fail
            await super().open()

        async def fail(self):
            raise ConnectionError("the connection is gone")

    def master(self, url):
        return self.OneConnection(url)


class EndlessDeadline(Redlock):
    can = ["extend", "wait"]

    def grant(self, resource, token, deadline):
        return Lease((resource, token), token=token, valid_ms=2**64 - 1)


class DoubleDeadline(Redlock):
    def deadline(self, start, ttl):
        return start + 2 * ttl * 1_000_000


class DeadlineFromGrant(Redlock):
    def deadline(self, _start, ttl):
        return super().deadline(now_ns(), ttl)


class ExtendsFromReply(Redlock):
    def extended(self, _start, ttl):
        return self.deadline(now_ns(), ttl)


class NoDrift(Redlock):
    def deadline(self, start, ttl):
        return start + ttl * 1_000_000


class WallClock(Redlock):
    def grant(self, resource, token, deadline):
        lease = super().grant(resource, token, deadline)
        lease.wall_end = time.time_ns() + deadline - now_ns()
        return lease

    def is_held(self, lease):
        return time.time_ns() < lease.wall_end


class WallClockAttempt(Redlock):
    async def attempt(self, resource, ttl):
        start = time.time_ns()
        lease = await super().attempt(resource, ttl)
        lease.deadline_ns = now_ns() + int(ttl * 990_000) - (time.time_ns() - start)
        return lease


class GrantsLate(Redlock):
    def patience(self):
        return 10

    def is_late(self, _deadline):
        return False


class WholeSeconds(Redlock):
    def set_command(self, resource, token, ttl):
        return "SET", resource, token, "NX", "EX", ttl // 1000


class NoTtl(Redlock):
    def set_command(self, resource, token, _ttl):
        return "SET", resource, token, "NX"


class TenfoldTtl(Redlock):
    def set_command(self, resource, token, ttl):
        return "SET", resource, token, "NX", "PX", 10 * ttl


class ReleasesNothing(Redlock):
    def release(self, _lease):
        pass


class ReleasesOnce(Redlock):
    async def remove(self, master, resource, token):
        try:
            await asyncio.wait_for(master.ask(*self.delete_command(resource, token)), TIMEOUT)
        except (OSError, ServerError, asyncio.TimeoutError):
            pass


class ReleasesAcknowledged(Redlock):
    async def vote(self, command, quorum=None):
        self.granted = set()
        masters = self.voters()
        for master, reply in [(m, LOOP.create_task(m.ask(*command))) for m in masters]:
            try:
                if await asyncio.wait_for(reply, TIMEOUT) in ("OK", 1):
                    self.granted.add(master)
            except (OSError, ServerError, asyncio.TimeoutError):
                pass
        return None if len(self.granted) >= self.quorum else "no-quorum"

    async def remove(self, master, resource, token):
        if master in self.granted:
            await super().remove(master, resource, token)


class NoCleanUp(Redlock):
    async def clean_up(self, resource, token):
        pass


class PlainDel(Redlock):
    def delete_command(self, resource, _token):
        return "DEL", resource


class PlainPexpire(Redlock):
    def extend_command(self, resource, _token, ttl):
        return "PEXPIRE", resource, ttl


class ExtendsMinority(Redlock):
    def extension_quorum(self):
        return self.quorum - 1


class ExtendsUnasked(Redlock):
    async def extension(self, lease, ttl):
        lease.deadline_ns, lease.at_ns = self.deadline(now_ns(), ttl), now_ns()
        return lease


class Revives(Redlock):
    async def extension(self, lease, ttl):
        start = now_ns()
        if await self.vote(("EVAL", REVIVE, 1, *lease.lock, ttl)):
            raise Refused("lost")
        lease.deadline_ns, lease.at_ns = self.deadline(start, ttl), now_ns()
        return lease


class AlwaysHeld(Redlock):
    def is_held(self, _lease):
        return True


class SilentLoss(Redlock):
    def report(self, _lease):
        pass


class LateLoss(Redlock):
    def report(self, lease):
        LOOP.call_later(0.5, driver.lost, lease)


class Shares(Redlock):
    leases = {}

    def acquire(self, resource, ttl):
        lease = self.leases.get(resource)
        if lease is None or lease.is_over():
            lease = self.leases[resource] = super().acquire(resource, ttl)
        return lease

    def release(self, lease):
        self.leases.pop(lease.lock[0], None)
        super().release(lease)


class GrantsWhenDown(Redlock):
    async def vote(self, command, quorum=None):
        why = await super().vote(command, quorum)
        return None if why == "no-quorum" else why


def liar(name):
    """The class of a mistake: `asks-none` is `AsksNone`."""
    return globals()["".join(word.capitalize() for word in name.split("-"))]


def main(arguments):
    if arguments == ["--list"]:
        for name, what, scenario, property in MISTAKES:
            print(f"{name:22} {what}: {scenario}, {property}")
        return
    lock = liar(arguments[0]) if arguments else Redlock
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    serve(lock())


if __name__ == "__main__":
    main(sys.argv[1:])
