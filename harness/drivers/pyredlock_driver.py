"""pyredlock, a Redlock for Python: https://pypi.org/project/pyredlock"""

from importlib import metadata

from pyredlock import Redlock
from redis import RedisError

from driver import Lease, Library, Refused, deadline, now_ns, serve
from masters import masters


class PyRedlock(Library):
    name = "pyredlock"
    version = metadata.version("pyredlock")
    can = ["extend"]
    errors = {RedisError: "no-quorum"}

    def __init__(self):
        self.manager = Redlock(masters(), async_mode=False)

    def acquire(self, resource, ttl):
        granted, lock = self.manager.lock(resource, ttl)
        if not granted:
            raise Refused("refused")
        return Lease(lock, token=lock.val, valid_ms=lock.validity)

    def extend(self, lease, ttl):
        start = now_ns()
        if not self.manager.extend(lease.lock, ttl):
            raise Refused("lost")
        return Lease(lease.lock, token=lease.token, deadline_ns=deadline(start, ttl))

    def release(self, lease):
        self.manager.unlock(lease.lock)


serve(PyRedlock())
