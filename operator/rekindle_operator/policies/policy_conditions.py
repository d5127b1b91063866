"""The conditions of a policy and of a class: whether they hold, for whom, and how well protected.

    Accepted             the policy has a class and holds; the message says what the class narrows
    Exclusive            no other policy selects the same applications; else both say who holds
    Protected            every driver that it selects has its sidecar
    QueriesRunning       no query has stopped because a function raises
    DomainLossSurvived   whichever failure domain is lost, some query of each application goes on
    CoordinationAtRisk   the store, a sidecar or a coordinator does not answer

Pure: findings from values. The shell turns them into conditions (`custom_resources.updated`) and
writes them.
"""

import graphlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rekindle.coordination import CoordinationState, domain_placement
from rekindle.coordination.application_status import named
from rekindle.model import lazy_import
from rekindle.model.errors import InputError
from rekindle.model.reasons import Reason
from rekindle.model.sentences import counted
from rekindle_operator.api import recovery_class
from rekindle_operator.api.custom_resources import (
    ACCEPTED,
    COORDINATION_AT_RISK,
    DOMAIN_LOSS_SURVIVED,
    EXCLUSIVE,
    PROTECTED,
    QUERIES_RUNNING,
    STORE_ENCRYPTED,
    STORE_SECURED,
    ConditionFinding,
    ResourceReason,
    camel_case,
    clipped,
)
from rekindle_operator.api.recovery_class import ClassSpec, SidecarSpec
from rekindle_operator.api.recovery_policy import PolicySpec, RecoveryPolicy, SelectedApplication
from rekindle_operator.policies.effective_policy import Effective, UnknownQuery
from rekindle_operator.policies.policy_selection import Overlap, ProtectionReason
from rekindle_operator.recovery.recovery_reasons import Word

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_import.Imported("networkx")

# The effect of the loss of each failure domain on a running application.
#
# `rekindle forecast` says besides when it would be back; that takes rehearsals, and is not for a
# thread that decides.

DOMAINS_MAX = 50


@dataclass(frozen=True, slots=True)
class DomainLossForecast:
    """The share of all priority that the loss of each domain would stop, by its name, the greatest
    first; empty where no node says which domain it is in."""

    stopped_shares: Mapping[str, float]

    @property
    def worst(self) -> tuple[str, float]:
        """The domain whose loss would stop most, and that share."""
        return next(iter(self.stopped_shares.items()))


def look_out(state: CoordinationState) -> DomainLossForecast | None:
    """None while not all is as it should be: before the first plan, and in an incident."""
    if state.starting or state.incident is not None or not state.placement:
        return None
    named = {view.domain for view in state.nodes.values() if view.domain is not None}
    shares = domain_placement.stopped_shares(state, {}) if named else {}
    found = sorted(
        ((name, share) for name, share in shares.items() if name in named),
        key=lambda item: (-item[1], item[0]),
    )
    return DomainLossForecast(dict(found[:DOMAINS_MAX]))


SHOWN_MAX = 5
EVERYTHING = 1.0 - 1e-9
CAUSES_SHOWN_MAX, CAUSE_LENGTH_MAX = 3, 250
# There is no driver that could have a sidecar.
RESTING = tuple(
    camel_case(word)
    for word in (
        ProtectionReason.NO_DRIVER,
        ProtectionReason.DRIVER_ENDED,
        ProtectionReason.DRIVER_PENDING,
    )
)


Remark = tuple[ResourceReason, str]


def accepted(
    held: Effective,
    applications: int,
    unknown: Sequence[UnknownQuery] = (),
    elsewhere: int = 0,
    remarks: Iterable[Remark] = (),
) -> ConditionFinding:
    """A policy holds; the message names what is not as its author may think, the worst first.

    `applications` is how many it holds for, `unknown` what no pipeline of them has, `elsewhere` how
    many it selects that older policies hold. `remarks` are those of `application_remarks`.
    """
    found: list[Remark] = []
    if applications == 0:
        text = "It holds for no application: none that is there is selected."
        if elsewhere:
            others = counted(elsewhere, "application")
            text = f"It holds for no application: it selects {others}, and older policies hold all."
        found.append((ResourceReason.NOTHING_SELECTED, text))
    for field in dict.fromkeys(item.field for item in unknown):
        names = named(tuple(item.query for item in unknown if item.field == field))
        known_queries = named(unknown[0].known) or "none"
        text = f"{field} names {names}, which no pipeline has; there are: {known_queries}."
        found.append((ResourceReason.UNKNOWN_QUERIES, text))
    found += remarks
    if held.narrowed:
        text = " ".join(item.message for item in held.narrowed)
        found.append((ResourceReason.NARROWED, text))
    if not found:
        text = f"It holds for {counted(applications, 'application')}, as it is written."
        found.append((ResourceReason.AS_WRITTEN, text))
    return ConditionFinding(ACCEPTED, True, found[0][0], " ".join(text for _, text in found))


