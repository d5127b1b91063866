"""Case 08: the machine's clock is set back by an hour in a run, and epochs go on.

Rewritten: the loop takes the time from `driver_clock`, so the machine's clocks are set there.
"""

from types import SimpleNamespace
from typing import Any, cast

import verdicts

from rekindle.model.settings import RuntimeSettings, Settings
from rekindle_spark.driver import away_sources, driver_clock, epoch_loop
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.driver.epoch_loop import EpochLoop

HOUR_SECONDS = 3600.0


class MachineClock:
    """Clocks of a machine: one goes on, somebody sets the other one."""

    CLOCK_BOOTTIME, CLOCK_MONOTONIC = 7, 1

    def __init__(self) -> None:
        self.passed, self.shift = 0.0, 0.0

    def time(self) -> float:
        return 1_700_000_000 + self.passed + self.shift

    def monotonic(self) -> float:
        return self.passed

    def clock_gettime(self, _: int) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds
        if self.passed > 2 * HOUR_SECONDS:
            raise SystemExit("no epoch in two hours")


class Arrivals:
    """Cuts an epoch whenever it is asked, and notes when."""

    def __init__(self, clock: MachineClock) -> None:
        self.clock, self.cuts = clock, list[float]()
        self.last = SimpleNamespace(epoch=0, final=False)

    def cut(self, now: float, *_: object, **__: object) -> Any:
        self.cuts.append(self.clock.passed)
        self.last = SimpleNamespace(
            epoch=self.last.epoch + 1, final=False, record=dict, rows=0, cut_at=now, streams={}
        )
        return self.last

    def hurries(self, *_: object, **__: object) -> bool:
        return False

    def adopt(self, *_: object) -> Any:
        return self.last


def loop_of(arrivals: Arrivals) -> EpochLoop:
    unused: Any = SimpleNamespace()
    store: Any = SimpleNamespace(log_offsets=lambda _, record: record, generation=1)
    events: Any = SimpleNamespace(write=lambda *_, **__: None)
    progress: Any = SimpleNamespace(
        complete=True, placed={1}, live={1}, catching_up=set(), trailing=frozenset()
    )
    application = DriverContext(
        program=unused,
        program_file=("", ""),
        store=store,
        exchange=unused,
        settings=Settings(runtime=RuntimeSettings(epoch_seconds=1.0)),
        events=events,
        progress=progress,
        arrivals=cast(Any, arrivals),
        cuts={},
        digests={},
        committed={},
        late=unused,
        pace=unused,
        budget=unused,
    )
    control: Any = SimpleNamespace(pump=lambda: None, rows_per_second=1000.0)
    return EpochLoop(application, control, unused, lambda: False, lambda: False)


def main() -> None:
    clock: Any = MachineClock()
    epoch_loop.time = driver_clock.time = clock  # type: ignore[attr-defined]
    away_sources.heed_answers = lambda _: None  # the source is no stream
    arrivals = Arrivals(clock)
    loop = loop_of(arrivals)
    for number in range(8):
        loop._await_epoch()
        loop._cut()
        loop.application.newest = arrivals.last.epoch
        clock.sleep(0.3)
        if number == 4:
            clock.shift = -HOUR_SECONDS
            print(f"at {clock.passed:.1f} s the clock is set back by an hour")
    gaps = [
        round(late - early, 1)
        for early, late in zip(arrivals.cuts, arrivals.cuts[1:], strict=False)
    ]
    print("seconds between epochs:", gaps)
    verdicts.end(max(gaps) < 5, "epochs go on a second apart")


if __name__ == "__main__":
    main()
