"""The command line `kubectl rekindle`: finds the command, turns errors into exit codes.

Every command is a module of `subcommands`, imported only when its name is among the arguments; so
`--help` needs no Kubernetes client. Exit codes: 0 done; 1 it failed, or preflight has found
something; 2 wrong usage, or the API server has refused; 130 interrupted. A traceback is a bug.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import typer
from typer.exceptions import TyperException

import rekindle
from rekindle import interrupts
from rekindle.model.errors import InputError, RekindleError

PROGRAM = "kubectl rekindle"
EXAMPLE = "Example: kubectl rekindle status -n flights"
EXTRA = "plugin"
# How typer tells of a wrong or a missing parameter.
PARAMETER = re.compile(r"(?:Invalid value for|Missing \w+) '(?P<name>[^']+)'(?:: (?P<why>.*))?")


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """A command: the function of its name in the module of its name in `subcommands`, or in that of
    the command `beside`."""

    name: str
    summary: str
    beside: str = ""

    def load(self) -> Callable[..., object]:
        """Imports the module of the command."""
        module = import_module(
            f"rekindle_operator.kubectl.subcommands.kubectl_{self.beside or self.name}"
        )
        function: Callable[..., object] = getattr(module, self.name)
        return function


# In the order of --help. A summary is the first line of its function's docstring.
COMMANDS = (
    PluginCommand("status", "Show applications, whether they are protected, and what recovers."),
    PluginCommand(
        "explain", "Tell the story of a recovery: what was lost, planned, back, and waits."
    ),
    PluginCommand("plan", "Show what waits for the next plan, and what that waits for."),
    PluginCommand("priority", "Say for a while which queries matter more than the pipeline says."),
    PluginCommand("pause", "Plan and request nothing for the applications of a policy."),
    PluginCommand("resume", "End a pause.", beside="pause"),
    PluginCommand("release", "Let pods run that wait for their turn, whatever the plan says."),
    PluginCommand("approve", "Approve a recovery that waits for a person."),
    PluginCommand("preflight", "Warn of what would keep an application from coming back."),
)


def main() -> int:
    """Runs the command that the process was started with; returns the exit code."""
    return run(sys.argv[1:])


def run(arguments: Sequence[str]) -> int:
    """Runs a command; returns the exit code."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads only the first lines, as `head`, knows it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return interrupts.INTERRUPTED
    return code


def application(arguments: Sequence[str]) -> typer.Typer:
    """The application; commands that `arguments` name are imported, the others only listed."""
    app = typer.Typer(
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EXAMPLE,
        help="What recovers, why it waits, and what would keep it from coming back.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_versioned)
    for command in COMMANDS:
        function = command.load() if command.name in arguments else _listed
        app.command(command.name, short_help=command.summary)(function)
    return app


def _run(arguments: Sequence[str]) -> int:
    try:
        app = application(arguments)
        with interrupts.raised():
            code = app(args=list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except TyperException as error:
        print(_wrong_usage(error), file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name not in ("kubernetes", "rich"):
            raise
        print(_not_installed(error.name), file=sys.stderr)
        return 2
    except RekindleError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return code if isinstance(code, int) else 0


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"{PROGRAM} {rekindle.__version__}")
        raise typer.Exit


def _versioned(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version)
    ] = False,
) -> None:
    pass


def _listed() -> None:
    raise AssertionError("a command whose name is no argument was called")


def _wrong_usage(error: TyperException) -> str:
    """What typer found wrong, as one of our own errors; without any argument, its help."""
    context = getattr(error, "ctx", None)
    if context is not None and error.message == context.get_help():
        return error.message
    where = context.command_path if context is not None else PROGRAM
    remedy = f"see `{where} --help`"
    what = " ".join(error.format_message().split()).rstrip(".")
    if parameter := PARAMETER.fullmatch(what):
        where, what = parameter["name"], parameter["why"] or "is missing"
    return str(InputError(where=where, what=what[:1].lower() + what[1:], remedy=remedy))


def _not_installed(package: str | None) -> InputError:
    return InputError(
        where=PROGRAM,
        what=f"it needs {package}, which is not installed",
        remedy=f"install rekindle[{EXTRA}]",
    )
