"""Nodes of several kinds, on which native libraries may give another last bit in a repeat.

What nodes are is known from their architecture, and from labels of Node Feature Discovery where it
runs. Pure; `preflight_checks` calls it.
"""

from collections.abc import Iterator

from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
)
from rekindle_operator.preflight.subjects.environment import PreflightEnvironment

FEATURES = "feature.node.kubernetes.io/cpu-"
ARCHITECTURE = "kubernetes.io/arch"
# Label, and what is read where others have it and a node has not.
LABELS = {
    ARCHITECTURE: "",
    f"{FEATURES}cpuid.AVX2": "false",
    f"{FEATURES}cpuid.FMA3": "false",
    f"{FEATURES}cpuid.AVX512F": "false",
    f"{FEATURES}model.vendor_id": "",
}


def check_cluster(around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    """Whether nodes that take pods differ in what matters to a repeat."""
    mixed = []
    for label, absent in LABELS.items():
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
