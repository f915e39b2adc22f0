"""A lock for Python, by `redquorum agent` on a Unix socket:

    redquorum agent --socket /run/redquorum.sock --masters redis://db1,redis://db2,redis://db3

    with lock("invoice:42") as lease:
        pay(lease.token)        # the database refuses a token that is older than one it has seen
        lease.check()           # raises Lost if the lease is over
"""

import contextlib
import json
import os
import socket
import sys
import time

SOCKET = os.environ.get("REDQUORUM_SOCKET", "/run/redquorum.sock")


class NotAcquired(Exception):
    """Somebody else has the resource, or too few masters answered."""


class Lost(Exception):
    """The lease ended before the work was done."""


class Lease:
    def __init__(self, resource):
        self.resource, self.deadline, self.number = resource, 0, 0
        self.agent = socket.socket(socket.AF_UNIX)
        self.agent.connect(SOCKET)
        self.lines = self.agent.makefile()

    def ask(self, op, **fields):
        """Sends a request, and returns its reply. Deadlines move in between."""
        self.number += 1
        request = {"id": self.number, "op": op, "resource": self.resource, **fields}
        self.agent.sendall(json.dumps(request).encode() + b"\n")
        for line in self.lines:
            message = json.loads(line)
            if message.get("id") == self.number:
                self.deadline = message.get("deadline_ns") or self.deadline
                return message
        raise Lost("the agent has ended")

    def check(self):
        """The agent extends the lease, and knows whether it is held."""
        reply = self.ask("step", name="check", check=self.resource)
        if not reply["ok"]:
            raise Lost(reply.get("text"))


@contextlib.contextmanager
def lock(resource, wait=10.0, most=60.0):
    lease = Lease(resource)
    with lease.agent:  # closing the connection gives the lease back
        reply = lease.ask("acquire", wait_ms=int(wait * 1000))
        if not reply["ok"]:
            raise NotAcquired(reply.get("text"))
        lease.token = reply.get("fence")
        lease.ask("keep_alive", max_ms=int(most * 1000))
        yield lease
        lease.check()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: lock.py RESOURCE SECONDS, with REDQUORUM_SOCKET of a `redquorum agent`")
    with lock(sys.argv[1]) as held:
        print("held with fencing token", held.token, flush=True)
        time.sleep(float(sys.argv[2]))
