"""The driver's clock: it goes on as it began, whatever becomes of the machine's."""

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rekindle_spark
from rekindle.model.settings import Settings
from rekindle_spark.driver import driver_clock
from rekindle_spark.driver.epoch_loop import EpochLoop
from rekindle_spark.output.sink_publishing import SinkPublishers

HOUR = 3600.0


@pytest.fixture(params=[-HOUR, HOUR])
def turned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sets the machine's clock."""
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() + request.param)


def test_it_begins_with_the_machines_clock() -> None:
    assert driver_clock.now() == pytest.approx(time.time(), abs=60.0)


@pytest.mark.usefixtures("turned")
def test_the_machines_clock_may_jump() -> None:
    assert abs(driver_clock.now() - time.time()) == pytest.approx(HOUR, abs=60.0)


@pytest.mark.usefixtures("turned")
def test_the_next_epoch_comes_when_it_is_due() -> None:
    looks: list[float] = []
    application: Any = SimpleNamespace(
        progress=SimpleNamespace(placed={0: "e"}, trailing=frozenset(), catching_up=set()),
        settings=Settings(),
        claimed=set(),
        outrun=set(),
        newest=5,
        paused=False,
        arrivals=SimpleNamespace(last=SimpleNamespace(epoch=5)),
        sinks=SinkPublishers(),
    )
    control: Any = SimpleNamespace(pump=lambda: looks.append(driver_clock.now()))
    checkpointing: Any = SimpleNamespace()
    loop = EpochLoop(application, control, checkpointing, lambda: False, lambda: False)
    loop.next_cut_at = driver_clock.now() + 0.1
    loop._await_epoch()
    assert looks[-2] < loop.next_cut_at <= driver_clock.now() < looks[0] + 60.0


def test_the_runtime_asks_no_other_clock() -> None:
    """But for hosts, by whose clock a row's time is too far ahead to move the watermark, and
    protected queries, because Spark records by that clock when tasks start."""
    sources = Path(rekindle_spark.__file__).parent.rglob("*.py")
    asking = {path.name for path in sources if re.search(r"\btime\.time\(", path.read_text())}
    assert asking == {"driver_clock.py", "partition.py", "protection.py"}
