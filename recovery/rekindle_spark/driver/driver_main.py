"""The driver of one pipeline: opens the store, starts Spark, runs the epoch loop to its end.

    run(pipeline, settings, place) -> when the input has ended and everything is finished

What earlier drivers of the same store left is gone on with: their offsets are run again exactly,
from the newest global checkpoint, with the partitions of important queries first.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, TextIO

from rekindle import coordination
from rekindle.coordination import coordination_state
from rekindle.coordination.directive_acceptance import AcceptedDirectives
from rekindle.model.errors import InputError, RekindleError
from rekindle.model.settings import ADAPTIVE, COMPACTED, LINKS, Settings
from rekindle.model.switch_mode import OFF, ON
from rekindle.protocol import store_paths
from rekindle_spark.checkpoint import savepoint_upgrade
from rekindle_spark.checkpoint.checkpoint_coordinator import CheckpointCoordinator
from rekindle_spark.control import sidecar_client
from rekindle_spark.control.control_loop import ControlLoop
from rekindle_spark.control.coordinator_client import CoordinatorClient
from rekindle_spark.control.report_builder import ReportBuilder, topology_report
from rekindle_spark.control.sidecar_client import SidecarClient
from rekindle_spark.driver import driver_clock, epoch_cutter, source_polls, stopped_branches
from rekindle_spark.driver.catch_up_loop import CatchUpLoop
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.driver.epoch_cutter import Cut, EpochCutter
from rekindle_spark.driver.epoch_loop import EpochLoop
from rekindle_spark.driver.event_log import EventLog, open_events
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.driver.source_intake import Intake, Intakes
from rekindle_spark.driver.source_polls import SourcePolls
from rekindle_spark.executor import work_items
from rekindle_spark.flow_control.catch_up_pace import CatchUpThrottle
from rekindle_spark.flow_control.memory_budget import MemoryBudget
from rekindle_spark.output import dead_letters, lag_goals, output_commit, sink_declarations
from rekindle_spark.output.lag_goals import LagGoals
from rekindle_spark.output.late_row_counts import LateCounts
from rekindle_spark.output.output_compaction import Compaction
from rekindle_spark.pipeline import program, program_pickle, unbounded_source
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.spark import jvm_build, spark_gateway, spark_installation, spark_master
from rekindle_spark.spark.spark_gateway import SparkGateway
from rekindle_spark.store import library_versions
from rekindle_spark.store.checkpoint_store import (
    DRAIN_REQUEST,
    FINISH_REQUEST,
    REQUESTS,
    SAVEPOINT_REQUEST,
    CheckpointStore,
    StoreHistory,
)
from rekindle_spark.store.segment_writer import SegmentWriter
from rekindle_spark.store.store_retry import StoreRetry
from rekindle_spark.store.user_requests import UserRequests

# How often sources that are no replays are asked what has arrived.
POLLS_PER_EPOCH, POLL_SECONDS_MIN, POLL_SECONDS_MAX = 5, 0.05, 1.0
# How long the end waits for all threads together; what they are at may be left undone.
JOIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class DriverPlace:
    """Where a driver runs: Spark master, checkpoint store, event file, Spark options.

    `store` is a folder, or a URL (`store_files`).
    `master` is None where spark-submit has started the driver: its JVM is there already, with the
    master and the options that it was told. `sidecar` is the socket of its sidecar, under
    `identity`; without one the driver is its own coordinator.
    """

    master: str | None
    store: str | Path
    events: Path
    options: dict[str, str]
    cluster_has_jar: bool = False
    sidecar: Path | None = None
    identity: store_paths.Place = store_paths.DEFAULT


def run(
    pipeline: Pipeline,
    settings: Settings,
    place: DriverPlace,
    *,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Run until the file `finish` in the store asks for the end and all output is committed, or
    the file `savepoint` for a checkpoint to end at, which is removed then. The file `drain` asks
    for the rest of a replayed input at once. `started` is called by this thread once Spark is
    there, before a generation is taken.

    Raises InputError before anything is started, and later only where another checkpoint store's
    history under this name was not known before; RunError when the run cannot go on. What is
    committed stays, and a later run goes on from there.
    """
    plain = program.build(pipeline)
    _check_policy(plain, settings)
    # What cannot be sent to executors is refused here: later it would fence a driver that runs.
    shipped = program_pickle.pack(plain)
    store = _store(place, settings)
    resumed = _check_history(plain, settings, store)
    source_polls.check(_unbounded(plain), resumed)
    _check_admission(place, store)
    declared = sink_declarations.declared(plain, store)
    with ExitStack() as stack:
        # a driver that gets no Spark must not fence one that runs
        exchange = _gateway(pipeline.name, place, settings)
        stack.callback(exchange.stop)
        started()
        file = _early_events(place.events, stack)
        outputs = [output for chain in plain.chains for output in chain.outputs]
        history = store.open(
            driver_clock.now(),
            outputs,
            pipeline.name,
            partial(sink_declarations.start_fields, store, declared),
        )
        history = _settled(plain, store, history)
        built = _with_branches(plain, history)
        if savepoint_upgrade.is_needed(built, history):
            savepoint_upgrade.carry_over(built, store, history, driver_clock.now())
            history = store.read()
        file = file or stack.enter_context(open_events(place.events))
        events = EventLog(file, store.generation, settings.runtime.events_bytes_max)
        store.patience = replace(store.patience, say=events.store_away)
        packed = program_pickle.pack(built) if _with_records(built, plain, store) else shipped
        program_file = store.write_program(packed), work_items.program_digest(packed)
        application = _application(built, program_file, store, history, settings, exchange, events)
        application.sinks = sink_declarations.publishers(plain, store, events)
        sidecar = _sidecar(place, store)
        if sidecar is not None:
            sidecar.start()
            stack.callback(sidecar.stop)
        guidance = _guidance(application, bool(history.offsets), sidecar)
        store.patience = replace(store.patience, say=partial(_store_away, events, guidance))
        claimed = savepoint_upgrade.claimed(history, store.generation)
        del history  # the application has what it needs of it
        _run(application, guidance, claimed)


