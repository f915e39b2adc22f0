"""The client protocol of docs/scenarios.md, for a lock that is called from Python.

A driver is a subclass of `Library` with the calls of the lock: start from redis_py_driver.py. The
protocol is one JSON object per line, on standard input and output. Logs and tracebacks go to
standard error.
"""

import json
import os
import sys
import threading
import time

NODES = os.environ.get("REDQUORUM_NODES", "").split(",")
OPTIONS = json.loads(os.environ.get("REDQUORUM_OPTIONS", "{}"))


class Refused(Exception):
    """A request failed for a reason of the protocol: `taken`, `no-quorum`, `late`, `refused` or
    `lost`."""

    def __init__(self, why, text=None):
        super().__init__(why, text)
        self.why, self.text = why, text


class Lease:
    """A granted lock: the library's own object, and when the lease ends.

    A library that reveals the remaining validity gives `valid_ms`. Of a library that reveals
    neither, the harness knows the deadline from the commands that it sends.
    """

    def __init__(self, lock, *, token=None, deadline_ns=None, valid_ms=None):
        if isinstance(token, bytes):
            token = token.decode()
        self.lock, self.token = lock, token
        self.deadline_ns, self.valid_ms = deadline_ns, valid_ms
        self.at_ns = time.monotonic_ns()

    def is_over(self):
        end = self.deadline_ns
        if end is None and self.valid_ms is None:
            return False  # The library knows: override `is_held`.
        if end is None:
            end = self.at_ns + self.valid_ms * 1_000_000
        return time.monotonic_ns() >= end


class Library:
    """The calls of a lock. Times are in milliseconds."""

    name = "a lock"
    can = []  # such as "extend"; see docs/scenarios.md
    errors = {}  # exception type: reason

    def acquire(self, resource, ttl):
        """Tries to acquire, and returns a `Lease`. Raises `Refused` if it is taken."""
        raise NotImplementedError

    def extend(self, lease, ttl):
        """Extends a lease, and returns it with its new deadline."""
        raise Refused("unsupported")

    def release(self, lease):
        raise NotImplementedError

    def is_held(self, lease):
        """What the documentation tells a holder to check before it acts."""
        return not lease.is_over()


def deadline(start_ns, ttl, drift=0.01, extra_ms=2):
    """The end of a lease: its TTL from the start of the call, less the drift of the algorithm."""
    return start_ns + int((ttl - ttl * drift - extra_ms) * 1e6)


def now_ns():
    return time.monotonic_ns()


_out = threading.Lock()
_answered = set()  # requests that were answered, also those that were cancelled
_leases = {}  # (client, resource): the lease, until it is released
_cancels = {}  # request: how to cancel it
_current = threading.local()


def on_cancel(cancel):
    """Registers how to cancel the request that this thread executes; with "cancel" in `can`."""
    _cancels[_current.request] = cancel


def wait_ms():
    """How long the acquire of this thread may wait for its resource; with "wait" in `can`."""
    return _current.wait_ms


def lost(lease):
    """Reports that a lease ended that was not released; with "lost" in `can`."""
    for (client, resource), held in list(_leases.items()):
        if held is lease:
            with _out:
                _write({"event": "lost", "client": client, "resource": resource,
                        "at_ns": now_ns()})


def _write(message):
    print(json.dumps({key: value for key, value in message.items() if value is not None}),
          flush=True)


def _answer(request, **fields):
    """Answers a request once. Returns whether this was the answer."""
    with _out:
        if request["id"] in _answered:
            return False
        _answered.add(request["id"])
        _write({"id": request["id"], **fields})
        return True


def _granted(request, start, lease):
    return _answer(request, ok=True, token=lease.token, from_ns=start, at_ns=lease.at_ns,
                   deadline_ns=lease.deadline_ns, valid_ms=lease.valid_ms)


def _acquire(library, request):
    start, key = now_ns(), (request["client"], request["resource"])
    lease = library.acquire(request["resource"], request["ttl_ms"])
    _leases[key] = lease
    if not _granted(request, start, lease):
        library.release(_leases.pop(key))  # The request was cancelled meanwhile.


def _extend(library, request):
    start, key = now_ns(), (request["client"], request["resource"])
    _leases[key] = library.extend(_leases[key], request["ttl_ms"])
    _granted(request, start, _leases[key])


def _release(library, request):
    start, lease = now_ns(), _leases.pop((request["client"], request["resource"]))
    library.release(lease)
    _answer(request, ok=True, from_ns=start, at_ns=now_ns())


def _step(library, request):
    checks = "check" in request
    held = not checks or library.is_held(_leases[request["client"], request["check"]])
    _answer(request, ok=held, why=None if held else "lost", at_ns=now_ns())


def _cancel(library, request):
    if "cancel" not in library.can:
        raise Refused("unsupported")
    cancelled = {"id": request["request"]}
    if _answer(cancelled, ok=False, why="cancelled") and cancelled["id"] in _cancels:
        _cancels[cancelled["id"]]()
    _answer(request, ok=True)


_OPS = {"acquire": _acquire, "extend": _extend, "release": _release, "step": _step,
        "cancel": _cancel}


def _handle(library, request):
    _current.request, _current.wait_ms = request["id"], request.get("wait_ms", 0)
    try:
        if request["op"] not in _OPS or request.get("again"):
            raise Refused("unsupported")
        _OPS[request["op"]](library, request)
    except Refused as refused:
        _answer(request, ok=False, why=refused.why, text=refused.text, at_ns=now_ns())
    except KeyError as error:
        _answer(request, ok=False, why="lost", text=f"there is no lease of {error}")
    except BaseException as error:  # noqa: BLE001: every request gets an answer
        kinds = (why for kind, why in library.errors.items() if isinstance(error, kind))
        _answer(request, ok=False, why=next(kinds, "error"), text=repr(error), at_ns=now_ns())
    _cancels.pop(request["id"], None)


def serve(library):
    """Answers the requests of standard input, each on a thread of its own, until it ends."""
    _write({"event": "ready", "protocol": 1, "can": library.can, "name": library.name})
    for line in sys.stdin:
        threading.Thread(target=_handle, args=(library, json.loads(line)), daemon=True).start()
    os._exit(0)  # At once: threads may hang in calls of the library.
