"""pottery, a Redlock for Python: https://github.com/brainix/pottery"""

import sys
from importlib import metadata

from pottery import ExtendUnlockedLock, QuorumIsImpossible, Redlock, ReleaseUnlockedLock
from redis import RedisError

from driver import Lease, Library, Refused, deadline, now_ns, serve
from masters import masters


class Pottery(Library):
    name = "pottery"
    version = metadata.version("pottery")
    can = ["deadline", "extend"]
    errors = {ExtendUnlockedLock: "lost", ReleaseUnlockedLock: "lost",
              QuorumIsImpossible: "no-quorum", RedisError: "no-quorum"}

    def __init__(self):
        self.masters = masters()

    def acquire(self, resource, ttl):
        # A scenario extends more often than pottery's default limit of three times.
        lock = Redlock(key=resource, masters=self.masters, auto_release_time=ttl / 1000,
                       num_extensions=sys.maxsize)
        start = now_ns()
        if not lock.acquire(blocking=False):
            raise Refused("taken")
        return Lease(lock, token=lock._uuid, deadline_ns=deadline(start, ttl))

    def extend(self, lease, ttl):
        start, lease.lock.auto_release_time = now_ns(), ttl / 1000
        lease.lock.extend()
        return Lease(lease.lock, token=lease.token, deadline_ns=deadline(start, ttl))

    def release(self, lease):
        lease.lock.release()

    def is_held(self, lease):
        return lease.lock.locked() > 0


serve(Pottery())
