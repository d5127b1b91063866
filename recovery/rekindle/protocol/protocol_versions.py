"""Which version of the protocol two sides speak: the newest that both know.

A version is given up only after a release in which its successor was known, so a side that is one
release older or newer is understood.
"""

from rekindle.model.errors import InputError

VERSION, VERSION_OLDEST = 1, 1


def agree(oldest: int, newest: int, *, own: tuple[int, int] = (VERSION_OLDEST, VERSION)) -> int:
    """The version to speak with a side that knows `oldest` to `newest`; InputError when none."""
    version = min(newest, own[1])
    if version < max(oldest, own[0]) or oldest > newest:
        raise InputError(
            where="handshake",
            what=f"the other side speaks versions {oldest} to {newest} of the protocol, "
            f"this one {own[0]} to {own[1]}",
            remedy="bring the older side to a release that is at most one behind",
        )
    return version
