"""Placement that survives: the closures of important queries together, in few failure domains.

A query stops when any domain is lost in which it has a partition. So each closure should be in one
domain, and different closures in different ones: then a lost domain stops as little priority as
possible. Queries are placed one after the other, each beside what it shares with those before;
several orders are tried, and several limits on what a domain is filled with. Then closures that
are spread are gathered while that gains something.

    worth of a placement  =  sum over domains of what its loss stops
                                 x (1 + the share of all work that is lost with it)
                             + a tenth of the squares' sum over all priority, so that of two
                               placements the one counts that stops less at worst

The second factor stands for how long the recovery takes, which grows with what has to be brought
back: without it everything would go into one domain as soon as that holds it.

Chooses no queries and knows nothing of time; `coordination` decides when anything moves.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from rekindle.planning.instance import ROUNDING_CPU_PERCENT
from rekindle.planning.placement import place
from rekindle.problem import QueryDemand

__all__ = ["Stage", "arranged", "overfull", "stopped", "work_shares", "worth"]

EVENNESS = 0.1
# of what nodes hold: how far they are filled where that suffices, for what is measured wavers
FILL_SHARE = 0.9
# A domain's part in all work, in multiples of an even part, beyond which no closure is begun there.
CEILINGS = (1.1, 1.5, math.inf)
# Attempts to bring a closure together; each looks at all queries that share something with it.
GATHERINGS_MAX = 2_000

Costs = Mapping[str, float]
Where = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Stage:
    """What is to be placed where: CPU of partitions (`costs`) and what nodes hold (`capacities`),
    in percent of one core, the domain of each node, and what each query needs."""

    costs: Costs
    capacities: Costs
    domains: Where
    queries: Mapping[str, QueryDemand]

    @property
    def priority(self) -> float:
        """Of all queries together."""
        return sum(query.priority for query in self.queries.values())


def stopped(stage: Stage, node_of: Where) -> dict[str, float]:
    """Per domain, the sum of priorities that its loss stops."""
    return dict(_Losses.of(stage, node_of).stopped)


def work_shares(stage: Stage, node_of: Where) -> dict[str, float]:
    """Per domain, the share of all partitions' CPU that is lost with it."""
    losses = _Losses.of(stage, node_of)
    return {domain: work / losses.all_work for domain, work in losses.work.items()}


def overfull(stage: Stage, node_of: Where) -> tuple[str, ...]:
    """The domains that are to carry more than their nodes hold."""
    room = _room(stage)
    return tuple(
        domain
        for domain, work in _Losses.of(stage, node_of).work.items()
        if work > room[domain] + ROUNDING_CPU_PERCENT
    )


def worth(stage: Stage, node_of: Where) -> float:
    """What a placement costs in priority, the less the better; see above."""
    return _Losses.of(stage, node_of).worth


def arranged(stage: Stage, current: Where) -> dict[str, str] | None:
    """Partition -> node for all partitions: the best arrangement found, `current` included, with
    as much as possible where it is (`current` may name only some). None where there is no room."""
    spared = replace(stage, capacities={n: FILL_SHARE * c for n, c in stage.capacities.items()})
    found: list[Where] = [*(_packings(spared, current) or _packings(stage, current))]
    if all(current.get(partition) in stage.capacities for partition in stage.costs):
        found.insert(0, {partition: current[partition] for partition in stage.costs})
    assert all(node_of.keys() == stage.costs.keys() for node_of in found)
    settled = [_settled(stage, node_of, current) for node_of in found]
    fitting = [node_of for node_of in settled if _fits(stage, node_of)]
    return min(fitting, key=lambda node_of: worth(stage, node_of), default=None)


def _packings(stage: Stage, current: Where) -> list[dict[str, str]]:
    """What each order and ceiling leads to, without those that leave something over."""
    found = [
        packing.node_of
        for order in _orders(stage)
        for ceiling in CEILINGS
        if (packing := _packed(stage, current, order, ceiling)) is not None
    ]
    for node_of in found:
        _gather(stage, node_of)
    return found


def _fits(stage: Stage, node_of: Where) -> bool:
    used = dict.fromkeys(stage.capacities, 0.0)
    for partition, node in node_of.items():
        used[node] += stage.costs[partition]
    return all(used[n] <= c + ROUNDING_CPU_PERCENT for n, c in stage.capacities.items())


