"""`kubectl rekindle status`: applications, whether they are protected, and what recovers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer
from rich.text import Text

from rekindle.model.errors import InputError
from rekindle_operator.api import custom_resources, recovery_policy, recovery_resource
from rekindle_operator.api.recovery_policy import RecoveryPolicy, SelectedApplication
from rekindle_operator.api.recovery_resource import Recovery, age
from rekindle_operator.kubectl import plugin_options, terminal_output
from rekindle_operator.kubectl.api_connection import POLICIES, RECOVERIES, ApiConnection, connected

# How applications stand, from policies and recoveries: a row for each application.
#
# Pure; the command `status` shows it.

SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class Row:
    """An application. `protected` is None where no policy's status says it; `reason` and `message`
    are why not, or what is not in order. `recovery` is the open one, "" without one, and `phase`
    is "" until somebody has looked at it. `at_risk` is the reason why coordination may fail, ""
    where it may not, None where nobody has looked."""

    namespace: str
    application: str
    kind: str
    policy: str
    protected: bool | None
    reason: str = ""
    message: str = ""
    recovery: str = ""
    phase: str = ""
    back: str = ""
    lost_nodes: int = 0
    story: str = ""
    at_risk: str | None = None


@dataclass(frozen=True, slots=True)
class StatusNotice:
    """Something that a person should know about an object; `reason` as its conditions have it."""

    where: str
    reason: str
    text: str


def rows_of(policies: Iterable[RecoveryPolicy], recoveries: Iterable[Recovery]) -> tuple[Row, ...]:
    """All applications that a policy's status or an open recovery names, in order."""
    found: dict[tuple[str, str, str], Row] = {}
    for policy in policies:
        for item in policy.status.applications:
            namespace = policy.metadata.namespace
            found[namespace, item.group or item.kind, item.name] = _selected(policy, item)
    for recovery in sorted(recoveries, key=age):
        if not recovery.status.has_ended:
            application = recovery.spec.application
            group = application.group or application.kind
            key = (recovery.metadata.namespace, group, application.name)
            found[key] = _recovering(found.get(key), recovery)
    return tuple(found[key] for key in sorted(found))


def notices(policies: Iterable[RecoveryPolicy]) -> Iterator[StatusNotice]:
    """What is wrong with policies, or not as their authors may think."""
    for policy in policies:
        where, status = f"policy {custom_resources.identity(policy)}", policy.status
        if status.observed_generation < policy.metadata.generation:
            text = "The operator has not looked at it since it was changed; does one run?"
            yield StatusNotice(where, "NotObserved", text)
        if policy.spec.paused:
            yield StatusNotice(where, "Paused", "Nothing is planned or requested.")
        if policy.spec.dry_run:
            yield StatusNotice(where, "DryRun", "Nothing is carried out.")
        for condition in status.conditions:
            if _is_wrong(condition):
                yield StatusNotice(where, condition.reason, condition.message)
        hidden = status.applications_selected - len(status.applications)
        if hidden > 0:
            text = f"{hidden} more applications are selected than its status has room for."
            yield StatusNotice(where, "Cut", text)


