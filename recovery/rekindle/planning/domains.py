"""Placement that survives: the closures of important queries together, in few failure domains.

A query stops when any domain is lost in which it has a partition. So each closure should be in one
domain, and different closures in different ones: then a lost domain stops as little priority as
possible. Queries are placed one after the other, each beside what it shares with those before;
several orders are tried. Then closures that are spread are gathered while that gains something.

    worth of a placement  =  sum over domains of what its loss stops
                             + a tenth of the squares' sum over all priority, so that of two
                               placements the one counts that stops less at worst

Chooses no queries and knows nothing of time; `coordination` decides when anything moves.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from rekindle.planning.placement import place
from rekindle.problem import QueryDemand

__all__ = ["Stage", "arranged", "stopped", "worth"]

EVENNESS = 0.1
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


def worth(stage: Stage, node_of: Where) -> float:
    """What a placement costs in priority, the less the better; see above."""
    return _Losses.of(stage, node_of).worth


def arranged(stage: Stage, current: Where) -> dict[str, str] | None:
    """Partition -> node for all partitions: the best arrangement found, `current` included, with
    as much as possible where it is (`current` may name only some). None where there is no room."""
    found = [
        packing.node_of
        for order in _orders(stage)
        if (packing := _packed(stage, current, order)) is not None
    ]
    for node_of in found:
        _gather(stage, node_of)
    settled = [_settled(stage, node_of, current) for node_of in found]
    if all(current.get(partition) in stage.capacities for partition in stage.costs):
        settled.insert(0, {partition: current[partition] for partition in stage.costs})
    return min(settled, key=lambda node_of: worth(stage, node_of), default=None)


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
    """A placement that grows, what is free, and what each domain's loss would stop so far."""

    stage: Stage
    free: dict[str, float]
    node_of: dict[str, str] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)

    def add(self, query: QueryDemand, current: Where) -> bool:
        """Place what a query still lacks, in one domain where that is possible; whether all found
        room."""
        rest = {p: self.stage.costs[p] for p in query.partitions if p not in self.node_of}
        for domain in self._preferred(query, rest, current):
            if not rest:
                break
            rest = self._place(rest, domain, current, whole=True)
        for domain in self._preferred(query, rest, current):
            if not rest:
                break
            rest = self._place(rest, domain, current, whole=False)
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

    def _place(self, rest: Costs, domain: str, current: Where, *, whole: bool) -> dict[str, float]:
        """What has found no room in a domain: everything, where it is to be the whole."""
        nodes = {n: cpu for n, cpu in self.free.items() if self.stage.domains[n] == domain}
        placed = place(rest, nodes, current, search_steps_max=0)
        if whole and placed.unplaced:
            return dict(rest)
        self.node_of.update(placed.node_of)
        self.free.update(placed.free_cpu_percent)
        return {partition: rest[partition] for partition in placed.unplaced}


def _packed(stage: Stage, current: Where, order: Collection[str]) -> _Packing | None:
    packing = _Packing(stage, dict(stage.capacities))
    known = {p: n for p, n in current.items() if n in stage.capacities}
    for name in order:
        if not packing.add(stage.queries[name], known):
            return None
    return packing


@dataclass(slots=True)
class _Losses:
    """What the loss of each domain stops (`stopped`), kept up as partitions move. `held` counts
    each query's partitions by domain, `users` are the queries that need a partition."""

    stage: Stage
    stopped: dict[str, float]
    held: dict[str, Counter[str]]
    users: dict[str, list[str]]

    @staticmethod
    def of(stage: Stage, node_of: Where) -> "_Losses":
        losses = _Losses(stage, dict.fromkeys(sorted(set(stage.domains.values())), 0.0), {}, {})
        for name, query in stage.queries.items():
            losses.held[name] = Counter(stage.domains[node_of[p]] for p in query.partitions)
            for domain in losses.held[name]:
                losses.stopped[domain] += query.priority
            for partition in query.partitions:
                losses.users.setdefault(partition, []).append(name)
        return losses

    @property
    def worth(self) -> float:
        total = self.stage.priority or 1.0
        squares = sum(loss * loss for loss in self.stopped.values())
        return sum(self.stopped.values()) + EVENNESS * squares / total

    def move(self, partition: str, origin: str, target: str) -> None:
        """A partition goes from one domain to another."""
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
