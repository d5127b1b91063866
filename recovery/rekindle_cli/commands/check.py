"""`rekindle check`: says what is wrong with a pipeline before it runs, without a cluster."""

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.model.errors import InputError, printable
from rekindle_cli import pipeline_options
from rekindle_cli.pipeline_options import ImportSeconds, PipelineFile, SettingsFile

if TYPE_CHECKING:
    from rekindle_spark.checks.check_findings import CheckFinding


IMPORT_SECONDS = 10.0
# What takes long is given up so long after the start, to have an answer on a busy machine too.
SECONDS_MAX = 10.0


def check(
    pipeline: PipelineFile,
    settings: SettingsFile = None,
    import_seconds: ImportSeconds = IMPORT_SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what is wrong with a pipeline before it runs, without a cluster.

    Its functions are called with no rows and with the first rows of its sources. The exit code is
    2 where there is an error, 0 where there are only warnings.

    Example: rekindle check machines.py --settings settings.yaml
    """
    from rekindle_cli import child_process
    from rekindle_spark.spark import spark_installation

    work = partial(
        _check, pipeline, settings, import_seconds, as_json=as_json, began=time.monotonic()
    )
    try:
        spark_installation.check_pyspark()
        code = child_process.run(pipeline_options.place(pipeline), work)
    except InputError as error:
        from rekindle_spark.checks.check_findings import of_error

        code = _show(pipeline, [of_error(error)], {}, as_json=as_json)
    raise typer.Exit(code)


def _check(
    pipeline: str, settings: Path | None, import_seconds: float, *, as_json: bool, began: float
) -> int:
    """Check it and print what is found; the exit code."""
    from rekindle.model import settings as settings_module
    from rekindle_cli import pipeline_file
    from rekindle_cli.guard import CallLimits
    from rekindle_spark.checks.check_findings import CheckFinding, of_error

    limits = CallLimits(import_seconds, "--import-seconds")
    ends_at = began + SECONDS_MAX
    if import_seconds == IMPORT_SECONDS:
        limits = replace(limits, ends_at=ends_at)
    found: list[CheckFinding] = []
    described: dict[str, Any] = {}
    wanted = settings_module.Settings()
    try:
        wanted = settings_module.load(settings) if settings else wanted
    except InputError as error:
        found += map(of_error, error.each)
    try:
        loaded = pipeline_file.load(pipeline, limits)
    except InputError as error:
        found.append(of_error(error))
    else:
        found += pipeline_file.check(loaded, wanted, ends_at=ends_at)
        described = _described(loaded.pipeline)
    return _show(pipeline, found, described, as_json=as_json)


def _show(
    argument: str, found: list["CheckFinding"], described: dict[str, Any], *, as_json: bool
) -> int:
    """Print what is found of a pipeline; the exit code."""
    from rekindle_cli import pipeline_file
    from rekindle_spark.checks.check_findings import has_errors

    if as_json:
        findings = [
            {
                "severity": finding.severity.value,
                "where": finding.where,
                "what": finding.what,
                "remedy": finding.remedy,
            }
            for finding in found
        ]
        print(json.dumps({"findings": findings, "pipeline": described}, indent=2))
    else:
        pipeline_file.show(found)
        print(printable(_summary(argument, found, described)))
    return 2 if has_errors(found) else 0


def _described(pipeline: Any) -> dict[str, Any]:
    """How much a pipeline is."""
    steps = pipeline.steps.values()
    return {
        "name": pipeline.name,
        "sources": sum(step.kind == "source" for step in steps),
        "steps": sum(step.kind not in ("source", "sink") for step in steps),
        "queries": sum(step.kind == "sink" for step in steps),
        "partitions": sum(step.parallelism for step in steps if step.kind in ("source", "keyed")),
    }


def _summary(argument: str, found: list["CheckFinding"], described: dict[str, Any]) -> str:
    errors = sum(finding.severity == "error" for finding in found)
    counts = [_counted(errors, "error"), _counted(len(found) - errors, "warning")]
    said = " and ".join(count for count in counts if count) or "nothing is wrong"
    if not described:
        return f"{argument}: {said}"
    nouns = {"sources": "source", "steps": "step", "queries": "query", "partitions": "partition"}
    parts = (_counted(described[key], noun) for key, noun in nouns.items())
    return f"{argument}: {said} ({', '.join(part for part in parts if part)})"


def _counted(number: int, noun: str) -> str:
    if number == 0:
        return ""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
