"""Where each record lies in the coordination store, and how one that is too large is split.

    /rekindle/v1/NAMESPACE/APPLICATION/
        topology statistics progress checkpoint   the driver's reports
        heartbeat                                 ephemeral, while the driver is there
        orders                                    what people have said
        coordination                              what the coordinator must not forget
        directives/SEQUENCE  acks/SEQUENCE        to the driver, and its answers
        pieces/DIGEST.NUMBER                      parts of records over `PIECE_BYTES`
        {orders,coordination,directives}/guard    keeps a namespace from removing these
    /rekindle/election                            coordinators, the first of them leads
    /rekindle/operators/IDENTITY                  ephemeral, an operator that acts or stands by
    /rekindle/clock                               empty: written to read the servers' time

Pure: the shells read and write. Numbers are of ten digits, so that names sort as they count.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rekindle.model.errors import InputError, RunError

APPLICATIONS, ELECTION = "/rekindle/v1", "/rekindle/election"
OPERATORS, CLOCK = "/rekindle/operators", "/rekindle/clock"
TOPOLOGY, STATISTICS, PROGRESS, CHECKPOINT = "topology", "statistics", "progress", "checkpoint"
HEARTBEAT, ORDERS, COORDINATION = "heartbeat", "orders", "coordination"
DIRECTIVES, ACKS, PIECES = "directives", "acks", "pieces"
FOLDERS = (DIRECTIVES, ACKS, PIECES)
GUARD = "guard"
# a server takes messages of 1 MiB at most, and a transaction is one message
PIECE_BYTES = 400_000
NAME_LENGTH_MAX = 200


class Place(NamedTuple):
    """An application's place in the store. A tuple, since whoever looks after a thousand
    applications looks them up all the time."""

    namespace: str
    application: str

    def checked(self) -> "Place":
        """Itself when both names can be names in the store; else InputError."""
        for what, name in (("namespace", self.namespace), ("application", self.application)):
            plain = name.replace("-", "").replace("_", "").replace(".", "")
            sound = plain.isascii() and plain.isalnum() and len(name) <= NAME_LENGTH_MAX
            if not sound or name.strip(".") != name:
                raise InputError(
                    where=f"{what} {name[:60]!r}",
                    what="is no name",
                    remedy="use letters, digits, - _ and . inside, 200 at most",
                )
        return self

    def path(self, *names: str) -> str:
        """The path of a record of the application; without names, of the application."""
        return "/".join((APPLICATIONS, self.namespace, self.application, *names))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.application}"


DEFAULT = Place("default", "application")


def place(name: str) -> Place:
    """The place of "NAMESPACE/APPLICATION"; InputError for anything else."""
    namespace, slash, application = name.partition("/")
    if not slash or "/" in application:
        raise InputError(
            where=f"application {name[:60]!r}",
            what="is no name of an application",
            remedy="write NAMESPACE/APPLICATION",
        )
    return Place(namespace, application).checked()


def place_of_driver(name: str | None, environment: Mapping[str, str]) -> Place:
    """The place of "NAMESPACE/APPLICATION"; without a name what whoever put the sidecar beside the
    driver has said, else the default. Raises InputError for what is no name."""
    if name is not None:
        return place(name)
    return Place(
        environment.get("REKINDLE_NAMESPACE") or DEFAULT.namespace,
        environment.get("REKINDLE_APPLICATION") or DEFAULT.application,
    ).checked()


def numbered(sequence: int) -> str:
    """The name of a directive or an acknowledgement."""
    return f"{sequence:010d}"


def numbers(names: Iterable[str]) -> list[int]:
    """The sequence numbers among names; what does not belong there is left out."""
    return [int(name) for name in names if _is_number(name)]


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def number(name: str) -> int:
    """The sequence number in a name; RunError for a name that is none."""
    if not _is_number(name):
        raise RunError(
            where=f"coordination store: {name[:60]!r}",
            what="is not the name of a directive",
            remedy="remove what does not belong there",
        )
    return int(name)


def split(data: bytes) -> tuple[bytes, ...]:
    """The pieces of a record: itself when it is small enough."""
    return tuple(data[i : i + PIECE_BYTES] for i in range(0, len(data), PIECE_BYTES)) or (b"",)


def head(data: bytes) -> bytes:
    """What stands at the record's own place when it has been split: which pieces make it up."""
    digest = hashlib.sha256(data).hexdigest()
    return json.dumps({"pieces": len(split(data)), "sha256": digest}).encode()


def pieces(found: bytes) -> tuple[str, ...]:
    """Names of the pieces that a head names; none when it is the record itself."""
    if not found.startswith(b'{"pieces": '):
        return ()
    named = json.loads(found)
    return tuple(f"{named['sha256']}.{index}" for index in range(named["pieces"]))


def join(found: bytes, parts: Sequence[bytes], where: str) -> bytes:
    """The record of a head and its pieces; RunError when they do not belong together."""
    data = b"".join(parts)
    if hashlib.sha256(data).hexdigest() != json.loads(found)["sha256"]:
        raise RunError(
            where=where,
            what="has pieces that do not match its checksum",
            remedy="wait for the next report, which replaces it",
        )
    return data
