"""A process of the operator as a command: options, what it prints of an error, its exit code.

0 ended in order, 1 the run failed, 2 wrong usage, 130 interrupted before it ran. Called by the
mains of operator and webhook.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.exceptions import TyperException

from rekindle import interrupts
from rekindle.model.errors import InputError, RekindleError
from rekindle_coordinator import json_lines

# Of the variables of the environment that give options.
PREFIX = "REKINDLE_"

HealthPort = Annotated[
    int,
    typer.Option(
        envvar=f"{PREFIX}PORT", min=0, max=65_535, help="For /health, /ready and /metrics."
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        envvar=f"{PREFIX}KUBECONFIG",
        help="How to reach the cluster.",
        show_default="the service account",
    ),
]
WatchSilenceSeconds = Annotated[
    float,
    typer.Option(
        envvar=f"{PREFIX}WATCH_SILENCE_SECONDS",
        min=1,
        max=600,
        help="A watch without a word for so long is begun anew.",
    ),
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        envvar=f"{PREFIX}LOG",
        help="Where JSON lines are appended.",
        show_default="standard output",
    ),
]


def run(program: str, function: Callable[..., Any]) -> NoReturn:
    """Run a function with the arguments of this process; exits."""
    application = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    application.command()(function)
    try:
        with interrupts.raised():
            code = application(prog_name=program, standalone_mode=False)
    except KeyboardInterrupt:
        sys.exit(interrupts.INTERRUPTED)
    except TyperException as error:
        # without what else it might have been: the only short option is no guess
        what = " ".join(error.format_message().split()).partition(" (Possible")[0].rstrip(".")
        what = what[:1].lower() + what[1:]
        wrong = InputError(where=program, what=what, remedy=f"see `{program} --help`")
        print(wrong, file=sys.stderr)
        sys.exit(error.exit_code)
    except RekindleError as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else 1)
    sys.exit(code if isinstance(code, int) else 0)


def opened(log: Path | None, stack: ExitStack) -> TextIO:
    """The log's file, closed with `stack`; standard output for None. Raises InputError."""
    return sys.stdout if log is None else stack.enter_context(json_lines.open_log(log))
