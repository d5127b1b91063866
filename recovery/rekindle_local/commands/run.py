"""`rekindle run`: drives one pipeline on a Spark cluster until it is asked to finish."""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from rekindle.errors import InputError

__all__ = ["run"]


def run(
    pipeline: Annotated[
        str,
        typer.Argument(help="FILE.py or FILE.py:FUNCTION, which makes a Pipeline."),
    ],
    store: Annotated[Path, typer.Option(help="Checkpoint store: a folder all nodes share.")],
    master: Annotated[str, typer.Option(help="Spark master, for example spark://HOST:7077.")],
    settings: Annotated[Path | None, typer.Option(help="Settings in YAML.")] = None,
    events: Annotated[Path | None, typer.Option(help="Where events.jsonl is written.")] = None,
    cluster_has_jar: Annotated[
        bool, typer.Option(help="The workers' class path has Rekindle's jar already.")
    ] = False,
    conf: Annotated[list[str] | None, typer.Option(help="Spark option KEY=VALUE.")] = None,
) -> None:
    """Run a pipeline; a file named `finish` in the store ends it when all output is committed.

    Example: rekindle run flights.py --store /shared/flights --master spark://127.0.0.1:7077
    """
    from rekindle import settings as settings_module
    from rekindle_spark import driver

    wanted = settings_module.load(settings) if settings else settings_module.Settings()
    built = _load(pipeline)
    _prepare(store, events or store / "events.jsonl")
    place = driver.Place(
        master=master,
        store=store,
        events=events or store / "events.jsonl",
        options=_options(conf or []),
        cluster_has_jar=cluster_has_jar,
    )
    driver.run(built, wanted, place)


def _load(argument: str) -> Any:
    """The pipeline that a file's function makes; hosts get the file's code by value."""
    from pyspark import cloudpickle

    path_text, _, name = argument.partition(":")
    path = Path(path_text)
    if not path.is_file():
        raise InputError(
            where=f"pipeline file {path}", what="is not there", remedy="name a Python file"
        )
    module = _import(path)
    function = getattr(module, name or "pipeline", None)
    if not callable(function):
        raise InputError(
            where=f"pipeline file {path}",
            what=f"has no function {name or 'pipeline'!r}",
            remedy="define it, without parameters, to return a rekindle_spark.pipeline.Pipeline",
        )
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return _call(function, path)


def _import(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location("rekindle_pipeline", path)
    if specification is None or specification.loader is None:
        raise InputError(
            where=f"pipeline file {path}",
            what="does not end in .py",
            remedy="name a Python file",
        )
    module = importlib.util.module_from_spec(specification)
    sys.modules["rekindle_pipeline"] = module
    try:
        specification.loader.exec_module(module)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise _wrong(path, "cannot be imported", error) from error
    return module


def _call(function: Callable[[], Any], path: Path) -> Any:
    from rekindle_spark.pipeline import Pipeline

    try:
        built = function()
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise _wrong(path, f"{function.__name__}() failed", error) from error
    if not isinstance(built, Pipeline):
        raise InputError(
            where=f"pipeline file {path}",
            what=f"{function.__name__}() gave a {type(built).__name__}",
            remedy="return a rekindle_spark.pipeline.Pipeline",
        )
    return built


def _wrong(path: Path, what: str, error: BaseException) -> InputError:
    cause = " ".join(f"{type(error).__name__}: {error}".split())
    return InputError(
        where=f"pipeline file {path}", what=f"{what}: {cause}", remedy="mend the file"
    )


def _prepare(store: Path, events: Path) -> None:
    """Make the store's folder and see that the event file can be written."""
    attempts: tuple[tuple[str, Path, Callable[[], None]], ...] = (
        ("checkpoint store", store, lambda: store.mkdir(parents=True, exist_ok=True)),
        ("event file", events, lambda: events.open("a").close()),
    )
    for where, path, attempt in attempts:
        try:
            attempt()
        except OSError as error:
            raise InputError(
                where=f"{where} {path}",
                what=f"cannot be written ({error.strerror})",
                remedy="name a place in a folder that is there and may be written",
            ) from error


def _options(conf: list[str]) -> dict[str, str]:
    options = {"spark.pyspark.python": sys.executable}
    if "PYTHONPATH" in os.environ:
        options["spark.executorEnv.PYTHONPATH"] = os.environ["PYTHONPATH"]
    for item in conf:
        key, equals, value = item.partition("=")
        if not equals:
            raise InputError(
                where=f"--conf {item}", what="is not KEY=VALUE", remedy="write it as KEY=VALUE"
            )
        options[key] = value
    return options
