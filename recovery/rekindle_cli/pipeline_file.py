"""A pipeline file: imported under guard, asked for its pipeline, and checked.

Whatever the file does on import, what comes of it is a pipeline with findings, or an InputError
with the file's line. The checks call its functions under guard, too. Called by the commands `run`,
`test` and `check`, before anything is started.
"""

import difflib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from rekindle.model import path_kinds
from rekindle.model.errors import InputError
from rekindle.model.settings import Settings
from rekindle_cli import pipeline_options
from rekindle_cli.guard import NO_THREADS_IN_FUNCTIONS, CallLimits, CodeTooSlowError, guarded
from rekindle_spark import checks
from rekindle_spark.checks.check_findings import (
    CheckFinding,
    CheckSeverity,
    has_errors,
    of_error,
)
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.user_code import argument_checks, code_locations, dead_letter_sieve
from rekindle_store import store_files

# The name of the file's module, which is sent to executors by value.
MODULE = "rekindle_pipeline"
DEFAULT = "pipeline"
# For one partition on no rows or on the first rows; in a run that is a part of an epoch.
FUNCTION_LIMITS = CallLimits(10.0)


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """The pipeline of a file, and what was found while it was made."""

    pipeline: Pipeline
    path: Path
    findings: tuple[CheckFinding, ...]


def load(argument: str, limits: CallLimits, *, is_quiet: bool = False) -> LoadedPipeline:
    """Make the pipeline of "FILE.py" or "FILE.py:FUNCTION"; executors get its code by value.

    What it prints is left out where it `is_quiet`. Raises InputError, with the line where there is
    one, for a file that cannot be imported, for a function that is missing or fails, and for all
    that a guard does not let pass.
    """
    path_text, _, name = argument.partition(":")
    path, name = Path(path_text), name or DEFAULT
    what = pipeline_options.place(argument)
    if found := path_kinds.other_than_file(path) if path_text else "has no name":
        raise InputError(where=what, what=found, remedy="name a Python file")
    with guarded(what, limits, is_quiet=is_quiet) as guard:
        guard.watchdog.begin(0, 0, "")
        guard.watchdog.calling("")
        module = _import(path)
        built = _call(_function(module, name, path), path)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return LoadedPipeline(built, path, tuple(guard.findings))


def check(
    loaded: LoadedPipeline,
    settings: Settings,
    *,
    slow: CheckSeverity = CheckSeverity.ERROR,
    ends_at: float = math.inf,
) -> list[CheckFinding]:
    """Find all that can be known of a pipeline without a cluster: errors, then warnings.

    `slow` says how much it matters that a function is not done with the first rows after some
    seconds, or at the moment `ends_at` (`CallLimits`).
    """
    found = check_uncalled(loaded, settings)
    if not has_errors(found):
        found += _check_called(loaded, settings, slow, ends_at)
    return sorted(dict.fromkeys(found), key=lambda finding: finding.severity)


def check_uncalled(loaded: LoadedPipeline, settings: Settings) -> list[CheckFinding]:
    """Find what can be known without calling the pipeline's functions."""
    return [*loaded.findings, *checks.beforehand(loaded.pipeline, settings)]


def _check_called(
    loaded: LoadedPipeline, settings: Settings, slow: CheckSeverity, ends_at: float
) -> list[CheckFinding]:
    """Call the pipeline's functions on no rows and on its first rows."""
    what, limits = f"pipeline file {loaded.path}", replace(FUNCTION_LIMITS, ends_at=ends_at)
    try:
        with guarded(what, limits, remedy_for_threads=NO_THREADS_IN_FUNCTIONS) as guard:
            found = checks.first_rows(
                loaded.pipeline, settings.runtime, guard.renew, guard.watchdog
            )
    except CodeTooSlowError as error:
        return [replace(of_error(error), severity=slow)]
    except InputError as error:
        return [of_error(error)]
    return [*found, *guard.findings]


def is_new(store: str) -> bool:
    """Say whether no driver has ever been started on a checkpoint store, as far as it answers."""
    try:
        return not store_files.at(store).names("generations")
    except OSError:
        return False


def refuse_errors(findings: Iterable[CheckFinding]) -> None:
    """Show findings; raise InputError for the last error."""
    found = list(findings)
    errors = [finding for finding in found if finding.severity is CheckSeverity.ERROR]
    show(one for one in found if one.severity is not CheckSeverity.ERROR)
    for finding in errors[:-1]:
        print(finding, file=sys.stderr)
    for finding in errors[-1:]:
        raise InputError(where=finding.where, what=finding.what, remedy=finding.remedy)


def show(findings: Iterable[CheckFinding]) -> None:
    """Print findings to standard error, a line each."""
    for finding in findings:
        print(f"{finding.severity}: {finding}", file=sys.stderr)


