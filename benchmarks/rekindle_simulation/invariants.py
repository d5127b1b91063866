"""What must hold at every moment, and in the end.

at a plan     no partition is placed that is active, plan epochs only grow, no node that it fills is
              over its cap, unless no report has said yet what partitions cost
at a move     everything runs, it goes to a node that is there, and none carries more than before,
              or, by domain, than its cap once all are made
at a commit   each epoch once, generations only grow
at a step     a driver that nobody leads plans what waits, some time after
at a decision a coordinator that is started anew decides the same, and what the loss of each domain
              would stop can be told
at an order   nothing goes to a node that is announced to go while any other is up
in the end    everything runs, the incident is closed, switches are as the policy says, load is even
              and, where placement is by domain, nothing is where its loss would stop too much
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rekindle.coordination import CoordinationState, Decision, NodeStatus, domain_placement
from rekindle.coordination.coordination_state import with_status
from rekindle.coordination.directive_acceptance import ALONE_SECONDS
from rekindle.model.settings import DOMAINS, Policy
from rekindle.protocol import MoveOrder, PlanOrder
from rekindle_simulation.simulated_nodes import CAPACITY_PERCENT

# a sidecar waits for 20 s, and its driver asks it again every second
LEADERLESS_SECONDS_MAX = 15.0


class Broken(Exception):
    """An invariant does not hold; the text says which and how."""


@dataclass(slots=True)
class Invariants:
    """Checks as the run goes; `plan_epochs` are the newest carried out, by generation. Executors
    take `overhead_percent` of a core beside their partitions. `guesses` are the directives of a
    coordinator that did not know yet what partitions cost; `reported` has the number of the report
    that each was made by."""

    policy: Policy
    overhead_percent: float
    plan_epochs: dict[int, int] = field(default_factory=dict)
    guesses: set[int] = field(default_factory=set)
    reported: dict[int, int] = field(default_factory=dict)
    directives: int = 0
    published: int = 0
    moves: int = 0

    def planned(
        self, generation: int, plan_epoch: int, order: PlanOrder, placement: Mapping[str, str]
    ) -> None:
        """A driver is about to carry out a plan."""
        known = self.plan_epochs.get(generation, 0)
        if plan_epoch <= known:
            raise Broken(f"driver {generation} carries out plan {plan_epoch} after {known}")
        self.plan_epochs[generation] = plan_epoch
        twice = sorted(order.placement.keys() & placement.keys())
        if twice:
            raise Broken(f"plan {plan_epoch} places {', '.join(twice)}, which run already")

    def placed(
        self, order: PlanOrder, placement: Mapping[str, str], costs: Mapping[str, float]
    ) -> None:
        """A driver has carried out a plan that was made with the costs known."""
        filled = set(order.placement.values())
        for node, cost in sorted(_used(placement, costs).items()):
            used = cost + self.overhead_percent
            if node in filled and used > self.policy.cpu_cap * CAPACITY_PERCENT + 1e-6:
                raise Broken(f"node {node} is planned to {used:.1f} % of a core")

    def moved(
        self,
        before: Mapping[str, str],
        placement: Mapping[str, str],
        costs: Mapping[str, float],
        nodes: Collection[str],
        *,
        waiting: bool,
        guessed: bool,
    ) -> None:
        """A driver has moved a partition. What was ordered before it decided alone for a while may
        make load less even for a moment, but fills no node beyond what it may carry; by domain,
        where partitions change places, that may be passed while some are `waiting`. One that was
        `guessed` may fill a node."""
        if set(before) != set(costs) or not set(placement.values()) <= set(nodes):
            raise Broken("a partition moves while something is lost")
        passing = waiting and self.policy.placement == DOMAINS
        cap = 1.0 if passing else self.policy.cpu_cap
        limit = max(cap * CAPACITY_PERCENT - self.overhead_percent, *_used(before, costs).values())
        most = max(_used(placement, costs).values())
        if most > limit + 1e-6 and not guessed:
            raise Broken(f"a move fills a node to {most:.1f} %")
        self.moves += 1

    def placed_where(self, decision: Decision, notices: Collection[str]) -> None:
        """A coordinator has decided, and knew which nodes are announced to go."""
        state = decision.case.state
        if state is None or not notices:
            return
        up = set(with_status(state, NodeStatus.UP))
        for directive in decision.directives:
            if isinstance(directive.order, PlanOrder | MoveOrder) and up.difference(notices):
                wrong = sorted(set(directive.order.placement.values()).intersection(notices))
                if wrong:
                    raise Broken(f"{', '.join(wrong)} get more, though announced to go")

    def decided(self, state: CoordinationState) -> None:
        """A coordinator has decided, whatever its nodes are like."""
        shares = domain_placement.stopped_shares(state, {})
        used = {state.nodes[node].domain or node for node in state.placement.values()}
        if not used <= shares.keys() or not all(-1e-9 <= x <= 1 + 1e-9 for x in shares.values()):
            raise Broken(f"the loss of {', '.join(sorted(used))} would stop {shares}")

    def committed(self, commits: list[tuple[int, int]]) -> None:
        """An epoch has been committed."""
        if len(commits) < 2:
            return
        (epoch, generation), (next_epoch, next_generation) = commits[-2:]
        if next_epoch <= epoch or next_generation < generation:
            raise Broken(
                f"driver {next_generation} commits epoch {next_epoch} "
                f"after driver {generation} committed {epoch}"
            )

    def waited(self, seconds: float, leaderless_seconds: float, *, in_contact: bool) -> None:
        """A plan has been due for a driver that does not plan, and nobody has led. One without
        contact to its sidecar is not told, and is alone some time after that."""
        most = LEADERLESS_SECONDS_MAX + (0.0 if in_contact else ALONE_SECONDS)
        if min(seconds, leaderless_seconds) > most:
            raise Broken(f"nobody plans for {seconds:.0f} s, though nobody leads")

    def forgotten(self) -> None:
        """The store has lost numbers: those that no driver has looked at may be given again. What a
        driver has carried out stays known."""
        self.directives = self.published = 0

    def wrote(
        self, sequence: int, plan_epoch: int | None, *, measured: bool, reported: int
    ) -> None:
        """A coordinator has published a directive, a plan when `plan_epoch` is not None, by the
        driver's report `reported`, and was told before what partitions cost when they are
        `measured`."""
        self.reported[sequence] = reported
        (self.guesses.discard if measured else self.guesses.add)(sequence)
        if sequence <= self.directives:
            raise Broken(f"directive {sequence} is published after {self.directives}")
        self.directives = sequence
        if plan_epoch is not None:
            if plan_epoch <= self.published:
                raise Broken(f"plan {plan_epoch} is published after {self.published}")
            self.published = plan_epoch


def _used(placement: Mapping[str, str], costs: Mapping[str, float]) -> dict[str, float]:
    """What each node carries."""
    return {
        node: math.fsum(costs[name] for name, where in placement.items() if where == node)
        for node in set(placement.values())
    }
