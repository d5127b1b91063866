"""A benchmark of recoveries that was interrupted goes on where it was."""

import json
import re
import shutil
from pathlib import Path

import pytest
from contests import Ran

from rekindle.model.errors import InputError
from rekindle_bench import bar_results, recovery_benchmark
from rekindle_bench.contest_order import Contest
from rekindle_local.failure_schedule import demo, workers

PEER = "structured-streaming"


def test_what_an_interrupted_contest_has_is_not_run_again(tmp_path: Path, ran: Ran) -> None:
    recovery_benchmark.measure(Contest(["incremental"], [1], demo()), tmp_path)
    notes = tmp_path / "notes"
    notes.mkdir()
    whole = Contest(["incremental", "blocking", PEER], [1, 2], demo())
    found = recovery_benchmark.measure(whole, tmp_path, resume=True)
    assert ran.asked == [
        ("incremental", 1, None),
        ("blocking", 1, 1000.0),
        (PEER, 1, 1000.0),
        ("incremental", 2, None),
        ("blocking", 2, 2000.0),
        (PEER, 2, 1000.0),
    ]
    assert found["ratios"].keys() >= {"incremental/blocking", f"incremental/{PEER}"}
    assert (tmp_path / "recovery.svg").read_text().count("<polyline") == 3
    assert notes.exists(), "what is not the contest's is left alone"
    again = recovery_benchmark.measure(whole, tmp_path, resume=True)
    assert again == found
    assert len(ran.asked) == 6


def test_what_another_version_has_measured_is_told(
    tmp_path: Path,
    ran: Ran,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran.sustains = 600.0
    monkeypatch.setattr(bar_results, "COMMIT", "older")
    contest = Contest(["incremental", PEER], [1], demo())
    assert recovery_benchmark.measure(contest, tmp_path)["commit"] == "older"
    capsys.readouterr()
    recovery_benchmark.measure(contest, tmp_path, resume=True)
    assert "measured with" not in capsys.readouterr().out
    monkeypatch.setattr(bar_results, "COMMIT", "newer")
    recovery_benchmark.measure(contest, tmp_path, resume=True)
    told = capsys.readouterr().out
    assert "incremental, seed 1: measured with version older\n" in told
    assert told.count(f"{PEER}, seed 1: measured with version older\n") == 1
    written = json.loads((tmp_path / "recovery.json").read_text())
    del written["runs"][0]["commit"]
    (tmp_path / "recovery.json").write_text(json.dumps(written))
    recovery_benchmark.measure(contest, tmp_path, resume=True)
    assert "incremental, seed 1: measured with version unknown\n" in capsys.readouterr().out


def test_a_peer_goes_on_behind_the_rates_that_it_has_tried(tmp_path: Path, ran: Ran) -> None:
    ran.sustains = 300.0
    contest = Contest(["incremental", PEER], [1], demo())
    recovery_benchmark.measure(contest, tmp_path)
    assert [rate for system, _, rate in ran.asked if system == PEER] == [1000.0, 500.0, 250.0]
    written = json.loads((tmp_path / "recovery.json").read_text())
    assert written["runs"].pop()["share_of_rate"] == 0.25
    (tmp_path / "recovery.json").write_text(json.dumps(written))
    shutil.rmtree(tmp_path / f"{PEER}-1-4th")
    ran.asked.clear()
    recovery_benchmark.measure(contest, tmp_path, resume=True)
    assert ran.asked == [(PEER, 1, 250.0)]


def test_a_later_seed_begins_at_the_rate_that_a_peer_has_sustained(
    tmp_path: Path, ran: Ran
) -> None:
    ran.sustains = 600.0
    recovery_benchmark.measure(Contest(["incremental", PEER], [3, 1], demo()), tmp_path)
    assert [entry for entry in ran.asked if entry[0] == PEER] == [
        (PEER, 3, 3000.0),
        (PEER, 3, 1500.0),
        (PEER, 3, 750.0),
        (PEER, 3, 375.0),
        (PEER, 1, 250.0),
    ]


def test_a_later_seed_begins_at_the_highest_rate_that_a_peer_has_sustained(
    tmp_path: Path, ran: Ran
) -> None:
    ran.sustains = 600.0
    found = recovery_benchmark.measure(Contest(["incremental", PEER], [3, 1, 5], demo()), tmp_path)
    sustained = [run["rate"] for run in found["runs"] if run["system"] == PEER and run["sustained"]]
    assert sustained == [375.0, 250.0, 312.5]


def test_bars_name_the_seeds_of_all_runs_that_are_there(tmp_path: Path, ran: Ran) -> None:
    systems = ["incremental", "blocking"]
    recovery_benchmark.measure(Contest(systems, [1, 2, 3], demo()), tmp_path)
    found = recovery_benchmark.measure(Contest(systems, [2], demo()), tmp_path, resume=True)
    assert len(ran.asked) == 6
    assert {bar["command"].partition("--seeds ")[2] for bar in found["bars"]} == {"1..3"}


def test_without_its_first_run_a_seed_is_run_anew(tmp_path: Path, ran: Ran) -> None:
    recovery_benchmark.measure(Contest(["blocking", PEER], [1], demo()), tmp_path)
    ran.asked.clear()
    shutil.rmtree(tmp_path / "blocking-1")
    shutil.rmtree(tmp_path / f"{PEER}-1")
    recovery_benchmark.measure(
        Contest(["incremental", "blocking", PEER], [1], demo()), tmp_path, resume=True
    )
    assert [system for system, _, _ in ran.asked] == ["incremental", "blocking", PEER]


def test_a_run_whose_directory_is_gone_is_run_anew(tmp_path: Path, ran: Ran) -> None:
    contest = Contest(["incremental", "blocking"], [1], demo())
    recovery_benchmark.measure(contest, tmp_path)
    shutil.rmtree(tmp_path / "blocking-1")
    ran.asked.clear()
    recovery_benchmark.measure(contest, tmp_path, resume=True)
    assert ran.asked == [("blocking", 1, 1000.0)]


def test_a_failure_is_remembered_until_its_system_runs_again(tmp_path: Path, ran: Ran) -> None:
    ran.fails = (PEER,)
    recovery_benchmark.measure(Contest(["incremental", PEER], [1], demo()), tmp_path)
    alone = recovery_benchmark.measure(Contest(["incremental"], [1], demo()), tmp_path, resume=True)
    assert [one["system"] for one in alone["failed"]] == [PEER]
    assert alone["bars"][-1]["met"] is False
    ran.fails = ()
    whole = recovery_benchmark.measure(
        Contest(["incremental", PEER], [1], demo()), tmp_path, resume=True
    )
    assert whole["failed"] == []
    assert whole["bars"][-1]["met"] is True


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("{", "is not what `rekindle bench recovery` writes"),
        ("[]", "is not what `rekindle bench recovery` writes"),
        ('{"version": 2}', "is not what `rekindle bench recovery` writes"),
    ],
)
def test_what_cannot_be_resumed_is_refused(
    tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "recovery.json").write_text(content)
    with pytest.raises(InputError, match=message):
        recovery_benchmark.measure(Contest(["incremental"], [1], demo()), tmp_path, resume=True)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Contest(["incremental"], [1], workers(5)), 'schedule "demo" and not "workers", nodes 10'),
        (
            Contest(["incremental"], [1], demo(), rows_per_second=500.0),
            "rows_per_second null and not 500.0; give the same options",
        ),
        (
            Contest(["incremental"], [1], demo(), cpu_quota=0.1),
            "cpu_quota 0.2 and not 0.1; give the same options",
        ),
    ],
)
def test_another_contest_is_refused(tmp_path: Path, ran: Ran, other: Contest, told: str) -> None:
    recovery_benchmark.measure(Contest(["incremental"], [1], demo()), tmp_path)
    with pytest.raises(InputError, match=re.escape(f"is of another contest: {told}")):
        recovery_benchmark.measure(other, tmp_path, resume=True)
    assert len(ran.asked) == 1