def _room(stage: Stage) -> dict[str, float]:
    """Per domain, what its nodes hold."""
    room = dict.fromkeys(sorted(set(stage.domains.values())), 0.0)
    for node, cpu_percent in stage.capacities.items():
        room[stage.domains[node]] += cpu_percent
    return room


def _orders(stage: Stage) -> Iterator[list[str]]:
    """Queries by priority, and by priority over cost; equals by what they need, so that those with
    the same closure come together."""
    costs = {
        name: sum(stage.costs[partition] for partition in query.partitions)
        for name, query in stage.queries.items()
    }

    def density(name: str) -> float:
        return stage.queries[name].priority / max(costs[name], 1e-9)

    def priority(name: str) -> float:
        return stage.queries[name].priority

    for value in (priority, density):
        yield sorted(
            stage.queries,
            key=lambda name: (-value(name), sorted(stage.queries[name].partitions), name),
        )


@dataclass(slots=True)
class _Packing:
    """A placement that grows, what is `free` on each node, what each domain may still be given
    (`left`), and what its loss would stop so far."""

    stage: Stage
    free: dict[str, float]
    left: dict[str, float]
    node_of: dict[str, str] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)

    def add(self, query: QueryDemand, current: Where) -> bool:
        """Place what a query still lacks, in one domain where that is possible; whether all found
        room."""
        rest = {p: self.stage.costs[p] for p in query.partitions if p not in self.node_of}
        preferred = self._preferred(query, rest, current)
        below = [domain for domain in preferred if sum(rest.values()) <= self.left[domain]]
        for domain in (*below, *preferred):
            rest = self._place(rest, domain, current, whole=True) if rest else rest
        for domain in self._preferred(query, rest, current) if rest else ():
            rest = self._place(rest, domain, current, whole=False) if rest else rest
        if rest:
            return False
        for domain in {self.stage.domains[self.node_of[p]] for p in query.partitions}:
            self.losses[domain] = self.losses.get(domain, 0.0) + query.priority
        return True

    def _preferred(self, query: QueryDemand, rest: Costs, current: Where) -> list[str]:
        """Domains: those that the query is in already, those with most of what it lacks, those
        whose loss stops least, those with most room."""
        domains = self.stage.domains
        there = dict.fromkeys(domains.values(), 0.0)
        for partition in query.partitions:
            if partition in self.node_of:
                there[domains[self.node_of[partition]]] += self.stage.costs[partition]
        home = dict.fromkeys(there, 0.0)
        for partition, cost in rest.items():
            if partition in current:
                home[domains[current[partition]]] += cost
        most = sum(rest.values()) / 2
        room = dict.fromkeys(there, 0.0)
        for node, cpu_percent in self.free.items():
            room[domains[node]] += cpu_percent
        return sorted(
            there,
            key=lambda name: (
                -there[name],
                home[name] <= most,
                self.losses.get(name, 0.0),
                -room[name],
                name,
            ),
        )

    def keep(self, current: Where) -> bool:
        """Place what no query needs and runs all the same, where it is as far as that has room;
        whether all found room."""
        needed = {p for query in self.stage.queries.values() for p in query.partitions}
        rest = {p: cost for p, cost in self.stage.costs.items() if p not in needed}
        placed = place(rest, self.free, current, search_steps_max=0)
        self.node_of.update(placed.node_of)
        self.free.update(placed.free_cpu_percent)
        for partition, node in placed.node_of.items():
            self.left[self.stage.domains[node]] -= rest[partition]
        return not placed.unplaced

    def _place(self, rest: Costs, domain: str, current: Where, *, whole: bool) -> dict[str, float]:
        """What has found no room in a domain: everything, where it is to be the whole."""
        nodes = {n: cpu for n, cpu in self.free.items() if self.stage.domains[n] == domain}
        placed = place(rest, nodes, current, search_steps_max=0)
        if whole and placed.unplaced:
            return dict(rest)
        self.node_of.update(placed.node_of)
        self.free.update(placed.free_cpu_percent)
        self.left[domain] -= sum(rest[partition] for partition in placed.node_of)
        return {partition: rest[partition] for partition in placed.unplaced}


def _packed(
    stage: Stage, current: Where, order: Collection[str], ceiling: float
) -> _Packing | None:
    room = _room(stage)
    even = sum(stage.costs.values()) / (sum(room.values()) or 1.0)
    left = {domain: min(1.0, ceiling * even) * holds for domain, holds in room.items()}
    packing = _Packing(stage, dict(stage.capacities), left)
    known = {p: n for p, n in current.items() if n in stage.capacities}
    if not packing.keep(known):
        return None
    if not all(packing.add(stage.queries[name], known) for name in order):
        return None
    return packing


