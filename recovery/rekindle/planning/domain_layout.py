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

from rekindle.model.plan_problem import QueryDemand
from rekindle.planning.placement import place
from rekindle.planning.problem_arrays import ROUNDING_CPU_PERCENT

EVENNESS = 0.1
# of what nodes hold: how far they are filled where that suffices, for what is measured wavers
FILL_SHARE = 0.9
# A domain's part in all work, in multiples of an even part, beyond which a closure is begun there
# only where no domain that is below it holds the whole.
CEILINGS = (1.1, 1.5, math.inf)
# Attempts to bring a closure together; each looks at all queries that share something with it.
GATHERINGS_MAX = 2_000

Costs = Mapping[str, float]
Where = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DomainLayout:
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


def stopped(layout: DomainLayout, node_of: Where) -> dict[str, float]:
    """Per domain, the sum of priorities that its loss stops."""
    return dict(_Losses.of(layout, node_of).stopped)


def work_shares(layout: DomainLayout, node_of: Where) -> dict[str, float]:
    """Per domain, the share of all partitions' CPU that is lost with it."""
    losses = _Losses.of(layout, node_of)
    return {domain: work / losses.all_work for domain, work in losses.work.items()}


def overfull(layout: DomainLayout, node_of: Where) -> tuple[str, ...]:
    """The domains that are to carry more than their nodes hold."""
    room = _room(layout)
    return tuple(
        domain
        for domain, work in _Losses.of(layout, node_of).work.items()
        if work > room[domain] + ROUNDING_CPU_PERCENT
    )


def worth(layout: DomainLayout, node_of: Where) -> float:
    """What a placement costs in priority, the less the better; see above."""
    return _Losses.of(layout, node_of).worth


def arranged(layout: DomainLayout, current: Where) -> dict[str, str] | None:
    """Partition -> node for all partitions: the best arrangement found, `current` where that is
    one that fits, with as much as possible where it is (`current` may name only some). None where
    there is no room."""
    spared = replace(layout, capacities={n: FILL_SHARE * c for n, c in layout.capacities.items()})
    found: list[Where] = [*(_packings(spared, current) or _packings(layout, current))]
    if all(current.get(partition) in layout.capacities for partition in layout.costs):
        found.insert(0, {partition: current[partition] for partition in layout.costs})
    assert all(node_of.keys() == layout.costs.keys() for node_of in found)
    settled = [_settled(layout, node_of, current) for node_of in found]
    fitting = [node_of for node_of in settled if _fits(layout, node_of)]
    return min(fitting, key=lambda node_of: worth(layout, node_of), default=None)


def _packings(layout: DomainLayout, current: Where) -> list[dict[str, str]]:
    """What each order and ceiling leads to, without those that leave something over."""
    found = [
        packing.node_of
        for order in _orders(layout)
        for ceiling in CEILINGS
        if (packing := _packed(layout, current, order, ceiling)) is not None
    ]
    for node_of in found:
        _gather(layout, node_of)
    return found


def _fits(layout: DomainLayout, node_of: Where) -> bool:
    used = dict.fromkeys(layout.capacities, 0.0)
    for partition, node in node_of.items():
        used[node] += layout.costs[partition]
    return all(used[n] <= c + ROUNDING_CPU_PERCENT for n, c in layout.capacities.items())


def _room(layout: DomainLayout) -> dict[str, float]:
    """Per domain, what its nodes hold."""
    room = dict.fromkeys(sorted(set(layout.domains.values())), 0.0)
    for node, cpu_percent in layout.capacities.items():
        room[layout.domains[node]] += cpu_percent
    return room