def merged(found: Iterable[StatusNotice]) -> tuple[StatusNotice, ...]:
    """The same of several objects said once, in the place of the first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for notice in found:
        groups.setdefault((notice.reason, notice.text), []).append(notice.where)
    return tuple(
        StatusNotice(_all_of(places), reason, text) for (reason, text), places in groups.items()
    )


def _all_of(places: Sequence[str]) -> str:
    hidden = len(places) - SHOWN_MAX
    if hidden < 1:
        return ", ".join(places)
    return f"{', '.join(places[:SHOWN_MAX])} and {hidden} more"


def _selected(policy: RecoveryPolicy, item: SelectedApplication) -> Row:
    return Row(
        namespace=policy.metadata.namespace,
        application=item.name,
        kind=item.kind,
        policy=policy.metadata.name,
        protected=item.protected,
        reason=item.reason or "",
        message=item.message or "",
        at_risk=_risk(policy.status.conditions),
    )


def _recovering(before: Row | None, recovery: Recovery) -> Row:
    spec, status = recovery.spec, recovery.status
    return Row(
        namespace=recovery.metadata.namespace,
        application=spec.application.name,
        kind=spec.application.kind,
        policy=before.policy if before else spec.policy_name,
        protected=before.protected if before else None,
        reason=before.reason if before else "",
        message=before.message if before else "",
        recovery=recovery.metadata.name,
        phase=status.phase or "",
        back=status.back,
        lost_nodes=status.lost_nodes_total,
        story=status.message or "",
        at_risk=_risk(status.conditions) or _risk_before(before, status.conditions),
    )


def _risk_before(
    before: Row | None, conditions: Sequence[custom_resources.Condition]
) -> str | None:
    """What its policy says; where that says nothing, what the recovery does."""
    found = before.at_risk if before else None
    return _risk(conditions) if found is None else found


def _is_wrong(condition: custom_resources.Condition) -> bool:
    """A condition that is not as it should be, or that has a remark."""
    if condition.type == custom_resources.COORDINATION_AT_RISK:
        return condition.status == "True"
    if condition.type == custom_resources.ACCEPTED:
        return condition.status != "True" or condition.reason != "AsWritten"
    return (
        condition.type in (custom_resources.EXCLUSIVE, custom_resources.QUERIES_RUNNING)
        and condition.status == "False"
    )


def _risk(conditions: Sequence[custom_resources.Condition]) -> str | None:
    """The reason; "" for none, None where no condition says it."""
    for item in conditions:
        if item.type == custom_resources.COORDINATION_AT_RISK and item.status != "Unknown":
            return item.reason if item.status == "True" else ""
    return None


COLUMNS = ("APPLICATION", "POLICY", "PROTECTED", "RECOVERY", "PHASE", "BACK", "AT RISK")
Read = TypeVar("Read")


def status(
    application: Annotated[
        str | None, typer.Argument(metavar="APPLICATION", help="One of them, with messages.")
    ] = None,
    namespace: plugin_options.Namespace = None,
    everywhere: plugin_options.AllNamespaces = False,
    context: plugin_options.Context = None,
    kubeconfig: plugin_options.Kubeconfig = None,
    output: plugin_options.Output = plugin_options.Form.TABLE,
) -> None:
    """Show applications, whether they are protected, and what recovers.

    Example: kubectl rekindle status -n flights
    """
    with connected(plugin_options.Target(namespace, context, kubeconfig, everywhere)) as cluster:
        broken: list[StatusNotice] = []
        wanted = _read(
            cluster.list(POLICIES, cluster.namespace), recovery_policy.from_object, broken
        )
        stories = _read(
            cluster.list(RECOVERIES, cluster.namespace), recovery_resource.from_object, broken
        )
        rows = rows_of(wanted, stories)
        said = (*notices(wanted), *broken)
        if application is not None:
            rows = tuple(row for row in rows if row.application == application)
            if not rows:
                raise _unknown(cluster, application)
        if output is plugin_options.Form.JSON:
            terminal_output.show_json(_record(rows, said))
            return
        _show(cluster, rows, said, bool(wanted), detailed=application is not None)


def _read(
    records: Iterable[object], read: Callable[[object], Read], broken: list[StatusNotice]
) -> list[Read]:
    """Those that can be read; of the others, why not."""
    found = []
    for record in records:
        try:
            found.append(read(record))
        except InputError as error:
            broken.append(StatusNotice(error.where, "BadResource", error.text))
    return found


def _unknown(cluster: ApiConnection, application: str) -> InputError:
    return InputError(
        where=f"{cluster.namespace or 'all namespaces'}, application {application!r:.100}",
        what="no policy's status and no open recovery names it",
        remedy="see `kubectl rekindle preflight` for what it lacks, or name another namespace (-n)",
    )


def _record(rows: Sequence[Row], said: Sequence[StatusNotice]) -> dict[str, Any]:
    return {
        "applications": [terminal_output.record(row) for row in rows],
        "notices": [terminal_output.record(notice) for notice in said],
    }


def _show(
    cluster: ApiConnection,
    rows: Sequence[Row],
    said: Sequence[StatusNotice],
    has_policies: bool,
    *,
    detailed: bool,
) -> None:
    if rows:
        everywhere = cluster.namespace is None
        columns = ("NAMESPACE", *COLUMNS) if everywhere else COLUMNS
        cells = ([row.namespace] if everywhere else [] for row in rows)
        lines = [[*first, *_cells(row)] for first, row in zip(cells, rows, strict=True)]
        terminal_output.show(terminal_output.table(columns, lines))
    elif has_policies:
        terminal_output.show(f"No application is selected in {_where(cluster)}.")
    else:
        terminal_output.show(
            f"There is no RecoveryPolicy in {_where(cluster)}, so nothing is protected there.",
            "Make one, see docs/resources.md, or name another namespace (-n), or all of them (-A).",
        )
    if detailed:
        for row in rows:
            terminal_output.show(*(text for text in (row.message, row.story) if text))
    for notice in merged(said):
        line = f"! {notice.where}: {notice.reason}: {notice.text}"
        terminal_output.show(terminal_output.styled((line, "yellow")))


def _where(cluster: ApiConnection) -> str:
    return f"namespace {cluster.namespace}" if cluster.namespace else "any namespace"


def _cells(row: Row) -> list[str | Text]:
    protected = Text("unknown")
    if row.protected is not None:
        protected = Text("yes" if row.protected else "no", style="" if row.protected else "red")
    if row.reason:
        protected.append(f" ({row.reason})")
    return [
        row.application,
        row.policy,
        protected,
        row.recovery or "-",
        row.phase or ("unknown" if row.recovery else "-"),
        row.back or "-",
        "unknown" if row.at_risk is None else row.at_risk or "no",
    ]
