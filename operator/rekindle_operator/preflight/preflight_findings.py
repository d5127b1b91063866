"""A finding of preflight: a word, a severity, a sentence and a remedy.

The words are those of docs/kubectl.md. Decides nothing; the checks make findings, the plugin shows
them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from rekindle.model.reasons import Explained


class PreflightSeverity(StrEnum):
    """How bad it is, the worst first: it does not come back; it comes back late or by luck; worth
    knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Concern(Explained):
    """A kebab-case word; `meaning` says it in a line."""

    NO_POLICY = "no-policy", "no RecoveryPolicy selects the application"
    POLICIES_OVERLAP = "policies-overlap", "several policies select the application"
    CLASS_NOT_ALLOWED = "class-not-allowed", "the policy's class is not for its namespace"
    CLASS_MISSING = "class-missing", "there is no class of the name that the policy gives"
    NAME_MISSING = "name-missing", "the driver's pod has no label that names its application"
    INJECT_LABEL_MISSING = "inject-label-missing", "the driver does not ask for the sidecar"
    SIDECAR_MISSING = "sidecar-missing", "the driver runs without its sidecar"
    DRIVER_NOT_RESTARTED = "driver-not-restarted", "nobody starts a driver that is lost again"
    RESTARTS_LIMITED = "restarts-limited", "a driver is started again a number of times only"
    DRIVER_NAME_FIXED = "driver-name-fixed", "the old driver's pod keeps the new one from starting"
    EXECUTOR_NAMES_FIXED = (
        "executor-names-fixed",
        "executors of a new driver have the names of the old one's",
    )
    FAILURES_LIMITED = "failures-limited", "Spark ends after a number of failed executors"
    CLAIM_READ_WRITE_ONCE = "claim-read-write-once", "only one node at a time can have the volume"
    CLAIM_PER_EXECUTOR = "claim-per-executor", "a lost executor's volume ties its replacement"
    CLAIM_MISSING = "claim-missing", "there is no claim of the name that is mounted"
    QUOTA_EXCEEDED = "quota-exceeded", "the application does not fit into the quota"
    QUOTA_WITHOUT_HEADROOM = "quota-without-headroom", "the quota has no room for replacements"
    LIMITS_REQUIRED = "limits-required", "the quota wants amounts that a container does not name"
    LIMIT_RANGE = "limit-range", "a LimitRange keeps a pod from being made"
    TEXT_UNQUOTED = "text-unquoted", "a field that has to be text is written without quotes"
    EXECUTORS_TOGETHER = "executors-together", "nothing keeps executors apart"
    WEBHOOK_AWAY = "webhook-away", "no webhook gives drivers their sidecar"
    STORE_OPEN = "store-open", "whoever reaches the coordination store writes to all of it"
    STORE_PLAINTEXT = "store-plaintext", "the way to the coordination store is not encrypted"
    DOMAINS_TOO_FEW = "domains-too-few", "fewer than three failure domains for the store"
    DOMAINS_UNLABELLED = "domains-unlabelled", "no node says which failure domain it is in"
    NODES_MIXED = "nodes-mixed", "what runs again on another node may differ in the last bit"
    NOT_CHECKED = "not-checked", "something could not be read, so it was not looked at"


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """One thing that a person should know before nodes are lost."""

    word: Concern
    severity: PreflightSeverity
    sentence: str
    remedy: str


WORST_FIRST = tuple(PreflightSeverity)


def ordered(findings: Iterable[PreflightFinding]) -> tuple[PreflightFinding, ...]:
    """The worst first; of equal ones in the order in which they were found."""
    return tuple(sorted(findings, key=lambda finding: WORST_FIRST.index(finding.severity)))


def at_least(findings: Iterable[PreflightFinding], level: PreflightSeverity) -> int:
    """How many findings are as bad as `level`, or worse."""
    bad = WORST_FIRST[: WORST_FIRST.index(level) + 1]
    return sum(finding.severity in bad for finding in findings)
