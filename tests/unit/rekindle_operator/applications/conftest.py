"""Worlds of whole applications whose clock is the test's."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import spark_objects as objects
from gated_world import World, iso

from rekindle_operator.applications import application_recovery


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Makes worlds whose clock is theirs."""

    def make(**more: Any) -> World:
        world = World(**more)
        clock = SimpleNamespace(
            monotonic=lambda: world.now, time=lambda: 1_795_000_000.0 + world.now
        )
        monkeypatch.setattr(application_recovery, "time", clock)
        created = 1_795_000_000
        monkeypatch.setattr(objects, "at", lambda _: iso(created))
        return world

    return make