def _orders(layout: DomainLayout) -> Iterator[list[str]]:
    """Queries by priority, and by priority over cost; equals by what they need, so that those with
    the same closure come together."""
    costs = {
        name: sum(layout.costs[partition] for partition in query.partitions)
        for name, query in layout.queries.items()
    }

    def density(name: str) -> float:
        return layout.queries[name].priority / max(costs[name], 1e-9)

    def priority(name: str) -> float:
        return layout.queries[name].priority

    for value in (priority, density):
        yield sorted(
            layout.queries,
            key=lambda name: (-value(name), sorted(layout.queries[name].partitions), name),
        )


@dataclass(slots=True)
class _Packing:
    """A placement that grows, what is free on each node, what each domain may still be given while
    nothing is over the ceiling (`left_cpu_percent`), and what its loss would stop so far."""

    layout: DomainLayout
    free_cpu_percent: dict[str, float]
    left_cpu_percent: dict[str, float]
    node_of: dict[str, str] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)

    def add(self, query: QueryDemand, current: Where) -> bool:
        """Place what a query still lacks, in one domain where that is possible; whether all found
        room."""
        rest = {p: self.layout.costs[p] for p in query.partitions if p not in self.node_of}
        preferred = self._preferred(query, rest, current)
        below = [
            domain for domain in preferred if sum(rest.values()) <= self.left_cpu_percent[domain]
        ]
        above = [domain for domain in preferred if domain not in below]
        for domain in (*below, *above):
            rest = self._place(rest, domain, current, whole=True) if rest else rest
        for domain in self._preferred(query, rest, current) if rest else ():
            rest = self._place(rest, domain, current, whole=False) if rest else rest
        if rest:
            return False
        for domain in {self.layout.domains[self.node_of[p]] for p in query.partitions}:
            self.losses[domain] = self.losses.get(domain, 0.0) + query.priority
        return True

    def _preferred(self, query: QueryDemand, rest: Costs, current: Where) -> list[str]:
        """Domains: those that the query is in already, those with most of what it lacks, those
        whose loss stops least, those with most room."""
        domains = self.layout.domains
        there = dict.fromkeys(domains.values(), 0.0)
        for partition in query.partitions:
            if partition in self.node_of:
                there[domains[self.node_of[partition]]] += self.layout.costs[partition]
        home = dict.fromkeys(there, 0.0)
        for partition, cost in rest.items():
            if partition in current:
                home[domains[current[partition]]] += cost
        most = sum(rest.values()) / 2
        room = dict.fromkeys(there, 0.0)
        for node, cpu_percent in self.free_cpu_percent.items():
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
        needed = {p for query in self.layout.queries.values() for p in query.partitions}
        rest = {p: cost for p, cost in self.layout.costs.items() if p not in needed}
        placed = place(rest, self.free_cpu_percent, current, search_steps_max=0)
        self.node_of.update(placed.node_of)
        self.free_cpu_percent.update(placed.free_cpu_percent)
        for partition, node in placed.node_of.items():
            self.left_cpu_percent[self.layout.domains[node]] -= rest[partition]
        return not placed.unplaced

    def _place(self, rest: Costs, domain: str, current: Where, *, whole: bool) -> dict[str, float]:
        """What has found no room in a domain: everything, where it is to be the whole."""
        nodes = {
            n: cpu for n, cpu in self.free_cpu_percent.items() if self.layout.domains[n] == domain
        }
        placed = place(rest, nodes, current, search_steps_max=0)
        if whole and placed.unplaced:
            return dict(rest)
        self.node_of.update(placed.node_of)
        self.free_cpu_percent.update(placed.free_cpu_percent)
        self.left_cpu_percent[domain] -= sum(rest[partition] for partition in placed.node_of)
        return {partition: rest[partition] for partition in placed.unplaced}


def _packed(
    layout: DomainLayout, current: Where, order: Collection[str], ceiling: float
) -> _Packing | None:
    room = _room(layout)
    even = sum(layout.costs.values()) / (sum(room.values()) or 1.0)
    left = {domain: min(1.0, ceiling * even) * holds for domain, holds in room.items()}
    packing = _Packing(layout, dict(layout.capacities), left)
    known = {p: n for p, n in current.items() if n in layout.capacities}
    if not packing.keep(known):
        return None
    if not all(packing.add(layout.queries[name], known) for name in order):
        return None
    return packing


