"""`kubectl rekindle priority`: which queries matter more than the pipeline says, for a while.

They are entries of spec.priorities under the plugin's own field manager. Every apply says all that
the manager wants, so what it has must be said again with what is new; what has expired is left out,
and so removed. What others have is never said, and so never touched.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from rekindle.model.errors import InputError
from rekindle_operator.api import recovery_policy
from rekindle_operator.api.recovery_policy import QueryPriority
from rekindle_operator.kubectl import (
    plugin_options,
    resource_lookup,
    server_side_apply,
    terminal_output,
)
from rekindle_operator.kubectl.api_connection import Object, connected
from rekindle_operator.kubectl.durations import clock, duration, stamp, until
from rekindle_operator.kubectl.server_side_apply import Record, bare, items_of

MANAGER = "kubectl-rekindle-priority"
PRIORITY_MIN, PRIORITY_MAX = 1, 10
QUERY_LENGTH_MAX = 200
COLUMNS = ("QUERY", "PRIORITY", "UNTIL", "SET BY")


def priority(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUERY=PRIORITY", help="With --clear: QUERY. None: show them."),
    ] = None,
    policy: plugin_options.Policy = None,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Such as 30m, 2h or 1d.")
    ] = None,
    ending: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Such as 18:30 or 2030-01-01T12:00:00Z."),
    ] = None,
    permanent: Annotated[bool, typer.Option("--permanent", help="Until it is cleared.")] = False,
    clear: Annotated[
        bool, typer.Option("--clear", help="Take back what was set here: all, or those queries.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Take a query from whoever has set it.")
    ] = False,
    namespace: plugin_options.Namespace = None,
    context: plugin_options.Context = None,
    kubeconfig: plugin_options.Kubeconfig = None,
    output: plugin_options.Output = plugin_options.Form.TABLE,
) -> None:
    """Say for a while which queries matter more than the pipeline says.

    Others' entries are never changed. What was set here and has expired goes with the next use.

    Example: kubectl rekindle priority worst-delays=10 --policy departures --for 30m
    """
    now = datetime.now().astimezone()
    asked = () if clear else _asked(wanted or (), _expiry(wanted, lasting, ending, permanent, now))
    cleared = _cleared(wanted or ()) if clear else None
    with connected(plugin_options.Target(namespace, context, kubeconfig)) as cluster:
        record = resource_lookup.policy(cluster, policy)
        said: list[str] = []

        def change(current: Object) -> Object:
            said[:] = []
            entries, changes = _decided(current, asked, cleared, now)
            said.extend(changes)
            return applied_part(current, entries)

        if asked or clear:
            record = server_side_apply.apply(cluster, record, MANAGER, change, force=force)
    if output is plugin_options.Form.JSON:
        terminal_output.show_json(_record(record, said))
        return
    terminal_output.show(*said, *_shown(record, now))


def _expiry(
    wanted: Sequence[str] | None,
    lasting: str | None,
    ending: str | None,
    permanent: bool,
    now: datetime,
) -> datetime | None:
    """The moment at which it ends; exactly one of the three options says so."""
    given = [
        name
        for name, value in (("--for", lasting), ("--until", ending), ("--permanent", permanent))
        if value
    ]
    if not wanted and not given:
        return None
    if len(given) != 1 or not wanted:
        what = f"has {' and '.join(given)} at once" if len(given) > 1 else "has no end"
        what = "names no query" if not wanted else what
        raise InputError(
            where="priority",
            what=what,
            remedy="give QUERY=PRIORITY with one of --for 30m, --until 18:30 and --permanent",
        )
    if lasting is not None:
        return now + duration(lasting, "--for")
    return None if ending is None else until(ending, now, "--until")


def _asked(wanted: Sequence[str], ending: datetime | None) -> tuple[QueryPriority, ...]:
    asked = tuple(parse_entry(text, ending) for text in wanted)
    names = [entry.query for entry in asked]
    for name in names:
        if names.count(name) > 1:
            remedy = "give each query once"
            raise InputError(where=f"query {name!r:.100}", what="is given twice", remedy=remedy)
    return asked


def _cleared(wanted: Sequence[str]) -> tuple[str, ...]:
    for text in wanted:
        query, sign, _ = text.partition("=")
        if sign:
            remedy = f"give the query alone: --clear {query}"
            raise InputError(where=f"argument {text!r:.100}", what="is no query", remedy=remedy)
    return tuple(wanted)


def _decided(
    record: Object,
    asked: Sequence[QueryPriority],
    cleared: Sequence[str] | None,
    now: datetime,
) -> tuple[tuple[QueryPriority, ...], list[str]]:
    """The entries that the manager shall have, and what becomes of the others."""
    held, expired = kept_entries(record, now)
    said = [f"{query}: expired, removed." for query in expired]
    if cleared is None:
        new = {entry.query for entry in asked}
        return (*(entry for entry in held if entry.query not in new), *asked), said
    ours = {entry.query for entry in held}
    gone = ours if not cleared else ours & set(cleared)
    said += [f"{query}: cleared." for query in sorted(gone)]
    said += [
        f"{query}: was not set here, so nothing is changed."
        for query in cleared
        if query not in ours and query not in expired
    ]
    if not gone and not said:
        said.append("Nothing was set here.")
    return tuple(entry for entry in held if entry.query not in gone), said


def _record(record: Object, said: Sequence[str]) -> dict[str, Any]:
    owners = owners_of(record)
    return {
        "policy": record["metadata"]["name"],
        "namespace": record["metadata"]["namespace"],
        "changes": list(said),
        "priorities": [
            {
                "query": entry.query,
                "priority": entry.priority,
                "until": None if entry.until is None else entry.until.isoformat(),
                "managers": list(owners.get(entry.query, ())),
            }
            for entry in all_entries(record)
        ],
    }


def _shown(record: Object, now: datetime) -> Iterator[Any]:
    metadata, owners = record["metadata"], owners_of(record)
    entries = all_entries(record)
    where = f"policy {metadata['namespace']}/{metadata['name']}"
    if not entries:
        yield f"{where}: every query has the pipeline's own priority."
        return
    yield f"{where}:"
    rows = []
    for entry in entries:
        ends = "-" if entry.until is None else clock(entry.until, now)
        if entry.until is not None and entry.until <= now:
            ends = f"{ends} (over)"
        rows.append(
            [entry.query, str(entry.priority), ends, ", ".join(owners.get(entry.query, ()))]
        )
    yield terminal_output.table(COLUMNS, rows)


def parse_entry(text: str, ending: datetime | None) -> QueryPriority:
    """`QUERY=PRIORITY`; InputError for anything else."""
    query, _, number = text.rpartition("=")
    if not query or len(query) > QUERY_LENGTH_MAX or not number.strip().isdecimal():
        raise _unreadable(text, "is not QUERY=PRIORITY")
    priority = int(number)
    if not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise _unreadable(text, f"{priority} is no priority")
    return QueryPriority(query=query, priority=priority, until=ending)


def kept_entries(
    record: Record, now: datetime
) -> tuple[tuple[QueryPriority, ...], tuple[str, ...]]:
    """The manager's entries that hold, and the queries of those that have expired."""
    own = items_of(record, MANAGER, "query", "spec", "priorities")
    entries = recovery_policy.from_object(record).spec.priorities
    mine = [entry for entry in entries if entry.query in own]
    held = tuple(entry for entry in mine if entry.until is None or now < entry.until)
    return held, tuple(entry.query for entry in mine if entry not in held)


