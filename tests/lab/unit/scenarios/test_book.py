"""Tables and pictures of scenarios, from folders as they leave them."""

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rekindle import report
from rekindle.model import run_events
from rekindle.model.errors import InputError
from rekindle_testing import run_builders as made_up
from rekindle_testing.run_builders import BuiltScenario
from scenarios import __main__ as command
from scenarios import docs_report, loss_scenarios
from scenarios.docs_report import docs_page, scenario_folders

ROOT = Path(__file__).parents[4]
DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results" / "e2e"
RIGHT = {"expected_rows": 1234, "missing": 0, "duplicated": 0, "wrong": 0}
LOSSES = {"zone-loss": "A zone | all of it", "eight-of-ten": "Eight", "zone-loss-at-night": "Two"}
PLACE = f"# Title\n\nBefore.\n\n{docs_page.BEGIN}\nold\n{docs_page.END}\n\nAfter.\n"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "e2e.md").write_text(PLACE)
    return folder


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    folder.mkdir()
    return folder


def perform(folder: Path, strategy: str = "incremental", **changed: Any) -> None:
    """A scenario leaves its folder."""
    scenario = BuiltScenario({"top": 9.0, "low": 1.0, "safe": 2.0}, nodes=3, strategy=strategy)
    run = made_up.make(scenario)
    facts = dataclasses.replace(
        run.facts, **{key: changed.pop(key) for key in ("engine", "seed") if key in changed}
    )
    figures = report.compute(
        run.events, facts, run.input_record, run.problems, run.answers, RIGHT, time.monotonic
    )
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps({**figures, **changed}))
    (folder / "events.jsonl").write_text(run_events.serialize(run.events))


def cells(docs: Path, *, first: str) -> list[list[str]]:
    """The rows of the table whose head begins with these words."""
    lines = (docs / "e2e.md").read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(first))
    rows = lines[start + 2 :]
    end = next(n for n, line in enumerate(rows) if not line.startswith("|"))
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[:end]]


OUTCOMES = "| scenario | what is lost"
BARS = "| scenario | strategy"


def kept_in(docs: Path) -> Path:
    """Where records of runs are kept for a folder of pages."""
    return docs.parent / "results"


def book(
    reports: Path, docs: Path, losses: dict[str, str], pictured: Sequence[str] = ()
) -> list[Path]:
    """Write tables and pictures of all scenarios; the files written."""
    return docs_report.write(reports, docs, kept_in(docs), losses, pictured)


def test_a_run_is_a_row_with_the_figures_of_its_report(docs: Path, reports: Path) -> None:
    perform(
        reports / "eight-of-ten",
        weighted_unavailable_seconds=7.25,
        throughput_rows_per_second=36.4,
    )
    book(reports, docs, LOSSES)
    assert cells(docs, first=OUTCOMES) == [
        [
            *("eight-of-ten", "Eight", "incremental", "1 of 3", "10.6"),
            *("12.0", "12.0", "7.2", "–", "–", "36", "1,234", "0, 0, 0"),
        ]
    ]


def test_others_of_the_same_seed_stand_below_and_make_ratios(docs: Path, reports: Path) -> None:
    perform(reports / "eight-of-ten-blocking", "blocking", weighted_unavailable_seconds=20.0)
    spark: dict[str, Any] = {"engine": "structured-streaming", "weighted_unavailable_seconds": 40.0}
    perform(reports / "eight-of-ten-spark", **spark)
    perform(reports / "eight-of-ten", weighted_unavailable_seconds=5.0)
    perform(reports / "eight-of-ten-two", seed=2, weighted_unavailable_seconds=5.0)
    book(reports, docs, LOSSES)
    shown = [(row[0], row[1], row[2], *row[8:10]) for row in cells(docs, first=OUTCOMES)]
    assert shown == [
        ("eight-of-ten", "Eight", "incremental", "0.25", "0.12"),
        ("", "", "incremental", "–", "–"),
        ("", "", "blocking", "–", "–"),
        ("", "", "Spark alone", "–", "–"),
    ]


def test_scenarios_stand_in_their_own_order_by_their_longest_names(
    docs: Path, reports: Path
) -> None:
    for name in ("eight-of-ten", "zone-loss-at-night", "zone-loss"):
        perform(reports / name)
    book(reports, docs, LOSSES)
    shown = [row[:2] for row in cells(docs, first=OUTCOMES)]
    assert [name for name, _ in shown] == ["zone-loss", "eight-of-ten", "zone-loss-at-night"]
    assert shown[0][1] == r"A zone \| all of it"


