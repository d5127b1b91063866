"""What `rekindle run` shows, by the events of the driver."""

import io
import json
import re
import string
import time
from pathlib import Path

import pytest
from rich.console import Console

from rekindle_cli import run_view
from rekindle_cli.run_view import RunView
from rekindle_local import process_sets

FORMATS = Path(__file__).parents[3] / "docs" / "formats.md"


def view(nodes: int = 2, *, terminal: bool = False) -> tuple[RunView, io.StringIO]:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=100, highlight=False)
    return RunView(nodes, "out", console=console), shown


def test_each_node_that_joins_or_goes_is_a_line_with_how_many_there_are() -> None:
    seen, shown = view()
    seen.show({"kind": "joined", "node": "a"})
    assert seen.state == "waiting for nodes"
    seen.show({"kind": "joined", "node": "b"})
    assert seen.state == "starting"
    seen.show({"kind": "confirmed", "node": "a", "silent": True})
    assert shown.getvalue().splitlines() == [
        "node a joined, 1 of 2 nodes",
        "node b joined, 2 of 2 nodes",
        "node a fell silent, 1 of 2 nodes",
    ]
    assert (seen.state, seen.losses) == ("recovering", 1)


def test_lag_is_of_the_partition_that_has_come_least_far() -> None:
    seen, _ = view()
    now = time.time() - 3600  # by the clock of the driver, which somebody has turned
    seen.show({"kind": "cut", "at": now, "epoch": 1, "rows": 10, "cut_at": now - 60})
    seen.show({"kind": "cut", "at": now, "epoch": 2, "rows": 10, "cut_at": now})
    seen.show({"kind": "commit", "query": "q", "query_partition": "q/0", "epoch": 2})
    seen.show({"kind": "commit", "query": "q", "query_partition": "q/1", "epoch": 1})
    assert "lag at most 60." in seen._line()
    seen.show({"kind": "commit", "query": "q", "query_partition": "q/1", "epoch": 2})
    assert "lag at most 0." in seen._line()


def test_a_store_that_is_full_or_away_is_a_line_with_the_cause_and_what_to_do() -> None:
    seen, shown = view()
    seen.show({"kind": "store-away", "text": "No space left on device"})
    seen.show({"kind": "store-back"})
    assert " ".join(shown.getvalue().split()) == (
        "the checkpoint store cannot be used (No space left on device); the run waits for it: make "
        "room there, or let it be reached the checkpoint store can be used again"
    )


def test_until_the_first_epoch_the_line_has_the_time_that_the_start_has_taken() -> None:
    seen, _ = view()
    seen._began_at -= 40
    assert seen._line() == "starting for 40 s: 0 of 2 nodes"
    seen.show({"kind": "cut", "epoch": 1, "rows": 5, "cut_at": 100.0})
    assert seen._line() == "starting: 0 of 2 nodes, 0 rows/s"


def test_what_a_start_waits_for_is_a_line_once_it_takes_over_two_seconds() -> None:
    seen, shown = view()
    for awaited in ("Spark's master and 2 nodes", "ZooKeeper"):
        seen.await_next(awaited)
        seen.refresh()
    assert shown.getvalue() == ""
    seen._began_at -= 40
    seen._line_at -= 5
    seen._awaited_at -= 2.1
    seen.refresh()
    seen.refresh()
    assert shown.getvalue() == "starting for 40 s: 0 of 2 nodes; waiting for ZooKeeper (2 s)\n"


def test_a_start_waits_for_nodes_then_a_plan_then_an_epoch() -> None:
    seen, _ = view()
    awaited = []
    plan = {"kind": "plan", "text": "Plan 1", "priorities": {"q/0": 1.0}}
    cut = {"kind": "cut", "epoch": 1, "rows": 5, "cut_at": 100.0}
    for record in ({"kind": "joined", "node": "a"}, {"kind": "joined", "node": "b"}, plan, cut):
        seen.show(record)
        awaited.append(seen._line().partition("waiting for ")[2].partition(" (")[0])
    assert awaited == ["an executor on each node", "the first plan", "the first epoch", ""]


def test_a_long_sentence_is_one_line_where_there_is_no_terminal() -> None:
    seen, shown = view()
    seen.say("word " * 60)
    assert shown.getvalue() == "word " * 60 + "\n"


def test_while_something_is_waited_for_the_seconds_go_on() -> None:
    seen, shown = view(terminal=True)
    seen.start()
    seen.await_next("ZooKeeper")
    seen._awaited_at -= 30
    with run_view.repeated(seen.refresh):
        assert process_sets.await_condition(
            lambda: len({*re.findall(r"ZooKeeper \((\d+) s\)", shown.getvalue())} - {"0"}) > 1,
            limit_seconds=30.0,
        )
    seen.stop()


