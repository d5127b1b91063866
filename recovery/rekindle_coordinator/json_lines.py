"""A log of JSON objects, one per line, as every process of the control plane writes it.

    {"version": 1, "at": ..., "kind": "webhook-serves", ...}

`at` is seconds since 1970. It imports no more of the core than its errors, so the webhook's process
stays small;
`coordinator_log` adds the lines of decisions.
"""

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rekindle.model.errors import InputError

VERSION = 1


@dataclass(slots=True)
class JsonLineLog:
    """Lines are written whole and at once."""

    file: TextIO
    # a finalizer may write a line while its thread writes one
    lock: threading.RLock = field(default_factory=threading.RLock)

    def write(self, kind: str, **fields: Any) -> None:
        """Append one line."""
        record = {"version": VERSION, "at": time.time(), "kind": kind, **fields}
        line = json.dumps(record, ensure_ascii=False)
        with self.lock:
            self.file.write(f"{line}\n")
            self.file.flush()


def open_log(path: Path) -> TextIO:
    """The file that `--log` names, for lines to be appended. Raises InputError where it cannot be
    written."""
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(
            where=f"--log {path}",
            what=f"cannot be written ({error.strerror})",
            remedy="name a file in a folder that is there and may be written",
        ) from error
