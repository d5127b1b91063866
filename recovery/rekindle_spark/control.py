"""The control plane inside the driver: observes, asks the coordinator core, obeys.

    gather   executors that came and went, silent ones, results of jobs
    decide   rekindle.coordination.advance(state, event, now)
    apply    plans to the progress, drops to Spark, words to the event log

The core lives in the driver here; with a coordination store the same events and instructions
travel through it, and this module becomes its client. Called from the epoch loop's thread.
"""

import queue
import time
from typing import Any

from rekindle import coordination, problem
from rekindle.coordination import Plan
from rekindle.errors import RunError
from rekindle_spark.application import Application
from rekindle_spark.checkpointing import Checkpointing
from rekindle_spark.membership import HostFailures, Loss, Membership
from rekindle_spark.running import Attempts, Result
from rekindle_spark.statistics import Statistics

__all__ = ["Control"]

TICK_SECONDS = 0.25
FAILING_SECONDS_MAX = 60.0
FIRST_COSTS_SHARE = 0.5


class Control:
    """One coordinator for one application."""

    def __init__(
        self, application: Application, checkpointing: Checkpointing, resumed: bool
    ) -> None:
        self.application = application
        self.checkpointing = checkpointing
        self.results: queue.Queue[Result] = queue.Queue()
        # of catch-up jobs, whose thread must not decide about the application
        self.failures: queue.Queue[tuple[Result, Attempts]] = queue.Queue()
        self.membership = Membership(application)
        self.host_failures = HostFailures()
        self.statistics = Statistics(application)
        self.was_complete = False
        self.ticked_at = 0.0
        settings = application.settings
        self.state = coordination.initial(
            application.program.topology,
            settings.policy,
            settings.runtime.nodes_expected,
            resumed=resumed,
            checkpoint_at=application.cuts[application.progress.restore_point].cut_at
            if resumed and application.progress.restore_point
            else None,
            hints=_hints(application),
        )

    @property
    def rows_per_second(self) -> float:
        """The rate at which rows arrive from the next cut on."""
        return self.statistics.rows_per_second

    def pump(self) -> None:
        """Take in what has happened and carry out what the coordinator says."""
        if self.application.failure is not None:
            raise self.application.failure
        self._take_results()
        for loss in self.membership.observe():
            self._lose(loss)
        for executor, node in self.membership.arrived():
            self._join(executor, node)
        suspected, cleared = self.membership.suspicions()
        for node in suspected:
            self.tell(coordination.NodeSuspected(node))
        for node in cleared:
            self._tell_back(node)
        costs = self.statistics.closed_window()
        if costs is not None:
            self.tell(coordination.StatisticsReported(costs))
        for epoch in self.checkpointing.taken():
            self.tell(coordination.CheckpointCompleted(epoch))
        if time.monotonic() - self.ticked_at > TICK_SECONDS:
            self.ticked_at = time.monotonic()
            self.tell(coordination.Tick())

    def tell(self, event: Any) -> None:
        """One event to the core; its instructions are carried out at once, a plan with a tick."""
        if not isinstance(event, coordination.Tick):
            self.ticked_at = 0.0
        self.state, instructions = coordination.advance(
            self.state, event, time.time(), clock=time.monotonic
        )
        for instruction in instructions:
            self._obey(instruction)

    def report_caught_up(self) -> None:
        """Tell of query partitions whose whole closure has become live."""
        application = self.application
        with application.lock:
            live = set(application.names(application.progress.live))
        for query_partition in sorted(self.state.catching_up):
            if self.state.closures[query_partition] <= live:
                application.events.write("caught-up", query_partition=query_partition)
                self.tell(coordination.QueryCaughtUp(query_partition))
        complete = len(live) == len(application.program.partition_names)
        if complete and not self.was_complete:
            application.events.write("recovered", epoch=application.newest)
        self.was_complete = complete

    def fail_after(self, result: Result, attempts: Attempts) -> None:
        """Decide about a job that failed without a loss: once more, or the end.

        A step's error counts: it will not go away by itself. Anything else is most often a loss
        that has not been noticed yet, so it gets time.
        """
        # after a loss this verdict is of partitions that have been placed anew since
        stale = result.losses != self.application.losses
        for executor in () if stale else sorted(result.stateless_executors):
            if executor in result.hostless_executors and self.host_failures.count(executor):
                self._give_up(executor)
            else:
                self._lose_state(executor)
        attempts.count(result.step_error is not None)
        self.application.events.write("job-failed", text=result.reason)
        settings = self.application.settings
        if result.step_error is not None:
            if attempts.step_errors >= settings.runtime.epoch_attempts_max:
                raise result.step_error
        elif attempts.seconds > settings.policy.silent_seconds + FAILING_SECONDS_MAX:
            raise RunError(
                where="epoch job",
                what=f"failed for {attempts.seconds:.0f} s: {result.reason}",
                remedy="see the driver's and the executors' logs; committed output stays",
            )

    def _take_results(self) -> None:
        while not self.results.empty():
            result = self.results.get()
            self.host_failures.forget(result.cpu.keys() - result.hostless_executors)
            self.checkpointing.acknowledge(result.acknowledgements)
            self.statistics.add(result)
        while not self.failures.empty():
            self.fail_after(*self.failures.get())

    def _join(self, executor: str, node: str) -> None:
        with self.application.lock:
            self.application.executors[executor] = node
        self.application.events.write("joined", executor=executor, node=node)
        self._tell_back(node)

    def _tell_back(self, node: str) -> None:
        capacity = self.application.settings.runtime.node_cpu_percent
        self.tell(coordination.NodeBack(node, capacity))

    def _lose(self, loss: Loss) -> None:
        """Executors are gone: take them out everywhere, then tell the core."""
        application = self.application
        self.was_complete = False
        with application.lock:
            application.losses += 1
            emptied = application.progress.lose(loss.executors)
            for executor in loss.executors:
                application.executors.pop(executor, None)
                self.statistics.forget(executor)
        self.host_failures.forget(loss.executors)
        application.exchange.remove(emptied)
        for executor, node in sorted(loss.executors.items()):
            application.events.write(
                "confirmed", executor=executor, node=node, silent=executor in loss.silent
            )
        self.tell(coordination.NodesLost(tuple(sorted(set(loss.executors.values())))))

    def _lose_state(self, executor: str) -> None:
        """A host has been started anew: its executor's partitions are lost, its node is not."""
        application = self.application
        node = application.executors.get(executor)
        if node is None:
            return
        self.was_complete = False
        with application.lock:
            application.losses += 1
            application.progress.forget_state(executor)
            self.statistics.forget(executor)
        application.events.write("state-lost", executor=executor, node=node)
        self.tell(coordination.NodesLost((node,)))
        self._tell_back(node)

    def _give_up(self, executor: str) -> None:
        """An executor whose host does not start any more is of no use: a new one may be."""
        node = self.application.executors.get(executor)
        if node is None or executor in self.membership.dropped:
            return
        self.application.events.write("host-failed", executor=executor, node=node)
        self.membership.drop(executor, "its host does not start")

    def _obey(self, instruction: Any) -> None:
        application = self.application
        match instruction:
            case coordination.PublishPlan(plan):
                self._carry_out(plan)
            case coordination.Record(kind, reason, text, details):
                application.events.write(kind, reason=str(reason), text=text, details=dict(details))
            case coordination.SetBuffering(mode, reason):
                application.events.write("buffering", mode=mode, reason=str(reason))
            case coordination.SetOrdering(mode, reason):
                application.events.write("ordering", mode=mode, reason=str(reason))
            case coordination.DropExecutors(nodes, reason):
                # observed losses are out of Spark's scheduler already (membership)
                application.events.write("dropped", nodes=list(nodes), reason=str(reason))
            case coordination.RequestNodes(count, domains, reason):
                application.events.write(
                    "nodes-requested", count=count, outside=list(domains), reason=str(reason)
                )

    def _carry_out(self, plan: Plan) -> None:
        """Place a plan's partitions; catch-up and epoch loop bring them forward."""
        application = self.application
        self._announce(plan)
        by_node = {node: executor for executor, node in application.executors.items()}
        with application.lock:
            application.plan_epoch = plan.plan_epoch
            numbers = application.program.numbers
            for partition, node in plan.placement.items():
                if node in by_node:
                    number = numbers[partition]
                    application.progress.place(number, by_node[node], plan.plan_epoch)
        application.events.write("ack", plan_epoch=plan.plan_epoch, epoch=application.newest)
        self.tell(coordination.PlanAcknowledged(plan.plan_epoch))

    def _announce(self, plan: Plan) -> None:
        self.application.events.write(
            "plan",
            plan_epoch=plan.plan_epoch,
            n=plan.plan_epoch,
            queries=list(plan.query_partitions),
            placement=dict(plan.placement),
            priority_sum=plan.answer.priority_sum,
            priorities=dict(self.state.priorities),
            reason=str(plan.reason),
            text=coordination.describe(plan),
            problem=problem.to_record(plan.problem),
            answer=problem.answer_to_record(plan.answer),
        )


def _hints(application: Application) -> dict[str, float]:
    """Shares of half the capacity by the steps' cost hints, until costs are measured."""
    runtime, policy = application.settings.runtime, application.settings.policy
    program = application.program
    weights = {
        program.partition_names[number]: chain.root.cost_hint
        for chain in program.chains
        for number in chain.partitions
    }
    capacity = runtime.nodes_expected * runtime.node_cpu_percent * policy.cpu_cap
    unit = capacity * FIRST_COSTS_SHARE / sum(weights.values())
    return {name: weight * unit for name, weight in weights.items()}