def test_the_rate_is_of_rows_between_the_cuts() -> None:
    seen, _ = view()
    for epoch in range(11):
        at = 100.0 + epoch / 2
        seen.show({"kind": "cut", "at": at + 60, "epoch": epoch, "rows": 500, "cut_at": at})
    assert "1,000 rows/s" in seen._line(), "it is a minute behind and goes on"
    seen._told_at = (170.5, time.monotonic())  # 5 s after the next cut was due
    assert "500 rows/s" in seen._line()
    assert seen.summary() == [
        "5,500 rows were read; 0 nodes were lost.",
        "Read the output with: rekindle output out",
    ]


def test_late_rows_are_a_sentence_when_they_begin_and_in_the_summary() -> None:
    seen, shown = view()
    seen.show({"kind": "statistics", "costs": {}})  # of a version that counts none
    assert len(seen.summary()) == 2
    late = {"step": "by-hour", "epoch": 3, "rows": 2, "total": 1_234}
    seen.show({"kind": "late-rows", **late})
    seen.show({"kind": "finish", "late_rows": {"by-hour": 1_250, "by-day": 1}})
    assert shown.getvalue() == "rows come too late for by-hour: 1,234 up to now\n"
    assert seen.summary()[1] == "Rows that came too late: by-day 1, by-hour 1,250."


def test_rows_that_are_left_out_are_told_once_with_how_to_see_them_and_counted() -> None:
    seen, shown = view()
    letters = {"kind": "dead-letters", "step": "parse", "epoch": 3}
    seen.show({**letters, "partition": "parse/0", "rows": 2})
    seen.show({**letters, "partition": "parse/1", "rows": 1_000})
    assert " ".join(shown.getvalue().split()) == (
        "parse leaves out rows that it cannot process; see them with: "
        "rekindle output out parse --dead-letters"
    )
    assert "Rows that became dead letters: parse 1,002." in seen.summary()


def test_a_query_that_has_stopped_is_neither_running_nor_late() -> None:
    seen, shown = view()
    now = time.time()
    seen.show({"kind": "cut", "at": now, "epoch": 1, "rows": 10, "cut_at": now - 60})
    seen.show({"kind": "cut", "at": now, "epoch": 2, "rows": 10, "cut_at": now})
    seen.show({"kind": "commit", "query": "low", "query_partition": "low/0", "epoch": 1})
    seen.show({"kind": "commit", "query": "high", "query_partition": "high/0", "epoch": 2})
    seen.show({"kind": "query-stopped", "query": "low", "query_partition": "low/0", "text": "why"})
    seen.show({"kind": "recovered"})
    assert shown.getvalue() == "low stopped: why\nall other queries are running\n"
    assert "lag at most 0." in seen._line()


def test_a_query_that_stops_in_several_partitions_is_told_once() -> None:
    seen, shown = view()
    for number in range(3):
        partition = f"low/{number}"
        seen.show(
            {"kind": "query-stopped", "query": "low", "query_partition": partition, "text": "why"}
        )
    assert shown.getvalue() == "low stopped: why\n"


@pytest.mark.parametrize("last", [20, 300])
def test_a_pause_is_told_once_in_a_run_with_how_the_run_ends(last: int) -> None:
    seen, shown = view()
    for second in range(last + 40):
        # nothing is told of sources that have not begun, and later pauses are like the first
        rows = 500 if 5 <= second < last and second % 60 < 20 else 0
        seen.show({"kind": "cut", "epoch": second, "rows": rows, "cut_at": 100.0 + second})
    told = " ".join(shown.getvalue().split())
    assert told.count("no rows for 10 s; the run waits for more") == 1
    assert "any more" not in told
    assert "Ctrl-C" in told
    assert "finish" in told


def test_a_short_pause_between_rows_is_not_told() -> None:
    seen, shown = view()
    for second in range(60):
        rows = 500 if second % 9 == 0 else 0
        seen.show({"kind": "cut", "epoch": second, "rows": rows, "cut_at": 100.0 + second})
    assert shown.getvalue() == ""


def test_a_process_that_a_function_ended_is_told_with_its_step() -> None:
    seen, shown = view()
    text = "step parse: ended its process with SIGSEGV, at epoch 3 of parse/0"
    seen.show({"kind": "function-suspected", "text": text})
    assert text in " ".join(shown.getvalue().split())


