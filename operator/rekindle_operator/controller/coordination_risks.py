"""Risks of the coordination: store, coordinators and webhook, the contact of drivers.

A danger is a reason with a sentence, the worst first. `policy_conditions.at_risk` makes the
condition CoordinationAtRisk of them, for a policy from all of its applications, for a Recovery from
one. It is True when something is wrong, unlike the other conditions: what is told is that the next
failure may find nobody to act, while everything still runs. Pure; the operator's shell calls it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rekindle.coordination.application_status import counted, named
from rekindle.coordination.session import Driver
from rekindle.model.reasons import Reason
from rekindle_operator.recovery.recovery_reasons import RecoveryReason, Word


@dataclass(frozen=True, slots=True)
class Coordination:
    """The store and who decides. `servers` are those that are configured, `servers_up` those that
    serve, None where nobody has asked them one by one. `coordinators` act or would take over, None
    where nobody has counted them. `webhook_away`: nobody gives drivers that start their sidecar.
    """

    store_reachable: bool
    servers: int
    servers_up: int | None = None
    coordinators: int | None = None
    webhook_away: bool = False


@dataclass(frozen=True, slots=True)
class DriverContact:
    """How an application's driver is in touch; `trouble` is why nothing is decided about it."""

    application: str
    driver: Driver
    alone: bool = False
    trouble: str = ""


def dangers(
    coordination: Coordination, contacts: Iterable[DriverContact] = ()
) -> tuple[tuple[Word, str], ...]:
    """Everything that is wrong, the worst first; nothing where all is well."""
    drivers = tuple(contacts)
    return (*_now(coordination), *_of_drivers(drivers), *_next(coordination))


def _now(coordination: Coordination) -> Iterator[tuple[Word, str]]:
    """What keeps anybody from acting now."""
    if not coordination.store_reachable:
        text = "The coordination store does not answer: drivers plan by themselves."
        yield Reason.STORE_UNREACHABLE, text


def _of_drivers(contacts: tuple[DriverContact, ...]) -> Iterator[tuple[Word, str]]:
    for contact in contacts:
        if contact.trouble:
            text = f"Nothing is decided about {contact.application}: {contact.trouble}"
            yield Reason.BAD_RECORD, text
    silent = tuple(item.application for item in contacts if item.driver is Driver.SILENT)
    if silent:
        yield Reason.DRIVER_SILENT, f"No heartbeat of the driver: {named(silent)}."
    alone = tuple(
        item.application for item in contacts if item.alone and item.driver is Driver.THERE
    )
    if alone:
        yield Reason.DRIVER_ALONE, f"The driver plans by itself: {named(alone)}."


def _next(coordination: Coordination) -> Iterator[tuple[Word, str]]:
    """What one more failure would end, or would not survive."""
    if coordination.webhook_away:
        yield (
            RecoveryReason.WEBHOOK_AWAY,
            "No replica of the webhook is available: drivers that start have no sidecar.",
        )
    up, servers = coordination.servers_up, coordination.servers
    if coordination.store_reachable and up is not None and up < servers:
        spare = up - (servers // 2 + 1)
        more = f"{counted(spare, 'more')} may go" if spare > 0 else "it ends with one more"
        yield (
            RecoveryReason.STORE_DEGRADED,
            f"{up} of {servers} servers of the store answer: {more}.",
        )
    if servers == 1:
        yield (
            RecoveryReason.STORE_SINGLE,
            "The store has one server: it is gone with that server's node.",
        )
    if coordination.coordinators == 1:
        yield RecoveryReason.NO_STANDBY, "One operator runs: nobody would take over at once."
