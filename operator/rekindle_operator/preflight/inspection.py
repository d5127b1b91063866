"""All checks of preflight, in order: of one application, and of the cluster.

The plugin calls `application` for each one and `cluster` once.
"""

from collections.abc import Iterable

from rekindle_operator.policies import RecoveryPolicy
from rekindle_operator.preflight import (
    failing,
    limits,
    mixing,
    names,
    protecting,
    quotas,
    restarting,
    spreading,
    storage,
    writing,
)
from rekindle_operator.preflight.findings import Finding, ordered
from rekindle_operator.preflight.surroundings import DOMAIN_KEY, Surroundings
from rekindle_operator.preflight.workloads import Workload

__all__ = ["application", "cluster"]


def application(subject: Workload, around: Surroundings) -> tuple[Finding, ...]:
    """What is wrong with an application, the worst first; nothing where all is well."""
    return ordered(
        (
            *writing.check(subject),
            *protecting.check(subject, around),
            *restarting.check(subject),
            *names.check(subject, around),
            *storage.check(subject, around),
            *quotas.check(subject, around),
            *limits.check(subject, around),
            *failing.check(subject),
            *spreading.check(subject),
        )
    )


def cluster(around: Surroundings, policies: Iterable[RecoveryPolicy]) -> tuple[Finding, ...]:
    """What is wrong with the cluster, by the failure domain keys of the policies that hold."""
    keys = {policy.spec.failure_domain_keys[0] for policy in policies} or {DOMAIN_KEY}
    found = [item for key in sorted(keys) for item in spreading.check_cluster(around, key)]
    found += [*mixing.check_cluster(around), *protecting.check_cluster(around)]
    return ordered(dict.fromkeys(found))
