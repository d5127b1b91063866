"""Requests for nodes, and what became of them.

Providers that make objects tell their own rows. Where the default does, by pending pods, there are
none: the core's requests are told as they are, for as long as nodes are missing. A row that nobody
asks for any more has arrived when nothing is missing, and was withdrawn otherwise. Called by
`status_builder` only.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from rekindle.coordination import next_plan
from rekindle.coordination.coordination_state import NodeStatus, with_status
from rekindle.coordination.directives import NodeRequestOrder
from rekindle.coordination.session import Driver
from rekindle_operator.api.conditions import camel_case
from rekindle_operator.api.custom_resources import clipped
from rekindle_operator.api.recovery_status import NodeRequest
from rekindle_operator.recovery.recovery_inputs import RecoveryInputs, moment

__all__ = ["added", "requests"]

ROWS_MAX = 100
COUNT_MAX = 5_000
DOMAIN_LENGTH_MAX = 63
DOMAINS_MAX = 20
PENDING: Final = "Pending"


def requests(
    before: tuple[NodeRequest, ...], scene: RecoveryInputs, now: float
) -> tuple[NodeRequest, ...]:
    """The rows after a look, in order of time."""
    rows = {row.name: row for row in before}
    given = tuple(_given(scene, now))
    oldest = min(map(_order, before)) if len(before) >= ROWS_MAX else None
    for row in given:
        known = rows.get(row.name)
        if known is not None:
            rows[row.name] = msgspec.structs.replace(row, requested_at=known.requested_at)
        elif oldest is None or _order(row) > oldest:
            # one that gave way for newer ones does not come back
            rows[row.name] = row
    still = {row.name for row in given}
    for name, row in rows.items():
        if name not in still and row.outcome == PENDING:
            rows[name] = _ended(row, scene, moment(now))
    return tuple(sorted(rows.values(), key=_order))


def added(before: Iterable[NodeRequest], rows: Iterable[NodeRequest]) -> int:
    """How many nodes were requested since `before`."""
    known = {row.name for row in before}
    return sum(row.count for row in rows if row.name not in known)


def _given(scene: RecoveryInputs, now: float) -> Iterator[NodeRequest]:
    """What is asked for now."""
    if scene.requests is not None:
        yield from scene.requests
        return
    asked: Mapping[str, NodeRequestOrder] = scene.decision.case.requests
    for identity, request in sorted(asked.items()):
        if request.what == "nodes" and identity.startswith(f"{scene.incident}-"):
            outside = sorted(set(scene.cluster.domains_avoided))
            yield NodeRequest(
                name=identity,
                provider=scene.provider,
                count=min(request.count, COUNT_MAX),
                outcome=PENDING,
                requested_at=moment(now),
                outside_domains=tuple(
                    clipped(name, DOMAIN_LENGTH_MAX) for name in outside[:DOMAINS_MAX]
                ),
                reason=camel_case(request.reason),
            )


def _ended(row: NodeRequest, scene: RecoveryInputs, at: datetime) -> NodeRequest:
    state = scene.state
    missing = next_plan.nodes_wanted(state) - len(with_status(state, NodeStatus.UP))
    met = missing <= 0 and scene.driver is not Driver.FINISHED
    return msgspec.structs.replace(row, outcome="Arrived" if met else "Withdrawn", ended_at=at)


def _order(row: NodeRequest) -> tuple[datetime, str]:
    return row.requested_at, row.name
