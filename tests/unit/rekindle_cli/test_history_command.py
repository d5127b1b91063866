"""The command `rekindle check-history`: what it prints, and how it ends."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rekindle import history
from rekindle.history.history_steps import Graph, History, HistoryOutput, Input
from rekindle.history.operations import Operation
from rekindle_cli import command_line
from rekindle_cli.commands.check_history import check_history

GRAPH = Graph(("in",), (Operation("letters", "identity", ("in",)),), {"out": "letters"})
GOOD = History(GRAPH, (Input(1, "in", "a"), HistoryOutput(2, "out", "a")))
TWICE = History(GRAPH, (*GOOD.steps, HistoryOutput(3, "out", "a")))


def run(arguments: Sequence[object]) -> int:
    return command_line.run_alone(check_history, [str(argument) for argument in arguments])


def written(tmp_path: Path, recorded: History) -> Path:
    file = tmp_path / "history.jsonl"
    file.write_text(history.serialize(recorded))
    return file


def test_a_good_history_ends_with_0_and_a_line_for_each_definition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([written(tmp_path, GOOD)]) == 0
    told = capsys.readouterr().out
    assert "consistent       yes (Definition 5)" in told
    assert "exactly once     yes, so far: it has no end (Definition 6)" in told
    assert "deterministic    yes (Definition 10)" in told
    assert "non-commutative  none (Definition 9)" in told
    assert "Definition 7" not in told


def test_a_bad_one_ends_with_1_and_the_smallest_history_that_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([written(tmp_path, TWICE)]) == 1
    told = capsys.readouterr().out
    assert "consistent       no (Definition 5)" in told
    assert "at least once    yes (Definition 8)" in told
    assert "at most once     no (Definition 7)" in told
    assert 'Output "a" (t 3) of out is impossible after "a" (t 2)' in told
    assert "The smallest history that shows it (up to line 5 of the file):" in told
    assert '{"kind": "output", "t": 3, "channel": "out", "value": "a"}' in told


@pytest.mark.parametrize(("recorded", "code"), [(GOOD, 0), (TWICE, 1)])
def test_json_is_the_verdict_and_nothing_else(
    recorded: History, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([written(tmp_path, recorded), "--json"]) == code
    told = capsys.readouterr()
    assert json.loads(told.out)["exactly_once"] == (code == 0)
    assert not told.err


def test_bad_input_ends_with_2_and_names_file_line_and_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, GOOD)
    file.write_text(file.read_text().replace('"t": 2', '"t": 0'))
    assert run([file]) == 2
    assert "history.jsonl: line 4: t: is 0, before 1" in capsys.readouterr().err
    file.write_bytes(b"\xff")
    assert run([file]) == 2
    assert "cannot be read (is no UTF-8)" in capsys.readouterr().err
    assert run([tmp_path / "none"]) == 2
    assert "cannot be read (No such file or directory)" in capsys.readouterr().err


def test_a_long_witness_is_shown_by_its_last_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = Graph(("in",), (Operation("count", "count", ("in",)),), {"out": "count"})
    entered = tuple(Input(n, "in", "a") for n in range(1, 61))
    assert run([written(tmp_path, History(count, (*entered, HistoryOutput(70, "out", 61))))]) == 1
    told = capsys.readouterr().out
    assert "steps before these: --json shows all)" in told
    assert '"value": 61' in told
