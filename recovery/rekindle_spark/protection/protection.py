"""`protect`: queries of one Spark application that come back by priority after nodes were lost.

    gather   executors, progress and run times, each a moment apart
    confer   reports out, orders in (`control.coordinator_client`)
    obey     queries that are in no plan are stopped, those of a plan started

The loop is a thread of its own. A look that fails is made again, and while looks go on to fail all
queries run. It ends with `stop`, with Spark, or with a newer driver. Without a sidecar, and not
`alone`, there is none: the queries are started, and that is all.
"""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from rekindle import protocol
from rekindle.coordination.directive_acceptance import AcceptedDirectives
from rekindle.coordination.instructions import RecordEvent
from rekindle.model import settings as all_settings
from rekindle.model.errors import FencedError, InputError, RunError, first_line
from rekindle.model.settings import Settings
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_spark.control import sidecar_client
from rekindle_spark.control.coordinator_client import CoordinatorClient
from rekindle_spark.control.sidecar_client import SidecarClient
from rekindle_spark.protection import protection_state, query_layout, spark_view, start_terms
from rekindle_spark.protection.protected_query import ProtectedQuery
from rekindle_spark.protection.protection_state import ProtectionReports
from rekindle_spark.protection.query_layout import QueryLayout
from rekindle_spark.protection.start_terms import SchedulerPools

LOOK_SECONDS = 0.5
# Each call into the JVM costs the driver CPU. So a query that has caught up is looked at less often
# than executors are, and costs less often the longer they are steady.
STEADY_LOOK_SECONDS = 5.0
HEARTBEAT_LOOK_SECONDS = 2.5
MEASURE_SECONDS, MEASURE_SECONDS_MAX, MEASURE_FACTOR = 10.0, 60.0, 1.5
CHECKPOINT_SECONDS = 10.0
FIRST_LOAD_SHARE = 0.5
STOP_SECONDS_MAX = 60.0
# After so many looks in a row that have failed, everything runs until one succeeds.
FAILED_LOOKS_MAX = 10
# Of Spark: docs/protected-queries.md says what was run on which.
OLDEST, NEWEST = (3, 5), (4, 3)
SUPPORTED = "Spark 3.5 to 4.3"
RELEASE = re.compile(r"(\d+)\.(\d+)")
# These are about exchanges between operators of a pipeline.
NOT_FOR_QUERIES = (protocol.BufferingOrder, protocol.OrderingOrder)

log = logging.getLogger(__name__)


def protect(
    spark: Any,
    queries: Mapping[str, Callable[..., Any]],
    *,
    priorities: Mapping[str, float] | None = None,
    depends_on: Mapping[str, Iterable[str]] | None = None,
    settings: str | Path | None = None,
    sidecar: str | Path | None = None,
    name: str | None = None,
    alone: bool = False,
) -> "Protection":
    """Start queries of Structured Streaming, and let the most important ones run after a loss.

    `queries` (name -> function) each start a stream and return its `StreamingQuery`; a function is
    called again when its query comes back, so it has to name a `checkpointLocation`. One that takes
    an argument is given a `BatchLimit`, whose `options` keep batches small meanwhile. `priorities`
    go from 1, the default, to 10. A query comes back after those that it `depends_on`. `settings`
    is a file as docs/settings.md says. `sidecar` is the socket of the sidecar, by default
    `$REKINDLE_SIDECAR_SOCKET`, and `name` NAMESPACE/APPLICATION, as the webhook sets it by default.
    Without a sidecar the queries are only started, unless this driver is to plan `alone`.

    Raises InputError for names, priorities, dependencies, queries and Spark settings that cannot
    be, for a Spark that is too old or whose status is closed, and for a second call while the first
    one's queries are protected; what a start function raises is passed on.
    """
    context = getattr(spark, "_jsc", None)
    if context is None:
        raise InputError(
            where="protect: spark",
            what="is a session of Spark Connect, which does not see executors",
            remedy="call protect in the driver, with its own SparkSession",
        )
    _check_release(spark)
    known = Settings() if settings is None else all_settings.load(Path(settings))
    path = os.environ.get("REKINDLE_SIDECAR_SOCKET") if sidecar is None else str(sidecar)
    expected = _nodes_expected(spark, known)
    layout = query_layout.lay_out(queries, priorities or {}, depends_on or {}, expected)
    pools = SchedulerPools(spark, layout.priorities)
    prepare = _thread_like_this(spark)
    protected = tuple(ProtectedQuery(key, start, prepare) for key, start in queries.items())
    if path is None and not alone:
        log.info("no sidecar: queries are started, and not protected")
        return Protection(spark, protected, None, layout, pools)
    _check_allocation(spark)
    _check_first(spark)
    for one in protected:
        one.in_pool = partial(pools.entered, one.name)
    identity = store_paths.place_of_driver(name, os.environ)
    guidance = _guidance(layout, known, expected, path, identity)
    return Protection(spark, protected, guidance, layout, pools)


