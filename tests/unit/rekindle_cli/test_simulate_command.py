"""`rekindle simulate` and `rekindle forecast`: what they print, and what they refuse."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer

from rekindle.coordination import advance
from rekindle.coordination.coordination_events import NodesLost, NodeSuspected
from rekindle.model.errors import InputError
from rekindle_cli import command_line, state_loader

SITUATION = {
    "version": 1,
    "topology": {
        "version": 1,
        "operators": [{"name": "ships", "parallelism": 1}, {"name": "late", "parallelism": 2}],
        "edges": [["ships", "late"]],
        "queries": [
            {"name": "all-ships", "operator": "ships", "priority": 2},
            {"name": "late-ships", "operator": "late", "priority": 9},
        ],
    },
    "nodes": {"n1": {"cpu_percent": 100, "domain": "east"}, "n2": {"cpu_percent": 100}},
    "cpu_percent": {"ships/0": 20, "late/0": 20, "late/1": 20},
    "placement": {"ships/0": "n1", "late/0": "n1", "late/1": "n2"},
}


@pytest.fixture
def situation(tmp_path: Path) -> str:
    path = tmp_path / "situation.json"
    path.write_text(json.dumps(SITUATION))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = command_line.run(command_line.application, arguments)
    return (code, *capsys.readouterr())


def test_a_failure_is_rehearsed_for_each_strategy(
    capsys: pytest.CaptureFixture[str], situation: str
) -> None:
    options = ("--fail", "domain:n2", "--arrive", "fixed:60,1", "--seeds", "1..3", "--json")
    code, output, _ = run(capsys, "simulate", situation, *options)
    assert code == 0
    record = json.loads(output)
    assert (record["version"], record["seeds"]) == (1, 3)
    assert record["strategies"].keys() == {"incremental", "blocking"}
    incremental = record["strategies"]["incremental"]["queries"]
    assert incremental["all-ships"]["mean"] == 0.0
    assert 0.0 < incremental["late-ships"]["mean"] < 60.0, "there is room on the other node"


def test_tables_have_the_most_important_query_first(
    capsys: pytest.CaptureFixture[str], situation: str
) -> None:
    code, output, _ = run(capsys, "simulate", situation, "--seeds", "1", "--fail", "nodes:n1")
    assert code == 0
    assert output.index("late-ships") < output.index("all-ships")
    assert "weighted by priority" in output


def test_a_forecast_names_every_domain(capsys: pytest.CaptureFixture[str], situation: str) -> None:
    code, output, _ = run(capsys, "forecast", str(Path(situation).parent), "--rehearsals", "2")
    assert code == 0
    assert "east" in output
    assert "n2" in output
    code, output, _ = run(capsys, "forecast", situation, "--rehearsals", "2", "--json")
    found = {one["domain"]: one for one in json.loads(output)["domains"]}
    assert found["n2"]["survives"] == ["all-ships"]
    assert found["east"]["survives"] == []
    assert found["east"]["stopped_share"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simulate", "/no/such"), "/no/such: cannot be read"),
        (("forecast", "/no/such"), "/no/such: cannot be read"),
        (("simulate", "{}", "--fail", "random:3"), "--fail: is 'random:3'"),
        (("simulate", "{}", "--arrive", "soon"), "--arrive: is 'soon'; give fixed:FIRST,EVERY"),
        (("simulate", "{}", "--strategies", "hope"), "--strategies: is 'hope'"),
        (("simulate", "{}", "--seeds", "2..1"), "--seeds"),
        (("forecast", "{}", "--rehearsals", "0"), "--rehearsals"),
    ],
)
def test_bad_input_ends_with_2_and_a_message(
    capsys: pytest.CaptureFixture[str],
    situation: str,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    given = [situation if part == "{}" else part for part in arguments]
    code, _, error = run(capsys, *given)
    assert code == 2
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize("command", ["forecast", "demo"])
def test_the_help_of_placement_names_the_choices(command: str) -> None:
    group: Any = typer.main.get_command(command_line.application([command]))
    (text,) = (one.help for one in group.commands[command].params if one.name == "placement")
    assert text.endswith(": even or domains.")


def test_a_forecast_shows_both_before_anything_moves(
    capsys: pytest.CaptureFixture[str], situation: str
) -> None:
    options = ("--rehearsals", "2", "--placement", "domains")
    code, output, _ = run(capsys, "forecast", situation, *options)
    assert code == 0
    assert "With placement domains, " in output
    code, output, _ = run(capsys, "forecast", situation, *options, "--json")
    record = json.loads(output)
    before, after = record["domains"], record["then"]["domains"]
    assert record["then"]["moves"] == 1, "late/1 goes to where everything else is"
    assert sum(one["stopped_share"] for one in after) < sum(one["stopped_share"] for one in before)


@pytest.mark.parametrize(
    ("news", "message"),
    [
        (NodeSuspected("n1"), "has nodes that are silent: n1"),
        (NodesLost(("n2",)), "is in the middle of incident 1"),
    ],
)
def test_only_an_application_at_rest_is_forecast(
    situation: str, news: NodeSuspected | NodesLost, message: str
) -> None:
    state = state_loader.load(situation, None, None)
    assert state_loader.steady(state, "application x") is state
    state, _ = advance(state, news, 5.0, clock=float)
    with pytest.raises(InputError, match=message):
        state_loader.steady(state, "application x")


def test_a_picture_of_the_outages_is_written_beside_the_table(
    capsys: pytest.CaptureFixture[str], situation: str, tmp_path: Path
) -> None:
    path = tmp_path / "outages.svg"
    code, output, _ = run(capsys, "simulate", situation, "--seeds", "1", "--picture", str(path))
    assert code == 0
    assert "weighted by priority" in output
    root = ElementTree.fromstring(path.read_text())
    names = [text.text for text in root.iter() if text.get("class") == "name"]
    assert names == ["late-ships", "all-ships"], "the most important first"


def test_simulate_without_a_situation_names_what_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, output, error = run(capsys, "simulate")
    assert (code, output) == (2, "")
    assert error.startswith("SITUATION: is missing; name a file")


def test_a_picture_that_cannot_be_written_is_refused_with_its_name(
    capsys: pytest.CaptureFixture[str], situation: str, tmp_path: Path
) -> None:
    path = tmp_path / "missing" / "outages.svg"
    code, output, error = run(capsys, "simulate", situation, "--picture", str(path))
    assert (code, output) == (2, "")
    assert error.startswith(f"--picture {path}: cannot be written")


def test_a_picture_takes_the_place_of_a_picture_and_of_nothing_else(
    capsys: pytest.CaptureFixture[str], situation: str, tmp_path: Path
) -> None:
    before = Path(situation).read_bytes()
    code, output, error = run(capsys, "simulate", situation, "--picture", situation)
    assert (code, output) == (2, "")
    assert error.startswith(f"--picture {situation}: is there already, and is no SVG file")
    assert Path(situation).read_bytes() == before
    path = tmp_path / "outages.svg"
    for _ in range(2):
        assert run(capsys, "simulate", situation, "--seeds", "1", "--picture", str(path))[0] == 0


def test_figures_are_printed_before_a_picture_fails(
    capsys: pytest.CaptureFixture[str], situation: str, tmp_path: Path
) -> None:
    path = tmp_path / "gone.svg"
    path.symlink_to(tmp_path / "missing" / "x.svg")
    code, output, error = run(capsys, "simulate", situation, "--seeds", "1", "--picture", str(path))
    assert code == 2
    assert "weighted by priority" in output
    assert error.startswith(f"--picture {path}: cannot be written")
