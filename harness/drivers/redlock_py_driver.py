"""redlock-py, a Redlock for Python: https://github.com/SPSCommerce/redlock-py"""

from importlib import metadata

from redis import RedisError
from redlock import MultipleRedlockException, Redlock

from driver import NODES, Lease, Library, Refused, serve
from masters import is_tuned, masters


class RedlockPy(Library):
    name = "redlock-py"
    version = metadata.version("redlock-py")
    errors = {MultipleRedlockException: "no-quorum", RedisError: "no-quorum"}

    def __init__(self):
        self.manager = Redlock(masters() if is_tuned() else NODES)

    def acquire(self, resource, ttl):
        lock = self.manager.lock(resource, ttl)
        if not lock:
            raise Refused("taken")
        return Lease(lock, token=lock.key, valid_ms=lock.validity)

    def release(self, lease):
        self.manager.unlock(lease.lock)


serve(RedlockPy())