# Those that may plan, each for all executors of its application.
_guided: WeakSet["Protection"] = WeakSet()


class Protection:
    """Protected queries, while they run. As a context manager it stops them at the end."""

    def __init__(
        self,
        spark: Any,
        protected: tuple[ProtectedQuery, ...],
        guidance: CoordinatorClient[ProtectionReports] | None,
        layout: QueryLayout,
        pools: SchedulerPools,
    ) -> None:
        self._spark = spark
        self._protected = protected
        self._guidance = guidance
        self._state = protection_state.initial(layout)
        self._scheduler_pools = pools
        self._context = spark._jsc.sc()
        self._view = spark_view.SparkView(self._context)
        array_text = spark._jvm.java.util.Arrays.toString
        self._times = spark_view.RunTimes(self._context, array_text)
        self._heartbeats = spark_view.Heartbeats(self._context)
        self._retries = spark_view.TaskRetries(self._context, array_text)
        self._has_dropped = False
        self._measured_at = self._checkpointed_at = self._listened_at = float("-inf")
        self._measure_seconds = MEASURE_SECONDS
        self._active_count = 0
        self._failure: BaseException | None = None
        self._is_over = threading.Event()
        self._stopping = threading.Event()
        if guidance is not None:
            self._share_first_slots(guidance.reports)
        _begin(protected)
        self._pool = ThreadPoolExecutor(len(protected), thread_name_prefix="rekindle-query")
        self._thread = threading.Thread(target=self._keep, name="rekindle-protect", daemon=True)
        if guidance is not None:
            if isinstance(guidance.contact, SidecarClient):
                guidance.contact.start()
            self._thread.start()
            _guided.add(self)

    def __enter__(self) -> "Protection":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def guides(self, spark: Any) -> bool:
        """Whether it looks after queries in the application of a session."""
        return self._thread.is_alive() and self._spark.sparkContext is spark.sparkContext

    @property
    def queries(self) -> dict[str, Any]:
        """The newest `StreamingQuery` of each name; one that waits is not active."""
        return {one.name: one.query for one in self._protected}

    @property
    def running(self) -> frozenset[str]:
        """Names of queries that run."""
        return frozenset(one.name for one in self._protected if one.query.isActive)

    @property
    def ended(self) -> dict[str, str]:
        """Queries that have ended by themselves, each with why."""
        return {one.name: one.ended for one in self._protected if one.ended is not None}

    @property
    def loads(self) -> dict[str, float]:
        """CPU of each query as it was last measured, in percent of one core; empty before."""
        reports = None if self._guidance is None else self._guidance.reports
        return {} if reports is None else {key: reports.loads[key] for key in reports.measured}

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Wait until a query has ended by itself, or `stop` was called; False when the time is
        over. Raises what a query, its start function or this application has failed with.
        `spark.streams.awaitAnyTermination` would return at each stop of ours."""
        if self._guidance is None:
            streams = self._spark.streams
            if timeout_seconds is None:
                streams.awaitAnyTermination()
                return True
            return bool(streams.awaitAnyTermination(timeout_seconds))
        if not self._is_over.wait(timeout_seconds):
            return False
        if self._failure is not None:
            raise self._failure
        for one in self._protected:
            one.raise_failure()
        return True

    def stop(self) -> None:
        """Stop all queries, and report that the run has ended in order. Raises the first error of a
        stop, once all the others have been stopped."""
        self._stopping.set()
        if self._guidance is not None:
            self._thread.join(STOP_SECONDS_MAX)
        failures = self._stop_queries()
        if self._guidance is not None:
            self._guidance.finish()
            if isinstance(self._guidance.contact, SidecarClient):
                self._guidance.contact.stop()
        if failures:
            raise failures[0]

    def _stop_queries(self) -> list[Exception]:
        self._pool.shutdown(wait=True)  # nothing is started after this
        return _stop_all(self._protected)

    def _keep(self) -> None:
        """The loop's life. Whatever ends it is kept for `await_termination`."""
        try:
            self._look_until_stopped()
        except Exception as error:
            log.error("%s", error)
            self._failure = error
            if isinstance(error, FencedError):
                self._stop_queries()
        finally:
            self._is_over.set()

    def _look_until_stopped(self) -> None:
        assert self._guidance is not None
        failed_looks, cause = 0, None
        while not self._stopping.is_set():
            if _has_stopped(self._context):
                raise _of_stopped_spark() from cause
            if self._guidance.fenced is not None:
                raise self._guidance.fenced
            try:
                self._step(self._guidance)
                failed_looks, cause = 0, None
            # whatever it is, it is a fault of ours, and no reason for queries to stand still
            except Exception as error:
                failed_looks, cause = failed_looks + 1, error
                if failed_looks in (1, FAILED_LOOKS_MAX):
                    log.exception("look %d in a row at protected queries has failed", failed_looks)
                if failed_looks >= FAILED_LOOKS_MAX:
                    self._let_all_run()
            self._stopping.wait(LOOK_SECONDS)

    def _step(self, guidance: CoordinatorClient[ProtectionReports]) -> None:
        now = time.monotonic()
        if guidance.fenced is not None:
            raise guidance.fenced
        self._look(now)
        before = self._state.losses
        self._state = protection_state.observed(self._state, self._view.nodes(), self.ended)
        if self._state.losses > before:
            guidance.disown_plans()
            self._note_dropped(now)
        self._update_reports(guidance.reports, now)
        advice = guidance.confer(self._state.is_paused)
        for instruction in advice.instructions:
            if isinstance(instruction, RecordEvent):
                log.info("%s", instruction.text)
        for directive in advice.directives:
            if not isinstance(directive.order, NOT_FOR_QUERIES):
                log.info("%s", directive.text)
            match directive.order:
                case protocol.DropOrder(nodes=nodes) | protocol.PlanOrder(drops=nodes):
                    self._drop(nodes)
            self._state = protection_state.obeyed(self._state, directive.order)
        self._retry_tasks(now)
        self._share_slots(guidance.reports, self._state.nodes)
        for one in self._protected:
            one.steer(wanted=one.name in self._state.runnable, pool=self._pool, now=now)
        self._note_ended()

    def _look(self, now: float) -> None:
        """Take in how queries are: each while anything waits, and when one has begun or ended
        somewhere; of others those that are on their way, and each now and then."""
        count = len(self._spark.streams._jsqm.active())
        is_other = count != self._active_count or self._state.waits
        self._active_count = -1  # where a look fails, all are looked at again
        for one in self._protected:
            if is_other or not one.is_settled or now - one.looked_at >= STEADY_LOOK_SECONDS:
                one.look(self._active, now)
        self._active_count = count

    def _active(self, query_id: str) -> Any:
        """The query with an id, if one runs in this session."""
        active = self._spark.streams.active
        return next((query for query in active if str(query.id) == query_id), None)

    def _share_first_slots(self, reports: ProtectionReports) -> None:
        """Before the queries start, as far as Spark says which slots there are."""
        try:
            self._share_slots(reports, self._view.nodes())
        except Exception:  # queries start all the same, in pools without shares
            log.warning("slots are not shared among queries yet", exc_info=True)

    def _share_slots(
        self, reports: ProtectionReports, nodes: Mapping[str, protocol.NodeSeen]
    ) -> None:
        """Divide the slots that are there among the queries that are to run."""
        slots = int(sum(seen.capacity_percent for seen in nodes.values()) / spark_view.PERCENT)
        loads = {name: reports.loads[name] for name in self._state.wanted}
        self._scheduler_pools.shares = start_terms.min_shares(
            loads, self._scheduler_pools.priorities, slots
        )

    def _drop(self, nodes: Mapping[str, str]) -> None:
        try:
            self._has_dropped |= self._view.drop(nodes)
        except Exception:  # orders that follow have been acknowledged, and must be obeyed
            log.warning("executors cannot be replaced: %s", ", ".join(sorted(nodes)), exc_info=True)

    def _note_dropped(self, now: float) -> None:
        """Record a drop, once the executors are lost."""
        has_dropped, self._has_dropped = self._has_dropped, False
        if has_dropped:
            self._retries.note_drop(now, spark_view.MILLIS * time.time())

    def _retry_tasks(self, now: float) -> None:
        number = _only_logged(lambda: self._retries.retry(self._runs, now))
        if number:
            log.info("%d tasks that may wait for lost executors are started again", number)

    @property
    def _runs(self) -> list[str]:
        """The runs of queries that run."""
        return [one.run_id for one in self._protected if one.is_running]

    def _note_ended(self) -> None:
        if self.ended:
            self._is_over.set()
        else:  # somebody may have started it again
            self._is_over.clear()

    def _update_reports(self, reports: ProtectionReports, now: float) -> None:
        """Everything that reports say of the queries."""
        protected, ended = self._protected, self.ended
        reports.state, reports.ended = self._state, ended
        self._listen(reports, now)
        reports.caught_up = frozenset(
            one.name for one in protected if one.is_running and one.is_caught_up
        )
        reports.lags = {one.name: max(0.0, one.looked_at - one.caught_up_at) for one in protected}
        reports.cost()
        # what catches up, or shares less than all executors, has no steady cost
        steady = frozenset() if self._state.waits else reports.caught_up
        self._measure(reports, [one for one in protected if one.name in steady], now)
        if self._state.waits or len(reports.caught_up) + len(ended) < len(protected):
            return
        if now - self._checkpointed_at >= CHECKPOINT_SECONDS or not reports.checkpoint:
            self._checkpointed_at = now
            reports.checkpointed()

    def _listen(self, reports: ProtectionReports, now: float) -> None:
        """Now and then, how long nodes have been silent: machines that die say nothing."""
        if now - self._listened_at >= HEARTBEAT_LOOK_SECONDS:
            self._listened_at = now
            silences = self._heartbeats.silences(now)
            reports.silences = {} if silences is None else self._view.silent_seconds(silences)

    def _measure(
        self, reports: ProtectionReports, steady: list[ProtectedQuery], now: float
    ) -> None:
        """Now and then, the costs of queries that are steady; the others begin again."""
        if len(steady) < len(self._protected) or len(reports.measured) < len(self._protected):
            self._measure_seconds = MEASURE_SECONDS
        self._times.forget(one.run_id for one in self._protected if one not in steady)
        if now - self._measured_at < self._measure_seconds:
            return
        self._measure_seconds = min(MEASURE_SECONDS_MAX, MEASURE_FACTOR * self._measure_seconds)
        self._measured_at = now
        try:
            loads = self._times.loads(
                {one.name: one.run_id for one in steady},
                {one.name: one.interval_seconds for one in steady},
            )
        except Exception:  # there is no figure; the last one goes on to be used
            log.warning("run times of protected queries cannot be read", exc_info=True)
            return
        if loads:
            reports.measure(loads)

    def _let_all_run(self) -> None:
        """Start what waits, each query by itself: one that cannot be looked at is next time.
        A pause of people holds."""
        now, wanted = time.monotonic(), not self._state.is_paused
        for one in self._protected:
            try:
                one.look(self._active, now)
                one.steer(wanted=wanted, pool=self._pool, now=now)
            except Exception:
                log.warning("query %s cannot be looked at", one.name, exc_info=True)
        self._note_ended()


