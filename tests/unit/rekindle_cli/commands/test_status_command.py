"""What `rekindle status` says of an application."""

import io

from rich.console import Console
from standing_world import Desk, resumed, running

from rekindle.coordination.application_status import ApplicationStatus
from rekindle_cli.commands import status


def lines(desk: Desk) -> list[str]:
    return [str(part) for part in status._details(desk.stands())]


def shown(standing: ApplicationStatus) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    console.print(status.renderable([standing], coordinators=1))
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_a_driver_that_started_again_has_lost_no_node() -> None:
    (line,) = [line for line in lines(resumed()) if line.startswith("incident")]
    assert line.endswith(", a driver started again; plans so far: 0")


def test_lost_nodes_are_named() -> None:
    desk = running()
    desk.lose("n1", "n2")
    desk.settle()
    (line,) = [line for line in lines(desk) if line.startswith("incident")]
    assert ", lost n1, n2; plans so far: " in line


def test_goals_are_shown_beside_lags_and_together_by_priority() -> None:
    desk = running()
    desk.report(lag_goals={"ranking": 10.0}, beyond_goal_seconds={"ranking": 37.5})
    desk.decide()
    lines = shown(desk.stands())
    assert "query priority state partitions lag s goal s beyond s" in lines
    assert "ranking 9 live 1/1 2.5 10 37.5" in lines
    assert "busiest 4 live 2/2 1.5" in lines
    assert "beyond their goals, weighted by priority: 37.5 s" in lines


def test_without_goals_there_are_no_columns_for_them() -> None:
    lines = shown(running().stands())
    assert "query priority state partitions lag s" in lines
    assert not any("goal" in line for line in lines)
