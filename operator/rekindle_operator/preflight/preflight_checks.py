"""All checks of preflight, in order: of one application, and of the cluster.

The plugin calls `application` for each one and `cluster` once.
"""

from collections.abc import Iterable

from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.preflight import (
    anti_affinity,
    failure_limits,
    name_conflicts,
    node_bound_claims,
    node_mix,
    object_limits,
    protection_check,
    resource_quotas,
    restart_policy,
    yaml_types,
)
from rekindle_operator.preflight.preflight_findings import PreflightFinding, ordered
from rekindle_operator.preflight.subjects.environment import DOMAIN_KEY, PreflightEnvironment
from rekindle_operator.preflight.subjects.workloads import Workload


def application(subject: Workload, around: PreflightEnvironment) -> tuple[PreflightFinding, ...]:
    """What is wrong with an application, the worst first; nothing where all is well."""
    return ordered(
        (
            *yaml_types.check(subject),
            *protection_check.check(subject, around),
            *restart_policy.check(subject),
            *name_conflicts.check(subject, around),
            *node_bound_claims.check(subject, around),
            *resource_quotas.check(subject, around),
            *object_limits.check(subject, around),
            *failure_limits.check(subject),
            *anti_affinity.check(subject),
        )
    )


def cluster(
    around: PreflightEnvironment, policies: Iterable[RecoveryPolicy]
) -> tuple[PreflightFinding, ...]:
    """What is wrong with the cluster, by the failure domain keys of the policies that hold."""
    keys = {policy.spec.failure_domain_keys[0] for policy in policies} or {DOMAIN_KEY}
    found = [item for key in sorted(keys) for item in anti_affinity.check_cluster(around, key)]
    found += [*node_mix.check_cluster(around), *protection_check.check_cluster(around)]
    return ordered(dict.fromkeys(found))
