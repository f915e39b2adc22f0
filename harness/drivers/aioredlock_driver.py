"""aioredlock, a Redlock for asyncio: https://github.com/joanvila/aioredlock"""

import asyncio
import threading
from importlib import metadata

from aioredlock import Aioredlock, LockError
from aioredlock.errors import LockAcquiringError, LockRuntimeError

from driver import NODES, Lease, Library, deadline, now_ns, on_cancel, serve

LOOP = asyncio.new_event_loop()


def call(coroutine):
    """Runs a call of the library in its event loop, as a task that can be cancelled."""
    task = asyncio.run_coroutine_threadsafe(coroutine, LOOP)
    on_cancel(task.cancel)
    return task.result()


class Driver(Library):
    name = "aioredlock"
    version = metadata.version("aioredlock")
    can = ["deadline", "extend", "cancel"]
    errors = {LockAcquiringError: "taken", LockRuntimeError: "no-quorum", LockError: "late"}

    def __init__(self):
        self.manager = Aioredlock(NODES)

    def acquire(self, resource, ttl):
        start = now_ns()
        lock = call(self.manager.lock(resource, lock_timeout=ttl / 1000))
        return Lease(lock, token=lock.id, deadline_ns=deadline(start, ttl))

    def extend(self, lease, ttl):
        start = now_ns()
        call(self.manager.extend(lease.lock, lock_timeout=ttl / 1000))
        return Lease(lease.lock, token=lease.token, deadline_ns=deadline(start, ttl))

    def release(self, lease):
        call(self.manager.unlock(lease.lock))

    def is_held(self, lease):
        return lease.lock.valid and call(lease.lock.is_locked())


threading.Thread(target=LOOP.run_forever, daemon=True).start()
serve(Driver())