def application_remarks(
    spec: PolicySpec, applications: Collection[str], cycles: Sequence[tuple[str, ...]]
) -> Iterator[Remark]:
    """Names in a policy of whole applications that none of its `applications` has, and cycles of
    dependencies (`dependency_cycles`). Neither is refused: an application may come later, and those
    of a cycle come back together."""
    fields = {
        "priorities": [item.query for item in spec.priorities],
        "lagGoals": [item.query for item in spec.lag_goals],
        "applications": [item.name for item in spec.applications],
    }
    fields |= {
        f"applications[{item.name}].dependsOn": [*item.depends_on] for item in spec.applications
    }
    unknown = {
        field: named(tuple(sorted({*names}.difference(applications))))
        for field, names in fields.items()
        if {*names}.difference(applications)
    }
    if unknown:
        shown = ", ".join(
            f"{field} names {names}" for field, names in [*unknown.items()][:SHOWN_MAX]
        )
        more = len(unknown) - SHOWN_MAX
        fields_more = f", and so do {counted(more, 'other field')}" if more > 0 else ""
        # It does not list the names that are there: the text would change with each application.
        text = (
            f"{shown}{fields_more}: no application of this policy has such a name. Correct the "
            "name, or start the application: until then the entry has no effect, and nothing waits "
            "for it."
        )
        yield ResourceReason.UNKNOWN_APPLICATIONS, text
    if cycles:
        text = (
            f"applications: by their dependsOn {named(cycles[0])} depend on each other, so they "
            "come back together. Leave one of these names out where an order is meant."
        )
        if len(cycles[0]) == 1:
            text = f"applications[{cycles[0][0]}].dependsOn names itself. Leave that name out."
        if len(cycles) > 1:
            text += f" So it is with {counted(len(cycles) - 1, 'other group')}."
        yield ResourceReason.DEPENDENCY_CYCLE, text


def dependency_cycles(spec: PolicySpec) -> list[tuple[str, ...]]:
    """Groups of applications each of which depends on all others of its group, directly or not, in
    order; also one that names itself. In time linear in the names."""
    try:
        graphlib.TopologicalSorter(
            {item.name: item.depends_on for item in spec.applications}
        ).prepare()
    except graphlib.CycleError:
        pass  # networkx takes a while to import, and is needed for the groups alone
    else:
        return []
    edges = [(item.name, other) for item in spec.applications for other in item.depends_on]
    graph = nx.DiGraph(edges)
    groups = (tuple(sorted(group)) for group in nx.strongly_connected_components(graph))
    return sorted(group for group in groups if len(group) > 1 or graph.has_edge(group[0], group[0]))


def class_missing(spec: PolicySpec, class_names: Iterable[str]) -> ConditionFinding:
    """The policy's class is not there: nothing is done for its applications until it is."""
    names = named(tuple(sorted(class_names))) or "none"
    text = f"There is no RecoveryClass {spec.class_name}; there are: {names}."
    return ConditionFinding(ACCEPTED, False, ResourceReason.CLASS_MISSING, text)


def class_not_allowed(policy: RecoveryPolicy) -> ConditionFinding:
    """The policy's class is not for its namespace: nothing is done for its applications."""
    name, namespace = policy.spec.class_name, policy.metadata.namespace
    text = (
        f"RecoveryClass {name} is not for namespace {namespace}: its allowedNamespaces do not name "
        "it. Name another class, or have that one allow it."
    )
    return ConditionFinding(ACCEPTED, False, ResourceReason.CLASS_NOT_ALLOWED, text)


def unreadable(error: InputError) -> ConditionFinding:
    """A policy or class that the API server has let in and that means nothing."""
    text = " ".join(map(str, error.each))
    return ConditionFinding(ACCEPTED, False, ResourceReason.BAD_RESOURCE, text)


