"""`kubectl rekindle status`: applications, whether they are protected, and what recovers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.text import Text

from rekindle.errors import InputError
from rekindle_operator import policies, recoveries
from rekindle_operator.plugin import display, standing
from rekindle_operator.plugin.connection import Cluster, connected
from rekindle_operator.plugin.kinds import POLICIES, RECOVERIES
from rekindle_operator.plugin.options import (
    AllNamespaces,
    Context,
    Form,
    Kubeconfig,
    Namespace,
    Output,
    Target,
)
from rekindle_operator.plugin.standing import Notice, Row

__all__ = ["status"]

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
        broken: list[Notice] = []
        wanted = _read(cluster.list(POLICIES, cluster.namespace), policies.from_object, broken)
        stories = _read(cluster.list(RECOVERIES, cluster.namespace), recoveries.from_object, broken)
        rows = standing.rows(wanted, stories)
        said = (*standing.notices(wanted), *broken)
        if application is not None:
            rows = tuple(row for row in rows if row.application == application)
            if not rows:
                raise _unknown(cluster, application)
        if output is Form.JSON:
            display.show_json(_record(rows, said))
            return
        _show(cluster, rows, said, bool(wanted), detailed=application is not None)


def _read(
    records: Iterable[object], read: Callable[[object], Read], broken: list[Notice]
) -> list[Read]:
    """Those that can be read; of the others, why not."""
    found = []
    for record in records:
        try:
            found.append(read(record))
        except InputError as error:
            broken.append(Notice(error.where, "BadResource", f"{error.what}; {error.remedy}"))
    return found


def _unknown(cluster: Cluster, application: str) -> InputError:
    return InputError(
        where=f"{cluster.namespace or 'all namespaces'}, application {application!r:.100}",
        what="no policy's status and no open recovery names it",
        remedy="see `kubectl rekindle preflight` for what it lacks, or name another namespace (-n)",
    )


def _record(rows: Sequence[Row], said: Sequence[Notice]) -> dict[str, Any]:
    return {
        "applications": [display.record(row) for row in rows],
        "notices": [display.record(notice) for notice in said],
    }


def _show(
    cluster: Cluster,
    rows: Sequence[Row],
    said: Sequence[Notice],
    has_policies: bool,
    *,
    detailed: bool,
) -> None:
    if rows:
        everywhere = cluster.namespace is None
        columns = ("NAMESPACE", *COLUMNS) if everywhere else COLUMNS
        cells = ([row.namespace] if everywhere else [] for row in rows)
        lines = [[*first, *_cells(row)] for first, row in zip(cells, rows, strict=True)]
        display.show(display.table(columns, lines))
    elif has_policies:
        display.show(f"No application is selected in {_where(cluster)}.")
    else:
        display.show(
            f"There is no RecoveryPolicy in {_where(cluster)}, so nothing is protected there.",
            "Make one, see docs/resources.md, or name another namespace (-n), or all of them (-A).",
        )
    if detailed:
        for row in rows:
            display.show(*(text for text in (row.message, row.story) if text))
    for notice in standing.merged(said):
        line = f"! {notice.where}: {notice.reason}: {notice.text}"
        display.show(display.styled((line, "yellow")))


def _where(cluster: Cluster) -> str:
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
