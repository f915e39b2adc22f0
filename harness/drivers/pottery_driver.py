"""pottery, a Redlock for Python: https://github.com/brainix/pottery"""

import sys
from importlib import metadata

from pottery import ExtendUnlockedLock, QuorumIsImpossible, Redlock, ReleaseUnlockedLock
from redis import RedisError

from driver import Lease, Library, Refused, serve, wait_ms
from masters import masters


class Pottery(Library):
    name = "pottery"
    version = metadata.version("pottery")
    can = ["extend", "wait"]
    errors = {ExtendUnlockedLock: "lost", ReleaseUnlockedLock: "lost",
              QuorumIsImpossible: "no-quorum", RedisError: "no-quorum"}

    def __init__(self):
        self.masters = masters()

    def acquire(self, resource, ttl):
        # A scenario extends more often than pottery's default limit of three times.
        lock = Redlock(key=resource, masters=self.masters, auto_release_time=ttl / 1000,
                       num_extensions=sys.maxsize)
        wait = wait_ms() / 1000
        if not (lock.acquire(timeout=wait) if wait else lock.acquire(blocking=False)):
            raise Refused("refused")
        # The library does not say how long the lease is valid, so the driver says nothing either.
        return Lease(lock, token=lock._uuid)

    def extend(self, lease, ttl):
        lease.lock.auto_release_time = ttl / 1000
        lease.lock.extend()
        return Lease(lease.lock, token=lease.token)

    def release(self, lease):
        lease.lock.release()

    def is_held(self, lease):
        return lease.lock.locked() > 0


serve(Pottery())
