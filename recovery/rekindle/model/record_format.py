"""Records: JSON objects on disk and on the wire, with their kind and a checksum.

    {"checksum": "sha256:...", "kind": "offsets", "version": 1, "epoch": 17, ...}

One line of canonical JSON: keys ascending, no spaces, UTF-8. The checksum is of that line without
the checksum. Fields are added, never renamed; a change that old readers would misread gets a new
version. Runtime and sidecar write and read them; where a record lies and whether it may be
replaced is theirs to decide.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from rekindle.model.errors import DamagedError, RunError

VERSIONS: Mapping[str, int] = {
    "generation": 1,  # a driver has started
    "offsets": 1,  # the input of an epoch
    "commit": 1,  # what has become finished
    "compaction": 1,  # where output of many commits is
    "checkpoint": 1,  # a global checkpoint
    "branch": 1,  # what runs without a step from an epoch on
    "listing": 1,  # files that a source reads
    "copy": 1,  # a store is a copy of another one
    "plan": 1,  # a recovery plan
    "directive": 1,  # an order to a driver
    "acknowledgement": 1,  # a driver has obeyed
    "statistics": 1,  # costs and sizes of partitions
}
OF_THE_RECORD = ("checksum", "kind", "version")


def encode(kind: str, content: Mapping[str, Any], version: int | None = None) -> bytes:
    """The bytes of a record of a known kind; the same content gives the same bytes.

    `content` is JSON with string keys and finite numbers, without the record's own fields. Where
    records of a kind are in another form as well, `version` says which one that is.
    """
    assert not set(content) & set(OF_THE_RECORD), "content has fields that belong to the record"
    record = {**content, "kind": kind, "version": version or VERSIONS[kind]}
    return canonical_line({**record, "checksum": _checksum(record)})


def decode(kind: str, data: bytes, where: str, version: int | None = None) -> dict[str, Any]:
    """The content of a record, without the record's own fields.

    Raises an error that names the place `where`: DamagedError when it is damaged or of another
    kind, RunError when it was written by another version than this one reads. The checksum is
    looked at first: a version that is not what was written was written by nobody.
    """
    try:
        record = json.loads(data)
        found = record.pop("checksum", None) if isinstance(record, dict) else None
        # What is too large for a number of JSON, or no character, has no line: nobody wrote it.
        checksum = _checksum(record)
    except (ValueError, RecursionError):
        raise _damaged(where, "is no JSON") from None
    if not isinstance(record, dict):
        raise _damaged(where, "is no JSON object")
    if record.get("kind") != kind:
        raise _damaged(where, f"is a record of kind {record.get('kind')!r}, not {kind!r}")
    if found != checksum:
        raise _damaged(where, "does not match its checksum")
    known = version or VERSIONS[kind]
    if record.get("version") != known:
        raise RunError(
            where=where,
            what=f"has version {record.get('version')!r} of {kind}, known is {known}",
            remedy="run the version of Rekindle that wrote it",
        )
    return {name: value for name, value in record.items() if name not in OF_THE_RECORD}


def _checksum(record: Mapping[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(canonical_line(record)).hexdigest()}"


def canonical_line(content: Mapping[str, Any]) -> bytes:
    """A line of canonical JSON."""
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return f"{text}\n".encode()


def _damaged(where: str, what: str) -> DamagedError:
    return DamagedError(
        where=where,
        what=what,
        remedy="restore it from a copy of the store, or start with an empty store",
    )