def _store(place: DriverPlace, settings: Settings) -> CheckpointStore:
    """Make the checkpoint store; reads nothing."""
    seconds, where = settings.runtime.store_patience_seconds, f"checkpoint store {place.store}"
    return CheckpointStore(place.store, StoreRetry(seconds, where=where))


def _gateway(name: str, place: DriverPlace, settings: Settings) -> SparkGateway:
    """Spark, with the application's name. Raises InputError where there is none."""
    if place.master is not None:
        spark_installation.find_java()
        spark_master.await_answer(place.master)
    jar = str(jvm_build.path())
    options = dict(place.options)
    if settings.runtime.exchange == LINKS:
        options[spark_gateway.LINKS] = "true"
        options[spark_gateway.LINK_BYTES_MAX] = str(settings.runtime.link_bytes_max)
    return SparkGateway(name, place.master, jar, options, ship_jar=not place.cluster_has_jar)


def _with_records(built: Program, plain: Program, store: CheckpointStore) -> bool:
    """Say to sources that keep records where these are; whether the program is then another one
    than the plain one was."""
    recorded = _record_keeping(built)
    keeping = {chain.name for chain in built.chains if chain.root.dead_letters}
    for name, source in recorded.items():
        keep = partial(unbounded_source.keep_records, source, store.files, name)
        store.patience.through(partial(keep, dead_letters=name in keeping))
    return built is not plain or bool(recorded)


def _store_away(
    events: EventLog, guidance: CoordinatorClient[ReportBuilder], cause: str | None
) -> None:
    """The checkpoint store is away, with why, or back."""
    events.store_away(cause)
    guidance.report_now()


def _check_policy(plain: Program, settings: Settings) -> None:
    """Raise InputError for what the settings say of queries that are not there."""
    try:
        coordination.initial(plain.topology, settings.policy, settings.runtime.nodes_expected)
    except InputError as error:
        raise settings.placed(error) from error


def _early_events(path: Path, stack: ExitStack) -> TextIO | None:
    """The event file, before a generation is taken, for a driver that cannot write it must not
    fence one that runs; None where its folder is the store's, which is yet to be made."""
    return stack.enter_context(open_events(path)) if path.parent.is_dir() else None


def _settled(plain: Program, store: CheckpointStore, history: StoreHistory) -> StoreHistory:
    """The history once what the driver before still owed is said, and without the branches that a
    savepoint has joined. Raises InputError where the pipeline cannot go on from it."""
    owed, joined = output_commit.unpublished(history), stopped_branches.are_joined(history)
    if owed is not None:
        committed = _committed(_with_branches(plain, history), history)
        store.commit(output_commit.without_committed(owed, history.fold, committed))
    if joined:
        store.join_branches(driver_clock.now())
    return store.read() if joined or owed is not None else history


def _committed(built: Program, history: StoreHistory) -> dict[str, int]:
    """How far each query partition has got; of another pipeline's that is not known."""
    if savepoint_upgrade.is_needed(built, history):
        return {}
    _, committed = output_commit.read_back(
        built, history, stopped_branches.branch_restore_points(built, history)
    )
    return committed


def _with_branches(plain: Program, history: StoreHistory) -> Program:
    """The program with the branches of its history. Raises InputError where it cannot go on."""
    joined = stopped_branches.are_joined(history)
    built = plain if joined else stopped_branches.split(plain, history.branches)
    savepoint_upgrade.check(built, history)
    return built


