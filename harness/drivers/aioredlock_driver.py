"""aioredlock, a Redlock for asyncio: https://github.com/joanvila/aioredlock"""

import asyncio
import threading
from importlib import metadata

from aioredlock import Aioredlock, LockError
from aioredlock.errors import LockAcquiringError, LockRuntimeError

from driver import NODES, Lease, Library, on_cancel, serve

LOOP = asyncio.new_event_loop()


def call(coroutine):
    """Runs a call of the library in its event loop, as a task that can be cancelled."""
    task = asyncio.run_coroutine_threadsafe(coroutine, LOOP)
    on_cancel(task.cancel)
    return task.result()


class Driver(Library):
    name = "aioredlock"
    version = metadata.version("aioredlock")
    can = ["extend", "cancel"]
    errors = {LockAcquiringError: "taken", LockRuntimeError: "no-quorum", LockError: "late"}

    def __init__(self):
        self.manager = Aioredlock(NODES)

    def acquire(self, resource, ttl):
        lock = call(self.manager.lock(resource, lock_timeout=ttl / 1000))
        # The library does not say how long the lease is valid, so the driver says nothing either.
        return Lease(lock, token=lock.id)

    def extend(self, lease, ttl):
        call(self.manager.extend(lease.lock, lock_timeout=ttl / 1000))
        return Lease(lease.lock, token=lease.token)

    def release(self, lease):
        call(self.manager.unlock(lease.lock))

    def is_held(self, lease):
        return lease.lock.valid and call(lease.lock.is_locked())


threading.Thread(target=LOOP.run_forever, daemon=True).start()
serve(Driver())
