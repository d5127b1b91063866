"""Preflight: nodes on which an epoch that runs again may differ in the last bit."""

import preflight_world as world
import pytest

from rekindle_operator.preflight import preflight_checks
from rekindle_operator.preflight.preflight_findings import Concern, PreflightSeverity

ZONE, ARCH = "topology.kubernetes.io/zone", "kubernetes.io/arch"
CPU = "feature.node.kubernetes.io/cpu-"


def found(*kinds: dict[str, str]) -> list[str]:
    nodes = tuple({ZONE: zone, ARCH: "amd64", **kind} for zone in "abc" for kind in kinds)
    findings = preflight_checks.cluster(world.around(nodes=nodes), ())
    assert {(item.word, item.severity) for item in findings} <= {
        (Concern.NODES_MIXED, PreflightSeverity.WARNING)
    }
    return [item.sentence for item in findings]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({ARCH: "arm64"}, "kubernetes.io/arch is amd64 or arm64"),
        ({f"{CPU}cpuid.AVX512F": "true"}, "cpuid.AVX512F is false or true"),
        ({f"{CPU}cpuid.AVX2": "true"}, "cpuid.AVX2 is false or true"),
    ],
)
def test_nodes_of_several_kinds_are_a_warning(other: dict[str, str], said: str) -> None:
    (sentence,) = found({}, other)
    assert said in sentence


def test_makers_are_compared_where_they_are_known() -> None:
    intel, amd = ({f"{CPU}model.vendor_id": vendor} for vendor in ("Intel", "AMD"))
    (sentence,) = found(intel, amd)
    assert "vendor_id is AMD or Intel" in sentence
    assert found(intel, {}) == []


def test_nodes_of_one_kind_are_no_finding() -> None:
    assert found({}) == []
    assert found({f"{CPU}cpuid.AVX512F": "true"}) == []
