"""Worlds of whole applications whose clock is the test's."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import spark_objects as objects
from gated_world import KARPENTER, World, iso

from rekindle_operator.applications import application_recovery


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Makes worlds whose clock is theirs."""

    def make(kind: type[World] = World, **more: Any) -> World:
        world = kind(**more)
        clock = SimpleNamespace(
            monotonic=lambda: world.now, time=lambda: 1_795_000_000.0 + world.now
        )
        monkeypatch.setattr(application_recovery, "time", clock)
        created = 1_795_000_000
        monkeypatch.setattr(objects, "at", lambda _: iso(created))
        return world

    return make


@pytest.fixture
def broken(made: Callable[..., World]) -> Callable[..., World]:
    """Makes worlds that have lost both nodes, in which Spark has replaced executors since."""

    def make(*replaced: str, provisioning: tuple[Any, ...] = (KARPENTER,), **more: Any) -> World:
        world = made(provisioning=provisioning, **more)
        world.lose("a", "b")
        world.turn()
        for name in replaced:
            world.replaced(name)
        if replaced:
            world.turn()
        return world

    return make
