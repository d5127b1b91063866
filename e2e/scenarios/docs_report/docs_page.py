"""The part of docs/e2e.md that is made from runs, and the pictures that it shows.

Decides what each file shall hold; writes none.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rekindle.model import run_events
from rekindle.model.errors import InputError
from rekindle_cli.report_html import report_text, svg_picture
from scenarios.docs_report import docs_tables
from scenarios.docs_report import scenario_folders as book_runs
from scenarios.docs_report.scenario_folders import FoundRuns, RecordedRun

PAGE = "e2e.md"
BEGIN = "<!-- made by `python -m scenarios book`: begin -->"
END = "<!-- made by `python -m scenarios book`: end -->"


def files(
    found: FoundRuns,
    docs: Path,
    kept: Path,
    losses: Mapping[str, str],
    pictured: Sequence[str],
) -> dict[Path, str]:
    """The content of each file of the folders `docs` and `kept`. Raises `InputError`."""
    fresh = {run.name: run for run in found.runs if run.directory}
    for name in pictured:
        if name not in fresh:
            raise InputError(
                where="--pictures",
                what=f"{name!r:.60} is no folder with a report.json",
                remedy=f"choose from {', '.join(fresh)}",
            )
    drawn = {docs / _picture_name(fresh[name]): _picture(fresh[name]) for name in pictured}
    shown = [run for run in found.runs if _is_shown(run, docs / _picture_name(run), drawn)]
    made = _part(found, losses, shown)
    return {
        docs / PAGE: _with_part(docs / PAGE, made),
        **drawn,
        **{kept / f"{run.name}.json": book_runs.kept_text(run) for run in found.runs},
    }


def _is_shown(run: RecordedRun, picture_path: Path, drawn: Mapping[Path, str]) -> bool:
    """Whether it has a picture: a new one, or that of a run that was kept."""
    return picture_path in drawn or (run.directory is None and picture_path.exists())


def _with_part(path: Path, made: str) -> str:
    """The document, with the part between the two marks replaced."""
    text = _text(path, "name the folder by --docs")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(
            where=str(path),
            what="has no place for the tables",
            remedy=f"put the lines {BEGIN} and {END} there",
        )
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def _part(found: FoundRuns, losses: Mapping[str, str], shown: Sequence[RecordedRun]) -> str:
    blocks = (
        docs_tables.outcomes(found, losses),
        docs_tables.bars(found),
        _conditions(found.runs),
        _missing(found),
        *(f"![{report_text.headline(_content(run))}]({_picture_name(run)})" for run in shown),
    )
    return "\n\n".join(block for block in blocks if block)


def _conditions(runs: Sequence[RecordedRun]) -> str:
    """What the figures were measured on, and where they do not count."""
    machines = _each(_machine(run.report.machine) for run in runs)
    commits = _each(f"`{run.report.commit[:12]}`" for run in runs)
    seeds = _each(str(run.report.seed) for run in runs)
    quotas = _each(f"{run.report.cpu_quota:g}" for run in runs)
    text = f"On {machines}; {quotas} cores for each executor; commit {commits}, seed {seeds}."
    unbounded = [run.name for run in runs if not run.report.quota_enforced]
    if unbounded:
        text += f" CPU quotas were not enforced, so times do not count: {', '.join(unbounded)}."
    return text


def _missing(found: FoundRuns) -> str:
    names = ", ".join(found.without_report)
    return f"Without a report, as they have failed or have not ended: {names}." if names else ""


def _machine(machine: Any) -> str:
    match machine:
        case {"cores": int(cores), "memory_bytes": int(memory), "system": str(system)}:
            return f"{system} with {cores} cores and {memory / 2**30:.1f} GiB"
    return str(machine)


def _each(found: Iterable[str]) -> str:
    return ", ".join(sorted(set(found)))


def _picture_name(run: RecordedRun) -> str:
    return f"e2e-{run.name}.svg"


def _picture(run: RecordedRun) -> str:
    assert run.directory is not None, "what was kept has no events"
    path = run.directory / "events.jsonl"
    events = run_events.parse(_text(path, "run the scenario again"), str(path))
    return svg_picture.draw(_content(run), events, f"{run.scenario}, {run.manner}")


def _text(path: Path, remedy: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            where=str(path), what=f"cannot be read ({error})", remedy=remedy
        ) from error


def _content(run: RecordedRun) -> dict[str, Any]:
    """The report as the parts of the page take it."""
    content: dict[str, Any] = msgspec.to_builtins(run.report)
    return content