def _check_history(plain: Program, settings: Settings, store: CheckpointStore) -> frozenset[str]:
    """Read what a start goes on from as it will be read once a generation has been taken: what
    cannot be read ends this driver, and not the one that runs. Gives the names of the sources that
    the store has offsets of, but for those of replays. Raises InputError for another
    pipeline, other libraries, or another source with records under its name, DamagedError for a
    record that cannot be read."""
    for name, source in _record_keeping(plain).items():
        if isinstance(source, unbounded_source.RecordChecking):
            store.patience.through(partial(source.check_records, store.files, name))
    history = store.read()
    built = _with_branches(plain, history)
    if savepoint_upgrade.is_needed(built, history):
        return _resumed(history)
    store.patience.through(lambda: library_versions.check(store.files, history.fold))
    output_commit.unpublished(history)
    output_commit.read_back(built, history, stopped_branches.branch_restore_points(built, history))
    _cuts(built, settings, history)
    return _resumed(history)


def _resumed(history: StoreHistory) -> frozenset[str]:
    """The sources that the newest cut has partitions of, but for replays."""
    if not history.offsets:
        return frozenset()
    newest = Cut.from_record(history.offsets[max(history.offsets)])
    return frozenset(name for name, one in newest.streams.items() if one.partitions)


def _check_admission(place: DriverPlace, store: CheckpointStore) -> None:
    """Raise InputError where the coordination store has another checkpoint store's history under
    this driver's name, or a newer driver's, as far as the sidecar can say by now. Later a driver
    ends for the same cause."""
    if place.sidecar is None:
        return
    generation, refusal = 0, None
    # A driver that has started since the store was read is no reason to refuse this one.
    while (newest := store.next_generation()) != generation:
        generation, identity = newest, store.identity() if newest > 1 else ""
        refusal = sidecar_client.refusal(place.sidecar, place.identity, generation, identity)
        if refusal is None:
            return
    assert refusal is not None
    raise refusal


def _cuts(built: Program, settings: Settings, history: StoreHistory) -> dict[int, Cut]:
    """The cuts that the store has, by this driver's clock; without any the one at which the input
    begins."""
    now, found = driver_clock.now(), history.offsets.items()
    cuts = {number: Cut.from_record(record).not_after(now) for number, record in found}
    if not cuts:
        rate = settings.runtime.rows_per_second
        cuts[0] = epoch_cutter.beginning(_replays(built), now, rate, _unbounded(built))
    return cuts


def _replays(built: Program) -> dict[str, Any]:
    """The sources whose rows are all known, by name."""
    found = _sources(built).items()
    return {name: source for name, source in found if not unbounded_source.is_unbounded(source)}


def _unbounded(built: Program) -> dict[str, Any]:
    """All other sources, by name."""
    found = _sources(built).items()
    return {name: source for name, source in found if unbounded_source.is_unbounded(source)}


def _record_keeping(built: Program) -> dict[str, unbounded_source.RecordKeeping]:
    """Those of them that keep records in the store, by name."""
    found = _unbounded(built).items()
    return {name: one for name, one in found if isinstance(one, unbounded_source.RecordKeeping)}


def _sources(built: Program) -> dict[str, Any]:
    """The sources, without what has become of their branches."""
    return {
        chain.name: chain.root.function
        for chain in built.chains
        if not (chain.keyed or chain.relay or chain.reads)
    }


def _sidecar(place: DriverPlace, store: CheckpointStore) -> SidecarClient | None:
    if place.sidecar is None:
        return None
    hello = sidecar_client.handshake(place.identity, store.generation, store.identity())
    return SidecarClient(place.sidecar, hello)


def _guidance(
    application: DriverContext, resumed: bool, contact: SidecarClient | None
) -> CoordinatorClient[ReportBuilder]:
    now = None if contact is None else time.monotonic()
    return CoordinatorClient(
        topology=topology_report(application, resumed=resumed),
        reports=ReportBuilder(application),
        following=AcceptedDirectives(
            application.store.generation,
            plan_epoch=application.plan_epoch,
            contact_at=now,
            alone_seconds=application.settings.runtime.alone_seconds,
        ),
        contact=contact,
    )