@pytest.mark.usefixtures("ran")
def test_damaged_records_are_refused(tmp_path: Path) -> None:
    contest = Contest(["incremental"], [1], demo())
    written = recovery_benchmark.measure(contest, tmp_path)
    (run,) = written["runs"]
    for damaged in (
        5,
        [{}],
        [{**run, "failures": []}],
        [{**run, "failures": [{"at": 0.0}]}],
        [{**run, "failures": [{"nodes": []}]}],
        [{**run, "share_of_rate": 0}],
        [{**run, "rate": None}],
        [{**run, "weighted_unavailable_seconds": "x"}],
        [{**run, "weighted_unavailable_seconds": None}],
        [{**run, "weighted_unavailable_seconds": None, "sustained": False}],
        [{**run, "exactly_once": {}}],
        [{**run, "seed": -1}],
        {},
        [{**run, "commit": {}}],
        [{name: run[name] for name in run if name != "sustained"}],
        [{name: run[name] for name in run if name != "survivors_epochs_lost"}],
    ):
        (tmp_path / "recovery.json").write_text(json.dumps({**written, "runs": damaged}))
        with pytest.raises(InputError, match="its runs are damaged"):
            recovery_benchmark.measure(contest, tmp_path, resume=True)


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        (["blocking"], f"has runs of incremental, {PEER}, which --strategies leaves out"),
        (["incremental", "blocking"], f"has runs of {PEER}, which --strategies leaves out"),
    ],
)
def test_runs_that_are_not_asked_for_are_not_lost(
    tmp_path: Path, ran: Ran, systems: list[str], message: str
) -> None:
    recovery_benchmark.measure(Contest(["incremental", PEER], [1], demo()), tmp_path)
    before = (tmp_path / "recovery.json").read_text()
    with pytest.raises(InputError, match=message):
        recovery_benchmark.measure(Contest(systems, [1], demo()), tmp_path, resume=True)
    assert (tmp_path / "recovery.json").read_text() == before
    assert len(ran.asked) == 2


