"""All checks of preflight, in order: of one application, and of the cluster.

The plugin calls `application` for each one and `cluster` once. `protection` says whether Rekindle
looks after an application: policy, class, the driver's label, its sidecar.
"""

from collections.abc import Iterable, Iterator

from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.cluster.pods import APPLICATION_LABEL, SIDECAR
from rekindle_operator.preflight import resource_limits
from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
    ordered,
)
from rekindle_operator.preflight.subjects.environment import (
    DOMAIN_KEY,
    PreflightEnvironment,
    class_of,
    policies_of,
)
from rekindle_operator.preflight.subjects.workloads import MountedClaim, Workload
from rekindle_operator.webhook.injection_spec import INJECT_LABEL

# Fields that have to be text and that YAML reads as something else.

UNQUOTED_SHOWN_MAX = 5


def _unquoted_text(application: Workload) -> Iterator[PreflightFinding]:
    """All of them at once."""
    found = application.unquoted
    if not found:
        return
    more = f" and {len(found) - UNQUOTED_SHOWN_MAX} more" if len(found) > UNQUOTED_SHOWN_MAX else ""
    yield PreflightFinding(
        Concern.TEXT_UNQUOTED,
        PreflightSeverity.ERROR,
        f"The API server refuses what is no text: {'; '.join(found[:UNQUOTED_SHOWN_MAX])}{more}.",
        'put it into quotes, "true" for instance',
    )


# Whether anybody starts the driver again, and how often.
#
# The loss of the driver's node is a complete failure of its application: recovery begins with a
# new driver, which Rekindle does not start.


def _restarts(application: Workload) -> Iterator[PreflightFinding]:
    """By the word of whoever makes the driver's pod."""
    restart = application.restart
    if restart.how == "never":
        yield PreflightFinding(
            Concern.DRIVER_NOT_RESTARTED,
            PreflightSeverity.ERROR,
            f"A driver that is lost stays lost: {restart.field} lets nobody start it again.",
            restart.remedy,
        )
    elif restart.how == "limited":
        times = "once" if restart.attempts == 1 else f"{restart.attempts} times"
        yield PreflightFinding(
            Concern.RESTARTS_LIMITED,
            PreflightSeverity.WARNING,
            f"The driver is started again {times} in its life ({restart.field}); the count does "
            "not begin anew after a healthy time.",
            restart.remedy,
        )
    elif restart.how == "unknown":
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            f"The driver's pod belongs to {restart.field}: whether that starts it again is not "
            "known.",
            "see that it does, and how often",
        )


# Failures that Spark counts until it gives up on the application.
#
# `spark.executor.maxNumFailures` is twice the number of executors by default, 3 at least, and a
# failure counts for as long as the driver lives, unless `spark.executor.failuresValidityInterval`
# is set (Spark 3.5 and newer). A pod fails for instance when its Node object is deleted.

LIMIT = "spark.executor.maxNumFailures"
INTERVAL = "spark.executor.failuresValidityInterval"
EXCLUDE = "spark.excludeOnFailure.enabled"
DEFAULT_MIN = 3


def _failure_limits(application: Workload) -> Iterator[PreflightFinding]:
    """The limit at its default; and nodes that Spark itself leaves out after failures."""
    conf = application.conf
    if conf is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            "Spark's settings are not known: they are neither in a SparkApplication, nor in a "
            "ConfigMap of the driver, nor in its command line.",
            f"see that {LIMIT} or {INTERVAL} is set, and that executor names have no fixed prefix",
        )
        return
    if not conf.get(LIMIT) and not conf.get(INTERVAL):
        limit = max(DEFAULT_MIN, 2 * application.executors)
        yield PreflightFinding(
            Concern.FAILURES_LIMITED,
            PreflightSeverity.WARNING,
            f"{LIMIT} is at its default: the driver ends after {limit} failed executors, however "
            "long ago they failed.",
            f"set {INTERVAL}, to 1h for instance, and {LIMIT} to several times the executors",
        )
    if conf.get(EXCLUDE, "").lower() == "true":
        yield PreflightFinding(
            Concern.FAILURES_LIMITED,
            PreflightSeverity.NOTE,
            f"{EXCLUDE} is true: after failures Spark may leave out nodes that a plan counts on.",
            f"leave {EXCLUDE} out",
        )


