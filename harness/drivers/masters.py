"""The connections of drivers that use redis-py."""

import sys

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from driver import NODES, OPTIONS


def is_tuned():
    """Whether the driver was started with `--timeouts`."""
    return "--timeouts" in sys.argv[1:]


def masters():
    """A client for each master, with the defaults of redis-py.

    With `--timeouts`, a master that does not reply fails after the node timeout. That is what the
    algorithm asks for: "a timeout which is small compared to the total lock auto-release time".
    """
    if not is_tuned():
        return [Redis.from_url(url) for url in NODES]
    timeout = OPTIONS["node_timeout_ms"] / 1000
    return [Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout,
                           retry=Retry(NoBackoff(), 0)) for url in NODES]
