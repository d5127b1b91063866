"""Ports of loopback hosts, held for servers that must know them before they start.

A server that listens on port 0 needs none of this. The members of a ZooKeeper ensemble name each
other's ports in their configuration; a port that was only looked up before could be a stranger's by
the time they listen, or while one of them is down. local_zookeeper.py calls this.
"""

import socket


def hold_port(host: str) -> socket.socket:
    """A socket bound to a free port of `host`: until it is closed, nobody is given this port.

    A server of ours can listen there all the same, as often as it starts, if it sets SO_REUSEADDR;
    Java's server sockets do. Linux lets two sockets have one port where both set this option and
    neither listens yet. Raises `OSError` when there is no port.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.bind((host, 0))
        # Only now: with it, the bind itself would share the port with a holder of somebody else.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        holder.close()
        raise
    return holder