@pytest.mark.parametrize("kind", sorted(run_view.SENTENCES))
def test_a_sentence_has_only_fields_that_its_event_has(kind: str) -> None:
    rows = [line.split("|") for line in FORMATS.read_text().splitlines() if line.startswith("| `")]
    fields = [set(re.findall("`([a-z_]+)`", row[2])) for row in rows if f"`{kind}`" in row[1]]
    used = {name for _, name, _, _ in string.Formatter().parse(run_view.SENTENCES[kind]) if name}
    assert len(fields) == 1
    assert used <= fields[0]


def test_steps_that_begin_in_a_changed_pipeline_are_named() -> None:
    seen, shown = view()
    seen.show({"kind": "steps-begun", "epoch": 8, "steps": {"by-day": 5, "near": None}})
    assert shown.getvalue() == "new steps begin, with their next whole window: by-day, near\n"


def test_a_terminal_has_a_table_with_the_most_important_query_first_and_markup_as_it_is() -> None:
    seen, shown = view(terminal=True)
    seen.start()
    shares = {"low/0": 0.5, "low/1": 0.5, "[bold]high/0": 3.0, "[bold]high/1": 6.0}
    seen.show({"kind": "plan", "priorities": shares, "text": "all of it"})
    seen.show({"kind": "query-stopped", "query": "low", "text": "step x: raised"})
    seen.stop()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    last = text[text.rindex("priority") :]
    assert re.search(r"9 . +- . \[bold\]high +\n", last)
    assert re.search(r"1 . +stopped . low +\n", last)
    assert last.index("[bold]high") < last.index("low")
    assert "plan: all of it" in last


def test_on_a_terminal_no_sentence_drives_another_from_the_screen() -> None:
    seen, shown = view(terminal=True)
    seen.start()
    seen.say("killing 2 of 4 nodes")
    for number in range(10):
        seen.say(f"printed by step seen, rides/0, epoch {number}: rows: 500")
    seen.stop()
    assert "killing 2 of 4 nodes" in shown.getvalue()


def test_a_thousand_sentences_draw_the_table_once() -> None:
    seen, shown = view(terminal=True)
    seen.start()
    drawn = shown.getvalue().count("output: out")
    for number in range(1_000):
        seen.say(f"rows: {number}")
    seen.refresh()
    found = shown.getvalue()
    assert re.findall(r"rows: (\d+)\b", found) == [str(number) for number in range(1_000)]
    assert found.count("output: out") - drawn <= 2, "for the sentences, and because it is due"
    seen.stop()


def test_what_is_said_last_or_behind_the_end_of_the_table_is_shown() -> None:
    seen, shown = view(terminal=True)
    seen.start()
    seen.say("the last one")
    seen.stop()
    seen.say("one more")
    assert re.findall("the last one|one more", shown.getvalue()) == ["the last one", "one more"]


def test_what_is_needed_as_long_as_the_run_lasts_stays_in_the_table() -> None:
    seen, shown = view(terminal=True)
    seen.note("see more with", "rekindle status local/rides --zookeeper 127.0.1.1:2181")
    assert shown.getvalue() == ""
    seen.start()
    seen.say("a sentence")
    seen.stop()
    text = shown.getvalue()
    assert "rekindle status local/rides" in text[text.index("a sentence") :]
    lines, printed = view()
    lines.note("see more with", "rekindle status local/rides")
    assert printed.getvalue() == "see more with: rekindle status local/rides\n"


def test_the_address_of_the_console_is_a_line_and_stays_in_the_table() -> None:
    seen, shown = view()
    seen.show({"kind": "coordinator-started", "identity": "a:1"})
    assert shown.getvalue() == ""
    seen.show({"kind": "coordinator-started", "identity": "a:1", "console_port": 40123})
    assert shown.getvalue() == "web console: http://127.0.0.1:40123/\n"
    table, drawn = view(terminal=True)
    table.show({"kind": "coordinator-started", "console_port": 40123})
    for number in range(5):
        table.say(f"line {number}")
    table.start()
    table.stop()
    last = drawn.getvalue()
    assert "web console: http://127.0.0.1:40123/" in last[last.index("line 4") :]


def test_what_is_no_event_of_the_view_is_passed_over() -> None:
    seen, shown = view()
    seen.show({"kind": "of-a-later-version", "x": 1})
    assert shown.getvalue() == ""


def test_json_is_the_events_alone(capsys: pytest.CaptureFixture[str]) -> None:
    seen = run_view.make(2, "out", as_json=True)
    seen.show({"kind": "cut", "epoch": 1})
    seen.say("ending")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"kind": "cut", "epoch": 1}
    assert printed.err == "ending\n"
