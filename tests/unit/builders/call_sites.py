"""The places in our code that call native code, found by walking the source, for tests of panics.

A call is native where what is called belongs to an installed library by the module's names
(`pc.add`), or is a method of a value (`table.take`), of which the source does not say the type.
Calls of our own functions, of builtins and of the standard library are not, nor are methods of what
our objects keep for themselves (`self.waiting.append`).
"""

import ast
import builtins
import dis
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

CALLS = ("CALL", "CALL_FUNCTION_EX")
OWN = "rekindle"


@dataclass(frozen=True, order=True, slots=True)
class Site:
    """A call in a file, by where it ends: there no other call does."""

    file: str
    line: int
    column: int
    text: str = ""

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line} {self.text}"


def imported_by(name: str) -> list[ModuleType]:
    """A module of ours and those that it imports, directly or not, by the source of each."""
    found: dict[str, ModuleType] = {}
    wanted = [name]
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        module = found[name] = importlib.import_module(name)
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(OWN):
                below = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted += [node.module, *(one for one in below if one in sys.modules)]
            if isinstance(node, ast.Import):
                wanted += [alias.name for alias in node.names if alias.name.startswith(OWN)]
    return [found[name] for name in sorted(found)]


@lru_cache(maxsize=256)
def sites_in(module: ModuleType) -> frozenset[Site]:
    """The calls of native code in a module."""
    file = str(module.__file__)
    calls = ast.walk(ast.parse(Path(file).read_text()))
    return frozenset(
        Site(file, call.end_lineno or 0, call.end_col_offset or 0, ast.unparse(call.func))
        for call in calls
        if isinstance(call, ast.Call) and _may_be_native(call.func, vars(module))
    )


def _may_be_native(called: ast.expr, names: dict[str, Any]) -> bool:
    path: list[str] = []
    root = called
    while isinstance(root, ast.Attribute):
        path.insert(0, root.attr)
        root = root.value
    if not isinstance(root, ast.Name):
        return bool(path)
    if root.id in ("self", "cls"):
        return False
    if root.id not in names:
        return bool(path) and not hasattr(builtins, root.id)
    value = names[root.id]
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    package = str(module).partition(".")[0]
    return not package.startswith(OWN) and package not in sys.stdlib_module_names


@lru_cache(maxsize=4096)
def _calls_of(code: CodeType) -> dict[int, tuple[int, int]]:
    """Where each call of a code object ends in its source, by the place of its instruction; but not
    the one that ends a `with`, which ends where the last statement in it does."""
    positions = list(code.co_positions())
    found = {}
    before: list[dis.Instruction] = []
    for item in dis.get_instructions(code):
        leaves = [one.opname == "LOAD_CONST" and one.argval is None for one in before[-4:-1]]
        spans = {positions[one.offset // 2] for one in (*before[-4:-1], item)}
        if item.opname in CALLS and not (len(leaves) == 3 and all(leaves) and len(spans) == 1):
            _, line, _, column = positions[item.offset // 2]
            found[item.offset] = (line or 0, column or 0)
        before.append(item)
    return found


@contextmanager
def _at_calls(files: frozenset[str], act: Callable[[str, int, int], None]) -> Iterator[None]:
    """Inside, `act` is called before each call by code of some files, in this thread and in those
    that are started meanwhile."""
    is_over: list[bool] = []

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        if is_over or frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return step

    def step(frame: FrameType, event: str, _: Any) -> Any:
        if is_over:
            return None
        if event == "opcode" and (place := _calls_of(frame.f_code).get(frame.f_lasti)):
            act(frame.f_code.co_filename, *place)
        return step

    before = sys.gettrace()
    sys.settrace(enter)
    threading.settrace(enter)
    try:
        yield
    finally:
        is_over.append(True)
        sys.settrace(before)
        threading.settrace(None)


def reached_by(action: Callable[[], object], sites: frozenset[Site]) -> list[Site]:
    """Those of some sites that an action comes to, in their order."""
    known = {(site.file, site.line, site.column): site for site in sites}
    found: dict[Site, None] = {}

    def note(*place: Any) -> None:
        if place in known:
            found[known[place]] = None

    with _at_calls(frozenset(site.file for site in sites), note):
        action()
    return list(found)


@contextmanager
def raising_at(site: Site, error: BaseException) -> Iterator[None]:
    """Inside, the first call at a site raises instead."""
    left = [error]

    def fail(*place: Any) -> None:
        if left and place == (site.file, site.line, site.column):
            raise left.pop()

    with _at_calls(frozenset((site.file,)), fail):
        yield
