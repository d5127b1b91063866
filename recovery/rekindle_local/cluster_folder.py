"""The folder through which a local cluster and its coordinator, two processes, know of each other.

    nodes.json       the newest process of every node that was ever started, and its failure domain
    driver.json      the present process of the driver
    requests/*.json  what a coordinator asks for, one file for each request, never changed

Files appear whole, by a rename or a link. That a file names a process does not mean that it runs:
`is_gone` asks the kernel. Written and read by local_provisioning.py and
coordinator/local_provider.py.
"""

import os
import secrets
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from rekindle import protocol
from rekindle.protocol.store_paths import Place
from rekindle_local import process_sets

NODES, DRIVER, REQUESTS = "nodes.json", "driver.json", "requests"

Kind = TypeVar("Kind")


class Process(msgspec.Struct, frozen=True):
    """A process, for ever: `start` is in ticks since the machine's start."""

    process_id: int
    start: int


class NodesFile(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes.json`: by node its newest process, killed or not, and its failure domain."""

    version: Literal[1] = 1
    nodes: dict[str, Process]
    domains: dict[str, str] = {}


class DriverFile(msgspec.Struct, frozen=True, kw_only=True):
    """`driver.json`: the driver of `application` ("NAMESPACE/APPLICATION")."""

    version: Literal[1] = 1
    application: str
    process: Process


class RequestFile(msgspec.Struct, frozen=True, kw_only=True):
    """A request: `count` "nodes", or the "driver" of `application` again."""

    version: Literal[1] = 1
    identity: str
    application: str
    what: Literal["nodes", "driver"]
    count: int
    outside_domains: tuple[str, ...]
    reason: str


def process(process_id: int) -> Process | None:
    """The process that has this id now, if there is one."""
    start = process_sets.start_ticks(process_id)
    return None if start is None else Process(process_id, start)


def is_gone(known: Process) -> bool:
    """Whether a process has ended; another one with its id does not count."""
    return process_sets.start_ticks(known.process_id) != known.start


def request_path(directory: Path, place: Place, identity: str) -> Path:
    """Where a request lies; a plus is in no name, so the parts cannot run into each other."""
    name = f"{place.namespace}+{place.application}+{identity}.json"
    return directory / REQUESTS / name


def read(path: Path, kind: type[Kind]) -> Kind | None:
    """What a file holds; None when it is not there, InputError when it holds something else."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return protocol.decode(data, kind, str(path))


def replace(path: Path, content: msgspec.Struct) -> None:
    """Write a file, whatever was there. Raises OSError."""
    written = _write_beside(path, content)
    os.replace(written, path)


def create(path: Path, content: msgspec.Struct) -> None:
    """Write a file unless it is there. Raises OSError."""
    written = _write_beside(path, content)
    try:
        os.link(written, path)
    except FileExistsError:
        return
    finally:
        written.unlink()


def _write_beside(path: Path, content: msgspec.Struct) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    written.write_bytes(protocol.encode(content))
    return written
