"""python-redis-lock, on the first master only: https://github.com/ionelmc/python-redis-lock"""

import redis_lock
from redis import RedisError

from driver import Lease, Library, Refused, serve
from masters import masters


class PythonRedisLock(Library):
    name = "python-redis-lock"
    version = redis_lock.__version__
    can = ["extend"]
    errors = {redis_lock.NotAcquired: "lost", RedisError: "no-quorum"}

    def __init__(self):
        self.master = masters()[0]

    def acquire(self, resource, ttl):
        if ttl < 1000:
            raise Refused("unsupported", "it counts a TTL in whole seconds")
        lock = redis_lock.Lock(self.master, resource, expire=ttl / 1000)
        if not lock.acquire(blocking=False):
            raise Refused("taken")
        # The library does not say how long the lease is valid, so the driver says nothing either.
        return Lease(lock, token=lock.id)

    def extend(self, lease, ttl):
        if ttl < 1000:
            raise Refused("unsupported", "it counts a TTL in whole seconds")
        lease.lock.extend(expire=ttl / 1000)
        return Lease(lease.lock, token=lease.token)

    def release(self, lease):
        lease.lock.release()

    def is_held(self, lease):
        return lease.lock.get_owner_id() == lease.lock.id


serve(PythonRedisLock())
