"""The control plane inside the driver: observes, confers, obeys.

    gather   executors that came and went, silent ones, results of jobs
    confer   reports out, orders in (`guidance`)
    obey     plans to the progress, drops to Spark, pauses to the loops, words to the event log

Decides nothing about recovery: the coordinator does, or the same core in `guidance` when it cannot
be asked. Called from the epoch loop's thread.
"""

import queue
import time
from collections.abc import Collection, Mapping, Set
from functools import partial

from rekindle import protocol
from rekindle.coordination import instructions
from rekindle.model import plan_problem
from rekindle.model.errors import RunError
from rekindle.model.reasons import Reason
from rekindle.model.settings import LINKS
from rekindle_spark.checkpoint.checkpoint_coordinator import CheckpointCoordinator
from rekindle_spark.control import partition_migration, query_stop
from rekindle_spark.control.coordinator_client import CoordinatorClient
from rekindle_spark.control.executor_membership import ExecutorLoss, HostFailures, Membership
from rekindle_spark.control.report_builder import ReportBuilder
from rekindle_spark.driver import away_sources, driver_clock
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.flow_control import memory_pressure
from rekindle_spark.flow_control.cost_statistics import CostStatistics
from rekindle_spark.flow_control.stragglers import CrowdedEpochs, Epoch, Stragglers
from rekindle_spark.jobs import fault_attribution
from rekindle_spark.jobs.job_runner import Attempts, Result
from rekindle_spark.jobs.link_health import SlowReaders
from rekindle_spark.output import lag_goals
from rekindle_spark.store.checkpoint_store import RATE_REQUEST

CONFER_SECONDS = 0.25
BACKLOG_LOOK_SECONDS = 1.0
FAILING_SECONDS_MAX = 60.0