def applied_part(record: Record, entries: Iterable[QueryPriority]) -> dict[str, Any]:
    """What to apply, so that the manager has these entries and no others.

    With the object's version: who has changed it meanwhile is not overwritten.
    """
    written = [_as_object(entry) for entry in entries]
    body = bare(record)
    if written:
        body["spec"] = {"priorities": written}
    return body


def owners_of(record: Record) -> dict[str, tuple[str, ...]]:
    """By query, the managers that have its entry."""
    found: dict[str, list[str]] = {}
    managers = {entry.get("manager") for entry in record["metadata"].get("managedFields") or ()}
    for manager in sorted(str(name) for name in managers):
        for query in items_of(record, manager, "query", "spec", "priorities"):
            found.setdefault(query, []).append(manager)
    return {query: tuple(names) for query, names in found.items()}


def all_entries(record: Record) -> tuple[QueryPriority, ...]:
    """All entries of a policy, the most important first."""
    entries = recovery_policy.from_object(record).spec.priorities
    return tuple(sorted(entries, key=lambda entry: (-entry.priority, entry.query)))


def _as_object(entry: QueryPriority) -> dict[str, Any]:
    record = {"query": entry.query, "priority": entry.priority}
    return record if entry.until is None else {**record, "until": stamp(entry.until)}


def _unreadable(text: str, what: str) -> InputError:
    return InputError(
        where=f"argument {text!r:.100}",
        what=what,
        remedy="write QUERY=PRIORITY with a priority from 1 to 10, such as worst-delays=9",
    )
