"""When a report says that the machine was the limit."""

import pytest

from rekindle.model.errors import InputError
from rekindle.model.run_events import Event
from rekindle.report import machine_limits

BUSY = {"idle_share": 0.02, "waiting_share": 0.5, "other_cores": 0.8, "outer_throttled": False}
QUIET = {"idle_share": 0.4, "waiting_share": 0.05, "other_cores": 0.1, "outer_throttled": False}


def sampled(*samples: dict[str, object], begin: float = -10.0) -> list[Event]:
    """A sample a second, and the warm-up at `begin`."""
    return [
        Event(begin, "warm"),
        *(
            Event(begin + 1 + index, "machine", extra={"seconds": 1.0, "cores": 2, **sample})
            for index, sample in enumerate(samples)
        ),
    ]


def test_a_run_that_was_not_measured_says_so() -> None:
    assert machine_limits.measure([Event(-10.0, "warm"), Event(0.0, "kill", node="a")]) is None


def test_a_quiet_machine_was_never_the_limit() -> None:
    found = machine_limits.measure(sampled(QUIET, QUIET, QUIET))
    assert found is not None
    assert (found["seconds"], found["of_seconds"], found["intervals"]) == (0, 3.0, [])


def test_seconds_in_a_row_are_one_interval_with_what_others_used_in_it() -> None:
    found = machine_limits.measure(sampled(QUIET, BUSY, BUSY, QUIET, {**BUSY, "other_cores": 0.2}))
    assert found is not None
    assert found["seconds"] == 3.0
    assert found["intervals"] == [[-9.0, -7.0], [-6.0, -5.0]]
    assert found["other_cores"] == pytest.approx(0.6)
    assert found["cores"] == 2


def test_what_was_before_the_warm_up_does_not_count() -> None:
    events = [Event(-30.0, "machine", extra={"seconds": 1.0, **BUSY}), *sampled(QUIET)]
    found = machine_limits.measure(events)
    assert found is not None
    assert (found["seconds"], found["of_seconds"]) == (0, 1.0)


@pytest.mark.parametrize(
    ("sample", "limited"),
    [
        pytest.param(BUSY, True, id="no CPU at rest, and the run waits"),
        pytest.param({**BUSY, "waiting_share": 0.1}, False, id="no CPU at rest, nobody waits"),
        pytest.param({**BUSY, "idle_share": 0.3}, False, id="the run waits, CPU at rest"),
        pytest.param(
            {**BUSY, "idle_share": 0.6, "outer_throttled": True}, True, id="a container's limit"
        ),
        pytest.param({**BUSY, "waiting_share": None}, True, id="the kernel counts no waiting"),
        pytest.param(
            {**QUIET, "waiting_share": None}, False, id="the kernel counts no waiting, CPU at rest"
        ),
        pytest.param({**BUSY, "idle_share": None}, False, id="nothing is known of the CPU"),
    ],
)
def test_the_machine_is_the_limit_when_its_cpu_is_used_up_and_the_run_waits(
    sample: dict[str, object], limited: bool
) -> None:
    assert machine_limits.is_limited(sample) is limited


def test_a_sample_without_a_length_is_refused() -> None:
    events = [Event(-1.0, "warm"), Event(0.0, "machine", extra=BUSY)]
    with pytest.raises(InputError, match="machine: seconds: is None, not above 0; restore"):
        machine_limits.measure(events)
