"""`rekindle run`: drives one pipeline on a Spark cluster until it is asked to finish."""

import os
import re
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.model.errors import InputError
from rekindle.protocol import store_paths
from rekindle_cli import cli_options, local_request, pipeline_options
from rekindle_cli.local_request import LocalRequest
from rekindle_cli.pipeline_options import PipelineFile, SettingsFile
from rekindle_spark.spark import spark_installation, spark_master

if TYPE_CHECKING:
    from rekindle.model.settings import Settings
    from rekindle_cli.guard import CallLimits
    from rekindle_cli.pipeline_file import LoadedPipeline
    from rekindle_cli.run_view import RunDisplay


# The exit code of a child that has found that there is nothing to try.
KNOWN_STORE = 3
# Set for the Python program that spark-submit starts: where its JVM listens.
GATEWAY = "PYSPARK_GATEWAY_PORT"
PLACE_REMEDY = "name a folder that all nodes share, or s3://BUCKET/PREFIX"

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
        show_default="none: --master names a cluster",
    ),
]
KillAfter = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="With --local: kill nodes so long after all queries run: 30s, 5m or 2h.",
        show_default="none are killed",
    ),
]
Kill = Annotated[
    int | None,
    typer.Option(min=1, help="How many nodes --kill-after kills.", show_default="half of them"),
]
Console = Annotated[
    bool, typer.Option("--console", help="With --local: serve the web console (docs/console.md).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")]
