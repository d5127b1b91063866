"""Reads the folders of scenarios: NAME or NAME-ANYTHING, with report.json, and figures.json if any.

    figures.json    {"version": 1,
                     "figures": {"silent node to plan": {"value": 21.4, "unit": "s", "bar": 30.0}}}

A figure meets its bar when it is not above it. What is shown of a run is kept as NAME.json, so that
not all runs need to be of one day: a run with a folder replaces one that was kept. `docs_tables`
and `docs_page` get what was read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from rekindle.model.errors import InputError
from scenarios import strategies

Kind = TypeVar("Kind")

# Of report.json, of figures.json, and of what is kept of them.
VERSION = 1
PIPELINE = "pipeline"
SPARK_ALONE_SHOWN = "Spark alone"


class Versioned(msgspec.Struct, frozen=True):
    """Any of these files, before it is known whether the rest can be read."""

    version: int | None = None


class ReportedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of report.json (docs/report.md), as far as it is shown."""

    priority: float
    survived: bool
    unavailable: tuple[tuple[float, float], ...]
    unavailable_seconds: float
    back_at: float | None


class Return(msgspec.Struct, frozen=True):
    """An executor that has come after the failure."""

    node: str
    at: float


class ReportedPlan(msgspec.Struct, frozen=True):
    """A plan, when it was made and which queries it brings back."""

    at: float
    queries: tuple[str, ...]


class ExactlyOnce(msgspec.Struct, frozen=True):
    """How the rows compare with the batch answer."""

    expected_rows: int
    missing: int
    duplicated: int
    wrong: int


class ScenarioReport(msgspec.Struct, frozen=True, kw_only=True):
    """report.json (docs/report.md), as far as it is shown."""

    version: int
    commit: str
    seed: int
    machine: Any
    strategy: str
    engine: str
    nodes: Annotated[int, msgspec.Meta(ge=1)]
    killed: int
    victims: tuple[str, ...]
    returns: tuple[Return, ...]
    end: float
    quota_enforced: bool
    cpu_quota: float
    queries: dict[str, ReportedQuery]
    weighted_unavailable_seconds: float
    weighted_unavailable_seconds_bound: float | None
    first_plan_seconds: float | None = None
    plans: tuple[ReportedPlan, ...]
    exactly_once: ExactlyOnce
    throughput_rows_per_second: float | None = None  # runs that were kept before have none


class Figure(msgspec.Struct, frozen=True):
    """A figure that report.json does not have; `bar` is the most that it may be."""

    value: float
    unit: str
    bar: float | None = None


class ScenarioFigures(msgspec.Struct, frozen=True):
    """figures.json."""

    version: int
    figures: dict[str, Figure]