def test_what_never_came_back_and_rows_that_are_bad_are_said(docs: Path, reports: Path) -> None:
    perform(reports / "eight-of-ten", exactly_once={**RIGHT, "missing": 5, "wrong": 1200})
    path = reports / "eight-of-ten" / "report.json"
    content = json.loads(path.read_text())
    content["queries"]["low"]["back_at"] = None
    content["quota_enforced"] = False
    path.write_text(json.dumps(content))
    book(reports, docs, LOSSES)
    [row] = cells(docs, first=OUTCOMES)
    assert (row[6], row[-1]) == ("1 never", "5, 0, 1,200")
    assert "times do not count: eight-of-ten." in (docs / "e2e.md").read_text()


def test_a_run_in_which_nothing_went_down_has_no_times(docs: Path, reports: Path) -> None:
    query = {"priority": 1.0, "survived": True, "unavailable": [], "unavailable_seconds": 0.0}
    quiet = {"queries": {"safe": {**query, "back_at": None}}, "first_plan_seconds": None}
    perform(reports / "eight-of-ten", **quiet, weighted_unavailable_seconds=0.0)
    perform(reports / "eight-of-ten-blocking", "blocking", weighted_unavailable_seconds=0.0)
    book(reports, docs, LOSSES)
    assert cells(docs, first=OUTCOMES)[0][3:10] == ["1 of 1", "–", "–", "–", "0.0", "–", "–"]


def test_figures_beside_the_report_stand_against_their_bars(docs: Path, reports: Path) -> None:
    perform(reports / "eight-of-ten")
    figures = {
        "silent node to first plan": {"value": 30.0, "unit": "s", "bar": 30},
        "driver lost to first query back": {"value": 61.234, "unit": "s", "bar": 60.0},
        "memory": {"value": 512.0, "unit": "MiB"},
    }
    record = {"version": 1, "figures": figures}
    (reports / "eight-of-ten" / "figures.json").write_text(json.dumps(record))
    book(reports, docs, LOSSES)
    run = ["eight-of-ten", "incremental"]
    assert cells(docs, first=BARS) == [
        [*run, "silent node to first plan", "30 s", "30 s", "yes"],
        [*run, "driver lost to first query back", "61.23 s", "60 s", "no"],
        [*run, "memory", "512 MiB", "–", "–"],
    ]


def test_what_has_no_report_is_named(docs: Path, reports: Path) -> None:
    perform(reports / "eight-of-ten")
    (reports / "zone-loss-blocking").mkdir()
    (reports / "cluster-logs").mkdir()
    book(reports, docs, LOSSES)
    text = (docs / "e2e.md").read_text()
    assert "have not ended: zone-loss-blocking." in text
    assert "cluster-logs" not in text


def test_only_the_part_between_the_marks_is_made_anew(docs: Path, reports: Path) -> None:
    perform(reports / "eight-of-ten")
    written = [book(reports, docs, LOSSES) for _ in range(2)]
    kept = kept_in(docs) / "eight-of-ten.json"
    assert written[0] == written[1] == [docs / "e2e.md", docs / "e2e-eight-of-ten.svg", kept]
    text = (docs / "e2e.md").read_text()
    assert text.startswith("# Title\n\nBefore.\n\n")
    assert text.endswith("\n\nAfter.\n")
    assert "old" not in text
    assert text.count("|  |") == 0


def test_the_same_folders_make_the_same_files(docs: Path, reports: Path) -> None:
    perform(reports / "eight-of-ten")
    first = [path.read_bytes() for path in book(reports, docs, LOSSES)]
    assert [path.read_bytes() for path in book(reports, docs, LOSSES)] == first


def test_runs_that_are_asked_for_have_pictures_which_the_page_shows(
    docs: Path, reports: Path
) -> None:
    perform(reports / "zone-loss")
    perform(reports / "zone-loss-blocking", "blocking")
    book(reports, docs, LOSSES, ["zone-loss-blocking"])
    assert [path.name for path in docs.glob("*.svg")] == ["e2e-zone-loss-blocking.svg"]
    assert "zone-loss, blocking</text>" in (docs / "e2e-zone-loss-blocking.svg").read_text()
    assert "](e2e-zone-loss-blocking.svg)" in (docs / "e2e.md").read_text()