def _import(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(MODULE, path)
    if specification is None or specification.loader is None:
        raise InputError(
            where=f"pipeline file {path}",
            what="does not end in .py",
            remedy="name a Python file",
        )
    module = importlib.util.module_from_spec(specification)
    sys.modules[MODULE] = module
    try:
        _check_encoding(path)
        specification.loader.exec_module(module)
    except InputError as error:
        raise _placed(error) from error
    except code_locations.Stopped:
        raise
    except BaseException as error:  # a panic of a native library is no Exception
        raise _failed(path, "cannot be imported", error) from error
    return module


def _check_encoding(path: Path) -> None:
    """Raise Python's own SyntaxError for bytes that are no text: imports pass them in comments."""
    if path.suffix != ".py":
        return
    content = path.read_bytes()
    try:
        try:
            importlib.util.decode_source(content)
        except SyntaxError:  # of the first two lines, without a line; of an unknown encoding, too
            content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        what = f"Non-{error.encoding.upper()} code starting with '\\x{byte:02x}'"
        raise SyntaxError(what, (str(path), line, None, None)) from None


def _function(module: ModuleType, name: str, path: Path) -> Callable[[], Any]:
    function: Any = getattr(module, name, None)
    if callable(function):
        place = code_locations.defined_at(function).rpartition(" (")[2].rstrip(")")
        where = place or f"pipeline file {path}"
        argument_checks.check_not_async(f"{where}: {name}()", function)
        _check_parameters(function, name, where)
        return function  # type: ignore[no-any-return]
    made = [key for key, value in vars(module).items() if isinstance(value, Pipeline)]
    own = [key for key, value in vars(module).items() if inspect.isfunction(value)]
    remedy = "define it, without parameters, to return a rekindle_spark.pipeline.Pipeline"
    if made:
        remedy = f"return {made[0]} from a function `def {name}():`"
    elif near := difflib.get_close_matches(name, own, cutoff=0.7):
        remedy = f"name one of: {', '.join(near)}"
    raise InputError(where=f"pipeline file {path}", what=f"has no function {name!r}", remedy=remedy)


def _check_parameters(function: Callable[..., Any], name: str, where: str) -> None:
    """Raise InputError for a function that cannot be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of what is compiled nothing is known
        return
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one.name for one in parameters if one.default is one.empty and one.kind not in kinds]
    if needed:
        raise InputError(
            where=where,
            what=f"{name}() cannot be called without {', '.join(needed)}",
            remedy="give parameters defaults, or name a function that has none and calls it",
        )


def _call(function: Callable[[], Any], path: Path) -> Pipeline:
    name = getattr(function, "__name__", DEFAULT)
    try:
        built = function()
    except InputError as error:
        raise _placed(error) from error
    except code_locations.Stopped:
        raise
    except BaseException as error:  # a panic of a native library is no Exception
        raise _failed(path, f"{name}() failed", error) from error
    if not isinstance(built, Pipeline):
        raise InputError(
            where=f"pipeline file {path}",
            what=f"{name}() gave {_kind(built)}",
            remedy="return a rekindle_spark.pipeline.Pipeline",
        )
    return built


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _placed(error: InputError) -> InputError:
    """The error with the user's line that led to it, where it does not say that already."""
    function = code_locations.raised_at(error)
    place = function.rpartition(" (")[2].rstrip(")")
    if not place or place in error.where:
        return error
    return InputError(where=f"{place}: {error.where}", what=error.what, remedy=error.remedy)


def _failed(path: Path, what: str, error: BaseException) -> InputError:
    """What the file raised, with its line."""
    where, remedy = f"pipeline file {path}", "mend the file"
    cause = dead_letter_sieve.raised(error).removeprefix("raised ")
    if isinstance(error, SyntaxError) and error.lineno is not None:
        where = code_locations.place(error.filename or str(path), error.lineno)
        cause = f"{type(error).__name__}: {error.msg}"
    elif function := code_locations.raised_at(error):
        where = function.rpartition(" (")[2].rstrip(")")
    if isinstance(error, SystemExit):
        cause = f"sys.exit({'' if error.code is None else repr(error.code)}) was called"
        remedy = 'take it out, or put it behind `if __name__ == "__main__":`'
    if isinstance(error, ModuleNotFoundError):
        remedy = _remedy_for_missing(path, error)
    return InputError(where=where, what=f"{what}: {cause}", remedy=remedy)


def _remedy_for_missing(path: Path, error: ModuleNotFoundError) -> str:
    """A module beside the file is not found: executors would not have it either."""
    name = (error.name or "").partition(".")[0]
    beside = path.parent / name
    if name and (beside.is_dir() or beside.with_suffix(".py").is_file()):
        return (
            f"only the pipeline file itself is sent to executors: move what it needs of {name} "
            "into it, or install that as a package on all nodes"
        )
    return "install it where this runs, and on all nodes"
