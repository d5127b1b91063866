"""Where the records of an application are, by what its driver is told."""

import pytest

from rekindle.model.errors import InputError
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import DEFAULT, Place

TOLD = {"REKINDLE_NAMESPACE": "flights", "REKINDLE_APPLICATION": "departures"}


@pytest.mark.parametrize(
    ("name", "environment", "place"),
    [
        (None, {}, DEFAULT),
        (None, TOLD, Place("flights", "departures")),
        ("team/other", TOLD, Place("team", "other")),
        (None, {"REKINDLE_NAMESPACE": "flights"}, Place("flights", "application")),
    ],
)
def test_a_driver_goes_by_the_name_given_else_by_that_of_its_sidecar(
    name: str | None, environment: dict[str, str], place: Place
) -> None:
    assert store_paths.place_of_driver(name, environment) == place


@pytest.mark.parametrize(
    ("name", "environment"),
    [("team", {}), ("a/b/c", {}), (None, TOLD | {"REKINDLE_APPLICATION": "two words"})],
)
def test_what_is_no_name_is_refused(name: str | None, environment: dict[str, str]) -> None:
    with pytest.raises(InputError):
        store_paths.place_of_driver(name, environment)
