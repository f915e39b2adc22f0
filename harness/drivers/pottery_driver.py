"""A driver of the client protocol for pottery, a Redlock for Python: `pip install -r requirements.txt`,
then `redquorum-chaos client-check "python3 pottery_driver.py"`.

It is also the example to start from: a driver reads one JSON object a line from standard input and
writes one a line to standard output, each request in a thread of its own. Everything else (logs,
tracebacks) goes to standard error.
"""

import json
import os
import sys
import threading
import time

from pottery import ExtendUnlockedLock, QuorumIsImpossible, Redlock, ReleaseUnlockedLock
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

OPTIONS = json.loads(os.environ["REDQUORUM_OPTIONS"])
TIMEOUT = OPTIONS["node_timeout_ms"] / 1000
# Without a timeout a master that hangs would hang us; and redis-py by itself sends a command again
# that got no answer, with pauses of seconds, which no lock survives.
MASTERS = [
    Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT,
                   retry=Retry(NoBackoff(), 0))
    for url in os.environ["REDQUORUM_NODES"].split(",")
]

out = threading.Lock()
leases = {}  # (client, resource): the lock object, until it is released
answered = set()  # requests that were answered, also those that were cancelled


def say(**words):
    with out:
        print(json.dumps({key: word for key, word in words.items() if word is not None}), flush=True)


def answer(request, **words):
    """Answers a request, unless that was done when it was cancelled."""
    with out:
        if request["id"] in answered:
            return False
        answered.add(request["id"])
    say(id=request["id"], **words)
    return True


def deadline(start_ns, ttl):
    """Pottery has no deadline that one could ask for without a round trip. This is the one of the
    algorithm, with pottery's drift: the start, plus the TTL, minus 1 % and 2 ms."""
    return start_ns + int((ttl - ttl * 0.01 - 0.002) * 1e9)


def acquire(request):
    ttl, wait = request["ttl_ms"] / 1000, request["wait_ms"] / 1000
    lock = Redlock(key=request["resource"], masters=MASTERS, raise_on_redis_errors=True,
                   auto_release_time=ttl, num_extensions=sys.maxsize)
    end = time.monotonic() + wait
    while True:
        # Each attempt by itself: only the last one's start counts for the deadline.
        start, failed = time.monotonic_ns(), None
        try:
            granted = lock.acquire(blocking=False)
        except (QuorumIsImpossible, RedisError) as error:
            granted, failed = False, error
        now = time.monotonic_ns()
        if granted or time.monotonic() >= end or request["id"] in answered:
            break
        time.sleep(0.05)
    if not granted:
        if failed:
            raise failed
        return answer(request, ok=False, why="taken", at_ns=now)
    until = deadline(start, ttl)
    if now >= until:
        lock.release()
        return answer(request, ok=False, why="late", at_ns=now)
    whose = request["client"], request["resource"]
    leases[whose] = lock
    if not answer(request, ok=True, token=lock._uuid, from_ns=start, at_ns=now, deadline_ns=until):
        leases.pop(whose).release()  # cancelled meanwhile


def extend(request):
    lock = leases[request["client"], request["resource"]]
    lock.auto_release_time = request["ttl_ms"] / 1000
    start = time.monotonic_ns()
    lock.extend()
    answer(request, ok=True, from_ns=start, at_ns=time.monotonic_ns(),
           deadline_ns=deadline(start, lock.auto_release_time))


def release(request):
    lock = leases.pop((request["client"], request["resource"]))
    start = time.monotonic_ns()
    lock.release()
    answer(request, ok=True, from_ns=start, at_ns=time.monotonic_ns())


def step(request):
    held = True
    if "check" in request:  # pottery's own check, one round trip to the masters
        held = leases[request["client"], request["check"]].locked() > 0
    answer(request, ok=held, why=None if held else "lost", at_ns=time.monotonic_ns())


def cancel(request):
    # A thread cannot be stopped: it releases by itself what it may still be granted.
    answer({"id": request["request"]}, ok=False, why="cancelled")
    answer(request, ok=True)


OPS = {"acquire": acquire, "extend": extend, "release": release, "step": step, "cancel": cancel}


def handle(request):
    try:
        op = OPS.get(request["op"])
        if op is None:
            return answer(request, ok=False, why="unsupported")
        op(request)
    except (KeyError, ExtendUnlockedLock, ReleaseUnlockedLock) as error:
        answer(request, ok=False, why="lost", text=repr(error))
    except (QuorumIsImpossible, RedisError) as error:
        answer(request, ok=False, why="no-quorum", text=repr(error))
    except Exception as error:  # noqa: BLE001: whatever it is, a request is answered
        answer(request, ok=False, why="error", text=repr(error))


for master in MASTERS:
    try:
        master.ping()
    except RedisError:
        pass  # a lock must start while masters are down
say(event="ready", protocol=1, can=["deadline", "extend", "wait"], name="pottery 3")
for line in sys.stdin:
    threading.Thread(target=handle, args=(json.loads(line),), daemon=True).start()
os._exit(0)  # at once, whatever the threads are doing
