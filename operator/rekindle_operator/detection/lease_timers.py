"""Leases by our own clock: which have stopped, and whether that says anything about their nodes.

A lease is silent when two looks, far enough apart, found it unchanged. Its renewTime is not read:
nodes' clocks may be wrong. What a look says is as old as the request (`asked_at`), and a change is
as young as the answer (`answered_at`): both err towards patience.

Three things may look like a dead node and are none:

- We were not looking. After a gap every timer starts again.
- No kubelet can renew. So a silent node is *singled out* only when some other lease was renewed
  later than its own ought to have been. At an outage for all, the last renewals lie less than an
  interval apart and nobody is singled out, in whatever order the leases fall silent.
- We have only just begun. A lease that is seen for the first time says nothing.

Knows nothing of nodes, applications or verdicts; `node_detector` calls it.
"""

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from rekindle_operator.detection.detection_input import Leases, Rules


@dataclass(frozen=True, slots=True)
class Timers:
    """What has been seen of leases; moments in seconds.

    `tokens` (node -> token) are of the newest look, and of leases that have gone since while their
    node is watched. `since` (node -> moment) holds the watched nodes: when we saw their lease
    change, or began to watch. `intervals` are those of the leases that say so. `asked_at` (None
    before the first) and `answered_at` are of the newest look. `restarted_at` is when all timers
    started last. At `renewed_after` or later some lease was renewed for certain.
    """

    tokens: Mapping[str, str] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, float] = field(default_factory=dict)
    asked_at: float | None = None
    answered_at: float = 0.0
    restarted_at: float = -math.inf
    renewed_after: float = -math.inf


def read(timers: Timers, leases: Leases | None, rules: Rules) -> tuple[Timers, frozenset[str]]:
    """The timers after a look, and the nodes whose leases have changed since the look before.

    A look that is not newer than the newest changes nothing.
    """
    earlier, before = timers, timers.asked_at
    if leases is None or (before is not None and leases.asked_at <= before):
        return timers, frozenset()
    old, new = timers.tokens, leases.tokens
    changed = frozenset(name for name, token in new.items() if old.get(name) != token)
    kept = {name: old[name] for name in old.keys() - new.keys() if name in timers.since}
    timers = replace(
        timers,
        tokens={**kept, **new} if kept else new,
        intervals=leases.intervals,
        asked_at=leases.asked_at,
        answered_at=leases.answered_at,
    )
    if before is None or _seconds_between(earlier, timers) > rules.gap_seconds:
        return restart(timers, leases.answered_at), changed
    if changed:
        since = dict(timers.since)
        for name in changed & since.keys():
            since[name] = leases.answered_at
        timers = replace(timers, since=since, renewed_after=before)
    return timers, changed


def restart(timers: Timers, at: float) -> Timers:
    """Every timer starts again: nothing counts as silent before a full period."""
    return replace(timers, since=dict.fromkeys(timers.since, at), restarted_at=at)


def watch(timers: Timers, nodes: Iterable[str], at: float) -> Timers:
    """Begin with nodes, or begin again."""
    begun = dict.fromkeys(nodes, at)
    return replace(timers, since={**timers.since, **begun}) if begun else timers


def forget(timers: Timers, nodes: Set[str]) -> Timers:
    """Stop watching nodes; their tokens stay, so that a change shows."""
    if timers.since.keys().isdisjoint(nodes):
        return timers
    return replace(timers, since={n: at for n, at in timers.since.items() if n not in nodes})


def silent(timers: Timers, rules: Rules) -> frozenset[str]:
    """Watched nodes whose lease was unchanged for all its intervals when we looked last."""
    if timers.asked_at is None:
        return frozenset()
    limit = timers.asked_at - rules.period_seconds
    candidates = [name for name, at in timers.since.items() if at <= limit]
    return frozenset(name for name in candidates if is_silent(timers, name, rules))


def is_silent(timers: Timers, name: str, rules: Rules) -> bool:
    """Whether one node is among those that are silent."""
    since = timers.since.get(name)
    if since is None or timers.asked_at is None:
        return False
    return timers.asked_at - since >= _interval(timers, name, rules) * rules.lease_intervals


def singled_out(timers: Timers, name: str, rules: Rules) -> bool:
    """Whether some lease was renewed when that of this node ought to have been, and was not."""
    return timers.renewed_after >= timers.since[name] + _due_seconds(timers, name, rules)


def overdue_seconds(timers: Timers, name: str, now: float, rules: Rules) -> float:
    """For how long a renewal has been due at `now`; 0 where none is, or nobody watches."""
    since = timers.since.get(name, now)
    return max(0.0, now - since - _due_seconds(timers, name, rules))


def renewed(timers: Timers, name: str, rules: Rules) -> bool:
    """Whether a watched node's lease had changed within its last interval when we looked last."""
    if timers.asked_at is None or timers.since[name] <= timers.restarted_at:
        return False
    return timers.asked_at - timers.since[name] <= _due_seconds(timers, name, rules)


def steady(timers: Timers, now: float, rules: Rules) -> bool:
    """Whether we have been looking for a full period without a gap, up to now."""
    if timers.asked_at is None or now - timers.asked_at > rules.gap_seconds:
        return False
    return timers.asked_at - timers.restarted_at >= rules.period_seconds


def knows_silence(timers: Timers, now: float, rules: Rules) -> bool:
    """Whether leases have been watched for twice as long as it takes to find a silent node. Before
    that a node that is silent all the time may not look lost yet."""
    if not steady(timers, now, rules) or timers.asked_at is None:
        return False
    return timers.asked_at - timers.restarted_at >= 2 * rules.period_seconds


def _interval(timers: Timers, name: str, rules: Rules) -> float:
    return max(rules.lease_seconds, timers.intervals.get(name, 0.0))


def _due_seconds(timers: Timers, name: str, rules: Rules) -> float:
    return _interval(timers, name, rules) * (1 + rules.renewal_slack)


def _seconds_between(earlier: Timers, later: Timers) -> float:
    """Between two looks: their requests or their answers, whichever lie further apart."""
    assert earlier.asked_at is not None
    assert later.asked_at is not None
    return max(later.asked_at - earlier.asked_at, later.answered_at - earlier.answered_at)