def without(name: str, reports: Path) -> None:
    path = reports / "eight-of-ten" / "report.json"
    content = json.loads(path.read_text())
    del content[name]
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda reports, _: without("plans", reports), "missing required field `plans`"),
        (
            lambda reports, _: perform(reports / "eight-of-ten-x", version=2),
            "has version 2, known is 1",
        ),
        (lambda reports, _: perform(reports / "eight-of-ten-x"), "and so is eight-of-ten;"),
        (lambda reports, _: perform(reports / "nine"), "is named after no scenario"),
        (
            lambda reports, _: (reports / "eight-of-ten" / "figures.json").write_text('{"a": 1}'),
            "figures.json: has no version, known is 1",
        ),
        (lambda reports, _: (reports / "eight-of-ten" / "events.jsonl").unlink(), "cannot be read"),
        (lambda _, docs: (docs / "e2e.md").write_text("# Title\n"), "no place for the tables"),
        (lambda _, docs: (docs / "e2e.md").unlink(), "name the folder by --docs"),
    ],
)
def test_bad_input_names_place_and_remedy_and_nothing_is_written(
    docs: Path, reports: Path, harm: Any, message: str
) -> None:
    perform(reports / "eight-of-ten")
    harm(reports, docs)
    before = {path: path.read_bytes() for path in docs.iterdir()}
    with pytest.raises(InputError) as caught:
        book(reports, docs, LOSSES)
    assert message in str(caught.value)
    assert {path: path.read_bytes() for path in docs.iterdir()} == before
    assert not kept_in(docs).exists()


def test_the_command_takes_what_is_lost_from_the_scenarios_themselves(
    docs: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    perform(reports / "eight-of-ten")
    given = ["book", "--report", str(reports), "--docs", str(docs)]
    given += ["--results", str(kept_in(docs))]
    assert command.main(given) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(docs / "e2e.md")
    assert cells(docs, first=OUTCOMES)[0][1].startswith("Eight of ten executors' nodes at once")
    assert command.main([*given, "--pictures", "no-such"]) == 2
    assert "choose from eight-of-ten" in capsys.readouterr().err


@pytest.fixture
def unreadable(reports: Path) -> Iterator[None]:
    """The folder of reports lies where this process may not look, not even as root."""
    user, mode = os.geteuid(), reports.parent.stat().st_mode
    reports.parent.chmod(0)
    if user == 0:
        os.seteuid(65_534)
    yield
    os.seteuid(user)
    reports.parent.chmod(mode)


@pytest.mark.usefixtures("unreadable")
def test_a_folder_that_may_not_be_read_is_named(
    reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["book", "--report", str(reports), "--docs", str(tmp_path)]) == 2
    assert f"{reports}: cannot be read (Permission denied); let" in capsys.readouterr().err


def test_the_page_of_this_project_has_a_place_and_tells_of_every_scenario() -> None:
    text = (DOCS / "e2e.md").read_text()
    assert text.count(docs_page.BEGIN) == text.count(docs_page.END) == 1
    told = text.partition(docs_page.BEGIN)[0] + text.partition(docs_page.END)[2]
    assert [name for name in loss_scenarios.SCENARIOS if f"`{name}`" not in told] == []


def test_what_is_kept_of_runs_is_read_and_written_as_it_stands() -> None:
    found = scenario_folders._kept_runs(RESULTS, tuple(loss_scenarios.SCENARIOS))
    kept = {path.stem: path.read_text() for path in RESULTS.glob("*.json")}
    assert {run.name: scenario_folders.kept_text(run) for run in found} == kept
    assert kept


@pytest.mark.parametrize(
    ("place", "version", "message"),
    [
        ((), 2, "zone-loss.json: has version 2, known is 1"),
        ((), None, "zone-loss.json: has no version, known is 1"),
        (("report",), 2, "zone-loss.json: report: has version 2, known is 1"),
    ],
)
def test_a_kept_run_of_another_version_is_refused(
    docs: Path, reports: Path, place: tuple[str, ...], version: int | None, message: str
) -> None:
    perform(reports / "eight-of-ten")
    kept = json.loads((RESULTS / "zone-loss.json").read_text())
    record = kept[place[0]] if place else kept
    record.pop("version")
    record |= {} if version is None else {"version": version}
    kept_in(docs).mkdir()
    (kept_in(docs) / "zone-loss.json").write_text(json.dumps(kept))
    with pytest.raises(InputError, match=message):
        book(reports, docs, LOSSES)


def test_runs_of_another_day_stay_beside_those_that_have_a_folder(
    docs: Path, reports: Path
) -> None:
    perform(reports / "zone-loss", weighted_unavailable_seconds=3.0)
    perform(reports / "eight-of-ten", weighted_unavailable_seconds=4.0)
    book(reports, docs, LOSSES)
    shutil.rmtree(reports / "zone-loss")
    shutil.rmtree(reports / "eight-of-ten")
    perform(reports / "eight-of-ten", weighted_unavailable_seconds=5.0)
    book(reports, docs, LOSSES)
    shown = [(row[0], row[7]) for row in cells(docs, first=OUTCOMES)]
    assert shown == [("zone-loss", "3.0"), ("eight-of-ten", "5.0")]
    assert (docs / "e2e.md").read_text().count("![") == 2
