"""What scenarios are made of, without a cluster: applications, records, figures, folders."""

import errno
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from rekindle.model.errors import InputError, RunError
from rekindle_local.flights.flight_pipeline import QUERY_KEYS
from scenarios import __main__ as command
from scenarios import (
    loss_scenarios,
    report_folders,
    scenario_prerequisites,
    scenario_selection,
    strategies,
)
from scenarios.flights_application import FlightsApplication
from scenarios.run_recorder import RunRecorder
from scenarios.scenario_figures import DRIVER_TO_QUERY, MEMORY, SILENT_TO_PLAN, figures
from scenarios.structured_streaming_run import OrdinaryFlights
from submission import apache_submission, kubeflow_submission


class NoPods:
    """Logs of pods that nobody follows: files that are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def look(self, *_: str) -> None:
        """Nothing is new."""


@pytest.mark.parametrize(
    ("example", "kind"), [("kubeflow", kubeflow_submission), ("apache", apache_submission)]
)
def test_the_examples_run_the_flights_under_either_operator(
    tmp_path: Path, example: str, kind: Any
) -> None:
    flights = FlightsApplication(tmp_path, "localhost/spark:1", example=example, executors=7)
    body = flights.application()
    body["metadata"]["uid"] = "u"
    submission = kind.submission(body, "1")
    assert submission.name == "flights"
    assert submission.conf["spark.executor.instances"] == "7"
    assert submission.conf["spark.kubernetes.container.image"] == "localhost/spark:1"
    assert submission.arguments[0] == "/pipeline/flights.py"
    assert submission.arguments[-1] == f"/shared/{flights.events.name}"
    assert "machines" not in json.dumps(body)


def test_ordinary_spark_has_no_sidecar_and_reads_what_the_pipeline_reads(tmp_path: Path) -> None:
    body = OrdinaryFlights(tmp_path, "image").application()
    body["metadata"]["uid"] = "u"
    submission = kubeflow_submission.submission(body, "1")
    assert (
        submission.file
        == "local:///shared/program/rekindle_peers/structured_streaming/submitted.py"
    )
    assert submission.arguments[0] == "/shared/input"
    assert "inject" not in json.dumps(body)


def batch(query: str, epoch: int, cut_at: float, at: float) -> list[dict[str, Any]]:
    told = {"query": query, "epoch": epoch}
    cut = {"kind": "cut", "at": cut_at, "cut_at": cut_at, **told}
    return [cut, {"kind": "commit", "at": at, **told}]


def test_ordinary_spark_is_back_when_batches_lag_no_more_than_before(tmp_path: Path) -> None:
    logs: Any = NoPods(tmp_path)
    witness, flights = (
        RunRecorder(logs, tmp_path / "e", "factory"),
        OrdinaryFlights(tmp_path, "image"),
    )
    witness.note("warm", 100.0)
    for query in QUERY_KEYS:
        for number in range(3):
            begin = 110.0 + 20 * number
            witness.records += batch(query, number, begin, begin + 10.0)
    assert flights.is_live(witness)
    witness.note("joined", 210.0)
    for query in QUERY_KEYS:
        witness.records += batch(query, 3, 150.0, 220.0) + batch(query, 4, 219.0, 230.0)
    assert not flights.is_back(witness, 200.0)
    for query in QUERY_KEYS:
        witness.records += batch(query, 5, 229.0, 239.0)
    assert flights.is_back(witness, 200.0)


def test_a_rate_is_calibrated_only_where_figures_count(tmp_path: Path) -> None:
    settings = [
        FlightsApplication(tmp_path, "image", load_percent=load).config_map()["data"][
            "settings.yaml"
        ]
        for load in (35.0, None)
    ]
    assert ["load_target_percent: 35.0" in text for text in settings] == [True, False]


def test_a_log_that_is_followed_again_is_not_heard_again(tmp_path: Path) -> None:
    lines = ['{"kind": "verdict", "at": 1.0}\n', "I1122 words\n", '{"kind": "plan", "at": 2.0}\n']
    logs: Any = NoPods(tmp_path)
    witness = RunRecorder(logs, tmp_path / "events.jsonl", "factory")
    first = tmp_path / "rekindle_rekindle-operator-1_operator_0.log"
    first.write_text("".join(lines[:2]))
    witness.look()
    (tmp_path / "rekindle_rekindle-operator-1_operator_1.log").write_text("".join(lines))
    witness.look()
    assert [record["kind"] for record in witness.records] == ["verdict", "plan"]
    assert witness.of_kind("plan", since=3.0) == []


def test_a_silent_node_counts_from_the_lease_that_was_longest_unchanged() -> None:
    records = [
        {"kind": "ack", "at": 90.0},
        {"kind": "last-renewal", "at": 93.0},
        {"kind": "last-renewal", "at": 99.0},
        {"kind": "ack", "at": 120.5},
        {"kind": "ack", "at": 130.0},
    ]
    found = figures(records, {"queries": {}}, 100.0)
    assert found == {SILENT_TO_PLAN: {"value": 27.5, "unit": "s", "bar": 30.0}}


def test_memory_is_told_where_the_testbed_is_on_this_machine() -> None:
    records = [{"kind": "memory", "at": 130.0, "used_bytes": 12 * 2**30}]
    found = figures(records, {"queries": {}}, 100.0)
    assert found == {MEMORY: {"value": 12.0, "unit": "GiB", "bar": 16.0}}


def test_a_lost_driver_counts_without_the_start_of_its_pod() -> None:
    outages = {
        "back for a while": [[0.1, 0.3], [3.0, 71.0], [80.0, 200.0]],
        "back": [[3.0, 90.0]],
        "never": [[3.0, 300.0]],
        "never away": [],
    }
    queries = {name: {"unavailable": intervals} for name, intervals in outages.items()}
    report = {"end": 300.0, "queries": queries}
    records = [
        {"kind": "driver-pod-started", "at": 101.0, "seconds": 4.0},
        {"kind": "ack", "at": 160.0},
    ]
    found = figures(records, report, 100.0)
    assert found == {DRIVER_TO_QUERY: {"value": 67.0, "unit": "s", "bar": 60.0}}


def test_a_run_takes_the_place_of_an_earlier_one_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left", str(path))

    run = tmp_path / "run"
    with report_folders.fresh(run):
        (run / "report.json").touch()
        with pytest.raises(InputError, match="of a scenario that runs"), report_folders.fresh(run):
            pass
    with pytest.raises(InputError, match="no root"), report_folders.fresh(run):
        raise InputError(where="here", what="no root", remedy="become it")
    assert (run / "report.json").exists()
    with report_folders.fresh(run) as fresh:
        assert not (fresh / "report.json").exists()
        (fresh / "figures.json").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", refuse)
        with pytest.raises(InputError, match=f"^{run}: cannot be made"):
            report_folders.fresh(run).__enter__()
    assert (run / "figures.json").exists(), "the earlier one is back"
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="no scenario has made it"):
        report_folders.fresh(tmp_path / "mine").__enter__()


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone" / "away")
    for name in ("file", "file/below", "nowhere", "nowhere/below"):
        folder = tmp_path / name
        with pytest.raises(InputError, match=f"^{folder}: .*is no folder; .* by --report$"):
            report_folders.check(folder)
        with pytest.raises(InputError):
            report_folders.fresh(folder / "run").__enter__()
    report_folders.check(tmp_path / "new" / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "nowhere"]


def test_a_scenario_runs_once_with_each_strategy_however_often_it_is_named() -> None:
    selected = scenario_selection.select(["wave", "wave", "quickstart"], ["blocking", "blocking"])
    assert [run.name for run in selected.runs] == ["wave-blocking", "quickstart"]


def test_what_was_asked_for_and_does_not_run_is_said() -> None:
    selected = scenario_selection.select(["wave", "quickstart", "zone-loss"], strategies.NAMES)
    assert selected.left_out == (
        "blocking is left out in quickstart: it does not run there",
        "structured-streaming is left out in quickstart, zone-loss: it does not run there",
    )
    assert scenario_selection.select([], ["incremental"]).left_out == ()


def test_a_scenario_that_cannot_begin_keeps_no_other_from_being_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def perform(name: str, *_: object) -> str:
        if name == "wave":
            raise InputError(where="the cluster", what="is too small", remedy="add nodes")
        if name == "zone-loss":
            raise RunError(where="a row", what="is missing", remedy="see it")
        return "all right"

    monkeypatch.setattr(scenario_prerequisites, "check", lambda *_: None)
    monkeypatch.setattr(command, "_perform", perform)
    report = ["--report", str(tmp_path)]
    assert command.main(["two-of-four", "wave", "one-of-ten", *report]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("wave: could not begin: the cluster: is too small; add nodes;")
    assert lines[3] == "2 passed, 0 failed, 1 did not run"
    assert command.main(["two-of-four", "wave", "zone-loss", *report]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 1 did not run"


def test_an_interrupt_ends_a_run_that_was_begun_where_interrupts_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        monkeypatch.setattr(
            scenario_prerequisites, "check", lambda *_: signal.raise_signal(signal.SIGINT)
        )
        assert command.main(["wave"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)


def test_help_names_the_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    told = capsys.readouterr().out
    assert all(name in told for name in scenario_selection.NAMES)


def test_each_scenario_says_what_is_lost() -> None:
    assert all(len(one.lost) > 10 for one in loss_scenarios.SCENARIOS.values())
    assert command.main(["no-such"]) == 2
    assert command.main(["one-of-ten", "--strategies", "best"]) == 2
    assert command.main(["one-of-ten", "--strategies", "structured-streaming"]) == 2