def test_runs_of_a_seed_without_its_first_one_are_not_lost(tmp_path: Path, ran: Ran) -> None:
    recovery_benchmark.measure(Contest(["blocking", PEER], [1], demo()), tmp_path)
    before = (tmp_path / "recovery.json").read_text()
    whole = Contest(["incremental", "blocking", PEER], [1], demo())
    with pytest.raises(InputError, match="has runs of seeds 1 that were made without"):
        recovery_benchmark.measure(whole, tmp_path, resume=True)
    assert (tmp_path / "recovery.json").read_text() == before
    assert len(ran.asked) == 2


@pytest.mark.usefixtures("ran")
def test_what_runs_again_is_kept_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contest = Contest(["incremental", "blocking"], [1], demo())
    recovery_benchmark.measure(contest, tmp_path)
    before = (tmp_path / "recovery.json").read_text()
    shutil.rmtree(tmp_path / "incremental-1")
    recovery_benchmark.measure(contest, tmp_path, resume=True)
    assert (tmp_path / "recovery-before-1.json").read_text() == before
    assert "run again: incremental, seed 1; blocking, seed 1;" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "blocking-1")
    recovery_benchmark.measure(contest, tmp_path, resume=True)
    assert (tmp_path / "recovery-before-1.json").read_text() == before
    assert (tmp_path / "recovery-before-2.json").exists()


def test_a_failure_stays_until_its_system_has_run_again(tmp_path: Path, ran: Ran) -> None:
    contest = Contest(["incremental", PEER], [1, 2], demo())
    ran.fails = (PEER,)
    recovery_benchmark.measure(contest, tmp_path)
    ran.interrupts = PEER
    with pytest.raises(KeyboardInterrupt):
        recovery_benchmark.measure(contest, tmp_path, resume=True)
    written = json.loads((tmp_path / "recovery.json").read_text())
    assert [one["seed"] for one in written["failed"]] == [1, 2]


def test_of_a_rate_that_was_not_sustained_no_directory_is_needed(tmp_path: Path, ran: Ran) -> None:
    ran.sustains = 300.0
    contest = Contest(["incremental", PEER], [1], demo())
    before = recovery_benchmark.measure(contest, tmp_path)
    shutil.rmtree(tmp_path / f"{PEER}-1")
    ran.asked.clear()
    assert recovery_benchmark.measure(contest, tmp_path, resume=True)["runs"] == before["runs"]
    assert not ran.asked


def test_a_seed_whose_first_run_failed_is_run_anew(tmp_path: Path, ran: Ran) -> None:
    contest = Contest(["incremental", "blocking"], [1], demo(), rows_per_second=500.0)
    ran.fails = ("incremental",)
    assert recovery_benchmark.measure(contest, tmp_path)["failed"]
    ran.fails = ()
    ran.asked.clear()
    assert recovery_benchmark.measure(contest, tmp_path, resume=True)["failed"] == []
    assert [system for system, _, _ in ran.asked] == ["incremental", "blocking"]


def test_runs_of_seeds_that_are_not_asked_for_are_not_lost(tmp_path: Path, ran: Ran) -> None:
    both = Contest(["incremental", "blocking"], [1, 2], demo())
    first = Contest(["incremental", "blocking"], [1], demo())
    recovery_benchmark.measure(both, tmp_path)
    ran.asked.clear()
    shutil.rmtree(tmp_path / "incremental-1")
    assert len(recovery_benchmark.measure(first, tmp_path, resume=True)["runs"]) == 4
    assert [seed for _, seed, _ in ran.asked] == [1, 1]
    shutil.rmtree(tmp_path / "incremental-2")
    with pytest.raises(InputError, match="has a run of incremental, seed 2, whose directory is"):
        recovery_benchmark.measure(first, tmp_path, resume=True)
    assert len(recovery_benchmark.measure(both, tmp_path, resume=True)["runs"]) == 4


@pytest.mark.usefixtures("ran")
def test_a_run_that_has_lost_a_file_is_named(tmp_path: Path) -> None:
    contest = Contest(["incremental"], [1], demo())
    recovery_benchmark.measure(contest, tmp_path)
    (tmp_path / "incremental-1" / "events.jsonl").unlink()
    message = r"incremental-1: has lost what it is drawn from .*; remove this directory"
    with pytest.raises(InputError, match=message):
        recovery_benchmark.measure(contest, tmp_path, resume=True)
