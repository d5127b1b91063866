"""`rekindle run`: drives one pipeline on a Spark cluster until it is asked to finish."""

import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from rekindle.errors import InputError
from rekindle.protocol import tree

__all__ = ["run"]

# Set for the Python program that spark-submit starts: where its JVM listens.
GATEWAY = "PYSPARK_GATEWAY_PORT"

Master = Annotated[
    str | None,
    typer.Option(
        help="Spark master, for example spark://HOST:7077.",
        show_default="what spark-submit was told, where it has started this",
    ),
]
Store = Annotated[
    str,
    typer.Option(
        metavar="PLACE", help="Checkpoint store: a folder all nodes share, or s3://BUCKET/PREFIX."
    ),
]
Events = Annotated[
    Path | None,
    typer.Option(
        help="Where events are written.",
        show_default="events.jsonl in the store's folder; here where it has none",
    ),
]
ClusterHasJar = Annotated[
    bool,
    typer.Option(
        envvar="REKINDLE_CLUSTER_HAS_JAR",
        help="The workers' class path has Rekindle's jar already.",
    ),
]
Sidecar = Annotated[
    Path | None,
    typer.Option(
        envvar="REKINDLE_SIDECAR_SOCKET",
        help="The sidecar's socket.",
        show_default="none: plans are made in here",
    ),
]
ApplicationName = Annotated[
    str | None,
    typer.Option(
        metavar="NAMESPACE/APPLICATION",
        help="Its name for the coordinator.",
        show_default="$REKINDLE_NAMESPACE/$REKINDLE_APPLICATION, default/application",
    ),
]


def run(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE.py",
            help="The file whose function pipeline() makes the pipeline; FILE.py:FUNCTION names "
            "another function.",
        ),
    ],
    store: Store,
    master: Master = None,
    settings: Annotated[
        Path | None,
        typer.Option(help="Settings in YAML (docs/settings.md).", show_default="all defaults"),
    ] = None,
    events: Events = None,
    cluster_has_jar: ClusterHasJar = False,
    sidecar: Sidecar = None,
    name: ApplicationName = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Spark option; may be given many times.", show_default=False
        ),
    ] = None,
) -> None:
    """Run a pipeline; a file named `finish` in the store ends it when all output is committed.

    Example: rekindle run flights.py --store /shared/flights --master spark://127.0.0.1:7077
    """
    _check_master(master, submitted=GATEWAY in os.environ)
    _check_sidecar(sidecar)
    place_options = _options(conf or [])
    from rekindle import settings as settings_module
    from rekindle_spark import driver, files, sampling

    sampling.begin("driver")
    wanted = settings_module.load(settings) if settings else settings_module.Settings()
    built = _load(pipeline)
    own = files.folder(store) or Path()
    files.check(store)
    _check_events(events or own / "events.jsonl", own)
    place = driver.Place(
        master=master,
        store=store,
        events=events or own / "events.jsonl",
        options=place_options,
        cluster_has_jar=cluster_has_jar,
        sidecar=sidecar,
        identity=_identity(name, os.environ),
    )
    driver.run(built, wanted, place)


def _check_master(master: str | None, *, submitted: bool) -> None:
    """Only a master whose executors are processes of their own; Spark itself checks the rest."""
    if submitted:
        if master is not None:
            raise InputError(
                where="--master",
                what="was said to spark-submit already",
                remedy="leave it out here",
            )
        return
    if master is None:
        raise InputError(
            where="--master",
            what="is missing",
            remedy="give spark://HOST:PORT or k8s://https://HOST:PORT, or start this with "
            "spark-submit",
        )
    if re.fullmatch(r"spark://[^\s/,]+:\d{1,5}(,[^\s/,]+:\d{1,5})*|k8s://\S+", master):
        return
    what = f"is {master!r:.60}"
    if master.startswith("local"):
        what += ", which has no executors that could be lost and come back"
    raise InputError(
        where="--master", what=what, remedy="give spark://HOST:PORT or k8s://https://HOST:PORT"
    )


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


def _check_events(path: Path, made: Path) -> None:
    """See that the event file can be written, and do not make it. Where its folder is that of the
    store, the driver makes it once it has accepted pipeline and settings."""
    if path.parent == made and not made.exists():
        return
    try:
        if path.exists():
            path.open("a").close()
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise InputError(
            where=f"event file {path}",
            what=f"cannot be written ({error.strerror})",
            remedy="name a place in a folder that is there and may be written",
        ) from error


def _identity(name: str | None, environment: Mapping[str, str]) -> tree.Place:
    """By the option, else as whoever put the sidecar beside us has said, else the default."""
    if name is not None:
        return tree.place(name)
    default = tree.DEFAULT
    return tree.Place(
        environment.get("REKINDLE_NAMESPACE") or default.namespace,
        environment.get("REKINDLE_APPLICATION") or default.application,
    ).checked()


def _check_sidecar(path: Path | None) -> None:
    """One that is not there yet may come; a file that is no socket never will be one."""
    if path is not None and path.exists() and not path.is_socket():
        raise InputError(
            where=f"--sidecar {path}",
            what="is no socket",
            remedy="name the file that `rekindle sidecar --socket` was given",
        )


def _options(conf: list[str]) -> dict[str, str]:
    options = {}
    for item in conf:
        key, equals, value = item.partition("=")
        if not equals:
            raise InputError(
                where=f"--conf {item:.60}", what="is not KEY=VALUE", remedy="write it as KEY=VALUE"
            )
        if not re.fullmatch(r"spark\.\S+", key):
            raise InputError(
                where=f"--conf {item:.60}",
                what="is no option of Spark",
                remedy="give a key that begins with `spark.`",
            )
        options[key] = value
    return options
