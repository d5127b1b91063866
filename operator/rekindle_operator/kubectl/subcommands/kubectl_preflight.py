"""`kubectl rekindle preflight`: what would keep an application from coming back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rekindle.model.errors import InputError
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.kubectl import (
    api_connection,
    application_reader,
    plugin_options,
    preflight_reader,
    terminal_output,
)
from rekindle_operator.kubectl.api_connection import connected
from rekindle_operator.kubectl.application_reader import ObjectLists, Subject
from rekindle_operator.preflight import preflight_checks, preflight_findings
from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
)
from rekindle_operator.preflight.subjects.environment import policies_of

STYLES = {
    PreflightSeverity.ERROR: "red",
    PreflightSeverity.WARNING: "yellow",
    PreflightSeverity.NOTE: "dim",
}
CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Judged:
    """What was looked at, `KIND NAMESPACE/NAME` or the cluster, and what was found."""

    subject: str
    found: tuple[PreflightFinding, ...]


def preflight(
    application: Annotated[
        str | None, typer.Argument(metavar="APPLICATION", help="One that is in the cluster.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--filename", "-f", help="A manifest; - is standard input.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="With -f: ask no cluster, look at the file alone.")
    ] = False,
    fail_on: Annotated[
        PreflightSeverity,
        typer.Option("--fail-on", help="Exit with 1 when there is one as bad, or worse."),
    ] = PreflightSeverity.ERROR,
    namespace: plugin_options.Namespace = None,
    everywhere: plugin_options.AllNamespaces = False,
    context: plugin_options.Context = None,
    config: plugin_options.Kubeconfig = None,
    output: plugin_options.Output = plugin_options.Form.TABLE,
) -> int:
    """Warn of what would keep an application from coming back.

    Without an application, of all in the namespace that have not ended.

    Example: kubectl rekindle preflight -f departures.yaml --fail-on warning
    """
    _check(application, file, offline, everywhere)
    target = plugin_options.Target(namespace, context, config, everywhere)
    known, wanted = _objects(target, application, file, offline)
    judged = list(_judged(wanted))
    if application is not None and not judged:
        raise InputError(
            where=f"application {application!r:.100}",
            what="is not in the cluster: no SparkApplication and no driver of that name is there",
            remedy="name another namespace (-n), or give its manifest (-f)",
        )
    holding = list(_holding(wanted))
    judged.append(
        Judged(
            CLUSTER, preflight_checks.cluster(application_reader.surroundings(known, ""), holding)
        )
    )
    every = [finding for item in judged for finding in item.found]
    failed = preflight_findings.at_least(every, fail_on) > 0
    if output is plugin_options.Form.JSON:
        terminal_output.show_json(_record(judged, fail_on, failed=failed))
    else:
        _show(judged)
    return int(failed)


def _check(application: str | None, file: str | None, offline: bool, everywhere: bool) -> None:
    """Options that do not go together."""
    if file is not None and (application is not None or everywhere):
        other = "an application" if application is not None else "--all-namespaces"
        remedy = "give one of them"
        raise InputError(where="-f", what=f"is given with {other}", remedy=remedy)
    if offline and file is None:
        remedy = "give a manifest with -f"
        raise InputError(where="--offline", what="leaves nothing to look at", remedy=remedy)


def _objects(
    target: plugin_options.Target, application: str | None, file: str | None, offline: bool
) -> tuple[ObjectLists, list[Subject]]:
    """All that is known, and the applications to look at."""
    if file is not None and offline:
        known = application_reader.read_file(
            file, target.namespace or api_connection.DEFAULT_NAMESPACE
        )
        return known, list(application_reader.subjects(known))
    with connected(target) as cluster:
        if file is None:
            known = preflight_reader.read(cluster)
            return known, list(application_reader.subjects(known, application))
        known = application_reader.read_file(file, cluster.default_namespace)
        named = {item.namespace for item in application_reader.subjects(known)}
        for namespace in sorted(named or {cluster.default_namespace}):
            known = application_reader.merged(
                known, preflight_reader.read_around(cluster.within(namespace))
            )
        return known, list(application_reader.subjects(known))


def _judged(wanted: Sequence[Subject]) -> Iterator[Judged]:
    for subject in wanted:
        name = f"{subject.kind} {subject.namespace}/{subject.name}"
        if subject.workload is None:
            remedy = "correct it there"
            trouble = PreflightFinding(
                Concern.NOT_CHECKED, PreflightSeverity.ERROR, subject.trouble, remedy
            )
            yield Judged(name, (trouble,))
        else:
            yield Judged(name, preflight_checks.application(subject.workload, subject.around))


def _holding(wanted: Sequence[Subject]) -> Iterator[RecoveryPolicy]:
    """The policies that hold for what is looked at."""
    for subject in wanted:
        if subject.workload is not None:
            yield from policies_of(subject.workload, subject.around.policies or ())[:1]


def _record(
    judged: Sequence[Judged], fail_on: PreflightSeverity, *, failed: bool
) -> dict[str, Any]:
    return {
        "failOn": str(fail_on),
        "failed": failed,
        "findings": [
            {"subject": item.subject, **terminal_output.record(finding)}
            for item in judged
            for finding in item.found
        ],
        "subjects": [item.subject for item in judged],
    }


def _show(judged: Sequence[Judged]) -> None:
    for item in judged:
        if not item.found:
            if item.subject != CLUSTER:
                terminal_output.show(
                    terminal_output.styled((item.subject, "bold"), (": nothing found", ""))
                )
            continue
        terminal_output.show(terminal_output.styled((item.subject, "bold")))
        for finding in item.found:
            level = (f"  {finding.severity} ", STYLES[finding.severity])
            head = terminal_output.styled(level, (f"{finding.word}: {finding.sentence}", ""))
            terminal_output.show(head, f"      {finding.remedy}")
    terminal_output.show(_summary(judged))


def _summary(judged: Sequence[Judged]) -> str:
    every = [finding.severity for item in judged for finding in item.found]
    counts = ", ".join(
        f"{every.count(level)} {level}{'' if every.count(level) == 1 else 's'}"
        for level in PreflightSeverity
    )
    looked = sum(item.subject != CLUSTER for item in judged)
    return f"{looked} {'application' if looked == 1 else 'applications'}: {counts}."
