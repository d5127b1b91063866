"""Files of checkpoints: a line of JSON, then a body whose checksum is in it.

A file is put in place whole: it is written and flushed under another name first. Its folder must be
there, and is flushed by who calls this. Formats: docs/formats.md.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from rekindle.errors import DamagedError, RunError
from rekindle_spark import disk

__all__ = ["load", "save"]


def save(path: Path, version: int, head: Mapping[str, Any], body: bytes) -> None:
    """Write a file; `head` is JSON without `version` and `sha256`."""
    line = {"version": version, **head, "sha256": sha256(body).hexdigest()}
    with disk.written_aside(path, json.dumps(line).encode() + b"\n" + body) as unfinished:
        unfinished.replace(path)


def load(path: Path, *versions: int) -> tuple[dict[str, Any], bytes]:
    """Head and body of a file of one of these versions, the newest last.

    Raises DamagedError when it is absent or not what was written, RunError when another version has
    written it, OSError when the store cannot be read.
    """
    try:
        line, _, body = _read(path).partition(b"\n")
        head = json.loads(line)
        found, sum_ = head["version"], head["sha256"]
    except (ValueError, TypeError, KeyError):
        raise _damaged(path, "has no line that says what it is") from None
    if found not in versions:
        raise RunError(
            where=_place(path),
            what=f"has version {found!r}, known is {versions[-1]}",
            remedy="run the version of Rekindle that wrote it",
        )
    if sha256(body).hexdigest() != sum_:
        raise _damaged(path, "does not match its checksum")
    return head, body


def _read(path: Path) -> bytes:
    """The bytes of a file; it is damage where it is not there, but not where all of the store is
    away, or has just come back."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if not path.parents[1].is_dir():
            raise
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise _damaged(path, "is not there") from None


def _damaged(path: Path, what: str) -> DamagedError:
    return DamagedError(
        where=_place(path),
        what=what,
        remedy="restore it from a copy of the store, or start with an empty store",
    )


def _place(path: Path) -> str:
    return f"checkpoints/{path.parent.name}/{path.name}"