@dataclass(slots=True)
class _Losses:
    """What the loss of each domain stops (`stopped`) and the `work` lost with it, in CPU percent,
    kept up as partitions move. `held` counts each query's partitions by domain, `users` are the
    queries that need a partition."""

    stage: Stage
    stopped: dict[str, float]
    work: dict[str, float]
    held: dict[str, Counter[str]]
    users: dict[str, list[str]]

    @staticmethod
    def of(stage: Stage, node_of: Where) -> "_Losses":
        none = dict.fromkeys(sorted(set(stage.domains.values())), 0.0)
        losses = _Losses(stage, none, dict(none), {}, {})
        for partition, node in node_of.items():
            losses.work[stage.domains[node]] += stage.costs[partition]
        for name, query in stage.queries.items():
            losses.held[name] = Counter(stage.domains[node_of[p]] for p in query.partitions)
            for domain in losses.held[name]:
                losses.stopped[domain] += query.priority
            for partition in query.partitions:
                losses.users.setdefault(partition, []).append(name)
        return losses

    @property
    def all_work(self) -> float:
        return sum(self.work.values()) or 1.0

    @property
    def worth(self) -> float:
        total, work = self.stage.priority or 1.0, self.all_work
        squares = sum(loss * loss for loss in self.stopped.values())
        weighted = sum(
            loss * (1.0 + self.work[domain] / work) for domain, loss in self.stopped.items()
        )
        return weighted + EVENNESS * squares / total

    def move(self, partition: str, origin: str, target: str) -> None:
        """A partition goes from one domain to another."""
        self.work[origin] -= self.stage.costs[partition]
        self.work[target] += self.stage.costs[partition]
        for name in self.users.get(partition, ()):
            held, priority = self.held[name], self.stage.queries[name].priority
            held[origin] -= 1
            if not held[origin]:
                self.stopped[origin] -= priority
            if not held[target]:
                self.stopped[target] += priority
            held[target] += 1


def _gather(stage: Stage, node_of: dict[str, str]) -> None:
    """Bring closures that are spread into one domain while that gains something."""
    free = dict(stage.capacities)
    for partition, node in node_of.items():
        free[node] -= stage.costs[partition]
    losses, left, gained = _Losses.of(stage, node_of), GATHERINGS_MAX, True
    while gained and left > 0:
        gained = False
        for name, query in stage.queries.items():
            touched = sorted(domain for domain, count in losses.held[name].items() if count)
            for domain in touched if len(touched) > 1 else ():
                left -= 1
                if left >= 0 and _gathered(stage, node_of, free, losses, query, domain):
                    gained = True
                    break


def _gathered(
    stage: Stage,
    node_of: dict[str, str],
    free: dict[str, float],
    losses: _Losses,
    query: QueryDemand,
    domain: str,
) -> bool:
    """Bring a query's closure into one domain; everything stays as it was if nothing is gained."""
    domains = stage.domains
    away = {p: stage.costs[p] for p in query.partitions if domains[node_of[p]] != domain}
    nodes = {node: cpu for node, cpu in free.items() if domains[node] == domain}
    placed = place(away, nodes, search_steps_max=0)
    if placed.unplaced:
        return False
    before = losses.worth
    for partition in away:
        losses.move(partition, domains[node_of[partition]], domain)
    if losses.worth >= before * (1 - 1e-9):
        for partition in away:
            losses.move(partition, domain, domains[node_of[partition]])
        return False
    for partition, cost in away.items():
        free[node_of[partition]] += cost
    free.update(placed.free_cpu_percent)
    node_of.update(placed.node_of)
    return True


def _settled(stage: Stage, node_of: Where, current: Where) -> dict[str, str]:
    """The same domains, with everything on the node where it is as far as that has room."""
    found: dict[str, str] = {}
    for domain in sorted(set(stage.domains.values())):
        held = {p: stage.costs[p] for p, node in node_of.items() if stage.domains[node] == domain}
        nodes = {n: cpu for n, cpu in stage.capacities.items() if stage.domains[n] == domain}
        placed = place(held, nodes, current)
        found |= {p: node_of[p] for p in held} if placed.unplaced else placed.node_of
    return found