# Names that two pods cannot have at a time, so that an old one keeps a new one from starting.
#
# A pod on a lost node stays, Terminating, until the node is fenced or somebody deletes it by
# force.

PREFIX = "spark.kubernetes.executor.podNamePrefix"


def _name_conflicts(
    application: Workload, around: PreflightEnvironment
) -> Iterator[PreflightFinding]:
    """Executors' names, then the driver's."""
    prefix = (application.conf or {}).get(PREFIX)
    if prefix:
        yield PreflightFinding(
            Concern.EXECUTOR_NAMES_FIXED,
            PreflightSeverity.WARNING,
            f"{PREFIX} is {prefix}: executors of a new driver have the names of the old one's, "
            "and are refused as long as one of these is still on a lost node.",
            f"leave {PREFIX} out, so that each driver has names of its own",
        )
    if application.driver_name:
        yield from _driver_name(application, around)


def _driver_name(application: Workload, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    """A driver's name is no danger where its lost node is fenced."""
    sentence = (
        f"Every driver's pod is called {application.driver_name} ({application.driver_name_field})"
    )
    holding = policies_of(application, around.policies or ())
    never = bool(holding) and holding[0].spec.guards.fencing == "Never"
    class_ = class_of(application, around)
    remedy = (
        "let the class fence lost nodes (fencing.mode), or be ready to delete the pod by force "
        "once the node is off"
    )
    who = f"policy {holding[0].metadata.name}" if never else ""
    if class_ is not None and class_.spec.fencing.mode == "None":
        who = f"class {class_.metadata.name}"
    if who:
        yield PreflightFinding(
            Concern.DRIVER_NAME_FIXED,
            PreflightSeverity.WARNING,
            f"{sentence}, and {who} fences no node: when the driver's node is lost, its pod keeps "
            "the next driver from starting until a person deletes it.",
            remedy,
        )
    elif class_ is None:
        yield PreflightFinding(
            Concern.DRIVER_NAME_FIXED,
            PreflightSeverity.NOTE,
            f"{sentence}, and whether its lost node is fenced is not known.",
            remedy,
        )


# Claims that only one node can have, so that a lost node keeps them.
#
# A volume that is read and written from one node stays attached to a lost node until that is
# known to be off, 6 minutes by default.

SHARED_ACCESS = frozenset({"ReadWriteMany", "ReadOnlyMany"})
REUSE_CLAIMS = "spark.kubernetes.driver.reusePersistentVolumeClaim"
OWN_CLAIMS = "spark.kubernetes.driver.ownPersistentVolumeClaim"


def _node_bound_claims(
    application: Workload, around: PreflightEnvironment
) -> Iterator[PreflightFinding]:
    """Each claim once, executors' with the worst that can become of them."""
    seen: set[tuple[str, str]] = set()
    for claim in application.claims:
        if (claim.role, claim.name) in seen:
            continue
        seen.add((claim.role, claim.name))
        if claim.per_pod:
            yield from _claim_per_pod(claim, application)
        else:
            yield from _shared_claim(claim, around)


def _claim_per_pod(claim: MountedClaim, application: Workload) -> Iterator[PreflightFinding]:
    """A claim that is made with each pod; the driver takes those of lost executors again."""
    if claim.role == "driver":
        return
    conf = application.conf or {}
    reused = "false" not in (
        conf.get(REUSE_CLAIMS, "true").lower(),
        conf.get(OWN_CLAIMS, "true").lower(),
    )
    if reused:
        yield PreflightFinding(
            Concern.CLAIM_PER_EXECUTOR,
            PreflightSeverity.WARNING,
            f"Each executor has a claim of its own ({claim.field}), and Spark gives those of lost "
            "executors to their replacements: these wait where the volume is, in the lost domain.",
            f"set {REUSE_CLAIMS} to false, or keep scratch data in an emptyDir",
        )


def _shared_claim(claim: MountedClaim, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    if around.claims is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            f"Claim {claim.name} of the {claim.role} ({claim.field}) could not be read.",
            f"see that its access mode is ReadWriteMany, or that the {claim.role} needs no volume",
        )
        return
    modes = around.claims.get(claim.name)
    if modes is None:
        yield PreflightFinding(
            Concern.CLAIM_MISSING,
            PreflightSeverity.ERROR,
            f"There is no claim {claim.name}, which the {claim.role} mounts ({claim.field}).",
            "make the claim, or mend its name",
        )
    elif not SHARED_ACCESS & frozenset(modes):
        yield _once(claim, ", ".join(modes) or "no access mode")


def _once(claim: MountedClaim, modes: str) -> PreflightFinding:
    if claim.role == "executor":
        return PreflightFinding(
            Concern.CLAIM_READ_WRITE_ONCE,
            PreflightSeverity.ERROR,
            f"All executors mount claim {claim.name} ({claim.field}), which is {modes}: they "
            "start on one node only, and after its loss on none.",
            "use a ReadWriteMany claim, or keep data in an object store",
        )
    return PreflightFinding(
        Concern.CLAIM_READ_WRITE_ONCE,
        PreflightSeverity.WARNING,
        f"The driver mounts claim {claim.name} ({claim.field}), which is {modes}: when its node is "
        "lost, the next driver waits 6 minutes for the volume, or until the node is fenced.",
        "use a ReadWriteMany claim, or keep checkpoints in an object store",
    )


# Executors, and servers of the coordination store, that one failure may take together.

STORE_SERVERS = 3


def _executors_together(application: Workload) -> Iterator[PreflightFinding]:
    """Whether anything keeps executors apart."""
    if application.spread is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            "No executor runs, and no manifest says whether executors are kept apart.",
            "run it again when they are up",
        )
    elif not application.spread:
        yield PreflightFinding(
            Concern.EXECUTORS_TOGETHER,
            PreflightSeverity.WARNING,
            "Nothing keeps executors apart: one node, or one zone, may take all of them at once.",
            f"give {application.spread_field} a podAntiAffinity by hostname, or topology spread "
            "constraints by zone",
        )


