"""What the list of all leases says of each node."""

import io
from typing import Any, cast

import msgspec
import pytest

from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster.api_client import Api
from rekindle_operator.detection import detection_input
from rekindle_operator.detection.lease_poller import LeasePoller


class Leases:
    """An API server that has these and nothing else."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.bodies = bodies

    def forms(self, path: str, form: type) -> list[Any]:
        assert path == "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        return [msgspec.convert(body, form) for body in self.bodies]


def lease(name: str, version: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": version, "managedFields": [{"operation": "Apply"}]}
    return {"metadata": metadata, "spec": {"holderIdentity": name, **spec}}


def looked(*bodies: dict[str, Any]) -> LeasePoller:
    found = LeasePoller(cast(Api, Leases(*bodies)), Log(io.StringIO()), lambda: 10.0)
    found.look()
    return found


def test_a_lease_changes_with_its_renewal_or_where_that_is_not_said_with_its_version() -> None:
    newest = looked(
        lease("node-1", "7", renewTime="2026-01-01T00:00:00.000000Z"),
        lease("node-2", "8", renewTime=None),
        {"metadata": {"name": "node-3", "resourceVersion": "9"}},
    ).newest
    assert newest is not None
    assert newest.tokens == {"node-1": "2026-01-01T00:00:00.000000Z", "node-2": "8", "node-3": "9"}


def test_an_interval_counts_where_a_kubelet_renews_less_often_than_the_class_says() -> None:
    newest = looked(
        lease("node-1", "7", leaseDurationSeconds=40), lease("node-2", "8", leaseDurationSeconds=80)
    ).newest
    assert newest is not None
    assert newest.intervals == {"node-2": 20.0}


@pytest.mark.parametrize(
    ("took", "lease_seconds", "pause"),
    [
        pytest.param(0.005, 10.0, 1.0, id="a few nodes"),
        pytest.param(0.1, 10.0, 3.0, id="two thousand"),
        pytest.param(2.0, 10.0, 5.0, id="an API server that is slow"),
        pytest.param(0.1, 1.0, 0.5, id="leases that are renewed every second"),
    ],
)
def test_looks_come_one_after_the_other_as_soon_as_they_are_cheap(
    took: float, lease_seconds: float, pause: float
) -> None:
    found = LeasePoller(cast(Api, Leases()), Log(io.StringIO()), lambda: lease_seconds)
    found.newest = detection_input.Leases({}, asked_at=7.0, answered_at=7.0 + took)
    assert found.pause_seconds == pytest.approx(pause)
