"""`rekindle test`: runs a pipeline on given rows in this process, without a cluster."""

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.model.errors import InputError, RunError, StepError
from rekindle_cli import cli_options, pipeline_options
from rekindle_cli.pipeline_options import ImportSeconds, PipelineFile
from rekindle_spark.spark import spark_installation

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.table import Table

    from rekindle.model.settings import Settings
    from rekindle_cli.pipeline_file import LoadedPipeline
    from rekindle_spark.driver.epoch_cutter import Cut
    from rekindle_spark.pipeline.steps import Pipeline
    from rekindle_spark.testing import PipelineResult


CELL_MAX = 60


Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="SOURCE=FILE",
        help="Rows for a source, as .parquet, .csv or .jsonl; may be given many times.",
        show_default="the pipeline's own sources",
    ),
]
Rows = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Rows of all sources together at most, the earliest ones.",
        show_default="all that is given; 10,000 of the pipeline's own sources",
    ),
]
Epochs = Annotated[int, typer.Option(min=1, max=10_000, help="Epochs to cut them into.")]
Parallelism = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        help="Partitions of each source and keyed step.",
        show_default="as the pipeline says",
    ),
]
Show = Annotated[int, typer.Option(min=0, help="Rows of each query to show.")]
Output = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write QUERY.parquet for each query.", show_default="none"),
]
Expect = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Compare the queries with QUERY.parquet, .csv or .jsonl, in any order of rows.",
        show_default="none",
    ),
]
DeadLetterSettings = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        help="Settings in YAML; those of dead letters count.",
        show_default="all defaults",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def test(
    pipeline: PipelineFile,
    inputs: Inputs = None,
    rows: Rows = None,
    epochs: Epochs = 3,
    parallelism: Parallelism = None,
    show: Show = 10,
    output: Output = None,
    expect: Expect = None,
    settings: DeadLetterSettings = None,
    import_seconds: ImportSeconds = 10.0,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline on given rows in this process, without a cluster.

    It is the code that executors run, epoch by epoch and partition by partition. Each epoch runs
    twice, the second time as after a failure; a repeat that differs is an error.

    Example: rekindle test machines.py --input readings=readings.csv --epochs 5
    """
    from rekindle_cli import child_process

    spark_installation.check_pyspark()
    request = _Request(
        pipeline,
        inputs or [],
        settings,
        import_seconds,
        {"epochs": epochs, "parallelism": parallelism, "rows_max": rows},
    )
    results = _Results(show, output, expect, as_json)
    work = partial(_test, request, results)
    raise typer.Exit(child_process.run(pipeline_options.place(pipeline), work))


@dataclass(frozen=True, slots=True)
class _Request:
    """What to run: options as they were given."""

    pipeline: str
    inputs: Sequence[str]
    settings: Path | None
    import_seconds: float
    size: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Results:
    """What is wanted of the results: options as they were given."""

    show: int
    output: Path | None
    expect: Path | None
    as_json: bool


def _test(request: _Request, results: _Results) -> None:
    """Run the pipeline, show what it gives, and compare it."""
    loaded, tables, wanted = _loaded(request)
    expected = {} if results.expect is None else _expected(results.expect, loaded.pipeline)
    if results.output is not None:
        cli_options.made_directory("--output", results.output, "name another folder")
        _check_apart(results.output, results.expect)
    result = _run(loaded, tables, wanted, request.size)
    if results.output is not None:
        _write(results.output, result)
    if results.as_json:
        print(json.dumps(_record(loaded.pipeline, result, results.show), indent=2))
    else:
        _print(loaded.pipeline, result, request.size["epochs"], results.show)
    _compare(result, expected)


def _loaded(
    request: _Request,
) -> tuple["LoadedPipeline", dict[str, "pa.Table"], "Settings"]:
    """The pipeline with the tables for its sources, and the settings."""
    from rekindle.model import settings as settings_module
    from rekindle_cli import pipeline_file
    from rekindle_cli.guard import CallLimits

    chosen = request.settings
    wanted = settings_module.load(chosen) if chosen else settings_module.Settings()
    limits = CallLimits(request.import_seconds, "--import-seconds")
    loaded = pipeline_file.load(request.pipeline, limits)
    pipeline_file.show(loaded.findings)
    return loaded, _read_inputs(loaded.pipeline, request.inputs), wanted


def _run(
    loaded: "LoadedPipeline",
    tables: Mapping[str, "pa.Table"],
    settings: "Settings",
    size: Mapping[str, Any],
) -> "PipelineResult":
    """Run it, however long it takes, with notes of what takes long."""
    from rekindle_cli import pipeline_file
    from rekindle_cli.guard import NO_THREADS_IN_FUNCTIONS, CallLimits, guarded
    from rekindle_spark import testing

    guarding = guarded(
        f"pipeline file {loaded.path}",
        CallLimits(math.inf),
        remedy_for_threads=NO_THREADS_IN_FUNCTIONS,
    )
    with _progress(size["epochs"]) as say, guarding as guard:

        def progress(cut: "Cut", _: int) -> None:
            guard.renew()
            say(cut)

        try:
            result = testing.run(
                loaded.pipeline,
                tables,
                settings=settings.runtime,
                progress=progress,
                watchdog=guard.watchdog,
                **size,
            )
        except StepError as error:
            if isinstance(error.__cause__, Exception):
                raise
            # It would have ended this command, had it not run apart.
            raise InputError(
                where=error.where, what=error.what, remedy=error.remedy
            ) from error.__cause__
    pipeline_file.show(guard.findings)
    return result


def _read_inputs(pipeline: "Pipeline", inputs: Sequence[str]) -> dict[str, "pa.Table"]:
    from rekindle_cli import table_files
    from rekindle_spark.testing import check_times

    sources = {step.name: step for step in pipeline.steps.values() if step.kind == "source"}
    tables: dict[str, pa.Table] = {}
    for item in inputs:
        name, equals, file = item.partition("=")
        where = f"--input {item:.100}"
        if not equals or not file:
            raise InputError(where=where, what="is not SOURCE=FILE", remedy="write it like that")
        if name not in sources:
            remedy = f"name one of: {', '.join(sources)}"
            raise InputError(where=where, what=f"there is no source {name!r}", remedy=remedy)
        if name in tables:
            raise InputError(where=where, what=f"gives {name} again", remedy="give it once")
        schema, path = sources[name].schema, Path(file)
        assert schema is not None
        table = tables[name] = table_files.read(f"--input {name}", path, schema)
        check_times(
            f"--input {name}: {file}",
            table,
            sources[name].event_time,
            table_files.row_names(path, table.num_rows),
        )
    return tables


def _check_apart(output: Path, expect: Path | None) -> None:
    """Refuse to put the output of this run in the place of what it is compared with."""
    if expect is not None and output.samefile(expect):
        raise InputError(
            where=f"--output {output}",
            what="is the folder of --expect, whose tables would be replaced",
            remedy="name another folder",
        )


def _expected(folder: Path, pipeline: "Pipeline") -> dict[str, "pa.Table"]:
    """The tables of a folder by query; each of its files must be one's."""
    from rekindle_cli import table_files

    queries = {step.name: step for step in pipeline.steps.values() if step.kind == "sink"}
    where = f"--expect {folder}"
    if not folder.is_dir():
        raise InputError(where=where, what="is no folder", remedy="name one, see --output")
    tables: dict[str, pa.Table] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix not in table_files.ENDINGS:
            continue
        if file.stem not in queries:
            remedy = f"name files after queries: {', '.join(queries)}"
            raise InputError(where=f"{where}: {file.name}", what="is no query's", remedy=remedy)
        tables[file.stem] = table_files.read(where, file, queries[file.stem].schema)
    if not tables:
        remedy = f"put files into it that end in {', '.join(table_files.ENDINGS)}"
        raise InputError(where=where, what="holds no tables", remedy=remedy)
    return tables


def _write(folder: Path, result: "PipelineResult") -> None:
    from rekindle_cli import table_files

    for name, table in result.outputs.items():
        try:
            table_files.write(folder / f"{name}.parquet", table)
        except OSError as error:
            raise InputError(
                where=f"--output {folder}",
                what=f"cannot be written ({error.strerror or error})",
                remedy="name another folder",
            ) from error


@contextmanager
def _progress(epochs: int) -> Iterator[Callable[["Cut"], None]]:
    """On a terminal: which epoch is on its way."""
    from rich.console import Console

    # Written to the file that is standard error now: a guard puts another one in its place.
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("starting") as status:
        yield lambda cut: status.update(f"epoch {cut.epoch} of {epochs}, {cut.rows:,} rows")


def _queries(pipeline: "Pipeline") -> list[tuple[str, float]]:
    """Queries with their priorities, the most important first."""
    sinks = [step for step in pipeline.steps.values() if step.kind == "sink"]
    return sorted(((step.name, step.priority) for step in sinks), key=lambda query: -query[1])


def _beside(pipeline: "Pipeline", result: "PipelineResult") -> dict[str, "pa.Table"]:
    """What steps keep beside: dead letters and late rows."""
    queries = dict(_queries(pipeline))
    return {name: table for name, table in result.outputs.items() if name not in queries}


def _record(pipeline: "Pipeline", result: "PipelineResult", show: int) -> dict[str, Any]:
    from rekindle_store.committed_files import DEAD_LETTERS

    def shown(table: "pa.Table") -> dict[str, Any]:
        return {"rows": table.num_rows, "first": _rows(table, show)}

    beside = _beside(pipeline, result).items()
    return {
        "inputs": result.rows,
        "has_more": result.has_more,
        "late_rows": result.late_rows,
        "queries": [
            {"name": name, "priority": priority, **shown(result.outputs[name])}
            for name, priority in _queries(pipeline)
        ],
        "dead_letters": [
            {"name": name, **shown(table)} for name, table in beside if name.endswith(DEAD_LETTERS)
        ],
        "late": [
            {"name": name, **shown(table)}
            for name, table in beside
            if not name.endswith(DEAD_LETTERS)
        ],
    }


def _rows(table: "pa.Table", show: int) -> list[dict[str, Any]]:
    from rekindle_cli import table_files

    return [table_files.plain(row) for row in table_files.rows(table.slice(0, show))]


def _print(pipeline: "Pipeline", result: "PipelineResult", epochs: int, show: int) -> None:
    from rich.console import Console

    # Wider than any terminal, which wraps long lines. Columns that are cut to the width of a narrow
    # terminal would show one letter of each value.
    console = Console(width=10_000)
    read = [f"{_counted(rows)} of {name}" for name, rows in result.rows.items()]
    more = " (there are more)" if result.has_more else ""
    said = "an epoch" if epochs == 1 else f"{epochs:,} epochs"
    text = f"read {', '.join(read)}{more}, in {said}"
    console.print(text, highlight=False, markup=False)
    for step, rows in result.late_rows.items():
        if rows:
            text = f"step {step} dropped {_counted(rows)} that came too late"
            console.print(text, highlight=False, markup=False)
    for name, priority in _queries(pipeline):
        _print_table(console, f"{name}, priority {priority:g}", result.outputs[name], show)
    for name, table in _beside(pipeline, result).items():
        if table.num_rows:
            _print_table(console, name, table, show)


def _print_table(console: "Console", title: str, table: "pa.Table", show: int) -> None:
    text = f"\n{title}: {_counted(table.num_rows)}"
    if 0 < show < table.num_rows:
        text += f", the first {show:,}"
    console.print(text, highlight=False, markup=False, style="bold")
    if show and table.num_rows:
        console.print(_drawn(table, show))


def _drawn(table: "pa.Table", show: int) -> "Table":
    import pyarrow.types as kinds
    from rich import box
    from rich.table import Column, Table
    from rich.text import Text

    from rekindle_cli import table_files

    columns = [
        Column(
            Text(field.name),
            justify="right"
            if kinds.is_integer(field.type) or kinds.is_floating(field.type)
            else "left",
        )
        for field in table.schema
    ]
    drawn = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in table_files.rows(table.slice(0, show)):
        drawn.add_row(*(Text(_cell(value)) for value in row.values()))
    return drawn


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "" if value is None else str(value)
    text = "".join(sign if sign.isprintable() else "\ufffd" for sign in text)
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 3]}..."


def _counted(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"


def _compare(result: "PipelineResult", expected: Mapping[str, "pa.Table"]) -> None:
    """Raise RunError for the first query whose rows are not those that are expected."""
    for name, table in expected.items():
        wanted, found = (_counts(rows) for rows in (table, result.outputs[name]))
        missing, others = wanted - found, found - wanted
        if missing or others:
            first = next(iter(missing or others))
            side = "is missing" if missing else "is not expected"
            raise RunError(
                where=f"query {name}",
                what=f"{missing.total():,} of {wanted.total():,} expected rows are missing and "
                f"{others.total():,} others are there: {first} {side}",
                remedy="mend the pipeline, or write what is right now with --output",
            )


def _counts(table: "pa.Table") -> Counter[str]:
    """How often each row is there, as JSON."""
    return Counter(json.dumps(row) for row in _rows(table, table.num_rows))