Events = Annotated[
    Path | None,
    typer.Option(
        help="Where events are written.",
        show_default="events.jsonl in the store's folder; for a bucket, in this folder",
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
ImportSeconds = Annotated[float, pipeline_options.import_seconds("REKINDLE_IMPORT_SECONDS")]
Check = Annotated[
    bool,
    typer.Option("--check/--no-check", help="Call functions with the first rows beforehand."),
]


def run(
    pipeline: PipelineFile,
    store: Store = None,
    master: Master = None,
    local: Local = None,
    kill_after: KillAfter = None,
    kill: Kill = None,
    console: Console = False,
    settings: SettingsFile = None,
    events: Events = None,
    cluster_has_jar: ClusterHasJar = False,
    sidecar: Sidecar = None,
    name: ApplicationName = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Spark option; may be given many times.", show_default="none"
        ),
    ] = None,
    import_seconds: ImportSeconds = 120.0,
    check: Check = True,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline; a file named `finish` in the store ends it when all output is committed.

    Example: rekindle run flights.py --store /shared/flights --master spark://127.0.0.1:7077
    """
    place_options = _options(conf or [])
    checking = _Checking(pipeline, import_seconds, call=check)
    if store is not None and not store.strip():
        raise InputError(
            where="--store", what="is empty", remedy=f"{PLACE_REMEDY}, or leave it out"
        )
    if local is not None:
        absent = {"--master": master, "--sidecar": sidecar, "--name": name, "--events": events}
        for option, value in absent.items():
            cli_options.check_absent(option, value, "--local, which has its own")
        request = local_request.make(
            pipeline,
            store=store,
            nodes=local,
            settings=settings,
            conf=place_options,
            kill_after=kill_after,
            kill=kill,
            console=console,
        )
        # The cluster of this machine has a Spark of its own.
        spark_installation.check(None)
        _run_locally(request, checking, as_json=as_json)
        return
    _check_absent(kill_after, kill, console)
    identity = _identity(name, sidecar)
    place = _Place(_required(store), master, events, sidecar, identity, cluster_has_jar)
    is_submitted = GATEWAY in os.environ
    spark_master.check(master, submitted=is_submitted)
    if not is_submitted:
        spark_installation.check(os.environ.get("SPARK_HOME"))
    _check_sidecar(sidecar)
    _run_on_cluster(checking, settings, place, place_options, as_json=as_json)


def _check_absent(kill_after: str | None, kill: int | None, console: bool) -> None:
    why = "no --local: only its nodes are ours to kill"
    cli_options.check_absent("--kill-after", kill_after, why)
    cli_options.check_absent("--kill", kill, why)
    cli_options.check_absent(
        "--console", console or None, "no --local: elsewhere a coordinator has it"
    )


def _identity(name: str | None, sidecar: Path | None) -> store_paths.Place:
    identity = store_paths.place_of_driver(name, os.environ)
    if sidecar is None:
        why = "no --sidecar: without one no coordinator knows of the driver"
        cli_options.check_absent("--name", name, why)
    return identity


def _required(store: str | None) -> str:
    if store is None:
        raise InputError(
            where="--store",
            what="is missing",
            remedy=PLACE_REMEDY,
        )
    return store


@dataclass(frozen=True, slots=True)
class _Place:
    """Options that say where the driver runs, as they were given."""

    store: str
    master: str | None
    events: Path | None
    sidecar: Path | None
    identity: store_paths.Place
    cluster_has_jar: bool


@dataclass(frozen=True, slots=True)
class _Checking:
    """A pipeline as it was named, and how it is checked before anything is started.

    `call`: whether its functions are called with the first rows.
    """

    pipeline: str
    import_seconds: float
    call: bool

    def load(self, store: str, settings: "Settings") -> "LoadedPipeline":
        """Make the pipeline; print all that can be known of it. Raises InputError for an error.

        For a new store all of it is tried in a process of its own first, functions too. A driver
        that starts again has to bring back the queries that are well, and soon.
        """
        from rekindle_cli import child_process

        place = pipeline_options.place(self.pipeline)
        code = self.call and child_process.run(place, partial(self._try, store, settings))
        if code not in (0, KNOWN_STORE):
            raise typer.Exit(code)  # what is wrong has been said
        from rekindle_cli import pipeline_file
        from rekindle_store import store_files

        is_tried = self.call and code == 0
        loaded = pipeline_file.load(self.pipeline, self._limits(), is_quiet=is_tried)
        if not is_tried:
            store_files.check(store)
            pipeline_file.refuse_errors(pipeline_file.check_uncalled(loaded, settings))
        return loaded

    def _try(self, store: str, settings: "Settings") -> int:
        """Check all that there is, and print what is found; 0 where it may run."""
        from rekindle_cli import pipeline_file
        from rekindle_spark.checks import CheckSeverity
        from rekindle_store import store_files

        store_files.check(store)
        if not pipeline_file.is_new(store):
            return KNOWN_STORE
        loaded = pipeline_file.load(self.pipeline, self._limits())
        found = pipeline_file.check(loaded, settings, slow=CheckSeverity.WARNING)
        pipeline_file.refuse_errors(found)
        return 0

    def _limits(self) -> "CallLimits":
        from rekindle_cli.guard import CallLimits

        return CallLimits(self.import_seconds, "--import-seconds")


def _run_on_cluster(
    checking: _Checking,
    settings: Path | None,
    given: _Place,
    conf: dict[str, str],
    *,
    as_json: bool,
) -> None:
    """Be the driver of a pipeline on a cluster that exists."""
    from rekindle.model import settings as settings_module
    from rekindle_store import store_files

    spark_installation.replace_ascii_locale()
    wanted = settings_module.load(settings) if settings else settings_module.Settings()
    own = store_files.folder(given.store) or Path()
    loaded = checking.load(given.store, wanted)
    # Only now, for these start threads, and with threads a process cannot fork.
    from rekindle_cli import run_view
    from rekindle_spark.driver import driver_main
    from rekindle_spark.executor import stack_sampler

    stack_sampler.begin("driver")
    events = given.events or own / "events.jsonl"
    _check_events(events, own)
    place = driver_main.DriverPlace(
        master=given.master,
        store=given.store,
        events=events,
        options=conf,
        cluster_has_jar=given.cluster_has_jar,
        sidecar=given.sidecar,
        identity=given.identity,
    )
    view = run_view.make(wanted.runtime.nodes_expected, given.store, as_json=as_json)
    _say_if_it_ends(given.store, view)
    with ExitStack() as stack:
        if sys.stdout.isatty():
            log = Path(f"{loaded.path.stem}-driver.log")
            stack.enter_context(run_view.log_apart(log))
            view.note("what Spark prints", str(log))
        stack.enter_context(run_view.shown(events, view))
        view.await_next(f"Spark at {given.master}" if given.master else "Spark")
        driver_main.run(
            loaded.pipeline, wanted, place, started=partial(_spark_is_there, given.store, view)
        )
    _summarise(view)


def _say_if_it_ends(store: str, view: "RunDisplay") -> None:
    """A store that was asked to finish keeps the request, and each later run ends by it too."""
    from rekindle_spark.store.checkpoint_store import FINISH_REQUEST
    from rekindle_store import store_files

    is_asked = False
    with suppress(OSError):  # the driver makes a store that is not there, and waits for one away
        is_asked = store_files.exists(store_files.at(store), FINISH_REQUEST)
    if is_asked:
        view.say(
            f"{store} has a file named {FINISH_REQUEST}: the run ends once all output is "
            f"committed; to begin again, name another --store, or remove {FINISH_REQUEST} from it"
        )


def _spark_is_there(store: str, view: "RunDisplay") -> None:
    from rekindle_cli import run_view
    from rekindle_spark.store.checkpoint_store import SAVEPOINT_REQUEST
    from rekindle_store import store_files

    view.await_next(run_view.HOSTS)
    run_view.interrupts_end_in_order(
        lambda: store_files.at(store).put({SAVEPOINT_REQUEST: b""}), view
    )


def _summarise(view: "RunDisplay") -> None:
    """Print what the whole run came to, where it is read by people."""
    from rekindle_cli.run_view import RunView

    if isinstance(view, RunView):
        for line in view.summary():
            print(line)


def _run_locally(request: LocalRequest, checking: _Checking, *, as_json: bool) -> None:
    """Run on a cluster of this machine; report what is wrong with the pipeline before it starts."""
    from rekindle.model import settings as settings_module

    spark_installation.replace_ascii_locale()
    chosen = request.settings
    wanted = settings_module.load(chosen) if chosen else settings_module.Settings()
    wanted = replace(wanted, runtime=replace(wanted.runtime, nodes_expected=request.nodes))
    checking.load(request.store, wanted)
    perform = local_request.performer()
    from rekindle_cli import run_view
    from rekindle_store import store_files

    store_files.check_room(request.store)

    view = run_view.make(request.nodes, request.store, as_json=as_json)
    _say_if_it_ends(request.store, view)
    perform(request, view)
    _summarise(view)


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
