"""Reads the files beside a report into values; names what is missing or ill-formed.

Computes nothing. `check` calls it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle import events as run_events
from rekindle.errors import InputError
from rekindle.events import Event

__all__ = ["Evidence", "read"]

VERSION = 1
REMEDY = "restore the file from the run, or run the demo again"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A report and the records of the same run; `problems` and `answers` by plan number."""

    directory: Path
    report: Mapping[str, Any]
    events: tuple[Event, ...]
    input_record: Mapping[str, Any]
    problems: Mapping[int, Mapping[str, Any]]
    answers: Mapping[int, Mapping[str, Any]]
    sql: str


def read(directory: Path) -> Evidence:
    """Read a report's directory; InputError names the first file that cannot be used."""
    if not directory.is_dir():
        raise InputError(
            where=str(directory),
            what="is no directory",
            remedy="give the directory that `rekindle demo --report DIR` wrote",
        )
    _outputs(directory)
    return Evidence(
        directory=directory,
        report=_record(directory, "report.json"),
        events=run_events.parse(_text(directory, "events.jsonl")),
        input_record=_record(directory, "input.json"),
        problems=_numbered(directory, "problems"),
        answers=_numbered(directory, "answers"),
        sql=_text(directory, "queries.sql"),
    )


def _text(directory: Path, name: str) -> str:
    try:
        return (directory / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(where=name, what="is missing", remedy=REMEDY) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(where=name, what=f"cannot be read ({error})", remedy=REMEDY) from error


def _record(directory: Path, name: str) -> Mapping[str, Any]:
    try:
        record = json.loads(_text(directory, name))
    except ValueError as error:
        raise InputError(where=name, what=f"is no JSON ({error})", remedy=REMEDY) from error
    if not isinstance(record, dict):
        raise InputError(where=name, what="is no JSON object", remedy=REMEDY)
    if record.get("version") != VERSION:
        raise InputError(
            where=f"{name}: version",
            what=f"is {record.get('version')!r}, known is {VERSION}",
            remedy="verify with the release that wrote the report",
        )
    return record


def _numbered(directory: Path, folder: str) -> Mapping[int, Mapping[str, Any]]:
    names = sorted(path.name for path in (directory / folder).glob("*.json"))
    for name in names:
        if not name.removesuffix(".json").isdigit():
            raise InputError(
                where=f"{folder}/{name}",
                what="is not named by a number",
                remedy="name it after the `n` of its plan event",
            )
    return {
        int(name.removesuffix(".json")): _record(directory, f"{folder}/{name}") for name in names
    }


def _outputs(directory: Path) -> None:
    if not (directory / "outputs").is_dir():
        raise InputError(where="outputs", what="is missing", remedy=REMEDY)
