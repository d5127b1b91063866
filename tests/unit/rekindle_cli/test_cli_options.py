"""Options that several commands share: what is refused, and which directories are left."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rekindle.model.errors import InputError, RunError
from rekindle_cli import cli_options, command_line

ROOT = Path(__file__).parents[3]
NOBODY = 65_534


@pytest.mark.parametrize(
    "seeds", ["-3", "1..", "..5", "5..1", "1..1000000", "a", "", "1.5", "1..2..3", "9" * 5000]
)
def test_seeds_that_are_no_short_range_are_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seeds: str
) -> None:
    report = tmp_path / "report"
    arguments = ["bench", "recovery", "--seeds", seeds, "--report", str(report)]
    assert command_line.run(command_line.application, arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"--seeds: is {seeds!r:.60}; write 3 or 1..5: up to 100 seeds from 0")
    assert not report.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy", "fast"], "--strategy: is 'fast'; choose incremental or blocking"),
        (["--kill", "10"], "--kill: is 10 of 4 nodes; leave some alive"),
        (["--return-every", "nan"], "--return-every: is nan; give a number from 0.1 to 600"),
        (["--placement", "odd"], "--placement: is 'odd'; choose even or domains"),
        (
            ["--kill-domain", "rack-4"],
            "--kill-domain: is 'rack-4'; choose rack-1 or rack-2 or rack-3",
        ),
        (
            ["--kill", "2", "--kill-domain", "rack-1"],
            "--kill: is given beside --kill-domain; give one of them",
        ),
        (
            ["--domains", "1", "--kill-domain", "rack-1"],
            "--kill-domain: would kill every node; have more --domains",
        ),
        (
            ["--nodes", "2", "--kill-domain", "rack-3"],
            "--kill-domain: is 'rack-3'; choose rack-1 or rack-2",
        ),
        (
            ["--nodes", "2", "--kill", "1", "--strategy", "fast"],
            "--strategy: is 'fast'; choose incremental or blocking",
        ),
        (["--domains", "11"], "--domains: is 11 for 4 nodes; have fewer"),
        (["--seed", "-1"], "--seed: is -1; give a number from 0 to 2,147,483,648"),
    ],
)
def test_options_out_of_range_are_refused_with_the_range(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert command_line.run(command_line.application, ["demo", *arguments]) == 2
    assert capsys.readouterr().err == f"{message}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["peer", "--engine", "storm"], "--engine: is 'storm'; choose structured-streaming or "),
        (["peer", "--kill", "10"], "--kill: is 10 of 10 nodes; leave some alive"),
        (["peer", "--rows-per-second", "0"], "--rows-per-second: is 0.0; give a number from 1 to"),
        (["study", "--picture", "/no/such/x.svg"], "--picture /no/such/x.svg: cannot be written"),
        (["study", "--picture", "/tmp"], "--picture /tmp: cannot be written (Is a directory)"),
        (["study", "--seeds", "5..1"], "--seeds: is '5..1'; write 3 or 1..5"),
    ],
)
def test_a_peer_or_a_study_that_cannot_be_run_is_refused_before_it_starts(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert command_line.run(command_line.application, ["bench", *arguments]) == 2
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--strategies", "incremental,storm"],
            "--strategies: is 'storm'; choose incremental or blocking or structured-streaming or "
            "structured-streaming-protected or flink or flink-adaptive",
        ),
        (
            ["--strategies", "structured-streaming"],
            "--strategies: has no strategy of Rekindle, which tells the rate; add incremental, or "
            "give --rows-per-second",
        ),
        (["--schedule", "odd"], "--schedule: is 'odd'; choose demo or workers"),
        (
            ["--schedule", "workers", "--kill", "3"],
            "--kill: is given beside --schedule workers, which says it; leave it out",
        ),
        (["--minutes", "0"], "--minutes: is 0.0; give a number from 1 to 60"),
        (["--rows-per-second", "0"], "--rows-per-second: is 0.0; give a number from 1 to "),
        (["--cpu-quota", "0"], "--cpu-quota: is 0.0; give a number from 0.01 to "),
        (["--nodes", "4", "--kill", "4"], "--kill: is 4 of 4 nodes; leave some alive"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    report = tmp_path / "report"
    asked = ["bench", "recovery", *arguments, "--report", str(report)]
    assert command_line.run(command_line.application, asked) == 2
    assert capsys.readouterr().err.startswith(message)
    assert not report.exists()


FAILURE = RunError(where="demo", what="waited too long", remedy="see the log")
REFUSAL = InputError(where="PATH", what="there is no java", remedy="install it")


def run(report: Path | None, end: BaseException | None) -> Path:
    """A run that leaves a log and ends so; gives its directory."""
    with cli_options.report_directory(report) as directory:
        (directory / "driver.log").write_text(str(directory))
        if end is not None:
            end.add_note(str(directory))
            raise end
    return directory


def test_a_run_that_fails_keeps_its_temporary_directory_and_says_where(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(RunError):
        run(None, FAILURE)
    said = capsys.readouterr().err
    assert said.startswith("what the run left is kept in ")
    directory = Path(said.split()[-1])
    assert (directory / "driver.log").exists()
    shutil.rmtree(directory)


def test_a_run_that_went_well_leaves_no_temporary_directory() -> None:
    assert not run(None, None).exists()


@pytest.mark.parametrize("end", [KeyboardInterrupt(), REFUSAL])
def test_a_run_that_did_not_fail_leaves_no_temporary_directory(end: BaseException) -> None:
    with pytest.raises(type(end)) as raised:
        run(None, end)
    assert not Path(raised.value.__notes__[-1]).exists()


def test_a_report_that_was_asked_for_stays_whatever_happens(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        run(tmp_path / "new", FAILURE)
    assert (tmp_path / "new" / "driver.log").exists()


def test_a_directory_that_cannot_be_written_is_refused() -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o555)
        try:
            if user == 0:  # who may write everywhere
                os.seteuid(NOBODY)
            for check in (cli_options.new_directory, cli_options.writable):
                with pytest.raises(InputError, match=r"--report .*: cannot be written; name anoth"):
                    check(place)
        finally:
            os.seteuid(user)


def test_a_report_that_is_not_there_does_not_go_on(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--report .*nowhere: is not there"):
        cli_options.writable(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["recovery", "--minutes", "7"],
            "--minutes: is given beside --schedule demo, which has one failure; leave it out",
        ),
        (
            ["recovery", "--schedule", "workers", "--kill", "2"],
            "--kill: is given beside --schedule workers, which says it; leave it out",
        ),
        (
            ["recovery", "--strategies", "blocking", "--enforce"],
            "--strategies: leaves out incremental, whose bars --enforce is about; add incremental, "
            "or leave out --enforce",
        ),
        (
            ["steady", "--systems", "structured-streaming", "--enforce"],
            "--systems: leaves out rekindle, whose bars --enforce is about",
        ),
        (
            ["recovery", "--seeds", "1..2", "--enforce"],
            "--seeds: gives 2 of the 3 runs whose median --enforce is about; give 3 or more, or "
            "leave out --enforce",
        ),
        (
            ["steady", "--rounds", "1", "--enforce"],
            "--rounds: gives 1 of the 3 runs whose median --enforce is about",
        ),
        (
            ["overhead", "--rounds", "2", "--enforce"],
            "--rounds: gives 2 of the 3 runs whose median --enforce is about",
        ),
    ],
)
def test_options_of_benchmarks_that_do_not_go_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    report = tmp_path / "report"
    assert (
        command_line.run(command_line.application, ["bench", *arguments, "--report", str(report)])
        == 2
    )
    assert capsys.readouterr().err.startswith(message)
    assert not report.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_run_that_is_ended_by_a_signal_leaves_no_temporary_directory(
    number: signal.Signals,
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), cli_options.report_directory(None) as directory:
        signal.raise_signal(number)
    assert not directory.exists()
    assert signal.getsignal(number) is before


def test_what_a_signal_has_begun_to_end_is_not_disturbed_by_another() -> None:
    ended = []

    def run() -> None:
        with cli_options.interruptible():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)
                ended.append("in order")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert ended == ["in order"]


# SIGTERM comes at a moment at which no error may be raised, and SIGINT is not there to help.
ENDED_IN_AN_IMPORT = """
import signal, sys, time
from rekindle import interrupts
from rekindle_cli import cli_options

signal.signal(signal.SIGINT, {handler})
body = "signal.raise_signal(signal.SIGTERM)"
function = compile(body, interrupts.IMPORT_SYSTEM + "._bootstrap>", "exec")

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

until = time.monotonic() + 1.0
try:
    with cli_options.interruptible():
        {moment}
        while time.monotonic() < until:
            pass
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.mark.parametrize("handler", ["signal.SIG_IGN", "lambda *_: None"])
@pytest.mark.parametrize("moment", ["exec(function)", "Finalized()"])
def test_a_signal_ends_a_run_at_whatever_moment_it_comes(handler: str, moment: str) -> None:
    program = ENDED_IN_AN_IMPORT.format(handler=handler, moment=moment)
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "recovery")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "", "")
