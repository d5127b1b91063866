"""The command line: what it lists, what it imports, and how errors end."""

import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
import typer

import rekindle
from rekindle.errors import FencedError, InputError, RekindleError, RunError
from rekindle_local import cli

HEAVY = ("polars", "pyarrow", "pyspark", "scipy", "numpy", "pandas", "duckdb", "rich")


def application_that_raises(error: BaseException) -> Callable[[Sequence[str]], typer.Typer]:
    def fail() -> None:
        raise error

    def build(_arguments: Sequence[str]) -> typer.Typer:
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command()(fail)
        return app

    return build


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [(InputError, 2), (RunError, 1), (FencedError, 1), (RekindleError, 1)],
)
def test_an_error_of_ours_is_one_sentence_on_stderr_and_an_exit_code(
    kind: type[RekindleError], exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind(where="problem.json: queries.q1.priority", what="is -3", remedy="give one above 0")
    assert cli.run(application_that_raises(error), []) == exit_code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "problem.json: queries.q1.priority: is -3; give one above 0\n"


def test_an_interrupted_command_ends_with_130_and_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(application_that_raises(KeyboardInterrupt()), []) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_command_whose_extra_is_not_installed_names_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    assert cli.run(application_that_raises(missing), []) == 2
    assert "install rekindle[spark]" in capsys.readouterr().err


def test_a_missing_module_of_ours_is_a_bug_and_not_hidden() -> None:
    missing = ModuleNotFoundError("No module named 'rekindle.plans'", name="rekindle.plans")
    with pytest.raises(ModuleNotFoundError):
        cli.run(application_that_raises(missing), [])


def test_the_exit_code_that_a_command_chooses_is_kept() -> None:
    assert cli.run(application_that_raises(typer.Exit(1)), []) == 1


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(cli.application, ["--version"]) == 0
    assert capsys.readouterr().out == f"rekindle {rekindle.__version__}\n"


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(cli.application, ["rekindel"]) == 2
    assert "rekindel" in capsys.readouterr().err


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from rekindle_local import cli\n"
        "assert cli.run(cli.application, ['--help']) == 0\n"
        f"print('imported:', sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "imported: []" in run.stdout
    for command in cli.COMMANDS:
        assert f"  {command.name} " in run.stdout
        assert command.summary in " ".join(run.stdout.split())


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_the_summary_of_a_command_is_the_first_line_of_its_docstring(command: cli.Command) -> None:
    implementation = command.load()
    if isinstance(implementation, typer.Typer):
        assert implementation.registered_commands, f"{command.name} has no commands of its own"
    else:
        assert (implementation.__doc__ or "").splitlines()[0] == command.summary


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_the_help_of_a_command_has_an_example(
    command: cli.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(cli.application, [command.name, "--help"]) == 0
    assert f"Example: rekindle {command.name} " in " ".join(capsys.readouterr().out.split())
