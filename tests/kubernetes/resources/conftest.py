"""What tests of our resources share: an API server that has their definitions."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle_local import process_sets
from testbed.control_plane import ControlPlane

sys.path.insert(0, str(Path(__file__).parent))

from resource_requests import DEFINITIONS, Api, Object, condition

WAIT_SECONDS_MAX = 180.0


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Api:
    """With all definitions established; they stay, as they would in a cluster."""
    api = Api(control_plane)
    for record in DEFINITIONS:
        status, answer = api.apply(record, "rekindle-tests", force=True)
        assert status in (200, 201), answer["message"]
    assert process_sets.await_condition(
        lambda: all(condition(api.get(record), "Established") for record in DEFINITIONS),
        limit_seconds=WAIT_SECONDS_MAX,
    )
    return api


@pytest.fixture
def made(api: Api) -> Iterator[list[Object]]:
    """Objects of the cluster that a test makes, to be deleted after it; its own go with the
    namespace."""
    records: list[Object] = []
    yield records
    for record in records:
        api.delete(record)