class KeptRun(msgspec.Struct, frozen=True):
    """What NAME.json has of a run."""

    version: int
    report: ScenarioReport
    figures: dict[str, Figure]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A scenario that has ended; its folder, unless it is one that was kept."""

    scenario: str
    name: str
    report: ScenarioReport
    figures: Mapping[str, Figure] = field(default_factory=dict)
    directory: Path | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is what others are compared with."""
        return (self.report.engine, self.report.strategy) == (PIPELINE, strategies.INCREMENTAL)

    @property
    def manner(self) -> str:
        """By what the queries came back, in a word or two."""
        if self.report.engine == PIPELINE:
            return self.report.strategy
        return (
            SPARK_ALONE_SHOWN
            if self.report.engine == strategies.SPARK_ALONE
            else self.report.engine
        )


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Runs in the order of their scenarios, ours first, and folders of others without a report."""

    runs: tuple[RecordedRun, ...]
    without_report: tuple[str, ...]

    def beside(self, run: RecordedRun, manner: str) -> RecordedRun | None:
        """The run of the same scenario and seed in another manner."""
        return next(
            (
                other
                for other in self.runs
                if (other.scenario, other.report.seed) == (run.scenario, run.report.seed)
                and other.manner == manner
            ),
            None,
        )


def read(report: Path, kept: Path, scenarios: Sequence[str]) -> FoundRuns:
    """Read all folders in `report`, and what is kept of other runs in the folder `kept`.

    InputError names the first file or folder that is not as it should be.
    """
    try:
        runs, without_report = _runs(report, scenarios)
        kept_runs = _kept_runs(kept, scenarios)
    except OSError as error:
        raise InputError(
            where=str(error.filename or report),
            what=f"cannot be read ({error.strerror})",
            remedy="let this user read it, or name other folders by --report and --docs",
        ) from error
    if not runs:
        raise InputError(
            where=f"--report {report}",
            what="has no folder of a scenario with a report.json",
            remedy="run `python -m scenarios` first",
        )
    known = {run.name for run in runs}
    runs += [run for run in kept_runs if run.name not in known]
    runs.sort(key=lambda run: (scenarios.index(run.scenario), not run.is_ours, run.name))
    _check_different(runs)
    return FoundRuns(tuple(runs), tuple(without_report))


def kept_text(run: RecordedRun) -> str:
    """The content of the file that keeps a run."""
    content = msgspec.json.encode(KeptRun(VERSION, run.report, dict(run.figures)))
    return msgspec.json.format(content, indent=1).decode() + "\n"


def _runs(report: Path, scenarios: Sequence[str]) -> tuple[list[RecordedRun], list[str]]:
    """The runs in a folder, and names of those that have no report. Raises `OSError`."""
    if not report.is_dir():
        raise InputError(
            where=f"--report {report}", what="is no folder", remedy="name that of a run"
        )
    runs, without_report = [], []
    for folder in sorted(path for path in report.iterdir() if path.is_dir()):
        scenario = _scenario(folder.name, scenarios)
        has_report = (folder / "report.json").exists()
        if scenario and has_report:
            runs.append(_run(folder, scenario))
        elif scenario:
            without_report.append(folder.name)
        elif has_report:
            raise InputError(
                where=str(folder),
                what="is named after no scenario",
                remedy=f"name it {' or '.join(scenarios)}, or one of these with -ANYTHING",
            )
    return runs, without_report


def _kept_runs(kept: Path, scenarios: Sequence[str]) -> list[RecordedRun]:
    """A scenario that is there no more is shown no more."""
    runs = []
    for path in sorted(kept.glob("*.json")):
        scenario = _scenario(path.stem, scenarios)
        if scenario:
            found = _decoded(path, KeptRun)
            _check_version(f"{path}: report", found.report.version)
            runs.append(RecordedRun(scenario, path.stem, found.report, found.figures))
    return runs


def _scenario(folder: str, scenarios: Sequence[str]) -> str | None:
    """The longest name of which the folder's is made."""
    named = [name for name in scenarios if folder == name or folder.startswith(f"{name}-")]
    return max(named, key=len, default=None)


def _run(folder: Path, scenario: str) -> RecordedRun:
    report = _decoded(folder / "report.json", ScenarioReport)
    path = folder / "figures.json"
    figures = _decoded(path, ScenarioFigures).figures if path.exists() else {}
    return RecordedRun(scenario, folder.name, report, figures, folder)


def _decoded(path: Path, kind: type[Kind]) -> Kind:
    try:
        content = path.read_bytes()
        _check_version(str(path), msgspec.json.decode(content, type=Versioned).version)
        return msgspec.json.decode(content, type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _bad(str(path), f"cannot be read ({error})") from error


def _check_version(where: str, version: int | None) -> None:
    if version != VERSION:
        told = "no version" if version is None else f"version {version}"
        raise _bad(where, f"has {told}, known is {VERSION}")


def _check_different(runs: Sequence[RecordedRun]) -> None:
    seen: dict[tuple[str, str, int], str] = {}
    for run in runs:
        key = (run.scenario, run.manner, run.report.seed)
        if key in seen:
            raise InputError(
                where=run.name,
                what=f"is {run.manner} of {run.scenario} with seed {run.report.seed}, "
                f"and so is {seen[key]}",
                remedy="remove one of them",
            )
        seen[key] = run.name


def _bad(where: str, what: str) -> InputError:
    return InputError(where=where, what=what, remedy="restore the file, or run the scenario again")