def _begin(protected: tuple[ProtectedQuery, ...]) -> None:
    """Start all, or none."""
    try:
        for one in protected:
            one.begin()
    except BaseException:
        _stop_all(protected)
        raise


def _stop_all(protected: Iterable[ProtectedQuery]) -> list[Exception]:
    """Stop each query that was started, whatever the stops of others raise; what was raised."""
    failures = []
    for one in protected:
        try:
            if one.query is not None:
                one.query.stop()
        except Exception as error:  # of Spark
            log.warning("query %s: its stop has failed: %s", one.name, first_line(error))
            failures.append(error)
    return failures


def _thread_like_this(spark: Any) -> Callable[[], None]:
    """What makes another thread one in which start functions find what they find in this one:
    the session, and local properties such as the pool of the scheduler."""
    context = spark._jsc.sc()
    properties = context.getLocalProperties().clone()
    session = spark._jsparkSession

    def prepare() -> None:
        # a static method: its class is another one since Spark 4, and Python has no name for both
        session.setActiveSession(session)
        context.setLocalProperties(properties.clone())  # start functions may change theirs

    return prepare


def _only_logged(call: Callable[[], int | None]) -> int | None:
    """What a call gives that retries tasks; None where it fails: they end later by themselves."""
    try:
        return call()
    except Exception:
        log.warning("tasks that wait for lost executors are not started again", exc_info=True)
        return None


