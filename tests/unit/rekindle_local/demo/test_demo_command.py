"""What `rekindle demo` runs when nothing is said, and when something is."""

from typing import Any

import pytest

from rekindle_cli import command_line
from rekindle_local.demo import demo_run
from rekindle_local.demo.demo_scenario import DemoOptions


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> list[DemoOptions]:
    """What would have been performed."""
    found: list[DemoOptions] = []

    def perform(options: DemoOptions, _: Any) -> dict[str, Any]:
        found.append(options)
        return {}

    monkeypatch.setattr(demo_run, "perform", perform)
    monkeypatch.setattr(demo_run, "summarise", lambda *_: None)
    monkeypatch.setattr(demo_run, "check_rows", lambda _: None)
    return found


def test_three_of_four_nodes_are_killed_by_default(performed: list[DemoOptions]) -> None:
    assert command_line.run(command_line.application, ["demo"]) == 0
    (options,) = performed
    assert (options.nodes, options.kill, options.domains) == (4, 3, 3)
    assert not options.judged, "it convinces on any machine"
    assert (options.load_target_percent, options.calibration_seconds_max) == (50.0, 30.0)


@pytest.mark.parametrize(
    ("arguments", "killed"),
    [
        (["--nodes", "10", "--kill", "8"], 8),
        (["--nodes", "10"], 8),
        (["--nodes", "2"], 1),
        (["--nodes", "3"], 2),
        (["--nodes", "5"], 4),
        (["--kill", "1"], 1),
    ],
)
def test_other_sizes_are_as_asked_for_or_four_fifths(
    performed: list[DemoOptions], arguments: list[str], killed: int
) -> None:
    assert command_line.run(command_line.application, ["demo", *arguments]) == 0
    assert performed[0].kill == killed


def test_a_failure_of_eight_nodes_is_judged_as_in_the_benchmarks(
    performed: list[DemoOptions],
) -> None:
    assert command_line.run(command_line.application, ["demo", "--nodes", "10", "--kill", "8"]) == 0
    (options,) = performed
    assert options.judged
    assert (options.load_target_percent, options.calibration_seconds_max) == (66.0, None)


def test_with_kafka_eight_of_ten_nodes_are_killed_at_a_rate_of_the_producers(
    performed: list[DemoOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    monkeypatch.setattr(demo_run, "check_topics", lambda options, _: checked.append(options.source))
    assert command_line.run(command_line.application, ["demo", "--source", "kafka"]) == 0
    (options,) = performed
    assert (options.source, options.nodes, options.kill) == ("kafka", 10, 8)
    assert options.rows_per_second == 3_000
    assert not options.judged, "its load is that of the rate"
    assert checked == ["kafka"]


def test_another_source_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(command_line.application, ["demo", "--source", "kinesis"]) == 2
    assert "--source" in capsys.readouterr().err
