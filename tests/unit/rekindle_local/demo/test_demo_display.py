"""What the demo shows without a terminal: one line for whatever happens."""

import io
import time

from rich.console import Console

from rekindle_local.demo.demo_display import Display


def test_nodes_that_come_and_are_killed_are_counted() -> None:
    shown = io.StringIO()
    display = Display({"late": 1.0}, {"late": 1}, Console(file=shown))
    for node in ("127.0.0.2", "127.0.0.3"):
        display.show({"kind": "joined", "at": 90.0, "node": node, "executor": "0"})
    display.show({"version": 1, "kind": "kill", "at": 100.0, "node": "127.0.0.2"})
    lines = [line.split("s  ")[-1] for line in shown.getvalue().splitlines()]
    assert lines == [
        "node 127.0.0.2 is up (1 node)",
        "node 127.0.0.3 is up (2 nodes)",
        "node 127.0.0.2 is killed (1 node)",
    ]


def test_batches_of_a_query_alone_are_told_apart_from_others_of_the_same_number() -> None:
    shown = io.StringIO()
    display = Display({"late": 1.0, "early": 1.0}, {"late": 1, "early": 1}, Console(file=shown))
    for query, age in (("late", 100.0), ("early", 0.0)):
        display.show({"kind": "cut", "query": query, "epoch": 0, "cut_at": time.time() - age})
        display.show({"kind": "commit", "query_partition": f"{query}/0", "epoch": 0})
    display.show({"kind": "not-yet", "until": "all run"})
    assert shown.getvalue() == "waiting until all run: 1 of 2 queries are level\n"


def test_a_long_wait_tells_how_many_queries_are_level() -> None:
    shown = io.StringIO()
    display = Display({"late": 1.0, "early": 1.0}, {"late": 2, "early": 1}, Console(file=shown))
    display.show({"kind": "cut", "epoch": 1, "cut_at": time.time() - 100.0})
    display.show({"kind": "cut", "epoch": 2, "cut_at": time.time()})
    for part, epoch in (("late/0", 2), ("late/1", 1), ("early/0", 2)):
        display.show({"kind": "commit", "query_partition": part, "epoch": epoch})
    display.show({"kind": "not-yet", "until": "all run"})
    assert shown.getvalue() == "waiting until all run: 1 of 2 queries are level\n"


def test_the_table_says_for_how_long_the_machine_has_been_the_limit() -> None:
    display = Display({"late": 1.0}, {"late": 1}, Console(file=io.StringIO()))
    busy = {"kind": "machine", "seconds": 1.0, "idle_share": 0.0, "waiting_share": 0.6}
    display.show(busy)
    display.show({"kind": "warm"})  # what was before does not count
    display.show({**busy, "idle_share": 0.5})
    assert display._table().caption is None
    display.show(busy)
    display.show(busy)
    assert display._table().caption == "this machine was the limit for 2 s so far"
