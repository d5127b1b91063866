"""Files of checkpoints: a line of JSON, then a body whose checksum is in it.

What is sealed is bytes, for who calls this to put into the store. Formats: docs/formats.md.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from rekindle.errors import DamagedError, RunError
from rekindle_store.files import Files
from rekindle_store.transfers import Moved, pieces, unwatched

__all__ = ["load", "seal"]


def seal(version: int, head: Mapping[str, Any], body: bytes) -> bytes:
    """A file's content; `head` is JSON without `version` and `sha256`."""
    line = {"version": version, **head, "sha256": sha256(body).hexdigest()}
    return json.dumps(line).encode() + b"\n" + body


def load(
    files: Files, name: str, *versions: int, moved: Moved = unwatched
) -> tuple[dict[str, Any], memoryview]:
    """Head and body of a file of one of these versions, the newest last. `moved` is told of what
    has come.

    Raises DamagedError when it is absent or not what was written, RunError when another version has
    written it, OSError when the store cannot be read.
    """
    try:
        data = files.read(name, moved)
        end = data.find(b"\n")
        head = json.loads(data[: max(end, 0)])
        found, sum_ = head["version"], head["sha256"]
    except FileNotFoundError:
        raise _damaged(name, "is not there") from None
    except (ValueError, TypeError, KeyError):
        raise _damaged(name, "has no line that says what it is") from None
    if found not in versions:
        raise RunError(
            where=name,
            what=f"has version {found!r}, known is {versions[-1]}",
            remedy="run the version of Rekindle that wrote it",
        )
    body = memoryview(data)[end + 1 :]
    digest = sha256()
    for piece in pieces(body, lambda _: moved(0)):
        digest.update(piece)
    if digest.hexdigest() != sum_:
        raise _damaged(name, "does not match its checksum")
    return head, body


def _damaged(name: str, what: str) -> DamagedError:
    return DamagedError(
        where=name,
        what=what,
        remedy="restore it from a copy of the store, or start with an empty store",
    )
