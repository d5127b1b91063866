"""Which nodes are lost: some by name, all of a domain, or some by chance."""

import random
import re
from dataclasses import dataclass
from typing import Protocol

from rekindle.coordination import CoordinationState, NodeStatus, domain_placement
from rekindle.coordination.coordination_state import with_status
from rekindle.model.errors import InputError


class FailureModel(Protocol):
    """A way in which nodes are lost."""

    def victims(self, rng: random.Random) -> tuple[str, ...]:
        """The nodes, in order of name."""
        ...


@dataclass(frozen=True, slots=True)
class Named:
    """Always the same ones."""

    nodes: tuple[str, ...]

    def victims(self, rng: random.Random) -> tuple[str, ...]:
        """The same whatever the chance."""
        del rng
        return self.nodes


@dataclass(frozen=True, slots=True)
class Random:
    """So many of all."""

    count: int
    nodes: tuple[str, ...]

    def victims(self, rng: random.Random) -> tuple[str, ...]:
        """Each node as likely as any other."""
        return tuple(sorted(rng.sample(self.nodes, self.count)))


def parse(text: str, state: CoordinationState, where: str) -> FailureModel:
    """`nodes:A,B`, `domain:NAME` or `random:COUNT`; raises InputError that names `where`."""
    kind, _, rest = text.partition(":")
    up = with_status(state, NodeStatus.UP)
    if kind == "nodes":
        named = tuple(sorted(set(rest.split(","))))
        for node in named:
            if node not in up:
                _refuse(where, f"names node {node!r:.60}", up)
        return Named(named)
    if kind == "domain":
        known = domain_placement.domains_of(state)
        if rest not in known:
            _refuse(where, f"names domain {rest!r:.60}", tuple(known))
        return Named(known[rest])
    count = int(rest) if kind == "random" and re.fullmatch("[0-9]{1,6}", rest) else 0
    if 1 <= count <= len(up):
        return Random(count, up)
    raise InputError(
        where=where,
        what=f"is {text!r:.60}",
        remedy=f"give nodes:NAME,NAME or domain:NAME or random:COUNT of {len(up)} nodes",
    )


def _refuse(where: str, what: str, known: tuple[str, ...]) -> None:
    shown = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
    raise InputError(where=where, what=what, remedy=f"name one of: {shown}")
