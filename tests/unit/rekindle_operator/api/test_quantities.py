"""Quantities of Kubernetes, and what a pod requests in all."""

from typing import Any

import pytest
from spark_objects import container

from rekindle.model.errors import InputError
from rekindle_operator.api import quantities


@pytest.mark.parametrize(
    ("quantity", "millis"),
    [
        ("500m", 500),
        ("2", 2000),
        (2, 2000),
        ("0.5", 500),
        (".1", 100),
        ("1.", 1000),
        ("100u", 1),
        ("1500000n", 2),
        ("1k", 1_000_000),
        ("2e3", 2_000_000),
        ("1E-1", 100),
        ("0", 0),
        ("+1", 1000),
        ("5.", 5000),
        ("1e+03", 1_000_000),
        ("1P", 10**18),
        ("1n", 1),
        (0.5, 500),
    ],
)
def test_cpu_is_counted_in_thousandths_of_a_core_and_rounded_up(
    quantity: object, millis: int
) -> None:
    assert quantities.cpu_millis(quantity) == millis


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [
        ("1408Mi", 1408 * 2**20),
        ("1Gi", 2**30),
        ("1G", 10**9),
        ("1E", 10**18),
        ("1.5Ki", 1536),
        ("128974848", 128974848),
        ("100m", 1),
        ("1Ei", 2**60),
        ("0.5Ei", 2**59),
        ("1Pi", 2**50),
        ("1Ti", 2**40),
        ("12e6", 12_000_000),
        ("12E6", 12_000_000),
        ("1e100", 2**63 - 1),
        ("1e999999", 2**63 - 1),
        ("8Ei", 2**63 - 1),
        ("100E", 2**63 - 1),
        (1e9, 10**9),
        (10**22, 2**63 - 1),
    ],
)
def test_memory_is_counted_in_bytes(quantity: str, amount: int) -> None:
    assert quantities.memory_bytes(quantity) == amount


@pytest.mark.parametrize(
    "text",
    [
        "",
        "two",
        "1 core",
        "1mm",
        "m",
        "1e",
        "--1",
        "1KI",
        "1K",
        "1ei",
        "1iE",
        "1eE",
        "nan",
        "inf",
        "0x10",
        "1_0",
        ".",
    ],
)
def test_what_is_no_quantity_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(InputError, match="is not a quantity of Kubernetes; write a number"):
        quantities.cpu_millis(text)


RESIZED = {
    "containerStatuses": [
        {
            "name": "main",
            "allocatedResources": {"cpu": "3"},
            "resources": {"requests": {"cpu": "2"}},
        }
    ]
}


@pytest.mark.parametrize(
    ("spec", "status", "millis"),
    [
        pytest.param({"containers": [container("a"), container("b", "250m")]}, {}, 1250, id="sum"),
        pytest.param({"containers": [{"name": "a"}]}, {}, 0, id="nothing requested"),
        pytest.param(
            {"containers": [container("a")], "initContainers": [container("i", "3")]},
            {},
            3000,
            id="an init container that needs more than all that runs after it",
        ),
        pytest.param(
            {
                "containers": [container("a")],
                "initContainers": [container("s", "100m", restartPolicy="Always")],
            },
            {},
            1100,
            id="a native sidecar runs beside the others",
        ),
        pytest.param(
            {
                "containers": [container("a")],
                "initContainers": [
                    container("s", "100m", restartPolicy="Always"),
                    container("i", "2"),
                    container("t", "400m", restartPolicy="Always"),
                ],
            },
            {},
            2100,
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            {"containers": [container("a")], "overhead": {"cpu": "250m"}}, {}, 1250, id="overhead"
        ),
        pytest.param(
            {"containers": [container("a")], "resources": {"requests": {"cpu": "3"}}},
            {},
            3000,
            id="requests of the pod as a whole",
        ),
        pytest.param({"containers": [container("main")]}, RESIZED, 3000, id="being made smaller"),
    ],
)
def test_a_pod_takes_what_the_scheduler_counts(
    spec: dict[str, Any], status: dict[str, Any], millis: int
) -> None:
    body = {"spec": spec, "status": status}
    assert quantities.requested(body, "cpu", quantities.cpu_millis) == millis