def _failure_domains(around: PreflightEnvironment, key: str) -> Iterator[PreflightFinding]:
    """Whether three servers of the store can lie in failure domains of their own, by a label."""
    if around.nodes is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            "Nodes could not be read, so failure domains were not counted.",
            around.remedy("let whoever may list nodes run it too"),
        )
        return
    named = sorted({labels[key] for labels in around.nodes if labels.get(key)})
    if not named:
        yield PreflightFinding(
            Concern.DOMAINS_UNLABELLED,
            PreflightSeverity.WARNING,
            f"No node has the label {key}, so nothing is known of failure domains: replacements "
            "are asked for anywhere, and the store's servers may share one.",
            "label the nodes, or give the policy other failureDomainKeys",
        )
    elif len(named) < STORE_SERVERS:
        yield PreflightFinding(
            Concern.DOMAINS_TOO_FEW,
            PreflightSeverity.WARNING,
            f"{_domains(named)} by {key}: with it the store's majority would be gone, and drivers "
            "would plan by themselves.",
            "spread nodes over three domains, or run ZooKeeper elsewhere",
        )


def _domains(named: list[str]) -> str:
    if len(named) == 1:
        return f"All three servers of ZooKeeper would share the one failure domain ({named[0]})"
    return f"Two of three servers of ZooKeeper would share a failure domain ({', '.join(named)})"