@dataclass(slots=True)
class _Losses:
    """What the loss of each domain stops (`stopped`) and the `work` lost with it, in CPU percent,
    kept up as partitions move. `held` counts each query's partitions by domain, `users` are the
    queries that need a partition."""

    layout: DomainLayout
    stopped: dict[str, float]
    work: dict[str, float]
    held: dict[str, Counter[str]]
    users: dict[str, list[str]]

    @staticmethod
    def of(layout: DomainLayout, node_of: Where) -> "_Losses":
        none = dict.fromkeys(sorted(set(layout.domains.values())), 0.0)
        losses = _Losses(layout, none, dict(none), {}, {})
        for partition, node in node_of.items():
            losses.work[layout.domains[node]] += layout.costs[partition]
        for name, query in layout.queries.items():
            losses.held[name] = Counter(layout.domains[node_of[p]] for p in query.partitions)
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
        total, work = self.layout.priority or 1.0, self.all_work
        squares = sum(loss * loss for loss in self.stopped.values())
        weighted = sum(
            loss * (1.0 + self.work[domain] / work) for domain, loss in self.stopped.items()
        )
        return weighted + EVENNESS * squares / total

    def move(self, partition: str, origin: str, target: str) -> None:
        """A partition goes from one domain to another."""
        self.work[origin] -= self.layout.costs[partition]
        self.work[target] += self.layout.costs[partition]
        for name in self.users.get(partition, ()):
            held, priority = self.held[name], self.layout.queries[name].priority
            held[origin] -= 1
            if not held[origin]:
                self.stopped[origin] -= priority
            if not held[target]:
                self.stopped[target] += priority
            held[target] += 1


def _gather(layout: DomainLayout, node_of: dict[str, str]) -> None:
    """Bring closures that are spread into one domain while that gains something."""
    free_cpu_percent = dict(layout.capacities)
    for partition, node in node_of.items():
        free_cpu_percent[node] -= layout.costs[partition]
    losses, attempts, gained = _Losses.of(layout, node_of), GATHERINGS_MAX, True
    while gained and attempts > 0:
        gained = False
        for name, query in layout.queries.items():
            touched = sorted(domain for domain, count in losses.held[name].items() if count)
            for domain in touched if len(touched) > 1 else ():
                attempts -= 1
                if attempts >= 0 and _gathered(
                    layout, node_of, free_cpu_percent, losses, query, domain
                ):
                    gained = True
                    break


def _gathered(
    layout: DomainLayout,
    node_of: dict[str, str],
    free_cpu_percent: dict[str, float],
    losses: _Losses,
    query: QueryDemand,
    domain: str,
) -> bool:
    """Bring a query's closure into one domain; everything stays as it was if nothing is gained."""
    domains = layout.domains
    away = {p: layout.costs[p] for p in query.partitions if domains[node_of[p]] != domain}
    nodes = {node: cpu for node, cpu in free_cpu_percent.items() if domains[node] == domain}
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
        free_cpu_percent[node_of[partition]] += cost
    free_cpu_percent.update(placed.free_cpu_percent)
    node_of.update(placed.node_of)
    return True


def _settled(layout: DomainLayout, node_of: Where, current: Where) -> dict[str, str]:
    """The same domains, with everything on the node where it is as far as that has room."""
    found: dict[str, str] = {}
    for domain in sorted(set(layout.domains.values())):
        held = {p: layout.costs[p] for p, node in node_of.items() if layout.domains[node] == domain}
        nodes = {n: cpu for n, cpu in layout.capacities.items() if layout.domains[n] == domain}
        placed = place(held, nodes, current)
        found |= {p: node_of[p] for p in held} if placed.unplaced else placed.node_of
    return found
