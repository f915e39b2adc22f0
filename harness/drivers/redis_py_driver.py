"""The Lock of redis-py, on the first master only: https://redis.readthedocs.io

It is also the template of a driver in Python. Replace the calls of `lock` with those of your
library, and check the result with
`redquorum-chaos client-check --quorum 1 "python3 redis_py_driver.py"`.
"""

import redis
from redis import RedisError
from redis.exceptions import LockError

from driver import Lease, Library, Refused, serve, wait_ms
from masters import masters


class RedisPy(Library):
    name = "redis-py Lock"
    version = redis.__version__
    can = ["extend", "wait"]
    errors = {LockError: "lost", RedisError: "no-quorum"}

    def __init__(self):
        self.master = masters()[0]

    def acquire(self, resource, ttl):
        # Requests of one client may arrive on different threads.
        lock = self.master.lock(resource, timeout=ttl / 1000, thread_local=False)
        if not lock.acquire(blocking_timeout=wait_ms() / 1000):
            raise Refused("taken")
        # The library does not say how long the lease is valid, so the driver says nothing either.
        return Lease(lock, token=lock.local.token)

    def extend(self, lease, ttl):
        lease.lock.extend(ttl / 1000, replace_ttl=True)
        return Lease(lease.lock, token=lease.token)

    def release(self, lease):
        lease.lock.release()

    def is_held(self, lease):
        return lease.lock.owned()


serve(RedisPy())
