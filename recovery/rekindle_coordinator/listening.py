"""Sockets of servers that any address of a machine or pod may be asked at, of either family.

`health` and the operator's webhook listen on them.
"""

import socket

__all__ = ["listen"]


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; `host` "" is every address, `port` 0 any that is free.

    One socket for both families: two that take any free port would take different ones. Raises
    OSError when it cannot.
    """
    if host or not socket.has_dualstack_ipv6():
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