def _run(
    application: DriverContext, guidance: CoordinatorClient[ReportBuilder], claimed: int
) -> None:
    store = application.store
    requests = UserRequests(store.files, REQUESTS, application.settings.runtime.epoch_seconds)
    store.requests = requests
    checkpointing = CheckpointCoordinator(application, shared=claimed)
    control = ControlLoop(application, checkpointing, guidance)
    catch_up = CatchUpLoop(application, control)
    loop = EpochLoop(
        application,
        control,
        checkpointing,
        partial(store.holds, FINISH_REQUEST),
        partial(store.holds, SAVEPOINT_REQUEST),
        partial(store.holds, DRAIN_REQUEST),
    )
    background: list[UserRequests | SegmentWriter | Compaction]
    background = [requests, *_tidying(application)]
    threads: list[Thread] = []
    try:
        threads.append(catch_up.start())
        for each in background:
            threads.append(each.start())
        if application.polls is not None:
            application.polls.start()
        application.sinks.start(store.commits)
        loop.run()
        kind = "savepoint" if loop.is_saved else "finish"
        application.events.write(kind, epoch=application.newest, late_rows=application.late.seen)
        guidance.finish()
        if loop.is_saved:
            store.drop(SAVEPOINT_REQUEST)
    except RekindleError as error:
        application.events.write("failed", text=str(error))
        raise
    finally:
        application.stopping = True
        for each in background:
            each.stop()
        if application.polls is not None:
            application.polls.stop()
        application.sinks.stop()
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))


def _tidying(application: DriverContext) -> list[SegmentWriter | Compaction]:
    """What puts old records and output together in the background."""
    store, events = application.store, application.events
    sealing = SegmentWriter(
        store.files,
        lambda: store.covered,
        lambda text: events.write("sealing-failed", text=text),
    )
    if application.settings.runtime.output_files != COMPACTED:
        return [sealing]
    compaction = Compaction(
        store.files,
        store.generation,
        lambda: store.settled,
        store.check_generation,
        lambda text: events.write("compaction-failed", text=text),
    )
    return [sealing, compaction]


def _intakes(built: Program, last: Cut, checkpoint: Mapping[str, Any] | None) -> Intakes:
    """What has been taken of sources that are no replays, and the event times that were read up to
    a checkpoint."""
    read = {} if checkpoint is None else checkpoint.get("greatest", {})
    intakes: dict[str, Intake] = {}
    for name, source in _unbounded(built).items():
        stream = last.streams[name]
        greatest = stream.greatest(read.get(name, {}))
        intakes[name] = Intake(name, source.terms, stream, greatest=greatest)
    return Intakes(intakes)


def _polls(built: Program, last: Cut, epoch_seconds: float) -> SourcePolls | None:
    """Who asks them; None where there are none."""
    sources = _unbounded(built)
    if not sources:
        return None
    begin = frozenset(name for name in sources if not last.streams[name].partitions)
    period_seconds = min(max(epoch_seconds / POLLS_PER_EPOCH, POLL_SECONDS_MIN), POLL_SECONDS_MAX)
    return SourcePolls(sources, period_seconds, begin, driver_clock.now)


def _application(
    built: Program,
    program_file: tuple[str, str],
    store: CheckpointStore,
    history: StoreHistory,
    settings: Settings,
    exchange: SparkGateway,
    events: EventLog,
) -> DriverContext:
    events.steps_begun(history.checkpoint)
    store.make_outputs(output for chain in built.chains for output in chain.outputs)
    store.make_outputs(chain.name for chain in built.chains if chain.relay)
    cuts = _cuts(built, settings, history)
    restore_points = stopped_branches.branch_restore_points(built, history)
    runtime = settings.runtime
    last = cuts[max(cuts)]
    digests, committed = output_commit.read_back(built, history, restore_points)
    queries, now = frozenset(query.name for query in built.topology.queries), driver_clock.now()
    application = DriverContext(
        program=built,
        program_file=program_file,
        store=store,
        exchange=exchange,
        settings=settings,
        events=events,
        progress=PartitionTable(
            built, restore_points, choices=dead_letters.read_back(built, history, restore_points)
        ),
        arrivals=EpochCutter(
            _replays(built),
            last,
            runtime.rows_per_epoch_max,
            runtime.epoch_seconds * runtime.epoch_stretch_max,
            runtime.epoch_seconds,
            intakes=_intakes(built, last, history.checkpoint),
        ),
        polls=_polls(built, last, runtime.epoch_seconds),
        cuts=cuts,
        digests=digests,
        committed=committed,
        late=LateCounts.of(built, history.fold),
        lag_goals=LagGoals.of(history.fold.lag_goals, queries, now),
        pace=CatchUpThrottle(runtime.epoch_seconds),
        budget=MemoryBudget(runtime.rows_per_epoch_max),
        newest=last.epoch,
        begun=last.epoch,
        plan_epoch=history.fold.plan_epoch,
        buffering=OFF if settings.policy.buffering == ADAPTIVE else ON,
        ordering=OFF if settings.policy.ordering == ADAPTIVE else ON,
    )
    # up to now by those of the driver before
    goals = coordination_state.lag_goals(built.topology, settings.policy)
    lag_goals.change(application, goals, now)
    return application
