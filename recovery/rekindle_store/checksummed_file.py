"""Files of checkpoints: a line of JSON with checksums of itself and of the body behind it.

What is sealed is bytes, for who calls this to put into the store. Files of earlier versions have a
checksum of the body alone.

Rows of a keyed step that wait for a branch which is left out behind it are such files of Parquet.
The pages of output files have checksums of their own, but what a branch reads here decides later
output, and types and the watermark are in the metadata, which has none. Files of earlier versions
are Parquet alone. Which names they have: `checkpoint_records.waiting_rows`.

Formats: docs/formats.md.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pyarrow as pa

from rekindle.model.errors import DamagedError, RunError
from rekindle_store.output_rows import opened
from rekindle_store.store_files import Files
from rekindle_store.transfers import Moved, pieces, unwatched

REMEDY = "restore it from a copy of the store, or start with an empty store"
ROWS_VERSION = 1
PARQUET = b"PAR1"


def seal(version: int, head: Mapping[str, Any], body: bytes) -> bytes:
    """A file's content; `head` is JSON without `version` and `sha256`."""
    line = {"version": version, **head, "sha256": sha256(body).hexdigest()}
    return json.dumps({**line, "head_sha256": _sum_of(line)}).encode() + b"\n" + body


def load(
    files: Files, name: str, *versions: int, moved: Moved = unwatched
) -> tuple[dict[str, Any], memoryview]:
    """Head and body of a file of one of these versions, the newest last. `moved` is told of what
    has come.

    Raises DamagedError when it is absent or not what was written, RunError when another version has
    written it, OSError when the store cannot be read.
    """
    try:
        return check(name, files.read(name, moved), *versions, moved=moved)
    except FileNotFoundError:
        raise _damaged(name, "is not there") from None


def check(
    name: str, data: bytes, *versions: int, moved: Moved = unwatched
) -> tuple[dict[str, Any], memoryview]:
    """Head and body of a file's content, of any version where none is named. Raises what `load`
    raises of a file that is there."""
    end = data.find(b"\n")
    try:
        head = json.loads(data[: max(end, 0)])
        found, sum_of_body = head["version"], head["sha256"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _damaged(name, "has no line that says what it is") from None
    sum_of_head = head.pop("head_sha256", None)  # absent in files of earlier versions
    if sum_of_head not in (None, _sum_of(head)):
        raise _damaged(name, "does not match its checksum")
    if versions and found not in versions:
        raise RunError(
            where=name,
            what=f"has version {found!r}, known is {versions[-1]}",
            remedy="run the version of Rekindle that wrote it",
        )
    body = memoryview(data)[end + 1 :]
    digest = sha256()
    for piece in pieces(body, lambda _: moved(0)):
        digest.update(piece)
    if sum_of_body != digest.hexdigest():
        raise _damaged(name, "does not match its checksum")
    return head, body


def seal_rows(content: bytes) -> bytes:
    """The content of a file of waiting rows, from that of a Parquet file."""
    return seal(ROWS_VERSION, {}, content)


def check_rows(name: str, data: bytes) -> pa.Table:
    """The waiting rows of a file, with what was noted in their metadata. Raises DamagedError where
    it is not what was written, RunError when another version has written it."""
    is_sealed = not data.startswith(PARQUET)
    body = check(name, data, ROWS_VERSION)[1] if is_sealed else data
    return opened(name, body).table()


def _sum_of(head: Mapping[str, Any]) -> str:
    """Of a head without this sum itself; what JSON says in another way is the same head."""
    return sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def _damaged(name: str, what: str) -> DamagedError:
    return DamagedError(where=name, what=what, remedy=REMEDY)
