"""A program as the bytes that executors get: pickled by value, or refused with the culprit.

A function takes along the globals that it uses, and those of its helpers. A lock, an open file or
a connection among them cannot be sent. The search for it follows the pickled values from a step's
function. Called by `driver_main` before it starts anything, by `testing` and by `checks`.
"""

import pickle
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pyspark import cloudpickle

from rekindle.model.errors import InputError
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Step
from rekindle_spark.user_code import code_locations

DEPTH_MAX = 8
REMEDY = (
    "make it inside the function when it is first needed, or pass what it is made from; "
    "functions run in other processes"
)


def pack(program: Program) -> bytes:
    """Pickle a program as executors get it.

    Raises InputError that names the step, and the global or attribute that cannot be sent.
    """
    try:
        return _dumped(program)
    except Exception as error:
        raise _refusal(program, error) from error


def unpack(data: bytes) -> Program:
    """Make a program again, as each host does."""
    program: Program = pickle.loads(data)
    return program


def _dumped(value: object) -> bytes:
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


def _refusal(program: Program, error: Exception) -> InputError:
    steps = (step for chain in program.chains for step in (chain.root, *chain.steps))
    for step in steps:
        cause = _failure(step.function)
        if cause is not None:
            return _refusal_of(step, cause)
    return InputError(
        where=f"pipeline {program.name}",
        what=f"cannot be sent to executors ({_one_line(error)})",
        remedy=REMEDY,
    )


def _refusal_of(step: Step, error: Exception) -> InputError:
    user = getattr(step.function, "operator", step.function)
    names = _unpicklable(user, DEPTH_MAX)
    what = f"cannot be sent to executors ({_one_line(error)})"
    if names:
        what = f"uses {names[-1]}, which cannot be sent to executors ({_one_line(error)})"
    if len(names) > 1:
        what += f", by way of {' and '.join(names[:-1])}"
    if function := code_locations.defined_at(user):
        what += f", in {function}"
    return InputError(where=f"step {step.name}", what=what, remedy=REMEDY)


def _failure(value: object) -> Exception | None:
    try:
        _dumped(value)
    except Exception as error:
        return error
    return None


def _unpicklable(value: object, depth: int) -> list[str]:
    """Name the parts that lead from a value to what cannot be pickled, the last one at fault."""
    for name, part in _parts(value) if depth else ():
        if _failure(part) is not None:
            return [name, *_unpicklable(part, depth - 1)]
    return []


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """The values that are pickled with a value, by names that its author knows."""
    function = getattr(value, "__func__", value)
    if isinstance(function, partial):
        yield from (("an argument of a partial", part) for part in function.args)
        yield from ((f"the argument {name!r}", part) for name, part in function.keywords.items())
        yield "the function of a partial", function.func
    elif isinstance(function, FunctionType):
        yield from _of_function(function)
    elif isinstance(function, Mapping):
        yield from ((f"the item {key!r:.40}", part) for key, part in function.items())
    elif isinstance(function, list | tuple | set | frozenset):
        yield from (("an item of a collection", part) for part in function)
    elif isinstance(function, type):
        yield from ((f"{function.__name__}.{name}", part) for name, part in vars(function).items())
    else:
        own = type(function).__name__
        attributes = getattr(function, "__dict__", {})
        yield from ((f"the attribute {name!r} of {own}", part) for name, part in attributes.items())
        yield f"the class {own}", type(function)
    if hasattr(value, "__self__") and not isinstance(value.__self__, ModuleType):
        yield f"an instance of {type(value.__self__).__name__}", value.__self__


def _of_function(function: FunctionType) -> Iterator[tuple[str, object]]:
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield f"the global {name!r}", function.__globals__[name]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            yield f"the variable {name!r}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    defaults: dict[str, Any] = dict(enumerate(function.__defaults__ or ()))  # type: ignore[arg-type]
    for name, part in {**defaults, **(function.__kwdefaults__ or {})}.items():
        yield f"the default of argument {name}", part


def _global_names(code: CodeType) -> set[str]:
    """The names that code looks up beside its own variables, with those of functions in it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _global_names(constant)
    return found


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
