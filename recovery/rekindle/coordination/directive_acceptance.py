"""The driver's side: which directives it takes, and when it plans by itself.

    led ──no contact for `alone_seconds`, or nobody leads; and something waits──► alone
     ▲                                                                             │
     └──────────────the store answers again, and a coordinator leads───────────────┘

A directive is refused when it is for another generation, when it has been taken before, or when the
coordinator that sent it did not know of a newer plan. Pure: the runtime
gives the moment, and carries out what is taken.
"""

from dataclasses import dataclass, replace

from rekindle.protocol import Directive, PlanOrder

ALONE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class AcceptedDirectives:
    """`plan_epoch` of the newest plan carried out, `directive` the newest one looked at,
    `contact_at` (seconds of a clock that is never set) when the store was last known to answer,
    None for a driver that has no coordinator. After `alone_seconds` without contact it is alone,
    and so it is while its sidecar says that no coordinator leads: `led` is False."""

    generation: int
    plan_epoch: int = 0
    directive: int = 0
    contact_at: float | None = None
    alone_seconds: float = ALONE_SECONDS
    led: bool = True


def is_early(following: AcceptedDirectives, directive: Directive) -> bool:
    """Whether another directive has to be looked at before; the sidecar gives this one again."""
    ours = directive.generation == following.generation
    return ours and directive.after > following.directive


def take(following: AcceptedDirectives, directive: Directive) -> tuple[AcceptedDirectives, str]:
    """The driver's new standing and why it refuses, empty when it takes the directive.

    One that is early must not be taken.
    """
    why = _refusal(following, directive)
    assert not is_early(following, directive)
    if directive.generation != following.generation:
        return following, why
    seen = replace(following, directive=max(following.directive, directive.sequence))
    if why or not isinstance(directive.order, PlanOrder):
        return seen, why
    return planned(seen, directive.plan_epoch), ""


def passed(following: AcceptedDirectives, sequence: int) -> AcceptedDirectives:
    """After a directive has been refused unread."""
    return replace(following, directive=max(following.directive, sequence))


def planned(following: AcceptedDirectives, plan_epoch: int) -> AcceptedDirectives:
    """After a plan has been carried out, the driver's own ones included."""
    return replace(following, plan_epoch=plan_epoch)


def contacted(following: AcceptedDirectives, now: float, *, led: bool = True) -> AcceptedDirectives:
    """After the store has answered; `led` is whether a coordinator leads there."""
    return replace(following, contact_at=now, led=led)


def is_alone(following: AcceptedDirectives, now: float) -> bool:
    """Whether the driver has to plan by itself if something waits."""
    contact_at = following.contact_at
    out_of_contact = contact_at is None or now - contact_at > following.alone_seconds
    return out_of_contact or not following.led


def _refusal(following: AcceptedDirectives, directive: Directive) -> str:
    if directive.generation != following.generation:
        return f"it is for generation {directive.generation}, this is {following.generation}"
    if directive.sequence <= following.directive:
        return f"directive {directive.sequence} has been looked at before"
    order, known = directive.order, following.plan_epoch
    plan = isinstance(order, PlanOrder)
    if directive.plan_epoch < known + plan:
        return f"its plan epoch {directive.plan_epoch} is behind {known}"
    if isinstance(order, PlanOrder) and order.builds_on != known:
        return f"it builds on plan {order.builds_on}, the newest is {known}"
    return ""
