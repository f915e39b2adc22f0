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
    version = None  # of the lock, as text
    can = []  # such as "extend"; see docs/scenarios.md
    errors = {}  # exception type: reason

    def acquire(self, resource, ttl):
        """Tries to acquire, and returns a `Lease`. Raises `Refused` if it is taken.

        With "wait" in `can`, it waits for at most `wait_ms()`.
        """
        raise NotImplementedError

    def acquire_all(self, resources, ttl):
        """Acquires all of these or none, and returns a `Lease` for each; with "several" in `can`.

        Waits as `acquire` does.
        """
        raise Refused("unsupported")

    def extend(self, lease, ttl):
        """Extends a lease, and returns it with its new deadline; with "extend" in `can`."""
        raise Refused("unsupported")

    def keep_alive(self, lease, most):
        """Goes on extending a lease in the background, for at most this time, and returns at once;
        with "keep_alive" in `can`. Calls `extended(lease)` after each time."""
        raise Refused("unsupported")

    def release(self, lease):
        raise NotImplementedError

    def release_all(self, leases):
        for lease in leases:
            self.release(lease)

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
    _notify("lost", lease)


def extended(lease):
    """Reports the new deadline of a lease that was extended in the background."""
    _notify("extended", lease, deadline_ns=lease.deadline_ns)


def _notify(event, lease, **fields):
    for (client, resource), held in list(_leases.items()):
        if held is lease:
            with _out:
                _write({"event": event, "client": client, "resource": resource,
                        "at_ns": now_ns(), **fields})


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


def _acquire_all(library, request):
    start, keys = now_ns(), [(request["client"], one) for one in request["resources"]]
    leases = library.acquire_all(request["resources"], request["ttl_ms"])
    _leases.update(zip(keys, leases))
    each = [{"token": lease.token, "deadline_ns": lease.deadline_ns} for lease in leases]
    each = [{key: value for key, value in one.items() if value is not None} for one in each]
    # A field of the whole answer holds for each lease: the one that ends first says how long.
    valid = [lease.valid_ms for lease in leases if lease.valid_ms is not None]
    if not _answer(request, ok=True, from_ns=start, at_ns=leases[0].at_ns, each=each,
                   valid_ms=min(valid, default=None)):
        library.release_all([_leases.pop(key) for key in keys])


def _extend(library, request):
    start, key = now_ns(), (request["client"], request["resource"])
    _leases[key] = library.extend(_leases[key], request["ttl_ms"])
    _granted(request, start, _leases[key])


def _keep_alive(library, request):
    library.keep_alive(_leases[request["client"], request["resource"]], request["max_ms"])
    _answer(request, ok=True, at_ns=now_ns())


def _release_all(library, request):
    start = now_ns()
    library.release_all([_leases.pop((request["client"], one)) for one in request["resources"]])
    _answer(request, ok=True, from_ns=start, at_ns=now_ns())


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


_OPS = {"acquire": _acquire, "acquire_all": _acquire_all, "extend": _extend,
        "keep_alive": _keep_alive, "release": _release, "release_all": _release_all,
        "step": _step, "cancel": _cancel}


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
    _write({"event": "ready", "protocol": 1, "can": library.can, "name": library.name,
            "version": library.version})
    for line in sys.stdin:
        threading.Thread(target=_handle, args=(library, json.loads(line)), daemon=True).start()
    os._exit(0)  # At once: threads may hang in calls of the library.
