"""Each test of the laboratory has its stage, and an interrupted stage leaves nothing behind."""

import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LABORATORY = Path(__file__).parents[1]
# Jobs in the background ignore SIGINT, and so would what they start.
STAGE = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""
STAGES = runpy.run_path(str(LABORATORY / "stages.py"))


def test_every_file_of_integration_tests_has_a_stage() -> None:
    arguments = [
        part for stage in STAGES["STAGES"] for command in stage.commands for part in command
    ]
    for file in (LABORATORY / "integration").glob("test_*.py"):
        assert f"tests/lab/integration/{file.name}" in arguments


@pytest.mark.parametrize(
    ("file", "environment"),
    [
        ("executor/test_call_sites.py", {"REKINDLE_CALL_SITES": "all"}),
        ("pipeline/test_types.py", {"REKINDLE_TYPES": "all"}),
    ],
)
def test_what_make_test_has_a_part_of_has_a_stage_with_all(
    file: str, environment: dict[str, str]
) -> None:
    file = f"tests/unit/rekindle_spark/{file}"
    stages = [one for one in STAGES["STAGES"] if any(file in command for command in one.commands)]
    assert [one.environment for one in stages] == [environment]
    assert (LABORATORY.parents[1] / file).is_file()


def test_a_day_without_long_files_has_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {1: ["tests/integration/test_moves.py"]}
    monkeypatch.setattr(STAGES["turns"], "files_of", lambda day: files.get(day, []))
    stages = runpy.run_path(str(LABORATORY / "stages.py"))["STAGES"]
    assert [stage.name for stage in stages if stage.name.startswith("turn-")] == ["turn-1"]


def test_a_stage_has_its_environment_beside_that_of_the_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OF_THE_RUN", "kept")
    monkeypatch.setenv("OF_THE_STAGE", "before")
    program = "import os; print(os.environ['OF_THE_RUN'], os.environ['OF_THE_STAGE'])"
    stage = STAGES["Stage"]("one", 1, [[sys.executable, "-c", program]], {"OF_THE_STAGE": "given"})
    assert STAGES["_run"](stage, STAGES["Clock"](None, 1.0)).startswith("passed")
    assert "kept given" in capfd.readouterr().out


def test_what_there_is_no_time_for_is_reported_and_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert STAGES["main"](["--until", "1", "--began", "0"]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().out.count("LEFT OUT") == len(STAGES["STAGES"])


def test_a_stage_ends_with_the_run_that_is_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    program = (
        "import runpy, sys\n"
        f"stages = runpy.run_path({str(LABORATORY / 'stages.py')!r})\n"
        "main, Stage = stages['main'], stages['Stage']\n"
        f"command = [sys.executable, '-c', {STAGE!r}, {str(tmp_path / 'begun')!r}]\n"
        "main.__globals__['STAGES'] = (Stage('long', 1, [command]),)\n"
        "sys.exit(main(['long']))\n"
    )
    run = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    stage = int((tmp_path / "begun").read_text())
    run.send_signal(signal.SIGTERM)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Traceback" not in errors
    with pytest.raises(ProcessLookupError):
        os.kill(stage, 0)