def class_accepted(policies: int, spec: ClassSpec) -> ConditionFinding:
    """A class holds, and drivers can be made with the sidecar that it gives them."""
    bad = recovery_class.misfit((spec.sidecar or SidecarSpec()).resources)
    if bad:
        text = f"Drivers come up without a sidecar: {bad}."
        return ConditionFinding(ACCEPTED, False, ResourceReason.BAD_RESOURCE, text)
    names = "policy names" if policies == 1 else "policies name"
    text = f"{policies} {names} it."
    elsewhere = tuple(
        item.name
        for item in spec.provisioning
        if item.cluster_api is not None and item.cluster_api.kubeconfig_secret_ref is not None
    )
    if not elsewhere:
        return ConditionFinding(ACCEPTED, True, ResourceReason.AS_WRITTEN, text)
    text = f"No node comes of {named(elsewhere)}: no other cluster can be reached yet. {text}"
    return ConditionFinding(ACCEPTED, True, ResourceReason.CLUSTER_NOT_REACHED, text)


def store_secured(spec: ClassSpec) -> ConditionFinding:
    """Whether drivers of a class need a secret for the store, and so everybody else does."""
    if spec.has_credentials:
        text = (
            "Drivers reach the store with a credential of their namespace, for its records alone."
        )
        return ConditionFinding(STORE_SECURED, True, ResourceReason.NAMESPACES_APART, text)
    if spec.has_store_secret:
        text = "Drivers reach the store with a secret. All who have it reach all records."
        return ConditionFinding(STORE_SECURED, True, ResourceReason.STORE_HAS_SECRET, text)
    text = (
        "Drivers reach the store without a secret: whoever reaches it reads and writes the records "
        "of every application. Set sidecar.store.secretRef, and the operator's secret with it."
    )
    return ConditionFinding(STORE_SECURED, False, ResourceReason.STORE_OPEN, text)


def store_encrypted(spec: ClassSpec) -> ConditionFinding:
    """Whether drivers of a class reach the store by TLS."""
    if spec.has_store_tls:
        text = "Drivers reach the store by TLS, and its servers prove who they are."
        return ConditionFinding(STORE_ENCRYPTED, True, ResourceReason.STORE_TLS, text)
    text = (
        "Drivers reach the store in plain text: whoever reads packets on the way has their "
        "credentials and records. Set sidecar.store.caSecretRef, and addresses that serve TLS."
    )
    return ConditionFinding(STORE_ENCRYPTED, False, ResourceReason.STORE_PLAINTEXT, text)


def exclusive(policy: str, overlaps: Iterable[Overlap]) -> ConditionFinding:
    """Whether `policy` (namespace/name) shares an application with another, and which one holds."""
    shared = [item for item in overlaps if policy == item.holder or policy in item.others]
    if not shared:
        text = "No other policy selects the same applications."
        return ConditionFinding(EXCLUSIVE, True, ResourceReason.NO_OVERLAP, text)
    sentences = [
        f"{item.application} is selected by {named(item.others)} too; this policy holds."
        if policy == item.holder
        else f"{item.application} is selected by {item.holder} too, which holds."
        for item in shared[:SHOWN_MAX]
    ]
    if len(shared) > SHOWN_MAX:
        sentences.append(f"So it is with {len(shared) - SHOWN_MAX} more.")
    sentences.append("The oldest policy holds, of equally old ones the first by name.")
    return ConditionFinding(EXCLUSIVE, False, ResourceReason.POLICIES_OVERLAP, " ".join(sentences))


def protected(applications: Sequence[SelectedApplication]) -> ConditionFinding:
    """Whether every driver has its sidecar; not known where there is none."""
    if not applications:
        text = "No application is selected, so there is no driver to protect."
        return ConditionFinding(PROTECTED, None, ResourceReason.NOTHING_SELECTED, text)
    running = [item for item in applications if item.reason not in RESTING]
    if not running:
        text = "No driver of what is selected runs at present."
        return ConditionFinding(PROTECTED, None, ResourceReason.NOTHING_SELECTED, text)
    without = tuple(sorted(item.name for item in running if not item.protected))
    if without:
        text = (
            f"Without a sidecar: {named(without)}. Such a driver plans by itself, and nobody "
            "brings it nodes, until it is started again with one."
        )
        return ConditionFinding(PROTECTED, False, ResourceReason.SIDECAR_MISSING, text)
    text = f"{counted(len(running), 'driver')} with a sidecar, none without."
    return ConditionFinding(PROTECTED, True, ResourceReason.SIDECARS_PRESENT, text)


