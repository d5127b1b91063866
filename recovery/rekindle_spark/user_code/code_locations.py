"""Places of users' code: the file and line of a function, and of an exception.

A frame is the user's when its file is neither Rekindle's nor an installed library's. Functions
that are sent to executors keep the names of their files, so a host gives the same places as the
driver. Called by `dead_letter_sieve` and `partition` for errors, and by `checks`.
"""

import functools
import os
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import FunctionType, MethodType

NAMELESS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
INSTALLED = ("site-packages", "dist-packages")
# Where Rekindle's packages are. In a clone that is among no installed libraries.
OWN = Path(__file__).resolve().parents[2]
# Where names of files begin; empty: in the current folder.
_folders = [""]


class Stopped(BaseException):
    """Stops a user's function from outside of it: no fault of the record that it has got.

    No Exception, or the function might catch it.
    """


@lru_cache(maxsize=4096)
def is_users_file(file: str) -> bool:
    """Say whether a file is a user's: not Rekindle's, not a library's, and a file at all."""
    if not file.endswith(".py"):  # "<string>", or what Cython was compiled from
        return False
    path = Path(file)
    if not set(INSTALLED).isdisjoint(path.parts) or is_own_file(file):
        return False
    return not any(path.is_relative_to(folder) for folder in _libraries())


@lru_cache(maxsize=4096)
def is_own_file(file: str) -> bool:
    """Say whether a file is one of Rekindle's own."""
    return any(Path(file).is_relative_to(folder) for folder in _own())


def shown_file(file: str) -> str:
    """The shortest name of a file: relative where it lies below the current folder."""
    try:
        relative = os.path.relpath(file, _folders[-1] or os.curdir)
    except (OSError, ValueError):  # the current folder is gone
        return file
    return file if relative.startswith(os.pardir) else relative


def keep_folder() -> None:
    """From now on names of files begin in the folder that is current now, for the life of this
    process: a user's function may change the current one."""
    with suppress(OSError):  # it is gone
        _folders[0] = os.getcwd()


@contextmanager
def shown_from(folder: str) -> Iterator[None]:
    """Inside, names of files begin in a folder, though the current one may change."""
    _folders.append(folder)
    try:
        yield
    finally:
        _folders.pop()


def place(file: str, line: int) -> str:
    """Write a place as "FILE:LINE", as editors and terminals open it."""
    return f"{shown_file(file)}:{line}"


def raised_at(error: BaseException) -> str:
    """Name the user's function that raised, as "FUNCTION (FILE:LINE)"; empty where none did.

    That is the last frame in a user's file: also of a helper, and not of a library it called. A
    comprehension goes by the name of the function around it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users_file(frame.filename)]
    if not own:
        return ""
    names = [frame.name for frame in own if frame.name not in NAMELESS]
    return f"{(names or ['<module>'])[-1]} ({place(own[-1].filename, own[-1].lineno or 0)})"


def function_of(value: object) -> FunctionType | None:
    """Return the function behind a method, partial or callable object; None behind a builtin."""
    while isinstance(value, functools.partial):
        value = value.func
    if not isinstance(value, FunctionType | MethodType | type) and callable(value):
        value = type(value).__call__
    if isinstance(value, MethodType):
        value = value.__func__
    return value if isinstance(value, FunctionType) else None


def defined_at(function: object) -> str:
    """Name a user's function as "FUNCTION (FILE:LINE)"; empty where its code is unknown."""
    plain = function_of(function)
    if plain is None or not is_users_file(plain.__code__.co_filename):
        return ""
    code = plain.__code__
    return f"{code.co_name} ({place(code.co_filename, code.co_firstlineno)})"


@lru_cache(maxsize=1)
def _own() -> tuple[Path, ...]:
    """The folders of Rekindle's packages."""
    return tuple(path for path in OWN.iterdir() if path.name.startswith("rekindle"))


@lru_cache(maxsize=1)
def _libraries() -> tuple[Path, ...]:
    """The folders of the standard library."""
    paths = sysconfig.get_paths()
    return (Path(paths["stdlib"]), Path(paths["platstdlib"]))
