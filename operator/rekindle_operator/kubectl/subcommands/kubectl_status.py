"""`kubectl rekindle status`: applications, whether they are protected, and what recovers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.text import Text

from rekindle.model.errors import InputError
from rekindle_operator.api import recovery_policy, recovery_resource
from rekindle_operator.kubectl import status_table, terminal_output
from rekindle_operator.kubectl.api_connection import ApiConnection, connected
from rekindle_operator.kubectl.plugin_options import (
    AllNamespaces,
    Context,
    Form,
    Kubeconfig,
    Namespace,
    Output,
    Target,
)
from rekindle_operator.kubectl.resource_kinds import POLICIES, RECOVERIES
from rekindle_operator.kubectl.status_table import Row, StatusNotice

COLUMNS = ("APPLICATION", "POLICY", "PROTECTED", "RECOVERY", "PHASE", "BACK", "AT RISK")
Read = TypeVar("Read")


def status(
    application: Annotated[
        str | None, typer.Argument(metavar="APPLICATION", help="One of them, with messages.")
    ] = None,
    namespace: Namespace = None,
    everywhere: AllNamespaces = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Form.TABLE,
) -> None:
    """Show applications, whether they are protected, and what recovers.

    Example: kubectl rekindle status -n flights
    """
    with connected(Target(namespace, context, kubeconfig, everywhere)) as cluster:
        broken: list[StatusNotice] = []
        wanted = _read(
            cluster.list(POLICIES, cluster.namespace), recovery_policy.from_object, broken
        )
        stories = _read(
            cluster.list(RECOVERIES, cluster.namespace), recovery_resource.from_object, broken
        )
        rows = status_table.rows(wanted, stories)
        said = (*status_table.notices(wanted), *broken)
        if application is not None:
            rows = tuple(row for row in rows if row.application == application)
            if not rows:
                raise _unknown(cluster, application)
        if output is Form.JSON:
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
            broken.append(StatusNotice(error.where, "BadResource", f"{error.what}; {error.remedy}"))
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
    for notice in status_table.merged(said):
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
