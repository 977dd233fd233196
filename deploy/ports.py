"""Ports of this machine: which are free, and which to take."""

import random
import socket
from collections import deque

# Below the ranges that Linux (32768 up) and macOS (49152 up) give to outgoing connections: there, a port that was
# free a moment ago may belong to somebody's client by the time that a broker binds it.
_RANGE = range(20_000, 32_000)
_TRIES = 200
# What this process was given last: a server that is still starting does not listen on its port yet.
_given: deque[int] = deque(maxlen=2_000)


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on `host`:`port` now."""
    with socket.socket() as probe:
        # As servers do, so that connections that have just ended don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    # macOS lets one bind an address beside a server that listens on all of them.
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1" if host == "0.0.0.0" else host, port)) != 0


def free_port(prefer: int | None = None) -> int:
    """A free port of 127.0.0.1: `prefer` if it is one, else one not given lately. Raises OSError when there is none."""
    if prefer is not None and is_free(prefer):
        return prefer
    for port in random.sample(_RANGE, _TRIES):
        if port not in _given and is_free(port):
            _given.append(port)
            return port
    raise OSError(f"none of {_TRIES} ports between {_RANGE.start} and {_RANGE.stop} is free")