def whole_applications() -> ConditionFinding:
    """In place of `protected`: whole applications are not changed."""
    text = "Whole applications come back by priority, and need no sidecar."
    return ConditionFinding(PROTECTED, True, ResourceReason.SIDECAR_NOT_NEEDED, text)


def queries_running(stopped: Mapping[str, Mapping[str, Sequence[str]] | None]) -> ConditionFinding:
    """Whether no query has stopped, by application {query: why}; None where nobody has heard of
    one, and not known where that may matter."""
    if not stopped:
        text = "No application is selected."
        return ConditionFinding(QUERIES_RUNNING, None, ResourceReason.NOTHING_SELECTED, text)
    found = {name: queries for name, queries in stopped.items() if queries}
    silent = tuple(sorted(name for name, queries in stopped.items() if queries is None))
    if found:
        return ConditionFinding(QUERIES_RUNNING, False, Reason.QUERY_STOPPED, _of_stopped(found))
    if silent:
        text = f"Nothing has been heard of {named(silent)}."
        return ConditionFinding(QUERIES_RUNNING, None, ResourceReason.NOT_HEARD_OF, text)
    text = f"No query of {counted(len(stopped), 'application')} has stopped."
    return ConditionFinding(QUERIES_RUNNING, True, ResourceReason.QUERIES_RUN, text)


def _of_stopped(found: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """All names, then causes, each once: what is downstream of one fault has the same."""
    names = "; ".join(f"{named(tuple(queries))} of {name}" for name, queries in found.items())
    causes: dict[str, str] = {}
    for queries in found.values():
        for query, whys in queries.items():
            for why in whys:
                causes.setdefault(why, f"{query}: {clipped(why, CAUSE_LENGTH_MAX)}")
    return " ".join((f"Stopped: {names}.", *list(causes.values())[:CAUSES_SHOWN_MAX]))


def domain_loss_survived(outlooks: Mapping[str, DomainLossForecast | None]) -> ConditionFinding:
    """Whether of every application some query would survive the loss of any one failure domain, by
    application; None where it has not run yet. What would stop most is said first."""
    known = {name: found for name, found in outlooks.items() if found is not None}
    labelled = {name: found for name, found in known.items() if found.stopped_shares}
    if not outlooks:
        text = "No application is selected."
        return ConditionFinding(DOMAIN_LOSS_SURVIVED, None, ResourceReason.NOTHING_SELECTED, text)
    if not known:
        text = f"Nothing has run yet of {named(tuple(sorted(outlooks)))}."
        return ConditionFinding(DOMAIN_LOSS_SURVIVED, None, ResourceReason.NOT_HEARD_OF, text)
    if not labelled:
        text = f"No node of {named(tuple(sorted(known)))} has a label of failureDomainKeys."
        return ConditionFinding(DOMAIN_LOSS_SURVIVED, None, ResourceReason.DOMAINS_UNKNOWN, text)
    ordered = sorted(labelled, key=lambda name: (-labelled[name].worst[1], name))
    sentences = [_of_outlook(name, labelled[name]) for name in ordered[:SHOWN_MAX]]
    if len(ordered) > SHOWN_MAX:
        sentences.append(f"Less of {len(ordered) - SHOWN_MAX} more.")
    nothing = labelled[ordered[0]].worst[1] >= EVERYTHING
    reason = ResourceReason.NOTHING_SURVIVES if nothing else ResourceReason.SOME_SURVIVES
    return ConditionFinding(DOMAIN_LOSS_SURVIVED, not nothing, reason, " ".join(sentences))


def _of_outlook(application: str, found: DomainLossForecast) -> str:
    shown = list(found.stopped_shares.items())[:SHOWN_MAX]
    losses = ", ".join(f"{share:.0%} if {domain} is lost" for domain, share in shown)
    more = len(found.stopped_shares) - len(shown)
    rest = f", not more for {counted(more, 'other domain')}" if more else ""
    return f"Of all priority of {application} would stop: {losses}{rest}."


def at_risk(dangers: Iterable[tuple[Word, str]]) -> ConditionFinding:
    """Whether coordination may fail: each danger a reason with a sentence, the worst first."""
    found = tuple(dangers)
    if not found:
        text = "The store, the sidecars and the coordinator answer."
        return ConditionFinding(
            COORDINATION_AT_RISK, False, ResourceReason.COORDINATION_SOUND, text
        )
    text = " ".join(sentence for _, sentence in found)
    # a condition takes any word of ours, and its type names the core's
    return ConditionFinding(COORDINATION_AT_RISK, True, cast(Reason, found[0][0]), text)