def _has_stopped(context: Any) -> bool:
    """Whether Spark has ended without `stop` of this package, or its JVM is gone."""
    try:
        return bool(context.isStopped())
    except Exception:  # of py4j, where the JVM is gone
        return True


def _of_stopped_spark() -> RunError:
    return RunError(
        where="protect",
        what="Spark has been stopped while queries were protected",
        remedy="see the driver's log; call `stop` of what `protect` gives before `spark.stop()`",
    )


def _guidance(
    layout: QueryLayout, known: Settings, expected: int, path: str | None, identity: Place
) -> CoordinatorClient[ProtectionReports]:
    """The driver's end of the control plane. Spark's own checkpoints fence batches, so a number
    that only grows will do as a generation."""
    generation = time.time_ns() // 1_000_000
    hello = sidecar_client.handshake(identity, generation)
    contact = None if path is None else SidecarClient(Path(path), hello)
    loads = _assumed(layout, known, expected)
    return CoordinatorClient(
        topology=protocol.TopologyReport(
            generation=generation,
            sequence=0,
            program=protocol.PROTECTED_QUERIES,
            topology=layout.topology,
            policy=known.policy,
            nodes_expected=expected,
            hints=layout.costs(loads),
        ),
        reports=ProtectionReports(
            generation, protection_state.initial(layout), loads, known.policy.cpu_cap
        ),
        following=AcceptedDirectives(
            generation,
            contact_at=None if contact is None else time.monotonic(),
            alone_seconds=known.runtime.alone_seconds,
        ),
        contact=contact,
    )