# Nodes of several kinds, on which native libraries may give another last bit in a repeat.
#
# What nodes are is known from their architecture, and from labels of Node Feature Discovery where
# it runs.

NODE_FEATURES = "feature.node.kubernetes.io/cpu-"
ARCHITECTURE = "kubernetes.io/arch"
# Label, and what is read where others have it and a node has not.
NODE_LABELS = {
    ARCHITECTURE: "",
    f"{NODE_FEATURES}cpuid.AVX2": "false",
    f"{NODE_FEATURES}cpuid.FMA3": "false",
    f"{NODE_FEATURES}cpuid.AVX512F": "false",
    f"{NODE_FEATURES}model.vendor_id": "",
}


def _mixed_nodes(around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    """Whether nodes that take pods differ in what matters to a repeat."""
    mixed = []
    for label, absent in NODE_LABELS.items():
        values = {labels.get(label, absent) for labels in around.nodes or ()} - {""}
        if len(values) > 1:
            mixed.append(f"{label} is {' or '.join(sorted(values))}")
    if mixed:
        yield PreflightFinding(
            Concern.NODES_MIXED,
            PreflightSeverity.WARNING,
            f"Nodes are of several kinds ({'; '.join(mixed)}), and libraries of numbers may give "
            "another last bit where an epoch runs again on another kind: the run ends then.",
            "keep executors on one kind by a node selector, or declare steps with such functions "
            "uncertain; see docs/pipelines.md",
        )


# Whether Rekindle looks after the application: policy, class, the driver's label, its sidecar.


def protection(application: Workload, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    """Who looks after it, then what the driver needs for that."""
    if not application.named:
        yield PreflightFinding(
            Concern.NAME_MISSING,
            PreflightSeverity.ERROR,
            "No label of the driver's pod names its application, so it gets no sidecar.",
            f"give the pod the label {APPLICATION_LABEL}, the same for each start",
        )
    yield from _policies(application, around)
    yield from _sidecar(application)


def check_cluster(around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    """Whether the webhook answers, and strangers are kept from the records of applications."""
    for seen in _webhook_away(around):
        yield PreflightFinding(
            Concern.WEBHOOK_AWAY,
            PreflightSeverity.ERROR,
            f"No replica of the webhook is available ({seen}), so drivers come up without their "
            "sidecar.",
            "see docs/runbooks/RekindleWebhookAbsent.md",
        )
    classes = (around.classes or {}).items()
    found = sorted(name for name, class_ in classes if not class_.spec.has_store_secret)
    if found:
        yield PreflightFinding(
            Concern.STORE_OPEN,
            PreflightSeverity.WARNING,
            f"Drivers of RecoveryClass {', '.join(found)} reach the coordination store without a "
            "secret, so whoever reaches it does what the operator and all drivers may do there.",
            "close the store, as docs/install.md says under ZooKeeper",
        )
    plain = sorted(name for name, class_ in classes if not class_.spec.has_store_tls)
    if plain:
        yield PreflightFinding(
            Concern.STORE_PLAINTEXT,
            PreflightSeverity.WARNING,
            f"Drivers of RecoveryClass {', '.join(plain)} reach the coordination store in plain "
            "text, so whoever reads packets on the way has their credentials and records.",
            "set sidecar.store.caSecretRef, as docs/install.md says under ZooKeeper, unless a mesh "
            "encrypts the way",
        )


def _webhook_away(around: PreflightEnvironment) -> list[str]:
    """By what it is known that the webhook is away: its Deployment, or, for who may not list those,
    what the operator has written into a policy; nothing where it is there."""
    if around.webhooks is not None:
        return [f"Deployment {name}" for name, up in sorted(around.webhooks.items()) if not up]
    told = [
        f"webhookAway of policy {policy.metadata.name}"
        for policy in around.policies or ()
        if policy.status.webhook_away
    ]
    return sorted(told)[:1]


def _policies(application: Workload, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    if around.policies is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            "Policies could not be read, so who looks after it is not known.",
            around.remedy("ask for the right to list recoverypolicies"),
        )
        return
    found = policies_of(application, around.policies)
    if not found:
        yield PreflightFinding(
            Concern.NO_POLICY,
            PreflightSeverity.ERROR,
            f"No RecoveryPolicy of namespace {application.namespace} selects it.",
            "make one, or widen the selector of one that is there; see docs/resources.md",
        )
        return
    holder, *others = found
    if others:
        names = ", ".join(policy.metadata.name for policy in others)
        yield PreflightFinding(
            Concern.POLICIES_OVERLAP,
            PreflightSeverity.WARNING,
            f"Policy {holder.metadata.name} holds; it is selected by {names} too, which do not.",
            "narrow the selectors, or delete what is not meant",
        )
    yield from _class(application, around, holder.spec.class_name)


def _class(
    application: Workload, around: PreflightEnvironment, name: str
) -> Iterator[PreflightFinding]:
    if around.classes is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            f"RecoveryClass {name} could not be read, so what the policy may have is not known.",
            around.remedy("ask for the role rekindle-class-reader"),
        )
    elif class_of(application, around) is None:
        yield PreflightFinding(
            Concern.CLASS_MISSING,
            PreflightSeverity.ERROR,
            f"There is no RecoveryClass {name}, so nothing is done for the policy's applications.",
            "make the class, or name one that is there",
        )
    elif not around.classes[name].spec.allows(application.namespace):
        yield PreflightFinding(
            Concern.CLASS_NOT_ALLOWED,
            PreflightSeverity.ERROR,
            f"RecoveryClass {name} is not for namespace {application.namespace}, so nothing is "
            "done for the policy's applications.",
            "name another class, or ask for allowedNamespaces of that one",
        )


def _sidecar(application: Workload) -> Iterator[PreflightFinding]:
    """A driver that runs unprotected, and one that would."""
    asks = application.driver_labels.get(INJECT_LABEL) == "true"
    if application.sidecar in ("ready", "starting"):
        return
    if not asks and not application.brings_sidecar:
        where = application.driver_labels_field
        yield PreflightFinding(
            Concern.INJECT_LABEL_MISSING,
            PreflightSeverity.ERROR,
            f'The driver does not ask for a sidecar: {where} have no {INJECT_LABEL}: "true".',
            f'add {INJECT_LABEL}: "true" to {where}; it holds from the next start of the driver',
        )
    elif application.sidecar == "absent":
        yield PreflightFinding(
            Concern.SIDECAR_MISSING,
            PreflightSeverity.ERROR,
            f"The driver asks for a sidecar and runs without {SIDECAR}: the webhook was away when "
            "it was made, or refused.",
            "see that the webhook answers, then start the driver again",
        )


def application(subject: Workload, around: PreflightEnvironment) -> tuple[PreflightFinding, ...]:
    """What is wrong with an application, the worst first; nothing where all is well."""
    return ordered(
        (
            *_unquoted_text(subject),
            *protection(subject, around),
            *_restarts(subject),
            *_name_conflicts(subject, around),
            *_node_bound_claims(subject, around),
            *resource_limits.check_quotas(subject, around),
            *resource_limits.check_objects(subject, around),
            *_failure_limits(subject),
            *_executors_together(subject),
        )
    )


def cluster(
    around: PreflightEnvironment, policies: Iterable[RecoveryPolicy]
) -> tuple[PreflightFinding, ...]:
    """What is wrong with the cluster, by the failure domain keys of the policies that hold."""
    keys = {policy.spec.failure_domain_keys[0] for policy in policies} or {DOMAIN_KEY}
    found = [item for key in sorted(keys) for item in _failure_domains(around, key)]
    found += [*_mixed_nodes(around), *check_cluster(around)]
    return ordered(dict.fromkeys(found))
