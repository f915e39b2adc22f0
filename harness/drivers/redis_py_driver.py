"""The Lock of redis-py, on the first master only: https://redis.readthedocs.io

It is also the template of a driver in Python. Replace the calls of `lock` with those of your
library, and check the result with
`redquorum-chaos client-check --quorum 1 "python3 redis_py_driver.py"`.
"""

from redis import RedisError
from redis.exceptions import LockError

from driver import Lease, Library, Refused, deadline, now_ns, serve
from masters import masters


class RedisPy(Library):
    name = "redis-py Lock"
    can = ["deadline", "extend"]
    errors = {LockError: "lost", RedisError: "no-quorum"}

    def __init__(self):
        self.master = masters()[0]

    def acquire(self, resource, ttl):
        # Requests of one client may arrive on different threads.
        lock = self.master.lock(resource, timeout=ttl / 1000, thread_local=False)
        start = now_ns()
        if not lock.acquire(blocking=False):
            raise Refused("taken")
        return Lease(lock, token=lock.local.token, deadline_ns=deadline(start, ttl))

    def extend(self, lease, ttl):
        start = now_ns()
        lease.lock.extend(ttl / 1000, replace_ttl=True)
        return Lease(lease.lock, token=lease.token, deadline_ns=deadline(start, ttl))

    def release(self, lease):
        lease.lock.release()

    def is_held(self, lease):
        return lease.lock.owned()


serve(RedisPy())