class ControlLoop:
    """What one driver knows of its executors, and does about its orders."""

    def __init__(
        self,
        application: DriverContext,
        checkpointing: CheckpointCoordinator,
        guidance: CoordinatorClient[ReportBuilder],
    ) -> None:
        self.application = application
        self.checkpointing = checkpointing
        self.guidance = guidance
        self.results: queue.Queue[Result] = queue.Queue()
        # of catch-up jobs, whose thread must not decide about the application
        self.failures: queue.Queue[tuple[Result, Attempts]] = queue.Queue()
        self.membership = Membership(application)
        self.host_failures = HostFailures()
        self.damaged_frames: set[tuple[int, int]] = set()  # producers and epochs, read once
        self.statistics = CostStatistics(
            application,
            self.checkpointing.state_bytes,
            partial(application.store.holds, RATE_REQUEST),
        )
        new_seconds = application.settings.runtime.new_executor_seconds
        self.stragglers = Stragglers(new_seconds)
        self.crowded = CrowdedEpochs(Stragglers(new_seconds))
        self.behind: set[str] = set()
        self.was_complete = False
        self.is_holding = False
        self.hosts_miss_store = False
        self.was_alone = guidance.contact is None
        self.conferred_at = 0.0
        self.slow_readers = SlowReaders()
        self.backlogs_read_at = 0.0

    @property
    def rows_per_second(self) -> float:
        """The rate at which rows arrive from the next cut on."""
        return self.statistics.rows_per_second

    @property
    def priorities(self) -> Mapping[str, float]:
        """By query partition, as far as they are known."""
        return self.guidance.priorities

    @property
    def reports(self) -> ReportBuilder:
        """What the driver says of itself."""
        return self.guidance.reports

    def pump(self) -> None:
        """Take in what has happened, and carry out what is ordered."""
        if self.application.failure is not None:
            raise self.application.failure
        self._take_results()
        for loss in self.membership.observe():
            self._lose(loss)
        for executor, node in self.membership.arrived():
            self._join(executor, node)
        self._note_suspicions()
        self._note_hold()
        self._note_slow_readers()
        costs = self.statistics.closed_window()
        if costs is not None:
            overhead_percent = self.statistics.costs.overhead_percent
            self.reports.measured(costs, overhead_percent, self.statistics.named_state_bytes)
        for epoch in self.checkpointing.taken():
            self.reports.checkpointed(epoch)
            self._hurry()
        if self.guidance.waiting or time.monotonic() - self.conferred_at > CONFER_SECONDS:
            self._confer()

    def report_caught_up(self) -> None:
        """Tell of query partitions whose whole closure has become live."""
        application = self.application
        with application.lock:
            live = set(application.names(application.progress.live))
            placed = set(application.names(application.progress.placed))
        for query_partition, closure in sorted(self.guidance.closures.items()):
            if closure <= live and query_partition in self.behind:
                self.behind.discard(query_partition)
                application.events.write("caught-up", query_partition=query_partition)
                self._hurry()
            elif not closure <= live and closure <= placed:
                self.behind.add(query_partition)
            complete = application.progress.complete
        if complete and not self.was_complete:
            application.events.write("recovered", epoch=application.newest)
        self.was_complete = complete

    def note_times(self, result: Result, *, ahead: bool, is_crowded: bool, may_rest: bool) -> None:
        """An epoch has run, perhaps with sources ahead, while nothing else did but for the second
        class where it `is_crowded`: see who holds epochs up. The second class rests where that is
        in doubt, if it `may_rest`."""
        application, now = self.application, time.monotonic()
        target_seconds = application.settings.runtime.epoch_seconds
        costs = self.statistics.costs.with_overhead
        self.stragglers.look(application.executors, now)
        self.crowded.stragglers.look(application.executors, now)
        ran = Epoch(result.seconds, target_seconds, result.stages, costs, ahead)
        if is_crowded:
            known = self.stragglers.slow
            doubtful = self.crowded.add(ran, known, now, may_rest=may_rest)
            self.stragglers.keep(known & self.crowded.stragglers.slow, now)
            self._write_of_nodes("classes-rest", doubtful)
        else:
            self.stragglers.add(ran, now)
            self.crowded.ran_clean(now)
        before, slow = self.reports.slow, self.stragglers.slow
        self.reports.slow = slow
        for kind, those in (("slow", slow - before), ("fast", before - slow)):
            if self._write_of_nodes(kind, those):
                self._hurry()

    def _write_of_nodes(self, kind: str, executors: Set[str]) -> bool:
        """Write an event about the nodes of executors, where some of these are there."""
        known = self.application.executors
        nodes = sorted(known[executor] for executor in executors & known.keys())
        if nodes:
            self.application.events.write(kind, nodes=nodes, epoch=self.application.newest)
        return bool(nodes)

    def fail_after(self, result: Result, attempts: Attempts) -> None:
        """Decide about a job that failed without a loss: once more, without some, or the end.

        A step's error counts: it will not go away by itself. Nor does damage in the store. Anything
        else is most often a loss that has not been noticed yet, so it gets time.
        """
        # after a loss this verdict is of partitions that have been placed anew since
        stale = result.losses != self.application.losses
        for executor in () if stale else sorted(result.stateless_executors):
            self._miss_host(executor, result)
        if result.full_executor and not stale:
            self._leave_alone(result.full_executor)
        if result.cut_links and self._drop_unreachable(result):
            attempts.clear()
        if result.damaged and not stale:
            self._make_again(result.damaged)
        if result.sources_away:
            if not stale:
                away_sources.hold_back(self.application, result.sources_away)
            self._hurry()
            return
        attempts.count(bool(result.step_errors), result.idle_seconds)
        self.application.events.write("job-failed", text=result.reason)
        if result.store_away and not self.hosts_miss_store:
            self.hosts_miss_store = True
            self.application.store.patience.say(result.reason)
        if result.damage is not None:
            raise self.application.store.set_aside(result.damage)
        if result.over_budget:
            memory_pressure.refuse(self.application, result)
            return
        if result.died:
            again = fault_attribution.hold_back(self.application, result.died)
            query_stop.stop(self.application, again)
            attempts.clear()
            self._hurry()
            return
        settings = self.application.settings
        if result.step_errors:
            if attempts.step_errors >= settings.runtime.epoch_attempts_max:
                query_stop.stop(self.application, result.step_errors)
                attempts.clear()
                self._hurry()
            return
        seconds_max = settings.policy.silent_seconds + FAILING_SECONDS_MAX
        if result.idle_seconds:
            seconds_max = settings.idle_seconds
        if result.store_away:
            seconds_max = max(seconds_max, settings.runtime.store_patience_seconds)
        if attempts.seconds > seconds_max:
            raise RunError(
                where="epoch job",
                what=f"failed for {attempts.seconds:.0f} s: {result.reason}",
                remedy="see the driver's and the executors' logs; committed output stays",
            )

    def _take_results(self) -> None:
        ended, self.checkpointing.ended = self.checkpointing.ended, []
        for result in ended:
            self.results.put(result)
            if result.cut_links:  # nobody else asks what has become of these jobs
                self._drop_unreachable(result)
        while not self.results.empty():
            result = self.results.get()
            if self.hosts_miss_store and result.finished:
                self.hosts_miss_store = False
                self.application.store.patience.say(None)
            self.host_failures.forget(result.cpu.keys() - result.hostless_executors)
            self.checkpointing.acknowledge(result.acknowledgements)
            self.application.links.succeed(result.sound_links)
            self.statistics.add(result)
            intakes = self.application.arrivals.intakes
            intakes.note(result.read)
            ahead = intakes.ahead(result.read, driver_clock.now())
            self.application.events.write_each("rows-ahead", ahead)
            memory_pressure.heed(self.application, result)
        while not self.failures.empty():
            self.fail_after(*self.failures.get())

    def _join(self, executor: str, node: str) -> None:
        with self.application.lock:
            self.application.executors[executor] = node
        self.application.events.write("joined", executor=executor, node=node)
        self._hurry()

    def _note_suspicions(self) -> None:
        suspected, cleared = self.membership.suspicions()
        if suspected or cleared:
            self.reports.suspected |= set(suspected)
            self.reports.suspected -= set(cleared)
            self._hurry()

    def _note_hold(self) -> None:
        """Say when nearly all executors are silent together, and when they are held no longer."""
        held = len(self.membership.hold.executors)
        if bool(held) != self.is_holding:
            self.is_holding = bool(held)
            self.application.events.write("holding" if held else "hold-over", executors=held)

    def _note_slow_readers(self) -> None:
        """Say for whom frames wait on links, and when that is over."""
        application, now = self.application, time.monotonic()
        is_linked = application.settings.runtime.exchange == LINKS
        if not is_linked or now - self.backlogs_read_at < BACKLOG_LOOK_SECONDS:
            return
        self.backlogs_read_at = now
        backlogs = application.exchange.link_backlogs()
        self.statistics.link_waiting_bytes = sum(one.waiting_bytes for one in backlogs)
        begun, over = self.slow_readers.look(backlogs, now)
        for executor, backlog in begun.items():
            if node := self._node(executor):
                application.events.write(
                    "links-wait",
                    node=node,
                    producers=sorted({*filter(None, map(self._node, backlog.producers))}),
                    bytes=backlog.waiting_bytes,
                    refusals=backlog.refusals,
                    text=backlog.text,
                )
        if nodes := sorted(filter(None, map(self._node, over))):
            application.events.write("links-flow", nodes=nodes)

    def _hurry(self) -> None:
        """Something has happened that the coordinator should know at once."""
        self.conferred_at = 0.0

    def _confer(self) -> None:
        self.conferred_at = time.monotonic()
        if self.guidance.fenced:
            raise self.guidance.fenced
        self.reports.seen = self.membership.sightings()
        advice = self.guidance.confer(self.application.paused)
        for kind, text in self.guidance.refused():
            self.application.events.write("report-refused", report=kind, text=text)
        alone = self.guidance.alone
        if alone != self.was_alone:
            self.was_alone = alone
            self.application.events.write("alone" if alone else "led")
        for instruction in advice.instructions:
            self._note(instruction)
        for directive in advice.directives:
            self._obey(directive)

    def _lose(self, loss: ExecutorLoss) -> None:
        """Executors are gone: take them out everywhere, then tell the core."""
        application = self.application
        self.was_complete = False
        with application.lock:
            application.losses += 1
            undone = application.progress.undone_by(loss.executors)
            emptied = application.progress.lose(loss.executors)
            for executor in loss.executors:
                application.executors.pop(executor, None)
                application.warm.discard(executor)
                self.statistics.forget(executor)
        self.host_failures.forget(loss.executors)
        application.links.forget(loss.executors)
        # a job over links fails of a lost executor before the loss is seen
        application.links_rest_until = 0.0
        application.remove(emptied)
        for executor, node in sorted(loss.executors.items()):
            application.events.write(
                "confirmed", executor=executor, node=node, silent=executor in loss.silent
            )
        self._tell_undone(undone)
        self.reports.suspected -= set(loss.executors.values())
        for executor in loss.executors:
            self.reports.relapses.pop(executor, None)
        self._hurry()

    def _miss_host(self, executor: str, result: Result) -> None:
        """A host has been started again, or does not start any more: find out whose fault it is."""
        is_dead = executor in result.hostless_executors
        if is_dead and self.host_failures.count(executor, result.blamed.get(executor)):
            self._give_up(executor)
            return
        if (undone := fault_attribution.restart(self.application, executor)) is None:
            self._lose_state(executor)
            return
        self.was_complete = False
        self.statistics.forget(executor)
        self._tell_undone(undone)
        self._hurry()

    def _make_again(self, damaged: Collection[tuple[int, int]]) -> None:
        """Frames were damaged when they were read: they are read once more, and then made again by
        what made them, from its restore point, for a producer and its frames share their fate."""
        application, retained = self.application, self.application.progress.retained
        with application.lock:
            holders = {key: retained.holder(*key) for key in damaged}
            once = self.damaged_frames ^ set(damaged)
            gone = {key for key in once if retained.holder(*key) is None}
        again = {key: holders[key] for key in self.damaged_frames & holders.keys()}
        self.damaged_frames = once - gone
        for executor in sorted({executor for executor in again.values() if executor is not None}):
            producer, epoch = min(key for key, where in again.items() if where == executor)
            application.events.write(
                "blocks-damaged",
                executor=executor,
                node=self._node(executor),
                partition=application.program.partition_names[producer],
                epoch=epoch,
            )
            self._lose_state(executor, blocks=True)

    def _lose_state(self, executor: str, *, blocks: bool = False) -> None:
        """A host has been started anew: its executor's partitions are lost, its node is not.
        `blocks`: what the executor keeps of their frames is of no use either."""
        application = self.application
        node = application.executors.get(executor)
        if node is None:
            return
        self.was_complete = False
        with application.lock:
            application.losses += 1
            undone = application.progress.undone_by([executor])
            progress = application.progress
            emptied = progress.lose([executor]) if blocks else progress.forget_state([executor])
            self.statistics.forget(executor)
        application.remove(emptied)
        self.reports.relapses[executor] = self.reports.relapses.get(executor, 0) + 1
        application.events.write("state-lost", executor=executor, node=node)
        self._tell_undone(undone)
        self._hurry()

    def _tell_undone(self, partitions: Collection[int]) -> None:
        """These have survived, and go back all the same."""
        if partitions:
            application = self.application
            epoch = min(map(application.progress.restore_points.epoch, partitions))
            names = application.names(partitions)
            application.events.write("rolled-back", epoch=epoch, partitions=names)

    def _give_up(self, executor: str) -> None:
        """An executor whose host does not start any more is of no use: a new one may be."""
        if (node := self._node(executor)) is None:
            return
        self.application.events.write("host-failed", executor=executor, node=node)
        self.membership.drop(executor, "its host does not start")

    def _leave_alone(self, executor: str) -> None:
        """An executor without room on its disk can pass nothing on: the others go on without it."""
        if (node := self._node(executor)) is None:
            return
        seconds = self.membership.drop_full(executor)
        self.application.events.write("disk-full", executor=executor, node=node, seconds=seconds)

    def _drop_unreachable(self, result: Result) -> bool:
        """Drop the executor that most others cannot read from, once that has gone on for so long
        that a silent one would have been dropped; whether one was."""
        self.application.links.fail(result.cut_links, time.monotonic())
        present = self.membership.heard & self.application.executors.keys()
        limit_seconds = self.application.settings.policy.silent_seconds
        found = self.application.links.worst(present, self._priorities(), limit_seconds)
        if found is None or (node := self._node(found[0])) is None:
            return False
        executor, peers = found
        seconds = self.membership.drop_and_wait(executor, "unreachable by peers")
        self.application.links.forget([executor])
        self.application.events.write(
            "unreachable",
            executor=executor,
            node=node,
            peers=sorted(filter(None, map(self._node, peers))),
            seconds=seconds,
            reason=Reason.UNREACHABLE_BY_PEERS,
        )
        return True

    def _priorities(self) -> dict[str, float]:
        """Per executor, the priorities of all query partitions that would stop without it."""
        application, priorities = self.application, self.guidance.priorities
        found: dict[str, float] = {}
        with application.lock:
            placed = application.progress.placed
            names = application.program.partition_names
            where = {names[number]: executor for number, executor in placed.items()}
        for query_partition, closure in self.guidance.closures.items():
            for executor in {where[name] for name in closure if name in where}:
                priority = priorities.get(query_partition, 0.0)
                found[executor] = found.get(executor, 0.0) + priority
        return found

    def _node(self, executor: str) -> str | None:
        """The node of an executor that belongs to the application; None: it does not, any more."""
        return (
            None
            if executor in self.membership.dropped
            else self.application.executors.get(executor)
        )

    def _note(self, instruction: instructions.Instruction) -> None:
        """Write down what the core in here has decided, as a coordinator does in its own log."""
        events = self.application.events
        match instruction:
            case instructions.PublishPlan(plan):
                self._announce(plan)
            case instructions.RecordEvent(kind, reason, text, details):
                events.write(kind, reason=str(reason), text=text, details=dict(details))
            case instructions.RequestNodes(count, domains, reason):
                outside = list(domains)
                events.write("nodes-requested", count=count, outside=outside, reason=str(reason))

    def _obey(self, directive: protocol.Directive) -> None:
        application, reason = self.application, directive.reason
        match directive.order:
            case protocol.PlanOrder() as order:
                self._drop(order.drops)
                self._carry_out(order, directive.plan_epoch)
            case protocol.MoveOrder(placement=placement):
                partition_migration.order(application, placement, reason)
                application.events.write("moving", placement=placement, reason=reason)
            case protocol.BufferingOrder(mode=mode):
                application.buffering = mode
                self._tell_switch("buffering", mode, reason)
            case protocol.OrderingOrder(mode=mode):
                application.ordering = mode
                self._tell_switch("ordering", mode, reason)
            case protocol.LagGoalsOrder(goals=goals):
                lag_goals.change(application, goals, driver_clock.now())
                application.events.write("lag-goals", goals=goals, reason=reason)
            case protocol.DropOrder(nodes=nodes):
                self._drop(nodes)
                application.events.write("dropped", nodes=sorted(nodes), reason=reason)
            case protocol.PauseOrder() | protocol.ResumeOrder() as order:
                application.paused = isinstance(order, protocol.PauseOrder)
                kind = "paused" if application.paused else "resumed"
                application.events.write(kind, epoch=application.newest, reason=reason)
        self._hurry()

    def _tell_switch(self, kind: str, mode: str, reason: str) -> None:
        """`epoch` is the first one to begin from now on: jobs take up the mode as they start."""
        epoch = self.application.begun + 1
        self.application.events.write(kind, mode=mode, reason=reason, epoch=epoch)

    def _drop(self, nodes: dict[str, str]) -> None:
        """Take executors out of Spark's scheduler, if they are still those that are meant. They are
        lost at once: a plan that comes with the order places what runs there."""
        dropped: dict[str, str] = {}
        for executor, node in list(self.application.executors.items()):
            meant = nodes.get(node)
            if meant == self.reports.incarnation(executor) and (
                executor not in self.membership.dropped
            ):
                self.membership.drop(executor, "ordered")
                dropped[executor] = node
        if dropped:
            self._lose(self.membership.lose(dropped))

    def _carry_out(self, order: protocol.PlanOrder, plan_epoch: int) -> None:
        """Place a plan's partitions; catch-up and epoch loop bring them forward."""
        application = self.application
        by_node = {node: executor for executor, node in application.executors.items()}
        if order.rollback:
            self._roll_back(plan_epoch)
        with application.lock:
            application.plan_epoch = plan_epoch
            numbers = application.program.numbers
            for partition, node in order.placement.items():
                number = numbers.get(partition)
                if number is None or number in application.progress.placed:
                    continue
                if number in application.progress.stopped:
                    continue
                if node in by_node:
                    application.progress.place(number, by_node[node], plan_epoch)
            application.progress.suspend_orphans()
        application.events.write("ack", plan_epoch=plan_epoch, epoch=application.newest)

    def _roll_back(self, plan_epoch: int) -> None:
        """Survivors go back to the restore point: what they have made since was not retained."""
        application = self.application
        self.was_complete = False
        with application.lock:
            application.losses += 1
            emptied = application.progress.roll_back(plan_epoch)
            application.staged.clear()
        application.remove(emptied)
        application.events.write("rolled-back", epoch=application.progress.restore_points.oldest)

    def _announce(self, plan: instructions.Plan) -> None:
        self.application.events.write(
            "plan",
            plan_epoch=plan.plan_epoch,
            n=plan.plan_epoch,
            queries=list(plan.query_partitions),
            placement=dict(plan.placement),
            priority_sum=plan.answer.priority_sum,
            priorities=self.guidance.priorities,
            reason=str(plan.reason),
            text=instructions.describe(plan),
            problem=plan_problem.to_record(plan.problem),
            answer=plan_problem.answer_to_record(plan.answer),
        )