def _assumed(layout: QueryLayout, known: Settings, expected: int) -> dict[str, float]:
    """Half of what the nodes have, the same for each query, until run times are measured."""
    capacity = expected * known.runtime.node_cpu_percent * known.policy.cpu_cap
    return dict.fromkeys(layout.parts, FIRST_LOAD_SHARE * capacity / len(layout.parts))


def _nodes_expected(spark: Any, known: Settings) -> int:
    """As many as are there, or as Spark or the settings say that there will be."""
    stated = int(spark.sparkContext.getConf().get("spark.executor.instances", "0"))
    try:
        there = len(spark_view.SparkView(spark._jsc.sc()).nodes())
    except spark_view.GONE as error:
        raise InputError(
            where="protect: spark",
            what=f"does not say which executors it has: {first_line(error)}",
            remedy=f"use Apache's {SUPPORTED}; a vendor's may close its status to Python",
        ) from error
    return max(there, stated, known.runtime.nodes_expected)


def _check_release(spark: Any) -> None:
    """InputError for a Spark before the oldest that is supported; a newer one is tried."""
    said = str(spark.version)
    found = RELEASE.match(said)
    if found is None:
        return  # a vendor's own numbers
    release = int(found[1]), int(found[2])
    if release < OLDEST:
        raise InputError(
            where="protect: spark",
            what=f"is Spark {said}, which is too old",
            remedy=f"use {SUPPORTED}",
        )
    if release > NEWEST:
        log.warning("protected queries are made for %s, and this is Spark %s", SUPPORTED, said)


def _check_first(spark: Any) -> None:
    if any(one.guides(spark) for one in _guided):
        raise InputError(
            where="protect",
            what="protects other queries of this application already, and plans for all executors",
            remedy="give all queries to one call, or stop what the first one has given before",
        )


def _check_allocation(spark: Any) -> None:
    # Spark takes any spelling of true, with blanks around it
    said = spark.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "false")
    if said.strip().lower() == "true":
        raise InputError(
            where="protect: spark.dynamicAllocation.enabled",
            what="is on: an executor that Spark gives back would count as lost",
            remedy="switch it off for this application",
        )
