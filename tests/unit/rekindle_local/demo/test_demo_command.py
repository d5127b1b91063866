"""What `rekindle demo` runs when nothing is said, and when something is."""

from typing import Any

import pytest

from rekindle_cli import cli
from rekindle_local.demo import performance
from rekindle_local.demo.scenario import Options


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """What would have been performed."""
    found: list[Options] = []

    def perform(options: Options, _: Any) -> dict[str, Any]:
        found.append(options)
        return {}

    monkeypatch.setattr(performance, "perform", perform)
    monkeypatch.setattr(performance, "summarise", lambda *_: None)
    monkeypatch.setattr(performance, "check_rows", lambda _: None)
    return found


def test_three_of_four_nodes_are_killed_by_default(performed: list[Options]) -> None:
    assert cli.run(cli.application, ["demo"]) == 0
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
    performed: list[Options], arguments: list[str], killed: int
) -> None:
    assert cli.run(cli.application, ["demo", *arguments]) == 0
    assert performed[0].kill == killed


def test_a_failure_of_eight_nodes_is_judged_as_in_the_benchmarks(performed: list[Options]) -> None:
    assert cli.run(cli.application, ["demo", "--nodes", "10", "--kill", "8"]) == 0
    (options,) = performed
    assert options.judged
    assert (options.load_target_percent, options.calibration_seconds_max) == (66.0, None)
