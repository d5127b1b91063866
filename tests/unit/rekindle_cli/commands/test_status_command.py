"""What `rekindle status` says of an application."""

from standing_world import Desk, resumed, running

from rekindle_cli.commands import status


def lines(desk: Desk) -> list[str]:
    return [str(part) for part in status._details(desk.stands())]


def test_a_driver_that_started_again_has_lost_no_node() -> None:
    (line,) = [line for line in lines(resumed()) if line.startswith("incident")]
    assert line.endswith(", a driver started again; plans so far: 0")


def test_lost_nodes_are_named() -> None:
    desk = running()
    desk.lose("n1", "n2")
    desk.settle()
    (line,) = [line for line in lines(desk) if line.startswith("incident")]
    assert ", lost n1, n2; plans so far: " in line
