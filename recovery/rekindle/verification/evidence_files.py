"""Reads the files beside a report into values; names missing, ill-formed and foreign files.

Computes nothing. `report_check` calls it; it and `batch_check` read output files themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.model import run_events, strict_json
from rekindle.model.errors import InputError
from rekindle.model.run_events import Event
from rekindle.report.input_record import Inputs

VERSION = 1
REMEDY = "restore the file from the run, or run the demo again"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A report and the records of the same run; `problems` and `answers` by plan number."""

    directory: Path
    report: Mapping[str, Any]
    events: tuple[Event, ...]
    input_record: Mapping[str, Any]
    inputs: Inputs
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
    report = _record(directory, "report.json")
    input_record = _record(directory, "input.json")
    inputs = Inputs.from_record(input_record)
    _check_outputs(directory, inputs)
    return Evidence(
        directory=directory,
        report=report,
        events=run_events.parse(_text(directory, "events.jsonl")),
        input_record=input_record,
        inputs=inputs,
        problems=_numbered(directory, "problems"),
        answers=_numbered(directory, "answers"),
        sql=_text(directory, "queries.sql"),
    )


def output_file(directory: Path, query_partition: str) -> Path:
    """Where the rows of a query partition lie."""
    return directory / "outputs" / f"{query_partition}.parquet"


def foreign_outputs(directory: Path, inputs: Inputs) -> list[str]:
    """Name what lies below `outputs/` and belongs to no query partition of the run."""
    folders = {directory / "outputs" / query for query in inputs.priorities}
    found = set((directory / "outputs").rglob("*")) - folders
    found -= {output_file(directory, name) for name in _query_partitions(inputs)}
    return sorted(path.relative_to(directory).as_posix() for path in found)


def _query_partitions(inputs: Inputs) -> list[str]:
    return [name for query in sorted(inputs.priorities) for name in inputs.partitions(query)]


def _check_outputs(directory: Path, inputs: Inputs) -> None:
    """Every query partition has its file, one without rows too; a lost file is no lost row."""
    for file in (output_file(directory, name) for name in _query_partitions(inputs)):
        for path in (file.parent.parent, file.parent, file):
            if not path.exists():
                name = path.relative_to(directory).as_posix()
                raise InputError(where=name, what="is missing", remedy=REMEDY)


def _text(directory: Path, name: str) -> str:
    try:
        return (directory / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(where=name, what="is missing", remedy=REMEDY) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(where=name, what=f"cannot be read ({error})", remedy=REMEDY) from error


def _record(directory: Path, name: str) -> Mapping[str, Any]:
    record = strict_json.read(_text(directory, name).encode(), name, REMEDY)
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
