"""The command line: what it lists, what it imports, and how errors end."""

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from fresh_python import run_code
from typer.main import get_command

import rekindle
from rekindle.model.errors import FencedError, InputError, RekindleError, RunError
from rekindle_cli import command_line

# The commands of the local cluster, and of the laboratory.
REGISTERED = ("bench", "chaos", "coordinator", "demo", "sim")
HEAVY = ("polars", "pyarrow", "pyspark", "scipy", "numpy", "pandas", "duckdb", "rich")


def run_failing(error: BaseException) -> int:
    """The exit code of a program whose one command raises `error`."""

    def fail() -> None:
        raise error

    return command_line.run_alone(fail, [])


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [(InputError, 2), (RunError, 1), (FencedError, 1), (RekindleError, 1)],
)
def test_an_error_of_ours_is_one_sentence_on_stderr_and_an_exit_code(
    kind: type[RekindleError], exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind(where="problem.json: queries.q1.priority", what="is -3", remedy="give one above 0")
    assert run_failing(error) == exit_code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "problem.json: queries.q1.priority: is -3; give one above 0\n"


def test_an_interrupted_command_ends_with_130_and_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_failing(KeyboardInterrupt()) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
            "this machine: Cannot assign requested address; end what holds the ports of this ",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "/data/x"),
            "/data/x: No space left on device; make room there",
        ),
    ],
)
def test_what_the_machine_has_too_little_of_is_one_sentence(
    error: OSError, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_failing(error) == 1
    said = capsys.readouterr().err
    assert said.startswith(message)
    assert said.count("\n") == 1


def test_a_name_that_is_too_long_for_the_system_is_wrong_input(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command_line.run(command_line.application, ["init", "x" * 300]) == 2
    said = capsys.readouterr().err
    assert said.startswith("xxx")
    assert said.endswith(": File name too long; give it a shorter name\n")


def test_a_place_that_may_not_be_touched_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "/data/x")
    assert run_failing(error) == 2
    said = capsys.readouterr().err
    assert said.startswith("/data/x: Permission denied; let this user read and write there, or ")
    nameless = PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(PermissionError):
        run_failing(nameless)


def test_a_command_whose_extra_is_not_installed_names_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    assert run_failing(missing) == 2
    assert "install rekindle[spark]" in capsys.readouterr().err


def test_where_no_extra_with_commands_is_installed_the_command_names_one() -> None:
    without = "import sys; sys.modules['typer'] = None; from rekindle_cli import __main__ as cli; "
    ended = subprocess.run(
        [sys.executable, "-c", without + "sys.exit(cli.main())"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "install rekindle[run]" in ended.stderr


def test_a_missing_module_of_ours_is_a_bug_and_not_hidden() -> None:
    missing = ModuleNotFoundError("No module named 'rekindle.plans'", name="rekindle.plans")
    with pytest.raises(ModuleNotFoundError):
        run_failing(missing)


def test_the_exit_code_that_a_command_chooses_is_kept() -> None:
    assert run_failing(typer.Exit(1)) == 1


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(command_line.application, ["--version"]) == 0
    assert capsys.readouterr().out == f"rekindle {rekindle.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rekindel"], "rekindle: no such command 'rekindel'; see `rekindle --help`"),
        (["chek"], "rekindle: no such command 'chek'; did you mean 'check'?"),
        (["--nodes"], "rekindle: no such option: --nodes; see `rekindle --help`"),
        (["run", "a.py"], "--store: is missing; name a folder that all nodes share"),
        (["plan"], "PROBLEM.json: is missing; see `rekindle plan --help`"),
        (["plan", "a", "b"], "rekindle plan: got unexpected extra argument(s) (b); see `rekindle"),
        (["demo", "--nodes", "1"], "--nodes: input should be greater than or equal to 2; see `re"),
        (["bench", "x"], "rekindle bench: no such command 'x'; see `rekindle bench --help`"),
        (["bench", "soak", "--epochs", "x"], "--epochs: input should be a valid integer, "),
    ],
)
def test_wrong_usage_is_one_sentence_like_every_error_of_ours(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(command_line.application, arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(message)
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["bench"]])
def test_no_arguments_are_answered_with_the_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(command_line.application, arguments) == 2
    assert capsys.readouterr().err.startswith("Usage: rekindle")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--version"], ["plan", "--help"]])
def test_output_that_cannot_be_written_is_an_error_and_no_traceback(
    arguments: list[str], unbuffered: str
) -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "rekindle_cli", *arguments],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert run.returncode == 1
    assert run.stderr == (
        "standard output: cannot be written (No space left on device); "
        "make room where it goes, or send it elsewhere\n"
    )


