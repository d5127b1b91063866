"""What the demo shows without a terminal: one line for whatever happens."""

import io

from rich.console import Console

from rekindle_local.demo.display import Display


def test_nodes_that_come_and_are_killed_are_counted() -> None:
    shown = io.StringIO()
    display = Display({"late": 1.0}, {"late": 1}, Console(file=shown))
    for node in ("127.0.0.2", "127.0.0.3"):
        display.show({"kind": "joined", "at": 90.0, "node": node, "executor": "0"})
    display.show({"version": 1, "kind": "kill", "at": 100.0, "node": "127.0.0.2"})
    lines = [line.split("s  ")[-1] for line in shown.getvalue().splitlines()]
    assert lines == [
        "node 127.0.0.2 is up (1 nodes)",
        "node 127.0.0.3 is up (2 nodes)",
        "node 127.0.0.2 is killed (1 nodes)",
    ]
