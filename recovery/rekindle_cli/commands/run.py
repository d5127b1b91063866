"""`rekindle run`: drives one pipeline on a Spark cluster until it is asked to finish."""

import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.errors import InputError
from rekindle.protocol import tree
from rekindle_cli import local_request, options
from rekindle_cli.local_request import LocalRequest
from rekindle_spark import masters

if TYPE_CHECKING:
    from rekindle_cli.run_view import View

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
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Checkpoint store: a folder all nodes share, or s3://BUCKET/PREFIX.",
        show_default="with --local PIPELINE-store; else it has to be given",
    ),
]
Local = Annotated[
    int | None,
    typer.Option(
        metavar="NODES",
        help="Run on a cluster of so many nodes on this machine, which ends with the run.",
        show_default=False,
    ),
]
KillAfter = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="With --local: kill nodes so long after all queries run, as 30s.",
        show_default=False,
    ),
]
Kill = Annotated[
    int | None,
    typer.Option(min=1, help="How many nodes --kill-after kills.", show_default="half of them"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")]
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
    store: Store = None,
    master: Master = None,
    local: Local = None,
    kill_after: KillAfter = None,
    kill: Kill = None,
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
    as_json: AsJson = False,
) -> None:
    """Run a pipeline; a file named `finish` in the store ends it when all output is committed.

    Example: rekindle run flights.py --store /shared/flights --master spark://127.0.0.1:7077
    """
    place_options = _options(conf or [])
    if local is not None:
        absent = {"--master": master, "--sidecar": sidecar, "--name": name, "--events": events}
        for option, value in absent.items():
            options.check_absent(option, value, "--local, which has its own")
        request = local_request.make(
            pipeline,
            store=store,
            nodes=local,
            settings=settings,
            conf=place_options,
            kill_after=kill_after,
            kill=kill,
        )
        _run_locally(request, as_json=as_json)
        return
    options.check_absent("--kill-after", kill_after, "no --local: only its nodes are ours to kill")
    options.check_absent("--kill", kill, "no --local: only its nodes are ours to kill")
    found = _required(store)
    masters.check(master, submitted=GATEWAY in os.environ)
    _check_sidecar(sidecar)
    place = _Place(found, master, events, sidecar, name, cluster_has_jar)
    _run_on_cluster(pipeline, settings, place, place_options, as_json=as_json)


def _required(store: str | None) -> str:
    if store is None:
        raise InputError(
            where="--store",
            what="is missing",
            remedy="name a folder that all nodes share, or s3://BUCKET/PREFIX",
        )
    return store


@dataclass(frozen=True, slots=True)
class _Place:
    """Options that say where the driver runs, as they were given."""

    store: str
    master: str | None
    events: Path | None
    sidecar: Path | None
    name: str | None
    cluster_has_jar: bool


def _run_on_cluster(
    pipeline: str,
    settings: Path | None,
    given: _Place,
    conf: dict[str, str],
    *,
    as_json: bool,
) -> None:
    """Be the driver of a pipeline on a cluster that exists."""
    from rekindle import settings as settings_module
    from rekindle_cli import run_view, shown_run
    from rekindle_spark import driver, files, sampling

    sampling.begin("driver")
    wanted = settings_module.load(settings) if settings else settings_module.Settings()
    built = _load(pipeline)
    own = files.folder(given.store) or Path()
    files.check(given.store)
    events = given.events or own / "events.jsonl"
    _check_events(events, own)
    place = driver.Place(
        master=given.master,
        store=given.store,
        events=events,
        options=conf,
        cluster_has_jar=given.cluster_has_jar,
        sidecar=given.sidecar,
        identity=_identity(given.name, os.environ),
    )
    view = run_view.make(wanted.runtime.nodes_expected, given.store, as_json=as_json)
    with ExitStack() as stack:
        if sys.stdout.isatty():
            log = Path(f"{Path(pipeline.partition(':')[0]).stem}-driver.log")
            stack.enter_context(shown_run.log_apart(log))
            view.say(f"what Spark prints is in {log}")
        stack.enter_context(shown_run.shown(events, view))
        driver.run(built, wanted, place, started=partial(_take_interrupts, given.store, view))
    _summarise(view)


def _take_interrupts(store: str, view: "View") -> None:
    from rekindle_cli import shown_run
    from rekindle_spark import files
    from rekindle_spark.store import SAVEPOINT_REQUEST

    shown_run.interrupts_end_in_order(lambda: files.at(store).put({SAVEPOINT_REQUEST: b""}), view)


def _summarise(view: "View") -> None:
    """Print what the whole run came to, where it is read by people."""
    from rekindle_cli.run_view import RunView

    if isinstance(view, RunView):
        for line in view.summary():
            print(line)


def _run_locally(request: LocalRequest, *, as_json: bool) -> None:
    """Run on a cluster of this machine; report what is wrong with the pipeline before it starts."""
    perform = local_request.performer()
    from rekindle import settings as settings_module
    from rekindle_cli import run_view
    from rekindle_spark import files, program

    chosen = request.settings
    if chosen:
        settings_module.load(chosen)
    program.build(_load(request.pipeline))
    files.check(request.store)
    view = run_view.make(request.nodes, request.store, as_json=as_json)
    perform(request, view)
    _summarise(view)


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