@pytest.mark.parametrize("arguments", [["--version"], ["plan", "PROBLEM", "--json"]])
def test_output_that_is_closed_is_an_error_and_no_traceback(
    arguments: list[str], tmp_path: Path
) -> None:
    problem = tmp_path / "problem.json"
    problem.write_text('{"version": 1, "partitions": {}, "queries": {}, "capacity_cpu_percent": 1}')
    command = [sys.executable, "-m", "rekindle_cli", *arguments]
    run = subprocess.run(
        [
            "sh",
            "-c",
            'exec "$@" >&-',
            "sh",
            *(str(problem) if a == "PROBLEM" else a for a in command),
        ],
        env={"PYTHONPATH": ":".join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr == (
        "standard output: cannot be written (Bad file descriptor); "
        "make room where it goes, or send it elsewhere\n"
    )


@pytest.mark.parametrize(("closed", "code"), [("2>&-", 2), (">&- 2>&-", 2), ("<&- 2>&-", 2)])
def test_an_error_without_anywhere_to_say_it_is_an_exit_code(closed: str, code: int) -> None:
    run = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "rekindle_cli", "plam"],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (code, b"", b"")


def test_what_compiled_code_prints_is_not_among_what_a_command_prints() -> None:
    code = (
        "import os\n"
        "from rekindle_cli import command_line as cli\n"
        "def print_both(**_):\n"
        "    os.write(1, b'noise')\n"
        "    print('answer')\n"
        "cli.application = lambda _: print_both\n"
        "raise SystemExit(cli.main())\n"
    )
    run = run_code(code)
    assert run.returncode == 0, run.stderr
    assert (run.stdout, run.stderr) == ("answer\n", "noise")


@pytest.mark.parametrize(
    ("encoding", "text", "printed"),
    [
        ("ascii", "größe", rb"gr\xf6\xdfe"),
        ("iso-8859-1", "größe → €", b"gr\xf6\xdfe \\u2192 \\u20ac"),
        ("utf-8", "a-file-\udcff", rb"a-file-\udcff"),
    ],
)
def test_characters_that_the_locale_does_not_have_are_escaped(
    encoding: str, text: str, printed: bytes
) -> None:
    code = (
        "from rekindle_cli import command_line as cli\n"
        f"cli.application = lambda _: lambda **_: print({text!a})\n"
        "raise SystemExit(cli.main())\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    assert (run.stdout.rstrip(), run.stderr) == (printed, b"")


def test_an_error_of_the_system_elsewhere_is_a_bug_and_not_hidden() -> None:
    with pytest.raises(FileNotFoundError):
        run_failing(FileNotFoundError(2, "absent"))


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from rekindle_cli import command_line as cli\n"
        "assert cli.run(cli.application, ['--help']) == 0\n"
        f"print('imported:', sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    run = run_code(code)
    assert run.returncode == 0, run.stderr
    assert "imported: []" in run.stdout
    for command in command_line.COMMANDS:
        assert f"  {command.name} " in run.stdout
        assert command.summary in " ".join(run.stdout.split())
    for name in REGISTERED:
        assert f"  {name} " in run.stdout
    assert "..." not in run.stdout.replace("[ARGS]...", "")


def test_help_groups_commands_by_what_a_user_does_the_laboratory_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command_line.run(command_line.application, ["--help"]) == 0
    panels: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.partition("exit.\n")[2].splitlines():
        if line.endswith(":"):
            names = panels[line[:-1]] = []
        elif re.match(r"  [a-z]", line):
            names.append(line.split()[0])
    assert list(panels) == list(command_line.HelpPanel)
    first, *_, last = panels.values()
    assert first == ["init", "check", "test", "run", "output", "demo"]
    assert last == ["bench", "chaos", "sim"]
    everything = [*(command.name for command in command_line.COMMANDS), *REGISTERED]
    assert sorted(name for names in panels.values() for name in names) == sorted(everything)


@pytest.mark.parametrize("command", command_line.COMMANDS, ids=lambda command: command.name)
def test_the_summary_of_a_command_is_the_first_line_of_its_docstring(
    command: command_line.Command,
) -> None:
    implementation = command.load()
    if isinstance(implementation, typer.Typer):
        assert implementation.registered_commands, f"{command.name} has no commands of its own"
    else:
        assert (implementation.__doc__ or "").splitlines()[0] == command.summary


@pytest.mark.parametrize(
    "name", [*(command.name for command in command_line.COMMANDS), *REGISTERED]
)
def test_the_help_of_a_command_has_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(command_line.application, [name, "--help"]) == 0
    assert f"Example: rekindle {name} " in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "recovery"],
        *([name] for name in REGISTERED),
        *([command.name] for command in command_line.COMMANDS),
    ],
)
def test_a_help_is_whole_and_says_something_of_every_option(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(command_line.application, [*arguments, "--help"]) == 0
    said = capsys.readouterr().out
    assert "..." not in said.replace("[ARGS]...", "")
    options = [" ".join(part.split()) for part in said.split("  --")[1:]]
    for option in options:
        words = option.partition("[default")[0].split("> ")[-1].split()
        assert len(words) > 2, option


def options_of(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, one in getattr(command, "commands", {}).items():
        yield from options_of(one, f"{path} {name}")
    for parameter in getattr(command, "params", ()):
        if hasattr(parameter, "is_flag") and not (parameter.is_flag or parameter.is_bool_flag):
            yield f"{path} {parameter.opts[0]}", parameter


def test_the_help_of_an_option_with_a_value_has_its_default() -> None:
    names = [*(command.name for command in command_line.COMMANDS), "coordinator", "demo"]
    app = command_line.application(names)
    app.registered_commands = [one for one in app.registered_commands if one.name in names]
    found = dict(options_of(get_command(app), "rekindle"))
    silent = {
        name
        for name, option in found.items()
        if not (
            option.required
            or isinstance(option.show_default, str)
            or (option.show_default and option.default not in (None, ""))
        )
    }
    assert len(found) > 60
    assert silent == set()
